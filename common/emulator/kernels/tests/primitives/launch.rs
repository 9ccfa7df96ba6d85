//! Launches written as in CUDA, and what both builds report of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use emulator::trace::{Hazard, HazardKind};
use emulator::{Fault, TensorMap};
use emulator_kernels::KERNELS;

use crate::support::{Buffer, Run, SCHEDULES};

/// Rows of 32 floats, 8 of them in a box of 1,024 bytes; one head per 16 rows.
pub const TILES: TensorMap = TensorMap {
    base: 0,
    extents: [32, 128, 1, 1],
    strides: [128, 128 * 16, 128 * 16],
    box_columns: 32,
    box_rows: 8,
    swizzle: 128,
    element_bytes: 4,
};

/// 64 rows of 64 halves, all in one box.
const HALVES: TensorMap = TensorMap {
    extents: [64, 128, 1, 1],
    strides: [128, 128 * 128, 128 * 128],
    box_columns: 64,
    box_rows: 64,
    element_bytes: 2,
    ..TILES
};

/// `KERNEL<<<BLOCKS, THREADS, SHARED>>>(N[0], …)` of the plain build; numbers may be sums. `elements A..B`: the bytes of
/// `in[0]` that are elements; `rows N`: of the first tensor map.
pub fn plain(launch: &str) -> Run {
    read(launch, 0)
}

pub fn traced(launch: &str) -> Run {
    read(launch, 1)
}

fn read(launch: &str, build: usize) -> Run {
    let parse = || {
        let (kernel, rest) = launch.split_once("<<<")?;
        let (shape, rest) = rest.split_once(">>>(")?;
        let (numbers, options) = rest.split_once(')')?;
        let sum = |text: &str| {
            text.split('+')
                .map(|part| part.trim().parse::<i32>().ok())
                .sum()
        };
        let list = |text: &str| text.split(", ").map(sum).collect::<Option<Vec<i32>>>();
        let numbers = if numbers.is_empty() {
            vec![]
        } else {
            list(numbers)?
        };
        let (_, entries) = KERNELS.iter().find(|(name, _)| *name == kernel)?;
        let [blocks, threads, shared] = list(shape)?[..] else {
            return None;
        };
        let mut run = Run::new(entries[build], threads as u32).shared(shared as usize);
        run = match kernel {
            "cluster_exchange" | "cluster_barrier_missed" => run.cluster(blocks as u32),
            // Enough for what ends, and over soon for what does not.
            "loops_for_ever" => run.patience(Duration::from_millis(50)),
            _ => run.blocks(blocks as u32),
        };
        let mut first = TILES;
        for option in options.split_terminator(", ").skip(1) {
            match option.split_once(' ')? {
                ("elements", range) => {
                    let (start, end) = range.split_once("..")?;
                    run = run.elements(start.parse().ok()?..end.parse().ok()?);
                }
                ("rows", rows) => first.extents[1] = rows.parse().ok()?,
                _ => return None,
            }
        }
        let floats: Vec<f32> = (0..4096).map(|i| i as f32).collect();
        run = run.input(0, &floats);
        let maps = maps(kernel, first);
        if maps.is_empty() && !kernel.starts_with("tma") {
            run = run.input(1, &floats).input(2, &floats);
        }
        for (buffer, map) in maps {
            run = run.map(buffer, map);
        }
        Some(
            (0..)
                .zip(numbers)
                .fold(run, |run, (index, number)| run.number(index, number)),
        )
    };
    parse().unwrap_or_else(|| {
        panic!("{launch:?} is no launch: KERNEL<<<BLOCKS, THREADS, SHARED>>>(N[0], …)")
    })
}

/// The tensor maps in `in[1]`.
fn maps(kernel: &str, first: TensorMap) -> Vec<(Buffer, TensorMap)> {
    let half = TensorMap {
        box_rows: 4,
        ..TILES
    };
    let blocks = TensorMap {
        extents: [32, 16, 4, 1],
        ..TILES
    };
    match kernel {
        "tma_ring" => vec![(Buffer::Input, first), (Buffer::Input, half)],
        "tma_refill" => vec![(Buffer::Input, TILES)],
        "tma_store_tiles" => vec![(Buffer::Input, TILES), (Buffer::Output, blocks)],
        "tma_misused" => vec![(Buffer::Input, TILES), (Buffer::Output, TILES)],
        "wgmma_of_boxes" => vec![(Buffer::Input, HALVES)],
        _ => vec![],
    }
}

fn key(hazard: &Hazard) -> (HazardKind, Vec<String>) {
    let sides = [&hazard.first, &hazard.second].into_iter().flatten();
    let mut places: Vec<String> = sides.map(|side| side.places[0].to_string()).collect();
    places.sort();
    (hazard.kind, places)
}

/// What the judge finds, and under how many of the schedules.
pub fn hazards(launch: &str) -> Vec<(Hazard, usize)> {
    let mut found: BTreeMap<_, (Hazard, usize)> = BTreeMap::new();
    for schedule in SCHEDULES {
        let mut hazards = BTreeMap::new();
        for hazard in traced(launch).schedule(schedule).trace([8192, 0]).hazards {
            hazards.entry(key(&hazard)).or_insert(hazard);
        }
        for (key, hazard) in hazards {
            found.entry(key).or_insert((hazard, 0)).1 += 1;
        }
    }
    found.into_values().collect()
}

/// What stops the plain build under each schedule.
pub fn faults(launch: &str) -> [Option<Fault>; 5] {
    SCHEDULES.map(|schedule| plain(launch).schedule(schedule).output::<u8>(8192).err())
}

pub fn hazards_of<'a>(launches: impl IntoIterator<Item = &'a str>) -> String {
    let text = |(mut hazard, schedules): (Hazard, usize)| {
        let [first, second] =
            [&hazard.first, &hazard.second].map(|side| Some(side.as_ref()?.block));
        if second.is_some() && first != second && !hazard.memory.contains("shared memory") {
            // Blocks run on several OS threads, which decide where and how often two of them meet.
            hazard.memory.clear();
            hazard.times = 1;
        }
        match schedules {
            5 => hazard.to_string(),
            _ => format!("{schedules} of 5 schedules: {hazard}"),
        }
    };
    let section_of = |launch| {
        let found = hazards(launch);
        assert!(!found.is_empty(), "{launch} is not flagged");
        section(launch, found.into_iter().map(text))
    };
    launches.into_iter().map(section_of).collect()
}

/// The faults of these launches, which stop under every schedule, for a snapshot.
pub fn faults_of<'a>(launches: impl IntoIterator<Item = &'a str>) -> String {
    let section_of = |launch| {
        let [first, others @ ..] = faults(launch);
        assert!(
            others.iter().all(Option::is_some),
            "{launch} runs to its end"
        );
        section(launch, first.map(|fault| fault.to_string()))
    };
    launches.into_iter().map(section_of).collect()
}

fn section(launch: &str, texts: impl IntoIterator<Item = String>) -> String {
    let line = |text: String| format!("- {}\n", without_addresses(&by_source(&text)));
    format!(
        "{launch}\n{}\n",
        texts.into_iter().map(line).collect::<String>()
    )
}

/// Places `cu/FILE:LINE` as the comment of that line, or the line itself where it has none.
fn by_source(text: &str) -> String {
    let mut parts = text.split("cu/");
    let mut replaced = parts.next().unwrap().to_owned();
    for part in parts {
        let (file, rest) = part.split_once(':').unwrap();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cu").join(file);
        let source = std::fs::read_to_string(path).unwrap();
        let line = source
            .lines()
            .nth(rest[..digits].parse::<usize>().unwrap() - 1)
            .unwrap();
        let words = match line.split_once("// ") {
            Some((_, comment)) => comment.into(),
            None if line.len() > 60 => format!("{}…", line.trim().split_at(48).0),
            None => line.trim().to_owned(),
        };
        replaced += &format!("{file} `{words}`{}", &rest[digits..]);
    }
    replaced
}

/// Addresses are others in each run.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut replaced = parts.next().unwrap().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        let number = if digits > 8 { "…" } else { &part[..digits] };
        replaced += &format!("0x{number}{}", &part[digits..]);
    }
    replaced
}

/// No schedule makes the judge flag these launches.
pub fn assert_clean<'a>(launches: impl IntoIterator<Item = &'a str>) {
    for launch in launches {
        if let Some((hazard, schedules)) = hazards(launch).first() {
            panic!("{launch} is flagged under {schedules} schedules: {hazard}");
        }
    }
}
