//! The places to look at for the cause of a wrong value.

use super::operands::{Operands, Quantity, Wrong};
use super::steps::{Cell, Step};
use emulator::Place;
use emulator::trace::{Does, How, Observations, Passed, Step as Marked};
use std::fmt;

/// The action at a place to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Passed(Does),
    Shows(Quantity),
    Loads(Name),
    Stores,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(does) => does.fmt(f),
            Self::Shows(quantity) => write!(f, "shows {}", quantity.name().trim_end_matches(',')),
            Self::Loads(name) => write!(f, "brings {name}"),
            Self::Stores => f.write_str("stores the row"),
        }
    }
}

/// The name of an operand in the kernel's parameters.
type Name = &'static str;

/// A place to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    pub action: Action,
    /// The line and its callers, innermost first.
    pub places: Vec<Place>,
}

impl Suspect {
    fn new(action: Action, places: &[Place]) -> Self {
        Self {
            action,
            places: places.to_vec(),
        }
    }
}

impl From<&Passed> for Suspect {
    fn from(passed: &Passed) -> Self {
        Self::new(Action::Passed(passed.does), &passed.places)
    }
}

/// The cause that is in doubt where a value is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The step that makes the value, and where it is shown.
    Here,
    /// The reads of a product and, where all of a tile is wrong, what brings its operand (k or v)
    /// on chip.
    Product(Option<Name>),
}

/// Returns what is in doubt after the first wrong numbers of a step.
pub(super) fn doubt(
    operands: &Operands,
    step: &Step,
    quantity: Quantity,
    wrong: &[Wrong],
) -> Doubt {
    let (is_here, compared, operand) = match quantity {
        Quantity::Score => {
            let visible = step.scores.keys().filter(|key| operands.sees(**key));
            (wrong.iter().all(is_masked), visible.count(), "k")
        }
        Quantity::Output => (wrong.iter().all(is_rounding), step.output.len(), "v"),
        _ => return Doubt::Here,
    };
    if is_here {
        return Doubt::Here;
    }
    let is_whole_tile = wrong.len() == compared;
    Doubt::Product(is_whole_tile.then_some(operand))
}

fn is_masked(number: &Wrong) -> bool {
    [number.kernel, number.model].contains(&f64::NEG_INFINITY)
}

/// Returns whether a number may be wrong by rounding alone: values rounded once more, or to fewer
/// bits, are off by up to this many times what f32 rounds of a tile.
fn is_rounding(number: &Wrong) -> bool {
    (number.kernel - number.model).abs() <= 1024.0 * number.bound
}

/// The most places that are named.
const MOST: usize = 3;

/// Returns the step that leaves a quantity as it is shown, where kernels mark it.
fn step_to(quantity: Quantity) -> Option<Does> {
    let step = match quantity {
        Quantity::Score => Marked::Mask,
        Quantity::Probability => Marked::Exponential,
        Quantity::Sum => Marked::Sum,
        Quantity::Rescaled => Marked::Rescale,
        Quantity::Maximum | Quantity::Output | Quantity::Keys | Quantity::Result => return None,
    };
    Some(Does::Step(step))
}

/// Returns the places to look at for a value that is shown in `cell`, likeliest first. The keys that
/// the row sees end before the key `visible`, which kernels count.
pub(super) fn suspects_of_value(
    observations: &Observations,
    quantity: Quantity,
    cell: &Cell,
    doubt: Doubt,
    visible: usize,
) -> Vec<Suspect> {
    let value = ShownValue {
        observations,
        quantity,
        cell,
    };
    distinct(match doubt {
        Doubt::Here => value.suspects_here(visible),
        Doubt::Product(operand) => value.suspects_of_product(operand),
    })
}

struct ShownValue<'a> {
    observations: &'a Observations,
    quantity: Quantity,
    cell: &'a Cell,
}

impl<'a> ShownValue<'a> {
    /// Returns the place that shows the value.
    fn here(&self) -> Suspect {
        let places = self.observations.places.get(self.cell.place);
        let callers = places.map_or(&[][..], Vec::as_slice);
        Suspect::new(Action::Shows(self.quantity), without_variant(callers))
    }

    /// Returns what the warp passed before it showed the value, latest first.
    fn way_back(&self) -> impl Iterator<Item = &'a Passed> + use<'a> {
        let way = self.observations.ways.get(self.cell.way);
        way.into_iter().flatten().rev()
    }

    fn suspects_here(&self, visible: usize) -> Vec<Suspect> {
        let is_score = self.quantity == Quantity::Score;
        let counts: Vec<&(i32, Passed)> = self.observations.visible.iter().rev().collect();
        let is_miscounted = counts.iter().all(|(keys, _)| *keys as usize != visible);
        let counting = counts.iter().map(|(_, passed)| Suspect::from(passed));

        let mut suspects = Vec::new();
        // Where no thread came to the right number of keys, that is in doubt before the mask.
        if is_score && is_miscounted {
            suspects.extend(counting.clone().take(MOST - 1));
        }
        let step = self
            .way_back()
            .find(|passed| Some(passed.does) == step_to(self.quantity));
        suspects.extend(step.map(Suspect::from));
        suspects.push(self.here());
        if is_score {
            suspects.extend(counting);
        }
        suspects.extend(self.way_back().next().map(Suspect::from));
        suspects
    }

    fn suspects_of_product(&self, operand: Option<Name>) -> Vec<Suspect> {
        let way: Vec<&Passed> = self.way_back().collect();
        // What a product leaves in shared memory is read back: its own reads come before that
        // write.
        let last_write = match self.quantity {
            Quantity::Score => way.iter().position(|passed| is_write(passed)),
            _ => None,
        };
        let own_way = &way[last_write.unwrap_or(0)..];
        let has_matrices = way.iter().any(|passed| is_matrix_read(passed));
        let mut suspects: Vec<Suspect> = own_way
            .iter()
            .chain(&way)
            .filter(|passed| {
                if has_matrices {
                    is_matrix_read(passed)
                } else {
                    passed.does == Does::Access(How::Read)
                }
            })
            .map(|passed| Suspect::from(*passed))
            .collect();
        if let Some(name) = operand {
            let loads = self.observations.reads.iter();
            let of_operand = loads.filter(|read| read.tensor == name);
            let loading = of_operand.map(|read| Suspect::new(Action::Loads(name), &read.places));
            // The likeliest read stays first.
            let second = suspects.len().min(1);
            suspects.splice(second..second, loading);
        }
        suspects.push(self.here());
        suspects
    }
}

fn is_write(passed: &Passed) -> bool {
    matches!(passed.does, Does::Access(how) if how.is_write())
}

fn is_matrix_read(passed: &Passed) -> bool {
    matches!(passed.does, Does::Access(How::MatrixRead | How::WgmmaRead))
}

/// Returns the places to look at where a row is stored wrong though O, maximum and sum of every
/// warp are right. `all` has every number of the row.
pub(super) fn suspects_at_end(
    observations: &Observations,
    all: &[Wrong],
    wrong: &[Wrong],
) -> Vec<Suspect> {
    let joins = ends_by(observations, Marked::Join);
    let merges = ends_by(observations, Marked::Merge);
    let mut stores = Vec::new();
    for places in &observations.stores {
        stores.push(Suspect::new(Action::Stores, places));
    }
    let is_unset = all
        .iter()
        .all(|number| number.kernel == 0.0 || !number.kernel.is_finite());
    let order = if wrong.len() == 1 || is_unset {
        [stores, merges, joins]
    } else if is_by_one_factor(wrong) {
        [joins, merges, stores]
    } else {
        [merges, joins, stores]
    };
    distinct(order.concat())
}

/// Returns the places that end the row by `step`.
fn ends_by(observations: &Observations, step: Marked) -> Vec<Suspect> {
    let ends = observations.ends.iter();
    ends.filter(|passed| passed.does == Does::Step(step))
        .map(Suspect::from)
        .collect()
}

/// Returns whether all numbers are wrong by the same factor, as by a wrong sum.
fn is_by_one_factor(wrong: &[Wrong]) -> bool {
    let ratios: Vec<f64> = wrong
        .iter()
        .filter(|number| number.model.abs() > 1e-6)
        .map(|number| number.kernel / number.model)
        .collect();
    let Some(&first) = ratios.first() else {
        return false;
    };
    ratios
        .iter()
        .all(|ratio| (ratio - first).abs() <= 4e-3 * first.abs())
}

/// Returns the first few, each place once and without the line that declares the variant.
fn distinct(look: Vec<Suspect>) -> Vec<Suspect> {
    let mut suspects: Vec<Suspect> = Vec::new();
    for mut suspect in look {
        if suspect.places.len() > 1 && !matches!(suspect.action, Action::Shows(_)) {
            suspect.places = without_variant(&suspect.places).to_vec();
        }
        if !suspects.iter().any(|known| known.places == suspect.places) {
            suspects.push(suspect);
        }
    }
    suspects.truncate(MOST);
    suspects
}

/// Returns a chain of callers without the outermost, if there are others: the line that declares
/// the variant.
fn without_variant(callers: &[Place]) -> &[Place] {
    match callers {
        [inner @ .., _] if !inner.is_empty() => inner,
        _ => callers,
    }
}
