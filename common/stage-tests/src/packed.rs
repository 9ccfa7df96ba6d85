//! Tests of families that pack the query heads of a key head into one tile: which row is which
//! query's and head's, and which keys it sees.

use crate::load;
use common::check::{StagedInputs, Target, check, failures, launch};
use common::inputs::{Family, Inputs, Operand};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::reference;
use common::serving::Serving;
use common::stage::{Attention, LoadedStage};
use emulator::Schedule;
use std::sync::Arc;

const TARGET: Target<'_> = Target::Emulated {
    schedules: &[Schedule::InOrder, Schedule::Reversed],
    traced: &[],
    suppress: None,
};

fn variants_of<'a>(stage: &'a LoadedStage, family: &str) -> Vec<&'a str> {
    let prefix = format!("{family}-");
    let mut variants = stage.variants();
    variants.retain(|variant| variant.starts_with(&prefix));
    assert!(!variants.is_empty(), "{family} has no variant");
    variants
}

/// Judges each variant of `family` by the gates, with query heads that differ in their scales; C8
/// has the log-sum-exps, which every second launch is asked for. The extents are key heads,
/// queries, keys and head_dim.
pub fn packed_rows(
    attention: &'static dyn Attention,
    family: &str,
    group: usize,
    extents: [usize; 4],
    dtype: Dtype,
    mask: Mask,
) {
    let [heads_kv, seq_q, seq_kv, head_dim] = extents;
    let shape = Shape {
        batch: 2,
        heads_q: group * heads_kv,
        heads_kv,
        seq_q,
        seq_kv,
        head_dim,
        serving: Serving::DENSE,
    };
    let problem = Problem::new(shape, dtype, mask).unwrap();
    let inputs = match dtype {
        Dtype::E4m3 => Family::RandomScales,
        _ => Family::Normal,
    };
    let stage = load(attention);
    for variant in variants_of(&stage, family) {
        let failed = failures(check(&stage, variant, &problem, inputs, TARGET));
        assert_eq!(failed, [], "{variant} {shape} {dtype} {mask}");
    }
}

/// Calls [`packed_rows`] for problems in which rows and blocks of 64 or 128 rows meet, in FP16 where
/// the stage has no E4M3.
pub fn packed_blocks(attention: &'static dyn Attention, family: &str) {
    use Dtype::{Bf16, E4m3, F16};
    use Mask::{Causal, Full};
    let has_e4m3 = load(attention)
        .kernels
        .iter()
        .any(|kernel| kernel.dtype == E4m3);
    let codes = if has_e4m3 { E4m3 } else { F16 };
    for (group, extents, dtype, masks) in [
        // A group of one is a head.
        (1, [2, 5, 67, 64], F16, &[Causal][..]),
        // 195 rows: warpgroups and blocks end within a query, and the last of these is ragged.
        (3, [2, 65, 203, 128], codes, &Mask::ALL),
        (3, [2, 65, 203, 64], Bf16, &Mask::ALL),
        // 320 rows, of which the first 280 see no key: five groups of 64, so that a block of two
        // has one alone.
        (8, [1, 40, 5, 64], codes, &[Causal]),
        (8, [1, 40, 5, 128], F16, &[Causal]),
        // Groups that are larger than a block.
        (142, [1, 2, 130, 128], F16, &[Causal]),
        (71, [2, 1, 130, 64], codes, &[Full]),
    ] {
        for &mask in masks {
            packed_rows(attention, family, group, extents, dtype, mask);
        }
    }
}

/// Judges the log-sum-exps of 16 heads that are rows of one tile, whose scores around 2^30 only
/// their scales tell apart.
pub fn packed_far_rows(attention: &'static dyn Attention, family: &str) {
    let shape = Shape {
        heads_kv: 1,
        seq_kv: 130,
        ..Shape::bhsd(1, 16, 1, 64)
    };
    let operand = |extents: [usize; 4], scales: Vec<f32>| {
        let mut values = Vec::new();
        for scale in &scales {
            values.extend(vec![448.0 * scale; extents[2] * extents[3]]);
        }
        Operand::rounded(extents, Dtype::E4m3, values, Some(scales))
    };
    let head_scales = (16..32).map(|multiple| 32.0 * multiple as f32).collect();
    let inputs = Inputs {
        problem: Problem::new(shape, Dtype::E4m3, Mask::Full).unwrap(),
        q: operand(shape.q_extents(), head_scales),
        k: operand(shape.kv_extents(), vec![1.0]),
        v: operand(shape.kv_extents(), vec![1.0]),
    };
    let stage = load(attention);
    let staged = Arc::new(StagedInputs::new(&inputs, None));
    for variant in variants_of(&stage, family) {
        let launched = launch(&stage, variant, &staged, TARGET).unwrap();
        let reference = reference(&inputs, launched.probability).unwrap();
        let failed = failures(Ok(launched.judge(&reference)));
        assert_eq!(failed, [], "{variant}");
    }
}
