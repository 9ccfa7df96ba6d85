//! An entry ready to run: instructions with resolved operands.

use emulator::MAX_DIMENSIONS;
use emulator::guest::{Element, Site, StrongOrder};

use crate::isa::{Binary, Quaternary, Relation, Ternary, Unary};

/// The place of an operand: registers from 0 up, constants of the thread below.
pub(crate) type Slot = i32;

/// A memory operand: the word in `base` and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Slot,
    pub(crate) offset: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    /// The shared memory of any block of the cluster.
    Cluster,
    /// Memory of the thread's or of the launch alone, by its address in this program: local,
    /// parameters, constants.
    Private,
}

/// A move between memory and registers of `bytes` each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) space: Space,
    pub(crate) bytes: u32,
    pub(crate) is_signed: bool,
    pub(crate) address: Address,
    pub(crate) slots: Box<[Slot]>,
    /// The order of a strong access; none of a weak one.
    pub(crate) order: Option<StrongOrder>,
}

/// A read-modify-write. The access has one slot, for what was there.
#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    pub(crate) access: Access,
    pub(crate) update: Update,
    pub(crate) value: Slot,
}

/// The operation of a read-modify-write on a word and its value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Update {
    Exchange,
    /// Stores the value where the word is the expected one.
    CompareAndSwap {
        expected: Slot,
    },
    /// Adds 1, from the value on again from 0.
    Increment,
    /// Subtracts 1, below 0 again from the value on.
    Decrement,
    Apply(Binary),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    And,
    Or,
    Xor,
}

/// A predicate that a comparison's result is combined with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Combined {
    pub(crate) combine: Combine,
    pub(crate) predicate: Slot,
    pub(crate) is_negated: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Compare {
    pub(crate) relation: Relation,
    pub(crate) to: Slot,
    /// The destination of the opposite result.
    pub(crate) opposite: Option<Slot>,
    pub(crate) left: Slot,
    pub(crate) right: Slot,
    pub(crate) combined: Option<Combined>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    pub(crate) mode: ShuffleMode,
    pub(crate) to: Slot,
    pub(crate) is_in_range: Option<Slot>,
    pub(crate) value: Slot,
    pub(crate) lane: Slot,
    pub(crate) clamp: Slot,
    pub(crate) mask: Slot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Vote {
    pub(crate) mode: VoteMode,
    pub(crate) to: Slot,
    pub(crate) predicate: Slot,
    pub(crate) is_negated: bool,
    pub(crate) mask: Slot,
}

/// An integer operation of lanes or on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Add,
    Min,
    Max,
    MinSigned,
    MaxSigned,
    And,
    Or,
    Xor,
}

#[derive(Clone, Debug)]
pub(crate) struct MatrixCopy {
    pub(crate) address: Address,
    pub(crate) registers: Box<[Slot]>,
    pub(crate) is_transposed: bool,
    pub(crate) space: Space,
}

/// A product of one warp, with accumulators of FP32.
#[derive(Clone, Debug)]
pub(crate) struct Mma {
    pub(crate) element: Narrow,
    pub(crate) depth: u32,
    pub(crate) d: [Slot; 4],
    pub(crate) a: Box<[Slot]>,
    pub(crate) b: Box<[Slot]>,
    pub(crate) c: [Slot; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    F16,
    Bf16,
    E4m3,
    E5m2,
}

/// The part that a fragment of `wmma` has in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    A,
    B,
    Accumulator,
}

/// A matrix in fragments of a warp's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) part: Part,
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) is_half: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct FragmentCopy {
    pub(crate) fragment: Fragment,
    pub(crate) is_row_major: bool,
    pub(crate) address: Address,
    pub(crate) stride: Slot,
    pub(crate) registers: Box<[Slot]>,
    pub(crate) space: Space,
}

#[derive(Clone, Debug)]
pub(crate) struct Wmma {
    /// Rows, columns, depth.
    pub(crate) shape: [u32; 3],
    pub(crate) d: Box<[Slot]>,
    pub(crate) a: Box<[Slot]>,
    pub(crate) b: Box<[Slot]>,
    pub(crate) c: Box<[Slot]>,
}

/// A product of a warpgroup.
#[derive(Clone, Debug)]
pub(crate) struct Wgmma {
    pub(crate) columns: u32,
    pub(crate) element: Element,
    pub(crate) is_transposed_b: bool,
    /// The number of the list of accumulators among those of the entry.
    pub(crate) bank: usize,
    pub(crate) a: WgmmaA,
    pub(crate) b: Slot,
    /// The predicate by which the accumulators count.
    pub(crate) scale: Slot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WgmmaA {
    Descriptor(Slot),
    Registers([Slot; 4]),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CpAsync {
    pub(crate) to: Address,
    pub(crate) from: Address,
    pub(crate) bytes: u32,
    pub(crate) read: Option<Slot>,
    /// A predicate that makes it write zeros.
    pub(crate) ignored: Option<Slot>,
}

/// A copy of a box by TMA.
#[derive(Clone, Debug)]
pub(crate) struct TensorCopy {
    pub(crate) map: Address,
    pub(crate) shared: Address,
    /// The coordinates, innermost first.
    pub(crate) at: [Slot; MAX_DIMENSIONS],
    /// The mbarrier of a load.
    pub(crate) object: Option<Address>,
    /// The blocks of the cluster that a load goes to.
    pub(crate) blocks: Option<Slot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Test,
    Try,
    TryCluster,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Nothing,
    One(Unary, Slot, Slot),
    Exponential(Unary, Slot, Slot),
    Two(Binary, Slot, [Slot; 2]),
    Three(Ternary, Slot, [Slot; 3]),
    Four(Quaternary, Slot, [Slot; 4]),
    Pack {
        to: Slot,
        parts: Box<[Slot]>,
        bits: u32,
    },
    Unpack {
        from: Slot,
        parts: Box<[Slot]>,
        bits: u32,
    },
    Compare(Box<Compare>),
    Branch(u32),
    Exit,
    /// The end of the launch, and why.
    Trap(&'static str),
    Load(Box<Access>),
    Store(Box<Access>),
    Atomic(Box<Atomic>),
    ToShared {
        to: Slot,
        from: Slot,
    },
    FromShared {
        to: Slot,
        from: Slot,
    },
    IsShared {
        to: Slot,
        from: Slot,
    },
    MapToRank {
        to: Slot,
        from: Slot,
        rank: Slot,
    },
    Barrier,
    NamedBarrier {
        id: Slot,
        threads: Slot,
        waits: bool,
    },
    SyncWarp(Slot),
    Shuffle(Box<Shuffle>),
    Vote(Box<Vote>),
    Elect {
        leader: Slot,
        to: Slot,
        mask: Slot,
    },
    Redux {
        reduction: Reduction,
        to: Slot,
        value: Slot,
        mask: Slot,
    },
    LoadMatrix(Box<MatrixCopy>),
    StoreMatrix(Box<MatrixCopy>),
    Mma(Box<Mma>),
    LoadFragment(Box<FragmentCopy>),
    StoreFragment(Box<FragmentCopy>),
    Wmma(Box<Wmma>),
    CpAsync(Box<CpAsync>),
    CpAsyncCommit,
    CpAsyncWait(u32),
    CpAsyncWaitAll,
    MbarrierInit {
        object: Address,
        arrivals: Slot,
    },
    /// So many arrivals, perhaps in another block.
    MbarrierArrive {
        object: Address,
        count: Slot,
        in_cluster: bool,
    },
    MbarrierArriveExpect {
        object: Address,
        bytes: Slot,
    },
    MbarrierArriveAfterCopies(Address),
    MbarrierWait {
        wait: Wait,
        to: Slot,
        object: Address,
        parity: Slot,
    },
    FenceMbarrierInit,
    FenceProxyAsync,
    PrefetchMap(Address),
    TmaLoad(Box<TensorCopy>),
    TmaStore(Box<TensorCopy>),
    TmaStoreCommit,
    TmaStoreWaitRead(u32),
    TmaStoreWait(u32),
    StoreAsync {
        to: Address,
        value: Box<[Slot]>,
        object: Address,
    },
    SetRegisters {
        count: u32,
        takes: bool,
    },
    ClusterArrive {
        is_relaxed: bool,
    },
    ClusterWait,
    Wgmma(Box<Wgmma>),
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait(u32),
}

/// A predicate that lets an instruction execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) predicate: Slot,
    pub(crate) is_negated: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) guard: Option<Guard>,
    /// Whether it names a register that some wgmma of the entry holds.
    pub(crate) touches_product: bool,
    pub(crate) site: Site,
}

/// A value that each thread has before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Bits(u64),
    Special(Special),
    /// The address of a byte of the parameters.
    Parameter(u32),
    /// The address of a byte of the thread's local memory.
    Local(u32),
    /// The offset of dynamic shared memory, behind the static one.
    DynamicShared,
    /// The address of a byte of the module's own variables.
    Global(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Thread(u8),
    BlockSize(u8),
    Block(u8),
    Grid(u8),
    Lane,
    Warp,
    ClusterRank,
    ClusterSize,
    /// The number of the block in its cluster, by dimension.
    BlockInCluster(u8),
    ClusterExtent(u8),
    Cluster(u8),
    Clusters(u8),
    LanesBelow,
    LanesUpTo,
    LanesAbove,
    LanesFrom,
    LaneBit,
    DynamicSharedBytes,
    TotalSharedBytes,
}
