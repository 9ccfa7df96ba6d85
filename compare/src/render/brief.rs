//! `compare brief`, laid out.

mod insights;

use super::document::Block;
use super::markdown;
use super::markdown::cells::{microseconds, speedup};
use crate::comparison::representative::instance;
use crate::comparison::{ClaimRow, Committed, FIGURES, Judgement, Latency, Origin, Report, Row};
use crate::tune::{Elites, Entry};
use common::evidence::{Counters, Quantity};
use common::gate;
use common::problem::{Dtype, NAMED_SHAPES, claims_problem};
use common::record::{Gpu, Profiled, StageBuild, VariantBuild};
use common::resources::multiprocessor;
use insights::{Known, insights};

/// The brief of stage `id`, which `report` has.
pub fn blocks(report: &Report, id: &str, elites: &[Elites], committed: &[Committed]) -> Vec<Block> {
    let Some(stage) = report.stages.iter().find(|stage| stage.id == id) else { return Vec::new() };
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.stage == id).collect();
    let headline = rows.iter().find(|row| row.is_headline).map_or(&stage.default_variant, |row| &row.variant);
    let variant = stage.variant(headline);
    let counted = report.counters.iter().find(|row| row.stage == id && row.variant == *headline);
    let counting = counted.map(|row| &row.counting);
    let launch = counting.and_then(|counting| counting.launch().ok());
    let profiled = profiled(report, id, headline);
    let mut blocks = vec![Block::Strong(format!("Brief of {id}: {}", stage.idea))];
    blocks.push(Block::Text(source(report)));
    blocks.extend(task(stage));
    blocks.extend(limits(report, stage));
    blocks.extend(section("Figures", figures(&rows)));
    blocks.extend(section("Best presets known (tune/)", best_presets(stage, elites)));
    blocks.push(Block::Heading(format!("Compiled: {headline}")));
    blocks.push(compiled(variant));
    let stale = |is_stale: bool| if is_stale { "; STALE: the kernel has changed since" } else { "" };
    let counted_stale = stale(counted.is_some_and(|row| row.is_stale));
    blocks.push(Block::Heading(format!("Counted on mission, f16, full mask: {headline}{counted_stale}")));
    blocks.push(match launch {
        Some(launch) => counters(launch),
        None => Block::Text("NO DATA: no committed record counts it.".into()),
    });
    let profiled_stale = stale(profiled.is_some_and(|launch| launch.identity != stage.identity));
    blocks.push(Block::Heading(format!("Profiled on mission, f16, full mask (ncu): {headline}{profiled_stale}")));
    blocks.push(ncu(profiled));
    blocks.push(Block::Heading("What follows".into()));
    let multiprocessors = match gpu(report) {
        Some(Gpu::Present { multiprocessors, .. }) => Some(*multiprocessors),
        _ => None,
    };
    blocks.push(Block::Bullets(insights(&Known { variant, counting, profiled, multiprocessors })));
    blocks.push(Block::Heading("Promises to beat".into()));
    let rows = [rows_of(id, &report.claims), rows_of(id, &report.peer_claims), rows_of(id, &report.evidence_claims)];
    blocks.push(some_table(&["claim", "verdict", "measured"], rows.concat(), "It claims nothing."));
    blocks.push(Block::Heading("Tried in vain".into()));
    blocks.push(negatives(id, committed));
    blocks
}

fn section(title: &str, block: Block) -> [Block; 2] {
    [Block::Heading(title.to_string()), block]
}

fn source(report: &Report) -> String {
    match &report.subject {
        Some(subject) => {
            let gpu = subject.meta.machine.gpu.name().unwrap_or("no GPU");
            format!("Figures of the committed record {} ({gpu}), unless said otherwise.", subject.name)
        }
        None => "NO DATA: there is no committed record.".to_string(),
    }
}

fn task(stage: &StageBuild) -> Vec<Block> {
    let shapes = NAMED_SHAPES.iter().map(|named| vec![named.name.to_string(), named.shape.to_string()]).collect();
    let presets = stage.variants.iter().filter_map(|variant| {
        let facts = &instance(variant)?.facts;
        let name = if variant.name == stage.default_variant {
            format!("{} (default)", variant.name)
        } else {
            variant.name.clone()
        };
        Some(vec![
            name,
            format!("{}x{}", facts.block_m, facts.block_n),
            facts.threads.to_string(),
            facts.min_blocks.to_string(),
            facts.register_limit().to_string(),
            facts.dynamic_shared_bytes.to_string(),
        ])
    });
    let problem = claims_problem(Dtype::F16);
    vec![
        Block::Heading("Task".into()),
        Block::Bullets(vec![
            format!(
                "Fused attention forward in {id}/kernel.cu; f16 and e4m3, head_dim 64 and 128, full and causal masks, any \
                 length. Claims are stated on mission ({shape}), full mask, each with f16 and with e4m3.",
                id = stage.id,
                shape = problem.shape
            ),
            match &stage.predecessor {
                Some(before) => format!("It is a diff of {before}: one idea, everything else as it is."),
                None => "It is the control: every other stage is a diff of the one before.".to_string(),
            },
            format!(
                "Gates: C1 complete; C2 max error ≤ {} × plain + {} ulps, mean over rows ≤ about {} × plain; C3 per row ≤ {:.0e}; C5 \
                 bitwise; C6 in its buffers; B1 as the emulator; H1 no hazard; R1 no spill, no stack, within its caps.csv; E1 the \
                 predictions; L1 the speedups.",
                gate::C2_PLAIN_FACTOR,
                gate::C2_OUTPUT_ULPS,
                gate::C2_ROWS_FACTOR,
                gate::C3_ROW
            ),
            format!(
                "Check a change: `cargo run --release -p compare -- --stages {id} --quick`, then without --quick; rank its \
                 presets with `compare tune --stages {id}` on a GPU; review it with `scripts/review main`.",
                id = stage.id
            ),
        ]),
        table(&["shape", "batch x heads x length x head_dim"], shapes),
        Block::Heading("Presets (f16, head_dim 64)".into()),
        table(
            &["variant", "tile (queries x keys)", "threads", "min blocks", "registers at most", "dynamic shared B"],
            presets.collect(),
        ),
    ]
}

/// The limits of every architecture that the stage is built for; of the record's GPU where it is built for none.
fn limits(report: &Report, stage: &StageBuild) -> Vec<Block> {
    let built = stage.variants.iter().flat_map(|variant| &variant.kernels).flat_map(|kernel| &kernel.built);
    let mut archs: Vec<&str> = built.map(|built| built.ptxas.arch.as_str()).collect();
    archs.sort_unstable();
    archs.dedup();
    if let (true, Some(Gpu::Present { arch, .. })) = (archs.is_empty(), gpu(report)) {
        archs.push(arch);
    }
    let rows: Vec<Vec<String>> = archs
        .iter()
        .filter_map(|arch| {
            let sm = multiprocessor(arch)?;
            let figures = [
                sm.registers as usize,
                sm.threads as usize,
                sm.blocks as usize,
                sm.shared_bytes,
                sm.shared_opt_in_bytes,
            ];
            Some([arch.to_string()].into_iter().chain(figures.map(|figure| figure.to_string())).collect())
        })
        .collect();
    let head = ["architecture", "registers", "threads", "blocks", "shared B", "shared B of one block"];
    section(
        "Limits of a multiprocessor",
        some_table(&head, rows, "NO DATA: no record is of a GPU, and none of this kernel was built by nvcc."),
    )
    .into()
}

fn table(head: &[&'static str], rows: Vec<Vec<String>>) -> Block {
    Block::Table(head.to_vec(), rows)
}

fn some_table(head: &[&'static str], rows: Vec<Vec<String>>, otherwise: &str) -> Block {
    if rows.is_empty() { Block::Text(otherwise.to_string()) } else { table(head, rows) }
}

fn figures(rows: &[&Row]) -> Block {
    let cells = |row: &&Row| {
        let [p50, previous, first] = match &row.latency {
            Latency::Measured { figures, origin } => {
                let stale = if matches!(origin, Origin::Stale { .. }) { " STALE" } else { "" };
                [
                    format!("{}{stale}", microseconds(figures.p50)),
                    speedup(figures.vs_previous.as_ref()),
                    speedup(figures.vs_first.as_ref()),
                ]
            }
            _ => ["NO DATA".to_string(), "–".to_string(), "–".to_string()],
        };
        let name = if row.is_headline { format!("{} (fastest)", row.variant) } else { row.variant.clone() };
        let error = row.worst.as_ref().map_or("–".to_string(), |worst| format!("{:.1e}", worst.max_abs));
        vec![name, markdown::state(&row.state), p50, previous, first, error]
    };
    table(&["variant", "verdict", "p50 µs", "vs previous", "vs stage 0", "max error"], rows.iter().map(cells).collect())
}

fn best_presets(stage: &StageBuild, elites: &[Elites]) -> Block {
    let rows = elites.iter().flat_map(|file| {
        let of_stage = file.entries.iter().filter(|entry| entry.stage == stage.id);
        of_stage.map(|entry| {
            let Entry { shape_name, dtype, mask, identity, best, .. } = entry;
            let best: Vec<String> =
                best.iter().map(|ranked| format!("{} {}", ranked.variant, microseconds(ranked.p50_us))).collect();
            let of = if *identity == stage.identity { "this kernel" } else { "STALE: the kernel has changed" };
            vec![file.gpu.clone(), format!("{shape_name} {dtype} {mask}"), best.join(", "), of.to_string()]
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    some_table(&["GPU", "problem", "best, p50 µs", "of"], rows, "NO DATA: it was not tuned; `compare tune` on a GPU.")
}

fn compiled(variant: Option<&VariantBuild>) -> Block {
    let mut rows = Vec::new();
    for kernel in variant.into_iter().flat_map(|variant| &variant.kernels) {
        for built in &kernel.built {
            let used = &built.ptxas.resources;
            let occupancy = built.occupancy.map_or("?".to_string(), |occupancy| {
                format!("{:.0} %, limited by {}", occupancy.percent(), occupancy.limit.label())
            });
            rows.push(vec![
                format!("{} d{}", kernel.facts.dtype, kernel.facts.head_dim),
                built.ptxas.arch.clone(),
                format!("{} of {}", used.registers, kernel.facts.register_limit()),
                (used.spill_store_bytes + used.spill_load_bytes).to_string(),
                kernel.facts.dynamic_shared_bytes.to_string(),
                occupancy,
            ]);
        }
    }
    let head = ["instance", "architecture", "registers", "spilled B", "dynamic shared B", "occupancy"];
    some_table(&head, rows, "NO DATA: no record of this kernel was built by nvcc.")
}

fn counters(launch: &Counters) -> Block {
    let rows = Quantity::all_counted().filter_map(|quantity| {
        let value = quantity.counted(launch)?;
        (value != 0.0).then(|| vec![quantity.to_string(), quantity.show(value)])
    });
    table(&["counter (0 where not listed)", "value"], rows.collect())
}

/// What ncu read of the variant on the claims' problem.
fn profiled<'a>(report: &'a Report, id: &str, variant: &str) -> Option<&'a Profiled> {
    let claims = claims_problem(Dtype::F16);
    let mut launches = report.profile.iter().flat_map(|profile| &profile.launches);
    launches.find(|launch| {
        (launch.stage.as_str(), launch.variant.as_str()) == (id, variant)
            && (launch.shape, launch.dtype, launch.mask) == (claims.shape, claims.dtype, claims.mask)
    })
}

fn ncu(launch: Option<&Profiled>) -> Block {
    let row = |launch: &Profiled| {
        let shown = |figure: &crate::comparison::Figure| {
            let value = figure.value(&launch.metrics)?;
            Some(vec![figure.label.to_string(), figure.show(value), figure.meaning.to_string()])
        };
        FIGURES.iter().filter_map(shown).collect()
    };
    let otherwise = "NO DATA: the record has no profile of it; `compare profile` on its GPU completes it.";
    some_table(&["figure", "value", "is"], launch.map(row).unwrap_or_default(), otherwise)
}

fn gpu(report: &Report) -> Option<&Gpu> {
    report.subject.as_ref().map(|subject| &subject.meta.machine.gpu)
}

fn rows_of<J: Judgement>(id: &str, claims: &[ClaimRow<J>]) -> Vec<Vec<String>> {
    let of_stage = claims.iter().filter(|claim| claim.stage == id);
    of_stage
        .map(|claim| {
            let (verdict, measured) = markdown::claim_state(&claim.state);
            vec![claim.terms.to_string(), verdict, measured]
        })
        .collect()
}

fn negatives(id: &str, committed: &[Committed]) -> Block {
    let mut lines = Vec::new();
    for (name, record) in committed {
        let Some(negative) = &record.negative else { continue };
        for claim in negative.claims.iter().filter(|claim| claim.stage == id) {
            let what = if claim.what.is_empty() { claim.family.as_str() } else { claim.what.as_str() };
            lines.push(format!("{name}: {what}: {}. {}", claim.evidence, negative.reason));
        }
    }
    if lines.is_empty() {
        Block::Text("No committed record refutes a claim of it.".into())
    } else {
        Block::Bullets(lines)
    }
}

#[cfg(test)]
mod tests;
