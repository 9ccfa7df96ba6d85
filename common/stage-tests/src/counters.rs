//! The emulator's counters: a pull request shows "bank conflicts 12,288 -> 0" as a change in a
//! snapshot.

use crate::{Snapshot, load};
use common::device::Staged;
use common::device::emulated::{Selection, blocks, trace};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, parse_shape};
use common::stage::{Attention, Prepared};
use common::tier0::SCHEDULES;
use emulator::Schedule;
use emulator::trace::Counted;
use std::fmt::Write;

/// Counters are exact for one host compiler; the snapshots are of this version of GCC. `.ci/run`
/// reads this line.
const PINNED_GCC: u32 = 12;

/// The problems that are counted: the whole launch of `small`, the first and the last block of
/// `mission`. Under the causal mask these are the ones with the fewest and the most keys: a kernel
/// that computes tiles which the mask hides is as right as one that skips them.
const COUNTED: [(&str, Mask); 3] = [
    ("small", Mask::Full),
    ("mission", Mask::Full),
    ("mission", Mask::Causal),
];

/// Fails unless the counters are the same under every schedule. Returns those of each family's
/// first preset, in f16 or the first element type that the stage takes.
pub fn counters(attention: &'static dyn Attention) -> Snapshot {
    let stage = load(attention);
    let compiler = &stage.report.compiler;
    if compiler.major != Some(PINNED_GCC) {
        return Snapshot::NotHere(format!(
            "the snapshot holds for GCC {PINNED_GCC}, this is {}; name one in CXX",
            compiler.description
        ));
    }
    if let Some(device) = stage.device {
        return Snapshot::NotHere(format!(
            "the snapshot is of a device that runs every variant, not of {device}"
        ));
    }
    let mut text = String::new();
    let has_f16 = stage.takes(Dtype::F16);
    let dtype = if has_f16 { Dtype::F16 } else { Dtype::E4m3 };
    for (shape, mask) in COUNTED {
        let sizes = parse_shape(shape).expect("it is a named shape");
        let named = Problem::new(sizes, dtype, mask).expect("named shapes are valid");
        let name = match mask {
            Mask::Full => shape.to_string(),
            Mask::Causal => format!("{shape} causal"),
        };
        for variant in stage.family_variants() {
            let problem = named
                .in_cache(stage.cache_of(variant))
                .expect("a cache is for f16 and for these head sizes");
            let staged = Staged::new(
                &Inputs::generate(&problem, Family::Normal, 0),
                Layout::Packed,
            );
            let prepared = stage
                .prepare(variant, &problem)
                .unwrap_or_else(|unsupported| panic!("{unsupported}"));
            let count = |schedule| counted(&prepared, &staged, shape == "small", schedule);
            let counters = count(SCHEDULES[0]);
            for &schedule in &SCHEDULES[1..] {
                assert_eq!(count(schedule), counters, "{name}, {variant}, {schedule:?}");
            }
            let title = format!("{name}, {variant}");
            write(&mut text, &title, &counters).expect("a String takes all");
        }
    }
    Snapshot::Text(text.trim_end().to_string())
}

/// Returns the counters of all blocks, or of the two at the ends of the grid.
fn counted(
    prepared: &Prepared<'_>,
    staged: &Staged,
    is_whole: bool,
    schedule: Schedule,
) -> Counted {
    let ends = [[0; 3], blocks(prepared).map(|size| size - 1)];
    let selection = Selection {
        blocks: (!is_whole).then_some(&ends),
        ..Selection::default()
    };
    trace(prepared, staged, schedule, &selection)
        .unwrap_or_else(|error| panic!("{error}"))
        .counted
}

fn write(text: &mut String, name: &str, counted: &Counted) -> std::fmt::Result {
    let blocks = counted.launch_blocks;
    let bytes = counted.shared_bytes_touched;
    match counted.launch() {
        Some(launch) => writeln!(
            text,
            "{name}: {blocks} blocks, each in {bytes} bytes of shared memory\n{launch}\n"
        ),
        None => writeln!(
            text,
            "{name}: the first and the last of {blocks} blocks, which differ, each in {bytes} \
             bytes of shared memory\n{}\n",
            counted.sum
        ),
    }
}
