//! Shared memory by buffer.

use super::words::short_name;
use common::metric::grouped;
use common::resources::{Multiprocessor, RESERVED_SHARED_BYTES, multiprocessor};
use document::{Block, Cell, Table, TableRow, row};
use results::judge::list::{Grouped, count, grouped as grouped_by};
use results::table::{StageMeta, Subject};

/// A compiled instance of a variant, and what its blocks hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The name in the symbol: `wmma_pv_32x64_f16_d64`.
    pub instance: String,
    /// The buffers in the order of kernel.cu; of a union, all that may stand there.
    pub buffers: Vec<Buffer>,
    pub bytes: usize,
}

/// A part of the shared memory of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// `q`, or `ring.k` for the K tiles of a ring.
    pub name: String,
    pub bytes: usize,
}

/// The architectures whose limits are shown: that of the GPU that every stage is for, and the
/// smallest.
const GPUS: [&str; 2] = ["sm_90", "sm_89"];

/// The bytes of a unit in which an SM hands shared memory out.
const UNIT: usize = 128;

/// The bytes of a buffer that holds nothing: a type that is empty in this instance.
const EMPTY: usize = 1;

/// Returns a row per variant and instance of a stage; instances that are laid out alike share one.
pub fn rows(stage: &StageMeta, layouts: &[Layout]) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for variant in &stage.variants {
        let subject = stage.subject(&variant.name);
        let mut instances = Vec::new();
        for layout in layouts {
            if let Some(name) = instance_of(&variant.name, layout) {
                instances.push(((&layout.buffers, layout.bytes), name));
            }
        }
        for Grouped {
            key: (buffers, bytes),
            values: names,
        } in grouped_by(instances)
        {
            rows.push(instance_row(&subject, &names.join(", "), buffers, bytes));
        }
    }
    rows
}

/// Returns `f16 d64` if the layout is of the variant.
fn instance_of(variant: &str, layout: &Layout) -> Option<String> {
    let prefix = variant.replace('-', "_");
    let rest = layout.instance.strip_prefix(&prefix)?.strip_prefix('_')?;
    // `f16_d64`: a longer name is another variant's.
    let is_own = rest.split('_').count() == 2;
    is_own.then(|| rest.replace('_', " "))
}

/// Returns the table of these rows, and what its figures are; nothing where there is no row.
pub fn table(rows: Vec<TableRow>) -> Vec<Block> {
    if rows.is_empty() {
        return vec![];
    }
    let limits = GPUS.map(|gpu| {
        let limit = multiprocessor(gpu).map_or(0, |sm| sm.shared_opt_in_bytes);
        format!("{} bytes on {gpu}", grouped(limit as u64))
    });
    let about = format!(
        "Bytes of each buffer of `Shared`, `ring.k` being part of `ring`, and their sum, with the \
         share of what a block may have ({}). Blocks that fit an SM by shared memory alone; \
         `resources` has those that fit by registers, too.",
        limits.join(", ")
    );
    vec![
        Block::Table(Table::from_rows(rows)),
        Block::paragraph(about),
    ]
}

fn instance_row(subject: &Subject, instance: &str, buffers: &[Buffer], bytes: usize) -> TableRow {
    let mut cells = row! {
        "variant" => short_name(subject),
        "instance" => instance,
        "buffers" => buffers_cell(buffers),
        "bytes" => Cell::Figure(grouped(bytes as u64)),
    };
    for gpu in GPUS {
        if let Some(sm) = multiprocessor(gpu) {
            cells.push((gpu.to_string(), fit_cell(bytes, &sm)));
        }
    }
    cells
}

fn buffers_cell(buffers: &[Buffer]) -> String {
    let first_gpu = multiprocessor(GPUS[0]);
    let mut parts = Vec::new();
    for Buffer { name, bytes } in buffers {
        if *bytes > EMPTY {
            let share = match &first_gpu {
                Some(sm) => percent(*bytes, sm),
                None => String::new(),
            };
            parts.push(format!("{name} {}{share}", grouped(*bytes as u64)));
        }
    }
    parts.join(", ")
}

/// Returns how many blocks of so many bytes a multiprocessor holds.
fn fit_cell(bytes: usize, sm: &Multiprocessor) -> Cell {
    let share = percent(bytes, sm);
    if bytes > sm.shared_opt_in_bytes {
        return format!("too large{share}").into();
    }
    let blocks = count(blocks(bytes, sm), "block", "blocks");
    format!("{blocks}{share}").into()
}

/// Returns the share of what a block may have: ` (23.8 %)`.
fn percent(bytes: usize, sm: &Multiprocessor) -> String {
    let share = 100.0 * bytes as f64 / sm.shared_opt_in_bytes as f64;
    format!(" ({share:.1} %)")
}

fn blocks(bytes: usize, sm: &Multiprocessor) -> usize {
    let block_bytes = (bytes + RESERVED_SHARED_BYTES).next_multiple_of(UNIT);
    (sm.shared_bytes / block_bytes).min(sm.blocks as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use document::markdown::markdown;
    use results::testing::ladder;

    fn layout(instance: &str, buffers: &[(&str, usize)], bytes: usize) -> Layout {
        let mut named_buffers = Vec::new();
        for (name, size) in buffers {
            named_buffers.push(Buffer {
                name: name.to_string(),
                bytes: *size,
            });
        }
        Layout {
            instance: instance.into(),
            buffers: named_buffers,
            bytes,
        }
    }

    /// The layouts are those of stage 3, whose instances of 128 columns an L4 cannot hold twice.
    #[test]
    fn buffers_have_their_bytes_their_share_and_the_blocks_that_fit() {
        let small = [
            ("q", 4608),
            ("k", 18_432),
            ("v", 18_432),
            ("staging", 1),
            ("p", 13_824),
        ];
        let large = [("q", 8704), ("ring", 110_000), ("ring.k", 55_000)];
        let layouts = [
            layout("wmma_qk_32x64_f16_d64", &small, 55_296),
            layout("wmma_qk_32x64_e4m3_d64", &small, 55_296),
            layout("wmma_qk_32x64_f16_d128", &large, 118_704),
            layout("wmma_qk_32x64_k2_f16_d64", &large, 118_704),
        ];
        let stages = ladder();
        let page = markdown(&table(rows(&stages[0], &layouts)));
        for line in [
            "| variant | instance | buffers | bytes | sm_90 | sm_89 |",
            "| stage0/wmma-qk-32x64 | f16 d64, e4m3 d64 \
             | q 4,608 (2.0 %), k 18,432 (7.9 %), v 18,432 (7.9 %), p 13,824 (5.9 %) \
             | 55,296 | 4 blocks (23.8 %) | 1 block (54.5 %) |",
            "| stage0/wmma-qk-32x64 | f16 d128 \
             | q 8,704 (3.7 %), ring 110,000 (47.3 %), ring.k 55,000 (23.7 %) \
             | 118,704 | 1 block (51.1 %) | too large (117.1 %) |",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(!page.contains("k2"), "another variant's: {page}");
    }
}
