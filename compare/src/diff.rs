//! `compare diff`: two sets of records side by side.

mod source;

use crate::answer::{Answer, Format, NoData};
use crate::judge::Named;
use crate::judge::diff::{differences, outdated, whole};
use crate::judge::list::{distinct, joined};
use crate::judge::verdict::of_differences;
use crate::measure::machine;
use crate::pages::diff as layout;
use crate::pages::diff::{Comparison, Pair};
use crate::record::StageMeta;
use crate::record::files::write_atomically;
use crate::record::meta::Git;
use crate::registry;
use anyhow::bail;
use clap::Args;
use common::metric::LATENCY_CHANGE;
use source::Side;
use std::path::PathBuf;

/// The end of `compare diff --help`.
pub const EXAMPLES: &str = "\
BASE and NEW each name a record's folder, a folder of records (the newest of each GPU and backend), a record in results/,
or a git revision (its committed results/; the work tree is not touched). Records of the same GPU and backend are compared.
What is not comparable (another GPU, driver, shape, compiler) is NO DATA, with a reason. A folder as NEW stands for the
current sources: the comparison is incomplete where a kernel has changed since, and against a BASE in another format.

Examples:
  compare diff main results                     what this branch's records say against those of main
  compare diff HEAD~3 target/compare            the newest run here against records that are committed
  compare diff 20261121T053618Z-nvidia-h200 20261121T112118Z-nvidia-h200 --threshold 1
                                                two committed records; latencies must differ by more than 1 %
  compare diff main results --format markdown --out diff.md
                                                a comment for a pull request
  compare diff target/review/base-record target/review/head --also main HEAD
                                                two runs here, and the records that are committed at both ends

Exit codes:
  0  nothing relevant, or improvements only
  1  regressions, with or without improvements
  2  wrong usage, or a record that cannot be read
  3  nothing can be compared; or, without a regression, something is undecided, a run did not end, or data that the base has
     is missing";

/// The flags of `diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// What to compare with
    #[arg(value_name = "BASE")]
    pub base: String,
    /// What to compare
    #[arg(value_name = "NEW")]
    pub new: String,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write it to a file; standard output gets the verdict
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// A side's records of one GPU and backend are sessions of one build, run A B B A: pool their samples
    #[arg(long)]
    pub pool: bool,
    /// Compare these too, in the same verdict: what the folders have no record of, such as latencies that a change commits
    #[arg(long, num_args = 2, value_names = ["BASE", "NEW"])]
    pub also: Vec<String>,
    /// Latencies within this many percent of each other are the same
    #[arg(long, value_name = "PCT", default_value_t = 100.0 * LATENCY_CHANGE, value_parser = percent)]
    pub threshold: f64,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("give a percentage above 0 and at most 100, such as 2".to_string()),
    }
}

/// Compares what `args` name.
pub fn diff(args: &DiffArgs) -> anyhow::Result<Answer> {
    let root = machine::workspace();
    let two = |base: &str, new: &str, pool: bool| -> anyhow::Result<_> {
        let side = |name| source::resolve(name, root.as_deref(), pool);
        let sides = (side(base)?, side(new)?.in_this_format()?);
        let none = sides.0.none().or_else(|| sides.1.none());
        Ok((sides, none))
    };
    let (sides, none) = two(&args.base, &args.new, args.pool)?;
    if let Some(none) = none {
        bail!(NoData(format!(
            "{none}; commit one with `compare accept`, or name another"
        )));
    }
    let (mut sides, mut notes) = (vec![sides], Vec::new());
    if let [base, new] = &args.also[..] {
        match two(base, new, false)? {
            (_, Some(none)) => notes.push(format!("{none}: not compared.")),
            (also, None) => sides.push(also),
        }
    }
    let now = match sides.iter().any(|(_, new)| new.is_folder) {
        true => registry::metas()?,
        false => vec![],
    };
    let comparison = compare(&sides, &now, args.threshold / 100.0, notes);
    let text = args
        .format
        .print(&layout::document(&comparison), &layout::json(&comparison));
    let exit = comparison.overall.exit;
    let Some(path) = &args.out else {
        return Ok(Answer::new(exit, text));
    };
    write_atomically(path, text.as_bytes())?;
    Ok(Answer::new(exit, comparison.overall.to_string()))
}

/// Compares the records of each two sides, of which all after the first are of `--also`; `now` is the ladder as it is built.
fn compare<'a>(
    sides: &'a [(Side, Side)],
    now: &[StageMeta],
    threshold: f64,
    mut notes: Vec<String>,
) -> Comparison<'a> {
    let (mut pairs, mut missing, mut unpaired) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (base, new)) in sides.iter().enumerate() {
        let unreadable = base.other_format.iter();
        missing.extend(unreadable.map(|error| whole(error.to_string())));
        let (mut found, [gone, added]) = pair_up(&base.records, &new.records);
        // One record was named to be compared; of a whole place none may be gone.
        match new.is_list {
            true => missing.extend(gone.into_iter().map(whole)),
            false => unpaired.extend(gone),
        }
        unpaired.extend(added);
        if at > 0 {
            // What both sides share says nothing about the change.
            found.retain(|(old, new)| old.1.committed() != new.1.committed());
            if found.is_empty() && base.other_format.is_empty() {
                notes.push(format!("{} has the records of {}.", new.name, base.name));
            }
        }
        for (base, (name, record)) in found {
            let mut all = match new.is_folder {
                true => outdated(record, now),
                false => vec![],
            };
            all.extend(differences(&base.1, record, threshold));
            pairs.push(Pair {
                base: (&base.0, &base.1),
                new: (name, record),
                differences: all,
            });
        }
    }
    notes.extend(note(&harness(&pairs), &kernels_changed(&pairs)));
    let all = pairs
        .iter()
        .flat_map(|pair| &pair.differences)
        .chain(&missing);
    let overall = of_differences(&all.cloned().collect::<Vec<_>>());
    let names = |side: fn(&(Side, Side)) -> &Side| {
        joined(sides.iter().map(|sides| &side(sides).name), " and ")
    };
    let (base, new) = (names(|sides| &sides.0), names(|sides| &sides.1));
    Comparison {
        base,
        new,
        pairs,
        missing,
        unpaired,
        notes,
        overall,
    }
}

/// What of the harness changed between the sides, as far as git can tell; the error is why that is not known.
fn harness(pairs: &[Pair<'_>]) -> Result<Vec<String>, String> {
    let Some(Pair { base, new, .. }) = pairs.first() else {
        return Err("nothing is compared".into());
    };
    let (base, new) = (&base.1.meta, &new.1.meta);
    match (&base.git, &new.git) {
        _ if base.tool_version != new.tool_version => Ok(vec![format!(
            "compare {} against {}",
            base.tool_version, new.tool_version
        )]),
        (
            Git::Commit { sha, dirty, .. },
            Git::Commit {
                sha: other,
                dirty: other_dirty,
                ..
            },
        ) => source::harness(sha, other, *dirty || *other_dirty),
        _ => Err("a record does not say which commit it was built from".into()),
    }
}

/// So many of the harness's files a note names.
const SHOWN: usize = 3;

/// What to do about a changed harness where `kernels` changed too.
fn note(harness: &Result<Vec<String>, String>, kernels: &[&str]) -> Option<String> {
    match harness {
        _ if kernels.is_empty() => None,
        Ok(files) if files.is_empty() => None,
        Ok(files) => {
            let more = match files.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Some(format!(
                "Kernel and harness changed together ({}; {}{more}): review the harness first, since it judges the kernel.",
                kernels.join(", "),
                joined(files.iter().take(SHOWN), ", ")
            ))
        }
        Err(why) => Some(format!(
            "Whether the harness changed with the kernel is not known: {why}."
        )),
    }
}

/// Stages whose kernel differs in any pair.
fn kernels_changed<'a>(pairs: &[Pair<'a>]) -> Vec<&'a str> {
    let mut changed = Vec::new();
    for Pair { base, new, .. } in pairs {
        for stage in &new.1.meta.stages {
            let old = base.1.stage(&stage.id);
            if old.is_some_and(|old| old.identity != stage.identity) {
                changed.push(stage.id.as_str());
            }
        }
    }
    distinct(changed)
}

/// Records of one GPU and backend beside each other, and those of the base and of the new side that have no counterpart. Where
/// no two are of one kind, the newest stand beside each other: resources and counters may still be compared.
fn pair_up<'a>(
    base: &'a [Named],
    new: &'a [Named],
) -> (Vec<(&'a Named, &'a Named)>, [Vec<String>; 2]) {
    let counterpart = |record: &'a Named| {
        let is_alike = |other: &&Named| source::kind(other) == source::kind(record);
        Some((base.iter().find(is_alike)?, record))
    };
    let mut pairs: Vec<_> = new.iter().filter_map(counterpart).collect();
    if pairs.is_empty() {
        pairs.extend(base.last().zip(new.last()));
    }
    let is_paired = |record: &Named| {
        let is_it = |other: &Named| std::ptr::eq(other, record);
        pairs.iter().any(|(base, new)| is_it(base) || is_it(new))
    };
    let alone = |records: &[Named], side: &str| {
        let alone = records.iter().filter(|record| !is_paired(record));
        alone
            .map(|(name, _)| format!("{name}: only {side} has a record of this GPU and backend"))
            .collect()
    };
    let unpaired = [alone(base, "the base"), alone(new, "the new side")];
    (pairs, unpaired)
}

#[cfg(test)]
mod tests;
