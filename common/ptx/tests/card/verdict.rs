//! What the results of a card and of the interpreter have in common.

use std::fmt::Write;

use crate::experiment::{Experiment, Format, Tolerance, digest_of_words};
use crate::record::Recorded;

/// What comparing an experiment gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    NotCompared,
    /// The kernel or its operands are no longer what the card ran.
    Stale,
    Equal,
    EqualButForNan,
    Within(u64),
    /// As `Within`; and the card's results are those of the experiment's model.
    Modelled(u64),
    Differs,
}

impl Verdict {
    pub fn is_agreement(&self) -> bool {
        !matches!(self, Self::Stale | Self::Differs)
    }

    /// Returns the page's cell.
    pub fn cell(&self, experiment: &Experiment) -> Option<String> {
        let sets = format!("{} operand sets", grouped(experiment.sets()));
        let cell = match self {
            Self::NotCompared => return None,
            Self::Stale => "stale".to_owned(),
            Self::Equal => format!("equal, {sets}"),
            Self::EqualButForNan => format!("equal but for bits of NaN, {sets}"),
            Self::Differs => format!("differs, {sets}"),
            Self::Within(ulps) => format!("within {}, {sets}", distance(experiment, *ulps)),
            Self::Modelled(ulps) => {
                let says = experiment.model.as_ref().map_or("", |model| model.says);
                let distance = distance(experiment, *ulps);
                format!("within {distance}, {sets}; the card's are {says}")
            }
        };
        Some(match experiment.part {
            "" => cell,
            part => format!("{part}: {cell}"),
        })
    }
}

/// Writes how far results are away: in ulp, or by no more than what is allowed beside.
fn distance(experiment: &Experiment, ulps: u64) -> String {
    let exponent = experiment
        .tolerance
        .and_then(|tolerance| tolerance.absolute_exponent);
    match exponent {
        Some(power) if ulps == 0 => format!("2^{power}"),
        Some(power) => format!("{} ulp or 2^{power}", grouped(ulps as usize)),
        None => format!("{} ulp", grouped(ulps as usize)),
    }
}

/// Writes a number with a comma between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Compares the interpreter's results with what is recorded of a card.
pub fn of(experiment: &Experiment, results: &[u64], recorded: &Recorded) -> Verdict {
    if recorded.experiment != experiment.digest() {
        return Verdict::Stale;
    }
    if recorded.results == digest_of_words(results) {
        return Verdict::Equal;
    }
    let mine = experiment.without_payloads(results);
    if recorded.without_payloads == digest_of_words(&mine) {
        return Verdict::EqualButForNan;
    }
    let (Some(kept), Some(tolerance)) = (&recorded.kept, experiment.tolerance) else {
        return Verdict::Differs;
    };
    if kept.len() != results.len() {
        return Verdict::Stale;
    }
    match (furthest(tolerance, results, kept), &experiment.model) {
        (Some(most), _) if most > tolerance.ulps => Verdict::Differs,
        (Some(most), None) => Verdict::Within(most),
        (Some(most), Some(model)) if model.results == *kept => Verdict::Modelled(most),
        _ => Verdict::Differs,
    }
}

/// Returns the largest distance of FP32 results in ulp; `None` if a number stands against a NaN.
fn furthest(tolerance: Tolerance, results: &[u64], kept: &[u64]) -> Option<u64> {
    let absolute = tolerance
        .absolute_exponent
        .map_or(0.0, |exponent| 2f64.powi(exponent));
    let mut most = 0;
    for (&mine, &theirs) in results.iter().zip(kept) {
        let [here, there] = [mine, theirs].map(|word| f32::from_bits(word as u32));
        match (here.is_nan(), there.is_nan()) {
            (true, true) => {}
            (false, false) => {
                if (f64::from(here) - f64::from(there)).abs() > absolute {
                    most = most.max(order(here).abs_diff(order(there)));
                }
            }
            _ => return None,
        }
    }
    Some(most)
}

/// Returns the place of a number among all of FP32; both zeros have the same.
fn order(value: f32) -> i64 {
    let bits = value.to_bits();
    let magnitude = i64::from(bits & 0x7fff_ffff);
    if bits >> 31 == 1 {
        -magnitude
    } else {
        magnitude
    }
}

/// Says which results differ: how many, and the first few.
pub fn differences(experiment: &Experiment, mine: &[u64], theirs: &[u64]) -> String {
    let width = experiment.results.len();
    let places: Vec<usize> = (0..mine.len())
        .filter(|&at| mine[at] != theirs[at])
        .collect();
    if places.is_empty() {
        return String::new();
    }
    let is_beyond_nan = |&&at: &&usize| {
        let format = experiment.results[at % width];
        format.without_payload(mine[at]) != format.without_payload(theirs[at])
    };
    let beyond: Vec<&usize> = places.iter().filter(is_beyond_nan).collect();
    let mut text = format!(
        "{} {}: {} of {} results differ, {} of them in more than a NaN's bits\n",
        experiment.row,
        experiment.part,
        places.len(),
        mine.len(),
        beyond.len()
    );
    let shown = beyond.iter().copied().take(12).chain(places.iter().take(4));
    for &at in shown {
        let set = at / width;
        let operands = &experiment.operands[set * experiment.words..][..experiment.words.min(8)];
        let _ = writeln!(
            text,
            "    set {set} word {}: {operands:x?} card {:x} here {:x}{}",
            at % width,
            theirs[at],
            mine[at],
            values(experiment.results[at % width], theirs[at], mine[at])
        );
    }
    text
}

fn values(format: Format, theirs: u64, mine: u64) -> String {
    match format {
        Format::F32 => {
            let [there, here] = [theirs, mine].map(|word| f32::from_bits(word as u32));
            format!(" ({there:e}, {here:e})")
        }
        _ => String::new(),
    }
}

/// Returns the experiment of a row, and results of the interpreter.
fn known(row: &str) -> &'static crate::Interpreted {
    let mut all = crate::INTERPRETED.iter();
    all.find(|run| run.experiment.row == row).expect(row)
}

/// Compares a row's results with those of a card that differs in one word.
fn with_one_word(row: &str, place: usize, edit: fn(u64) -> u64) -> Verdict {
    let run = known(row);
    let mut theirs = run.results.clone();
    theirs[place] = edit(theirs[place]);
    of(
        &run.experiment,
        &run.results,
        &Recorded::new(&run.experiment, &theirs),
    )
}

/// Returns the place of a result that satisfies a condition.
fn place_of(row: &str, condition: fn(f32) -> bool) -> usize {
    let mut results = known(row).results.iter();
    let found = results.position(|&word| condition(f32::from_bits(word as u32)));
    found.expect("such a result")
}

#[test]
fn equal_results_are_equal() {
    assert_eq!(with_one_word("add.f32", 0, |word| word), Verdict::Equal);
}

#[test]
fn a_flipped_bit_of_an_exact_result_differs() {
    let place = place_of("add.f32", f32::is_normal);
    let verdict = with_one_word("add.f32", place, |word| word ^ 1);
    assert_eq!(verdict, Verdict::Differs);
    assert!(!verdict.is_agreement());
}

#[test]
fn another_nan_is_equal_but_for_its_bits() {
    let place = place_of("add.f32", f32::is_nan);
    let verdict = with_one_word("add.f32", place, |_| 0xffc0_0000);
    assert_eq!(verdict, Verdict::EqualButForNan);
}

#[test]
fn an_approximate_result_is_as_many_ulps_away() {
    let row = "rcp.approx.ftz.f32";
    let place = place_of(row, f32::is_normal);
    assert_eq!(
        with_one_word(row, place, |word| word + 2),
        Verdict::Within(2)
    );
}

#[test]
fn a_result_that_is_further_than_the_specification_allows_differs() {
    let row = "rcp.approx.ftz.f32";
    let place = place_of(row, f32::is_normal);
    let verdict = with_one_word(row, place, |word| word + 3);
    assert_eq!(verdict, Verdict::Differs);
}

#[test]
fn a_small_difference_of_a_sine_does_not_count_in_ulps() {
    let row = "sin.approx.f32";
    let place = place_of(row, |value| value.abs() == 0.0);
    let tiny = |_| 1e-9f32.to_bits().into();
    assert_eq!(with_one_word(row, place, tiny), Verdict::Within(0));
}

#[test]
fn a_number_in_place_of_a_nan_differs() {
    let row = "lg2.approx.f32";
    let place = place_of(row, f32::is_nan);
    assert_eq!(with_one_word(row, place, |_| 0), Verdict::Differs);
}

#[test]
fn results_of_another_kernel_are_stale() {
    let run = known("add.f32");
    let mut other = run.experiment.clone();
    other.text += "// another\n";
    let recorded = Recorded::new(&other, &run.results);
    assert_eq!(of(&run.experiment, &run.results, &recorded), Verdict::Stale);
}

#[test]
fn numbers_have_commas() {
    assert_eq!(grouped(512), "512");
    assert_eq!(grouped(65_536), "65,536");
}

/// Returns the experiment whose card's sums are not the interpreter's.
fn sums() -> &'static crate::Interpreted {
    let mut all = crate::INTERPRETED.iter();
    all.find(|run| run.experiment.model.is_some())
        .expect("an experiment with a model")
}

#[test]
fn sums_of_the_model_are_the_cards() {
    let crate::Interpreted {
        experiment,
        results,
    } = sums();
    let model = &experiment.model.as_ref().expect("a model").results;
    let verdict = of(experiment, results, &Recorded::new(experiment, model));
    assert!(matches!(verdict, Verdict::Modelled(1..)), "{verdict:?}");
    let cell = verdict.cell(experiment).expect("a cell");
    assert!(
        cell.ends_with("; the card's are exact sums, cut off"),
        "{cell}"
    );
}

#[test]
fn a_sum_that_is_not_the_models_differs() {
    let crate::Interpreted {
        experiment,
        results,
    } = sums();
    let mut theirs = experiment.model.as_ref().expect("a model").results.clone();
    theirs[5] ^= 1;
    let verdict = of(experiment, results, &Recorded::new(experiment, &theirs));
    assert_eq!(verdict, Verdict::Differs);
}
