//! What the tests of this crate share.

use crate::plan::{GivenTensors, Request};
use crate::select;
use clap::Parser;
use common::inputs::Family;
use common::problem::{Dtype, Mask};

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    request: Request,
}

/// Returns the request that a command line makes.
pub fn parsed(flags: &[&str]) -> Request {
    let words = ["compare"].iter().chain(flags);
    Flags::parse_from(words).request
}

/// Returns the request of a command line without flags.
pub fn request() -> Request {
    parsed(&[])
}

/// Each method stands for the flag of its name.
impl Request {
    pub fn stages<const N: usize>(mut self, names: [&str; N]) -> Self {
        self.chosen.stages = names.map(String::from).to_vec();
        self
    }

    pub fn variants<const N: usize>(mut self, names: [&str; N]) -> Self {
        self.chosen.variants = names.map(String::from).to_vec();
        self
    }

    pub fn shapes<const N: usize>(mut self, names: [&str; N]) -> Self {
        let shapes = names.map(|name| select::shape(name).expect("a shape"));
        self.cases.problems.shapes = shapes.to_vec();
        self
    }

    pub fn dtypes<const N: usize>(mut self, dtypes: [Dtype; N]) -> Self {
        self.cases.problems.dtypes = dtypes.to_vec();
        self
    }

    pub fn masks<const N: usize>(mut self, masks: [Mask; N]) -> Self {
        self.cases.problems.masks = masks.to_vec();
        self
    }

    pub fn seeds<const N: usize>(mut self, seeds: [u64; N]) -> Self {
        self.cases.seeds = seeds.to_vec();
        self
    }

    pub fn families<const N: usize>(mut self, families: [Family; N]) -> Self {
        self.cases.families = families.to_vec();
        self
    }

    pub fn iters(mut self, iters: usize) -> Self {
        self.cases.iters = Some(iters);
        self
    }

    pub fn quick(mut self) -> Self {
        self.cases.quick = true;
        self
    }

    pub fn full(mut self) -> Self {
        self.cases.full = true;
        self
    }

    pub fn random_problems(mut self, count: usize) -> Self {
        self.random_problems = Some(count);
        self
    }

    pub fn input(mut self, file: GivenTensors) -> Self {
        self.file = Some(file);
        self
    }
}

#[test]
fn flags_are_what_the_methods_of_their_names_make() {
    let words = [
        "--stages",
        "0,1",
        "--variants",
        "scalar-32x64,cpasync-32x64",
        "--shapes",
        "mission,1x1x17x64",
        "--dtypes",
        "f16,e4m3",
        "--masks",
        "causal",
        "--seeds",
        "0,7",
        "--families",
        "large,zero-head",
        "--iters",
        "0",
    ];
    let made = request()
        .stages(["0", "1"])
        .variants(["scalar-32x64", "cpasync-32x64"])
        .shapes(["mission", "1x1x17x64"])
        .dtypes([Dtype::F16, Dtype::E4m3])
        .masks([Mask::Causal])
        .seeds([0, 7])
        .families([Family::Large, Family::ZeroHead])
        .iters(0);
    assert_eq!(format!("{:?}", parsed(&words)), format!("{made:?}"));
}

#[test]
fn tiers_and_random_problems_are_flags_of_their_own() {
    let requests = [
        (parsed(&["--quick"]), request().quick()),
        (parsed(&["--full"]), request().full()),
        (
            parsed(&["--random-problems", "2"]),
            request().random_problems(2),
        ),
    ];
    for (parsed, made) in requests {
        assert_eq!(format!("{parsed:?}"), format!("{made:?}"));
    }
}
