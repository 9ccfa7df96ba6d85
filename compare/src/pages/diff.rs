//! `compare diff`, which is also the comment on a pull request: the verdict, which kernels have changed, what is missing, and all that
//! has moved, before → after.

mod moved;

use super::{changes, first_lines, first_of, list, sections, short};
use crate::document::{Block, Text};
use crate::judge::diff::{self, Change, Difference, Group, Kernel, KernelState, What};
use crate::judge::list::{count, distinct, grouped, joined};
use crate::judge::verdict::Overall;
use crate::table::Subject;
use moved::Line;

/// The most lines of each kind in all tables together, in a comment on a pull request.
const MOST_GATES: usize = 12;
const MOST_FIGURES: usize = 16;
const MOST_NEW: usize = 8;
const MOST_MISSING: usize = 5;

const HOW: &str = "compare diff BASE NEW";

pub struct Comparison {
    pub base: String,
    pub new: String,
    /// By name of what both sides have.
    pub pairs: Vec<(String, diff::Comparison)>,
    /// GPU models that only one side has figures of, and what is not known of a side.
    pub notes: Vec<String>,
    pub overall: Overall,
}

/// Everything, or the first of each kind.
pub fn document(comparison: &Comparison, is_whole: bool) -> Vec<Block> {
    let overall = &comparison.overall;
    let mut blocks = vec![
        Block::strong(overall.to_string()),
        Block::paragraph(changed_line(comparison)),
        Block::bullets(overall.actions.clone()),
        Block::paragraph(format!(
            "`{}` against `{}` (base).",
            comparison.new, comparison.base
        )),
    ];
    let share = |most: usize| match is_whole {
        true => usize::MAX,
        false => (most / comparison.pairs.len().max(1)).max(2),
    };
    for (name, pair) in &comparison.pairs {
        let shown = pair_sections(pair, &share);
        if comparison.pairs.len() > 1 && !shown.is_empty() {
            blocks.push(Block::section(&**name));
        }
        blocks.extend(shown);
    }
    blocks.extend(list(&comparison.notes));
    blocks
}

fn pair_sections(pair: &diff::Comparison, share: &impl Fn(usize) -> usize) -> Vec<Block> {
    let figures = |group, lines: fn(&[&Difference]) -> Vec<Line>| {
        let lines = lines(&shown(pair, group));
        first_of(
            &lines,
            share(MOST_FIGURES),
            |of| Block::Table(moved::table(of)),
            HOW,
        )
    };
    let parts = [
        (
            "Missing data",
            required(&pair.differences, share(MOST_MISSING)),
        ),
        ("Gates and claims", gates(pair, share(MOST_GATES))),
        ("Time", figures(Group::Latency, moved::times)),
        (
            "Registers, shared memory and code",
            figures(Group::Resources, moved::figures),
        ),
        ("Counters", figures(Group::Counters, moved::figures)),
        ("Errors", figures(Group::Errors, moved::figures)),
        ("New", added(pair, share(MOST_NEW))),
    ];
    let mut blocks = sections(Block::subsection, parts);
    blocks.extend(drift(pair));
    blocks
}

/// What has moved in a group, the worst first, else in the order of the ladder.
fn shown(pair: &diff::Comparison, group: Group) -> Vec<&Difference> {
    let has_moved = |d: &&Difference| !matches!(d.change, Change::Missing | Change::Unchanged);
    let all = pair.differences.iter().filter(|d| d.group == group);
    let mut shown = Vec::from_iter(all.filter(has_moved));
    shown.sort_by_key(|difference| difference.change);
    shown
}

/// Which kernels differ, in one line, and which kinds of figures moved.
fn changed_line(comparison: &Comparison) -> Text {
    let kernels = comparison.pairs.iter().flat_map(|(_, pair)| &pair.kernels);
    let mut states = grouped(kernels.map(|Kernel { subject, state }| (subject, *state)));
    // What one table calls changed has changed, whatever stands still in another.
    states.iter_mut().for_each(|(_, states)| states.sort());
    let in_state = |wanted: KernelState| {
        let all = states.iter().filter(move |(_, states)| states[0] == wanted);
        Vec::from_iter(all.map(|(subject, _)| *subject))
    };
    let all_of = |stage: &str| states.iter().filter(|(of, _)| of.stage() == stage).count();
    let says = [
        (KernelState::Changed, ""),
        (
            KernelState::SameCode,
            "in sources alone, with the same machine code, ",
        ),
        (KernelState::New, "new "),
        (KernelState::Gone, "gone "),
    ];
    let parts = says.into_iter().filter_map(|(state, word)| {
        let kernels = in_state(state);
        (!kernels.is_empty()).then(|| format!("{word}{}", kernel_names(&kernels, all_of)))
    });
    let parts = joined(parts, "; ");
    let what = if parts.is_empty() {
        "no kernel"
    } else {
        &parts
    };
    let same = match in_state(KernelState::Unchanged).len() {
        0 => String::new(),
        n => format!(" {} the same.", count(n, "kernel is", "kernels are")),
    };
    let differences = comparison.pairs.iter();
    let differences = differences.flat_map(|(_, pair)| {
        let groups = [
            Group::Latency,
            Group::Resources,
            Group::Counters,
            Group::Errors,
        ];
        groups.into_iter().flat_map(|group| shown(pair, group))
    });
    let titles = moved::titles(&Vec::from_iter(differences));
    let moved = match titles.is_empty() {
        true => " No figure has moved.".to_string(),
        false => format!(" Moved: {}.", joined(titles, ", ")),
    };
    Text::default()
        .strong("Changed by this request:")
        .plain(format!(" {what}.{same}{moved}"))
}

/// The most stages that are named, and the most variants of a stage of which only some are meant.
const MOST_NAMES: usize = 4;

/// `stage3-wmma-pv (12 kernels), stage5/swizzle-64x64`; `all`: how many variants a stage has.
fn kernel_names(kernels: &[&Subject], all: impl Fn(&str) -> usize) -> String {
    let stages = grouped(kernels.iter().map(|subject| (subject.stage(), *subject)));
    let kernels_of = |n| count(n, "kernel", "kernels");
    if stages.len() > MOST_NAMES {
        return format!("{} of {} stages", kernels_of(kernels.len()), stages.len());
    }
    let stages = stages.into_iter().map(|(stage, some)| {
        let is_named = some.len() < all(stage) && some.len() <= MOST_NAMES;
        match is_named {
            true => joined(some.into_iter().map(short), ", "),
            false if some.len() < all(stage) => {
                format!("{stage} ({} of its {})", some.len(), kernels_of(all(stage)))
            }
            false => format!("{stage} ({})", kernels_of(some.len())),
        }
    });
    joined(stages, ", ")
}

/// Gates and claims whose verdict differs, and what is gone.
fn gates(pair: &diff::Comparison, most: usize) -> Vec<Block> {
    let mut changed = shown(pair, Group::Gates);
    changed.retain(|d| !is_new_variant(d));
    first_of(&changed, most, |of| Block::Table(changes(of)), HOW)
}

fn is_new_variant(d: &Difference) -> bool {
    d.change == Change::Informational && d.what == What::Variant && d.base.is_none()
}

fn required(differences: &[Difference], most: usize) -> Vec<Block> {
    let required = differences.iter().filter(|difference| difference.required);
    let lines = required.map(|d| format!("{}: {}: {}", d.subject, d.title(), d.why).into());
    first_lines(lines, most, HOW)
}

fn added(pair: &diff::Comparison, most: usize) -> Vec<Block> {
    let new = pair.differences.iter().filter(|d| is_new_variant(d));
    // A variant is new once, whatever sources say of it.
    let names = distinct(new.map(|d| d.subject.to_string()));
    let lines = names.into_iter().map(Into::into);
    first_lines(lines, most, "compare show gates latencies")
}

/// What the latencies of unchanged kernels say.
fn drift(diff::Comparison { drift, .. }: &diff::Comparison) -> Option<Block> {
    (drift.kernels > 0).then(|| {
        Block::paragraph(format!(
            "{} of unchanged kernels moved by {:+.1} % in the median, 95 of 100 of them within {:.1} % of that.",
            count(drift.kernels, "latency", "latencies"),
            100.0 * (1.0 / drift.shift - 1.0),
            100.0 * drift.spread
        ))
    })
}

#[cfg(test)]
mod tests;
