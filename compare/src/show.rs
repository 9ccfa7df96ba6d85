//! `compare show`: the parts of a record.

use crate::answer::{Answer, Format, NoData};
use crate::judge::verdict::report;
use crate::judge::{Known, Named};
use crate::measure::builds::metas;
use crate::measure::machine;
use crate::measure::select;
use crate::pages::names;
use crate::pages::show::{self as layout, Section};
use crate::record::files::name_of;
use crate::record::store::read_all;
use crate::record::{On, Record, StoreError};
use crate::registry;
use anyhow::bail;
use clap::Args;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Examples:
  compare show                                  names of stages, variants, shapes, input families, gates
  compare show --stage 5                        stage 5 on a page
  compare show changes --record target/compare/20261120T183000Z-nvidia-h200

Exit codes:
  0  shown
  2  wrong usage, or a record that cannot be read
  3  NO DATA: there is no record";

#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// Parts of a record to show; without any: its summary, and without a record or stage, what can be asked for
    #[arg(value_name = "PART")]
    pub parts: Vec<Section>,
    /// A record's folder, or its name in results/ [default: the committed records together]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Only these stages, by id or number: with parts in full, else each on a page
    #[arg(long, alias = "stage", value_name = "STAGE", value_delimiter = ',')]
    pub stages: Vec<String>,
    /// The format of rows.jsonl, every metric and every gate, as in docs/rows.md
    #[arg(long)]
    pub metrics: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

pub fn show(args: &ShowArgs) -> anyhow::Result<Answer> {
    if args.metrics {
        return Ok(Answer::pass(crate::pages::metrics::page()));
    }
    let built = registry::builds()?;
    if args.parts.is_empty() && args.stages.is_empty() && args.record.is_none() {
        let document = names::document(&metas(&built));
        return Ok(Answer::pass(args.format.print(&document, &document)));
    }
    let mut ids = Vec::new();
    if !args.stages.is_empty() {
        let named = select::stages(&args.stages, &built)?.into_iter();
        ids.extend(named.map(|stage| stage.id.clone()));
    }
    let results = machine::results();
    let (named, committed) = match &args.record {
        None => (None, up_to(committed(&results)?, &ids)),
        Some(path) => {
            let folder = if path.is_dir() {
                path.clone()
            } else {
                results.join(path)
            };
            let (name, record) = (name_of(&folder), Record::read(&folder)?);
            let before = before(&name, &results)?;
            (Some((name, record)), before)
        }
    };
    let stages = named
        .as_ref()
        .map_or_else(|| metas(&built), |(_, record)| record.meta.stages.clone());
    let run = named.as_ref().map(|(name, record)| (name.as_str(), record));
    let document = layout::document(
        &report(Known {
            stages: &stages,
            run,
            committed: &committed,
        }),
        &args.parts,
        &ids,
    );
    Ok(Answer::pass(args.format.print(&document, &document)))
}

/// The committed records that one of this name is compared with: those before it.
fn before(name: &str, results: &Path) -> Result<Vec<Named>, StoreError> {
    let mut committed = read_all(results)?;
    committed.retain(|(other, _)| other.as_str() < name);
    Ok(committed)
}

/// The records up to the newest that includes these stages; all if none does.
fn up_to(mut committed: Vec<Named>, stages: &[String]) -> Vec<Named> {
    // compute-sanitizer's rows are of all cases, too.
    let includes = |record: &Record, id: &String| {
        let checked = record.by(record.meta.backend.into());
        let mut of_all = checked.filter(|row| row.on == On::All);
        of_all.any(|row| row.subject.stage() == *id)
    };
    if let Some(newest) = committed
        .iter()
        .rposition(|(_, record)| stages.iter().all(|id| includes(record, id)))
    {
        committed.truncate(newest + 1);
    }
    committed
}

/// The records in `results`, oldest first; an error if there is none.
pub fn committed(results: &Path) -> anyhow::Result<Vec<Named>> {
    let committed = read_all(results)?;
    if committed.is_empty() {
        bail!(NoData(format!(
            "there is no record in {}; commit one with `compare accept`",
            results.display()
        )));
    }
    Ok(committed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_shown_from_the_newest_record_that_includes_it() {
        let newest_of = |stages: &[&str]| {
            let stages: Vec<String> = stages.iter().map(|id| id.to_string()).collect();
            let before = up_to(crate::testing::committed(), &stages);
            before.last().unwrap().0.clone()
        };
        let all = crate::testing::committed().last().unwrap().0.clone();
        assert_eq!(newest_of(&[]), all);
        assert_eq!(newest_of(&["no-such-stage"]), all);
        // compute-sanitizer saw it in every record since.
        assert_eq!(
            newest_of(&["stage0-scalar"]),
            "20261123T120946Z-nvidia-h200"
        );
        assert!(*newest_of(&["stage5-swizzle"]) >= *"20261122T121949Z-nvidia-h200");
        let both = newest_of(&["stage5-swizzle", "stage9-cluster"]);
        assert!(both >= newest_of(&["stage5-swizzle"]));
    }
}
