use super::*;
use crate::table::{ProblemPlace, Run, Source, VariantMeta};
use crate::testing::scenario::{self, each, each_case, row, run};
use crate::testing::{GPU, PeerArm, SCALAR, US, emulated, instances, ladder, timed};
use Verdict::{NoData, Pass};
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

/// The pair of a variant with a base, whose speedups of p50, p90 and mean are 1 % wide.
fn pair(subject: &str, base: &str, speedups: [&str; 3]) -> String {
    let mut columns = String::new();
    for (statistic, text) in ["p50", "p90", "mean"].into_iter().zip(speedups) {
        let value: f64 = text.parse().unwrap();
        let (low, high) = (0.995 * value, 1.005 * value);
        columns += &format!(" | speedup_{statistic} {value} {low} {high}");
    }
    format!("; + {subject} | mission f16 full | gpu {base} | noise 0.003{columns}")
}

/// Speedups of p50, p90 and mean and what is unusual; the claim is 1.5x.
#[test]
fn each_figure_must_reach_the_claim_with_its_whole_interval() {
    let answers = each(
        "1.6 1.6 1.6
        1.508 1.508 1.508
        1.5 1.6 1.6
        1.6 1.6 1.501
        1.6 1.4 1.6
        1.5 1.4 1.6
        NaN 1.6 1.6
        1.6 1.6 1.6 | noise 0.05
        1.6 1.6 1.6 | noise 0.07
        1.6 1.6 1.6 | noise NaN
        1.6 1.6 1.6 | noise none
        1.6 1.6 1.6 | L1 fail impossible: below 3 us",
        |line| {
            let (figures, unusual) = line.split_once(" | ").unwrap_or((line, "note x"));
            let speedups: Vec<&str> = figures.split(' ').collect();
            let pair = pair("wmma", "scalar", speedups.try_into().unwrap());
            judged(&run(&format!("timed{pair} | {unusual}")), 0, 0)
        },
    );
    insta::assert_snapshot!(answers, @"
    1.6 1.6 1.6
        PASS: p50 1.600x [1.592, 1.608], p90 1.600x [1.592, 1.608], mean 1.600x [1.592, 1.608], claim 1.50x
    1.508 1.508 1.508
        PASS: p50 1.508x [1.500, 1.516], p90 1.508x [1.500, 1.516], mean 1.508x [1.500, 1.516], claim 1.50x
    1.5 1.6 1.6
        AMBIGUOUS: p50 1.500x [1.492, 1.508], p90 1.600x [1.592, 1.608], mean 1.600x [1.592, 1.608], claim 1.50x
    1.6 1.6 1.501
        AMBIGUOUS: p50 1.600x [1.592, 1.608], p90 1.600x [1.592, 1.608], mean 1.501x [1.493, 1.509], claim 1.50x
    1.6 1.4 1.6
        FAIL: p50 1.600x [1.592, 1.608], p90 1.400x [1.393, 1.407], mean 1.600x [1.592, 1.608], claim 1.50x
    1.5 1.4 1.6
        FAIL: p50 1.500x [1.492, 1.508], p90 1.400x [1.393, 1.407], mean 1.600x [1.592, 1.608], claim 1.50x
    NaN 1.6 1.6
        AMBIGUOUS: p50 NaNx [NaN, NaN], p90 1.600x [1.592, 1.608], mean 1.600x [1.592, 1.608], claim 1.50x
    1.6 1.6 1.6 | noise 0.05
        PASS: p50 1.600x [1.592, 1.608], p90 1.600x [1.592, 1.608], mean 1.600x [1.592, 1.608], claim 1.50x ± noise of 5.0 %
    1.6 1.6 1.6 | noise 0.07
        AMBIGUOUS: p50 1.600x [1.592, 1.608], p90 1.600x [1.592, 1.608], mean 1.600x [1.592, 1.608], claim 1.50x ± noise of 7.0 %
    1.6 1.6 1.6 | noise NaN
        AMBIGUOUS: no figure for the noise
    1.6 1.6 1.6 | noise none
        AMBIGUOUS: no figure for the noise
    1.6 1.6 1.6 | L1 fail impossible: below 3 us
        FAIL: impossible: below 3 us
    ");
    for not_timed in ["timed; - pair", "emulated"] {
        assert_eq!(finding(&run(not_timed), 0, 0), None, "not side by side");
    }
}

/// The fastest right one of two variants of each family decides, whichever session timed it, and
/// whichever base it was timed against; the base with the same preset is another figure.
#[test]
fn the_fastest_right_arms_decide_and_not_the_newest_session_of_others() {
    let even = |subject: &str, base: &str, speedup| pair(subject, base, [speedup; 3]);
    let (k2, fast) = (
        "stage0-scalar/wmma-qk-32x64-k2",
        "stage0-scalar/scalar-16x64",
    );
    let first = format!(
        "timed; variant wmma wmma-qk-32x64-k2; wmma-qk-32x64-k2 gpu mission: p50 18{}{}",
        even("wmma", "scalar", "1.6"),
        even(k2, "scalar", "1.8")
    );
    let second = format!(
        "timed; variant wmma wmma-qk-32x64-k2; - wmma-qk-32x64-k2{}",
        even("wmma", "scalar", "1.7")
    );
    let findings = [
        first.clone(),
        format!("{first}; wmma-qk-32x64-k2 gpu all: C2 fail"),
        format!("{first}; - wmma-qk-32x64-k2 pair"),
        format!("{first} & {second}"),
        format!("{first} & {second}; rebuilt @ {first}"),
        format!("{first}; variant scalar scalar-16x64; scalar-16x64 gpu mission: p50 28{} @ {first}; variant scalar scalar-16x64", even(k2, fast, "1.55")),
    ]
    .map(|line| {
        let (sessions, sources) = line.split_once(" @ ").unwrap_or((&line, &first));
        let (stages, table) = scenario::view(&format!("{sessions} @ {sources}"));
        let view = View::committed(&stages, &table);
        let Evidence { finding, row } = judge(&view, &stages[0], &stages[0].claims[0]).unwrap();
        let (base, speedup) = (row.base().unwrap(), row.value(Metric::SpeedupP50).unwrap());
        format!("{} over {base} {speedup}, {:?}\n", row.subject, finding.same_preset)
    });
    insta::assert_snapshot!(findings.concat(), @"
    stage0-scalar/wmma-qk-32x64-k2 over stage0-scalar/scalar-32x64 1.8, None
    stage0-scalar/wmma-qk-32x64 over stage0-scalar/scalar-32x64 1.6, Some(1.6)
    stage0-scalar/wmma-qk-32x64 over stage0-scalar/scalar-32x64 1.6, Some(1.6)
    stage0-scalar/wmma-qk-32x64-k2 over stage0-scalar/scalar-32x64 1.8, None
    stage0-scalar/wmma-qk-32x64-k2 over stage0-scalar/scalar-32x64 1.8, None
    stage0-scalar/wmma-qk-32x64-k2 over stage0-scalar/scalar-16x64 1.55, None
    ");
    let mut first_run = run(&first);
    let view = View::alone(&first_run);
    let stage = &first_run.session.stages[0];
    let arms = arms(&view, stage, &stage.claims[0]).unwrap();
    let expected = speed::Arms {
        new: k2.into(),
        base: SCALAR.into(),
        same_preset: None,
    };
    assert_eq!(arms, expected);
    first_run.session.stages[0].claims[0].place = ProblemPlace::claims(Dtype::E4m3);
    assert_eq!(finding(&first_run, 0, 0), None);
}

/// It has no data on another GPU, is not timed there and is not missed.
#[test]
fn a_claim_may_be_of_one_gpu_and_of_one_variant() {
    let pair = pair("wmma", "scalar", ["1.6"; 3]);
    let findings = |words: &str, gpu: Option<&str>| {
        let run = run(words).changed(|session| {
            let claim = &mut session.stages[0].claims[0];
            claim.family = "wmma-qk-32x64".into();
            claim.gpu = gpu.map(String::from);
        });
        let view = View::alone(&run);
        let stage = &run.session.stages[0];
        let has_arms = arms(&view, stage, &stage.claims[0]).is_some();
        let report = crate::judge::verdict::report(view);
        let Claimed { finding, .. } = &report.claims[0];
        let title = report.claims[0].title();
        let mut missing = report.missing.iter();
        let is_missed = missing.any(|of| of.required && of.what == title);
        (finding.verdict, has_arms, is_missed)
    };
    let (timed, untimed) = (format!("timed{pair}"), "timed; - pair");
    for here in [None, Some(GPU)] {
        assert_eq!(findings(&timed, here), (Pass, true, false));
        assert_eq!(findings(untimed, here), (NoData, true, true));
    }
    for words in [&timed, untimed] {
        assert_eq!(findings(words, Some("NVIDIA L4")), (NoData, false, false));
    }
}

/// The claims are 1.5x over the fastest of PyTorch, and 1x over its flash. Faster and wrong does
/// not count, others than PyTorch are no rivals, and a slower one of ours does not stand for the
/// family.
#[test]
fn claims_against_peers_are_about_the_fastest_right_rival() {
    let findings = each(
        "mission 10 torch-flash 20 torch-cudnn 16
        mission 10 torch-flash 20 torch-cudnn 14
        mission 10 torch-flash 20 torch-cudnn 5!
        mission 10 torch-flash 20 flash-attn-4 5
        mission 10 torch-flash 9
        mission 10 torch-cudnn 16
        long 10 torch-flash 20
        mission 10 torch-flash 20; variant cpasync cpasync-64x64; beside stage1-cpasync/cpasync-64x64 mission 30 torch-flash 20",
        |line| {
            let run = run(&format!("timed; peers {line}"));
            let (view, stage) = (View::alone(&run), &run.session.stages[1]);
            let findings = [2, 3].map(|claim| match judge(&view, stage, &stage.claims[claim]) {
                Some(Evidence { finding, row }) => {
                    format!("{} {}", row.base().unwrap(), finding.verdict)
                }
                None => "none".into(),
            });
            findings.join(", ")
        },
    );
    insta::assert_snapshot!(findings, @"
    mission 10 torch-flash 20 torch-cudnn 16
        torch-cudnn PASS, torch-flash PASS
    mission 10 torch-flash 20 torch-cudnn 14
        torch-cudnn FAIL, torch-flash PASS
    mission 10 torch-flash 20 torch-cudnn 5!
        torch-flash PASS, torch-flash PASS
    mission 10 torch-flash 20 flash-attn-4 5
        torch-flash PASS, torch-flash PASS
    mission 10 torch-flash 9
        torch-flash FAIL, torch-flash FAIL
    mission 10 torch-cudnn 16
        torch-cudnn PASS, none
    long 10 torch-flash 20
        none, none
    mission 10 torch-flash 20; variant cpasync cpasync-64x64; beside stage1-cpasync/cpasync-64x64 mission 30 torch-flash 20
        torch-flash PASS, torch-flash PASS
    ");
    // A faster variant that the claim is not about does not stand for it.
    let flash = [PeerArm::right("torch-flash", 25.0)];
    let faster = "stage1-cpasync/cpasync-64x64";
    let mut run = timed(US)
        .peers("mission", 20.0, &flash)
        .with_variant("cpasync", "cpasync-64x64")
        .beside(faster, &ProblemPlace::claims(Dtype::F16), 10.0, &flash);
    assert!(judged(&run, 1, 2).starts_with("PASS"));
    run.session.stages[1].claims[2].family = "cpasync-32x64".into();
    assert!(judged(&run, 1, 2).starts_with("FAIL"));
}

#[test]
fn counters_are_judged_exactly_by_the_emulator_and_within_a_tenth_by_ncu() {
    let by_ncu = |line: &str| match line.split_once("ncu ") {
        Some((words, figures)) => {
            let (base, ours) = figures.split_once(' ').unwrap();
            let row = |of, bytes| {
                format!("; + {of} | mission f16 full | ncu | global_read_bytes {bytes}")
            };
            format!("{words}{}{}", row("wmma", base), row("cpasync", ours))
        }
        None => line.into(),
    };
    let answers = each(
        "emulated
        emulated; counted cpasync 1048577 0
        timed; ncu 1048576 1142948
        timed; ncu 1048576 1163919
        timed; ratio 1 1 global_read_bytes 0.5 1; ncu 1048576 1048576
        timed; ratio 1 1 global_read_bytes 0.5 1; ncu 1048576 1101004
        emulated; counted cpasync 9 0; ncu 1048576 1048576
        emulated; ncu 0 1048576
        emulated; - cpasync mission
        emulated; - wmma mission
        emulated; - wmma mission; ncu 1048576 1048576
        emulated; - cpasync mission; + cpasync | mission f16 full | emulator | note no traced build
        emulated; - cpasync mission; + cpasync | mission f16 full | emulator | H1 fail race at kernel.cu:88 | global_read_bytes 9",
        |line| judged(&run(&by_ncu(line)), 1, 1),
    );
    insta::assert_snapshot!(answers, @"
    emulated
        PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x
    emulated; counted cpasync 1048577 0
        FAIL: cpasync-32x64 1,048,577 / wmma-qk-32x64 1,048,576 = 1.000x
    timed; ncu 1048576 1142948
        PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu PASS: cpasync-32x64 1,142,948 / wmma-qk-32x64 1,048,576 = 1.090x
    timed; ncu 1048576 1163919
        FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu FAIL: cpasync-32x64 1,163,919 / wmma-qk-32x64 1,048,576 = 1.110x
    timed; ratio 1 1 global_read_bytes 0.5 1; ncu 1048576 1048576
        PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x
    timed; ratio 1 1 global_read_bytes 0.5 1; ncu 1048576 1101004
        FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu FAIL: cpasync-32x64 1,101,004 / wmma-qk-32x64 1,048,576 = 1.050x
    emulated; counted cpasync 9 0; ncu 1048576 1048576
        FAIL: cpasync-32x64 9 / wmma-qk-32x64 1,048,576 = 0.000x; ncu PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x
    emulated; ncu 0 1048576
        FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 0
    emulated; - cpasync mission
        not measured
    emulated; - wmma mission
        NO DATA: stage0-scalar/wmma-qk-32x64: not measured by emulator
    emulated; - wmma mission; ncu 1048576 1048576
        PASS: ncu PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x
    emulated; - cpasync mission; + cpasync | mission f16 full | emulator | note no traced build
        NO DATA: stage1-cpasync/cpasync-32x64: no traced build
    emulated; - cpasync mission; + cpasync | mission f16 full | emulator | H1 fail race at kernel.cu:88 | global_read_bytes 9
        NO DATA: stage1-cpasync/cpasync-32x64: race at kernel.cu:88
    ");
}

/// Whichever of the two variants comes first.
#[test]
fn what_is_broken_fails_whatever_is_missing() {
    let answers = each(
        "cpasync: global_read_bytes 2; cpasync-64x64: global_read_bytes none
        cpasync-64x64: global_read_bytes 2; cpasync: global_read_bytes none
        stage1-cpasync: global_read_bytes none
        cpasync: global_read_bytes 1; cpasync-64x64: global_read_bytes none
        cpasync: global_read_bytes 1; - cpasync-64x64",
        |line| {
            let start = "emulated; variant cpasync cpasync-64x64; at-most 1 1 global_read_bytes 1";
            let changes = line.replace(": ", " emulator mission: ");
            finding(&run(&format!("{start}; {changes}")), 1, 1)
                .unwrap()
                .verdict
                .to_string()
        },
    );
    insta::assert_snapshot!(answers, @"
    cpasync: global_read_bytes 2; cpasync-64x64: global_read_bytes none
        FAIL
    cpasync-64x64: global_read_bytes 2; cpasync: global_read_bytes none
        FAIL
    stage1-cpasync: global_read_bytes none
        NO DATA
    cpasync: global_read_bytes 1; cpasync-64x64: global_read_bytes none
        NO DATA
    cpasync: global_read_bytes 1; - cpasync-64x64
        PASS
    ");
}

/// Claims of one figure each, of every kind of relation and source, at the ends of their bounds. 0
/// of 0 is as predicted; 32 of 0 is not, whatever the factor; what is no number is not. Of
/// different architectures nothing is compared.
#[test]
fn bounds_hold_where_the_figure_is() {
    let answers = each(
        "ratio 1 1 global_read_bytes 0.5 0.5
        ratio 1 1 global_read_bytes 0.51 0.8
        ratio 1 1 global_read_bytes 0.3 0.49
        ratio 1 1 global_read_bytes 0.3 NaN
        ratio 1 1 spill_bytes 1 1
        ratio 1 1 shared_read_conflicts 0 9
        at-most 1 1 shared_read_conflict_share 0.25
        at-most 1 1 shared_read_conflict_share 0.24
        at-most 1 1 shared_read_conflicts 32; + cpasync | mission f16 full | ncu | shared_read_conflicts 99
        at-most 1 1 registers 96
        at-most 1 1 registers 96; cpasync ptxas: registers NaN
        at-least 1 1 registers 96
        at-least 1 1 registers 96.5
        at-least 1 1 occupancy 0.32
        at-most 1 1 dynamic_shared_bytes 1
        at-most 1 1 barrier_stall_share 0.1
        ratio 1 1 registers 1 1; - cpasync ptxas; + cpasync | f16 d64 sm_89 | ptxas | registers 96
        at-most 1 1 registers 96; - ptxas",
        |line| {
            let start = "timed; counted cpasync 524288 32; built 96 0";
            judged(&run(&format!("{start}; {line}")), 1, 1)
        },
    );
    insta::assert_snapshot!(answers, @"
    ratio 1 1 global_read_bytes 0.5 0.5
        PASS: cpasync-32x64 524,288 / wmma-qk-32x64 1,048,576 = 0.500x
    ratio 1 1 global_read_bytes 0.51 0.8
        FAIL: cpasync-32x64 524,288 / wmma-qk-32x64 1,048,576 = 0.500x
    ratio 1 1 global_read_bytes 0.3 0.49
        FAIL: cpasync-32x64 524,288 / wmma-qk-32x64 1,048,576 = 0.500x
    ratio 1 1 global_read_bytes 0.3 NaN
        FAIL: cpasync-32x64 524,288 / wmma-qk-32x64 1,048,576 = 0.500x
    ratio 1 1 spill_bytes 1 1
        PASS: cpasync-32x64 (sm_90a) 0 / wmma-qk-32x64 (sm_90a) 0
    ratio 1 1 shared_read_conflicts 0 9
        FAIL: cpasync-32x64 32 / wmma-qk-32x64 0
    at-most 1 1 shared_read_conflict_share 0.25
        PASS: cpasync-32x64 25.0 %
    at-most 1 1 shared_read_conflict_share 0.24
        FAIL: cpasync-32x64 25.0 %
    at-most 1 1 shared_read_conflicts 32; + cpasync | mission f16 full | ncu | shared_read_conflicts 99
        PASS: cpasync-32x64 32
    at-most 1 1 registers 96
        PASS: cpasync-32x64 (sm_90a) 96
    at-most 1 1 registers 96; cpasync ptxas: registers NaN
        FAIL: cpasync-32x64 (sm_90a) NaN
    at-least 1 1 registers 96
        PASS: cpasync-32x64 (sm_90a) 96
    at-least 1 1 registers 96.5
        FAIL: cpasync-32x64 (sm_90a) 96
    at-least 1 1 occupancy 0.32
        FAIL: cpasync-32x64 (sm_90a) 31.2 %
    at-most 1 1 dynamic_shared_bytes 1
        NO DATA: stage1-cpasync/cpasync-32x64: it has no instance for f16 and head_dim 64
    at-most 1 1 barrier_stall_share 0.1
        NO DATA: stage1-cpasync/cpasync-32x64: only ncu measures it; `compare profile` on a GPU completes the run
    ratio 1 1 registers 1 1; - cpasync ptxas; + cpasync | f16 d64 sm_89 | ptxas | registers 96
        NO DATA: cpasync was not compiled for the same architecture as its base
    at-most 1 1 registers 96; - ptxas
        NO DATA: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    ");
}

#[test]
fn a_claim_is_about_the_instances_of_its_own_element_type() {
    let mut run = timed(US)
        .built_throughout(96, 0)
        .with_bound(1, 1, Metric::Registers, Relation::AtMost { bound: 96.0 })
        .with_row(row("cpasync | e4m3 d64 sm_90a | ptxas | registers 97"))
        .with_row(row("cpasync | mission e4m3 full | emulator | tiles 1"));
    run.session.stages[1].claims[1].place.dtype = Dtype::E4m3;
    assert!(judged(&run, 1, 1).starts_with("FAIL"));
}

#[test]
fn a_figures_claim_is_about_the_instances_of_its_own_head_size() {
    let mut run = timed(US)
        .built_throughout(96, 0)
        .with_bound(1, 1, Metric::Registers, Relation::AtMost { bound: 96.0 })
        .with_row(row("cpasync | f16 d128 sm_90a | ptxas | registers 97"))
        .with_row(row("cpasync | wide f16 full | emulator | tiles 1"));
    assert!(judged(&run, 1, 1).starts_with("PASS: cpasync-32x64 (sm_90a) 96"));
    run.session.stages[1].claims[1].place.shape = "wide".into();
    let wide = judged(&run, 1, 1);
    assert!(
        wide.starts_with("FAIL: cpasync-32x64 (sm_90a) 97"),
        "{wide}"
    );
    let run_of_declared = run.changed(|session| {
        session.stages[1].claims[1].metric = Metric::DynamicSharedBytes;
    });
    let declared = judged(&run_of_declared, 1, 1);
    assert!(
        declared.ends_with("no instance for f16 and head_dim 128"),
        "{declared}"
    );
}

/// Presets of the base, of which `!` is refused on the claims' problem, and of ours: what is
/// compared with what. Without a preset in common it is the defaults.
#[test]
fn presets_are_compared_with_their_own_and_with_no_other() {
    let variants = |family: &str, presets: &str| -> Vec<VariantMeta> {
        let variant = |preset: &str| VariantMeta {
            name: format!("{family}-{}", preset.trim_end_matches('!')),
            family: family.into(),
            serves: false,
            kernels: instances(
                preset,
                if preset.ends_with('!') {
                    &[]
                } else {
                    &Dtype::ALL
                },
            ),
        };
        presets.split_whitespace().map(variant).collect()
    };
    let answers = each(
        "32x64 64x64 / 64x64 16x16
        32x64 64x64 / 16x16 16x32
        16x16! 64x64 / 16x16 16x32
        / 16x16 16x32",
        |line| {
            let (base, ours) = line.split_once('/').unwrap();
            let mut stages = ladder();
            stages[0].variants = variants("wmma-qk", base);
            stages[1].variants = variants("cpasync", ours);
            let pairs = match figures::comparisons(&stages, &stages[1], &stages[1].claims[1]) {
                Ok(pairs) => pairs,
                Err(lack) => return lack.to_string(),
            };
            let names = |pair: &figures::Comparison<'_>| {
                let beaten = pair.base.unwrap();
                format!("{} {}", pair.new.variant.name, beaten.variant.name)
            };
            pairs.iter().map(names).collect::<Vec<_>>().join("\n")
        },
    );
    insta::assert_snapshot!(answers, @"
    32x64 64x64 / 64x64 16x16
        cpasync-64x64 wmma-qk-64x64
    32x64 64x64 / 16x16 16x32
        cpasync-16x16 wmma-qk-32x64
    16x16! 64x64 / 16x16 16x32
        cpasync-16x16 wmma-qk-64x64
    / 16x16 16x32
        stage0-scalar has no family wmma-qk
    ");
    // What a device refuses is no base.
    let run = timed(US).without_variant("scalar");
    let findings = [0, 1].map(|claim| judged(&run, 0, claim));
    assert_eq!(
        findings,
        [
            "not measured",
            "NO DATA: stage0-scalar has no family scalar"
        ]
    );
}

/// The claims of a family over another, of speed and of counters: of a run on top of a committed
/// session.
#[test]
fn a_status_is_the_runs_or_the_tables_and_stale_where_a_kernel_has_changed() {
    let word = |of: &Claimed| {
        let from = match (of.is_of_run, of.is_stale) {
            (true, _) => "run ",
            (false, true) => "STALE ",
            (false, false) => "",
        };
        let negative = of.negative.as_ref().map_or("", |_| ", refuted");
        let passes = of.is_unexpected().map_or("", |_| ", unexpected");
        let breaks = if of.is_broken() { ", broken" } else { "" };
        let open = if of.is_ambiguous() { ", open" } else { "" };
        format!(
            "{from}{}{negative}{passes}{breaks}{open}",
            of.finding.verdict
        )
    };
    let answers = each(
        "timed
        timed 24 20 15
        timed 30 20 15
        emulated
        emulated on timed
        emulated on timed 24 20 15
        emulated on timed 30 20 15
        emulated on timed; identity 0 another
        emulated on timed 24 20 15; identity 0 another
        timed; - pair on timed
        timed 24 20 15; refuted 0 0
        emulated; refuted 0 0 on timed 24 20 15
        timed; refuted 0 0 on timed 24 20 15
        timed 24 20 15; refuted 0 0 NVIDIA L4
        timed 24 20 15; refuted 0 1
        timed; counted wmma 1048577 0; refuted 0 1
        emulated; refuted 0 1
        emulated; refuted 0 0 on timed; identity 0 another
        emulated; - mission on emulated",
        |line| {
            let (words, sessions) = line.split_once(" on ").unwrap_or((line, "none"));
            let run = run(words).named("9");
            let (_, table) = scenario::view(sessions);
            let claims = claims(&View::of_run(&run, &table));
            format!("{}; {}", word(&claims[0]), word(&claims[1]))
        },
    );
    insta::assert_snapshot!(answers, @"
    timed
        run PASS; run PASS
    timed 24 20 15
        run FAIL, broken; run PASS
    timed 30 20 15
        run AMBIGUOUS, open; run PASS
    emulated
        NO DATA; run PASS
    emulated on timed
        PASS; run PASS
    emulated on timed 24 20 15
        FAIL, broken; run PASS
    emulated on timed 30 20 15
        AMBIGUOUS; run PASS
    emulated on timed; identity 0 another
        STALE PASS; run PASS
    emulated on timed 24 20 15; identity 0 another
        STALE FAIL; run PASS
    timed; - pair on timed
        PASS; run PASS
    timed 24 20 15; refuted 0 0
        run FAIL, refuted; run PASS
    emulated; refuted 0 0 on timed 24 20 15
        FAIL, refuted; run PASS
    timed; refuted 0 0 on timed 24 20 15
        run PASS, refuted, unexpected; run PASS
    timed 24 20 15; refuted 0 0 NVIDIA L4
        run FAIL, broken; run PASS
    timed 24 20 15; refuted 0 1
        run FAIL, broken; run PASS, refuted, unexpected
    timed; counted wmma 1048577 0; refuted 0 1
        run PASS; run FAIL, refuted
    emulated; refuted 0 1
        NO DATA; run PASS, refuted, unexpected
    emulated; refuted 0 0 on timed; identity 0 another
        STALE PASS, refuted; run PASS
    emulated; - mission on emulated
        NO DATA; PASS
    ");
    // A figure of another version of a kernel makes the finding stale, whatever the others are of;
    // a base that has changed, too; and a newer figure of another kernel does not hide one of the
    // kernels as they are.
    let bound = Relation::AtMost { bound: 1e9 };
    let wide = emulated()
        .with_variant("cpasync", "cpasync-64x64")
        .with_bound(1, 1, Metric::GlobalReadBytes, bound);
    let older_of_both = wide.clone().with_identity(1, "another");
    let newer_of_one = wide.clone().without_rows("cpasync-64x64");
    let of_other_base = timed(US).with_identity(0, "another");
    let faster_of_other_base = timed([24.0, 20.0, 15.0]).with_identity(0, "another");
    let cases = [
        (
            "one of two figures is of an older kernel",
            (vec![older_of_both, newer_of_one], wide),
        ),
        (
            "the base has changed",
            (vec![of_other_base.clone()], emulated()),
        ),
        (
            "the sources are those of the session",
            (vec![of_other_base.clone()], of_other_base),
        ),
        ("nothing has changed", (vec![timed(US)], emulated())),
        (
            "a newer figure is of another kernel",
            (vec![timed(US), faster_of_other_base], emulated()),
        ),
    ];
    let staleness = each_case(cases, |(sessions, sources)| {
        let table = scenario::table_of_sessions(sessions);
        let claims = claims(&View::committed(&sources.session.stages, &table));
        let words: Vec<String> = claims.iter().map(word).collect();
        words.join("; ")
    });
    insta::assert_snapshot!(staleness, @"
    one of two figures is of an older kernel
        NO DATA; PASS; NO DATA; STALE PASS
    the base has changed
        STALE PASS; STALE PASS; STALE PASS; PASS
    the sources are those of the session
        PASS; PASS; PASS; PASS
    nothing has changed
        PASS; PASS; PASS; PASS
    a newer figure is of another kernel
        STALE FAIL; STALE PASS; STALE PASS; PASS
    ");
}

#[test]
fn a_table_has_one_row_for_each_claim_as_it_is_now() {
    let answers = each(
        "timed 24 20 15 @ emulated
        timed 24 20 15 @ emulated; refuted 0 0; claims 1 0",
        |line| {
            let (stages, mut table) = scenario::view(line);
            restate(&mut table, &ladder());
            restate(&mut table, &stages);
            let rows = table.rows_by(Source::Claim).map(|row| {
                let (gate, judged) = row.verdicts.iter().next().unwrap();
                let is_refuted = row.note.is_some();
                format!("{} {gate} {} {is_refuted}", row.subject, judged.verdict)
            });
            rows.collect::<Vec<_>>().join("\n")
        },
    );
    insta::assert_snapshot!(answers, @"
    timed 24 20 15 @ emulated
        stage0-scalar/wmma-qk E1 PASS false
        stage0-scalar/wmma-qk L1 FAIL false
        stage1-cpasync/cpasync E1 PASS false
        stage1-cpasync/cpasync L1 PASS false
    timed 24 20 15 @ emulated; refuted 0 0; claims 1 0
        stage0-scalar/wmma-qk E1 PASS false
        stage0-scalar/wmma-qk L1 FAIL true
    ");
}
