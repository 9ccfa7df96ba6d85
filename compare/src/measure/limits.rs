//! What the system lets this process have. Too little is the machine's fault, never a stage's.

use super::machine::processors;
use anyhow::bail;
use common::device::emulated::FAR_APART_BYTES;
use std::error::Error;
use std::thread;

/// Memory of the smallest run; 0.35 GB were measured.
const LEAST_BYTES: u128 = 1 << 30;

/// Address space for the stacks of a processor's block and for what its thread allocates; 110 MB were measured.
const BYTES_PER_PROCESSOR: usize = 128 << 20;

#[derive(Debug)]
pub struct Limited {
    pub name: &'static str,
    /// What there is, or why it is too little.
    pub found: Result<String, String>,
    pub remedy: &'static str,
}

impl Limited {
    pub fn check(self) -> anyhow::Result<()> {
        match self.found {
            Ok(_) => Ok(()),
            Err(why) => bail!("{}: {why}. {}", self.name, self.remedy),
        }
    }
}

/// Refuses what would end in the middle: a failed allocation aborts the program, and a thread that does not start is a panic.
pub fn check() -> anyhow::Result<()> {
    limited(0).into_iter().try_for_each(Limited::check)
}

/// All that a run may want.
pub fn of_runs() -> [Limited; 3] {
    limited(processors())
}

/// The address space for traced cases, one at a time.
pub fn check_traced() -> anyhow::Result<()> {
    address_space(1).check()
}

/// For so many traced cases at once.
fn limited(traced: usize) -> [Limited; 3] {
    [
        Limited {
            name: "memory",
            found: match available() {
                None => Ok("of unknown size".into()),
                Some(bytes) => enough(bytes, LEAST_BYTES),
            },
            remedy: "End other programs, or raise the control group's memory.max.",
        },
        address_space(traced),
        Limited {
            name: "threads",
            found: threads(),
            remedy: "Raise `ulimit -u` or the control group's pids.max, or set RAYON_NUM_THREADS=1.",
        },
    ]
}

fn address_space(traced: usize) -> Limited {
    let reserved = BYTES_PER_PROCESSOR * processors() + FAR_APART_BYTES * traced;
    let needed = LEAST_BYTES + reserved as u128;
    Limited {
        name: "address space",
        found: match address_limit(&read("/proc/self/limits")) {
            None => Ok("unlimited".into()),
            Some((command, bytes)) => {
                enough(bytes, needed).map_err(|why| format!("{command}: {why}"))
            }
        },
        remedy: "Raise it: `ulimit -v unlimited; ulimit -d unlimited`.",
    }
}

/// What to do when the emulator gets no more address space.
pub fn memory_advice() -> String {
    match address_limit(&read("/proc/self/limits")) {
        Some((command, bytes)) => {
            format!(
                "`{command}` allows {}; raise it by `{command} unlimited`",
                size(bytes)
            )
        }
        None => {
            "set vm.overcommit_memory=1, or run fewer cases at once by RAYON_NUM_THREADS=1".into()
        }
    }
}

fn enough(available: u128, needed: u128) -> Result<String, String> {
    let (has, needs) = (size(available), size(needed));
    match available < needed {
        true => Err(format!(
            "{has} are available, and a run takes up to {needs}"
        )),
        false => Ok(format!("{has} available")),
    }
}

/// Starts the pool, and one thread more.
fn threads() -> Result<String, String> {
    let pool = rayon::ThreadPoolBuilder::new().build_global();
    let refused = |error: &dyn Error| format!("the system does not start them: {error}");
    // Without a source it was started before.
    if let Some(error) = pool.as_ref().err().and_then(Error::source) {
        return Err(refused(error));
    }
    let one_more = thread::Builder::new().spawn(|| ());
    one_more.map_err(|error| refused(&error))?.join().ok();
    Ok(format!("{} started", rayon::current_num_threads()))
}

/// `5.7 GB`.
pub fn size(bytes: u128) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// An empty text where the system has no such file.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Memory that is available without swapping, if the system reports it as Linux does, and no more than the control group has.
pub fn available() -> Option<u128> {
    let groups = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let groups = groups
        .iter()
        .filter_map(|path| read(path).trim().parse().ok());
    available_in(&read("/proc/meminfo"))
        .into_iter()
        .chain(groups)
        .min()
}

fn available_in(meminfo: &str) -> Option<u128> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u128 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// The lowest limit of address space in /proc/self/limits, in bytes, and the command that sets it.
fn address_limit(limits: &str) -> Option<(&'static str, u128)> {
    let of = |(name, command)| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        Some((command, line.split_whitespace().next()?.parse().ok()?))
    };
    let all = [
        ("Max address space", "ulimit -v"),
        ("Max data size", "ulimit -d"),
    ];
    all.into_iter()
        .filter_map(of)
        .min_by_key(|(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_as_linux_writes_it() {
        assert_eq!(
            available_in("MemTotal: 9 kB\nMemAvailable:   23572988 kB\n"),
            Some(23_572_988 * 1024)
        );
        assert_eq!(available_in("MemFree: 9 kB\n"), None);
    }

    #[test]
    fn the_lowest_limit_is_named() {
        let limits = |data: &str, space: &str| {
            format!(
                "Max data size   {data}  unlimited  bytes\nMax address space  {space}  unlimited  bytes\n"
            )
        };
        let lowest = |data, space| address_limit(&limits(data, space));
        assert_eq!(lowest("unlimited", "unlimited"), None);
        assert_eq!(lowest("unlimited", "65536"), Some(("ulimit -v", 65_536)));
        assert_eq!(lowest("4096", "65536"), Some(("ulimit -d", 4096)));
    }

    #[test]
    fn too_little_is_said_with_both_figures() {
        let said = enough(300 << 20, LEAST_BYTES).unwrap_err();
        assert_eq!(said, "0.3 GB are available, and a run takes up to 1.1 GB");
        assert_eq!(enough(4 << 30, LEAST_BYTES).unwrap(), "4.3 GB available");
    }
}
