//! Launches written as in CUDA, and what both builds report of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use emulator::trace::{Access, Allocation, Counters, Hazard, HazardKind, Memory, Selection};
use emulator::{Entry, Fault, Place, Schedule, TensorMap, TraceReport};
use emulator_kernels::{KERNELS, KernelParams};

/// A correct kernel gives the same bits under all of them.
pub const SCHEDULES: [Schedule; 5] = [
    Schedule::InOrder,
    Schedule::Reversed,
    Schedule::Shuffled(1),
    Schedule::Shuffled(2),
    Schedule::Starving(1),
];

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

/// 64 rows of 64 FP16 values, all in one box.
const HALVES: TensorMap = TensorMap {
    extents: [64, 128, 1, 1],
    strides: [128, 128 * 128, 128 * 128],
    box_columns: 64,
    box_rows: 64,
    element_bytes: 2,
    ..TILES
};

/// The tensor of a tensor map: `in[0]` or `out[0]`.
#[derive(Clone, Copy, Debug)]
pub enum Buffer {
    Input,
    Output,
}

#[derive(Clone, Debug)]
pub struct Run {
    /// Of the plain and of the traced build.
    entries: [Entry; 2],
    pub grid: [u32; 3],
    pub block: [u32; 3],
    cluster: u32,
    pub shared_bytes: usize,
    pub inputs: [Vec<u8>; 3],
    pub numbers: [i32; 4],
    /// In `in[1]`, behind its bytes; bases are relative to the buffer's.
    pub maps: Vec<(Buffer, TensorMap)>,
    schedule: Schedule,
    patience: Duration,
    elements: Option<std::ops::Range<usize>>,
    suppress: Option<Place>,
}

/// `KERNEL<<<BLOCKS, THREADS, SHARED>>>(N[0], …)`; numbers may be sums. `elements A..B`: the bytes
/// of `in[0]` that are elements, the others are guard bands; `rows N`: of the first tensor map.
pub fn launch(text: &str) -> Run {
    let parse = || {
        let (kernel, rest) = text.split_once("<<<")?;
        let (shape, rest) = rest.split_once(">>>(")?;
        let (numbers, options) = rest.split_once(')')?;
        let sum = |text: &str| {
            text.split('+')
                .map(|part| part.trim().parse::<i32>().ok())
                .sum()
        };
        let list = |text: &str| text.split(", ").map(sum).collect::<Option<Vec<i32>>>();
        let (_, entries) = KERNELS.iter().find(|(name, _)| *name == kernel)?;
        let [blocks, threads, shared_bytes] = list(shape)?[..] else {
            return None;
        };
        let mut run = Run {
            entries: *entries,
            grid: [blocks as u32, 1, 1],
            block: [threads as u32, 1, 1],
            cluster: match kernel {
                "cluster_exchange" | "cluster_barrier_missed" => blocks as u32,
                _ => 1,
            },
            shared_bytes: shared_bytes as usize,
            inputs: Default::default(),
            numbers: [0; 4],
            maps: Vec::new(),
            schedule: Schedule::InOrder,
            // Enough for what ends, and over soon for what does not.
            patience: match kernel {
                "loops_for_ever" => Duration::from_millis(50),
                _ => emulator::Launch::PATIENCE,
            },
            elements: None,
            suppress: None,
        };
        if !numbers.is_empty() {
            let numbers = list(numbers)?;
            run.numbers[..numbers.len()].copy_from_slice(&numbers);
        }
        let mut first = TILES;
        for option in options.split_terminator(", ").skip(1) {
            match option.split_once(' ')? {
                ("elements", range) => {
                    let (start, end) = range.split_once("..")?;
                    run.elements = Some(start.parse().ok()?..end.parse().ok()?);
                }
                ("rows", rows) => first.extents[1] = rows.parse().ok()?,
                _ => return None,
            }
        }
        run.maps = maps(kernel, first);
        let floats: Vec<f32> = (0..4096).map(|i| i as f32).collect();
        let is_mapped = !run.maps.is_empty() || kernel.starts_with("tma");
        for index in if is_mapped { 0..1 } else { 0..3 } {
            run = run.input(index, &floats);
        }
        Some(run)
    };
    parse().unwrap_or_else(|| {
        panic!("{text:?} is no launch: KERNEL<<<BLOCKS, THREADS, SHARED>>>(N[0], …)")
    })
}

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

/// Buffers are aligned for vector types, cp.async, sectors and tensor maps, as on a GPU.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line([u8; 128]);

fn lines(bytes: &[u8]) -> Vec<Line> {
    let line = |part: &[u8]| {
        let mut line = Line([0; 128]);
        line.0[..part.len()].copy_from_slice(part);
        line
    };
    bytes.chunks(128).map(line).collect()
}

struct Buffers {
    inputs: Vec<Vec<Line>>,
    outputs: [Vec<Line>; 2],
    params: KernelParams,
}

impl Run {
    pub fn dims(mut self, grid: [u32; 3], block: [u32; 3]) -> Self {
        (self.grid, self.block) = (grid, block);
        self
    }

    pub fn input<T: Plain>(mut self, index: usize, values: &[T]) -> Self {
        self.inputs[index] = bytes_of(values);
        self
    }

    pub fn map(mut self, of: Buffer, map: TensorMap) -> Self {
        self.maps.push((of, map));
        self
    }

    /// The traced build, run as if it were the plain one.
    pub fn untraced(mut self) -> Self {
        self.entries[0] = self.entries[1];
        self
    }

    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    pub fn suppress(mut self, site: Place) -> Self {
        self.suppress = Some(site);
        self
    }

    fn buffers(&self, output_bytes: [usize; 2]) -> Buffers {
        let mut inputs: Vec<Vec<Line>> = self.inputs.iter().map(|bytes| lines(bytes)).collect();
        let mut outputs =
            output_bytes.map(|bytes| vec![Line([0; 128]); bytes.div_ceil(128).max(1)]);
        for (of, map) in &self.maps {
            let buffer = match of {
                Buffer::Input => inputs[0].as_ptr() as usize,
                Buffer::Output => outputs[0].as_mut_ptr() as usize,
            };
            let map = TensorMap {
                base: buffer + map.base,
                ..*map
            };
            let words = map.encode().expect("the limits of tensor maps are kept");
            inputs[1].extend(lines(&bytes_of(&words)));
        }
        let params = KernelParams {
            input: [0, 1, 2].map(|index: usize| inputs[index].as_ptr().cast()),
            output: outputs.each_mut().map(|lines| lines.as_mut_ptr().cast()),
            numbers: self.numbers,
        };
        Buffers {
            inputs,
            outputs,
            params,
        }
    }

    fn of(&self, build: usize, params: &KernelParams) -> emulator::Launch {
        emulator::Launch {
            entry: self.entries[build],
            params: std::ptr::from_ref(params).cast(),
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            dynamic_shared_bytes: self.shared_bytes,
            schedule: self.schedule,
            patience: self.patience,
        }
    }

    /// The traced build. `bytes`: of the outputs.
    pub fn trace(&self, bytes: [usize; 2]) -> TraceReport {
        let buffers = self.buffers(bytes);
        let inputs = (0..).zip(&buffers.inputs).map(|(index, lines)| {
            let all = 0..lines.len() * 128;
            let elements = self.elements.clone().filter(|_| index == 0);
            let elements = [elements.unwrap_or(all.clone())];
            let name = format!("in {index}");
            Allocation::with_elements(&name, lines.as_ptr(), all.end, Access::Input, elements)
        });
        let outputs = [0, 1].map(|index| {
            let (name, start) = (format!("out {index}"), buffers.outputs[index].as_ptr());
            Allocation::whole(&name, start, bytes[index], Access::Output)
        });
        let params = &raw const buffers.params;
        let params = Allocation::whole(
            "params",
            params,
            size_of::<KernelParams>(),
            Access::Constant,
        );
        let memory = Memory::new(inputs.chain(outputs).chain([params]));
        let selection = Selection {
            suppress: self.suppress.as_ref(),
            ..Selection::default()
        };
        // SAFETY: as in `outputs`, and the table holds all buffers.
        unsafe { emulator::trace::trace(&self.of(1, &buffers.params), memory, &selection) }
            .expect("the launch is legal")
    }

    /// What the traced build counts, with as many bytes of `out[0]`.
    pub fn counted(&self, output_bytes: usize) -> Counters {
        self.trace([output_bytes, 0]).counted.sum
    }

    /// The plain build with `out[0]` of `len` elements, initially zero.
    pub fn output<T: Plain>(&self, len: usize) -> Result<Vec<T>, Fault> {
        let buffers = self.buffers([len * size_of::<T>(), 0]);
        // SAFETY: the entry is one of this crate's kernels, the params are theirs, and the caller
        // gives buffers of the size that the kernel says; none of them computes addresses from what
        // barriers order.
        unsafe { emulator::launch(&self.of(0, &buffers.params), self.suppress.as_ref())? };
        // SAFETY: the lines have at least `len` elements of T, and any bytes are a valid T.
        let output = unsafe { std::slice::from_raw_parts(buffers.outputs[0].as_ptr().cast(), len) };
        Ok(output.to_vec())
    }

    /// [`Run::output`], whose bits every schedule gives.
    pub fn same<T: Plain>(&self, len: usize) -> Vec<T> {
        let [first, others @ ..] = SCHEDULES.map(|schedule| {
            let output = self.clone().schedule(schedule).output(len);
            output.unwrap_or_else(|fault| panic!("{schedule:?}: {fault}"))
        });
        let bytes = bytes_of(&first);
        for (schedule, other) in SCHEDULES[1..].iter().zip(others) {
            let mut pairs = bytes_of(&other).into_iter().zip(&bytes);
            let at = pairs.position(|(is, was)| is != *was);
            assert_eq!(at, None, "{schedule:?} differs at this byte");
        }
        first
    }
}

/// Every bit pattern is a value, and there is no padding.
///
/// # Safety
///
/// The above must hold.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty)*) => { $(
        // SAFETY: a primitive number.
        unsafe impl Plain for $type {}
    )* };
}
plain! { u8 u16 u32 u64 i32 f32 f64 }

// SAFETY: pointers and integers without padding.
unsafe impl Plain for KernelParams {}

pub fn bytes_of<T: Plain>(values: &[T]) -> Vec<u8> {
    // SAFETY: there is no padding, and any bytes are valid u8s.
    let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
    bytes.to_vec()
}

/// The text of `cu/FILE`.
pub fn source(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cu").join(file);
    std::fs::read_to_string(path).unwrap()
}

/// The one line of `cu/FILE` that contains `text`.
pub fn place(file: &str, text: &str) -> Place {
    let source = source(file);
    let lines = (1..).zip(source.lines());
    let lines: Vec<_> = lines.filter(|(_, line)| line.contains(text)).collect();
    let [(line, _)] = lines[..] else {
        panic!("{text:?} in {file}: {lines:?}")
    };
    let file = format!("cu/{file}");
    Place { file, line }
}

fn key(hazard: &Hazard) -> (HazardKind, Vec<String>) {
    let sides = [&hazard.first, &hazard.second].into_iter().flatten();
    let mut places: Vec<String> = sides.map(|side| side.places[0].to_string()).collect();
    places.sort();
    (hazard.kind, places)
}

/// What the judge finds, and under how many of the schedules.
pub fn hazards(text: &str) -> Vec<(Hazard, usize)> {
    let run = launch(text);
    let mut found: BTreeMap<_, (Hazard, usize)> = BTreeMap::new();
    for schedule in SCHEDULES {
        let mut hazards = BTreeMap::new();
        for hazard in run.clone().schedule(schedule).trace([8192, 0]).hazards {
            hazards.entry(key(&hazard)).or_insert(hazard);
        }
        for (key, hazard) in hazards {
            found.entry(key).or_insert((hazard, 0)).1 += 1;
        }
    }
    found.into_values().collect()
}

/// What stops the plain build under each schedule.
pub fn faults(text: &str) -> [Option<Fault>; 5] {
    let run = launch(text);
    SCHEDULES.map(|schedule| run.clone().schedule(schedule).output::<u8>(8192).err())
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
    replace_each(text, "cu/", |part| {
        let (file, rest) = part.split_once(':').unwrap();
        let (line, rest) = split_while(rest, u8::is_ascii_digit);
        let source = source(file);
        let index = line.parse::<usize>().unwrap() - 1;
        let line = source.lines().nth(index).unwrap();
        let words = match line.split_once("// ") {
            Some((_, comment)) => comment.into(),
            None if line.len() > 60 => format!("{}…", line.trim().split_at(48).0),
            None => line.trim().to_owned(),
        };
        format!("{file} `{words}`{rest}")
    })
}

/// Addresses are others in each run.
fn without_addresses(text: &str) -> String {
    replace_each(text, "0x", |part| {
        let (digits, rest) = split_while(part, u8::is_ascii_hexdigit);
        let number = if digits.len() > 8 { "…" } else { digits };
        format!("0x{number}{rest}")
    })
}

/// Each mark and what follows it, up to the next.
fn replace_each(text: &str, mark: &str, replaced: impl Fn(&str) -> String) -> String {
    let mut parts = text.split(mark);
    let before = parts.next().unwrap().to_owned();
    before + &parts.map(replaced).collect::<String>()
}

fn split_while(text: &str, is_part: fn(&u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(is_part).count())
}

/// SplitMix64.
pub fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    })
}

/// Whole numbers from -`most` to `most`.
pub fn numbers(seed: u64, most: i32) -> impl Iterator<Item = i32> {
    random(seed).map(move |bits| (bits >> 33) as i32 % (2 * most + 1) - most)
}

/// No schedule makes the judge flag these launches.
pub fn assert_clean<'a>(launches: impl IntoIterator<Item = &'a str>) {
    for launch in launches {
        if let Some((hazard, schedules)) = hazards(launch).first() {
            panic!("{launch} is flagged under {schedules} schedules: {hazard}");
        }
    }
}
