//! The tests that every stage runs ask for each element type: of kernels that support no problem
//! every case fails.

use common::problem::{Dtype, Problem};
use common::stage::{Artifacts, Attention, Kernel, StageInfo, Unsupported};
use stage5_swizzle::Swizzle;
use std::panic::catch_unwind;

struct Refusing;

impl Attention for Refusing {
    fn info(&self) -> &'static StageInfo {
        Swizzle.info()
    }

    fn artifacts(&self) -> &'static Artifacts {
        Swizzle.artifacts()
    }

    fn accepts(&self, kernel: &Kernel, _: &Problem) -> Result<(), Unsupported> {
        Err(Unsupported::Problem {
            variant: kernel.variant.clone(),
            reason: "on principle".into(),
        })
    }
}

#[test]
fn tier_0_has_cases_of_each() {
    let panic = catch_unwind(|| stage_tests::tier_0(&Refusing)).unwrap_err();
    let message = panic.downcast::<String>().unwrap();
    let default = Swizzle.info().default_variant;
    // The five of common::tier0, the extremes and the others; of BF16 two, and its wide range.
    for (dtype, cases) in [
        (Dtype::F16, 5 + 3 + 7),
        (Dtype::E4m3, 5 + 3 + 6),
        (Dtype::Bf16, 2 + 4 + 6),
    ] {
        let word = format!(" {dtype} ");
        let lines = message
            .lines()
            .filter(|line| line.starts_with(default) && line.contains(&word));
        assert_eq!(lines.count(), cases, "{dtype}: {message}");
    }
}
