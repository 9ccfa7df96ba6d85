//! Latencies of two sessions on the same GPU: by the interval of the medians' ratio and a threshold.

use super::{Class, Metric, Problem, Reason, Row};
use crate::comparison::withheld;
use common::record::{Gpu, Record, Samples, Timing};
use common::telemetry::Conditions;
use common::timing::Change;
use common::timing::stats::Ratio;
use rayon::prelude::*;

/// Medians of two records within this of each other are the same. Two measurements of the same code in one process
/// (a claim's arm, and the same variant among the timings) differ by up to 1.6 % in the first committed records, and two
/// sessions cannot agree better than that.
pub const LATENCY_CHANGE: f64 = 0.02;

/// Every latency that either side has. Problems that one side alone timed share a row per stage.
pub fn latencies(base: &Record, new: &Record, threshold: f64) -> Vec<Row> {
    let timings = |record: &Record| record.performance.as_ref().map_or(0, |performance| performance.timings.len());
    if timings(base) == 0 && timings(new) == 0 {
        return Vec::new();
    }
    if let Some((reason, note)) = incomparable(base, new) {
        let per_stage = |stage: &String| {
            let row = Row::new(stage, None, Metric::Latency(None), Class::NoData, reason);
            Row { required: timings(base) > 0, ..row }.note(note.clone())
        };
        return stages(&[base, new]).iter().map(per_stage).collect();
    }
    let pairs: Vec<(&Timing, &Timing)> = shared(base, new);
    let mut rows: Vec<Row> =
        pairs.par_iter().map(|(before, after)| arm((base, before), (new, after), threshold)).collect();
    rows.extend(one_sided(base, new));
    rows
}

/// Why no latency of the two records may be compared, if so.
pub(super) fn incomparable(base: &Record, new: &Record) -> Option<(Reason, String)> {
    let untimed = |side: &str, record: &Record| match (&record.performance, &record.meta.machine.gpu) {
        (Some(_), _) => None,
        (None, Gpu::Absent { .. }) => {
            Some((Reason::OneSideOnly, format!("{side} was not timed: it ran without a GPU")))
        }
        (None, Gpu::Present { .. }) => Some((Reason::OneSideOnly, format!("{side} was not timed"))),
    };
    untimed("the base", base).or(untimed("the new record", new)).or_else(|| {
        let (
            Gpu::Present { name, arch, driver, multiprocessors, .. },
            Gpu::Present { name: other, arch: new_arch, driver: new_driver, multiprocessors: new_count, .. },
        ) = (&base.meta.machine.gpu, &new.meta.machine.gpu)
        else {
            return None;
        };
        if (name, arch, multiprocessors) != (other, new_arch, new_count) {
            let words = |name, count| format!("{name} ({count} multiprocessors)");
            return Some((
                Reason::OtherGpu,
                format!("{} against {}", words(name, multiprocessors), words(other, new_count)),
            ));
        }
        (driver != new_driver).then(|| (Reason::OtherDriver, format!("driver {driver} against {new_driver}")))
    })
}

fn timings(record: &Record) -> impl DoubleEndedIterator<Item = &Timing> {
    record.performance.iter().flat_map(|performance| &performance.timings)
}

fn stages(records: &[&Record]) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for timing in records.iter().flat_map(|record| timings(record)) {
        if !ids.contains(&timing.stage) {
            ids.push(timing.stage.clone());
        }
    }
    ids
}

fn is_same_arm(a: &Timing, b: &Timing) -> bool {
    (&a.stage, &a.variant, &a.shape_name, a.dtype, a.mask) == (&b.stage, &b.variant, &b.shape_name, b.dtype, b.mask)
}

/// Each new timing with the base's of the same arm; of several, the one with the same cache, else the last.
fn shared<'a>(base: &'a Record, new: &'a Record) -> Vec<(&'a Timing, &'a Timing)> {
    let partner = |after: &'a Timing| {
        let cache = |timing: &Timing| timing.measurement.rotation.state;
        let same = timings(base).rfind(|before| is_same_arm(before, after) && cache(before) == cache(after));
        same.or_else(|| timings(base).rfind(|before| is_same_arm(before, after))).map(|before| (before, after))
    };
    timings(new).filter_map(partner).collect()
}

/// What one side alone timed, a row per stage and side.
fn one_sided(base: &Record, new: &Record) -> Vec<Row> {
    let alone = |here: &Record, there: &Record, stage: &str| {
        let of_stage = timings(here).filter(|timing| timing.stage == stage);
        of_stage.filter(|timing| !timings(there).any(|other| is_same_arm(timing, other))).count()
    };
    let mut rows = Vec::new();
    for stage in stages(&[base, new]) {
        let mut push = |count: usize, words: &str, required: bool| {
            if count > 0 {
                let reason = if required { Reason::NewlyMissing } else { Reason::OneSideOnly };
                let row = Row::new(&stage, None, Metric::Latency(None), Class::NoData, reason);
                rows.push(Row { required, ..row }.note(format!("{count} {words}")));
            }
        };
        // A run times some variants only where it says so; a removed stage has a row of its own.
        let is_built = new.meta.stages.iter().any(|build| build.id == stage);
        let left_out = new.performance.iter().flat_map(|performance| &performance.scopes);
        let says_so = left_out.into_iter().any(|scope| scope.stage == stage && scope.left_out > 0);
        let required = is_built && !says_so;
        push(alone(base, new, &stage), "timed in the base only", required);
        push(alone(new, base, &stage), "timed in the new record only", false);
    }
    rows
}

/// One arm on both sides.
pub(super) fn arm(base: (&Record, &Timing), new: (&Record, &Timing), threshold: f64) -> Row {
    let ((base_record, before), (new_record, after)) = (base, new);
    let problem = Problem {
        shape: after.shape_name.clone(),
        head_dim: after.shape.head_dim,
        dtype: after.dtype,
        mask: after.mask,
    };
    let row = |class, reason| {
        Row::new(&after.stage, Some(&after.variant), Metric::Latency(Some(problem.clone())), class, reason)
    };
    for (record, timing, side) in [(base_record, before, "base"), (new_record, after, "new")] {
        if let Some(why) = withheld(record, timing) {
            return row(Class::NoData, Reason::NotGreen).note(format!("{side}: {why}"));
        }
    }
    if before.shape != after.shape {
        return row(Class::NoData, Reason::OtherShape).note(format!("{} against {}", before.shape, after.shape));
    }
    let (cached, now_cached) = (before.measurement.rotation.state, after.measurement.rotation.state);
    if cached != now_cached {
        let note = format!("{} against {}", cached.label(), now_cached.label());
        return row(Class::NoData, Reason::OtherCache).note(note);
    }
    let (ratio, source) = ratio(before, after);
    let (class, reason, mut note) = judge(&ratio, before, after, threshold);
    if matches!(class, Class::Slower | Class::Faster) && before.identity == after.identity {
        note += "; the kernel has not changed: look at the machine and the harness";
    }
    let us = |timing: &Timing| format!("{:.2} us", timing.measurement.device.p50);
    let mut row = row(class, reason).values(us(before), us(after)).note(format!("{note}, {source}"));
    row.ratio = Some(ratio);
    row
}

/// The ratio of the medians, and what its interval was drawn from.
fn ratio(before: &Timing, after: &Timing) -> (Ratio, &'static str) {
    let (was, is) = (&before.measurement, &after.measurement);
    let has_samples = before.samples == Samples::Raw && after.samples == Samples::Raw;
    let resampled = has_samples.then(|| Ratio::of_medians(&was.device_us, &is.device_us).ok()).flatten();
    match resampled {
        Some(ratio) => (ratio, "interval by resampling"),
        None => (Ratio::of_summaries(&was.device, &is.device), "interval from the medians' intervals"),
    }
}

fn judge(ratio: &Ratio, before: &Timing, after: &Timing, threshold: f64) -> (Class, Reason, String) {
    let percent = 100.0 * threshold;
    let decided = match Change::of(ratio, threshold) {
        Change::Same => return (Class::Same, Reason::WithinThreshold, format!("within {percent:.1} %")),
        Change::Ambiguous
            if before.identity == after.identity && ratio.interval.low <= 1.0 && ratio.interval.high >= 1.0 =>
        {
            let note = format!("the interval crosses {percent:.1} % and holds 1, and the kernel has not changed");
            return (Class::Same, Reason::SameKernel, note);
        }
        Change::Ambiguous => {
            return (Class::Ambiguous, Reason::CrossesThreshold, format!("the interval crosses {percent:.1} %"));
        }
        decided => decided,
    };
    let noise = before.measurement.device.noise().max(after.measurement.device.noise());
    if Change::of(ratio, threshold.max(noise)) != decided {
        let note = format!("beyond {percent:.1} %, but not beyond the samples' noise of {:.1} %", 100.0 * noise);
        return (Class::Ambiguous, Reason::WithinNoise, note);
    }
    // In cycles: a clock that moved moves the time without any doing of the kernel.
    if let (Some(was), Some(is)) = (clock(before), clock(after)) {
        let scale = was / is;
        let mut cycles = *ratio;
        (cycles.value, cycles.interval.low, cycles.interval.high) =
            (ratio.value * scale, ratio.interval.low * scale, ratio.interval.high * scale);
        if Change::of(&cycles, threshold) != decided {
            let note = format!("beyond {percent:.1} % in time and not in cycles: {was:.0} MHz against {is:.0} MHz");
            return (Class::Ambiguous, Reason::ClockMoved, note);
        }
    }
    let class = if decided == Change::Faster { Class::Faster } else { Class::Slower };
    (class, Reason::BeyondThreshold, format!("beyond {percent:.1} %"))
}

/// The multiprocessors' clock under this load, where both readings have it.
fn clock(timing: &Timing) -> Option<f64> {
    let [first, last] = timing.measurement.conditions.each_ref().map(|conditions| match conditions {
        Conditions::Read(reading) => reading.sm_mhz.filter(|&mhz| mhz > 0),
        Conditions::Absent { .. } => None,
    });
    Some((f64::from(first?) + f64::from(last?)) / 2.0)
}

/// What the latencies of both sides say of one instance: faster (every one that decides is), slower, or neither.
pub(super) fn word_on(latencies: &[Row], stage: &str, variant: &str, of: impl Fn(&Problem) -> bool) -> Option<Class> {
    let of_instance = latencies.iter().filter(|row| {
        let problem = matches!(&row.metric, Metric::Latency(Some(problem)) if of(problem));
        problem && row.stage == stage && row.variant.as_deref() == Some(variant)
    });
    let classes: Vec<Class> = of_instance.map(|row| row.class).collect();
    match (classes.contains(&Class::Faster), classes.contains(&Class::Slower)) {
        (true, false) => Some(Class::Faster),
        (false, true) => Some(Class::Slower),
        _ => None,
    }
}
