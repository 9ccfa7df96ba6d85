//! The fit of a model's coefficients to tables.

use super::cover::{Time, Times, cover};
use super::draw;
use super::equations::{
    Equation, Instance, ProblemId, Samples, SamplesByInstance, collect_samples,
};
use super::least_squares::{Coefficients, dot, least_squares};
use super::{gpu_of, launch, loaded};
use common::choice::{Blocks, Cost, Model, TERMS, terms};
use common::problem::Dtype;
use common::stage::LoadedStage;
use common::timing::stats::percentile;
use results::judge::View;
use std::collections::BTreeMap;

/// The gain that an instance must have to be in the file: it makes the fastest of the file faster
/// by this much, on average over all problems.
const MIN_MEAN_GAIN: f64 = 1.5e-4;

/// The gain for GPUs that have only the stages that run everywhere: their own times are not known.
const MIN_MEAN_GAIN_ELSEWHERE: f64 = 4.0 * MIN_MEAN_GAIN;

/// The gain where nothing was timed, and the model alone predicts what is fastest.
const MIN_MEAN_GAIN_UNTIMED: f64 = 1e-3;

/// The number of random problems whose times the model predicts.
const UNTIMED_PROBLEMS: usize = 600;

/// The number of fits. Each weighs errors by the times that the fit before it predicted.
const PASSES: usize = 3;

type CoefficientsByInstance = BTreeMap<Instance, Coefficients>;

/// The element type and head size that errors are reported for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Size {
    dtype: Dtype,
    head_dim: usize,
}

/// A model, and how far its times are from those that it was fitted to.
pub struct Fitted {
    pub model: Model,
    /// The relative errors on the problems of the first table, in ascending order.
    errors: BTreeMap<Size, Vec<f64>>,
}

impl Fitted {
    /// Returns the text of `choice/<gpu>.json`: one line a cost.
    pub fn file(&self) -> String {
        let Model {
            gpu,
            capability,
            multiprocessors,
            costs,
        } = &self.model;
        let mut lines = Vec::new();
        for cost in costs {
            lines.push(serde_json::to_string(cost).expect("a cost has no map"));
        }
        let name = serde_json::Value::from(gpu.as_str());
        format!(
            "{{\"gpu\":{name},\"capability\":{capability},\
             \"multiprocessors\":{multiprocessors},\"costs\":[\n{}\n]}}\n",
            lines.join(",\n")
        )
    }

    /// Returns a line for each element type and head size: how far the model is from the times that
    /// it is fitted to.
    pub fn residuals(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (Size { dtype, head_dim }, errors) in &self.errors {
            let worst = errors.last().copied().unwrap_or_default();
            lines.push(format!(
                "times of {dtype} d{head_dim} are off by {:.1} % in the median of {}, \
                 by {:.0} % at worst",
                100.0 * percentile(errors, 0.5),
                errors.len(),
                100.0 * worst
            ));
        }
        lines
    }

    /// Returns all relative errors on the problems of the first table.
    #[cfg(test)]
    pub(crate) fn errors(&self) -> Vec<f64> {
        self.errors.values().flatten().copied().collect()
    }
}

/// Fits the costs of the variants of `stages`, which are the library's, to the named problems and
/// to all random ones that are not of the part `unseen`. The equations are those of the first
/// table, and of tables of other GPUs of its capability, which differ less than the problems do.
/// Returns `None` if the first table is of no GPU.
pub fn fit(tables: &[View<'_>], stages: &[LoadedStage], unseen: Option<usize>) -> Option<Fitted> {
    let gpu = gpu_of(tables.first()?)?;
    let mut samples = collect_samples(tables, stages, gpu.capability, unseen);
    let coefficients = fit_in_passes(&mut samples);
    let candidates = Candidates {
        samples: &samples,
        coefficients: &coefficients,
        stages,
        multiprocessors: gpu.multiprocessors,
    };
    Some(Fitted {
        errors: errors_of_first_table(&samples, &coefficients),
        model: Model {
            costs: candidates.costs(),
            gpu: gpu.name,
            capability: gpu.capability,
            multiprocessors: gpu.multiprocessors,
        },
    })
}

fn fit_in_passes(samples: &mut SamplesByInstance) -> CoefficientsByInstance {
    let mut coefficients = fit_with_priors(samples);
    for _ in 1..PASSES {
        for (instance, Samples { equations, .. }) in samples.iter_mut() {
            for equation in equations {
                let predicted = dot(&equation.terms, &coefficients[instance]);
                equation.scale = (equation.us * predicted.max(equation.us / 10.0)).sqrt();
            }
        }
        coefficients = fit_with_priors(samples);
    }
    coefficients
}

/// Fits each instance with its variant as the prior, and each variant with all variants of its
/// element type as the prior.
fn fit_with_priors(samples: &SamplesByInstance) -> CoefficientsByInstance {
    let mut by_dtype = BTreeMap::new();
    let mut by_variant = BTreeMap::new();
    let mut by_instance = CoefficientsByInstance::new();
    for instance in samples.keys() {
        let Instance { variant, dtype, .. } = instance;
        let of_dtype = *by_dtype
            .entry(dtype)
            .or_insert_with(|| fit_where(samples, |other| other.dtype == *dtype, None));
        let of_variant = *by_variant.entry((variant, dtype)).or_insert_with(|| {
            let is_of_variant =
                |other: &Instance| other.variant == *variant && other.dtype == *dtype;
            fit_where(samples, is_of_variant, Some(of_dtype))
        });
        let of_instance = fit_where(samples, |other| other == instance, Some(of_variant));
        by_instance.insert(instance.clone(), of_instance);
    }
    by_instance
}

/// Fits one set of coefficients to the equations of all instances that are chosen.
fn fit_where(
    samples: &SamplesByInstance,
    is_chosen: impl Fn(&Instance) -> bool,
    prior: Option<Coefficients>,
) -> Coefficients {
    let equations = samples
        .iter()
        .filter(|(instance, _)| is_chosen(instance))
        .flat_map(|(_, of_instance)| &of_instance.equations);
    least_squares(equations, prior)
}

fn errors_of_first_table(
    samples: &SamplesByInstance,
    coefficients: &CoefficientsByInstance,
) -> BTreeMap<Size, Vec<f64>> {
    let mut errors: BTreeMap<Size, Vec<f64>> = BTreeMap::new();
    for (instance, Samples { equations, .. }) in samples {
        let size = Size {
            dtype: instance.dtype,
            head_dim: instance.head_dim,
        };
        for equation in equations {
            if equation.problem.table == 0 {
                let predicted = dot(&equation.terms, &coefficients[instance]);
                let of_size = errors.entry(size).or_default();
                of_size.push((predicted / equation.us - 1.0).abs());
            }
        }
    }
    for of_size in errors.values_mut() {
        of_size.sort_by(f64::total_cmp);
    }
    errors
}

/// The fitted instances, among which those of the file are chosen.
struct Candidates<'a> {
    samples: &'a SamplesByInstance,
    coefficients: &'a CoefficientsByInstance,
    stages: &'a [LoadedStage],
    multiprocessors: u32,
}

impl Candidates<'_> {
    /// Returns the costs of the file.
    fn costs(&self) -> Vec<Cost> {
        let measured = self.measured();
        let mut kept = cover(&measured, MIN_MEAN_GAIN);
        kept.append(&mut cover(
            &self.runnable_everywhere(measured),
            MIN_MEAN_GAIN_ELSEWHERE,
        ));
        kept.append(&mut cover(&self.predicted(), MIN_MEAN_GAIN_UNTIMED));
        kept.iter().map(|instance| self.cost(instance)).collect()
    }

    fn cost(&self, instance: &Instance) -> Cost {
        Cost {
            variant: instance.variant.to_string(),
            dtype: instance.dtype,
            head_dim: instance.head_dim,
            resident: self.samples[instance].resident,
            us: self.coefficients[instance].map(significant_digits),
        }
    }

    fn measured(&self) -> Times {
        let mut measured = Times::new();
        for (instance, Samples { equations, .. }) in self.samples {
            let times = equations
                .iter()
                .map(|&Equation { problem, us, .. }| Time { problem, us });
            measured.insert(instance.clone(), times.collect());
        }
        measured
    }

    fn runnable_everywhere(&self, mut times: Times) -> Times {
        times.retain(|instance, _| {
            loaded(self.stages, &instance.variant)
                .is_some_and(|stage| stage.attention.artifacts().architectures.is_empty())
        });
        times
    }

    /// Returns the times that the model predicts at random problems: what is much the fastest where
    /// few problems are may have no time there.
    fn predicted(&self) -> Times {
        let mut predicted = Times::new();
        for (number, problem) in draw::problems(0, UNTIMED_PROBLEMS).iter().enumerate() {
            for (instance, samples) in self.samples {
                // With fewer times than coefficients the priors alone would decide.
                if !instance.fits(problem) || samples.equations.len() < TERMS {
                    continue;
                }
                let Some(prepared) = launch(self.stages, &instance.variant, problem) else {
                    continue;
                };
                let launch_terms = terms(
                    problem,
                    prepared.kernel,
                    Blocks::new(&prepared, samples.resident),
                    self.multiprocessors,
                );
                let times = predicted.entry(instance.clone()).or_default();
                times.push(Time {
                    problem: ProblemId { table: 0, number },
                    us: dot(&launch_terms, &self.coefficients[instance]).max(0.1),
                });
            }
        }
        predicted
    }
}

/// Rounds to the digits that a file keeps.
fn significant_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().expect("a number")
}
