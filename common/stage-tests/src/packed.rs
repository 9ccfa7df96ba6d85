//! Of families that pack the query heads of a key head into one tile: which row is which query's and head's, and which keys it sees.

use crate::load;
use common::check::{Target, check, failures};
use common::inputs::Family;
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::Attention;
use emulator::Schedule;

/// Judges each variant of `family` by the gates, with query heads that differ in their scales; C8 has the log-sum-exps, which every
/// second launch is asked for. `extents`: key heads, queries, keys and head_dim.
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
    };
    let problem = Problem::new(shape, dtype, mask).unwrap();
    let inputs = match dtype {
        Dtype::E4m3 => Family::RandomScales,
        _ => Family::Normal,
    };
    let stage = load(attention);
    let prefix = format!("{family}-");
    let mut seen = 0;
    for variant in stage.variants() {
        if !variant.starts_with(&prefix) {
            continue;
        }
        let target = Target::Emulated {
            schedules: &[Schedule::InOrder, Schedule::Reversed],
            traced: &[],
        };
        let failed = failures(check(&stage, variant, &problem, inputs, target));
        assert_eq!(failed, [], "{variant} {shape} {dtype} {mask}");
        seen += 1;
    }
    assert!(seen > 0, "{family} has no variant");
}
