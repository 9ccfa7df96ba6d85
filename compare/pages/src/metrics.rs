//! The tables of docs/rows.md, from the registry: every metric, every gate.

use super::cells::{or_dash, text};
use common::gate;
use common::metric::{Metric, Threshold, Unit};
use common::timing::claim::NOISE_LIMIT;
use common::verdict::GateId;
use document::{Table, TableRow, row};
use results::judge::claims::NCU_TOLERANCE;

/// Returns the table of all metrics in docs/rows.md.
pub fn metrics() -> Table {
    Table::from_rows(Metric::ALL.iter().map(metric_row))
}

fn metric_row(metric: &Metric) -> TableRow {
    let spec = metric.spec();
    row! {
        "name" => format!("`{}`", metric.name()),
        "printed as" => spec.label,
        "unit" => unit(spec.unit),
        "better" => format!("{:?}", spec.better).to_lowercase(),
        "a difference counts" => threshold(spec.threshold),
        "because" => spec.because,
        "gate" => or_dash(spec.gate.map(text)),
    }
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Us => "µs",
        Unit::Ns => "ns",
        Unit::Mhz => "MHz",
        Unit::Watts => "W",
        Unit::Energy => "mJ",
        Unit::Celsius => "°C",
        Unit::Count => "count",
        Unit::Share => "share, 0 to 1",
        Unit::Ratio => "ratio",
        Unit::Error => "error",
        Unit::Rate => "per second",
    }
}

fn threshold(threshold: Threshold) -> String {
    match threshold {
        Threshold::Exact => "always".into(),
        Threshold::ExactUnlessLatency => "always, unless the latency says the opposite".into(),
        Threshold::Interval(share) => format!("whole 95 % interval beyond {:.0} %", 100.0 * share),
        Threshold::Absolute(source) => format!("by more than {source}"),
        Threshold::NotCompared => "never".into(),
    }
}

/// Returns the table of all gates in docs/rows.md.
pub fn gates() -> Table {
    Table::from_rows(GateId::ALL.map(|gate| row! { "gate" => text(gate), "demands" => rule(gate) }))
}

fn rule(gate: GateId) -> String {
    match gate {
        GateId::C1 => "every element of the output is written, and none is infinite or NaN".into(),
        GateId::C2 => rule_of_c2(),
        GateId::C3 => format!(
            "per row ‖o − r‖ / ‖r‖ ≤ {:.0e} (P or output in bf16: {:.1e}; P in e4m3: {:.0e}) + \
             what f32 scores lose; a row without keys is exactly 0",
            gate::C3_ROW,
            gate::C3_ROW_BF16,
            gate::C3_ROW_E4M3_P
        ),
        GateId::C4 => rule_of_c4(),
        GateId::C5 => "all launches are bitwise equal, log-sum-exps included".into(),
        GateId::C6 => {
            "guard bands, gaps between rows, and inputs are unchanged after the launch".into()
        }
        GateId::C7 => "compute-sanitizer reports no error and no warning".into(),
        GateId::C8 => format!(
            "log-sum-exps, of kernels that write them, are within {:.0e} of FP64's, relative or \
             absolute, or within {} × 2^-24 of the largest score; -inf for a row without keys",
            gate::C8_LSE,
            gate::C8_SCORES
        ),
        GateId::B1 => format!(
            "per row ‖gpu − emulated‖ / ‖emulated‖ ≤ {} × what correct variants measure, per \
             dtype and family",
            gate::B1_FACTOR
        ),
        GateId::B2 => {
            "the PTX that nvcc emits leaves, in the interpreter, the bits that the emulator's \
                       build leaves, log-sum-exps included"
                .into()
        }
        GateId::H1 => "the emulator finds no race, no missing wait, no uninitialised read and no \
                       access out of bounds, and sees the whole output stored"
            .into(),
        GateId::R1 => "no spills, no stack, registers and shared memory within the preset's caps, \
                       no two variants with the same machine code"
            .into(),
        GateId::L1 => rule_of_l1(),
        GateId::E1 => format!(
            "the stage's predictions of counters hold exactly in the emulator; exact ratios hold \
             within {:.0} % under ncu",
            100.0 * NCU_TOLERANCE
        ),
        GateId::S1 => "a gate kills every planted fault, and every mutant without one of its \
                       kernel's synchronisation sites unless the site is listed as redundant with \
                       its reason"
            .into(),
    }
}

/// Returns the rule of gate C2.
fn rule_of_c2() -> String {
    format!(
        "max error ≤ {} × that of the same-precision baseline + {} ulps of the output at the \
             largest reference value; root mean square of row errors ≤ ({} + {}/n) × its own over \
             n effective rows + what f32 scores lose",
        gate::C2_PLAIN_FACTOR,
        gate::C2_OUTPUT_ULPS,
        gate::C2_ROWS_FACTOR,
        gate::C2_ROWS_NOISE
    )
}

/// Returns the rule of gate C4.
fn rule_of_c4() -> String {
    format!(
        "allclose, atol = rtol × rms(V): f16 rtol {:.0e}, bf16 {:.1e}; e4m3 against \
             unquantised FP64: mean ≤ {}, at most {:.0} % of errors above {}",
        gate::C4_F16,
        gate::C4_BF16,
        gate::C4_E4M3_MEAN,
        100.0 * gate::C4_E4M3_BAD_SHARE,
        gate::C4_E4M3_BAD
    )
}

/// Returns the rule of gate L1.
fn rule_of_l1() -> String {
    format!(
        "the 95 % interval of base / new reaches the claim on p50, p90 and mean; if noise \
             (p90 − p50) / p50 is above {:.0} %, the interval is widened to either side by it, or \
             by how far the ratio of a fifth of the session is from that of the whole, if that is \
             less",
        100.0 * NOISE_LIMIT
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use document::{Block, markdown};

    #[test]
    fn every_metric_and_gate_has_its_line() {
        let page = markdown::markdown(&[metrics(), gates()].map(Block::Table));
        for metric in Metric::ALL {
            let name = metric.name();
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        for gate in GateId::ALL {
            let start = format!("| {gate} |");
            let lines = page.lines().filter(|line| line.starts_with(&start));
            assert_eq!(lines.count(), 1, "{gate}");
        }
    }
}
