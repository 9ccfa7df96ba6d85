//! How much memory a process may still take: what the machine has, every control group around the
//! process, and its own limits. Linux tells in text files; where there is none, nothing is known.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Memory in bytes, and which limit leaves no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    pub bytes: u128,
    /// `memory.max of /batch/job`, as a person finds and raises it.
    pub limit: String,
}

/// The folder of the system's text files: `/`, or in a test another one.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
}

/// One version of the control groups, as they limit memory.
struct Hierarchy {
    /// The type of a mount, in /proc/self/mountinfo.
    filesystem: &'static str,
    /// The controller that a line of /proc/self/cgroup and the mount's options name; the one
    /// hierarchy of version 2 names none.
    controller: &'static str,
    /// The files that hold a limit.
    limits: &'static [&'static str],
    usage: &'static str,
    /// The name in memory.stat of file pages that can be dropped at once.
    droppable: &'static str,
}

const HIERARCHIES: [Hierarchy; 2] = [
    Hierarchy {
        filesystem: "cgroup2",
        controller: "",
        // Beyond memory.high a process is not killed, but stands still.
        limits: &["memory.max", "memory.high"],
        usage: "memory.current",
        droppable: "inactive_file",
    },
    Hierarchy {
        filesystem: "cgroup",
        controller: "memory",
        limits: &["memory.limit_in_bytes"],
        usage: "memory.usage_in_bytes",
        droppable: "total_inactive_file",
    },
];

/// The limits of a process's own memory: the name in /proc/self/limits, and the command that sets
/// it.
const RESOURCES: [(&str, &str); 2] = [
    ("Max address space", "ulimit -v"),
    ("Max data size", "ulimit -d"),
];

impl System {
    /// Returns the one that this process runs on.
    pub fn here() -> Self {
        Self {
            root: PathBuf::from("/"),
        }
    }

    /// Returns the least that the machine or a control group leaves.
    pub fn memory(&self) -> Option<Available> {
        let groups = HIERARCHIES.iter().flat_map(|kind| self.groups(kind));
        self.machine()
            .into_iter()
            .chain(groups)
            .min_by_key(|available| available.bytes)
    }

    /// Returns the least that those or the process's own limits leave.
    pub fn available(&self) -> Option<Available> {
        self.memory()
            .into_iter()
            .chain(self.address_space())
            .min_by_key(|available| available.bytes)
    }

    /// Returns the lowest limit of address space.
    pub fn address_space(&self) -> Option<Available> {
        let limits = self.read("proc/self/limits")?;
        let mut available: Vec<Available> = Vec::new();
        for (name, command) in RESOURCES {
            if let Some(bytes) = soft_limit(&limits, name) {
                available.push(Available {
                    bytes,
                    limit: command.to_string(),
                });
            }
        }
        available.into_iter().min_by_key(|limit| limit.bytes)
    }

    /// Returns what the machine has without swapping.
    fn machine(&self) -> Option<Available> {
        let meminfo = self.read("proc/meminfo")?;
        let line = meminfo
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kilobytes: u128 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Available {
            bytes: kilobytes * 1024,
            limit: "MemAvailable".to_string(),
        })
    }

    /// Returns what each limit of the process's control group, and of every group around it,
    /// leaves.
    fn groups(&self, kind: &Hierarchy) -> Vec<Available> {
        let Some(path) = self.group(kind) else {
            return vec![];
        };
        let mut available = Vec::new();
        for mount in self.mounts(kind) {
            let below = path.strip_prefix(&mount.group).unwrap_or(&path);
            let relative = below.strip_prefix("/").unwrap_or(below);
            // From the innermost to the folder of the mount itself.
            for level in relative.ancestors() {
                let folder = mount.folder.join(level);
                let name = Path::new("/").join(level);
                available.extend(self.limits(kind, &folder, &name));
            }
        }
        available
    }

    /// Returns the control group of the process: `/batch/job`.
    fn group(&self, kind: &Hierarchy) -> Option<PathBuf> {
        let groups = self.read("proc/self/cgroup")?;
        for line in groups.lines() {
            let Some((_, fields)) = line.split_once(':') else {
                continue;
            };
            let Some((controllers, path)) = fields.split_once(':') else {
                continue;
            };
            let mut names = controllers.split(',');
            if names.any(|name| name == kind.controller) {
                return Some(PathBuf::from(path));
            }
        }
        None
    }

    /// Returns where the hierarchy is mounted; a container sees a part of it.
    fn mounts(&self, kind: &Hierarchy) -> Vec<Mount> {
        let mounts = self.read("proc/self/mountinfo").unwrap_or_default();
        mounts
            .lines()
            .filter_map(|line| Mount::parse(line, kind))
            .collect()
    }

    /// Returns what the limits of the group in `folder` leave, whose name is `group`.
    fn limits(&self, kind: &Hierarchy, folder: &Path, group: &Path) -> Vec<Available> {
        let usage = self.number(&folder.join(kind.usage)).unwrap_or(0);
        let used = usage.saturating_sub(self.droppable(kind, folder));
        let mut available = Vec::new();
        for file in kind.limits {
            // `max` is no number, and no limit.
            let Some(limit) = self.number(&folder.join(file)) else {
                continue;
            };
            available.push(Available {
                bytes: limit.saturating_sub(used),
                limit: format!("{file} of the control group {}", group.display()),
            });
        }
        available
    }

    /// Returns the bytes of file pages that the group in `folder` can drop at once.
    fn droppable(&self, kind: &Hierarchy, folder: &Path) -> u128 {
        let stat = self.read(folder.join("memory.stat")).unwrap_or_default();
        for line in stat.lines() {
            if let Some((name, bytes)) = line.split_once(' ')
                && name == kind.droppable
            {
                return bytes.trim().parse().unwrap_or(0);
            }
        }
        0
    }

    /// Reads the number in a file, if it is one.
    fn number(&self, file: &Path) -> Option<u128> {
        self.read(file)?.trim().parse().ok()
    }

    fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let absolute = path.as_ref();
        let inside = absolute.strip_prefix("/").unwrap_or(absolute);
        read_to_string(self.root.join(inside)).ok()
    }
}

/// Reads the soft limit of a resource in the text of /proc/self/limits; `unlimited` is none.
fn soft_limit(limits: &str, resource: &str) -> Option<u128> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix(resource))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A folder in which the groups from `group` on are seen.
struct Mount {
    group: PathBuf,
    folder: PathBuf,
}

impl Mount {
    /// Reads a line of /proc/self/mountinfo, if it is a mount of the hierarchy:
    /// `31 23 0:26 /group /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory`.
    fn parse(line: &str, kind: &Hierarchy) -> Option<Self> {
        let (place, source) = line.split_once(" - ")?;
        let mut source_fields = source.split(' ');
        if source_fields.next()? != kind.filesystem {
            return None;
        }
        let mut options = source_fields.nth(1)?.split(',');
        if !kind.controller.is_empty() && !options.any(|option| option == kind.controller) {
            return None;
        }
        let mut fields = place.split(' ').skip(3);
        let group = fields.next()?;
        let folder = fields.next()?;
        Some(Self {
            group: PathBuf::from(group),
            folder: PathBuf::from(folder.replace("\\040", " ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const GB: u128 = 1_000_000_000;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    /// A made-up system of these files, whose machine has 64 GB.
    struct Files(tempfile::TempDir);

    impl Files {
        fn new(files: &[(&str, &str)]) -> Self {
            let written = Self(tempfile::tempdir().unwrap());
            written.write(
                "proc/meminfo",
                "MemTotal: 9 kB\nMemAvailable:   62500000 kB\n",
            );
            for (name, text) in files {
                written.write(name, text);
            }
            written
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// `2.0 GB by memory.max of the control group /a`
        fn says(&self) -> String {
            let system = System {
                root: self.0.path().into(),
            };
            let Available { bytes, limit } = system.available().unwrap();
            format!("{:.1} GB by {limit}", bytes as f64 / GB as f64)
        }
    }

    #[test]
    fn without_control_groups_the_machine_is_the_limit() {
        assert_eq!(Files::new(&[]).says(), "64.0 GB by MemAvailable");
    }

    #[test]
    fn a_system_that_says_nothing_has_no_limit() {
        let empty = tempfile::tempdir().unwrap();
        let system = System {
            root: empty.path().into(),
        };
        assert_eq!(system.available(), None);
    }

    #[test]
    fn the_limit_of_an_inner_group_is_read() {
        let files = Files::new(&[
            ("proc/self/cgroup", "0::/user.slice/job\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/job/memory.max", "2000000000\n"),
        ]);
        let says = "2.0 GB by memory.max of the control group /user.slice/job";
        assert_eq!(files.says(), says);
    }

    #[test]
    fn the_limit_of_a_group_between_is_read() {
        let files = Files::new(&[
            ("proc/self/cgroup", "0::/user.slice/batch/job\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/user.slice/batch/job/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/batch/memory.max", "3000000000\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "9000000000\n"),
        ]);
        let says = "3.0 GB by memory.max of the control group /user.slice/batch";
        assert_eq!(files.says(), says);
    }

    #[test]
    fn where_a_group_is_slowed_down_is_a_limit_too() {
        let files = Files::new(&[
            ("proc/self/cgroup", "0::/job\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/job/memory.max", "8000000000\n"),
            ("sys/fs/cgroup/job/memory.high", "1000000000\n"),
        ]);
        assert_eq!(
            files.says(),
            "1.0 GB by memory.high of the control group /job"
        );
    }

    /// A container's own group looks like the root.
    #[test]
    fn a_container_reads_the_group_of_its_mount() {
        for mount in ["/", "/docker/1f"] {
            let line = format!("30 23 0:26 {mount} /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
            let files = Files::new(&[
                ("proc/self/cgroup", &format!("0::{mount}\n")),
                ("proc/self/mountinfo", &line),
                ("sys/fs/cgroup/memory.max", "4000000000\n"),
            ]);
            assert_eq!(files.says(), "4.0 GB by memory.max of the control group /");
        }
    }

    #[test]
    fn what_a_group_uses_is_not_available_but_for_cached_files() {
        let files = Files::new(&[
            ("proc/self/cgroup", "0::/job\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/job/memory.max", "8000000000\n"),
            ("sys/fs/cgroup/job/memory.current", "7000000000\n"),
            (
                "sys/fs/cgroup/job/memory.stat",
                "anon 5000000000\ninactive_file 2000000000\n",
            ),
        ]);
        assert_eq!(
            files.says(),
            "3.0 GB by memory.max of the control group /job"
        );
    }

    #[test]
    fn version_1_is_read_at_every_level_of_its_memory_controller() {
        let groups = "5:cpu,cpuacct:/elsewhere\n4:memory:/batch/job\n0::/\n";
        let files = Files::new(&[
            ("proc/self/cgroup", groups),
            ("proc/self/mountinfo", V1),
            // No limit, as version 1 writes it.
            (
                "sys/fs/cgroup/memory/batch/job/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "sys/fs/cgroup/memory/batch/memory.limit_in_bytes",
                "2000000000\n",
            ),
            (
                "sys/fs/cgroup/memory/batch/memory.usage_in_bytes",
                "1500000000\n",
            ),
            (
                "sys/fs/cgroup/memory/batch/memory.stat",
                "total_inactive_file 500000000\n",
            ),
        ]);
        let says = "1.0 GB by memory.limit_in_bytes of the control group /batch";
        assert_eq!(files.says(), says);
    }

    /// systemd's hybrid mode: memory by version 1 beside an empty hierarchy of version 2.
    #[test]
    fn both_versions_at_once_are_read() {
        let files = Files::new(&[
            ("proc/self/cgroup", "4:memory:/job\n0::/unified\n"),
            ("proc/self/mountinfo", &format!("{V2}{V1}")),
            (
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes",
                "5000000000\n",
            ),
            ("sys/fs/cgroup/unified/memory.max", "6000000000\n"),
        ]);
        let says = "5.0 GB by memory.limit_in_bytes of the control group /job";
        assert_eq!(files.says(), says);
    }

    fn limits(data: &str, space: &str) -> String {
        format!(
            "Max data size   {data}  unlimited  bytes\n\
             Max address space  {space}  unlimited  bytes\n"
        )
    }

    #[test]
    fn the_lowest_limit_of_a_process_is_named() {
        let lowest = |data, space| {
            let files = Files::new(&[("proc/self/limits", &limits(data, space))]);
            let root = files.0.path().into();
            let lowest = System { root }.address_space();
            lowest.map(|available| (available.limit, available.bytes))
        };
        assert_eq!(lowest("unlimited", "unlimited"), None);
        let space = Some(("ulimit -v".to_string(), 65_536));
        assert_eq!(lowest("unlimited", "65536"), space);
        let data = Some(("ulimit -d".to_string(), 4096));
        assert_eq!(lowest("4096", "65536"), data);
    }

    #[test]
    fn a_limit_of_the_process_bounds_its_memory() {
        let files = Files::new(&[("proc/self/limits", &limits("7000000000", "unlimited"))]);
        assert_eq!(files.says(), "7.0 GB by ulimit -d");
    }
}
