//! Two records side by side: what they are, every row, and one line per stage.

use super::{Class, Row, latency, rows};
use crate::comparison::latency::best;
use crate::comparison::representative::{built_for, conflicts, instance};
use crate::comparison::summary_of;
use common::evidence::Quantity;
use common::record::{BuildMeta, Git, Gpu, Record, Scope, VariantBuild};
use serde::Serialize;
use std::fmt;

/// Two records, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The base's name.
    pub base: String,
    /// What the base was built from, and where.
    pub base_meta: String,
    /// The new record's name.
    pub new: String,
    /// What it was built from, and where.
    pub new_meta: String,
    /// Stages whose kernel differs between the two.
    pub kernels_changed: Vec<String>,
    /// One line per stage.
    pub stages: Vec<StageLine>,
    /// Everything.
    pub rows: Vec<Row>,
}

/// The variant that speaks for a stage on each side, and the figures that a reader asks for first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageLine {
    /// The stage.
    pub stage: String,
    /// The fastest green variant on mission (f16, full mask) of each side; the default where nothing was timed.
    pub variant: Cell,
    /// Its latency.
    pub latency: Option<Row>,
    /// Registers of its f16, head_dim 64 instance.
    pub registers: Cell,
    /// Spilled bytes.
    pub spills: Cell,
    /// Dynamic shared bytes.
    pub shared: Cell,
    /// Bank conflicts of shared-memory reads, writes and cp.async.
    pub conflicts: Cell,
    /// The largest error of any case.
    pub error: Cell,
    /// Rows per class, over all variants of the stage.
    pub counts: Vec<(Class, usize)>,
}

/// A figure on both sides, in words; absent where it was not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// The base's.
    pub base: Option<String>,
    /// The new one.
    pub new: Option<String>,
}

impl Pair {
    /// Compares two records. `threshold` is the latency's (0.02: 2 %).
    pub fn of((base_name, base): (&str, &Record), (new_name, new): (&str, &Record), threshold: f64) -> Self {
        let rows = rows(base, new, threshold);
        let changed = |id: &&str| {
            let identity = |record: &Record| {
                record.meta.stages.iter().find(|stage| stage.id == **id).map(|stage| stage.identity.clone())
            };
            let (was, is) = (identity(base), identity(new));
            was.is_some() && is.is_some() && was != is
        };
        let ids = new.meta.stages.iter().map(|stage| stage.id.as_str());
        let stages = ids.clone().filter_map(|id| stage_line(base, new, id, &rows, threshold)).collect();
        Self {
            base: base_name.to_string(),
            base_meta: describe(&base.meta),
            new: new_name.to_string(),
            new_meta: describe(&new.meta),
            kernels_changed: ids.filter(changed).map(String::from).collect(),
            stages,
            rows,
        }
    }
}

/// `T2 on NVIDIA H200, driver 580.159.04, commit 51f32a465e82`.
fn describe(meta: &BuildMeta) -> String {
    let place = match &meta.machine.gpu {
        Gpu::Present { name, driver, .. } => format!("{name}, driver {driver}"),
        Gpu::Absent { .. } => format!("the emulator, {}", meta.machine.platform),
    };
    let source = match &meta.git {
        Git::Commit { sha, dirty } => {
            format!("commit {}{}", &sha[..sha.len().min(12)], if *dirty { " with uncommitted changes" } else { "" })
        }
        Git::Unknown { .. } => "source unknown".to_string(),
    };
    let scope = match &meta.scope {
        Scope::Whole => String::new(),
        Scope::Selected { flags } => format!(" ({})", flags.join(" ")),
    };
    format!("{}{scope} on {place}; {source}; compare {}", meta.tier, meta.tool_version)
}

/// `None` for a stage that the base does not have.
fn stage_line(base: &Record, new: &Record, id: &str, rows: &[Row], threshold: f64) -> Option<StageLine> {
    let sides = [base, new].map(|record| {
        let stage = record.meta.stages.iter().find(|stage| stage.id == id)?;
        let best = best(record, id, |_| true);
        let variant = stage.variant(best.map_or(&stage.default_variant, |timing| &timing.variant))?;
        Some((record, variant, best))
    });
    let [Some(before), Some(after)] = &sides else { return None };
    let latency = match (before.2, after.2) {
        (Some(was), Some(is)) if latency::incomparable(base, new).is_none() => {
            Some(latency::arm((base, was), (new, is), threshold))
        }
        _ => None,
    };
    let cell = |of: &dyn Fn(&Record, &VariantBuild) -> Option<String>| Cell {
        base: of(before.0, before.1),
        new: of(after.0, after.1),
    };
    let of_stage = |class: &Class| rows.iter().filter(|row| row.stage == id && row.class == *class).count();
    Some(StageLine {
        stage: id.to_string(),
        variant: cell(&|_, variant| Some(variant.name.clone())),
        latency,
        registers: cell(&|record, variant| built_for(record, variant).map(|b| b.ptxas.resources.registers.to_string())),
        spills: cell(&|record, variant| {
            let resources = &built_for(record, variant)?.ptxas.resources;
            Some((resources.spill_store_bytes + resources.spill_load_bytes).to_string())
        }),
        shared: cell(&|_, variant| Some(instance(variant)?.facts.dynamic_shared_bytes.to_string())),
        conflicts: cell(&|record, variant| {
            conflicts(record, id, &variant.name).map(|count| Quantity::SharedReadConflicts.show(count))
        }),
        error: cell(&|record, variant| {
            let worst = summary_of(record, id, &variant.name)?.worst.as_ref()?;
            Some(format!("{:.1e}", worst.max_abs))
        }),
        counts: Class::ALL.iter().map(|class| (*class, of_stage(class))).filter(|(_, count)| *count > 0).collect(),
    })
}

impl fmt::Display for Cell {
    /// One value where both sides have it, else `96 → 104`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".into());
        match self.base == self.new {
            true => f.write_str(&show(&self.new)),
            false => write!(f, "{} → {}", show(&self.base), show(&self.new)),
        }
    }
}
