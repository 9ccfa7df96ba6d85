//! Which lines of kernel.cu warps wait in: ncu's samples of each instruction, the calls through which it was inlined, and both
//! summed by line. Pure.

use super::csv::{complete, fields, no_table, not_a_number};
use std::collections::BTreeMap;
use std::fmt;

/// So many lines a launch keeps.
const KEPT: usize = 10;

/// So many reasons a line names.
const REASONS: usize = 3;

/// What begins the column of a reason. Those of warps that did not issue come a second time, marked as such.
const STALL: &str = "stall_";

/// A warp that issues does not wait.
const ISSUES: &str = "selected";

/// The samples of one launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub kernel: String,
    /// Of each instruction, by its offset in bytes: how often a warp was seen waiting there, by reason.
    pub instructions: BTreeMap<u64, BTreeMap<String, u64>>,
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// Without the folder of headers: `attn/fragment.cuh`.
    pub file: String,
    pub line: u32,
}

impl Frame {
    fn is_of_kernel(&self) -> bool {
        self.file == "kernel.cu"
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Where each instruction of a function comes from, by its offset: the line itself, then the calls that it was inlined through.
pub type Chains = BTreeMap<u64, Vec<Frame>>;

/// What `ncu --csv --page source` prints: for every launch a line of its name, a line of columns, and a line an instruction.
pub fn sampled(text: &str) -> Result<Vec<Sampled>, String> {
    let (mut found, mut columns, mut base) = (Vec::<Sampled>::new(), Vec::new(), 0);
    for (index, line) in text.lines().enumerate() {
        let fields = fields(line);
        let Some(head) = fields.first() else {
            continue;
        };
        if let ("Kernel Name", Some(kernel)) = (&**head, fields.get(1)) {
            found.push(Sampled {
                kernel: kernel.clone(),
                instructions: BTreeMap::new(),
            });
            columns.clear();
        } else if head == "Address" {
            columns = fields;
        } else if let (Some(launch), false) = (found.last_mut(), columns.is_empty()) {
            complete(line, index, &columns)?;
            let address = u64::from_str_radix(head.trim_start_matches("0x"), 16)
                .map_err(|_| not_a_number("Address", head))?;
            if launch.instructions.is_empty() {
                base = address;
            }
            let mut waits = BTreeMap::new();
            for (column, value) in columns.iter().zip(&fields) {
                let reason = column
                    .strip_prefix(STALL)
                    .filter(|reason| !reason.contains(' ') && *reason != ISSUES);
                if let Some(reason) = reason {
                    let count: u64 = value.parse().map_err(|_| not_a_number(column, value))?;
                    if count > 0 {
                        waits.insert(words(reason), count);
                    }
                }
            }
            let offset = address.wrapping_sub(base);
            launch.instructions.insert(offset, waits);
        }
    }
    if found.is_empty() || found.iter().any(|launch| launch.instructions.is_empty()) {
        return Err(no_table(text));
    }
    Ok(found)
}

/// ncu's short names in words.
fn words(reason: &str) -> String {
    match reason {
        "long_sb" => "long scoreboard",
        "short_sb" => "short scoreboard",
        "no_inst" => "no instruction",
        "math" => "math pipe",
        "lg" => "LG throttle",
        "mio" => "MIO throttle",
        "tex" => "TEX throttle",
        "imc" => "constant miss",
        other => return other.replace('_', " "),
    }
    .to_string()
}

/// The chains of one function in what `nvdisasm -gi -c` prints. A chain holds until the next one.
pub fn chains(text: &str, symbol: &str) -> Chains {
    let start = format!(".text.{symbol}:");
    let of_function = text
        .lines()
        .skip_while(|line| *line != start)
        .skip(1)
        .take_while(|line| !line.trim_start().starts_with(".section"));
    let (mut found, mut chain, mut is_open) = (Chains::new(), Vec::new(), false);
    for line in of_function.map(str::trim) {
        if let Some(frame) = line.strip_prefix("//## File ").and_then(frame) {
            if !is_open {
                chain.clear();
            }
            is_open = true;
            chain.push(frame);
        } else if let Some((address, _)) = line
            .strip_prefix("/*")
            .and_then(|rest| rest.split_once("*/"))
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            is_open = false;
            found.insert(address, chain.clone());
        }
    }
    found
}

/// `"/x/common/cuda/attn/mask.cuh", line 12 inlined at "/x/kernel.cu", line 175`
fn frame(text: &str) -> Option<Frame> {
    let (path, rest) = text.strip_prefix('"')?.split_once("\", line ")?;
    let file = match path.split_once("common/cuda/") {
        Some((_, header)) => header,
        None => path.rsplit('/').next()?,
    };
    Some(Frame {
        file: file.to_string(),
        line: rest.split_whitespace().next()?.parse().ok()?,
    })
}

/// A line of kernel.cu with what its own instructions and those of all that it calls wait for.
#[derive(Clone, Debug, Default, PartialEq)]
struct Line {
    waits: BTreeMap<String, u64>,
    /// Samples in our headers, by where they sit; an intrinsic of the toolkit counts where it is called.
    headers: BTreeMap<Frame, u64>,
}

impl Line {
    fn samples(&self) -> u64 {
        self.waits.values().sum()
    }
}

/// The lines of kernel.cu with most samples, as a record keeps them: `418 samples of waiting warps: 18 % in line 208 (…); …`.
/// An error says why samples and chains are not of one function.
pub fn note(sampled: &Sampled, chains: &Chains) -> Result<String, String> {
    let mut lines: BTreeMap<Option<u32>, Line> = BTreeMap::new();
    for (offset, waits) in &sampled.instructions {
        let Some(chain) = chains.get(offset) else {
            return Err(format!(
                "{}: ncu has an instruction at {offset:#x}, where the build with lines has none",
                sampled.kernel
            ));
        };
        let of_kernel = chain.iter().find(|frame| frame.is_of_kernel());
        let line = lines.entry(of_kernel.map(|frame| frame.line)).or_default();
        for (reason, count) in waits {
            *line.waits.entry(reason.clone()).or_default() += count;
        }
        let own = |frame: &&Frame| frame.is_of_kernel() || frame.file.starts_with("attn/");
        let header = chain.iter().find(own).filter(|frame| !frame.is_of_kernel());
        if let Some(header) = header {
            *line.headers.entry(header.clone()).or_default() += waits.values().sum::<u64>();
        }
    }
    let all: u64 = lines.values().map(Line::samples).sum();
    if all == 0 {
        return Err(format!("{}: ncu saw no warp wait", sampled.kernel));
    }
    // What rounds to 0 % says nothing.
    let counts = |count: u64| count * 200 >= all;
    let share = |count: u64| format!("{:.0} %", 100.0 * count as f64 / all as f64);
    let mut lines: Vec<_> = lines
        .into_iter()
        .filter(|(_, line)| line.samples() > 0)
        .collect();
    lines.sort_by_key(|(number, line)| (std::cmp::Reverse(line.samples()), *number));
    let line = |(number, line): &(Option<u32>, Line)| {
        let mut waits: Vec<_> = line.waits.iter().collect();
        waits.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let mut words: Vec<String> = waits
            .iter()
            .take(REASONS)
            .filter(|(_, count)| counts(**count))
            .map(|(reason, count)| format!("{} {reason}", share(**count)))
            .collect();
        // Of equals the first.
        let header = line.headers.iter().rev().max_by_key(|(_, count)| **count);
        words.extend(
            header
                .filter(|(_, count)| counts(**count))
                .map(|(frame, count)| format!("{} in {frame}", share(*count))),
        );
        let place = number.map_or("no line of kernel.cu".into(), |line| format!("line {line}"));
        format!(
            "{} in {place} ({})",
            share(line.samples()),
            words.join(", ")
        )
    };
    let kept: Vec<String> = lines.iter().take(KEPT).map(line).collect();
    Ok(format!(
        "{all} samples of waiting warps: {}",
        kept.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ncu 2025.3, stage 5 at mission: some instructions of many.
    const SAMPLES: &str = include_str!("ncu-source.csv");
    /// nvdisasm 13.0 of the same instructions.
    const LISTING: &str = include_str!("nvdisasm-lines.txt");
    const SYMBOL: &str = "stage5_swizzle_swizzle_32x256_k4_f16_d64";

    #[test]
    fn samples_are_read_by_reason_without_warps_that_issue() {
        let [launch] = &sampled(SAMPLES).unwrap()[..] else {
            panic!("one launch")
        };
        assert_eq!(launch.kernel, SYMBOL);
        let waits = |offset| &launch.instructions[&offset];
        assert_eq!(waits(0), &[("no instruction".to_string(), 10)].into());
        let one = |words: [&str; 3]| words.map(|word| (word.to_string(), 1)).into();
        assert_eq!(
            waits(0x5d30),
            &one(["MIO throttle", "not selected", "wait"])
        );
        assert_eq!(waits(0x65d0), &[("wait".to_string(), 3)].into());
    }

    #[test]
    fn an_instruction_has_its_line_and_the_calls_around_it() {
        let chains = chains(LISTING, SYMBOL);
        let chain = |offset| {
            let frames: Vec<String> = chains[&offset].iter().map(Frame::to_string).collect();
            frames.join(" < ")
        };
        assert_eq!(chain(0), "kernel.cu:313");
        assert_eq!(
            chain(0x1290),
            "sm_20_intrinsics.hpp:151 < attn/ptx/shared_address.cuh:10 < attn/ptx/cp_async.cuh:28 < attn/layout.cuh:90 < \
             kernel.cu:137 < kernel.cu:151 < kernel.cu:313"
        );
        assert_eq!(chain(0x20f0), chain(0x1f00), "it holds until the next");
        assert_ne!(chain(0x12a0), chain(0x1290));
        assert!(self::chains(LISTING, "another").is_empty());
    }

    #[test]
    fn lines_are_those_of_kernel_cu_whatever_header_waits() {
        let launch = sampled(SAMPLES).unwrap().remove(0);
        let note = note(&launch, &chains(LISTING, SYMBOL)).unwrap();
        let expected = "86 samples of waiting warps: \
             33 % in line 125 (19 % short scoreboard, 14 % no instruction, 19 % in attn/element.cuh:52); \
             12 % in line 175 (12 % barrier, 12 % in attn/mask.cuh:12); \
             12 % in line 313 (12 % no instruction); \
             10 % in line 137 (10 % long scoreboard, 10 % in attn/ptx/shared_address.cuh:10); \
             10 % in line 208 (5 % short scoreboard, 1 % MIO throttle, 1 % branch resolving, 7 % in attn/softmax.cuh:17); \
             8 % in line 77 (3 % math pipe, 3 % short scoreboard, 1 % wait, 8 % in attn/ptx/mma.cuh:19); \
             8 % in line 96 (5 % wait, 1 % dispatch, 1 % math pipe, 8 % in attn/ptx/mma.cuh:19); \
             7 % in line 275 (3 % MIO throttle, 2 % wait, 1 % not selected, 7 % in attn/ptx/ex2.cuh:10)";
        assert_eq!(note, expected);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let launch = sampled(SAMPLES).unwrap().remove(0);
        let error = note(&launch, &chains(LISTING, "another")).unwrap_err();
        assert!(error.contains("the build with lines has none"), "{error}");
        let error = |text: &str| sampled(text).unwrap_err();
        let head = SAMPLES.lines().take(2).collect::<Vec<_>>().join("\n");
        for none in ["==ERROR== No kernels were profiled", &head] {
            assert!(error(none).starts_with("ncu printed no table: "));
        }
        let cut = error(&SAMPLES[..SAMPLES.len() - 40]);
        assert!(cut.starts_with("ncu's table is cut off: "), "{cut}");
        let no_number = error(&SAMPLES.replacen("\"10\"", "\"x\"", 60));
        assert!(no_number.ends_with(" is not a number: x"), "{no_number}");
    }
}
