//! What `compare run` says where it was started.

use super::markdown;
use crate::comparison::{Exit, Latency, Origin, Report};

/// One line per variant, the verdict, what to do, and what failed.
pub fn summary(report: &Report) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["stage", "variant", "verdict", "cases", "max error", "p50 µs"]);
    for row in &report.rows {
        let time = match &row.latency {
            Latency::Measured { figures, origin: Origin::Run } => format!("{:.2}", figures.p50),
            _ => "–".to_string(),
        };
        let error = row.worst.as_ref().map_or("–".to_string(), |worst| format!("{:.1e}", worst.max_abs));
        let cases = row.checked.to_string();
        table.add_row([row.stage.clone(), row.variant.clone(), markdown::state(&row.state), cases, error, time]);
    }
    let mut lines = vec![table.to_string(), String::new(), report.overall.to_string()];
    lines.extend(report.overall.actions.iter().map(|action| format!("  {action}")));
    lines.extend(failures(report));
    lines.extend(report.refused().map(|refusal| format!("  unsupported: {refusal}")));
    lines.join("\n")
}

/// For those who asked for quiet: why the exit code is not 0, if it is not.
pub fn reproach(report: &Report) -> Option<String> {
    let lines = || [report.overall.to_string()].into_iter().chain(failures(report)).collect::<Vec<_>>().join("\n");
    (report.overall.exit != Exit::Pass).then(lines)
}

/// Each failed gate with its place and reason.
fn failures(report: &Report) -> impl Iterator<Item = String> + '_ {
    report.failures.iter().map(|f| format!("  {} {}: {}", f.place, f.result.gate, f.result.reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::report;
    use crate::testing::{case, emulated, ladder, resummarise};
    use common::device::BackendKind;
    use common::verdict::GateId;

    fn failed() -> Report {
        let mut run = emulated();
        run.correctness.cases.push(case("stage0-scalar", "scalar-32x64", BackendKind::Emulated, Some(GateId::C2)));
        resummarise(&mut run);
        report(&ladder(), Some(("run", &run)), &[])
    }

    #[test]
    fn quiet_still_says_what_failed() {
        let said = reproach(&failed()).unwrap();
        let mut lines = said.lines();
        let verdict = lines.next().unwrap();
        assert!(verdict.starts_with("FAIL: 1 gate fails, first C2 of stage0-scalar/scalar-32x64"), "{said}");
        let failure = lines.next().unwrap();
        assert!(failure.contains("scalar-32x64 C2: ") && failure.ends_with("too large"), "{said}");
        assert_eq!(reproach(&report(&ladder(), Some(("run", &emulated())), &[])), None);
    }

    #[test]
    fn what_failed_stands_below_what_to_do_about_it() {
        let text = summary(&failed());
        let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
        assert!(place("FAIL: 1 gate") < place("Fix the failed gates below"), "{text}");
        assert!(place("Fix the failed gates below") < place("C2: fails in 1 of 2 cases"), "{text}");
    }
}
