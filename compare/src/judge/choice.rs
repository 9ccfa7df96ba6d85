//! The model by which the library chooses, fitted to a table, and what the choice costs: its regret.

use super::View;
use super::best::{p50, shown};
use super::draw;
use super::list::grouped;
use super::peers;
use crate::table::{Instance as KernelInstance, Kind, ProblemPlace, Row, Session, Subject, Table};
use common::choice::{Chooser, Cost, Gpu, Model, TERMS, Wanted, modelled, terms};
use common::metric::Metric;
use common::problem::{Dtype, Problem};
use common::resources::multiprocessor;
use common::stage::{LoadedStage, Prepared};
use common::timing::stats::percentile;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The random problems are parts of so many: a choice is judged on each by a fit to all others.
const PARTS: usize = 10;

/// The file has what makes the fastest of it faster by this much, on average over all problems.
const WORTH: f64 = 1.5e-4;

/// The same for GPUs that have only the stages that run everywhere: their own times are not known.
const WORTH_ELSEWHERE: f64 = 4.0 * WORTH;

/// The same where nothing was timed, and the model alone says what is fastest: at so many random problems.
const WORTH_UNSEEN: f64 = 1e-3;
const UNSEEN: usize = 600;

/// Of variants that have no time at a problem: as if they took 20 times as long as the fastest.
const FAR: f64 = 3.0;

/// How often errors are weighed again, each by the time that the fit before gave.
const PASSES: usize = 3;

/// The weight of what other instances say of a coefficient, in problems of this instance: it decides where there are few.
const DOUBT: f64 = 3.0;

/// Sweeps over the coefficients: they have settled long before.
const SWEEPS: usize = 300;

/// The most that the choice may cost, on average and anywhere.
const MOST: [f64; 2] = [1.02, 1.10];

/// The times at random problems that count: of right outputs.
pub fn drawn(table: &Table) -> impl Iterator<Item = &Row> {
    let timed = table.random_times().filter(|row| row.has(Metric::P50));
    timed.filter(|row| row.failure().is_none())
}

/// Those of the sessions that were asked for all variants, as there were then; where there is none, all.
pub fn judged(table: &Table) -> impl Iterator<Item = &Row> {
    let is_whole = |row: &Row| {
        let session = table.session(row);
        session.is_some_and(|Session { scope, .. }| {
            scope.stages.is_empty() && scope.variants.is_empty()
        })
    };
    let has_whole = drawn(table).any(is_whole);
    drawn(table).filter(move |row| !has_whole || is_whole(row))
}

fn part(row: &Row) -> Option<usize> {
    row.value(Metric::Draw)
        .map(|number| number as usize % PARTS)
}

pub fn gpu(view: &View<'_>) -> Option<Gpu> {
    use crate::table::session::Gpu::Present;
    let Present {
        name,
        arch,
        multiprocessors,
        ..
    } = &view.on_gpu()?.machine.gpu
    else {
        return None;
    };
    Some(Gpu {
        name: name.clone(),
        capability: arch.trim_start_matches("sm_").parse().ok()?,
        multiprocessors: *multiprocessors,
    })
}

pub struct Fitted {
    pub model: Model,
    /// Relative errors on the problems of the fit, by element type and head size.
    errors: BTreeMap<(Dtype, usize), Vec<f64>>,
}

impl Fitted {
    /// `choice/<gpu>.json`: one line a cost.
    pub fn file(&self) -> String {
        let Model {
            gpu,
            capability,
            multiprocessors,
            costs,
        } = &self.model;
        let json = |cost| serde_json::to_string(cost).expect("a cost has no map");
        let costs: Vec<String> = costs.iter().map(json).collect();
        format!(
            "{{\"gpu\":{},\"capability\":{capability},\"multiprocessors\":{multiprocessors},\"costs\":[\n{}\n]}}\n",
            serde_json::Value::from(&**gpu),
            costs.join(",\n")
        )
    }

    /// What it says of the problems that it is fitted to.
    pub fn residuals(&self) -> impl Iterator<Item = String> {
        self.errors.iter().map(|((dtype, head_dim), errors)| {
            let worst = errors.last().copied().unwrap_or_default();
            format!(
                "times of {dtype} d{head_dim} are off by {:.1} % in the median of {}, by {:.0} % at worst",
                100.0 * percentile(errors, 0.5),
                errors.len(),
                100.0 * worst
            )
        })
    }
}

/// What an instance is: its variant, and the element type and head size of its coefficients.
type Instance = (Subject, Dtype, usize);

/// One equation: the terms of a launch, and its time.
struct Equation {
    /// The number of the table, and of the problem in it.
    place: (usize, usize),
    terms: [f64; TERMS],
    us: f64,
    /// Over the time of the fastest variant of the problem: 1 or more.
    slower: f64,
    /// What an error is measured by. The time alone would have noisy kernels faster than they are, since it makes little of what is slow.
    scale: f64,
}

/// Fits the costs of the variants of `stages`, which the library has, each by what is known of all, then of the variant, then of the instance, to the named
/// problems and all parts of the random ones but one: of the first table, and of those of other GPUs of its capability, which
/// differ less than the problems do. `None` where the first is of no GPU.
pub fn fit(tables: &[View<'_>], stages: &[LoadedStage], unseen: Option<usize>) -> Option<Fitted> {
    let own = gpu(tables.first()?)?;
    let mut equations = equations(tables, stages, own.capability, unseen);
    let mut costs = coefficients(&equations);
    for _ in 1..PASSES {
        for (instance, (_, of)) in &mut equations {
            for equation in of {
                let us = dot(&equation.terms, &costs[instance]).max(equation.us / 10.0);
                equation.scale = (equation.us * us).sqrt();
            }
        }
        costs = coefficients(&equations);
    }
    let measured = equations.iter().map(|(instance, (_, of))| {
        let times = of.iter().map(|of| (of.place, of.us));
        (instance.clone(), times.collect())
    });
    let mut measured: Times = measured.collect();
    let mut kept = cover(&measured, WORTH);
    measured.retain(|(subject, ..), _| {
        let stage = loaded(stages, subject);
        stage.is_some_and(|stage| stage.attention.artifacts().architectures.is_empty())
    });
    kept.append(&mut cover(&measured, WORTH_ELSEWHERE));
    let predicted = predicted(&equations, &costs, stages, own.multiprocessors);
    kept.append(&mut cover(&predicted, WORTH_UNSEEN));
    let mut errors: BTreeMap<(Dtype, usize), Vec<f64>> = BTreeMap::new();
    for (instance, (_, of)) in &equations {
        for of in of.iter().filter(|of| of.place.0 == 0) {
            let error = (dot(&of.terms, &costs[instance]) / of.us - 1.0).abs();
            let of_size = errors.entry((instance.1, instance.2));
            of_size.or_default().push(error);
        }
    }
    errors
        .values_mut()
        .for_each(|of| of.sort_by(f64::total_cmp));
    let cost = |instance: &Instance| Cost {
        variant: instance.0.to_string(),
        dtype: instance.1,
        head_dim: instance.2,
        resident: equations[instance].0,
        us: costs[instance].map(significant),
    };
    Some(Fitted {
        model: Model {
            gpu: own.name,
            capability: own.capability,
            multiprocessors: own.multiprocessors,
            costs: kept.iter().map(cost).collect(),
        },
        errors,
    })
}

/// With the blocks that a multiprocessor holds.
type Equations = BTreeMap<Instance, (u32, Vec<Equation>)>;

fn equations(
    tables: &[View<'_>],
    stages: &[LoadedStage],
    capability: u32,
    unseen: Option<usize>,
) -> Equations {
    let mut equations = Equations::new();
    for (table, view) in tables.iter().enumerate() {
        let Some(gpu) = gpu(view).filter(|gpu| gpu.capability == capability) else {
            continue;
        };
        let of_draws: BTreeSet<&Subject> = drawn(&view.table).map(|row| &row.subject).collect();
        // Of a stage without random problems the library may have nothing.
        let has_draws = |row: &Row| of_draws.is_empty() || of_draws.contains(&row.subject);
        let is_seen = |row: &Row| unseen.is_none() || part(row) != unseen;
        // STALE ones too: a kernel that changes by a few percent changes few choices.
        let named = shown(view).filter(|row| row.problem().is_some_and(|place| !place.cold));
        let rows = named.chain(drawn(&view.table));
        let problems = grouped(rows.filter_map(|row| Some((row.problem()?, row))));
        for (number, (place, rows)) in problems.into_iter().enumerate() {
            let Some(problem) = place.problem() else {
                continue;
            };
            // What the library does not have it cannot choose.
            let rows = rows
                .into_iter()
                .filter(|row| loaded(stages, &row.subject).is_some());
            let rows = Vec::from_iter(rows);
            let least = rows.iter().map(|row| p50(row));
            let least = least.fold(f64::INFINITY, f64::min);
            for row in rows {
                let launch = launch(stages, &row.subject, &problem);
                let Some(Prepared { kernel, grid, .. }) =
                    launch.filter(|_| is_seen(row) && has_draws(row))
                else {
                    continue;
                };
                let size = (modelled(problem.dtype), problem.shape.head_dim);
                let (resident, of_instance) = equations
                    .entry((row.subject.clone(), size.0, size.1))
                    .or_insert_with(|| (resident(view, &row.subject, kernel), vec![]));
                let us = p50(row);
                of_instance.push(Equation {
                    place: (table, number),
                    terms: terms(&problem, kernel, grid, *resident, gpu.multiprocessors),
                    us,
                    slower: us / least,
                    scale: us,
                });
            }
        }
    }
    equations
}

/// Of instances, by table and problem.
type Times = BTreeMap<Instance, Vec<((usize, usize), f64)>>;

/// At random problems: what is much the fastest where few problems are may have no time there.
fn predicted(
    equations: &Equations,
    costs: &BTreeMap<Instance, [f64; TERMS]>,
    stages: &[LoadedStage],
    multiprocessors: u32,
) -> Times {
    let mut predicted = Times::new();
    for (number, problem) in draw::problems(0, UNSEEN).iter().enumerate() {
        for (instance, (resident, of)) in equations {
            let (subject, dtype, head_dim) = instance;
            let is_its = (*dtype, *head_dim) == (modelled(problem.dtype), problem.shape.head_dim);
            // Of fewer times than coefficients others would speak alone.
            if !is_its || of.len() < TERMS {
                continue;
            }
            let launch = launch(stages, subject, problem);
            let Some(Prepared { kernel, grid, .. }) = launch else {
                continue;
            };
            let terms = terms(problem, kernel, grid, *resident, multiprocessors);
            let us = dot(&terms, &costs[instance]).max(0.1);
            let times = predicted.entry(instance.clone()).or_default();
            times.push(((0, number), us));
        }
    }
    predicted
}

/// The instances among which something fast is for every problem, fewest first: each next one is what all before it lack most.
fn cover(times: &Times, worth: f64) -> BTreeSet<Instance> {
    let mut fastest = BTreeMap::new();
    for (place, us) in times.values().flatten() {
        let least = fastest.entry(*place).or_insert(*us);
        *least = us.min(*least);
    }
    // Logarithms of what the best of those that are in is slower by.
    let mut lack: BTreeMap<_, f64> = fastest.keys().map(|place| (*place, FAR)).collect();
    let slower = |(place, us): &(_, f64)| (us / fastest[place]).ln();
    let mut kept = BTreeSet::new();
    loop {
        let gain = |of: &(_, f64)| (lack[&of.0] - slower(of)).max(0.0);
        let gains = times
            .iter()
            .map(|(instance, of)| (of.iter().map(gain).sum::<f64>(), instance));
        let Some((_, next)) = gains
            .filter(|(gain, _)| *gain >= worth * fastest.len() as f64)
            .max_by(|a, b| a.0.total_cmp(&b.0))
        else {
            return kept;
        };
        for of in &times[next] {
            let lacked = lack.get_mut(&of.0).expect("a problem with a time");
            *lacked = lacked.min(slower(of));
        }
        kept.insert(next.clone());
    }
}

/// Of all instances: what is known of all shapes what is known of a variant, and that what is known of an instance.
fn coefficients(equations: &Equations) -> BTreeMap<Instance, [f64; TERMS]> {
    let of = |is_of: &dyn Fn(&Instance) -> bool, prior: Option<[f64; TERMS]>| {
        let those = equations.iter().filter(|(instance, _)| is_of(instance));
        least_squares(those.flat_map(|(_, (_, of))| of), prior)
    };
    let dtypes: BTreeSet<Dtype> = equations.keys().map(|instance| instance.1).collect();
    let of_all = |dtype| (dtype, of(&|other| other.1 == dtype, None));
    let all: BTreeMap<Dtype, _> = dtypes.into_iter().map(of_all).collect();
    let own = |instance: &Instance| {
        let (subject, dtype, _) = instance;
        let is_variant = |other: &Instance| (&other.0, other.1) == (subject, *dtype);
        let variant = of(&is_variant, Some(all[dtype]));
        of(&|other| other == instance, Some(variant))
    };
    let instances = equations.keys();
    instances
        .map(|instance| (instance.clone(), own(instance)))
        .collect()
}

fn loaded<'a>(stages: &'a [LoadedStage], subject: &Subject) -> Option<&'a LoadedStage> {
    stages
        .iter()
        .find(|stage| stage.info().id == subject.stage())
}

fn launch<'a>(
    stages: &'a [LoadedStage],
    subject: &Subject,
    problem: &Problem,
) -> Option<Prepared<'a>> {
    let stage = loaded(stages, subject)?;
    stage.prepare(subject.name(), problem).ok()
}

/// How many blocks a multiprocessor of the table's GPU holds; 1 where that was not compiled for.
fn resident(view: &View<'_>, subject: &Subject, kernel: &common::stage::Kernel) -> u32 {
    let arch = view.table.compiled_arch().unwrap_or_default();
    let instance = KernelInstance {
        dtype: kernel.dtype,
        head_dim: kernel.head_dim,
    };
    let mut compiled = view.table.compiled_instance(subject, instance);
    let of_arch = compiled.find(|compiled| compiled.arch == arch);
    let share = of_arch.and_then(|compiled| compiled.row.value(Metric::Occupancy));
    let threads = multiprocessor(arch).map(|sm| f64::from(sm.threads));
    let blocks = share
        .zip(threads)
        .map(|(share, threads)| share * threads / f64::from(kernel.threads));
    blocks.map_or(1, |blocks| blocks.round().max(1.0) as u32)
}

fn dot(a: &[f64; TERMS], b: &[f64; TERMS]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// As many digits as a file keeps.
fn significant(value: f64) -> f64 {
    format!("{value:.2e}").parse().expect("a number")
}

/// The coefficients, none negative, of the least weighted squares. A prior counts as [`DOUBT`] equations for each coefficient.
fn least_squares<'a>(
    equations: impl Iterator<Item = &'a Equation>,
    prior: Option<[f64; TERMS]>,
) -> [f64; TERMS] {
    let (mut products, mut right, mut count) = ([[0.0; TERMS]; TERMS], [0.0; TERMS], 0.0);
    for of in equations {
        // Relative, and more where the variant may be chosen.
        let weight = 1.0 / of.scale / of.slower;
        let row = of.terms.map(|term| term * weight);
        for i in 0..TERMS {
            right[i] += row[i] * of.us * weight;
            for j in 0..TERMS {
                products[i][j] += row[i] * row[j];
            }
        }
        count += 1.0;
    }
    if count == 0.0 {
        return prior.unwrap_or_default();
    }
    let mut found = prior.unwrap_or_default();
    if let Some(prior) = prior {
        for i in 0..TERMS {
            let doubt = DOUBT * products[i][i] / count;
            products[i][i] += doubt;
            right[i] += doubt * prior[i];
        }
    }
    for _ in 0..SWEEPS {
        for i in 0..TERMS {
            if products[i][i] > 0.0 {
                let rest = right[i] - dot(&products[i], &found);
                found[i] = (found[i] + rest / products[i][i]).max(0.0);
            }
        }
    }
    found
}

/// What the choice costs: its time over that of the fastest variant of all stages, whether or not the library has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Regret {
    pub problems: usize,
    /// All random problems: more than [`Regret::problems`] where what was chosen has no time of a right output.
    pub drawn: usize,
    pub mean: f64,
    pub worst: f64,
    /// Where, and what was chosen in place of what.
    pub at: String,
}

impl Regret {
    /// Returns each goal that is missed, with what was measured.
    pub fn missed(&self) -> Vec<String> {
        let untimed = self.drawn - self.problems;
        let goals = [
            (self.mean > MOST[0])
                .then(|| format!("{} on average (goal {:.2})", self.mean_ratio(), MOST[0])),
            (self.worst > MOST[1])
                .then(|| format!("{} at worst (goal {:.2})", self.worst_ratio(), MOST[1])),
            (untimed > 0).then(|| {
                format!(
                    "no right time of what it chooses on {untimed} of {} random problems",
                    self.drawn
                )
            }),
        ];
        goals.into_iter().flatten().collect()
    }

    fn mean_ratio(&self) -> String {
        format!("{:.3}x the fastest variant's time", self.mean)
    }

    fn worst_ratio(&self) -> String {
        format!("{:.3}x", self.worst)
    }

    pub fn row(&self) -> Row {
        Row::new(LIBRARY, Kind::Regret)
            .figure(Metric::RegretMean, self.mean)
            .figure(Metric::RegretWorst, self.worst)
            .figure(Metric::Cases, self.problems)
            .figure(Metric::Draw, self.drawn)
            .note(&self.at)
    }

    /// Returns what the report is about: of a run, what the run itself judged.
    pub fn reported(view: &View<'_>) -> Option<Self> {
        let row = Self::in_table(&view.table).filter(|row| view.is_reported(row));
        Self::view(&view.table).filter(|_| row.is_some())
    }

    pub fn view(table: &Table) -> Option<Self> {
        Self::read(Self::in_table(table)?)
    }

    fn in_table(table: &Table) -> Option<&Row> {
        table.row(&LIBRARY.into(), Kind::Regret)
    }

    fn read(row: &Row) -> Option<Self> {
        Some(Self {
            problems: row.value(Metric::Cases)? as usize,
            drawn: row.value(Metric::Draw)? as usize,
            mean: row.value(Metric::RegretMean)?,
            worst: row.value(Metric::RegretWorst)?,
            at: row.note.clone().unwrap_or_default(),
        })
    }
}

const LIBRARY: &str = "attention-ladder";

impl fmt::Display for Regret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |is_kept| if is_kept { '✓' } else { '✗' };
        write!(
            f,
            "{} on average (goal {:.2} {}), {} at worst (goal {:.2} {}: {})",
            self.mean_ratio(),
            MOST[0],
            mark(self.mean <= MOST[0]),
            self.worst_ratio(),
            MOST[1],
            mark(self.worst <= MOST[1]),
            self.at
        )?;
        match self.drawn - self.problems {
            0 => write!(f, "; over {} random problems", self.drawn),
            untimed => write!(
                f,
                "; over {} of {} random problems: on {untimed} what it chooses was not timed, or is wrong ✗",
                self.problems, self.drawn
            ),
        }
    }
}

/// The regret of the models, on the random problems that are judged. `stages` are the library's: it can choose no other, but is measured
/// by the fastest of all.
pub fn regret(view: &View<'_>, stages: &[LoadedStage], models: &[Model]) -> Option<Regret> {
    let chooser = Chooser::new(stages, models, &gpu(view)?);
    regret_of(view, stages, |_| &chooser)
}

/// What the library chooses among, and what it knows of GPUs' times.
#[derive(Clone, Copy)]
pub struct Library<'a> {
    pub stages: &'a [LoadedStage],
    pub models: &'a [Model],
}

/// Returns what the library chooses on each problem that was timed beside peers; nothing without a model.
pub fn choices(view: &View<'_>, library: Library<'_>) -> BTreeMap<ProblemPlace, Subject> {
    let problems = peers::problems(view).into_iter();
    choose(view, library, problems.map(|problem| problem.place))
}

/// Returns what the library chooses on these problems; nothing without a model.
pub fn choose<'p>(
    view: &View<'_>,
    library: Library<'_>,
    places: impl Iterator<Item = &'p ProblemPlace>,
) -> BTreeMap<ProblemPlace, Subject> {
    let Library { stages, models } = library;
    let Some(gpu) = gpu(view).filter(|_| !models.is_empty()) else {
        return BTreeMap::new();
    };
    let chooser = Chooser::new(stages, models, &gpu);
    let chosen = places.filter_map(|place| {
        let chosen = chooser.choose(stages, &place.problem()?, Wanted::default());
        let (stage, prepared) = chosen.ok()?;
        let subject = Subject::variant(stage.info().id, &prepared.kernel.variant);
        Some((place.clone(), subject))
    });
    chosen.collect()
}

/// Of the fit, on each part of the first table's problems of one that has not seen it.
pub fn unseen_regret(tables: &[View<'_>], stages: &[LoadedStage]) -> Option<Regret> {
    let view = tables.first()?;
    let gpu = gpu(view)?;
    let chooser = |part| {
        let fitted = fit(tables, stages, Some(part))?;
        Some(Chooser::new(stages, &[fitted.model], &gpu))
    };
    let choosers: Vec<Chooser> = (0..PARTS).map(chooser).collect::<Option<_>>()?;
    regret_of(view, stages, |part| &choosers[part])
}

fn regret_of<'a>(
    view: &View<'_>,
    stages: &[LoadedStage],
    chooser_of: impl Fn(usize) -> &'a Chooser,
) -> Option<Regret> {
    let rows = judged(&view.table);
    let problems = grouped(rows.filter_map(|row| Some((row.problem()?, row))));
    let drawn = problems.len();
    let cost = |(place, rows): (&ProblemPlace, Vec<&Row>)| {
        let (stage, prepared) = chooser_of(part(rows.first()?)?)
            .choose(stages, &place.problem()?, Wanted::default())
            .ok()?;
        let chosen = Subject::variant(stage.info().id, &prepared.kernel.variant);
        let own = rows.iter().find(|row| row.subject == chosen)?;
        let best = rows.iter().min_by(|a, b| p50(a).total_cmp(&p50(b)))?;
        let at = format!(
            "{place}: {chosen} {:.1} µs, {} {:.1} µs",
            p50(own),
            best.subject,
            p50(best)
        );
        Some((p50(own) / p50(best), at))
    };
    let costs: Vec<(f64, String)> = problems.into_iter().filter_map(cost).collect();
    let (worst, at) = costs.iter().max_by(|a, b| a.0.total_cmp(&b.0)).cloned()?;
    Some(Regret {
        problems: costs.len(),
        drawn,
        mean: costs.iter().map(|(cost, _)| cost).sum::<f64>() / costs.len() as f64,
        worst,
        at,
    })
}

#[cfg(test)]
mod tests;
