use super::latency::failing;
use super::verdicts::turned;
use super::*;
use crate::judge::verdict::of_differences;
use crate::table::Figure;
use crate::table::digest::Texts;
use crate::testing::scenario::{self, each, each_case, row, set, sides};
use crate::testing::{SCALAR, US, WMMA, emulated, mission, table, timed};
use common::verdict::Verdict;
use std::collections::BTreeMap;
use std::path::Path;

/// One run as a table, with what it says of its claims.
fn of_run(run: &Run, name: &str) -> Table {
    let mut table = table(&[run.clone().named(name)]);
    claims::restate(&mut table, &run.session.stages);
    table
}

fn differences(base: &Run, new: &Run) -> Vec<Difference> {
    let (old, now) = (of_run(base, "1"), of_run(new, "2"));
    let covers = covers(&base.session, &new.session);
    compare(&old, &now, covers, &new.session.stages).differences
}

/// Returns the exit code with its word, and all that changed.
fn moved(line: &str) -> String {
    let (base, new) = sides(line);
    moved_between(&base, &new)
}

fn moved_between(base: &Run, new: &Run) -> String {
    let compared = differences(base, new);
    let overall = of_differences(&compared);
    let mut lines = vec![format!("{} {}", overall.exit.code(), overall.word)];
    let changed = compared.iter().filter(|d| d.change != Change::Unchanged);
    lines.extend(changed.map(|d| {
        let required = if d.required { " (required)" } else { "" };
        format!("{} {} {}{required}", d.change.word(), d.subject, d.title())
    }));
    lines.join("\n")
}

/// Returns the verdict and the changes of a subject.
fn about_subject(all: &str, subject: &str) -> String {
    let mut kept = Vec::new();
    for (index, moved_line) in all.lines().enumerate() {
        // The first line is the verdict.
        if index == 0 || moved_line.contains(subject) {
            kept.push(moved_line);
        }
    }
    kept.join("\n")
}

/// Returns the figure that takes `factor` times as long.
fn slowed(figure: Figure, factor: f64) -> Figure {
    let slow = |us: f64| us * factor;
    Figure {
        value: slow(figure.value),
        interval: figure.interval.map(|(low, high)| (slow(low), slow(high))),
    }
}

/// Returns a latency of `us` with an interval of 0.2 %.
fn latency(subject: &str, identity: &str, us: f64) -> Row {
    let mut row = row(&format!(
        "{subject} | mission f16 full | gpu | under warm L2 | sm_mhz 1980 | identity {identity}"
    ));
    row.figures
        .insert(Metric::P50, (us, 0.999 * us, 1.001 * us).into());
    row.figure(Metric::P90, 1.002 * us)
}

/// Returns what becomes of `s/v`, which changed from `old` to `new` in a session whose unchanged
/// kernels took `shift` times as long, give or take `spread`; and how many of those are unchanged.
fn in_session(old: Row, new: Row, controls: u32, shift: f64, spread: f64) -> (String, usize) {
    let session = |name: &str, changed: Row, us: &dyn Fn(f64) -> f64| {
        let mut rows = Vec::new();
        for i in 0..controls {
            let deviation = f64::from(i) / 50.0 - 1.0;
            rows.push(latency(&format!("s/{i}"), "same", us(deviation)));
        }
        rows.push(changed);
        let mut table = Table::default();
        for mut row in rows {
            row.session = name.into();
            table.append(row);
        }
        table
    };
    let base = session("1", old, &|_| 10.0);
    let shifted = |deviation| 10.0 * shift * (1.0 + 1.05 * spread * deviation);
    let renewed = session("2", new, &shifted);
    let compared = compare(&base, &renewed, true, &[]).differences;
    let changed = compared
        .iter()
        .find(|d| d.subject.as_str() == "s/v" && d.group == Group::Latency)
        .unwrap();
    let is_control =
        |d: &&Difference| d.subject != changed.subject && d.change == Change::Unchanged;
    let unchanged = compared.iter().filter(is_control).count();
    (
        format!("{}: {}", changed.change.word(), changed.why),
        unchanged,
    )
}

/// How many times as long the changed kernel takes, of how many unchanged ones, their shift and
/// their spread.
#[test]
fn changed_kernels_are_judged_by_how_far_unchanged_ones_moved() {
    let answers = each(
        "1.03 100 1.01 0.015
        1.03 100 0.99 0.015
        1.05 100 1.01 0.015
        1.02 100 1.01 0.015
        1.01 100 1.01 0.015
        1.00 100 1.04 0.015
        0.97 100 1.01 0.015
        1.03 100 1.01 0.039
        1.05 3 1.0 0.001
        1.02 3 1.0 0.001",
        |line| {
            let numbers: Vec<f64> = line.split(' ').map(|of| of.parse().unwrap()).collect();
            let [factor, controls, shift, spread] = numbers[..] else {
                panic!("{line}")
            };
            let new = latency("s/v", "new", 20.0 * factor * shift);
            let old = latency("s/v", "old", 20.0);
            let (compared, unchanged) = in_session(old, new, controls as u32, shift, spread);
            assert_eq!(unchanged, controls as usize);
            compared
        },
    );
    insta::assert_snapshot!(answers, @"
    1.03 100 1.01 0.015
        worse: beyond 2.0 %
    1.03 100 0.99 0.015
        worse: beyond 2.0 %
    1.05 100 1.01 0.015
        worse: beyond 2.0 %
    1.02 100 1.01 0.015
        undecided: the interval crosses 2.0 %
    1.01 100 1.01 0.015
        unchanged: within 2.0 %
    1.00 100 1.04 0.015
        unchanged: within 2.0 %
    0.97 100 1.01 0.015
        improved: beyond 2.0 %
    1.03 100 1.01 0.039
        unchanged: within 4.0 %, as far as 95 of 100 of 100 unchanged kernels moved
    1.05 3 1.0 0.001
        worse: beyond 3.0 %, the usual variation between sessions
    1.02 3 1.0 0.001
        unchanged: within 3.0 %, the usual variation between sessions
    ");
}

/// How many times as many cycles `s/v` takes, among so many unchanged kernels, and the SM clock
/// before and now; `-` where none was recorded, and where it was 1980 MHz.
#[test]
fn a_change_of_the_clock_is_not_the_kernels_and_hides_no_change_of_it() {
    let compared = each(
        "1.05 100 1980 1886
        1.00 100 1980 1886
        0.95 100 1980 1886
        1.05 100 1886 1980
        1.00 100 1886 1980
        0.95 100 1886 1980
        1.05 0 1980 1886
        1.00 0 1980 1886
        0.95 0 1980 1886
        1.05 0 1886 1980
        1.00 0 1886 1980
        0.95 0 1886 1980
        1.05 100 - -
        1.00 100 - -
        0.95 100 - -
        1.05 0 - -
        1.05 100 1980 -
        1.05 100 - 1886
        0.95 100 1980 -
        1.00 100 1980 -",
        |line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [times, controls] = [words[0], words[1]].map(|word| word.parse::<f64>().unwrap());
            let clocks = [words[2], words[3]].map(|word| word.parse::<f64>().ok());
            let ran_at = [clocks[0].unwrap_or(1980.0), clocks[1].unwrap_or(1980.0)];
            let table = |session: &str, side: usize, factor: f64| {
                let control = |i: u32| latency(&format!("s/{i}"), "same", 10.0);
                let changed = latency("s/v", session, 20.0 * factor);
                let rows = (0..controls as u32).map(control).chain([changed]);
                let mut table = Table::default();
                table.extend(rows.map(|mut row| {
                    let slower = slowed(row.figures[&Metric::P50], 1980.0 / ran_at[side]);
                    row.figures.insert(Metric::P50, slower);
                    row.figures
                        .insert(Metric::P90, (1.002 * slower.value).into());
                    row.figures.remove(&Metric::SmMhz);
                    let clock = clocks[side].map(|mhz| (Metric::SmMhz, mhz));
                    Row {
                        session: session.into(),
                        ..row.with_figures(clock)
                    }
                }));
                table
            };
            let compared = compare(&table("1", 0, 1.0), &table("2", 1, times), true, &[]);
            let changed = compared
                .differences
                .iter()
                .find(|d| d.subject.as_str() == "s/v")
                .unwrap();
            format!("{}: {}", changed.change.word(), changed.why)
        },
    );
    insta::assert_snapshot!(compared, @"
    1.05 100 1980 1886
        worse: beyond 2.0 %
    1.00 100 1980 1886
        unchanged: within 2.0 %
    0.95 100 1980 1886
        improved: beyond 2.0 %
    1.05 100 1886 1980
        worse: beyond 2.0 %
    1.00 100 1886 1980
        unchanged: within 2.0 %
    0.95 100 1886 1980
        improved: beyond 2.0 %
    1.05 0 1980 1886
        worse: beyond 3.0 %, the usual variation between sessions
    1.00 0 1980 1886
        undecided: beyond 3.0 %, the usual variation between sessions in time, but not in cycles: 1980 MHz against 1886 MHz
    0.95 0 1980 1886
        undecided: within 3.0 %, the usual variation between sessions in time, but faster in cycles: 1980 MHz against 1886 MHz
    1.05 0 1886 1980
        undecided: within 3.0 %, the usual variation between sessions in time, but slower in cycles: 1886 MHz against 1980 MHz
    1.00 0 1886 1980
        undecided: beyond 3.0 %, the usual variation between sessions in time, but not in cycles: 1886 MHz against 1980 MHz
    0.95 0 1886 1980
        improved: beyond 3.0 %, the usual variation between sessions
    1.05 100 - -
        worse: beyond 2.0 %
    1.00 100 - -
        unchanged: within 2.0 %
    0.95 100 - -
        improved: beyond 2.0 %
    1.05 0 - -
        worse: beyond 3.0 %, the usual variation between sessions
    1.05 100 1980 -
        worse: beyond 2.0 %
    1.05 100 - 1886
        worse: beyond 2.0 %
    0.95 100 1980 -
        improved: beyond 2.0 %
    1.00 100 1980 -
        unchanged: within 2.0 %
    ");
}

#[test]
fn a_session_does_not_have_two_times_of_one_kernel() {
    let base = timed(US);
    let edited = timed([16.0, 20.0, 15.0]);
    let (old, new) = (of_run(&base, "1"), of_run(&edited, "1"));
    let compared = compare(&old, &new, true, &base.session.stages).differences;
    let changed: Vec<_> = compared
        .iter()
        .filter(|d| d.change != Change::Unchanged)
        .map(|d| (d.subject.as_str(), d.change))
        .collect();
    assert!(
        changed.contains(&(SCALAR, Change::Undecided)),
        "{changed:?}"
    );
    assert_ne!(of_differences(&compared).word, "SAME");
}

/// A kernel that alone ran at another clock than those that have not changed.
#[test]
fn a_clock_that_unchanged_kernels_have_not_recorded_decides_nothing() {
    let slower = |clock: &str| {
        let mut rows = [20.0, 21.0].map(|us| latency("s/v", &us.to_string(), us));
        set(&mut rows[1], clock);
        let [mut base, mut new] = [Table::default(), Table::default()];
        let sides = [(&mut base, &rows[0], "1"), (&mut new, &rows[1], "2")];
        for (table, changed, session) in sides {
            let mut rows_of_session = vec![changed.clone()];
            for i in 0..100 {
                let mut control = latency(&format!("s/{i}"), "same", 10.0);
                control.figures.remove(&Metric::SmMhz);
                rows_of_session.push(control);
            }
            for mut row in rows_of_session {
                row.session = session.into();
                table.append(row);
            }
        }
        let compared = compare(&base, &new, true, &[]).differences;
        compared
            .iter()
            .find(|d| d.subject.as_str() == "s/v")
            .unwrap()
            .change
    };
    assert_eq!(slower("sm_mhz 1980"), Change::Worse);
    assert_eq!(slower("sm_mhz 1886"), Change::Worse);
}

/// Gives the kernel's columns before and now, and asks what is said if it takes half or twice as
/// long.
#[test]
fn noise_clocks_and_kernels_that_have_not_changed_decide_nothing() {
    let compared = each(
        "identity a => identity a
        identity a | code x => identity b | code x
        identity a | code x => identity b | code y
        identity none => identity none
        p90 21.6 => note ours
        note ours => p90 22.68
        note ours => sm_mhz 1886
        note ours => sm_mhz 1980
        C2 fail => note ours
        note ours => C2 fail
        note ours => under cold L2
        note ours => under warm L2, sustained
        under warm L2, sustained => under warm L2, sustained
        p50 20 19.98 20.6 => note ours",
        |line| {
            let (old, new) = line.split_once(" => ").unwrap();
            let timed = |identity, us, changes: &str| {
                let mut row = latency("s/v", identity, us);
                changes
                    .split(" | ")
                    .for_each(|change| set(&mut row, change));
                row
            };
            let times = if line.starts_with("identity") {
                &[10.0, 40.0][..]
            } else {
                &[21.0]
            };
            let compared = times.iter().map(|us| {
                in_session(
                    timed("old", 20.0, old),
                    timed("new", *us, new),
                    100,
                    1.0,
                    0.01,
                )
                .0
            });
            compared.collect::<Vec<_>>().join("\n")
        },
    );
    insta::assert_snapshot!(compared, @"
    identity a => identity a
        unchanged: the kernel has not changed: what moved is the machine or the harness
        unchanged: the kernel has not changed: what moved is the machine or the harness
    identity a | code x => identity b | code x
        unchanged: the kernel has not changed: what moved is the machine or the harness
        unchanged: the kernel has not changed: what moved is the machine or the harness
    identity a | code x => identity b | code y
        improved: beyond 2.0 %
        worse: beyond 2.0 %
    identity none => identity none
        improved: beyond 2.0 %
        worse: beyond 2.0 %
    p90 21.6 => note ours
        undecided: beyond 2.0 %, but not beyond the samples' noise of 8.0 %
    note ours => p90 22.68
        undecided: beyond 2.0 %, but not beyond the samples' noise of 8.0 %
    note ours => sm_mhz 1886
        undecided: beyond 2.0 % in time, but not in cycles: 1980 MHz against 1886 MHz
    note ours => sm_mhz 1980
        worse: beyond 2.0 %
    C2 fail => note ours
        not comparable: s/v fails C2
    note ours => C2 fail
        not comparable: s/v fails C2
    note ours => under cold L2
        not comparable: warm L2 against cold L2
    note ours => under warm L2, sustained
        not comparable: warm L2 against warm L2, sustained
    under warm L2, sustained => under warm L2, sustained
        worse: beyond 2.0 %
    p50 20 19.98 20.6 => note ours
        undecided: the interval crosses 2.0 %
    ");
    // Two speeds in one kernel: its median is anywhere between them.
    let two_speeds = [[20.0, 24.0]; 20].concat();
    let base = timed(US).sampled(SCALAR, mission(), &two_speeds);
    let new = timed(US).rebuilt().sampled(SCALAR, mission(), &two_speeds);
    let wide_differences = differences(&base, &new);
    let of_scalar = wide_differences.iter().find(|d| d.ratio.is_some()).unwrap();
    assert_eq!(of_scalar.subject.as_str(), SCALAR);
    assert_eq!(of_scalar.change, Change::Undecided);
}

#[test]
fn a_verdict_that_turns_says_how() {
    use Change::{Better, Missing, Unchanged, Undecided, Worse};
    use Verdict::{Ambiguous, Fail, NoData, Pass};
    for (was, is, expected) in [
        (None, Fail, Some(Worse)),
        (Some(Pass), Fail, Some(Worse)),
        (Some(NoData), Fail, Some(Worse)),
        (Some(Fail), Fail, Some(Unchanged)),
        (Some(Fail), Pass, Some(Better)),
        (Some(Pass), Ambiguous, Some(Undecided)),
        (Some(Pass), NoData, Some(Missing)),
        (Some(Fail), NoData, Some(Missing)),
        (Some(NoData), Pass, None),
        (None, Pass, None),
    ] {
        assert_eq!(turned(was, is), expected, "{was:?} {is:?}");
    }
}

/// Two sessions of one H200 model, a day apart, on other cards: no kernel had changed.
#[test]
fn between_real_sessions_nothing_is_worse_and_a_slower_stage_is_found() {
    let read = |name: &str| {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        Table::parsed(&Texts::read(&data.join(name)).unwrap()).unwrap()
    };
    let (older, newer) = (read("older"), read("newer"));
    let is_slowed = |subject: &Subject| subject.stage() == "stage5-swizzle";
    let changes = |base: &Table, new: &Table| {
        let compared = compare(base, new, true, &[]);
        let mut counts = BTreeMap::new();
        for d in &compared.differences {
            *counts.entry((is_slowed(&d.subject), d.change)).or_insert(0) += 1;
        }
        (counts, compared.drift)
    };
    let others = ((false, Change::Unchanged), 138);
    for (base, new) in [(&older, &newer), (&newer, &older)] {
        let (counts, drift) = changes(base, new);
        assert_eq!(counts, [((true, Change::Unchanged), 118), others].into());
        assert_eq!(drift.kernels, 256);
        let is_steady = (0.98..1.02).contains(&drift.shift) && drift.spread < 0.03;
        assert!(is_steady, "{drift:?}");
        let mut slower = new.clone();
        for mut row in new.rows().cloned() {
            if !is_slowed(&row.subject) {
                continue;
            }
            row.identity = Some("another".into());
            for metric in [Metric::P50, Metric::P90] {
                row.figures
                    .insert(metric, slowed(row.figures[&metric], 1.03));
            }
            slower.append(row);
        }
        let (slower_counts, _) = changes(base, &slower);
        let has = |change| slower_counts.contains_key(&(true, change));
        assert!(has(Change::Worse), "{slower_counts:?}");
        assert!(!has(Change::Better), "{slower_counts:?}");
        assert_eq!(slower_counts[&others.0], others.1);
    }
}

#[test]
fn a_run_against_itself_is_the_same_everywhere() {
    let compared = each(
        "timed; built 96 0; clean => same
        emulated => same
        timed; peers mission 10 torch-flash 16 => same
        timed; + scalar | 1x1x17x64 f16 full | draw | p50 9 => timed; + scalar | 1x1x18x64 f16 full | draw | p50 9 | C2 fail",
        moved,
    );
    assert_eq!(compared.matches("    0 SAME\n").count(), 4, "{compared}");
    assert_eq!(compared.lines().count(), 8, "{compared}");
    let committed = crate::testing::results().of_gpu("nvidia-h200");
    let of_committed = compare(&committed, &committed, true, &[]);
    assert!(
        of_committed.differences.is_empty(),
        "rows of one session say nothing"
    );
}

#[test]
fn what_is_not_the_same_thing_is_missing_with_the_reason() {
    let answers = each(
        "timed => timed 64 40 30; rebuilt; card NVIDIA L4
        timed => timed 64 40 30; rebuilt; driver 600.1
        timed => timed 64 40 30; rebuilt; gpu mission !pair: under cold L2
        timed => timed 64 40 30; rebuilt; gpu all: C2 fail
        timed => timed 64 40 30; rebuilt; gpu mission !pair: C5 fail",
        |line| {
            let (base, new) = sides(line);
            let mut compared = differences(&base, &new);
            compared.retain(|d| d.what == What::Metric(Metric::P50));
            assert_eq!(compared.len(), 3, "{line}");
            for d in &compared {
                assert!(d.change == Change::Missing && d.required, "{line}");
            }
            compared[0].why.clone()
        },
    );
    insta::assert_snapshot!(answers, @"
    timed => timed 64 40 30; rebuilt; card NVIDIA L4
        NVIDIA H200 (sm_90, 132 SMs, driver 580.159.04) against NVIDIA L4 (sm_90, 132 SMs, driver 580.159.04)
    timed => timed 64 40 30; rebuilt; driver 600.1
        NVIDIA H200 (sm_90, 132 SMs, driver 580.159.04) against NVIDIA H200 (sm_90, 132 SMs, driver 600.1)
    timed => timed 64 40 30; rebuilt; gpu mission !pair: under cold L2
        warm L2 against cold L2
    timed => timed 64 40 30; rebuilt; gpu all: C2 fail
        stage0-scalar/scalar-32x64 fails C2
    timed => timed 64 40 30; rebuilt; gpu mission !pair: C5 fail
        stage0-scalar/scalar-32x64 fails C5
    ");
    // What failed in the kernel before is not this one's.
    let line = "timed; wmma gpu all: C2 fail & timed; rebuilt; - gpu all";
    let (_, table) = scenario::view(line);
    let row = table.latency(&WMMA.into(), &mission()).unwrap();
    assert_eq!(failing(&table, row), None);
    // Of another backend there is nothing but what the build says.
    let compared = differences(&timed(US), &emulated());
    for d in &compared {
        assert!(d.source() != Source::Gpu && d.group != Group::Latency);
    }
    let outdated = Difference::outdated("stage1-cpasync");
    assert_eq!(of_differences(&[outdated]).word, "INCOMPLETE");
}

#[test]
fn the_same_question_to_a_smaller_run_requires_nothing() {
    let answers = each(
        "timed => same
        timed; tier 0 => timed
        timed; stages 1 => timed
        timed; stages 1 => same
        timed => same; tier 0
        timed => same; stages 1
        timed; stages 1 => timed; stages 2
        timed => same; device sm_89
        emulated => timed",
        |line| {
            let (base, new) = sides(line);
            covers(&base.session, &new.session).to_string()
        },
    );
    insta::assert_snapshot!(answers, @"
    timed => same
        true
    timed; tier 0 => timed
        true
    timed; stages 1 => timed
        true
    timed; stages 1 => same
        true
    timed => same; tier 0
        false
    timed => same; stages 1
        false
    timed; stages 1 => timed; stages 2
        false
    timed => same; device sm_89
        false
    emulated => timed
        false
    ");
}

#[test]
fn gates_that_fail_now_are_worse() {
    let answers = each(
        "emulated => same; wmma all: C3 fail
        emulated; wmma all: C3 fail => emulated
        emulated; wmma all: C3 fail => same
        timed => same; wmma all: C3 fail
        timed => same; driver 600.1; wmma gpu all: row_error_of_bound 1.5
        emulated => same; wmma all: C5 ambiguous
        timed; clean => same; cpasync compute-sanitizer: C7 fail
        timed => same; clean; cpasync compute-sanitizer: C7 fail
        timed; clean; cpasync compute-sanitizer: C7 fail => timed; clean
        timed; clean => timed
        timed; built 96 0; variant wmma wmma-qk-32x64-k2 => same; wmma-qk-32x64-k2 ptxas: R1 fail
        emulated => same; zeros: S1 fail
        emulated; zeros: S1 fail => emulated
        emulated => same; - zeros
        emulated => same; - self-test
        emulated; + self-test | : stale tile | self-test | S1 fail => emulated; zeros: S1 fail
        emulated; - !self-test; claims 0 0; claims 1 0 => same",
        moved,
    );
    insta::assert_snapshot!(answers, @"
    emulated => same; wmma all: C3 fail
        1 FAIL
        worse stage0-scalar/wmma-qk-32x64 gate C3
    emulated; wmma all: C3 fail => emulated
        0 IMPROVED
        improved stage0-scalar/wmma-qk-32x64 gate C3
    emulated; wmma all: C3 fail => same
        0 SAME
    timed => same; wmma all: C3 fail
        1 FAIL
        worse stage0-scalar/wmma-qk-32x64 gate C3
        not comparable stage0-scalar/wmma-qk claim wmma-qk p50 over stage0-scalar scalar on mission f16 full (required)
        not comparable stage0-scalar/wmma-qk-32x64 p50 on mission f16 full (required)
        not comparable stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full (required)
    timed => same; driver 600.1; wmma gpu all: row_error_of_bound 1.5
        1 REGRESSION
        not comparable stage0-scalar/scalar-32x64 p50 on mission f16 full (required)
        not comparable stage0-scalar/wmma-qk-32x64 p50 on mission f16 full (required)
        worse stage0-scalar/wmma-qk-32x64 row error of its bound
        not comparable stage1-cpasync/cpasync-32x64 p50 on mission f16 full (required)
    emulated => same; wmma all: C5 ambiguous
        3 UNDECIDED
        undecided stage0-scalar/wmma-qk-32x64 gate C5
    timed; clean => same; cpasync compute-sanitizer: C7 fail
        1 FAIL
        worse stage1-cpasync/cpasync-32x64 gate C7
    timed => same; clean; cpasync compute-sanitizer: C7 fail
        1 FAIL
        worse stage1-cpasync/cpasync-32x64 gate C7
    timed; clean; cpasync compute-sanitizer: C7 fail => timed; clean
        0 IMPROVED
        improved stage1-cpasync/cpasync-32x64 gate C7
    timed; clean => timed
        3 INCOMPLETE
        not comparable stage0-scalar/scalar-32x64 gate C7 (required)
        not comparable stage0-scalar/wmma-qk-32x64 gate C7 (required)
        not comparable stage1-cpasync/cpasync-32x64 gate C7 (required)
    timed; built 96 0; variant wmma wmma-qk-32x64-k2 => same; wmma-qk-32x64-k2 ptxas: R1 fail
        1 FAIL
        worse stage0-scalar/wmma-qk-32x64-k2 gate R1 on f16 d64 sm_90a
    emulated => same; zeros: S1 fail
        1 FAIL
        worse self-test gate S1 on : zeros
    emulated; zeros: S1 fail => emulated
        0 IMPROVED
        improved self-test gate S1 on : zeros
    emulated => same; - zeros
        3 INCOMPLETE
        not comparable self-test gate S1 on : zeros (required)
    emulated => same; - self-test
        3 INCOMPLETE
        not comparable self-test gate S1 on : correct model (required)
        not comparable self-test gate S1 on : zeros (required)
    emulated; + self-test | : stale tile | self-test | S1 fail => emulated; zeros: S1 fail
        1 FAIL
        worse self-test gate S1 on : zeros
        not comparable self-test gate S1 on : stale tile (required)
    emulated; - !self-test; claims 0 0; claims 1 0 => same
        3 NOT MEASURED
    ");
}

#[test]
fn what_the_new_side_lacks_is_missing_and_what_it_does_not_declare_was_removed() {
    let answers = each(
        "emulated => same; refused scalar; claims 0 0
        emulated; refused scalar; claims 0 0 => emulated
        emulated; - scalar all => emulated
        emulated => same; scalar all: row_error_of_bound none
        emulated => same; - scalar all
        emulated => same; - scalar all; tier 0
        emulated => same; scalar all: C5 none
        emulated => same; scalar all: C5 none; tier 0
        emulated => same; - cpasync mission
        emulated => same; - scalar mission; + scalar | mission f16 full | emulator | note not traced
        timed => same; - cpasync gpu !all
        timed; built 96 0; + wmma | f16 d64 | kernel | threads 128 => same; - wmma ptxas
        timed; built 96 0; + wmma | f16 d64 | kernel | threads 128 => same; - wmma kernel
        timed; built 96 0 => same; - wmma ptxas; archs sm_89
        timed; built 96 0; + wmma | f16 d64 | kernel | threads 128 => same; - wmma kernel; archs sm_89
        timed; built 96 0 => same; wmma ptxas: R1 none
        emulated; wmma all: C5 no_data => same; wmma all: C5 none
        timed; wmma gpu mission !pair: C5 pass => same; wmma gpu mission !pair: C5 none
        timed; built 96 0 => same; scalar ptxas: registers none
        emulated; wmma all: cases 9 => emulated; wmma all: cases 8
        emulated; wmma all: cases 8 => emulated; wmma all: cases 9",
        moved,
    );
    insta::assert_snapshot!(answers, @"
    emulated => same; refused scalar; claims 0 0
        0 SAME
        changed (informational) stage0-scalar/scalar-32x64 variant
        changed (informational) stage0-scalar/wmma-qk claim wmma-qk global bytes read against stage0-scalar scalar on mission f16 full
        changed (informational) stage0-scalar/wmma-qk claim wmma-qk p50 over stage0-scalar scalar on mission f16 full
    emulated; refused scalar; claims 0 0 => emulated
        0 SAME
        changed (informational) stage0-scalar/scalar-32x64 variant
    emulated; - scalar all => emulated
        0 SAME
    emulated => same; scalar all: row_error_of_bound none
        0 SAME
    emulated => same; - scalar all
        3 INCOMPLETE
        not comparable stage0-scalar/scalar-32x64 variant (required)
    emulated => same; - scalar all; tier 0
        0 SAME
    emulated => same; scalar all: C5 none
        3 INCOMPLETE
        not comparable stage0-scalar/scalar-32x64 gate C5 (required)
    emulated => same; scalar all: C5 none; tier 0
        0 SAME
        not comparable stage0-scalar/scalar-32x64 gate C5
    emulated => same; - cpasync mission
        3 INCOMPLETE
        not comparable stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full (required)
        not comparable stage1-cpasync/cpasync-32x64 counters on mission f16 full (required)
    emulated => same; - scalar mission; + scalar | mission f16 full | emulator | note not traced
        3 INCOMPLETE
        not comparable stage0-scalar/wmma-qk claim wmma-qk global bytes read against stage0-scalar scalar on mission f16 full (required)
        not comparable stage0-scalar/scalar-32x64 global bytes read on mission f16 full (required)
        not comparable stage0-scalar/scalar-32x64 global sectors read on mission f16 full (required)
        not comparable stage0-scalar/scalar-32x64 shared-load wavefronts on mission f16 full (required)
        not comparable stage0-scalar/scalar-32x64 shared-load bank conflicts on mission f16 full (required)
    timed => same; - cpasync gpu !all
        3 INCOMPLETE
        not comparable stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full (required)
        not comparable stage1-cpasync/cpasync-32x64 p50 on mission f16 full (required)
    timed; built 96 0; + wmma | f16 d64 | kernel | threads 128 => same; - wmma ptxas
        3 INCOMPLETE
        not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 sm_90a (required)
    timed; built 96 0; + wmma | f16 d64 | kernel | threads 128 => same; - wmma kernel
        3 INCOMPLETE
        not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 (required)
    timed; built 96 0 => same; - wmma ptxas; archs sm_89
        0 SAME
        not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 sm_90a
    timed; built 96 0; + wmma | f16 d64 | kernel | threads 128 => same; - wmma kernel; archs sm_89
        3 INCOMPLETE
        not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 (required)
    timed; built 96 0 => same; wmma ptxas: R1 none
        0 SAME
        not comparable stage0-scalar/wmma-qk-32x64 gate R1 on f16 d64 sm_90a
    emulated; wmma all: C5 no_data => same; wmma all: C5 none
        0 SAME
    timed; wmma gpu mission !pair: C5 pass => same; wmma gpu mission !pair: C5 none
        0 SAME
    timed; built 96 0 => same; scalar ptxas: registers none
        3 INCOMPLETE
        not comparable stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a (required)
    emulated; wmma all: cases 9 => emulated; wmma all: cases 8
        3 INCOMPLETE
        not comparable stage0-scalar/wmma-qk-32x64 cases (required)
    emulated; wmma all: cases 8 => emulated; wmma all: cases 9
        0 SAME
        changed (informational) stage0-scalar/wmma-qk-32x64 cases
    ");
}

/// Returns each case's name, with what moved from its base to its new side about [`SCALAR`].
fn moved_in_each(cases: impl IntoIterator<Item = (&'static str, [Run; 2])>) -> String {
    each_case(cases, |[base, new]| {
        about_subject(&moved_between(base, new), SCALAR)
    })
}

#[test]
fn counters_are_worse_where_they_cost_something() {
    let whole = emulated().with_first_claims(0, 1);
    let on_gpu = timed(US).with_first_claims(0, 1);
    let faster = timed([28.0, 18.0, 13.0])
        .with_first_claims(0, 1)
        .counted(SCALAR, 2_097_152, 0)
        .rebuilt();
    let long = "scalar | long f16 full | gpu | p50";
    let other_host = whole
        .clone()
        .counted(SCALAR, 2_097_152, 0)
        .changed(|session| session.host_compiler = "g++ 13".into());
    let answers = moved_in_each([
        (
            "more sectors are read",
            [whole.clone(), whole.clone().counted(SCALAR, 2_097_152, 0)],
        ),
        (
            "fewer bank conflicts",
            [
                whole.clone().counted(SCALAR, 1_048_576, 12_288),
                whole.clone(),
            ],
        ),
        (
            "more sectors are read in less time",
            [on_gpu.clone(), faster.clone()],
        ),
        (
            "more sectors are read, and times disagree",
            [
                on_gpu.with_row(row(&format!("{long} 9"))),
                faster.with_row(row(&format!("{long} 10"))),
            ],
        ),
        ("another host compiler", [whole, other_host]),
    ]);
    insta::assert_snapshot!(answers, @"
    more sectors are read
        1 REGRESSION
        worse stage0-scalar/scalar-32x64 global sectors read on mission f16 full
        changed (informational) stage0-scalar/scalar-32x64 global bytes read on mission f16 full
    fewer bank conflicts
        0 IMPROVED
        improved stage0-scalar/scalar-32x64 shared-load bank conflicts on mission f16 full
        changed (informational) stage0-scalar/scalar-32x64 shared-load wavefronts on mission f16 full
    more sectors are read in less time
        0 IMPROVED
        improved stage0-scalar/scalar-32x64 p50 on mission f16 full
        changed (informational) stage0-scalar/scalar-32x64 global bytes read on mission f16 full
        changed (informational) stage0-scalar/scalar-32x64 global sectors read on mission f16 full
    more sectors are read, and times disagree
        1 MIXED
        worse stage0-scalar/scalar-32x64 p50 on long f16 full
        improved stage0-scalar/scalar-32x64 p50 on mission f16 full
        changed (informational) stage0-scalar/scalar-32x64 global bytes read on mission f16 full
        changed (informational) stage0-scalar/scalar-32x64 global sectors read on mission f16 full
    another host compiler
        0 SAME
        not comparable stage0-scalar/scalar-32x64 errors
        not comparable stage0-scalar/scalar-32x64 counters on mission f16 full
    ");
}

/// 512 / 88 and 512 / 96 registers are five blocks, 512 / 104 four. The latency of an instance has
/// the last word on its occupancy, and none on spills; that of f16 says nothing of e4m3, and
/// latencies that disagree say nothing.
#[test]
fn resources_are_worse_where_they_cost_something() {
    let base = timed(US).built_throughout(96, 0);
    let rebuilt = |us, spills| {
        timed(us)
            .built_throughout(104, spills)
            .rebuilt()
            .with_columns("ptxas", "code new")
    };
    let faster = |spills| rebuilt([28.8, 18.0, 13.5], spills);
    let time = |place: &str, us: f64| row(&format!("scalar | {place} full | gpu | p50 {us}"));
    let e4m3 = "scalar | e4m3 d64 sm_90a | ptxas | occupancy";
    let other_nvcc = timed(US).built_throughout(104, 8).changed(|session| {
        session.device_compiler = DeviceCompiler::Built {
            nvcc: "13.1".into(),
            flags: vec![],
            archs: vec!["sm_90a".into()],
        };
    });
    let answers = moved_in_each([
        (
            "more registers, as many blocks",
            [timed(US).built_throughout(88, 0), base.clone()],
        ),
        (
            "fewer blocks",
            [base.clone(), timed(US).built_throughout(104, 0)],
        ),
        (
            "fewer blocks in more time",
            [base.clone(), rebuilt([35.0, 18.0, 13.5], 0)],
        ),
        (
            "spilled bytes",
            [base.clone(), timed(US).built_throughout(96, 8)],
        ),
        ("fewer blocks in less time", [base.clone(), faster(0)]),
        ("spilled bytes in less time", [base.clone(), faster(8)]),
        (
            "fewer blocks of another element type",
            [
                base.clone().with_row(row(&format!("{e4m3} 0.3"))),
                faster(0).with_row(row(&format!("{e4m3} 0.2"))),
            ],
        ),
        (
            "fewer blocks, and times of the instance disagree",
            [
                base.clone().with_row(time("long f16", 9.0)),
                faster(0).with_row(time("long f16", 10.0)),
            ],
        ),
        (
            "fewer blocks, and a time of another element type is worse",
            [
                base.clone().with_row(time("long e4m3", 9.0)),
                faster(0).with_row(time("long e4m3", 10.0)),
            ],
        ),
        (
            "fewer blocks, and a time of another head size is worse",
            [
                base.clone().with_row(time("1x8x512x128 f16", 9.0)),
                faster(0).with_row(time("1x8x512x128 f16", 10.0)),
            ],
        ),
        ("another nvcc", [base, other_nvcc]),
    ]);
    insta::assert_snapshot!(answers, @"
    more registers, as many blocks
        0 SAME
        changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    fewer blocks
        1 REGRESSION
        worse stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
        changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    fewer blocks in more time
        1 MIXED
        worse stage0-scalar/scalar-32x64 p50 on mission f16 full
        worse stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
        changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    spilled bytes
        1 FAIL
        worse stage0-scalar/scalar-32x64 gate R1 on f16 d64 sm_90a
        worse stage0-scalar/scalar-32x64 spilled bytes on f16 d64 sm_90a
    fewer blocks in less time
        0 IMPROVED
        improved stage0-scalar/scalar-32x64 p50 on mission f16 full
        changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
        changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    spilled bytes in less time
        1 FAIL
        worse stage0-scalar/scalar-32x64 gate R1 on f16 d64 sm_90a
        improved stage0-scalar/scalar-32x64 p50 on mission f16 full
        worse stage0-scalar/scalar-32x64 spilled bytes on f16 d64 sm_90a
        changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
        changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    fewer blocks of another element type
        1 MIXED
        improved stage0-scalar/scalar-32x64 p50 on mission f16 full
        worse stage0-scalar/scalar-32x64 occupancy on e4m3 d64 sm_90a
        changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
        changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    fewer blocks, and times of the instance disagree
        1 MIXED
        worse stage0-scalar/scalar-32x64 p50 on long f16 full
        improved stage0-scalar/scalar-32x64 p50 on mission f16 full
        worse stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
        changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    fewer blocks, and a time of another element type is worse
        1 MIXED
        worse stage0-scalar/scalar-32x64 p50 on long e4m3 full
        improved stage0-scalar/scalar-32x64 p50 on mission f16 full
        changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
        changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    fewer blocks, and a time of another head size is worse
        1 MIXED
        worse stage0-scalar/scalar-32x64 p50 on 1x8x512x128 f16 full
        improved stage0-scalar/scalar-32x64 p50 on mission f16 full
        changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
        changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    another nvcc
        1 FAIL
        worse stage0-scalar/scalar-32x64 gate R1 on f16 d64 sm_90a
        not comparable stage0-scalar/scalar-32x64 resources on f16 d64 sm_90a
    ");
}

#[test]
fn errors_are_judged_by_their_bounds() {
    let errors = |old: &str, changed: &str, metric: Metric| {
        let (base, new) = sides(&format!("{old} => {changed}"));
        let mut compared = differences(&base, &new);
        compared.retain(|d| d.subject.as_str() == SCALAR && d.what == What::Metric(metric));
        let lines = compared
            .iter()
            .map(|d| format!("{} on {}", d.change.word(), d.place()));
        lines.collect::<Vec<_>>().join("\n")
    };
    for metric in [Metric::ErrorOfBound, Metric::RowErrorOfBound] {
        let answers = each(
            "0.17 0.26
            0.0 0.1
            0.17 0.29
            0.29 0.17
            0.98 1.02
            1.0 1.02
            1.02 1.03
            0.17 NaN
            NaN NaN
            NaN 0.17",
            |line| {
                let (was, is) = line.split_once(' ').unwrap();
                let side = |share| format!("emulated; scalar all: {} {share}", metric.name());
                errors(&side(was), &side(is), metric)
            },
        );
        insta::allow_duplicates! {
            insta::assert_snapshot!(answers, @"
    0.17 0.26
        unchanged on all
    0.0 0.1
        unchanged on all
    0.17 0.29
        worse on all
    0.29 0.17
        improved on all
    0.98 1.02
        worse on all
    1.0 1.02
        worse on all
    1.02 1.03
        unchanged on all
    0.17 NaN
        worse on all
    NaN NaN
        worse on all
    NaN 0.17
        improved on all
    ");
        }
    }
    // A case that was no number and is one hides no other that got worse. What another backend is
    // off by is another figure.
    let case = |shape: &str, share: &str| {
        format!("; + scalar | {shape} f16 full normal:0 | emulator | error_of_bound {share}")
    };
    let answers = each(
        "NaN 0.17 0.17 0.29
        0.17 0.29 0.17 0.1
        0.17 0.17 NaN 0.17",
        |line| {
            let shares: Vec<&str> = line.split(' ').collect();
            let side = |first: usize| {
                let (mission, long) = (shares[first], shares[first + 1]);
                format!("emulated{}{}", case("mission", mission), case("long", long))
            };
            errors(&side(0), &side(2), Metric::ErrorOfBound)
        },
    );
    insta::assert_snapshot!(answers, @"
    NaN 0.17 0.17 0.29
        worse on long f16 full normal:0
        improved on mission f16 full normal:0
        unchanged on all
    0.17 0.29 0.17 0.1
        improved on long f16 full normal:0
        unchanged on all
    0.17 0.17 NaN 0.17
        worse on mission f16 full normal:0
        unchanged on all
    ");
    assert_eq!(
        errors(
            "emulated",
            "timed; scalar gpu all: error_of_bound 0.9",
            Metric::ErrorOfBound
        ),
        ""
    );
}

#[test]
fn claims_that_fail_now_or_are_taken_back_are_said() {
    let answers = each(
        "emulated => same; counted cpasync 1048577 0
        emulated => same; counted cpasync 1048577 0; refuted 1 1
        emulated; counted cpasync 1048577 0 => same; refuted 1 1
        emulated => same; claims 1 1
        timed => timed 32 20 19
        timed 32 20 19 => timed
        timed; peers mission 10 torch-flash 16 => timed; peers mission 10 torch-flash 14
        timed; peers mission 10 torch-flash 16 => same; - peers",
        moved,
    );
    insta::assert_snapshot!(answers, @"
    emulated => same; counted cpasync 1048577 0
        1 REGRESSION
        worse stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full
        changed (informational) stage1-cpasync/cpasync-32x64 global bytes read on mission f16 full
    emulated => same; counted cpasync 1048577 0; refuted 1 1
        0 SAME
        changed (informational) stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full
        changed (informational) stage1-cpasync/cpasync-32x64 global bytes read on mission f16 full
    emulated; counted cpasync 1048577 0 => same; refuted 1 1
        0 SAME
    emulated => same; claims 1 1
        0 SAME
        changed (informational) stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full
    timed => timed 32 20 19
        1 REGRESSION
        worse stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full
    timed 32 20 19 => timed
        0 IMPROVED
        improved stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full
    timed; peers mission 10 torch-flash 16 => timed; peers mission 10 torch-flash 14
        1 REGRESSION
        worse stage1-cpasync/cpasync claim cpasync p50 over the fastest of PyTorch on mission f16 full
    timed; peers mission 10 torch-flash 16 => same; - peers
        3 INCOMPLETE
        not comparable stage1-cpasync/cpasync claim cpasync p50 over PyTorch's flash on mission f16 full (required)
        not comparable stage1-cpasync/cpasync claim cpasync p50 over the fastest of PyTorch on mission f16 full (required)
    ");
}
