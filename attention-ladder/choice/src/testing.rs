//! Runs on random problems for tests, with times that follow from planted coefficients. No program
//! calls this. It is compiled always, for the reasons that `results::testing` has.

use super::{draw, least_squares};
use common::choice::{self, Blocks, TERMS};
use common::device::BackendKind;
use common::metric::Metric;
use common::stage::LoadedStage;
use results::builds;
use results::table::session::Gpu;
use results::table::{Kind, ProblemPlace, Row, Run, Subject};
use results::testing::{GPU, session};

/// A kernel that is nowhere the fastest.
pub const SWIZZLE: &str = "stage5-swizzle/swizzle-64x64";
/// A kernel of large tiles.
pub const LARGE: &str = "stage11-spread/zigzag-128x64-k2";
/// A kernel of small tiles.
pub const SMALL: &str = "stage5-swizzle/swizzle-32x128-k4";

/// A kernel whose times follow from its coefficients.
pub struct Planted {
    pub subject: &'static str,
    pub coefficients: [f64; TERMS],
}

/// The kernels here: the second has the faster tiles, the third the faster start, the first is
/// hopeless.
pub const PLANTED: [Planted; 3] = [
    Planted {
        subject: SWIZZLE,
        coefficients: [50.0, 1.0, 0.0, 10.0, 0.0, 0.1, 0.0, 0.0, 0.0],
    },
    Planted {
        subject: LARGE,
        coefficients: [5.0, 2.0, 0.0, 0.5, 0.0, 0.1, 0.0, 0.0, 0.1],
    },
    Planted {
        subject: SMALL,
        coefficients: [2.0, 1.0, 0.0, 0.8, 0.0, 0.1, 0.0, 0.0, 0.1],
    },
];

/// Returns a run on random problems, with times that follow from the planted coefficients.
pub fn drawn_run(stages: &[LoadedStage], count: usize) -> Run {
    drawn_on(stages, count, 132)
}

/// Returns such a run on a GPU with `sms` multiprocessors.
pub fn drawn_on(stages: &[LoadedStage], count: usize, sms: u32) -> Run {
    let mut run = Run::new(session(builds::builds(stages))).on_gpu(GPU);
    if let Gpu::Present {
        multiprocessors, ..
    } = &mut run.session.machine.gpu
    {
        *multiprocessors = sms;
    }
    run.session.backend = BackendKind::Cuda;
    for (number, problem) in draw::problems(1, count).iter().enumerate() {
        for planted in PLANTED {
            let subject = Subject::from(planted.subject);
            let stage = builds::loaded(stages, subject.stage());
            let Ok(prepared) = stage.prepare(subject.name(), problem) else {
                continue;
            };
            let terms = choice::terms(problem, prepared.kernel, Blocks::new(&prepared, 1), sms);
            let us = least_squares::dot(&terms, &planted.coefficients);
            let kind = Kind::RandomTime(ProblemPlace::of(problem));
            let row = Row::new(subject, kind)
                .figure(Metric::Draw, number)
                .figure(Metric::P50, us);
            run.append(row);
        }
    }
    run
}
