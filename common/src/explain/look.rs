//! Where to look for what makes a value wrong.

use super::operands::{Operands, Quantity, Wrong};
use super::steps::{Cell, Step};
use emulator::Place;
use emulator::trace::{Does, How, Observations, Passed, Step as Marked};
use std::fmt;

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

type Name = &'static str;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    pub action: Action,
    pub places: Vec<Place>,
}

impl Suspect {
    fn new(action: Action, places: &[Place]) -> Self {
        let places = places.to_vec();
        Self { action, places }
    }
}

impl From<&Passed> for Suspect {
    fn from(passed: &Passed) -> Self {
        Self::new(Action::Passed(passed.does), &passed.places)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    Here,
    /// A product's reads, and, where all of a tile is wrong, what brings its operand (k or v) on chip.
    Product(Option<Name>),
}

/// Of the first wrong numbers of a step.
pub(super) fn doubt(
    operands: &Operands,
    step: &Step,
    quantity: Quantity,
    wrong: &[Wrong],
) -> Doubt {
    let is_masked = |w: &Wrong| [w.kernel, w.model].contains(&f64::NEG_INFINITY);
    // Values rounded once more, or to fewer bits, are off by this times what f32 rounds of a tile.
    let is_rounding = |w: &Wrong| (w.kernel - w.model).abs() <= 1024.0 * w.bound;
    let (is_here, numbers, operand) = match quantity {
        Quantity::Score => {
            let visible = step.scores.keys().filter(|key| operands.sees(**key));
            (wrong.iter().all(is_masked), visible.count(), "k")
        }
        Quantity::Output => (wrong.iter().all(is_rounding), step.output.len(), "v"),
        _ => return Doubt::Here,
    };
    match is_here {
        true => Doubt::Here,
        false => Doubt::Product((wrong.len() == numbers).then_some(operand)),
    }
}

const MOST: usize = 3;

/// That leaves a quantity as it is shown, where kernels mark it.
fn step_to(quantity: Quantity) -> Option<Does> {
    match quantity {
        Quantity::Score => Some(Marked::Mask),
        Quantity::Probability => Some(Marked::Exponential),
        Quantity::Sum => Some(Marked::Sum),
        Quantity::Rescaled => Some(Marked::Rescale),
        Quantity::Maximum | Quantity::Output | Quantity::Keys | Quantity::Result => None,
    }
    .map(Does::Step)
}

/// Likeliest first. `visible`: keys that the row sees.
pub(super) fn look(
    observations: &Observations,
    quantity: Quantity,
    cell: &Cell,
    doubt: Doubt,
    visible: usize,
) -> Vec<Suspect> {
    let shown = observations.places.get(cell.place);
    let here = Suspect::new(
        Action::Shows(quantity),
        own(shown.map_or(&[], Vec::as_slice)),
    );
    let way = || observations.ways.get(cell.way).into_iter().flatten().rev();
    let mut look: Vec<Suspect> = Vec::new();
    let Doubt::Product(operand) = doubt else {
        let counted = || observations.visible.iter().rev();
        let counts = || counted().map(|(_, passed)| Suspect::from(passed));
        // Where nobody came to the right number of keys, that is in doubt before the mask.
        let is_miscounted =
            quantity == Quantity::Score && counted().all(|(keys, _)| *keys as usize != visible);
        if is_miscounted {
            look.extend(counts().take(MOST - 1));
        }
        let step = way().find(|passed| Some(passed.does) == step_to(quantity));
        look.extend(step.map(Suspect::from));
        look.push(here);
        if quantity == Quantity::Score {
            look.extend(counts());
        }
        look.extend(way().next().map(Suspect::from));
        return distinct(look);
    };
    // What a product leaves in shared memory is read back: its own reads come before.
    let is_write = |passed: &&Passed| matches!(passed.does, Does::Access(how) if how.is_write());
    let is_staged = quantity == Quantity::Score && way().any(|passed| is_write(&passed));
    let reads = way().skip_while(|passed| is_staged && !is_write(passed));
    let is_product =
        |passed: &&Passed| matches!(passed.does, Does::Access(How::MatrixRead | How::WgmmaRead));
    let has_matrices = way().any(|passed| is_product(&passed));
    let is_read = |passed: &&Passed| match has_matrices {
        true => is_product(passed),
        false => passed.does == Does::Access(How::Read),
    };
    let mut reads = reads.chain(way()).filter(is_read).map(Suspect::from);
    look.extend(reads.next());
    if let Some(name) = operand {
        let loads = observations.reads.iter().filter(|(of, _)| of == name);
        look.extend(loads.map(|(_, places)| Suspect::new(Action::Loads(name), places)));
    }
    look.extend(reads);
    look.push(here);
    distinct(look)
}

/// For what is stored wrongly though O, maximum and sum of every warp are right; `all` of the row's output.
pub(super) fn look_at_end(
    observations: &Observations,
    all: &[Wrong],
    wrong: &[Wrong],
) -> Vec<Suspect> {
    let ends = |step: Marked| {
        let of_step = move |passed: &&Passed| passed.does == Does::Step(step);
        let ends = observations.ends.iter().filter(of_step);
        ends.map(Suspect::from).collect()
    };
    let stores = observations.stores.iter();
    let stores = stores.map(|places| Suspect::new(Action::Stores, places));
    let [joins, merges, stores]: [Vec<Suspect>; 3] =
        [ends(Marked::Join), ends(Marked::Merge), stores.collect()];
    let is_unset = |w: &Wrong| w.kernel == 0.0 || !w.kernel.is_finite();
    let order = if wrong.len() == 1 || all.iter().all(is_unset) {
        [stores, merges, joins]
    } else if is_by_one_factor(wrong) {
        [joins, merges, stores]
    } else {
        [merges, joins, stores]
    };
    distinct(order.concat())
}

fn is_by_one_factor(wrong: &[Wrong]) -> bool {
    let large = wrong.iter().filter(|w| w.model.abs() > 1e-6);
    let ratios: Vec<f64> = large.map(|w| w.kernel / w.model).collect();
    let is_first = |ratio: &f64| (ratio - ratios[0]).abs() <= 4e-3 * ratios[0].abs();
    !ratios.is_empty() && ratios.iter().all(is_first)
}

/// The first few, without the line that declares the variant.
fn distinct(look: Vec<Suspect>) -> Vec<Suspect> {
    let mut suspects: Vec<Suspect> = Vec::new();
    for mut suspect in look {
        if suspect.places.len() > 1 && !matches!(suspect.action, Action::Shows(_)) {
            suspect.places = own(&suspect.places).to_vec();
        }
        if !suspects.iter().any(|known| known.places == suspect.places) {
            suspects.push(suspect);
        }
    }
    suspects.truncate(MOST);
    suspects
}

/// A chain of callers without the outermost: the line that declares the variant.
fn own(places: &[Place]) -> &[Place] {
    &places[..places.len().saturating_sub(1).max(places.len().min(1))]
}
