//! A launch described by data, and what the emulator finds in it: the verdict on a kernel that
//! nobody here wrote.

use emulator::trace::{
    Access, Allocation, Counted, FenceRule, Hazard, Memory, OperandRule, Selection, SyncSite,
};
use emulator::{Fault, Launch, MAX_DIMENSIONS, Place, Schedule, TensorMapError, TiledMap};
use thiserror::Error;

use crate::execute::{Election, Invocation};
pub use crate::number::ElementType;
use crate::number::{Number, NumberError};
use crate::program::Program;

/// The content of a buffer before the launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Filling {
    Value(Number),
    /// The element's own index.
    Index,
    /// Numbers between -1 and 1, drawn by a seed; 0 in integers.
    Random(u64),
    /// All ones: a NaN of every floating-point type.
    Unset,
    /// These bytes, as many as the buffer has.
    Bytes(Vec<u8>),
}

/// A buffer in global memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub name: String,
    pub element: ElementType,
    pub elements: usize,
    pub filling: Filling,
    /// Whether the kernel may write it.
    pub is_output: bool,
}

impl Buffer {
    /// Returns its bytes, or the largest number where they are more.
    pub fn bytes(&self) -> u64 {
        (self.elements as u64).saturating_mul(self.element.bytes() as u64)
    }

    fn image(&self) -> Result<Vec<u8>, NumberError> {
        if let Filling::Bytes(bytes) = &self.filling {
            return Ok(bytes.clone());
        }
        let mut image = Vec::with_capacity(self.elements * self.element.bytes());
        let mut state = match self.filling {
            Filling::Random(seed) => seed,
            _ => 0,
        };
        for index in 0..self.elements {
            match self.filling {
                Filling::Bytes(_) => {}
                Filling::Value(value) => self.element.encode(value, &mut image)?,
                Filling::Index => {
                    let number = Number::Whole(index as i128);
                    self.element.encode(number, &mut image)?;
                }
                Filling::Random(_) => {
                    let number = self.element.drawn(draw(&mut state));
                    self.element.encode(number, &mut image)?;
                }
                Filling::Unset => image.extend(std::iter::repeat_n(0xff, self.element.bytes())),
            }
        }
        Ok(image)
    }
}

/// Returns a number between -1 and 1 (splitmix64).
fn draw(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// A tensor map over a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapOver {
    pub buffer: String,
    /// The bytes before the tensor's first element.
    pub offset: usize,
    /// The elements of each dimension, innermost first; up to five.
    pub extents: Vec<u64>,
    /// The bytes from one element of each outer dimension to the next.
    pub strides: Vec<u64>,
    /// The elements of a box in each dimension; one in those that are left out.
    pub box_extents: Vec<u32>,
    /// 64 or 128 bytes.
    pub swizzle: u32,
}

/// A kernel's argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// The address of a byte of a buffer.
    Address {
        buffer: String,
        offset: usize,
    },
    Scalar(ElementType, Number),
    Map(MapOver),
    Bytes(Vec<u8>),
    /// A structure that is zero but for its parts.
    Structure {
        bytes: usize,
        parts: Vec<Part>,
    },
}

impl Argument {
    /// Returns how many bytes it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Address { .. } => size_of::<u64>(),
            Self::Scalar(element, _) => element.bytes(),
            Self::Map(_) => size_of::<[u64; 16]>(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Structure { bytes, .. } => *bytes,
        }
    }
}

/// A part of an argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The bytes before it.
    pub at: usize,
    pub value: Argument,
}

/// A launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: u32,
    pub dynamic_shared_bytes: usize,
    pub buffers: Vec<Buffer>,
    pub arguments: Vec<Argument>,
    /// The bytes of host memory for what is remembered of the accesses of a cluster; `None` for no
    /// limit.
    pub history: Option<usize>,
}

/// A case that does not fit its kernel.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CaseError {
    #[error("the entry takes {takes} arguments, and the launch has {has}")]
    Arguments { takes: usize, has: usize },
    #[error("argument {number} (`{parameter}`) takes {takes} bytes, and the launch has {has}")]
    Size {
        number: usize,
        parameter: String,
        takes: u32,
        has: usize,
    },
    #[error(
        "the entry runs blocks of {takes:?} threads alone (`.reqntid`), and the launch has \
         {has:?}: set `block` to {takes:?}"
    )]
    Threads { takes: [u32; 3], has: [u32; 3] },
    #[error(
        "the entry runs blocks of at most {most} threads (`.maxntid`), and those of the launch \
         have {has}: make `block` smaller"
    )]
    MostThreads { most: u64, has: u64 },
    #[error(
        "the entry runs clusters of {takes} blocks alone (`.reqnctapercluster`), and those of the \
         launch have {has}: set `cluster` to {takes}"
    )]
    Cluster { takes: u32, has: u32 },
    #[error("there is no buffer `{0}`")]
    NoBuffer(String),
    #[error(
        "an argument is the address of byte {offset} of buffer `{buffer}`, which has {bytes}: make \
         `offset` smaller"
    )]
    Offset {
        buffer: String,
        offset: usize,
        bytes: usize,
    },
    #[error("buffer `{buffer}` is filled with {has} bytes, and has {takes}")]
    Filling {
        buffer: String,
        takes: usize,
        has: usize,
    },
    #[error(
        "the buffers take {bytes} bytes in whole pages, and those of a judged launch fit in 4 GiB: \
         make them smaller"
    )]
    TooLarge { bytes: u64 },
    #[error(transparent)]
    Number(#[from] NumberError),
    #[error("a part of an argument reaches byte {end} of {bytes}")]
    Part { end: usize, bytes: usize },
    #[error("the tensor map over `{buffer}`: {error}")]
    Map {
        buffer: String,
        error: TensorMapError,
    },
    #[error("the tensor map over `{buffer}` reaches byte {end}, and the buffer has {bytes}")]
    MapEnd {
        buffer: String,
        end: u64,
        bytes: usize,
    },
    #[error(
        "the tensor map over `{buffer}` has {extents} extents, {strides} strides and a box of \
         {box_extents}; it has 1 to 5 dimensions, a stride for each but the innermost, and no more \
         extents of a box"
    )]
    MapShape {
        buffer: String,
        extents: usize,
        strides: usize,
        box_extents: usize,
    },
    #[error("{0}")]
    Launch(String),
    /// The host's memory does not do.
    #[error("{0}")]
    NoMemory(String),
    /// [`Case::history`] does not do.
    #[error("{0}")]
    Outgrown(String),
}

/// The boundary of buffers and parameters.
pub(crate) const ALIGNMENT: usize = 1024;

/// Bytes on a boundary.
struct Aligned {
    storage: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Aligned {
    fn new(content: &[u8]) -> Self {
        let mut storage = vec![0; content.len() + ALIGNMENT];
        let start = storage.as_ptr().align_offset(ALIGNMENT);
        storage[start..start + content.len()].copy_from_slice(content);
        Self {
            storage,
            start,
            bytes: content.len(),
        }
    }

    fn address(&mut self) -> *mut u8 {
        self.storage[self.start..].as_mut_ptr()
    }

    fn content(&self) -> Vec<u8> {
        self.storage[self.start..self.start + self.bytes].to_vec()
    }
}

/// The memory of one launch.
struct Image<'a> {
    case: &'a Case,
    buffers: Vec<Aligned>,
    parameters: Aligned,
}

impl<'a> Image<'a> {
    fn new(program: &Program, case: &'a Case) -> Result<Self, CaseError> {
        check_extents(program, case)?;
        check_fillings(&case.buffers)?;
        check_size(&case.buffers, program.globals.len() as u64)?;
        let mut buffers: Vec<Aligned> = case
            .buffers
            .iter()
            .map(|buffer| Ok(Aligned::new(&buffer.image()?)))
            .collect::<Result<_, NumberError>>()?;
        let takes = program.parameters().len();
        if takes != case.arguments.len() {
            return Err(CaseError::Arguments {
                takes,
                has: case.arguments.len(),
            });
        }
        let mut bytes = vec![0; program.parameter_bytes() as usize];
        let pairs = program.parameters().iter().zip(&case.arguments);
        for (index, (parameter, argument)) in pairs.enumerate() {
            if argument.bytes() != parameter.bytes as usize {
                return Err(CaseError::Size {
                    number: index + 1,
                    parameter: parameter.name.clone(),
                    takes: parameter.bytes,
                    has: argument.bytes(),
                });
            }
            let value = encoded(case, &mut buffers, argument)?;
            let start = parameter.offset as usize;
            bytes[start..start + value.len()].copy_from_slice(&value);
        }
        Ok(Self {
            case,
            buffers,
            parameters: Aligned::new(&bytes),
        })
    }

    fn memory(&mut self, variables: Allocation) -> Memory {
        let mut table = vec![variables];
        for (buffer, image) in self.case.buffers.iter().zip(&mut self.buffers) {
            let access = if buffer.is_output {
                Access::Output
            } else {
                Access::Input
            };
            let start = image.address().cast_const();
            table.push(Allocation::whole(&buffer.name, start, image.bytes, access));
        }
        Memory::new(table)
    }

    fn outputs(&self) -> Vec<Vec<u8>> {
        let pairs = self.case.buffers.iter().zip(&self.buffers);
        pairs
            .filter(|(buffer, _)| buffer.is_output)
            .map(|(_, image)| image.content())
            .collect()
    }
}

/// Refuses a launch that CUDA would refuse for what the entry demands.
fn check_extents(program: &Program, case: &Case) -> Result<(), CaseError> {
    if let Some(takes) = program.threads
        && takes != case.block
    {
        return Err(CaseError::Threads {
            takes,
            has: case.block,
        });
    }
    let volume = |extent: [u32; 3]| {
        extent
            .map(u64::from)
            .into_iter()
            .fold(1, u64::saturating_mul)
    };
    if let Some(most) = program.most_threads.map(volume)
        && most < volume(case.block)
    {
        return Err(CaseError::MostThreads {
            most,
            has: volume(case.block),
        });
    }
    if let Some(takes) = program.cluster
        && takes != case.cluster
    {
        return Err(CaseError::Cluster {
            takes,
            has: case.cluster,
        });
    }
    Ok(())
}

fn check_fillings(buffers: &[Buffer]) -> Result<(), CaseError> {
    for buffer in buffers {
        let takes = usize::try_from(buffer.bytes()).unwrap_or(usize::MAX);
        if let Filling::Bytes(bytes) = &buffer.filling
            && bytes.len() != takes
        {
            return Err(CaseError::Filling {
                buffer: buffer.name.clone(),
                takes,
                has: bytes.len(),
            });
        }
    }
    Ok(())
}

/// Refuses more than the judge has places for.
fn check_size(buffers: &[Buffer], variables: u64) -> Result<(), CaseError> {
    const PAGE_BYTES: u64 = 4096;
    // Each begins and ends within a page.
    let sizes = buffers.iter().map(Buffer::bytes).chain([variables]);
    let pages = sizes.map(|bytes| bytes.saturating_add(2 * PAGE_BYTES));
    let bytes = pages.fold(0, u64::saturating_add);
    if bytes > u64::from(u32::MAX) {
        return Err(CaseError::TooLarge { bytes });
    }
    Ok(())
}

fn find(case: &Case, name: &str) -> Result<usize, CaseError> {
    case.buffers
        .iter()
        .position(|buffer| buffer.name == name)
        .ok_or_else(|| CaseError::NoBuffer(name.to_owned()))
}

fn encoded(
    case: &Case,
    buffers: &mut [Aligned],
    argument: &Argument,
) -> Result<Vec<u8>, CaseError> {
    match argument {
        Argument::Address { buffer, offset } => {
            let image = &mut buffers[find(case, buffer)?];
            if *offset > image.bytes {
                return Err(CaseError::Offset {
                    buffer: buffer.clone(),
                    offset: *offset,
                    bytes: image.bytes,
                });
            }
            let start = image.address() as u64;
            Ok((start + *offset as u64).to_ne_bytes().to_vec())
        }
        Argument::Bytes(bytes) => Ok(bytes.clone()),
        Argument::Structure { bytes, parts } => structure(case, buffers, *bytes, parts),
        Argument::Scalar(element, value) => {
            let mut bytes = Vec::new();
            element.encode(*value, &mut bytes)?;
            Ok(bytes)
        }
        Argument::Map(map) => {
            let index = find(case, &map.buffer)?;
            let words = encoded_map(map, &case.buffers[index], &mut buffers[index])?;
            Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
        }
    }
}

fn structure(
    case: &Case,
    buffers: &mut [Aligned],
    bytes: usize,
    parts: &[Part],
) -> Result<Vec<u8>, CaseError> {
    let mut all = vec![0; bytes];
    for part in parts {
        let end = part.at.saturating_add(part.value.bytes());
        let Some(place) = all.get_mut(part.at..end) else {
            return Err(CaseError::Part { end, bytes });
        };
        place.copy_from_slice(&encoded(case, buffers, &part.value)?);
    }
    Ok(all)
}

/// Returns a map over memory at `base`, with one element in each dimension that is left out.
fn tiled(map: &MapOver, base: usize, element_bytes: u32) -> Option<TiledMap> {
    let MapOver {
        extents,
        strides,
        box_extents,
        swizzle,
        ..
    } = map;
    let is_shaped = (1..=MAX_DIMENSIONS).contains(&extents.len())
        && strides.len() + 1 == extents.len()
        && (1..=extents.len()).contains(&box_extents.len());
    if !is_shaped {
        return None;
    }
    let mut tensor = TiledMap {
        base,
        extents: [1; MAX_DIMENSIONS],
        // The least that is allowed; nothing lies that far.
        strides: [16; MAX_DIMENSIONS - 1],
        box_extents: [1; MAX_DIMENSIONS],
        swizzle: *swizzle,
        element_bytes,
    };
    tensor.extents[..extents.len()].copy_from_slice(extents);
    tensor.strides[..strides.len()].copy_from_slice(strides);
    tensor.box_extents[..box_extents.len()].copy_from_slice(box_extents);
    Some(tensor)
}

fn encoded_map(
    map: &MapOver,
    buffer: &Buffer,
    image: &mut Aligned,
) -> Result<[u64; 16], CaseError> {
    // Too large an offset is refused with the map's end.
    let base = (image.address() as usize).saturating_add(map.offset);
    let Some(tensor) = tiled(map, base, buffer.element.bytes() as u32) else {
        return Err(CaseError::MapShape {
            buffer: map.buffer.clone(),
            extents: map.extents.len(),
            strides: map.strides.len(),
            box_extents: map.box_extents.len(),
        });
    };
    let row = tensor.extents[0].saturating_mul(buffer.element.bytes() as u64);
    let mut end = row.saturating_add(map.offset as u64);
    for (extent, stride) in tensor.extents[1..].iter().zip(tensor.strides) {
        end = end.saturating_add(extent.saturating_sub(1).saturating_mul(stride));
    }
    if end > image.bytes as u64 {
        return Err(CaseError::MapEnd {
            buffer: map.buffer.clone(),
            end,
            bytes: image.bytes,
        });
    }
    tensor.encode().map_err(|error| CaseError::Map {
        buffer: map.buffer.clone(),
        error,
    })
}

/// The schedules under which a kernel runs; its outputs must be the same under all.
pub const SCHEDULES: [Schedule; 3] = [Schedule::InOrder, Schedule::Reversed, Schedule::Shuffled(1)];

/// The event that stops a kernel, or changes its outputs, under a schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    Stopped(Fault),
    /// The output differs from that of the first schedule, first at this byte.
    Differs {
        buffer: String,
        byte: usize,
    },
}

/// The failure under one schedule without tracing.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub schedule: Schedule,
    pub failure: Failure,
}

/// The verdict on a kernel and a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub hazards: Vec<Hazard>,
    pub more_hazards: usize,
    /// Whether the judge stopped where it might remember no more: there may be more hazards.
    pub is_cut_short: bool,
    pub findings: Vec<Finding>,
    /// The failure that another election than the lowest lane's brings. The PTX ISA allows it; the
    /// hardware is not known to make one, and CUTLASS counts on that.
    pub election: Option<Failure>,
    pub counted: Counted,
    pub sync_sites: Vec<SyncSite>,
    /// The bytes of each output under the first schedule.
    pub outputs: Vec<Vec<u8>>,
}

impl Verdict {
    pub fn is_green(&self) -> bool {
        self.hazards.is_empty() && self.findings.is_empty()
    }
}

/// The bytes that are remembered of a place, for each thread of a cluster.
const HISTORY_BYTES_PER_PLACE: usize = 48;

const LEAST_HISTORY_BYTES: usize = 1 << 20;
const MOST_HISTORY_BYTES: usize = 256 << 20;

/// The bytes of each output.
type Outputs = Vec<Vec<u8>>;

/// The remains of a run.
pub(crate) struct Ended {
    pub(crate) outputs: Outputs,
    pub(crate) choice_points: u32,
}

/// The end of a run.
type Ran = Result<Ended, Fault>;

unsafe extern "C-unwind" fn no_body(_: *const std::ffi::c_void) {}

impl Case {
    /// Returns the launch, without a body and the shared variables of one.
    pub(crate) fn launch(&self, schedule: Schedule) -> Launch {
        Launch {
            entry: no_body,
            params: std::ptr::null(),
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            schedule,
            patience: Launch::PATIENCE,
        }
    }

    /// Runs the kernel under a schedule. Returns its outputs.
    pub(crate) fn run(
        &self,
        program: &Program,
        schedule: Schedule,
        election: Election,
        suppress: Option<&Place>,
    ) -> Result<Ran, CaseError> {
        let mut image = Image::new(program, self)?;
        let parameters = image.parameters.address().cast_const().cast();
        // SAFETY: the parameters have the size and boundary that the entry declares.
        let invocation = unsafe { Invocation::new(program, parameters, self.dynamic_shared_bytes) };
        let electing = invocation.electing(election);
        let launch = electing.launch(&self.launch(schedule));
        // SAFETY: buffers and parameters outlive the launch. A kernel that leaves them is stopped
        // where the judge or the system sees it; it was traced before.
        let result = unsafe { emulator::launch_counted(&launch, suppress) };
        match result {
            // It says nothing of the kernel.
            Err(fault @ Fault::NoMemory { .. }) => Err(CaseError::NoMemory(fault.to_string())),
            Err(fault) => Ok(Err(fault)),
            Ok(choice_points) => Ok(Ok(Ended {
                outputs: image.outputs(),
                choice_points,
            })),
        }
    }

    /// Traces the kernel under the first schedule, then runs it under all, and once more where
    /// `elect.sync` elects another lane.
    ///
    /// # Errors
    ///
    /// A case that does not fit the kernel.
    pub fn judge(&self, program: &Program, suppress: Option<&Place>) -> Result<Verdict, CaseError> {
        let selection = Selection {
            suppress,
            fence_rule: FenceRule::Path,
            operand_rule: OperandRule::OwnRows,
            history: self.history,
            ..Selection::default()
        };
        let report = self.traced(program, |launch, memory| {
            // SAFETY: as in run; the table has all buffers.
            unsafe { emulator::trace::trace(launch, memory, &selection) }
        })?;
        let mut verdict = Verdict {
            hazards: report.hazards,
            more_hazards: report.more_hazards,
            is_cut_short: report.is_cut_short,
            findings: Vec::new(),
            election: None,
            counted: report.counted,
            sync_sites: report.sync_sites,
            outputs: Vec::new(),
        };
        // What the judge refuses may be an access outside of the buffers: it is not made again.
        if verdict.hazards.is_empty() {
            self.run_all(program, suppress, &mut verdict)?;
        }
        Ok(verdict)
    }

    /// Returns the bytes of host memory that what is remembered of the accesses of a cluster is
    /// reckoned to take, where the case sets no limit.
    pub fn history_bytes(&self, program: &Program) -> usize {
        let threads = self.block.into_iter().fold(1, u32::saturating_mul);
        let together = threads.saturating_mul(self.cluster) as usize;
        let reckoned = together.saturating_mul(HISTORY_BYTES_PER_PLACE * program.steps.len());
        self.history
            .unwrap_or(reckoned.clamp(LEAST_HISTORY_BYTES, MOST_HISTORY_BYTES))
    }

    /// Returns the place that stored a byte of an output last, under the first schedule; nothing if
    /// no thread has stored it.
    ///
    /// # Errors
    ///
    /// A case that does not fit the kernel.
    pub fn last_store(
        &self,
        program: &Program,
        buffer: &str,
        byte: usize,
    ) -> Result<Option<Place>, CaseError> {
        let selection = Selection {
            history: self.history,
            ..Selection::default()
        };
        let places = self.traced(program, |launch, memory| {
            // SAFETY: as in judge.
            unsafe { emulator::trace::last_store(launch, memory, &selection, buffer, byte) }
        })?;
        Ok(places.into_iter().next())
    }

    /// Calls `trace` with the launch under the first schedule, and the memory that it may touch.
    fn traced<T>(
        &self,
        program: &Program,
        trace: impl FnOnce(&Launch, Memory) -> Result<T, Fault>,
    ) -> Result<T, CaseError> {
        let mut image = Image::new(program, self)?;
        let parameters = image.parameters.address().cast_const().cast();
        // SAFETY: as in run.
        let invocation = unsafe { Invocation::new(program, parameters, self.dynamic_shared_bytes) };
        let electing = invocation.electing(Election::Lowest);
        let launch = electing.launch(&self.launch(SCHEDULES[0]));
        let memory = image.memory(electing.variables());
        trace(&launch, memory).map_err(|fault| match fault {
            Fault::NoMemory { .. } => CaseError::NoMemory(fault.to_string()),
            Fault::Outgrown { .. } => CaseError::Outgrown(fault.to_string()),
            _ => CaseError::Launch(fault.to_string()),
        })
    }

    fn run_all(
        &self,
        program: &Program,
        suppress: Option<&Place>,
        verdict: &mut Verdict,
    ) -> Result<(), CaseError> {
        let mut first: Option<Outputs> = None;
        for schedule in SCHEDULES {
            let ran = self.run(program, schedule, Election::Lowest, suppress)?;
            if let Some(failure) = self.failure(&ran, first.as_ref()) {
                verdict.findings.push(Finding { schedule, failure });
            }
            if first.is_none() {
                first = ran.ok().map(|ended| ended.outputs);
            }
        }
        let is_asked = program.elects() && suppress.is_none() && verdict.is_green();
        if is_asked {
            let ran = self.run(program, Schedule::Reversed, Election::Highest, suppress)?;
            verdict.election = self.failure(&ran, first.as_ref());
        }
        verdict.outputs = first.unwrap_or_default();
        Ok(())
    }

    /// Returns what is wrong with a run whose outputs should be those of the first one.
    fn failure(&self, ran: &Ran, first: Option<&Outputs>) -> Option<Failure> {
        match (ran, first) {
            (Err(fault), _) => Some(Failure::Stopped(fault.clone())),
            (Ok(_), None) => None,
            (Ok(ended), Some(expected)) => self.difference(expected, &ended.outputs),
        }
    }

    pub(crate) fn difference(&self, expected: &[Vec<u8>], outputs: &[Vec<u8>]) -> Option<Failure> {
        let names = self.buffers.iter().filter(|buffer| buffer.is_output);
        for ((buffer, wanted), found) in names.zip(expected).zip(outputs) {
            let byte = wanted.iter().zip(found).position(|(a, b)| a != b);
            if let Some(place) = byte {
                return Some(Failure::Differs {
                    buffer: buffer.name.clone(),
                    byte: place,
                });
            }
        }
        None
    }
}
