//! What a judgement takes of this machine's memory, said before it begins.

use anyhow::{Context, bail};
use measure::limits::memory::System;
use ptx::Program;
use ptx::case::Case;
use ptx::memory::{Bound, Bytes, Means};
use std::fs;

/// The memory that a judgement may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The allowance of `--memory`.
    Asked(Bytes),
    /// The memory that the machine leaves, and the limit that leaves no more.
    Free { bytes: Bytes, limit: String },
    /// Nobody says.
    Unknown,
}

impl Limit {
    /// Returns what `--memory` allows or, without it, what the machine leaves.
    pub fn of(asked: Option<Bytes>) -> Self {
        if let Some(bytes) = asked {
            return Self::Asked(bytes);
        }
        match System::here().available() {
            Some(available) => Self::Free {
                bytes: Bytes(u64::try_from(available.bytes).unwrap_or(u64::MAX)),
                limit: available.limit,
            },
            None => Self::Unknown,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Asked(bytes) => format!("--memory allows {bytes}"),
            Self::Free { bytes, limit } => format!("this machine has {bytes} free ({limit})"),
            Self::Unknown => "this machine does not say what it has free".to_owned(),
        }
    }

    /// Returns the bytes that may be taken in all, of which `taken` are already.
    fn bytes(&self, taken: u64) -> Option<u64> {
        match self {
            Self::Asked(bytes) => Some(bytes.0),
            Self::Free { bytes, .. } => Some(bytes.0.saturating_add(taken)),
            Self::Unknown => None,
        }
    }
}

/// The memory that a judgement takes at most, and may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    pub bound: Bound,
    /// The OS threads that run blocks.
    pub workers: usize,
    /// The most orders that are explored.
    pub orders: usize,
    /// The bytes that the program has already.
    pub taken: u64,
    pub limit: Limit,
}

impl Needs {
    /// Returns the bytes of the whole program.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bound.bytes().saturating_add(self.taken))
    }

    /// Says what is needed, in a line.
    pub fn line(&self) -> String {
        let Bound {
            blocks, at_once, ..
        } = self.bound;
        let noun = if blocks == 1 { "block" } else { "blocks" };
        format!(
            "needs up to {} of memory for {blocks} {noun}, {at_once} at once; {}",
            self.bytes(),
            self.limit.words()
        )
    }

    /// Returns what the limit leaves; nothing where it is exceeded.
    fn spare(&self) -> Option<u64> {
        let most = self.limit.bytes(self.taken).unwrap_or(u64::MAX);
        most.checked_sub(self.bytes().0)
    }

    /// Calls `judge` where as many OS threads run blocks as were reckoned with.
    pub fn with_workers<T: Send>(&self, judge: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(self.workers);
        let pool = builder.build().context("cannot start the OS threads")?;
        Ok(pool.install(judge))
    }

    /// Refuses what exceeds the limit.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.spare().is_some() {
            return Ok(());
        }
        let remedy = self.bound.largest().remedy();
        bail!("{}: {remedy}, or raise the limit by --memory", self.line());
    }
}

/// How many times as much is given to a judgement that has remembered more than it might.
const MORE: usize = 2;

/// A judgement that is ready to begin.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub case: Case,
    pub needs: Needs,
}

impl Prepared {
    /// Takes as many OS threads as there are processors, or fewer where these need too much memory.
    pub fn new(program: &Program, launch: Case, orders: usize, limit: Limit) -> Self {
        let history = Some(launch.history_bytes(program));
        let case = Case { history, ..launch };
        let workers = rayon::current_num_threads();
        let needs = Needs {
            bound: case.bound(program, &Means { workers, orders }),
            workers,
            orders,
            taken: resident_bytes(),
            limit,
        };
        Self { case, needs }.with_fewer_workers(program)
    }

    /// Takes half of the OS threads, as often as the limit asks for it.
    fn with_fewer_workers(mut self, program: &Program) -> Self {
        let Self { case, needs } = &mut self;
        while needs.workers > 1 && needs.spare().is_none() {
            needs.workers /= 2;
            needs.bound = case.bound(
                program,
                &Means {
                    workers: needs.workers,
                    orders: needs.orders,
                },
            );
        }
        self
    }

    /// Returns the same with more memory for what is remembered of accesses; nothing where the limit
    /// does not leave it.
    pub fn with_more(&self, program: &Program) -> Option<Self> {
        let Needs {
            workers, orders, ..
        } = self.needs;
        let most = self.case.history_bytes(program);
        let case = Case {
            history: Some(most.saturating_mul(MORE)),
            ..self.case.clone()
        };
        let bound = case.bound(program, &Means { workers, orders });
        let needs = Needs {
            bound,
            ..self.needs.clone()
        };
        let more = Self { case, needs }.with_fewer_workers(program);
        more.needs.spare().is_some().then_some(more)
    }
}

/// Returns the memory that this program has, as far as the system says.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok());
    kilobytes.map_or(0, |count: u64| count * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptx::Module;
    use ptx::case::{Argument, Buffer, ElementType, Filling};

    const BARRIER: &str = include_str!("../../../../common/ptx/tests/kernels/barrier.ptx");
    const GIB: u64 = 1 << 30;

    fn program() -> Program {
        let module = Module::parse("barrier.ptx", BARRIER).unwrap();
        module.entry(&module.entries()[0].name).unwrap()
    }

    /// Returns a launch of so many blocks with an output of this many words.
    fn case(blocks: u32, words: usize) -> Case {
        let name = "to".to_owned();
        Case {
            grid: [blocks, 1, 1],
            block: [128, 1, 1],
            cluster: 1,
            dynamic_shared_bytes: 0,
            buffers: vec![Buffer {
                name: name.clone(),
                element: ElementType::I32,
                elements: words,
                filling: Filling::Unset,
                is_output: true,
            }],
            arguments: vec![Argument::Address {
                buffer: name,
                offset: 0,
            }],
            history: None,
        }
    }

    fn prepared(launch: Case, asked: u64) -> Prepared {
        Prepared::new(&program(), launch, 0, Limit::Asked(Bytes(asked)))
    }

    fn needs(bound: Bound, limit: Limit) -> Needs {
        Needs {
            bound,
            workers: 1,
            orders: 0,
            taken: GIB,
            limit,
        }
    }

    fn bound_of(buffers: u64) -> Bound {
        let means = Means {
            workers: 1,
            orders: 0,
        };
        let bound = case(1, 128).bound(&program(), &means);
        let others = bound.bytes() - bound.buffers;
        Bound {
            buffers: buffers - others,
            ..bound
        }
    }

    #[test]
    fn a_line_says_what_is_needed_for_how_many_blocks_and_what_is_free() {
        let limit = Limit::Free {
            bytes: Bytes(7 * GIB + GIB * 3 / 5),
            limit: "MemAvailable".to_owned(),
        };
        assert_eq!(
            needs(bound_of(GIB / 5), limit).line(),
            "needs up to 1.2 GiB of memory for 1 block, 1 at once; this machine has 7.6 GiB free \
             (MemAvailable)"
        );
        assert!(
            needs(bound_of(GIB), Limit::Asked(Bytes(4 * GIB)))
                .line()
                .ends_with("; --memory allows 4.0 GiB")
        );
        assert!(
            needs(bound_of(GIB), Limit::Unknown)
                .line()
                .ends_with("; this machine does not say what it has free")
        );
    }

    #[test]
    fn what_exceeds_the_limit_is_refused_with_a_remedy() {
        let free = |bytes| Limit::Free {
            bytes: Bytes(bytes),
            limit: "MemAvailable".to_owned(),
        };
        // What the program has is not free any more, and asked for with the rest.
        assert!(needs(bound_of(2 * GIB), free(2 * GIB)).check().is_ok());
        assert!(needs(bound_of(2 * GIB + 1), free(2 * GIB)).check().is_err());
        assert!(
            needs(bound_of(2 * GIB), Limit::Asked(Bytes(3 * GIB)))
                .check()
                .is_ok()
        );
        assert!(needs(bound_of(9 * GIB), Limit::Unknown).check().is_ok());
        let asked = Limit::Asked(Bytes(3 * GIB - 1));
        let refusal = needs(bound_of(2 * GIB), asked).check().unwrap_err();
        let words = "make the buffers smaller, or raise the limit by --memory";
        assert!(refusal.to_string().ends_with(words), "{refusal}");
    }

    #[test]
    fn fewer_blocks_run_at_once_where_memory_is_short() {
        let words = 16 << 20;
        let one = Means {
            workers: 1,
            orders: 0,
        };
        let least = case(64, words).bound(&program(), &one).bytes();
        let short = prepared(case(64, words), least + resident_bytes() + 64 * 1024 * 1024);
        assert_eq!((short.needs.workers, short.needs.bound.at_once), (1, 1));
        assert!(short.needs.check().is_ok(), "{}", short.needs.line());
        let none = prepared(case(64, words), least / 2);
        assert!(none.needs.check().is_err(), "{}", none.needs.line());
    }

    #[test]
    fn more_is_given_as_far_as_the_limit_leaves_it() {
        let first = prepared(case(1, 128), GIB);
        let before = first.case.history_bytes(&program());
        let second = first.with_more(&program()).unwrap();
        assert_eq!(second.case.history_bytes(&program()), 2 * before);
        assert!(second.needs.bytes() > first.needs.bytes());
        assert!(second.needs.check().is_ok(), "{}", second.needs.line());
        let mut last = second;
        while let Some(next) = last.with_more(&program()) {
            assert!(next.needs.check().is_ok(), "{}", next.needs.line());
            last = next;
        }
        // Twice as much would exceed the limit.
        assert!(last.needs.bytes().0 > GIB / 2, "{}", last.needs.line());
    }

    #[test]
    fn more_is_given_to_fewer_blocks_at_once_where_memory_is_short() {
        let words = 1 << 10;
        let roomy = prepared(case(64, words), 1 << 50);
        let limit = roomy.needs.bytes().0;
        let needs = Needs {
            limit: Limit::Asked(Bytes(limit)),
            ..roomy.needs.clone()
        };
        let first = Prepared { needs, ..roomy };
        assert!(first.needs.check().is_ok());
        let more = first.with_more(&program()).unwrap();
        assert!(more.needs.workers < first.needs.workers);
        assert!(more.needs.check().is_ok(), "{}", more.needs.line());
    }
}
