//! Items and the blocks that take them: outputs do not depend on who takes what, all items are taken, and each block has about
//! the same work.

use common::check::{Target, check, failures};
use common::device::Staged;
use common::device::emulated::{Selection, blocks, execute, trace};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::Prepared;
use common::tier0::SCHEDULES;
use emulator::Schedule;
use stage_tests::load;
use stage13_persistent::Persistent;

fn staged(problem: &Problem) -> Staged {
    let inputs = Inputs::generate(problem, Family::Normal, 0);
    Staged::new(&inputs, Layout::Strided)
}

/// Two batches of three heads, three tiles of rows each: 18 items.
fn ragged(head_dim: usize, mask: Mask) -> Problem {
    let shape = Shape {
        heads_kv: 3,
        seq_kv: 400,
        ..Shape::bhsd(2, 3, 290, head_dim)
    };
    Problem::new(shape, Dtype::F16, mask).unwrap()
}

/// One block that takes all items, blocks that take several, one for each, and more than there are items; as a part of a GPU or
/// another GPU would launch them.
#[test]
fn outputs_have_the_same_bits_whatever_the_number_of_blocks() {
    let stage = load(&Persistent);
    for (head_dim, mask) in [(64, Mask::Full), (128, Mask::Causal)] {
        let problem = ragged(head_dim, mask);
        let staged = staged(&problem);
        for variant in stage.family_variants() {
            let prepared = stage.prepare(variant, &problem).unwrap();
            let output = |count, schedule| {
                let launch = Prepared {
                    grid: [count, 1, 1],
                    is_persistent: false,
                    ..prepared.clone()
                };
                execute(&launch, &staged, schedule, None).unwrap().output
            };
            let items = prepared.items() as u32;
            let alone = output(1, Schedule::InOrder);
            for count in [2, 5, items, items + 3] {
                for schedule in SCHEDULES {
                    assert!(
                        output(count, schedule) == alone,
                        "{variant} {head_dim} {mask}: {count} blocks, {schedule:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_emulator_has_several_blocks_that_take_several_items() {
    let stage = load(&Persistent);
    let problem = ragged(64, Mask::Full);
    let prepared = stage.prepare("persistent-128x128", &problem).unwrap();
    assert_eq!(prepared.grid, [3, 3, 2]);
    assert_eq!(prepared.items(), 18);
    assert_eq!(blocks(&prepared), [6, 1, 1]);
    assert_eq!(prepared.blocks(132), [18, 1, 1]);
    assert_eq!(prepared.blocks(4), [4, 1, 1]);
}

/// Under the causal mask items take 1 to 8 tiles of keys; to and fro, no block has more than a seventh above the mean.
#[test]
fn blocks_have_about_the_same_work() {
    let stage = load(&Persistent);
    let shape = Shape::bhsd(1, 3, 1024, 64);
    let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
    let staged = staged(&problem);
    let prepared = stage.prepare("persistent-128x128", &problem).unwrap();
    let [count, ..] = blocks(&prepared);
    assert_eq!((prepared.items(), count), (24, 8));
    let macs: Vec<u64> = (0..count)
        .map(|block| {
            let selection = Selection {
                blocks: Some(&[[block, 0, 0]]),
                ..Selection::default()
            };
            let traced = trace(&prepared, &staged, SCHEDULES[0], &selection).unwrap();
            assert_eq!(traced.hazards, []);
            traced.counted.sum.tensor_macs
        })
        .collect();
    let mean = macs.iter().sum::<u64>() / u64::from(count);
    let most = macs.iter().max().copied().unwrap_or_default();
    assert!(most * 7 <= mean * 8, "{macs:?}");
}

/// Under the causal mask two of the three heads have K and V that stay in L2 together, and the third is a group of its own.
#[test]
fn heads_that_do_not_fill_their_group_are_computed_too() {
    let shape = Shape {
        heads_kv: 3,
        seq_kv: 65_536,
        ..Shape::bhsd(1, 3, 129, 64)
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
    let target = Target::Emulated {
        schedules: &SCHEDULES[..1],
        traced: &[],
        suppress: None,
    };
    let checked = check(
        &load(&Persistent),
        "persistent-128x128",
        &problem,
        Family::Normal,
        target,
    );
    assert_eq!(failures(checked), []);
}
