//! Times: what noise, clocks and sessions leave of a difference.

use super::*;

/// Returns the figure that takes `factor` times as long.
fn slowed(figure: Figure, factor: f64) -> Figure {
    let slow = |us: f64| us * factor;
    Figure {
        value: slow(figure.value),
        interval: figure.interval.map(|(low, high)| (slow(low), slow(high))),
    }
}

/// Returns a latency of `us` with an interval of 0.2 %.
fn time(subject: &str, identity: &str, us: f64) -> Row {
    let mut row = row(&format!(
        "{subject} | mission f16 full | gpu | under warm L2 | sm_mhz 1980 | identity {identity}"
    ));
    row.figures
        .insert(Metric::P50, (us, 0.999 * us, 1.001 * us).into());
    row.figure(Metric::P90, 1.002 * us)
}

/// Returns the table of a session.
fn table_of(session: &str, rows: impl IntoIterator<Item = Row>) -> Table {
    let mut table = Table::default();
    for mut row in rows {
        row.session = session.into();
        table.append(row);
    }
    table
}

/// Returns what became of the time of a subject.
fn change_of<'a>(compared: &'a [Difference], subject: &str) -> &'a Difference {
    let mut latencies = compared.iter().filter(|d| d.group == Group::Latency);
    latencies
        .find(|d| d.subject.as_str() == subject)
        .expect("both sides timed it")
}

/// Kernels that have not changed between two sessions.
#[derive(Clone, Copy)]
struct Controls {
    count: u32,
    /// How many times as long they take in the second session.
    shift: f64,
    /// The share by which they stray from that.
    spread: f64,
}

impl Controls {
    const STEADY: Self = Self {
        count: 100,
        shift: 1.0,
        spread: 0.01,
    };

    /// Returns what becomes of `s/v`, which changes from one row to another among them.
    #[track_caller]
    fn change(self, old: Row, new: Row) -> String {
        let mut before = vec![old];
        let mut after = vec![new];
        for i in 0..self.count {
            let deviation = 1.05 * self.spread * (f64::from(i) / 50.0 - 1.0);
            let subject = format!("s/{i}");
            before.push(time(&subject, "same", 10.0));
            after.push(time(
                &subject,
                "same",
                10.0 * self.shift * (1.0 + deviation),
            ));
        }
        let (base, renewed) = (table_of("1", before), table_of("2", after));
        let compared = compare(&base, &renewed, true, &[]).differences;
        let unchanged = compared
            .iter()
            .filter(|d| d.subject.as_str() != "s/v" && d.change == Change::Unchanged);
        assert_eq!(unchanged.count(), self.count as usize, "controls moved");
        let changed = change_of(&compared, "s/v");
        format!("{}: {}", changed.change.word(), changed.why)
    }

    /// Returns what becomes of `s/v` if it takes `factor` times as long as the shift explains.
    #[track_caller]
    fn change_beyond_shift(self, factor: f64) -> String {
        let old = time("s/v", "old", 20.0);
        let new = time("s/v", "new", 20.0 * factor * self.shift);
        self.change(old, new)
    }
}

const SLOWER_SESSION: Controls = Controls {
    count: 100,
    shift: 1.01,
    spread: 0.015,
};

#[test]
fn a_kernel_that_takes_3_percent_longer_than_the_shift_is_worse() {
    let change = SLOWER_SESSION.change_beyond_shift(1.03);
    assert_eq!(change, "worse: beyond 2.0 %");
}

#[test]
fn a_kernel_that_takes_longer_in_a_faster_session_is_worse() {
    let session = Controls {
        shift: 0.99,
        ..SLOWER_SESSION
    };
    assert_eq!(session.change_beyond_shift(1.03), "worse: beyond 2.0 %");
}

#[test]
fn a_kernel_that_takes_5_percent_longer_than_the_shift_is_worse() {
    let change = SLOWER_SESSION.change_beyond_shift(1.05);
    assert_eq!(change, "worse: beyond 2.0 %");
}

#[test]
fn a_kernel_at_the_limit_is_undecided() {
    let change = SLOWER_SESSION.change_beyond_shift(1.02);
    assert_eq!(change, "undecided: the interval crosses 2.0 %");
}

#[test]
fn a_kernel_below_the_limit_is_unchanged() {
    let change = SLOWER_SESSION.change_beyond_shift(1.01);
    assert_eq!(change, "unchanged: within 2.0 %");
}

#[test]
fn a_kernel_that_takes_longer_as_all_others_is_unchanged() {
    let session = Controls {
        shift: 1.04,
        ..SLOWER_SESSION
    };
    assert_eq!(session.change_beyond_shift(1.0), "unchanged: within 2.0 %");
}

#[test]
fn a_kernel_that_takes_3_percent_less_than_the_shift_is_better() {
    let change = SLOWER_SESSION.change_beyond_shift(0.97);
    assert_eq!(change, "improved: beyond 2.0 %");
}

#[test]
fn a_wide_spread_of_unchanged_kernels_widens_the_limit() {
    let session = Controls {
        spread: 0.039,
        ..SLOWER_SESSION
    };
    assert_eq!(
        session.change_beyond_shift(1.03),
        "unchanged: within 4.0 %, as far as 95 of 100 of 100 unchanged kernels moved"
    );
}

const FEW: Controls = Controls {
    count: 3,
    shift: 1.0,
    spread: 0.001,
};

#[test]
fn a_kernel_beyond_the_usual_variation_among_few_others_is_worse() {
    assert_eq!(
        FEW.change_beyond_shift(1.05),
        "worse: beyond 3.0 %, the usual variation between sessions"
    );
}

#[test]
fn a_kernel_within_the_usual_variation_among_few_others_is_unchanged() {
    assert_eq!(
        FEW.change_beyond_shift(1.02),
        "unchanged: within 3.0 %, the usual variation between sessions"
    );
}

/// Two sessions of `s/v` and of unchanged kernels at these clocks of the SMs in MHz: where none was
/// recorded, it was 1980.
struct Clocks {
    controls: u32,
    before: Option<f64>,
    now: Option<f64>,
}

impl Clocks {
    /// Returns what becomes of `s/v`, which takes `cycles` times as many cycles.
    fn change(&self, cycles: f64) -> String {
        let base = table_of("1", self.rows(self.before, "old", 1.0));
        let new = table_of("2", self.rows(self.now, "new", cycles));
        let compared = compare(&base, &new, true, &[]).differences;
        let changed = change_of(&compared, "s/v");
        format!("{}: {}", changed.change.word(), changed.why)
    }

    fn rows(&self, clock: Option<f64>, identity: &str, cycles: f64) -> Vec<Row> {
        let mut rows = vec![time("s/v", identity, 20.0 * cycles)];
        for i in 0..self.controls {
            rows.push(time(&format!("s/{i}"), "same", 10.0));
        }
        for row in &mut rows {
            let slower = slowed(row.figures[&Metric::P50], 1980.0 / clock.unwrap_or(1980.0));
            row.figures.insert(Metric::P50, slower);
            row.figures
                .insert(Metric::P90, (1.002 * slower.value).into());
            row.figures.remove(&Metric::SmMhz);
            if let Some(mhz) = clock {
                row.figures.insert(Metric::SmMhz, mhz.into());
            }
        }
        rows
    }

    /// Asserts that a kernel is judged as it would be at one clock.
    #[track_caller]
    fn assert_no_matter(&self) {
        assert_eq!(self.change(1.05), "worse: beyond 2.0 %");
        assert_eq!(self.change(1.0), "unchanged: within 2.0 %");
        assert_eq!(self.change(0.95), "improved: beyond 2.0 %");
    }
}

#[test]
fn a_lower_clock_that_unchanged_kernels_share_hides_nothing() {
    let clocks = Clocks {
        controls: 100,
        before: Some(1980.0),
        now: Some(1886.0),
    };
    clocks.assert_no_matter();
}

#[test]
fn a_higher_clock_that_unchanged_kernels_share_hides_nothing() {
    let clocks = Clocks {
        controls: 100,
        before: Some(1886.0),
        now: Some(1980.0),
    };
    clocks.assert_no_matter();
}

#[test]
fn kernels_are_judged_where_no_clock_was_recorded() {
    let clocks = Clocks {
        controls: 100,
        before: None,
        now: None,
    };
    clocks.assert_no_matter();
}

#[test]
fn kernels_are_judged_where_a_clock_was_recorded_before_alone() {
    let clocks = Clocks {
        controls: 100,
        before: Some(1980.0),
        now: None,
    };
    clocks.assert_no_matter();
}

#[test]
fn a_kernel_is_judged_where_a_clock_was_recorded_now_alone() {
    let clocks = Clocks {
        controls: 100,
        before: None,
        now: Some(1886.0),
    };
    assert_eq!(clocks.change(1.05), "worse: beyond 2.0 %");
}

#[test]
fn at_a_lower_clock_without_unchanged_kernels_a_change_is_one_of_time_and_of_cycles() {
    let clocks = Clocks {
        controls: 0,
        before: Some(1980.0),
        now: Some(1886.0),
    };
    assert_eq!(
        clocks.change(1.05),
        "worse: beyond 3.0 %, the usual variation between sessions"
    );
    assert_eq!(
        clocks.change(1.0),
        "undecided: beyond 3.0 %, the usual variation between sessions in time, \
         but not in cycles: 1980 MHz against 1886 MHz"
    );
    assert_eq!(
        clocks.change(0.95),
        "undecided: within 3.0 %, the usual variation between sessions in time, \
         but faster in cycles: 1980 MHz against 1886 MHz"
    );
}

#[test]
fn at_a_higher_clock_without_unchanged_kernels_a_change_is_one_of_time_and_of_cycles() {
    let clocks = Clocks {
        controls: 0,
        before: Some(1886.0),
        now: Some(1980.0),
    };
    assert_eq!(
        clocks.change(1.05),
        "undecided: within 3.0 %, the usual variation between sessions in time, \
         but slower in cycles: 1886 MHz against 1980 MHz"
    );
    assert_eq!(
        clocks.change(1.0),
        "undecided: beyond 3.0 %, the usual variation between sessions in time, \
         but not in cycles: 1886 MHz against 1980 MHz"
    );
    assert_eq!(
        clocks.change(0.95),
        "improved: beyond 3.0 %, the usual variation between sessions"
    );
}

#[test]
fn without_clocks_and_unchanged_kernels_the_usual_variation_is_the_limit() {
    let clocks = Clocks {
        controls: 0,
        before: None,
        now: None,
    };
    assert_eq!(
        clocks.change(1.05),
        "worse: beyond 3.0 %, the usual variation between sessions"
    );
}

/// A kernel that alone ran at another clock than those that have not changed.
#[test]
fn a_clock_that_unchanged_kernels_have_not_recorded_decides_nothing() {
    for clock in [1980.0, 1886.0] {
        let rows = [20.0, 21.0].map(|us| {
            let mut rows = vec![time("s/v", &us.to_string(), us)];
            for i in 0..100 {
                let mut control = time(&format!("s/{i}"), "same", 10.0);
                control.figures.remove(&Metric::SmMhz);
                rows.push(control);
            }
            rows
        });
        let [before, mut after] = rows;
        after[0].figures.insert(Metric::SmMhz, clock.into());
        let (base, new) = (table_of("1", before), table_of("2", after));
        let compared = compare(&base, &new, true, &[]).differences;
        let change = change_of(&compared, "s/v").change;
        assert_eq!(change, Change::Worse, "{clock} MHz");
    }
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

/// Returns the row of `s/v` before, of 20 µs.
fn before() -> Row {
    time("s/v", "old", 20.0)
}

/// Returns the row of `s/v` now, which takes 5 % longer.
fn slower() -> Row {
    time("s/v", "new", 21.0)
}

/// Returns a row whose kernel has this identity and machine code.
fn with_code(mut row: Row, identity: Option<&str>, code: Option<&str>) -> Row {
    row.identity = identity.map(String::from);
    row.code = code.map(String::from);
    row
}

/// Asserts what is said of a kernel of this identity and machine code if it takes half and twice as
/// long as another.
#[track_caller]
fn assert_half_and_twice(old: [Option<&str>; 2], new: [Option<&str>; 2], expected: [&str; 2]) {
    let changes = [10.0, 40.0].map(|us| {
        let before = with_code(before(), old[0], old[1]);
        let now = with_code(time("s/v", "new", us), new[0], new[1]);
        Controls::STEADY.change(before, now)
    });
    assert_eq!(changes, expected);
}

const UNCHANGED_KERNEL: &str =
    "unchanged: the kernel has not changed: what moved is the machine or the harness";

#[test]
fn a_time_of_the_same_sources_is_no_change() {
    let kernel = [Some("a"), None];
    assert_half_and_twice(kernel, kernel, [UNCHANGED_KERNEL; 2]);
}

#[test]
fn a_time_of_the_same_machine_code_is_no_change() {
    let (old, new) = ([Some("a"), Some("x")], [Some("b"), Some("x")]);
    assert_half_and_twice(old, new, [UNCHANGED_KERNEL; 2]);
}

#[test]
fn a_time_of_other_machine_code_is_a_change() {
    let (old, new) = ([Some("a"), Some("x")], [Some("b"), Some("y")]);
    let expected = ["improved: beyond 2.0 %", "worse: beyond 2.0 %"];
    assert_half_and_twice(old, new, expected);
}

#[test]
fn a_time_of_unknown_sources_is_a_change() {
    let expected = ["improved: beyond 2.0 %", "worse: beyond 2.0 %"];
    assert_half_and_twice([None, None], [None, None], expected);
}

const NOISY: &str = "undecided: beyond 2.0 %, but not beyond the samples' noise of 8.0 %";

#[test]
fn noise_of_the_samples_before_leaves_a_change_undecided() {
    let noisy = before().figure(Metric::P90, 21.6);
    assert_eq!(Controls::STEADY.change(noisy, slower()), NOISY);
}

#[test]
fn noise_of_the_samples_now_leaves_a_change_undecided() {
    let noisy = slower().figure(Metric::P90, 22.68);
    assert_eq!(Controls::STEADY.change(before(), noisy), NOISY);
}

#[test]
fn a_time_that_a_lower_clock_explains_is_undecided() {
    let slow_clock = slower().figure(Metric::SmMhz, 1886.0);
    assert_eq!(
        Controls::STEADY.change(before(), slow_clock),
        "undecided: beyond 2.0 % in time, but not in cycles: 1980 MHz against 1886 MHz"
    );
}

#[test]
fn a_time_at_the_same_clock_is_worse() {
    let same_clock = slower().figure(Metric::SmMhz, 1980.0);
    assert_eq!(
        Controls::STEADY.change(before(), same_clock),
        "worse: beyond 2.0 %"
    );
}

/// Returns a row whose buffers fail C2.
fn wrong(row: Row) -> Row {
    row.verdict(&GateResult::fail(GateId::C2, "too large"))
}

#[test]
fn a_time_of_an_output_that_was_wrong_is_not_compared() {
    assert_eq!(
        Controls::STEADY.change(wrong(before()), slower()),
        "not comparable: s/v fails C2"
    );
}

#[test]
fn a_time_of_an_output_that_is_wrong_now_is_not_compared() {
    assert_eq!(
        Controls::STEADY.change(before(), wrong(slower())),
        "not comparable: s/v fails C2"
    );
}

#[test]
fn a_cold_time_is_not_compared_with_a_warm_one() {
    assert_eq!(
        Controls::STEADY.change(before(), slower().conditions("cold L2")),
        "not comparable: warm L2 against cold L2"
    );
}

#[test]
fn a_sustained_time_is_not_compared_with_a_burst() {
    assert_eq!(
        Controls::STEADY.change(before(), slower().conditions("warm L2, sustained")),
        "not comparable: warm L2 against warm L2, sustained"
    );
}

#[test]
fn sustained_times_are_compared() {
    let [old, new] = [before(), slower()].map(|row| row.conditions("warm L2, sustained"));
    assert_eq!(Controls::STEADY.change(old, new), "worse: beyond 2.0 %");
}

#[test]
fn an_interval_that_crosses_the_limit_is_undecided() {
    let wide = before().figure(Metric::P50, (20.0, 19.98, 20.6));
    assert_eq!(
        Controls::STEADY.change(wide, slower()),
        "undecided: the interval crosses 2.0 %"
    );
}

/// The median of a kernel of two speeds is anywhere between them.
#[test]
fn a_kernel_of_two_speeds_is_undecided() {
    let two_speeds = [[20.0, 24.0]; 20].concat();
    let base = timed(US).sampled(SCALAR, mission(), &two_speeds);
    let new = timed(US).rebuilt().sampled(SCALAR, mission(), &two_speeds);
    let compared = differences(&base, &new);
    assert_eq!(change_of(&compared, SCALAR).change, Change::Undecided);
}

/// Returns a table of a real session.
fn real_session(name: &str) -> Table {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    Table::parsed(&Texts::read(&data.join(name)).unwrap()).unwrap()
}

fn is_of_stage5(subject: &Subject) -> bool {
    subject.stage() == "stage5-swizzle"
}

/// The number of differences of stage 5 and of other stages, by their change.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    of_stage5: BTreeMap<Change, usize>,
    of_others: BTreeMap<Change, usize>,
}

impl Counts {
    fn new(differences: &[Difference]) -> Self {
        let mut counts = Self::default();
        for d in differences {
            let counts_of_stage = if is_of_stage5(&d.subject) {
                &mut counts.of_stage5
            } else {
                &mut counts.of_others
            };
            *counts_of_stage.entry(d.change).or_default() += 1;
        }
        counts
    }
}

/// Asserts that nothing has changed between two sessions of one H200 model, a day apart and on other
/// cards, and that kernels of stage 5 are found if they take 3 % longer.
#[track_caller]
fn assert_slower_stage_is_found(base: &Table, new: &Table) {
    let compared = compare(base, new, true, &[]);
    let others = BTreeMap::from([(Change::Unchanged, 138)]);
    let expected = Counts {
        of_stage5: BTreeMap::from([(Change::Unchanged, 118)]),
        of_others: others.clone(),
    };
    assert_eq!(Counts::new(&compared.differences), expected);
    let drift = compared.drift;
    assert_eq!(drift.kernels, 256);
    let is_steady = (0.98..1.02).contains(&drift.shift) && drift.spread < 0.03;
    assert!(is_steady, "{drift:?}");

    let mut slower = new.clone();
    for timed in new.rows().filter(|row| is_of_stage5(&row.subject)) {
        let mut row = timed.clone();
        row.identity = Some("another".into());
        for metric in [Metric::P50, Metric::P90] {
            row.figures
                .insert(metric, slowed(row.figures[&metric], 1.03));
        }
        slower.append(row);
    }
    let counts = Counts::new(&compare(base, &slower, true, &[]).differences);
    assert!(counts.of_stage5.contains_key(&Change::Worse), "{counts:?}");
    assert!(
        !counts.of_stage5.contains_key(&Change::Better),
        "{counts:?}"
    );
    assert_eq!(counts.of_others, others);
}

#[test]
fn a_slower_stage_is_found_between_real_sessions() {
    assert_slower_stage_is_found(&real_session("older"), &real_session("newer"));
}

#[test]
fn a_slower_stage_is_found_between_real_sessions_in_reverse() {
    assert_slower_stage_is_found(&real_session("newer"), &real_session("older"));
}
