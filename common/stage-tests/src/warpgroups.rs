//! Tests of stages with a warpgroup that loads and others that compute: the registers that these
//! share, which rows a block has, and the order in which causal blocks start.

use crate::tier0::failures_on;
use crate::{load, not_checked};
use common::device::Staged;
use common::device::emulated::{Selection, trace};
use common::evidence::count;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::Attention;
use common::tier0::{Case, SCHEDULES};

/// The registers of a multiprocessor; a thread gets them by 8.
const REGISTERS: u32 = 65_536;

/// Bytes of K and V of the heads whose causal blocks start together: what stays in L2.
const GROUP_BYTES: usize = 32 << 20;

/// Fails where a block that shares out registers by setmaxnreg is launched with fewer than a block
/// can have: the shares of kernel.cu add up to those (128 * (4 * 112 + 32), 128 * (3 * 160 + 32),
/// 128 * (2 * 240 + 24) and 128 * (2 * 232 + 40)), and a warpgroup would wait for registers that
/// nobody gives back.
pub fn shared_registers(attention: &'static dyn Attention) {
    let stage = load(attention);
    let mut entry_count = 0;
    for kernel in &stage.kernels {
        if kernel.threads <= 256 {
            continue;
        }
        for entry in stage.ptxas_entries(kernel) {
            if entry.arch == "sm_90a" {
                let most = REGISTERS / kernel.threads / 8 * 8;
                assert_eq!(entry.resources.registers, most, "{}", kernel.symbol);
                entry_count += 1;
            }
        }
    }
    if entry_count == 0 {
        not_checked("built without nvcc");
    }
}

/// Fails unless a family that takes exponentials under the maxima of earlier tiles looks for none
/// in a further one, in each of its presets, and the others do.
pub fn lazy_maxima(attention: &'static dyn Attention, families: &[&str]) {
    let stage = load(attention);
    for kernel in &stage.kernels {
        let shuffles = |tiles| {
            let shape = Shape {
                seq_kv: tiles * kernel.block_n,
                ..Shape::bhsd(1, 1, 64, kernel.head_dim)
            };
            let problem = Problem::new(shape, kernel.dtype, Mask::Full).unwrap();
            let prepared = stage.prepare(&kernel.variant, &problem).unwrap();
            let inputs = Inputs::generate(&problem, Family::Normal, 0);
            let counted = count(&prepared, &Staged::new(&inputs, Layout::Packed));
            counted.unwrap().counters.shuffles
        };
        let has_more = shuffles(4) > shuffles(3);
        let is_lazy = families.contains(&kernel.family.as_str());
        assert_eq!(has_more, !is_lazy, "{}", kernel.symbol);
    }
}

/// Judges causal blocks, which start by groups of heads whose K and V stay in L2 together. Three
/// heads of so many keys are a group of two and one of one: no named shape has a last group that is
/// not whole. Of a head with more than twice as many not even one stays.
pub fn groups_of_heads(attention: &'static dyn Attention, variant: &str, dtype: Dtype) {
    let keys = GROUP_BYTES / (2 * 2 * 64 * dtype.bytes());
    // 65 rows: two tiles, one of a single row.
    for (heads_q, seq_q, seq_kv) in [(3, 65, keys), (1, 1, 2 * keys + 1)] {
        let shape = Shape {
            heads_kv: 1,
            seq_kv,
            ..Shape::bhsd(1, heads_q, seq_q, 64)
        };
        let problem = Problem::new(shape, dtype, Mask::Causal).unwrap();
        right(attention, variant, problem);
    }
}

/// Judges rows that do not fill the blocks of head_dim 128, 192 rows each: the last block has none
/// for its last warpgroups or, under the causal mask, the first. Those that it lacks are no row, or
/// of the block beside it. One row to three blocks, ragged and not, with more keys and with fewer,
/// so that the first rows see none.
pub fn rows_of_blocks(attention: &'static dyn Attention, variant: &str, dtype: Dtype) {
    for (seq_q, seq_kv) in [
        (1, 200),
        (65, 65),
        (192, 192),
        (256, 300),
        (321, 321),
        (449, 449),
        (577, 200),
    ] {
        for mask in Mask::ALL {
            let shape = Shape {
                seq_kv,
                ..Shape::bhsd(1, 1, seq_q, 128)
            };
            right(
                attention,
                variant,
                Problem::new(shape, dtype, mask).unwrap(),
            );
        }
    }
}

/// Returns the multiply-adds of each block of the first head, under the causal mask.
pub fn work_of_blocks(attention: &'static dyn Attention, variant: &str, shape: Shape) -> Vec<u64> {
    let stage = load(attention);
    let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
    let prepared = stage.prepare(variant, &problem).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let staged = Staged::new(&inputs, Layout::Packed);
    let mut macs = Vec::new();
    for block in 0..prepared.grid[0] {
        let selection = Selection {
            blocks: Some(&[[block, 0, 0]]),
            ..Selection::default()
        };
        let report = trace(&prepared, &staged, SCHEDULES[0], &selection).unwrap();
        assert_eq!(report.hazards, []);
        macs.push(report.counted.sum.tensor_macs);
    }
    macs
}

fn right(attention: &'static dyn Attention, variant: &str, problem: Problem) {
    let case = Case {
        problem,
        family: Family::Normal,
        schedules: &SCHEDULES[..1],
    };
    assert_eq!(
        failures_on(&load(attention), variant, &case, &[]),
        Vec::<String>::new()
    );
}
