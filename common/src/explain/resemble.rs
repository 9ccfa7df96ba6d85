//! Which planted fault a deviation resembles: each leaves a signature in the first quantity that it touches. And where to look.

use super::steps::Cell;
use super::{Before, Case, Operands, Quantity, Step, Wrong, dot, rounded, weights};
use crate::faults::Fault;
use crate::format::Format;
use crate::problem::{Dtype, Shape};
use crate::reference::Probability;
use emulator::trace::{Observations, Passed, Step as Marked};

/// The fault, and the evidence for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Likeness {
    /// None where nothing known leaves such figures.
    pub fault: Option<Fault>,
    /// In words.
    pub why: String,
    /// Whose place is in doubt: where an operand was read, or brought from.
    pub(super) operand: Suspect,
}

/// What of the kernel is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspect {
    /// The statements around the place at which it is shown.
    Here,
    /// The product's own reads.
    Product,
    /// What brings this operand on chip.
    Copy(&'static str),
}

pub(super) fn like(fault: impl Into<Option<Fault>>, why: impl Into<String>) -> Likeness {
    Likeness {
        fault: fault.into(),
        why: why.into(),
        operand: Suspect::Here,
    }
}

impl Likeness {
    fn of(self, operand: Suspect) -> Self {
        Self { operand, ..self }
    }
}

/// Values agree when they are this near: a signature, not a bound.
fn agree(a: f64, b: f64, unit: f64) -> bool {
    a == b || (a - b).abs() <= 2e-5 * unit.max(1e-6)
}

/// Whether the kernel's numbers are what `value` gives.
fn all_agree(wrong: &[Wrong], value: impl Fn(i64) -> Option<f64>) -> bool {
    let unit = wrong.iter().map(|w| w.model.abs()).fold(0.0, f64::max);
    let is = |w: &Wrong| value(w.at).is_some_and(|value| agree(w.kernel, value, unit));
    wrong.iter().all(is)
}

/// Whether rows of another key head, or of keys further on, give the kernel's numbers: `explains` says so of a head and a
/// distance. Returns the distance too.
fn displaced(
    operands: &Operands,
    shape: &Shape,
    what: &str,
    explains: impl Fn(usize, i64) -> bool,
) -> Option<(Likeness, i64)> {
    let mut heads = (0..shape.batch * shape.heads_kv).filter(|head| *head != operands.head);
    if let Some(head) = heads.find(|&head| explains(head, 0)) {
        let (batch, head) = (head / shape.heads_kv, head % shape.heads_kv);
        let why = format!("{what} batch {batch}, key head {head}");
        return Some((like(Fault::WrongKeyHead, why), 0));
    }
    let mut distances = (1..operands.keys as i64).flat_map(|far| [-far, far]);
    let far = distances.find(|&far| explains(operands.head, far))?;
    let why = format!("{what} keys {far} further on");
    Some((like(Fault::StaleTile, why), far))
}

/// Rounded once more than it should be, to `format` or to so many bits less.
fn is_rounding(wrong: &[Wrong], format: Format, less: i32) -> bool {
    let bits = format.significand_bits() - less;
    wrong
        .iter()
        .all(|w| (w.kernel - w.model).abs() <= w.model.abs().max(w.kernel.abs()) * 2f64.powi(-bits))
}

fn off_by_rounding(what: &str, format: Format) -> String {
    format!("{what} off by what rounding to {} does", format.name())
}

/// The factor between what the kernel and the model have, where it is one.
fn ratio(wrong: &[Wrong]) -> Option<f64> {
    let ratios = || {
        let large = wrong.iter().filter(|w| w.model.abs() > 1e-6);
        large.map(|w| w.kernel / w.model)
    };
    let first = ratios().next()?;
    let is_one = |ratio: f64| ratio.is_finite() && (ratio - first).abs() <= 4e-3 * first.abs();
    (first != 0.0 && ratios().all(is_one)).then_some(first)
}

pub(super) fn step(
    operands: &Operands,
    case: &Case<'_>,
    step: &Step,
    before: &Before,
    wrong: &[Wrong],
    quantity: Quantity,
) -> Likeness {
    let max = step.max.as_ref().map_or(before.max, Cell::any);
    match quantity {
        Quantity::Score => score(operands, case, step, wrong),
        Quantity::Maximum if wrong[0].kernel == 0.0 && before.max == f64::NEG_INFINITY => like(
            Fault::MaximumFromZero,
            "the maximum is 0, above every score that the row has seen",
        ),
        Quantity::Maximum if is_of_first_batch(operands, case, step, wrong) => like(
            Fault::ScalesOfFirstBatch,
            "the maximum is that of this row's scores under the scales of batch 0",
        ),
        Quantity::Maximum => like(
            Fault::NeighbourState,
            "the maximum is none of a score of this row and of its maximum before",
        ),
        Quantity::Probability => probability(operands, wrong),
        Quantity::Sum | Quantity::Rescaled => {
            let kept = |w: &Wrong| match quantity {
                Quantity::Sum => {
                    before.sum + step.probabilities.values().map(Cell::any).sum::<f64>()
                }
                _ => before.output[w.at as usize],
            };
            if before.factor(max) != 1.0
                && wrong
                    .iter()
                    .all(|w| agree(w.kernel, kept(w), w.kernel.abs()))
            {
                like(
                    Fault::MissingRescale,
                    "it is right if nothing is multiplied by the change of the maximum",
                )
            } else if is_rounding(wrong, operands.format(), 1) {
                let fault = match quantity {
                    Quantity::Sum => Fault::SumInHalf,
                    _ => Fault::AccumulatorInHalf,
                };
                like(fault, off_by_rounding("it is", operands.format()))
            } else {
                like(
                    Fault::NeighbourState,
                    "it was multiplied by something else than the change of this row's maximum",
                )
            }
        }
        Quantity::Output => output(operands, case, step, before, wrong, max),
        Quantity::Keys | Quantity::Result => like(None, ""),
    }
}

fn is_of_first_batch(operands: &Operands, case: &Case<'_>, step: &Step, wrong: &[Wrong]) -> bool {
    let shape = case.inputs.problem.shape;
    let [batch, head, _] = case.row;
    let head_kv = operands.head % shape.heads_kv;
    let scales = [
        (&case.inputs.q, shape.heads_q, head),
        (&case.inputs.k, shape.heads_kv, head_kv),
    ];
    let factor = scales.iter().map(|(operand, heads, head)| {
        let scale = |batch: usize| operand.scales.get(batch * heads + head).copied();
        f64::from(scale(0).unwrap_or(1.0)) / f64::from(scale(batch).unwrap_or(1.0))
    });
    let model = operands.largest(step) * factor.product::<f64>();
    let is_model = |w: &Wrong| (w.kernel - model).abs() <= 1e-5 * model.abs();
    batch > 0 && wrong.iter().all(is_model)
}

fn score(operands: &Operands, case: &Case<'_>, step: &Step, wrong: &[Wrong]) -> Likeness {
    let scores = step
        .scores
        .keys()
        .filter(|key| operands.sees(**key))
        .count();
    let shape = case.inputs.problem.shape;
    let masked = |value: f64| value == f64::NEG_INFINITY;
    if wrong.iter().all(|w| masked(w.model)) {
        let (seen, past) = (operands.visible as i64, operands.keys as i64);
        return if seen == 0 {
            like(
                Fault::EmptyRowAveraged,
                "the row sees no key, and these count",
            )
        } else if wrong.iter().all(|w| w.at >= past) {
            like(
                Fault::UnmaskedPadding,
                format!("there are {past} keys, and these count"),
            )
        } else {
            like(
                Fault::CausalOffByOne,
                format!("the row sees keys 0 to {}, and these count", seen - 1),
            )
        };
    }
    if wrong.iter().all(|w| masked(w.kernel)) {
        let seen = operands.visible;
        return like(
            Fault::CausalOffByOne,
            format!("the row sees {seen} keys, and these are masked"),
        );
    }
    let wrong: Vec<Wrong> = wrong
        .iter()
        .copied()
        .filter(|w| w.model.is_finite() && w.kernel.is_finite())
        .collect();
    if wrong.is_empty() {
        return like(None, "scores are not finite").of(Suspect::Copy("k"));
    }
    let all = |value: &dyn Fn(i64) -> Option<f64>| all_agree(&wrong, value);
    if all(&|key| Some(dot(&operands.q, operands.value(key)?))) {
        return like(Fault::SwappedKeysAndValues, "the scores are those of V")
            .of(Suspect::Copy("k"));
    }
    let is_of = |head: usize, far: i64| {
        all(&|key| {
            Some(dot(
                &operands.q,
                operands.row(&operands.k, head, key + far)?,
            ))
        })
    };
    if let Some((likeness, far)) = displaced(operands, &shape, "the scores are those of", is_of) {
        let is_whole = far == 0 || wrong.len() == scores;
        return likeness.of(match is_whole {
            true => Suspect::Copy("k"),
            false => Suspect::Product,
        });
    }
    let codes = case.inputs.q.codes();
    for (row, q) in codes.chunks(operands.dim).enumerate() {
        let of = |key: i64| {
            let products = q.iter().zip(operands.key(key)?);
            Some(products.map(|(&q, k)| f64::from(q) * k).sum())
        };
        if all(&of) {
            let why = format!("the scores are those of query row {}", row % shape.seq_q);
            return like(Fault::NeighbourState, why).of(Suspect::Product);
        }
    }
    if is_rounding(&wrong, operands.format(), 2) {
        return like(
            Fault::AccumulatorInHalf,
            off_by_rounding("they are", operands.format()),
        )
        .of(Suspect::Product);
    }
    // The bound is some 2^-12 of what the products add up to.
    let is_near = |w: &Wrong| (w.kernel - w.model).abs() <= 100.0 * w.bound;
    let found = if operands.dtype == Dtype::E4m3 && wrong.iter().all(is_near) {
        like(
            Fault::CodecMismatch,
            "they are off by few percent of their products, as if codes meant other values",
        )
    } else if let Some(ratio) = ratio(&wrong) {
        like(
            None,
            format!("they are {ratio:.4} times what they should be"),
        )
    } else {
        like(
            None,
            "no other row, key, head or rounding gives these scores",
        )
    };
    found.of(Suspect::Product)
}

fn probability(operands: &Operands, wrong: &[Wrong]) -> Likeness {
    let in_e4m3 = |w: &Wrong| rounded(Probability::E4m3, w.model);
    if wrong.iter().all(|w| agree(w.kernel, in_e4m3(w), w.kernel)) {
        like(
            Fault::ProbabilityInE4m3,
            "they are the model's, rounded to E4M3",
        )
    } else if is_rounding(wrong, operands.format(), 4) {
        let is_low = wrong.iter().all(|w| w.kernel < w.model);
        let (fault, how) = if is_low {
            (Fault::ProbabilityTruncated, "all towards 0")
        } else {
            (Fault::AccumulatorInHalf, "up and down")
        };
        like(fault, format!("they are off by rounding, {how}"))
    } else if let Some(ratio) = ratio(wrong) {
        like(
            Fault::ScalesOfFirstBatch,
            format!("they are {ratio:.4} times what they should be"),
        )
    } else {
        like(
            Fault::NeighbourState,
            "they are exponentials under another maximum or scale than the row's",
        )
    }
}

fn output(
    operands: &Operands,
    case: &Case<'_>,
    step: &Step,
    before: &Before,
    wrong: &[Wrong],
    max: f64,
) -> Likeness {
    let column = |at: i64| usize::try_from(at).ok().filter(|at| *at < operands.dim);
    let base = |at: i64| match step.rescaled.get(&at) {
        Some(cell) => cell.sum(),
        None => column(at).map_or(0.0, |at| before.output[at]) * before.factor(max),
    };
    // P times a column of V, or of another matrix, head or key in its place.
    let product = |weights: &[(i64, f64)], of: &[f64], head: usize, far: i64, at: usize| -> f64 {
        let row = |key: i64| operands.row(of, head, key + far);
        let products = weights
            .iter()
            .map(|&(key, p)| p * row(key).map_or(0.0, |row| row[at]));
        products.sum()
    };
    let p = weights(step, case.probability);
    let all = |value: &dyn Fn(i64) -> Option<f64>| all_agree(wrong, value);
    let with = |of: &[f64], head: usize, far: i64| {
        all(&|at| Some(base(at) + product(&p, of, head, far, column(at)?)))
    };
    let unscaled = |at: i64| {
        let at = column(at)?;
        Some(before.output[at] + product(&p, &operands.v, operands.head, 0, at))
    };
    if step.rescaled.is_empty()
        && before.factor(max) != 1.0
        && before.output.iter().any(|value| *value != 0.0)
        && all(&unscaled)
    {
        return like(
            Fault::MissingRescale,
            "O is right if what it was is not multiplied by the change of the maximum",
        );
    }
    if all(&|at| Some(base(at))) {
        return like(
            Fault::DroppedTile,
            "O is what it was: the tile adds nothing",
        )
        .of(Suspect::Product);
    }
    if with(&operands.k, operands.head, 0) {
        return like(Fault::SwappedKeysAndValues, "P was multiplied by K").of(Suspect::Copy("v"));
    }
    let shape = &case.inputs.problem.shape;
    let is_of = |head: usize, far: i64| with(&operands.v, head, far);
    if let Some((likeness, far)) = displaced(operands, shape, "P was multiplied by V of", is_of) {
        return likeness.of(match far % 16 {
            0 => Suspect::Copy("v"),
            _ => Suspect::Product,
        });
    }
    // Of roundings only what is as near as the model should be tells one from another.
    let is_by = |round: &dyn Fn(f64) -> f64| {
        let cells = step.probabilities.iter();
        let p: Vec<(i64, f64)> = cells.map(|(&key, cell)| (key, round(cell.any()))).collect();
        wrong.iter().all(|w| {
            let added = product(&p, &operands.v, operands.head, 0, w.at as usize);
            (w.kernel - base(w.at) - added).abs() <= 2.0 * w.bound
        })
    };
    if is_by(&|weight| rounded(Probability::E4m3, weight)) {
        like(Fault::ProbabilityInE4m3, "O is right for P rounded to E4M3")
    } else if is_by(&|weight| operands.format().toward_zero(weight).into()) {
        like(
            Fault::ProbabilityTruncated,
            "O is right for P rounded towards 0",
        )
    } else if is_by(&|weight| operands.format().round(weight as f32).into()) {
        like(
            Fault::ProbabilityTruncated,
            format!("O is right for P rounded to {}", operands.format().name()),
        )
    } else if is_rounding(wrong, operands.format(), 3) {
        like(
            Fault::AccumulatorInHalf,
            off_by_rounding("O is", operands.format()),
        )
    } else {
        like(
            None,
            "no other key, head or rounding of V and P gives this output",
        )
        .of(Suspect::Product)
    }
}

pub(super) fn keys(wrong: &Wrong) -> Likeness {
    if wrong.kernel == 0.0 {
        like(
            Fault::DroppedTile,
            "the row sees these keys, and no warp takes them in",
        )
    } else {
        like(Fault::StaleTile, "these keys count more than once")
    }
}

pub(super) fn result(
    operands: &Operands,
    case: &Case<'_>,
    all: &[Wrong],
    wrong: &[Wrong],
) -> Likeness {
    let format = operands.format();
    let every = |of: &dyn Fn(&Wrong) -> bool| all.iter().all(of);
    let is_copy = |w: &Wrong| {
        let key = (case.row[2] as i64).min(operands.keys as i64 - 1);
        let value = operands
            .value(key)
            .map(|row| row[w.at as usize] * operands.value_scale);
        value.is_some_and(|value| agree(w.kernel, format.round(value as f32).into(), value.abs()))
    };
    let truncated = |w: &Wrong| f64::from(format.toward_zero(w.model)) == w.kernel;
    let ratio = ratio(wrong).filter(|_| wrong.len() > 1);
    if wrong.iter().any(|w| w.kernel.is_nan()) {
        like(Fault::NanLeft, "it was never written, or NaN was")
    } else if wrong.iter().any(|w| w.kernel.is_infinite()) {
        like(Fault::InfinityLeft, "it is infinite")
    } else if every(&|w| w.kernel == 0.0) {
        like(Fault::Zeros, "all of the row is 0")
    } else if every(&is_copy) {
        like(Fault::CopyOfValues, "the row is one of V")
    } else if wrong.len() == 1 {
        like(
            Fault::OneWrongElement,
            "one element is wrong, and all before it was right",
        )
    } else if every(&truncated) {
        like(
            Fault::OutputTruncated,
            "it is the model's, rounded towards 0",
        )
    } else if let Some(ratio) = ratio {
        let (fault, of) = if operands.value_scale != 1.0 && (ratio - 1.0).abs() > 0.1 {
            (Fault::ScalesOfFirstBatch, "a scale")
        } else if (ratio - 1.0).abs() < 0.015 {
            (Fault::OnePercentScale, "a factor")
        } else if (ratio - 1.0).abs() < 0.1 {
            (Fault::OneRowOff, "a factor")
        } else {
            (Fault::NeighbourState, "the sum of another row")
        };
        like(
            fault,
            format!("the row is {ratio:.4} times what it should be, as by {of}"),
        )
    } else {
        like(
            None,
            "O, maximum and sum are right in every warp: it goes wrong when they are merged or stored",
        )
    }
}

/// So many places to look at.
const MOST: usize = 3;

/// The step that leaves a quantity as it is shown, where kernels mark it.
fn step_to(quantity: Quantity) -> Option<Marked> {
    match quantity {
        Quantity::Score => Some(Marked::Mask),
        Quantity::Probability => Some(Marked::Exponential),
        Quantity::Sum => Some(Marked::Sum),
        Quantity::Rescaled => Some(Marked::Rescale),
        Quantity::Maximum | Quantity::Output | Quantity::Keys | Quantity::Result => None,
    }
}

/// Where to look, likeliest first: where an operand was brought or read that is in doubt, the step that makes the value, where
/// it is shown, and the last access to memory before it, between which it was computed. `visible`: keys that the row sees.
pub(super) fn look(
    observations: &Observations,
    quantity: Quantity,
    cell: &Cell,
    likeness: &Likeness,
    visible: usize,
) -> Vec<Passed> {
    let here = Passed {
        does: format!("shows {quantity}")
            .trim_end_matches(',')
            .to_string(),
        places: super::place(observations, cell.place),
    };
    let way = observations.ways.get(cell.way);
    let way = || way.into_iter().flatten().rev();
    let is_product = |passed: &&Passed| {
        passed.does == "reads a matrix" || passed.does == "reads an operand of wgmma"
    };
    let mut look: Vec<Passed> = Vec::new();
    match likeness.operand {
        Suspect::Here => {
            let step = step_to(quantity);
            let is_step = |passed: &&Passed| step.is_some_and(|step| passed.does == step.does());
            let counted = || observations.visible.iter().rev();
            // A mask goes by a number of keys. Where nobody came to the right one, that is in doubt before the mask.
            let is_miscounted =
                quantity == Quantity::Score && counted().all(|(keys, _)| *keys as usize != visible);
            let counts = counted().map(|(_, passed)| passed.clone());
            if is_miscounted {
                look.extend(counts.clone().take(MOST - 1));
            }
            look.extend(way().find(is_step).cloned());
            look.push(here.clone());
            if quantity == Quantity::Score {
                look.extend(counts);
            }
            look.extend(way().next().cloned());
        }
        Suspect::Copy(name) => {
            let reads = observations.reads.iter().filter(|(of, _)| of == name);
            look.extend(reads.map(|(_, places)| Passed {
                does: format!("brings {name}"),
                places: places.clone(),
            }));
        }
        Suspect::Product => {}
    }
    if likeness.operand != Suspect::Here {
        // What a product leaves in shared memory is read back: its own reads come before.
        let is_write = |passed: &&Passed| passed.does.starts_with("writes");
        let is_staged = quantity == Quantity::Score && way().any(|passed| is_write(&passed));
        let reads = way().skip_while(|passed| is_staged && !is_write(passed));
        let has_matrices = way().any(|passed| is_product(&passed));
        let is_read = |passed: &&Passed| match has_matrices {
            true => is_product(passed),
            false => passed.does == "reads",
        };
        look.extend(reads.chain(way()).filter(is_read).cloned());
        look.push(here);
    }
    distinct(look)
}

/// Where to look for what is stored wrongly though O, maximum and sum of every warp are right.
pub(super) fn look_at_end(observations: &Observations, likeness: &Likeness) -> Vec<Passed> {
    let of = |step: Marked| {
        let ends = observations.ends.iter();
        ends.filter(move |passed| passed.does == step.does())
            .cloned()
    };
    let stores = observations.stores.iter().map(|places| Passed {
        does: "stores the row".into(),
        places: places.clone(),
    });
    distinct(match likeness.fault {
        Some(Fault::NeighbourState) => of(Marked::Join)
            .chain(of(Marked::Merge))
            .chain(stores)
            .collect(),
        None => of(Marked::Merge)
            .chain(of(Marked::Join))
            .chain(stores)
            .collect(),
        Some(_) => stores
            .chain(of(Marked::Merge))
            .chain(of(Marked::Join))
            .collect(),
    })
}

/// The first few different places, without the line that declares the variant.
fn distinct(look: Vec<Passed>) -> Vec<Passed> {
    let mut lines: Vec<Passed> = Vec::new();
    for mut passed in look {
        if passed.places.len() > 1 && !passed.does.starts_with("shows") {
            passed.places = super::own(&passed.places);
        }
        if !lines.iter().any(|known| known.places == passed.places) {
            lines.push(passed);
        }
    }
    lines.truncate(MOST);
    lines
}
