//! `compare diff`: two sets of records side by side.

mod source;

use crate::answer::{Answer, Format, NoData};
use crate::judge::Named;
use crate::judge::diff::{differences, outdated, whole};
use crate::judge::list::{distinct, joined};
use crate::judge::verdict::of_differences;
use crate::measure::machine;
use crate::output::{self, Output};
use crate::pages::diff as layout;
use crate::pages::diff::{Comparison, Pair};
use crate::record::StageMeta;
use crate::record::files::write_atomically;
use crate::record::meta::Git;
use crate::registry;
use anyhow::bail;
use clap::Args;
use common::metric::LATENCY_CHANGE;
use source::{Harness, Side, SourceError};
use std::path::PathBuf;

/// The end of `compare diff --help`.
pub const EXAMPLES: &str = "\
BASE and NEW each name a record's folder, a folder of records (the newest of each GPU and backend), a record in results/,
or a git revision (its committed results/; the work tree is not touched). Records of one GPU and backend are compared.
What is not the same thing (another GPU, driver, shape, compiler) is NO DATA, with a reason. A NEW that is a folder stands
for the sources as they are: it is incomplete where a kernel has changed since. Against a BASE in another format it is
incomplete too.

Examples:
  compare diff main results                     what this branch's records say against those of main
  compare diff HEAD~3 target/compare            the newest run here against records that are committed
  compare diff 20261121T053618Z-nvidia-h200 20261121T112118Z-nvidia-h200 --threshold 1
                                                two committed records, latencies apart by 1 % or more
  compare diff main results --format markdown --out diff.md
                                                a comment for a pull request
  compare diff target/review/base-record target/review/head --also main HEAD
                                                two runs here, and the records that are committed at both ends

Exit codes:
  0  nothing relevant, or improvements only
  1  regressions, with or without improvements
  2  wrong usage, or a record that cannot be read
  3  nothing can be compared; or without a regression, something is undecided, a run did not end, or data is missing that
     the base had";

/// The flags of `diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// What is compared with
    #[arg(value_name = "BASE")]
    pub base: String,
    /// What is compared
    #[arg(value_name = "NEW")]
    pub new: String,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write it to a file; standard output gets the verdict
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Records of one GPU and backend on a side are sessions of one build: put their samples together (A B B A)
    #[arg(long)]
    pub pool: bool,
    /// Compare these too, in one verdict: what a folder has no record of, such as the latencies that a change commits
    #[arg(long, num_args = 2, value_names = ["BASE", "NEW"])]
    pub also: Vec<String>,
    /// Latencies within this many percent of each other are the same
    #[arg(long, value_name = "PCT", default_value_t = 100.0 * LATENCY_CHANGE, value_parser = percent)]
    pub threshold: f64,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("give percent above 0, and 100 at most, such as 2".to_string()),
    }
}

/// Compares what `args` name.
pub fn diff(args: &DiffArgs) -> anyhow::Result<Answer> {
    output::check(&Output::text("--out", args.out.as_ref()), &[])?;
    let root = machine::workspace();
    let two = |[base, new]: [&String; 2], pool: bool| {
        let base = source::resolve(base, root.as_deref(), pool)?;
        Ok((
            base,
            source::resolve(new, root.as_deref(), pool).and_then(Side::in_this_format)?,
        ))
    };
    let mut sides = match two([&args.base, &args.new], args.pool) {
        Err(error @ SourceError::NoRecords { .. }) => {
            bail!(NoData(format!(
                "{error}; commit one with `compare accept`, or name another"
            )))
        }
        sides => vec![sides?],
    };
    let mut notes = Vec::new();
    if let [base, new] = &args.also[..] {
        match two([base, new], false) {
            Err(error @ SourceError::NoRecords { .. }) => {
                notes.push(format!("{error}: not compared."))
            }
            also => sides.push(also?),
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

/// Compares the records of each two sides, of which all after the first were asked for beside it; `now` is the ladder as it
/// is built.
fn compare<'a>(
    sides: &'a [(Side, Side)],
    now: &[StageMeta],
    threshold: f64,
    mut notes: Vec<String>,
) -> Comparison<'a> {
    let (mut pairs, mut missing, mut unpaired) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (base, new)) in sides.iter().enumerate() {
        missing.extend(
            base.other_format
                .iter()
                .map(|error| whole(error.to_string())),
        );
        let (mut found, [gone, added]) = pair_up(&base.records, &new.records);
        // One record was named to be compared; of a whole place none may be gone.
        match new.is_list {
            true => missing.extend(gone.into_iter().map(whole)),
            false => unpaired.extend(gone),
        }
        unpaired.extend(added);
        if at > 0 {
            // What both sides share says nothing of the change.
            found.retain(|(old, new)| old.1.committed() != new.1.committed());
            if found.is_empty() && base.other_format.is_empty() {
                notes.push(format!("{} has the records of {}.", new.name, base.name));
            }
        }
        pairs.extend(found.into_iter().map(|(base, (name, record))| {
            let outdated = if new.is_folder {
                outdated(record, now)
            } else {
                vec![]
            };
            let differences = [outdated, differences(&base.1, record, threshold)].concat();
            Pair {
                base: (&base.0, &base.1),
                new: (name, record),
                differences,
            }
        }));
    }
    notes.extend(harness(&pairs).note(&kernels_changed(&pairs)));
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

fn harness(pairs: &[Pair<'_>]) -> Harness {
    let Some(Pair { base, new, .. }) = pairs.first() else {
        return Harness::Unknown("nothing is compared".into());
    };
    let (base, new) = (&base.1.meta, &new.1.meta);
    match (&base.git, &new.git) {
        _ if base.tool_version != new.tool_version => Harness::Changed(vec![format!(
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
        _ => Harness::Unknown("a record does not say which commit it was built from".into()),
    }
}

/// Stages whose kernel differs in any pair.
fn kernels_changed<'a>(pairs: &[Pair<'a>]) -> Vec<&'a str> {
    let changed = pairs.iter().flat_map(
        |Pair {
             base: (_, base),
             new: (_, new),
             ..
         }| {
            let stages = new.meta.stages.iter();
            stages.filter(|stage| {
                base.stage(&stage.id)
                    .is_some_and(|old| old.identity != stage.identity)
            })
        },
    );
    distinct(changed.map(|stage| stage.id.as_str()))
}

/// Records of one GPU and backend beside each other, and those of the base and of the new side that have no counterpart. Where
/// no two are of one kind, the newest stand beside each other: resources and counters may still be compared.
fn pair_up<'a>(
    base: &'a [Named],
    new: &'a [Named],
) -> (Vec<(&'a Named, &'a Named)>, [Vec<String>; 2]) {
    let find = |records: &'a [Named], like: &Named| {
        records
            .iter()
            .find(|record| source::kind(record) == source::kind(like))
    };
    let mut pairs: Vec<_> = new
        .iter()
        .filter_map(|record| Some((find(base, record)?, record)))
        .collect();
    if pairs.is_empty() {
        pairs.extend(base.last().zip(new.last()));
    }
    let alone = |records: &'a [Named], paired: Vec<&'a Named>, side: &str| {
        let is_alone = |record: &&'a Named| !paired.iter().any(|other| other.0 == record.0);
        let alone = records.iter().filter(is_alone);
        alone
            .map(|(name, _)| format!("{name}: only {side} has a record of this GPU and backend"))
            .collect()
    };
    let alone = [
        alone(base, pairs.iter().map(|pair| pair.0).collect(), "the base"),
        alone(
            new,
            pairs.iter().map(|pair| pair.1).collect(),
            "the new side",
        ),
    ];
    (pairs, alone)
}

#[cfg(test)]
mod tests;
