//! Launching a test kernel with buffers of the sizes that it documents.

use std::path::Path;
use std::time::Duration;

use crate::KernelParams;
use emulator::trace::{Access, Allocation, Memory, TraceOptions};
use emulator::{Fault, Place, Report, Schedule, Suppress, TensorMap, TraceReport};

/// A correct kernel gives the same bits under all of them.
pub const SCHEDULES: [Schedule; 5] = [
    Schedule::InOrder,
    Schedule::Reversed,
    Schedule::Shuffled(1),
    Schedule::Shuffled(2),
    Schedule::Starving(1),
];

/// The one line of `cu/FILE` that contains `text`.
pub fn line(file: &str, text: &str) -> u32 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cu").join(file);
    let source = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<usize> = (1..)
        .zip(source.lines())
        .filter(|(_, line)| line.contains(text))
        .map(|(n, _)| n)
        .collect();
    assert_eq!(lines.len(), 1, "{text:?} in {file}");
    lines[0] as u32
}

/// `cu/FILE:LINE`, as a fault names it.
pub fn at(file: &str, text: &str) -> String {
    format!("cu/{file}:{}", line(file, text))
}

/// The tensor of a tensor map.
#[derive(Clone, Copy, Debug)]
pub enum Buffer {
    /// `in[0]`.
    Input,
    /// `out[0]`.
    Output,
}

/// A launch of a test kernel, its buffers owned.
#[derive(Clone, Debug)]
pub struct Run {
    entry: emulator::Entry,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: u32,
    dynamic_shared_bytes: usize,
    inputs: [Vec<u64>; 3],
    numbers: [i32; 4],
    schedule: Schedule,
    patience: Duration,
    elements: Option<std::ops::Range<usize>>,
    maps: Vec<(Buffer, TensorMap)>,
    suppress: Option<Place>,
    log: bool,
}

/// Buffers are aligned for vector types, cp.async and sectors, as on a GPU.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line([u64; 16]);

struct Buffers {
    inputs: Vec<Vec<Line>>,
    outputs: [Vec<Line>; 2],
    params: KernelParams,
}

impl Run {
    /// One block, without shared memory, in order.
    pub fn new(entry: emulator::Entry, threads: u32) -> Self {
        Self {
            entry,
            grid: [1; 3],
            block: [threads, 1, 1],
            cluster: 1,
            dynamic_shared_bytes: 0,
            inputs: Default::default(),
            numbers: [0; 4],
            schedule: Schedule::InOrder,
            patience: emulator::Launch::PATIENCE,
            elements: None,
            maps: Vec::new(),
            suppress: None,
            log: false,
        }
    }

    pub fn dims(mut self, grid: [u32; 3], block: [u32; 3]) -> Self {
        (self.grid, self.block) = (grid, block);
        self
    }

    pub fn blocks(mut self, blocks: u32) -> Self {
        self.grid = [blocks, 1, 1];
        self
    }

    /// One cluster of `blocks` blocks. On a GPU the kernel itself says so.
    pub fn cluster(mut self, blocks: u32) -> Self {
        (self.grid, self.cluster) = ([blocks, 1, 1], blocks);
        self
    }

    pub fn shared(mut self, bytes: usize) -> Self {
        self.dynamic_shared_bytes = bytes;
        self
    }

    /// `in[index]`.
    pub fn input<T: Plain>(mut self, index: usize, values: &[T]) -> Self {
        let bytes = std::mem::size_of_val(values);
        let mut words = vec![0u64; bytes.div_ceil(8)];
        // SAFETY: both ranges are `bytes` long, and any bytes are valid u64s.
        unsafe {
            values
                .as_ptr()
                .cast::<u8>()
                .copy_to_nonoverlapping(words.as_mut_ptr().cast(), bytes)
        };
        self.inputs[index] = words;
        self
    }

    /// The next tensor map in `in[1]`. Its base is relative to the buffer's.
    pub fn map(mut self, of: Buffer, map: TensorMap) -> Self {
        self.maps.push((of, map));
        self
    }

    /// For a GPU: grid, block, shared bytes, inputs, tensor maps and numbers.
    #[allow(clippy::type_complexity, reason = "taken apart at once")]
    pub fn parts(
        &self,
    ) -> (
        [u32; 3],
        [u32; 3],
        usize,
        [Vec<u8>; 3],
        &[(Buffer, TensorMap)],
        [i32; 4],
    ) {
        let bytes = |words: &Vec<u64>| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        (
            self.grid,
            self.block,
            self.dynamic_shared_bytes,
            self.inputs.each_ref().map(bytes),
            &self.maps,
            self.numbers,
        )
    }

    /// `n[index]`.
    pub fn number(mut self, index: usize, value: i32) -> Self {
        self.numbers[index] = value;
        self
    }

    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// When traced, only these bytes of `in[0]` are elements, the others guard bands.
    pub fn elements(mut self, bytes: std::ops::Range<usize>) -> Self {
        self.elements = Some(bytes);
        self
    }

    pub fn suppress(mut self, site: Place) -> Self {
        self.suppress = Some(site);
        self
    }

    /// Processor time that a CUDA thread may take.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// When traced, list every access.
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// The entry must be one of the traced build. `bytes`: of the outputs.
    pub fn trace(&self, bytes: [usize; 2]) -> TraceReport {
        let buffers = self.buffers(bytes);
        let table = [0, 1, 2].map(|index| {
            let maps = if index == 1 {
                self.maps.len() * size_of::<Line>()
            } else {
                0
            };
            let bytes =
                (self.inputs[index].len() * 8).next_multiple_of(if maps > 0 { 128 } else { 1 })
                    + maps;
            let elements = self
                .elements
                .clone()
                .filter(|_| index == 0)
                .unwrap_or(0..bytes);
            let (name, start) = (
                ["in 0", "in 1", "in 2"][index],
                buffers.inputs[index].as_ptr(),
            );
            Allocation::with_elements(name, start, bytes, Access::Input, [elements])
        });
        let outputs = [0, 1].map(|index| {
            let (name, start) = (["out 0", "out 1"][index], buffers.outputs[index].as_ptr());
            Allocation::whole(name, start, bytes[index], Access::Output)
        });
        let params = Allocation::whole(
            "params",
            &raw const buffers.params,
            size_of::<KernelParams>(),
            Access::Constant,
        );
        let memory = Memory::new(table.into_iter().chain(outputs).chain([params]));
        let suppress = self.suppress.clone().map(|site| Suppress { site });
        let options = TraceOptions {
            memory,
            blocks: None,
            suppress,
            log: self.log,
            watch: None,
        };
        // SAFETY: as in `outputs`, and the table holds all buffers.
        unsafe { emulator::trace::trace(&self.launch(&buffers.params), &options) }
            .expect("the launch is legal")
    }

    fn buffers(&self, output_bytes: [usize; 2]) -> Buffers {
        let mut inputs: Vec<Vec<Line>> = self.inputs.iter().map(|words| align(words)).collect();
        let mut outputs = output_bytes.map(|bytes| vec![Line([0; 16]); bytes.div_ceil(128).max(1)]);
        for (of, map) in &self.maps {
            let buffer = match of {
                Buffer::Input => inputs[0].as_ptr() as usize,
                Buffer::Output => outputs[0].as_mut_ptr() as usize,
            };
            let map = TensorMap {
                base: buffer + map.base,
                ..*map
            };
            inputs[1].push(Line(
                map.encode().expect("the limits of tensor maps are kept"),
            ));
        }
        let params = KernelParams {
            input: [0, 1, 2].map(|index: usize| inputs[index].as_ptr().cast()),
            output: outputs.each_mut().map(|words| words.as_mut_ptr().cast()),
            numbers: self.numbers,
        };
        Buffers {
            inputs,
            outputs,
            params,
        }
    }

    fn launch(&self, params: &KernelParams) -> emulator::Launch {
        emulator::Launch {
            entry: self.entry,
            params: std::ptr::from_ref(params).cast(),
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            schedule: self.schedule,
            patience: self.patience,
        }
    }

    /// Runs the kernel with `out[0]` of `len` elements, initially zero.
    pub fn output<T: Plain>(&self, len: usize) -> Result<Vec<T>, Fault> {
        Ok(self.outputs(len, 0)?.0)
    }

    /// As [`Run::output`], with two buffers and the report.
    pub fn outputs<T: Plain>(
        &self,
        len0: usize,
        len1: usize,
    ) -> Result<(Vec<T>, Vec<T>, Report), Fault> {
        let buffers = self.buffers([len0, len1].map(|len| len * size_of::<T>()));
        let report = match self.suppress.clone() {
            // SAFETY: as below; none of the kernels computes addresses from what barriers order.
            Some(site) => unsafe {
                emulator::launch_suppressed(&self.launch(&buffers.params), &Suppress { site })?
            },
            // SAFETY: the entry is one of this crate's kernels, the params are theirs, and the caller gives buffers of
            // the size that the kernel says.
            None => unsafe { emulator::launch(&self.launch(&buffers.params))? },
        };
        let read = |words: &[Line], len: usize| -> Vec<T> {
            // SAFETY: `words` has at least `len` elements of T, and any bytes are a valid T.
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<T>(), len) }.to_vec()
        };
        Ok((
            read(&buffers.outputs[0], len0),
            read(&buffers.outputs[1], len1),
            report,
        ))
    }
}

fn align(words: &[u64]) -> Vec<Line> {
    let line = |line: &[u64]| Line(std::array::from_fn(|i| line.get(i).copied().unwrap_or(0)));
    words.chunks(16).map(line).collect()
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
