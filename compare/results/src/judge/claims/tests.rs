//! Claims of literal runs.

mod bounds;
mod speedups;
mod status;

use super::*;
use crate::table::{Kind, ProblemPlace, Row, Run, Source, VariantMeta};
use crate::testing::{
    CPASYNC, GPU, ON_GPU, PeerArm, SCALAR, US, WMMA, counters, emulated, instance, instances,
    ladder, latency, mission, pair_with, row, table_of_sessions, timed,
};
use common::claim::Base;
use common::metric::Metric;
use common::problem::Dtype;

fn finding(run: &Run, stage: usize, claim: usize) -> Option<Finding> {
    let claiming = &run.session.stages[stage];
    let view = View::alone(run);
    let evidence = judge(&view, claiming, &claiming.claims[claim])?;
    Some(evidence.finding)
}

fn judged(run: &Run, stage: usize, claim: usize) -> String {
    match finding(run, stage, claim) {
        Some(finding) => format!("{}: {}", finding.verdict, finding.reason),
        None => "not measured".into(),
    }
}
