//! Which kernels differ, and which kinds of figures moved.

use super::{Comparison, moved, shown};
use crate::words::short_name;
use document::Text;
use results::judge::diff::{Group, KernelState};
use results::judge::list::{Grouped, count, grouped, joined};
use results::table::Subject;

/// The most stages that are named, and the most variants of a stage of which only some are meant.
const MAX_NAMES: usize = 4;

/// A kernel, and its state in all tables together.
pub(super) struct KernelInAll<'a> {
    pub subject: &'a Subject,
    pub state: KernelState,
}

/// Returns which kernels differ, in one line, and which kinds of figures moved.
pub fn changed_line(comparison: &Comparison) -> Text {
    let kernels = kernels_of(comparison);
    let mut parts = Vec::new();
    for (state, words) in [
        (KernelState::Changed, ""),
        (
            KernelState::SameCode,
            "in sources alone, with the same machine code, ",
        ),
        (KernelState::New, "new "),
        (KernelState::Gone, "gone "),
    ] {
        let subjects = in_state(&kernels, state);
        if !subjects.is_empty() {
            parts.push(format!("{words}{}", kernel_names(&subjects, &kernels)));
        }
    }
    let changed = if parts.is_empty() {
        "no kernel".to_string()
    } else {
        parts.join("; ")
    };
    let unchanged = match in_state(&kernels, KernelState::Unchanged).len() {
        0 => String::new(),
        number => format!(" {} the same.", count(number, "kernel is", "kernels are")),
    };
    Text::default()
        .strong("Changed by this request:")
        .plain(format!(
            " {changed}.{unchanged}{}",
            moved_figures(comparison)
        ))
}

/// Returns the kernels whose machine code has changed.
pub fn changed_kernels(comparison: &Comparison) -> Vec<&Subject> {
    in_state(&kernels_of(comparison), KernelState::Changed)
}

fn kernels_of(comparison: &Comparison) -> Vec<KernelInAll<'_>> {
    let mut states_by_table = Vec::new();
    for (_, pair) in &comparison.pairs {
        for kernel in &pair.kernels {
            states_by_table.push((&kernel.subject, kernel.state));
        }
    }
    let mut of_all = Vec::new();
    for Grouped {
        key: subject,
        values: states,
    } in grouped(states_by_table)
    {
        // What one table calls changed has changed, whatever stands still in another.
        if let Some(state) = states.into_iter().min() {
            of_all.push(KernelInAll { subject, state });
        }
    }
    of_all
}

fn in_state<'a>(kernels: &[KernelInAll<'a>], state: KernelState) -> Vec<&'a Subject> {
    kernels
        .iter()
        .filter(|kernel| kernel.state == state)
        .map(|kernel| kernel.subject)
        .collect()
}

fn moved_figures(comparison: &Comparison) -> String {
    let mut differences = Vec::new();
    for (_, pair) in &comparison.pairs {
        for group in [
            Group::Latency,
            Group::Resources,
            Group::Counters,
            Group::Errors,
        ] {
            differences.extend(shown(&pair.differences, group));
        }
    }
    let titles = moved::titles(&differences);
    if titles.is_empty() {
        " No figure has moved.".to_string()
    } else {
        format!(" Moved: {}.", titles.join(", "))
    }
}

/// Returns `stage3-wmma-pv (12 kernels), stage5/swizzle-64x64`.
pub(super) fn kernel_names(subjects: &[&Subject], all: &[KernelInAll<'_>]) -> String {
    let by_stage = grouped(subjects.iter().map(|subject| (subject.stage(), *subject)));
    if by_stage.len() > MAX_NAMES {
        let kernels = count(subjects.len(), "kernel", "kernels");
        return format!("{kernels} of {} stages", by_stage.len());
    }
    let mut names = Vec::new();
    for Grouped {
        key: stage,
        values: changed,
    } in by_stage
    {
        let all_kernels = all
            .iter()
            .filter(|kernel| kernel.subject.stage() == stage)
            .count();
        let kernels = count(all_kernels, "kernel", "kernels");
        names.push(if changed.len() >= all_kernels {
            format!("{stage} ({})", count(changed.len(), "kernel", "kernels"))
        } else if changed.len() <= MAX_NAMES {
            joined(changed.into_iter().map(short_name), ", ")
        } else {
            format!("{stage} ({} of its {kernels})", changed.len())
        });
    }
    names.join(", ")
}
