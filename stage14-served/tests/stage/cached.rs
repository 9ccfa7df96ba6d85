//! Variants that read K and V in E4M3, and those that do not.

use common::check::{Target, check, failures};
use common::device::Staged;
use common::evidence::{Counters, count};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, parse_shape};
use common::serving::Cache;
use common::stage::Unsupported;
use common::tier0::SCHEDULES;
use emulator::Schedule;
use stage_tests::load;
use stage14_served::Served;

#[test]
fn a_variant_refuses_keys_of_another_type_than_it_reads() {
    let stage = load(&Served);
    let shape = parse_shape("2x2x33x64").unwrap();
    let plain = Problem::new(shape, Dtype::Bf16, Mask::Full).unwrap();
    let cached = plain.in_cache(Some(Cache::E4m3)).unwrap();
    for variant in stage.variants() {
        let (taken, refused) = match stage.cache_of(variant) {
            Some(_) => (cached, plain),
            None => (plain, cached),
        };
        assert!(stage.prepare(variant, &taken).is_ok(), "{variant}");
        let expected = Unsupported::Cache {
            variant: variant.to_string(),
            reads: taken.kv_dtype(),
            given: refused.kv_dtype(),
        };
        assert_eq!(stage.prepare(variant, &refused).unwrap_err(), expected);
    }
}

/// A block takes items of several sequences and heads, whose scales differ: of few and of many tiles of keys, with and without
/// log-sum-exps.
#[test]
fn items_of_one_block_have_scales_of_their_own() {
    let stage = load(&Served);
    for text in [
        "9x8:4x1:400x128+packed=even:0:3+page=64+cache=e4m3",
        "5x4:2x150:260x64+packed=mixed:1:2+page=16+window=90:*+sinks+cap=20+cache=e4m3",
    ] {
        let shape = parse_shape(text).unwrap();
        let problem = Problem::new(shape, Dtype::Bf16, Mask::Causal).unwrap();
        for variant in stage.variants() {
            if stage.cache_of(variant).is_none() {
                continue;
            }
            let target = Target::Emulated {
                schedules: &SCHEDULES,
                traced: &[Schedule::InOrder],
                suppress: None,
            };
            let outcome = check(&stage, variant, &problem, Family::Normal, target);
            assert_eq!(failures(outcome), [], "{variant} {}", problem.shape);
        }
    }
}

/// At head_dim 96, whose rows have six chunks of codes, there are some.
#[test]
fn codes_of_head_dim_64_and_128_are_widened_without_bank_conflicts() {
    let stage = load(&Served);
    for head_dim in [64, 128] {
        let shape = parse_shape(&format!("1x1x64:256x{head_dim}+cache=e4m3")).unwrap();
        let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
        let inputs = Inputs::generate(&problem, Family::Normal, 0);
        for variant in stage.variants() {
            if stage.cache_of(variant).is_none() {
                continue;
            }
            let prepared = stage.prepare(variant, &problem).unwrap();
            let counted = count(&prepared, &Staged::new(&inputs, Layout::Packed)).unwrap();
            let Counters {
                shared_read,
                shared_write,
                ..
            } = counted.counters;
            let conflicts = [shared_read, shared_write].map(|traffic| traffic.conflicts());
            assert_eq!(conflicts, [0, 0], "{variant} at head_dim {head_dim}");
        }
    }
}
