//! Launches written as in CUDA, and what both builds report of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use emulator::trace::{Access, Allocation, Counters, Hazard, HazardKind, Memory, Selection};
use emulator::{Entry, Fault, Place, Schedule, TensorMap, TraceReport};
use emulator_kernels::{KERNELS, KernelParams};

/// Schedules under all of which a correct kernel gives the same bits.
pub const SCHEDULES: [Schedule; 5] = [
    Schedule::InOrder,
    Schedule::Reversed,
    Schedule::Shuffled(1),
    Schedule::Shuffled(2),
    Schedule::Starving(1),
];

/// A tensor of rows of 32 floats, 8 of them in a box of 1,024 bytes; one head per 16 rows.
pub const TILES: TensorMap = TensorMap {
    base: 0,
    extents: [32, 128, 1, 1],
    strides: [128, 128 * 16, 128 * 16],
    box_columns: 32,
    box_rows: 8,
    swizzle: 128,
    element_bytes: 4,
};

/// A tensor of 64 rows of 64 FP16 values, all in one box.
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
    /// The entries of the plain and of the traced build.
    entries: [Entry; 2],
    pub grid: [u32; 3],
    pub block: [u32; 3],
    cluster: u32,
    pub shared_bytes: usize,
    pub inputs: [Vec<u8>; 3],
    pub numbers: [i32; 4],
    /// The tensor maps in `in[1]`, behind its bytes; bases are relative to the buffer's.
    pub maps: Vec<(Buffer, TensorMap)>,
    schedule: Schedule,
    patience: Duration,
    elements: Option<std::ops::Range<usize>>,
    suppress: Option<Place>,
    ends_at_hazard: bool,
}

/// Reads `KERNEL<<<BLOCKS, THREADS, SHARED>>>(N[0], …)`; numbers may be sums. `elements A..B`: the
/// bytes of `in[0]` that are elements, the others are guard bands; `rows N`: of the first tensor
/// map.
pub fn launch(text: &str) -> Run {
    parse(text).unwrap_or_else(|| {
        panic!("{text:?} is no launch: KERNEL<<<BLOCKS, THREADS, SHARED>>>(N[0], …)")
    })
}

fn parse(text: &str) -> Option<Run> {
    let (kernel, configuration) = text.split_once("<<<")?;
    let (shape, call) = configuration.split_once(">>>(")?;
    let (numbers, options) = call.split_once(')')?;
    let [blocks, threads, shared_bytes] = sums(shape)?[..] else {
        return None;
    };
    let mut run = Run::new(kernel, blocks as u32, threads as u32, shared_bytes as usize)?;
    if !numbers.is_empty() {
        let values = sums(numbers)?;
        run.numbers[..values.len()].copy_from_slice(&values);
    }
    let mut first_map = TILES;
    for option in options.split_terminator(", ").skip(1) {
        match option.split_once(' ')? {
            ("elements", range) => {
                let (start, end) = range.split_once("..")?;
                run.elements = Some(start.parse().ok()?..end.parse().ok()?);
            }
            ("rows", rows) => first_map.extents[1] = rows.parse().ok()?,
            _ => return None,
        }
    }
    run.maps = maps(kernel, first_map);
    let floats: Vec<f32> = (0..4096).map(|i| i as f32).collect();
    let is_mapped = !run.maps.is_empty() || kernel.starts_with("tma");
    for index in if is_mapped { 0..1 } else { 0..3 } {
        run = run.input(index, &floats);
    }
    Some(run)
}

/// Reads a list of sums.
fn sums(text: &str) -> Option<Vec<i32>> {
    let mut sums = Vec::new();
    for sum in text.split(", ") {
        let mut total = 0;
        for part in sum.split('+') {
            total += part.trim().parse::<i32>().ok()?;
        }
        sums.push(total);
    }
    Some(sums)
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
    let mut lines = Vec::new();
    for part in bytes.chunks(128) {
        let mut line = Line([0; 128]);
        line.0[..part.len()].copy_from_slice(part);
        lines.push(line);
    }
    lines
}

struct Buffers {
    inputs: Vec<Vec<Line>>,
    outputs: [Vec<Line>; 2],
    params: KernelParams,
}

impl Run {
    fn new(kernel: &str, blocks: u32, threads: u32, shared_bytes: usize) -> Option<Self> {
        let (_, entries) = KERNELS.iter().find(|(name, _)| *name == kernel)?;
        Some(Self {
            entries: *entries,
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            cluster: match kernel {
                "cluster_exchange" | "cluster_barrier_missed" => blocks,
                _ => 1,
            },
            shared_bytes,
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
            ends_at_hazard: false,
        })
    }

    pub fn dims(mut self, grid: [u32; 3], block: [u32; 3]) -> Self {
        (self.grid, self.block) = (grid, block);
        self
    }

    pub fn input<T: Plain>(mut self, index: usize, values: &[T]) -> Self {
        self.inputs[index] = bytes_of(values);
        self
    }

    pub fn map(mut self, buffer: Buffer, map: TensorMap) -> Self {
        self.maps.push((buffer, map));
        self
    }

    /// Runs the traced build as if it were the plain one.
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

    /// Ends traces at the first hazard.
    pub fn ending_at_hazard(mut self) -> Self {
        self.ends_at_hazard = true;
        self
    }

    fn buffers(&self, output_bytes: [usize; 2]) -> Buffers {
        let mut inputs: Vec<Vec<Line>> = self.inputs.iter().map(|bytes| lines(bytes)).collect();
        let mut outputs =
            output_bytes.map(|bytes| vec![Line([0; 128]); bytes.div_ceil(128).max(1)]);
        for (buffer, map) in &self.maps {
            let start = match buffer {
                Buffer::Input => inputs[0].as_ptr() as usize,
                Buffer::Output => outputs[0].as_mut_ptr() as usize,
            };
            let placed = TensorMap {
                base: start + map.base,
                ..*map
            };
            let words = placed.encode().expect("the limits of tensor maps are kept");
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

    fn prepare(&self, build: usize, params: &KernelParams) -> emulator::Launch {
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

    /// Runs the traced build with outputs of `bytes` bytes.
    pub fn trace(&self, bytes: [usize; 2]) -> TraceReport {
        let buffers = self.buffers(bytes);
        let mut allocations = Vec::new();
        for (index, lines) in buffers.inputs.iter().enumerate() {
            let whole = 0..lines.len() * 128;
            let elements = match &self.elements {
                Some(range) if index == 0 => range.clone(),
                _ => whole.clone(),
            };
            allocations.push(Allocation::with_elements(
                &format!("in {index}"),
                lines.as_ptr(),
                whole.end,
                Access::Input,
                [elements],
            ));
        }
        for (index, lines) in buffers.outputs.iter().enumerate() {
            let name = format!("out {index}");
            let start = lines.as_ptr();
            allocations.push(Allocation::whole(
                &name,
                start,
                bytes[index],
                Access::Output,
            ));
        }
        allocations.push(Allocation::whole(
            "params",
            &raw const buffers.params,
            size_of::<KernelParams>(),
            Access::Constant,
        ));
        let memory = Memory::new(allocations);
        let selection = Selection {
            suppress: self.suppress.as_ref(),
            ends_at_hazard: self.ends_at_hazard,
            ..Selection::default()
        };
        // SAFETY: as in `outputs`, and the table holds all buffers.
        unsafe { emulator::trace::trace(&self.prepare(1, &buffers.params), memory, &selection) }
            .expect("the launch is legal")
    }

    /// Returns what the traced build counts, with as many bytes of `out[0]`.
    pub fn counted(&self, output_bytes: usize) -> Counters {
        self.trace([output_bytes, 0]).counted.sum
    }

    /// Runs the plain build with `out[0]` of `len` elements, initially zero.
    pub fn output<T: Plain>(&self, len: usize) -> Result<Vec<T>, Fault> {
        let buffers = self.buffers([len * size_of::<T>(), 0]);
        // SAFETY: the entry is one of this crate's kernels, the params are theirs, and the caller
        // gives buffers of the size that the kernel says; none of them computes addresses from what
        // barriers order.
        unsafe { emulator::launch(&self.prepare(0, &buffers.params), self.suppress.as_ref())? };
        // SAFETY: the lines have at least `len` elements of T, and any bytes are a valid T.
        let output = unsafe { std::slice::from_raw_parts(buffers.outputs[0].as_ptr().cast(), len) };
        Ok(output.to_vec())
    }

    /// Returns [`Run::output`], whose bits every schedule gives.
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

/// Types of which every bit pattern is a value, and that have no padding.
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

/// Returns the text of `cu/FILE`.
pub fn source(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cu").join(file);
    std::fs::read_to_string(path).unwrap()
}

/// Returns the one line of `cu/FILE` that contains `text`.
pub fn place(file: &str, text: &str) -> Place {
    let code = source(file);
    let lines: Vec<(u32, &str)> = (1..)
        .zip(code.lines())
        .filter(|(_, line)| line.contains(text))
        .collect();
    let [(line, _)] = lines[..] else {
        panic!("{text:?} in {file}: {lines:?}")
    };
    Place {
        file: format!("cu/{file}"),
        line,
    }
}

fn key(hazard: &Hazard) -> (HazardKind, Vec<String>) {
    let sides = [&hazard.first, &hazard.second].into_iter().flatten();
    let mut places: Vec<String> = sides.map(|side| side.places[0].to_string()).collect();
    places.sort();
    (hazard.kind, places)
}

/// Returns what the judge finds, and under how many of the schedules.
pub fn hazards(text: &str) -> Vec<(Hazard, usize)> {
    let run = launch(text);
    let mut counted: BTreeMap<_, (Hazard, usize)> = BTreeMap::new();
    for schedule in SCHEDULES {
        let mut hazards = BTreeMap::new();
        for hazard in run.clone().schedule(schedule).trace([8192, 0]).hazards {
            hazards.entry(key(&hazard)).or_insert(hazard);
        }
        for (key, hazard) in hazards {
            counted.entry(key).or_insert((hazard, 0)).1 += 1;
        }
    }
    counted.into_values().collect()
}

/// Returns what stops the plain build under each schedule.
pub fn faults(text: &str) -> [Option<Fault>; 5] {
    let run = launch(text);
    SCHEDULES.map(|schedule| run.clone().schedule(schedule).output::<u8>(8192).err())
}

/// Returns the hazards of these launches, each of which has some, for a snapshot.
pub fn hazards_of<'a>(launches: impl IntoIterator<Item = &'a str>) -> String {
    let mut sections = String::new();
    for launch in launches {
        let reported = hazards(launch);
        assert!(!reported.is_empty(), "{launch} is not flagged");
        let texts = reported
            .into_iter()
            .map(|(hazard, schedules)| hazard_text(hazard, schedules));
        sections += &section(launch, texts);
    }
    sections
}

fn hazard_text(mut hazard: Hazard, schedules: usize) -> String {
    let blocks = [&hazard.first, &hazard.second].map(|side| Some(side.as_ref()?.block));
    let is_between_blocks = blocks[1].is_some() && blocks[0] != blocks[1];
    if is_between_blocks && !hazard.memory.contains("shared memory") {
        // Blocks run on several OS threads, which decide where and how often two of them meet.
        hazard.memory.clear();
        hazard.times = 1;
    }
    match schedules {
        5 => hazard.to_string(),
        _ => format!("{schedules} of 5 schedules: {hazard}"),
    }
}

/// Returns the faults of these launches, which stop under every schedule, for a snapshot.
pub fn faults_of<'a>(launches: impl IntoIterator<Item = &'a str>) -> String {
    let mut sections = String::new();
    for launch in launches {
        let [first, others @ ..] = faults(launch);
        assert!(
            others.iter().all(Option::is_some),
            "{launch} runs to its end"
        );
        sections += &section(launch, first.map(|fault| fault.to_string()));
    }
    sections
}

fn section(launch: &str, texts: impl IntoIterator<Item = String>) -> String {
    let mut section = format!("{launch}\n");
    for text in texts {
        section += &format!("- {}\n", without_addresses(&by_source(&text)));
    }
    section + "\n"
}

/// Replaces places `cu/FILE:LINE` by the comment of that line, or the line itself where it has
/// none.
fn by_source(text: &str) -> String {
    replace_each(text, "cu/", |part| {
        let (file, place) = part.split_once(':').unwrap();
        let (number, rest) = split_while(place, u8::is_ascii_digit);
        let code = source(file);
        let index = number.parse::<usize>().unwrap() - 1;
        let line = code.lines().nth(index).unwrap();
        let words = match line.split_once("// ") {
            Some((_, comment)) => comment.into(),
            None if line.len() > 60 => format!("{}…", line.trim().split_at(48).0),
            None => line.trim().to_owned(),
        };
        format!("{file} `{words}`{rest}")
    })
}

/// Leaves out addresses, which are others in each run.
fn without_addresses(text: &str) -> String {
    replace_each(text, "0x", |part| {
        let (digits, rest) = split_while(part, u8::is_ascii_hexdigit);
        let number = if digits.len() > 8 { "…" } else { digits };
        format!("0x{number}{rest}")
    })
}

/// Replaces each mark and what follows it, up to the next.
fn replace_each(text: &str, mark: &str, replaced: impl Fn(&str) -> String) -> String {
    let mut parts = text.split(mark);
    let before = parts.next().unwrap().to_owned();
    before + &parts.map(replaced).collect::<String>()
}

fn split_while(text: &str, is_part: fn(&u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(is_part).count())
}

/// Returns the numbers of SplitMix64.
pub fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    })
}

/// Returns whole numbers from -`most` to `most`.
pub fn numbers(seed: u64, most: i32) -> impl Iterator<Item = i32> {
    random(seed).map(move |bits| (bits >> 33) as i32 % (2 * most + 1) - most)
}

/// Checks that no schedule makes the judge flag these launches.
pub fn assert_clean<'a>(launches: impl IntoIterator<Item = &'a str>) {
    for launch in launches {
        if let Some((hazard, schedules)) = hazards(launch).first() {
            panic!("{launch} is flagged under {schedules} schedules: {hazard}");
        }
    }
}
