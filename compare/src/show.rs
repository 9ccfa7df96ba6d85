//! `compare show`: what a record says, part by part.

use crate::judge::Known;
use crate::judge::verdict::{Exit, report};
use crate::measure::builds::builds;
use crate::measure::rows;
use crate::page::{self, terminal::WIDTH};
use crate::pages::show::{self as layout, Section};
use crate::record::store::read_all;
use crate::record::{Record, StageMeta};
use crate::{machine, registry, select};
use clap::Args;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Without a part all of them are shown that fit the stages. A record is named by its folder, or by its name in results/.

Examples:
  compare show --changes                        what differs from the record before
  compare show --stage 5 --counters --profile   stage 5 in the emulator and under ncu
  compare show target/compare/20261120T183000Z-nvidia-h200 --gates
  compare show --metrics                        the format of rows.jsonl, and every metric

Exit codes:
  0  shown
  2  wrong usage, or a record that cannot be read
  3  NO DATA: there is no record";

#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// A record [default: what the committed records say together]
    #[arg(value_name = "RECORD")]
    pub record: Option<PathBuf>,
    /// Only these stages, by id or number
    #[arg(long, alias = "stage", value_name = "STAGE", value_delimiter = ',')]
    pub stages: Vec<String>,
    /// Every variant and its gates
    #[arg(long)]
    pub gates: bool,
    /// Every latency
    #[arg(long)]
    pub latency: bool,
    /// Claims and what was measured of them
    #[arg(long)]
    pub claims: bool,
    /// Registers, spills, shared memory, occupancy
    #[arg(long)]
    pub resources: bool,
    /// What the emulator counts
    #[arg(long)]
    pub counters: bool,
    /// What ncu reads, beside the emulator
    #[arg(long)]
    pub profile: bool,
    /// What compute-sanitizer found
    #[arg(long)]
    pub sanitizer: bool,
    /// The ladder beside what PyTorch takes
    #[arg(long)]
    pub peers: bool,
    /// What differs from the record before
    #[arg(long)]
    pub changes: bool,
    /// Planted faults, and kernels without one of their barriers
    #[arg(long)]
    pub self_test: bool,
    /// Compilers and flags
    #[arg(long)]
    pub build: bool,
    /// The format of rows.jsonl, every metric and every gate
    #[arg(long)]
    pub metrics: bool,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: crate::diff::Format,
}

impl ShowArgs {
    fn sections(&self) -> Vec<Section> {
        let flags = [
            (self.gates, Section::Gates),
            (self.latency, Section::Latency),
            (self.claims, Section::Claims),
            (self.resources, Section::Resources),
            (self.counters, Section::Counters),
            (self.profile, Section::Profile),
            (self.sanitizer, Section::Sanitizer),
            (self.peers, Section::Peers),
            (self.changes, Section::Changes),
            (self.self_test, Section::SelfTest),
            (self.build, Section::Build),
        ];
        let asked: Vec<Section> = flags.iter().filter(|(is, _)| *is).map(|(_, section)| *section).collect();
        if asked.is_empty() { flags.map(|(_, section)| section).to_vec() } else { asked }
    }
}

pub fn show(args: &ShowArgs) -> anyhow::Result<Exit> {
    if args.metrics {
        page::print(&crate::pages::metrics::page())?;
        return Ok(Exit::Pass);
    }
    let built = builds(&registry::load()?);
    let ids: Vec<String> = select::stages(&args.stages, &built)?.iter().map(|stage| stage.id.clone()).collect();
    let results = machine::workspace().unwrap_or_default().join("results");
    let mut committed = read_all(&results)?;
    let named = match &args.record {
        None => None,
        Some(path) => {
            let folder = if path.is_dir() { path.clone() } else { results.join(path) };
            let canonical = folder.canonicalize().unwrap_or_else(|_| folder.clone());
            let name = canonical.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            // Of a committed record what came later is not known.
            committed.retain(|(other, _)| *other < name);
            Some((name, Record::read(&folder)?))
        }
    };
    if named.is_none() && committed.is_empty() {
        println!("NO DATA: there is no record in {}; commit one with `compare accept`", results.display());
        return Ok(Exit::Undecided);
    }
    let stages: Vec<StageMeta> = match &named {
        Some((_, record)) => record.meta.stages.clone(),
        None => built.iter().map(|build| build.meta.clone()).collect(),
    };
    let run = named.as_ref().map(|(name, record)| (name.as_str(), record));
    let report = report(Known { stages: &stages, run, committed: &committed });
    let document = layout::document(&report, &args.sections(), &ids);
    page::print(&match args.format {
        crate::diff::Format::Terminal => page::terminal::terminal(&document, WIDTH, "--format markdown"),
        crate::diff::Format::Markdown => page::markdown::markdown(&document),
        crate::diff::Format::Json => serde_json::to_string_pretty(&page::json::value(&document))? + "\n",
    })?;
    Ok(Exit::Pass)
}
