//! docs/rows.md, from the registry: what a row is, every metric, every gate.

use super::{or_missing, sections, text};
use crate::document::{Block, Document, Table, Text, markdown, row};
use crate::judge::claims::NCU_TOLERANCE;
use crate::judge::list::grouped;
use crate::table::{On, Row, Source, ncu};
use common::gate;
use common::metric::{Better, LATENCY_CHANGE, Metric, Threshold, Unit};
use common::problem::Dtype;
use common::timing::claim::NOISE_LIMIT;
use common::verdict::{GateId, GateResult};

pub fn page() -> String {
    let about = [
        "`rows.jsonl` has one row a line: everything that one source knows about one subject at one place. A figure that was not measured \
         is absent; 0 is a measured 0. `results/` has a table for each GPU model and one of the build, each with `sessions.jsonl`, the \
         sessions that measured its rows; the folder of a run has `session.json`.",
        "This page is generated from the registry of metrics (`common/src/metric.rs`).",
    ];
    let example = Text::from("Example: ").code(example());
    let fields = vec![Block::Table(fields()), Block::Paragraph(example)];
    let sections = sections([
        ("A row", fields),
        ("Metrics", vec![Block::Table(metrics())]),
        ("Metrics of ncu", vec![Block::Table(ncu_metrics())]),
        ("Gates", vec![Block::Table(gates())]),
    ]);
    markdown::markdown(&Document {
        title: "Rows, metrics and gates".into(),
        blocks: about
            .map(Block::paragraph)
            .into_iter()
            .chain(sections)
            .collect(),
        ..Document::default()
    })
}

fn fields() -> Table {
    let fields = [
        (
            "subject",
            "a variant (stage/variant), a stage, a family, a peer, or self-test",
        ),
        (
            "shape, dtype, mask, input",
            "the problem, and of a case its inputs; a row without them is of all cases",
        ),
        (
            "dtype, head_dim, arch",
            "a compiled instance; without arch what kernel.cu declares of it",
        ),
        ("item", "anything else: a planted fault, a claim"),
        (
            "by",
            "the source: kernel, ptxas, emulator, gpu, peers, ncu, compute-sanitizer, self-test, claim, input",
        ),
        (
            "against",
            "the other arm of a pair that was interleaved (A B B A)",
        ),
        (
            "under",
            "what must be the same for two rows to be compared: warm L2",
        ),
        ("session", "what measured it: a line of sessions.jsonl"),
        (
            "identity",
            "hash of the kernel's sources; a row of another is STALE",
        ),
        ("code", "hash of the machine code"),
        (
            "METRIC, METRIC_low, METRIC_high",
            "a figure, and its 95 % interval where it is an estimate",
        ),
        (
            "GATE, GATE_passed, GATE_cases, GATE_reason",
            "pass, fail, ambiguous or no_data, the number of cases and, unless it is pass, the reason",
        ),
        ("note", "where the worst figure is, or why there is none"),
    ];
    Table::of(fields.map(|(field, is)| row! { "column" => format!("`{field}`"), "is" => is }))
}

fn example() -> String {
    let row = Row::new(
        "stage5-swizzle/swizzle-32x256-k4",
        On::claims(Dtype::F16),
        Source::Gpu,
    )
    .under("warm L2")
    .figure(Metric::P50, (5.274, 5.272, 5.276))
    .figure(Metric::Samples, 500_usize)
    .verdict(&GateResult::judge(
        GateId::C2,
        false,
        "max error 3.1e-1 > 4.9e-4",
    ));
    serde_json::to_string(&row).expect("a row can be written as JSON")
}

/// Every figure of the registry.
fn metrics() -> Table {
    let row = |metric: &Metric| {
        let spec = metric.spec();
        let unit = match spec.unit {
            Unit::Us => "µs",
            Unit::Ns => "ns",
            Unit::Mhz => "MHz",
            Unit::Watts => "W",
            Unit::Celsius => "°C",
            Unit::Count => "count",
            Unit::Share => "share, 0 to 1",
            Unit::Ratio => "ratio",
            Unit::Error => "error",
            Unit::Rate => "per second",
        };
        row! {
            "name" => format!("`{}`", metric.name()),
            "printed as" => spec.label,
            "unit" => unit,
            "better" => format!("{:?}", spec.better).to_lowercase(),
            "a difference counts" => threshold(spec.threshold),
            "because" => spec.because,
            "gate" => or_missing(spec.gate.map(text), "no gate judges it"),
        }
    };
    Table::of(Metric::ALL.iter().map(row))
}

/// How each figure of `compare profile` is computed from the metrics that `ncu --metrics` names.
fn ncu_metrics() -> Table {
    let row = |formula: &ncu::Formula| {
        row! {
            "name" => format!("`{}`", formula.metric.name()),
            "computed from" => format!("`{formula}`"),
            "meaning" => formula.meaning,
        }
    };
    Table::of(ncu::FORMULAS.iter().map(row))
}

fn threshold(threshold: Threshold) -> String {
    match threshold {
        Threshold::Exact => "always".into(),
        Threshold::ExactUnlessLatency => "always, unless the latency says the opposite".into(),
        Threshold::Interval(share) => format!("whole 95 % interval beyond {:.0} %", 100.0 * share),
        Threshold::Absolute(by) => format!("by more than {by}"),
        Threshold::NotCompared => "never".into(),
    }
}

fn gates() -> Table {
    Table::of(GateId::ALL.map(|gate| row! { "gate" => text(gate), "demands" => rule(gate) }))
}

/// What a gate demands, in one line.
fn rule(gate: GateId) -> String {
    match gate {
        GateId::C1 => "every element of the output is written, and none is infinite or NaN".into(),
        GateId::C2 => format!(
            "max error ≤ {} × that of the same-precision baseline + {} ulps of the output at the largest reference value; root mean square \
             of row errors ≤ ({} + {}/n) × its own over n effective rows",
            gate::C2_PLAIN_FACTOR,
            gate::C2_OUTPUT_ULPS,
            gate::C2_ROWS_FACTOR,
            gate::C2_ROWS_NOISE
        ),
        GateId::C3 => format!(
            "per row ‖o − r‖ / ‖r‖ ≤ {:.0e} (P or output in bf16: {:.1e}; P in e4m3: {:.0e}) + what f32 scores lose; a row without keys is exactly 0",
            gate::C3_ROW,
            gate::C3_ROW_BF16,
            gate::C3_ROW_E4M3_P
        ),
        GateId::C4 => format!(
            "allclose, atol = rtol × rms(V): f16 rtol {:.0e}, bf16 {:.1e}; e4m3 against unquantised FP64: mean ≤ {}, at most {:.0} % of errors \
             above {}",
            gate::C4_F16,
            gate::C4_BF16,
            gate::C4_E4M3_MEAN,
            100.0 * gate::C4_E4M3_BAD_SHARE,
            gate::C4_E4M3_BAD
        ),
        GateId::C5 => "all launches are bitwise equal, log-sum-exps included".into(),
        GateId::C6 => "guard bands, gaps between rows, and inputs are unchanged after the launch".into(),
        GateId::C7 => "compute-sanitizer reports no error and no warning".into(),
        GateId::C8 => format!(
            "log-sum-exps, of kernels that write them, are within {:.0e} of FP64's, relative or absolute, or within {} × 2^-24 of the \
             largest score; -inf for a row without keys",
            gate::C8_LSE,
            gate::C8_SCORES
        ),
        GateId::B1 => format!(
            "per row ‖gpu − emulated‖ / ‖emulated‖ ≤ {} × what correct variants measure, per dtype and family",
            gate::B1_FACTOR
        ),
        GateId::H1 => "the emulator finds no race, no missing wait, no uninitialised read and no access out of bounds, and sees the whole output stored".into(),
        GateId::R1 => {
            "no spills, no stack, registers and shared memory within the preset's caps, no two variants with the same machine code".into()
        }
        GateId::L1 => format!(
            "the 95 % interval of base / new reaches the claim on p50, p90 and mean; if noise (p90 − p50) / p50 is above {:.0} %, the interval is widened to either side by it, or by how far the ratio of a fifth of the session is from that of the whole, if that is less",
            100.0 * NOISE_LIMIT
        ),
        GateId::E1 => format!(
            "the stage's predictions of counters hold exactly in the emulator; exact ratios hold within {:.0} % under ncu",
            100.0 * NCU_TOLERANCE
        ),
        GateId::S1 => {
            "a gate kills every planted fault, and every mutant without one of its kernel's synchronisation sites unless the site is \
             listed as redundant with its reason"
                .into()
        }
    }
}

/// What each gate demands, and when a difference counts.
pub fn thresholds() -> Vec<Block> {
    let latency = format!(
        "A latency is better or worse if the 95 % interval of base / new lies wholly beyond {:.0} % and beyond the samples' \
         noise, in time and in cycles. For other metrics the registry says when a difference counts:",
        100.0 * LATENCY_CHANGE
    );
    let kind = |metric: &Metric| {
        let spec = metric.spec();
        let side = match spec.better {
            Better::Informational => " (informational)",
            Better::Lower | Better::Higher => "",
        };
        (threshold(spec.threshold) + side, spec.label)
    };
    let row = |(kind, labels): (String, Vec<&str>)| {
        row! { "a difference counts" => kind, "metrics" => labels.join(", ") }
    };
    let kinds = grouped(Metric::ALL.iter().map(kind)).into_iter();
    vec![
        Block::Table(gates()),
        Block::paragraph(latency),
        Block::Table(Table::of(kinds.map(row))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_page_is_the_registry() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/rows.md");
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(
            committed == page(),
            "write it anew: cargo run -p compare -- show --metrics > docs/rows.md"
        );
    }

    #[test]
    fn every_metric_and_gate_has_its_line() {
        let page = page();
        assert!(
            Metric::ALL
                .iter()
                .all(|metric| page.contains(&format!("| `{}` |", metric.name())))
        );
        for name in ncu::names() {
            assert!(page.contains(name), "{name}");
        }
        for gate in GateId::ALL {
            assert_eq!(
                page.lines()
                    .filter(|line| line.starts_with(&format!("| {gate} |")))
                    .count(),
                1,
                "{gate}"
            );
        }
        insta::assert_snapshot!(page.lines().take(27).collect::<Vec<_>>().join("\n"), @r##"
# Rows, metrics and gates

`rows.jsonl` has one row a line: everything that one source knows about one subject at one place. A figure that was not measured is absent; 0 is a measured 0. `results/` has a table for each GPU model and one of the build, each with `sessions.jsonl`, the sessions that measured its rows; the folder of a run has `session.json`.

This page is generated from the registry of metrics (`common/src/metric.rs`).

## A row

| column | is |
|---|---|
| `subject` | a variant (stage/variant), a stage, a family, a peer, or self-test |
| `shape, dtype, mask, input` | the problem, and of a case its inputs; a row without them is of all cases |
| `dtype, head_dim, arch` | a compiled instance; without arch what kernel.cu declares of it |
| `item` | anything else: a planted fault, a claim |
| `by` | the source: kernel, ptxas, emulator, gpu, peers, ncu, compute-sanitizer, self-test, claim, input |
| `against` | the other arm of a pair that was interleaved (A B B A) |
| `under` | what must be the same for two rows to be compared: warm L2 |
| `session` | what measured it: a line of sessions.jsonl |
| `identity` | hash of the kernel's sources; a row of another is STALE |
| `code` | hash of the machine code |
| `METRIC, METRIC_low, METRIC_high` | a figure, and its 95 % interval where it is an estimate |
| `GATE, GATE_passed, GATE_cases, GATE_reason` | pass, fail, ambiguous or no_data, the number of cases and, unless it is pass, the reason |
| `note` | where the worst figure is, or why there is none |

Example: `{"subject":"stage5-swizzle/swizzle-32x256-k4","shape":"mission","dtype":"f16","mask":"full","by":"gpu","under":"warm L2","p50":5.274,"p50_low":5.272,"p50_high":5.276,"samples":500,"C2":"fail","C2_reason":"max error 3.1e-1 > 4.9e-4"}`

## Metrics
"##);
    }
}
