//! What a note is about: the calls that the timeline's headers note.

use std::fmt;

/// A call of a wrapper, or several of one kind after each other; the codes are those of
/// `attn::timeline::What` in common/timeline/include/attn/timeline.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum What {
    Entered = 1,
    Left,
    CpAsync,
    TmaLoad,
    StoreAsync,
    Arrive,
    ArriveAfterCopies,
    ArriveExpectTx,
    NamedArrive,
    ClusterArrive,
    MbarrierWait,
    NamedSync,
    ClusterWait,
    CpAsyncWait,
    ProductWait,
    StoreWait,
    RegisterWait,
    WarpProduct,
    WarpgroupProduct,
    ProductCommit,
    Exponential,
    SharedStore,
    TmaStore,
}

/// A kind of work or waiting, as pictures colour it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A copy is issued.
    Copy,
    /// A product is issued.
    Product,
    Exponential,
    /// The output, or a part of it, is stored.
    Store,
    Wait,
    /// An arrival at a barrier, or the end of a group: it takes no time.
    Arrival,
    /// The entry begins or ends.
    Bound,
}

impl Kind {
    /// The kinds that take time, in the order of legends.
    pub const SHOWN: [Kind; 5] = [
        Kind::Copy,
        Kind::Product,
        Kind::Exponential,
        Kind::Store,
        Kind::Wait,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Copy => "copy",
            Kind::Product => "product",
            Kind::Exponential => "exponentials",
            Kind::Store => "store",
            Kind::Wait => "wait",
            Kind::Arrival => "arrival",
            Kind::Bound => "entry",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl What {
    pub const ALL: [What; 23] = [
        What::Entered,
        What::Left,
        What::CpAsync,
        What::TmaLoad,
        What::StoreAsync,
        What::Arrive,
        What::ArriveAfterCopies,
        What::ArriveExpectTx,
        What::NamedArrive,
        What::ClusterArrive,
        What::MbarrierWait,
        What::NamedSync,
        What::ClusterWait,
        What::CpAsyncWait,
        What::ProductWait,
        What::StoreWait,
        What::RegisterWait,
        What::WarpProduct,
        What::WarpgroupProduct,
        What::ProductCommit,
        What::Exponential,
        What::SharedStore,
        What::TmaStore,
    ];

    /// Returns what a note's code says; `None` for a code that the headers do not have.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|what| *what as u8 == code)
    }

    /// Returns what a function's calls are noted as; `None` for one that is not noted.
    pub fn of_function(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|what| what.functions().contains(&name))
    }

    pub fn kind(self) -> Kind {
        match self {
            What::Entered | What::Left => Kind::Bound,
            What::CpAsync | What::TmaLoad => Kind::Copy,
            What::WarpProduct | What::WarpgroupProduct => Kind::Product,
            What::Exponential => Kind::Exponential,
            What::SharedStore | What::TmaStore | What::StoreAsync => Kind::Store,
            What::Arrive
            | What::ArriveAfterCopies
            | What::ArriveExpectTx
            | What::NamedArrive
            | What::ClusterArrive
            | What::ProductCommit => Kind::Arrival,
            What::MbarrierWait
            | What::NamedSync
            | What::ClusterWait
            | What::CpAsyncWait
            | What::ProductWait
            | What::StoreWait
            | What::RegisterWait => Kind::Wait,
        }
    }

    /// Returns what the call is, in the words of pictures.
    pub fn name(self) -> &'static str {
        match self {
            What::Entered => "entry begins",
            What::Left => "entry ends",
            What::CpAsync => "cp.async",
            What::TmaLoad => "TMA load",
            What::StoreAsync => "st.async",
            What::Arrive => "arrival",
            What::ArriveAfterCopies => "arrival after copies",
            What::ArriveExpectTx => "arrival that expects bytes",
            What::NamedArrive => "arrival at a named barrier",
            What::ClusterArrive => "arrival at the cluster's barrier",
            What::MbarrierWait => "wait for an mbarrier",
            What::NamedSync => "wait at a barrier",
            What::ClusterWait => "wait for the cluster",
            What::CpAsyncWait => "wait for cp.async",
            What::ProductWait => "wait for products",
            What::StoreWait => "wait for stores",
            What::RegisterWait => "wait for registers",
            What::WarpProduct => "mma",
            What::WarpgroupProduct => "wgmma",
            What::ProductCommit => "end of a group of products",
            What::Exponential => "ex2",
            What::SharedStore => "stmatrix",
            What::TmaStore => "TMA store",
        }
    }

    /// Returns the names, in kernels and headers, of the functions that are noted so.
    pub fn functions(self) -> &'static [&'static str] {
        match self {
            What::Entered | What::Left => &[],
            What::CpAsync => &["cp_async", "cp_async_zfill"],
            What::TmaLoad => &["tma_load"],
            What::StoreAsync => &["store_async"],
            What::Arrive => &["mbarrier_arrive"],
            What::ArriveAfterCopies => &["mbarrier_arrive_after_cp_async"],
            What::ArriveExpectTx => &["mbarrier_arrive_expect_tx"],
            What::NamedArrive => &["named_barrier_arrive"],
            What::ClusterArrive => &["cluster_arrive", "cluster_arrive_relaxed"],
            What::MbarrierWait => &["mbarrier_wait", "mbarrier_wait_tx", "mbarrier_wait_cluster"],
            What::NamedSync => &["named_barrier_sync", "__syncthreads"],
            What::ClusterWait => &["cluster_wait"],
            What::CpAsyncWait => &["cp_async_wait_group"],
            What::ProductWait => &["wgmma_wait"],
            What::StoreWait => &["tma_store_wait_read"],
            What::RegisterWait => &["take_registers"],
            What::WarpProduct => &[
                "mma_m16n8k16_f16_f32",
                "mma_m16n8k16_bf16_f32",
                "mma_m16n8k32_e4m3_f32",
                "mma_sync",
                // As the emulator names it.
                "wmma::mma_sync",
            ],
            What::WarpgroupProduct => &["wgmma_f16", "wgmma_bf16", "wgmma_e4m3"],
            What::ProductCommit => &["wgmma_commit"],
            What::Exponential => &["exp2_approx"],
            What::SharedStore => &["stmatrix_x4"],
            What::TmaStore => &["tma_store"],
        }
    }
}
