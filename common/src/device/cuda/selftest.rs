//! Tests the timer on a GPU: a kernel of known length, the same arm twice, injected delays, and a
//! kernel that does nothing.

use super::{CudaDevice, CudaError, InputPool};
use crate::stage::{LoadedStage, Prepared};
use crate::timing::{Change, Plan, SpeedOfLight};
use crate::verdict::Verdict;
use std::rc::Rc;
use std::time::Duration;

/// One check of the timer and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerCheck {
    /// The check: `injected delay of 5 %`.
    pub name: String,
    pub expected: String,
    /// The outcome, with its figures.
    pub outcome: String,
    pub ok: bool,
}

/// Runs every check, with `prepared` over the sets of `pool`, in some ten seconds. A delay of 1 %
/// must be seen only where noise allows it; 2 and 5 % always.
pub fn timer_checks(
    device: &CudaDevice,
    stage: &LoadedStage,
    prepared: &Prepared<'_>,
    pool: &Rc<InputPool>,
    plan: &Plan,
) -> Result<Vec<TimerCheck>, CudaError> {
    let mut checks = vec![known_length(device, plan)?];
    for percent in [0.0, 1.0, 2.0, 5.0] {
        let mut base = device.arm(stage, prepared, pool)?;
        let mut new = device
            .arm(stage, prepared, pool)?
            .with_delay(percent / 100.0);
        let timed = device.measure_pair(&mut base, &mut new, plan)?;
        let (change, ratio) = (timed.comparison.change(), timed.comparison.ratios.p50);
        let (name, expected) = if percent == 0.0 {
            ("the same arm twice".to_string(), Change::Same)
        } else {
            (format!("injected delay of {percent} %"), Change::Slower)
        };
        checks.push(TimerCheck {
            name,
            expected: expected.to_string(),
            outcome: format!(
                "{change}: {:.4}x [{:.4}, {:.4}], noise {:.1} %",
                ratio.value,
                ratio.interval.low,
                ratio.interval.high,
                100.0 * timed.comparison.noise()
            ),
            ok: change == expected || percent == 1.0 && change == Change::Ambiguous,
        });
    }
    checks.extend(nothing_done(device, stage, prepared, pool, plan)?);
    Ok(checks)
}

/// Times a kernel of known length both ways: a timer that starts too late reads less.
pub fn known_length(device: &CudaDevice, plan: &Plan) -> Result<TimerCheck, CudaError> {
    let length_us = 100.0;
    let mut arm = device.spin_arm(Duration::from_micros(100))?;
    let measured = device.measure(&mut arm, plan)?.measurement;
    let (in_graph, single) = (measured.device.p50, measured.single.p50);
    // The clock that the kernel reads may step by 1 us; a launch adds 1 us in a graph and up to 10
    // us on its own.
    let fits = |us: f64, most: f64| (length_us - 1.5..=length_us + most).contains(&us);
    Ok(TimerCheck {
        name: format!("a kernel that spins for {length_us} us"),
        expected: "98.5 to 104 us in a graph, to 115 us as a single launch".to_string(),
        outcome: format!("{in_graph:.2} us in a graph, {single:.2} us as a single launch"),
        ok: fits(in_graph, 4.0) && fits(single, 15.0),
    })
}

/// Times an empty kernel in a stage's place: it must be refused by the speed of light and because
/// it leaves NaN.
fn nothing_done(
    device: &CudaDevice,
    stage: &LoadedStage,
    prepared: &Prepared<'_>,
    pool: &Rc<InputPool>,
    plan: &Plan,
) -> Result<[TimerCheck; 2], CudaError> {
    // An empty kernel fills a graph with hundreds of launches, and the verdict needs no fine
    // interval.
    let coarse_plan = &Plan {
        samples: 40,
        ..plan.clone()
    };
    let empty = device.zero_line(coarse_plan)?;
    let speed_of_light =
        SpeedOfLight::roofline(pool.problem(), &device.info().name, pool.rotation())
            .with_zero_line(empty.device.p50);
    let mut base = device.arm(stage, prepared, pool)?;
    let mut noop = device.noop_arm(Some(pool))?;
    let timed = device.measure_pair(&mut base, &mut noop, coarse_plan)?;
    let refused = speed_of_light.impossible(timed.comparison.new.min);
    let is_poisoned = |output: &super::RotatedOutput| {
        output.execution.output == pool.contents()[output.input].output.bytes
    };
    let is_all_poisoned = timed.new_outputs.iter().all(is_poisoned);
    let is_base_written = !timed.base_outputs.iter().any(is_poisoned);
    Ok([
        TimerCheck {
            name: "an empty kernel claims the problem: time".to_string(),
            expected: Verdict::Fail.to_string(),
            outcome: refused.as_ref().map_or("possible".to_string(), |result| {
                format!("{}: {}", result.verdict, result.reason)
            }),
            ok: refused.is_some_and(|result| result.is_fail()),
        },
        TimerCheck {
            name: "an empty kernel claims the problem: outputs".to_string(),
            expected: "still poisoned; the stage's own are not".to_string(),
            outcome: format!(
                "poisoned: {is_all_poisoned}; the stage's own written: {is_base_written}"
            ),
            ok: is_all_poisoned && is_base_written,
        },
    ])
}
