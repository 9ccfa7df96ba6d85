//! Faults planted in the text that nvcc emits: one instruction is edited, and the judge or the
//! comparison with the g++ build must notice.
//!
//! `PTX_EDITS=all` judges every row, in a minute of CPU time. Of the 104 rows 102 are noticed; the
//! other two change nothing, and a test names them with the reason.

use common::device::emulated::{self, Selection};
use common::problem::{Dtype, Mask, Problem, parse_shape};
use common::stage::{Attention, LoadedStage};
use common::tier0::SCHEDULES;
use ptx::Module;

use super::{Launch, compiled};

/// An edit of one instruction.
#[derive(Clone, Copy, Debug)]
enum Change {
    Remove,
    /// Puts the second text in the place of the first.
    Text(&'static str, &'static str),
    /// Exchanges two operands.
    Swap(usize, usize),
    /// Puts a text in the place of an operand.
    Operand(usize, &'static str),
    /// Exchanges two registers of the list that an operand is.
    SwapInList(usize, usize, usize),
}
use Change::{Operand, Remove, Swap, SwapInList, Text};

/// The `nth` instruction that begins with these words, and what becomes of it.
type Edit = (&'static str, usize, Change);

const TRY_WAIT: &str = "mbarrier.try_wait";
const EXPECT: &str = "mbarrier.arrive.expect_tx";
const LOAD: &str = "cp.async.bulk.tensor.4d";
const SCORES: &str = "wgmma.mma_async.sync.aligned.m64n128k16";
const VALUES: &str = "wgmma.mma_async.sync.aligned.m64n64k16";
const LDMATRIX: &str = "ldmatrix.sync.aligned.m8n8.x4.shared";
const TRANSPOSED: &str = "ldmatrix.sync.aligned.m8n8.x4.trans";

const WGMMA: &[Edit] = &[
    ("bar.sync", 0, Remove),
    ("mbarrier.init", 0, Remove),
    ("mbarrier.init", 0, Operand(1, "2")),
    ("mbarrier.init", 1, Operand(1, "2")),
    ("mbarrier.init", 6, Operand(1, "2")),
    (EXPECT, 0, Remove),
    (EXPECT, 0, Operand(2, "4096")),
    (EXPECT, 1, Operand(2, "8192")),
    (EXPECT, 3, Operand(2, "32768")),
    (LOAD, 0, Remove),
    (LOAD, 1, Remove),
    (LOAD, 2, Remove),
    (TRY_WAIT, 0, Remove),
    (TRY_WAIT, 0, Operand(2, "1")),
    (TRY_WAIT, 1, Remove),
    (TRY_WAIT, 1, Operand(2, "0")),
    (TRY_WAIT, 2, Remove),
    (TRY_WAIT, 2, Operand(2, "0")),
    (TRY_WAIT, 3, Remove),
    (TRY_WAIT, 3, Operand(2, "1")),
    ("mbarrier.arrive.shared", 0, Remove),
    ("wgmma.fence", 0, Remove),
    ("wgmma.fence", 1, Remove),
    ("wgmma.commit_group", 0, Remove),
    ("wgmma.commit_group", 1, Remove),
    ("wgmma.wait_group", 0, Remove),
    ("wgmma.wait_group", 0, Operand(0, "1")),
    ("wgmma.wait_group", 1, Remove),
    (SCORES, 1, Remove),
    (SCORES, 0, SwapInList(0, 0, 1)),
    (SCORES, 1, Swap(1, 2)),
    (VALUES, 0, Remove),
    (VALUES, 0, SwapInList(1, 1, 2)),
    (VALUES, 7, SwapInList(0, 3, 4)),
    ("shfl.sync.bfly", 0, Operand(2, "4")),
    ("shfl.sync.bfly", 1, Operand(2, "8")),
    ("setp.lt.s32", 8, Text(".lt.", ".le.")),
    ("selp.f32", 4, Swap(1, 2)),
    ("max.f32", 0, Text("max", "min")),
    ("fma.rn.f32", 3, Swap(2, 3)),
    ("st.global.u32", 3, Remove),
    ("lg2", 0, Text("lg2", "ex2")),
];

const TMA: &[Edit] = &[
    ("bar.sync", 0, Remove),
    ("bar.sync", 1, Remove),
    ("bar.sync", 2, Remove),
    ("bar.sync", 3, Remove),
    ("mbarrier.init", 0, Operand(1, "2")),
    (EXPECT, 0, Operand(2, "2048")),
    (LOAD, 1, Remove),
    (TRY_WAIT, 0, Remove),
    (TRY_WAIT, 1, Operand(2, "1")),
    (LDMATRIX, 0, SwapInList(0, 1, 2)),
    (LDMATRIX, 3, Text("]", "+16]")),
    (LDMATRIX, 20, Text("]", "+128]")),
    (TRANSPOSED, 0, Text(".trans", "")),
    (TRANSPOSED, 5, SwapInList(0, 0, 1)),
    ("mma.sync", 0, SwapInList(1, 0, 3)),
    ("mma.sync", 9, SwapInList(2, 0, 1)),
    ("mma.sync", 40, SwapInList(0, 1, 2)),
    ("mma.sync", 100, SwapInList(3, 0, 2)),
    ("xor.b32", 3, Text("xor", "or")),
    ("xor.b32", 9, Text("xor", "and")),
    ("bfi.b32", 0, Operand(3, "2")),
    ("shfl.sync.bfly", 3, Operand(2, "8")),
    ("st.shared.v2.f32", 2, SwapInList(1, 0, 1)),
    ("ld.shared.f32", 4, Remove),
    ("setp.le.s32", 0, Text(".le.", ".lt.")),
    ("setp.lt.s32", 40, Text(".lt.", ".gt.")),
    ("mul.lo.s64", 2, Remove),
];

const CLUSTER: &[Edit] = &[
    ("st.async", 0, Remove),
    ("st.async", 1, SwapInList(1, 0, 1)),
    ("mapa", 0, Operand(2, "0")),
    (EXPECT, 0, Remove),
    (EXPECT, 16, Remove),
    ("mbarrier.try_wait.parity.acquire.cluster", 0, Remove),
    (
        "mbarrier.try_wait.parity.acquire.cluster",
        1,
        Operand(2, "1"),
    ),
    ("ld.shared.v4.f32", 0, SwapInList(0, 0, 1)),
    ("ld.shared.v4.f32", 1, SwapInList(0, 2, 3)),
    ("barrier.cluster.wait", 0, Remove),
    ("barrier.cluster.arrive", 0, Remove),
    ("mapa", 3, Operand(2, "1")),
    ("bar.sync", 0, Remove),
    ("wgmma.wait_group", 1, Operand(0, "2")),
    ("wgmma.commit_group", 2, Remove),
    ("or.b32", 2, Text("or", "and")),
    ("div.approx", 0, Swap(1, 2)),
    ("st.global.u32", 7, Remove),
];

const SWIZZLE: &[Edit] = &[
    ("bar.sync", 0, Remove),
    ("bar.sync", 1, Remove),
    ("cp.async.commit_group", 0, Remove),
    ("cp.async.commit_group", 2, Remove),
    ("cp.async.wait_group", 0, Operand(0, "6")),
    ("cp.async.wait_group", 1, Remove),
    ("cp.async.wait_group", 2, Remove),
    ("cp.async.cg", 0, Remove),
    ("cp.async.cg", 3, Text("], [", "+16], [")),
    ("cp.async.cg", 5, Operand(3, "8")),
    ("ldmatrix.sync", 0, SwapInList(0, 0, 1)),
    ("mma.sync", 3, SwapInList(1, 1, 2)),
    ("xor.b32", 2, Text("xor.b32", "add.s32")),
    ("ex2.approx", 4, Text("ex2", "lg2")),
    ("add.f32", 6, Remove),
    ("setp.lt.s32", 3, Text(".lt.", ".gt.")),
    ("setp.lt.s32", 40, Text(".lt.", ".gt.")),
];

/// Returns a module's text with one entry alone.
fn single_entry(text: &str, symbol: &str) -> String {
    let starts: Vec<usize> = text
        .match_indices(".visible .entry")
        .map(|it| it.0)
        .collect();
    let last_end = text.rfind("\n}\n").unwrap() + 3;
    let named = format!(".visible .entry {symbol}(");
    let start = text.find(&named).expect(symbol);
    let following = starts.iter().copied().find(|&other| other > start);
    let end = following.map_or(last_end, |next| text[..next].rfind("\n}\n").unwrap() + 3);
    format!(
        "{}{}{}",
        &text[..starts[0]],
        &text[start..end],
        &text[last_end..]
    )
}

/// Splits operands at the commas that stand in no bracket.
fn operands(text: &str) -> Vec<String> {
    let (mut list, mut depth) = (vec![String::new()], 0);
    for character in text.chars() {
        match character {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            _ => {}
        }
        if character == ',' && depth == 0 {
            list.push(String::new());
        } else if let Some(last) = list.last_mut() {
            last.push(character);
        }
    }
    list.iter()
        .map(|operand| operand.trim().to_owned())
        .collect()
}

/// Returns an instruction with a change.
fn changed(instruction: &str, change: Change) -> String {
    if let Remove = change {
        return String::new();
    }
    if let Text(from, to) = change {
        assert!(instruction.contains(from), "{instruction} has no {from}");
        return instruction.replacen(from, to, 1);
    }
    let body = instruction.trim().trim_end_matches(';');
    let end = body.find(char::is_whitespace).unwrap();
    let mut list = operands(&body[end..]);
    match change {
        Swap(a, b) => list.swap(a, b),
        Operand(index, text) => text.clone_into(&mut list[index]),
        SwapInList(index, a, b) => {
            let inner = list[index].trim_matches(['{', '}']);
            let mut registers: Vec<&str> = inner.split(',').map(str::trim).collect();
            registers.swap(a, b);
            list[index] = format!("{{{}}}", registers.join(", "));
        }
        Remove | Text(..) => {}
    }
    format!("{} {};", &body[..end], list.join(", "))
}

/// Returns the text with an edit.
fn edited(text: &str, edit: Edit) -> String {
    let (opcode, nth, change) = edit;
    let mut left = nth;
    let mut is_done = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let is_named = !is_done && line.trim_start().starts_with(opcode);
        if is_named && left == 0 {
            is_done = true;
            let new = changed(line, change);
            assert_ne!(line.trim(), new.trim(), "{edit:?} changes nothing");
            lines.push(new);
            continue;
        }
        left -= usize::from(is_named);
        lines.push(line.to_owned());
    }
    assert!(is_done, "{edit:?}: there are {} less", left + 1);
    lines.join("\n")
}

/// Returns a problem of so many keys that every ring is filled anew.
fn problem() -> Problem {
    let shape = parse_shape("1x1:1x70:842x64").unwrap();
    Problem::new(shape, Dtype::F16, Mask::Causal).unwrap()
}

/// What notices an edit.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// The edited text is not run.
    Refused(String),
    Hazard(String),
    Stopped(String),
    Differs(String),
    Survives,
}

/// A stage, and the text of one of its kernels.
struct Subject {
    stage: LoadedStage,
    symbol: &'static str,
    text: String,
}

impl Subject {
    fn new(attention: &'static dyn Attention, symbol: &'static str) -> Option<Self> {
        let stage = LoadedStage::load(attention).unwrap();
        let text = single_entry(&compiled(&stage)?, symbol);
        Some(Self {
            stage,
            symbol,
            text,
        })
    }

    fn judge(&self, text: &str) -> Verdict {
        let module = match Module::parse("edited.ptx", text) {
            Ok(module) => module,
            Err(error) => return Verdict::Refused(error.to_string()),
        };
        let program = match module.entry(self.symbol) {
            Ok(program) => program,
            Err(error) => return Verdict::Refused(error.to_string()),
        };
        let kernels = &self.stage.kernels;
        let kernel = kernels.iter().find(|it| it.symbol == self.symbol).unwrap();
        let launch = Launch::new(&self.stage, kernel, &problem());
        let (prepared, staged, all) = (&launch.prepared, &launch.staged, Selection::default());
        match emulated::trace_ptx(prepared, staged, SCHEDULES[0], &program, &all) {
            Err(fault) => return Verdict::Stopped(fault.to_string()),
            Ok(traced) => {
                if let Some(hazard) = traced.report.hazards.first() {
                    return Verdict::Hazard(hazard.to_string());
                }
            }
        }
        for schedule in SCHEDULES {
            if let Some(difference) = launch.difference(&program, schedule) {
                return Verdict::Differs(difference);
            }
        }
        Verdict::Survives
    }
}

/// The parts of a list, of which a test takes one.
const PART: usize = 8;

/// Judges each eighth edit of a list, or all of them where `PTX_EDITS` is `all`. Fails if nothing
/// notices one, but for those that change nothing.
fn assert_noticed(
    attention: &'static dyn Attention,
    symbol: &'static str,
    list: &[Edit],
    equivalent: &[(&str, usize)],
) {
    let Some(subject) = Subject::new(attention, symbol) else {
        return;
    };
    let is_whole = std::env::var_os("PTX_EDITS").is_some_and(|which| which == "all");
    let step = if is_whole { 1 } else { PART };
    let (mut judged, mut living) = (0, Vec::new());
    for edit in list.iter().step_by(step) {
        let verdict = subject.judge(&edited(&subject.text, *edit));
        println!("{edit:?}: {verdict:?}");
        judged += 1;
        // An edit that is not run proves nothing of the judge.
        if matches!(verdict, Verdict::Survives | Verdict::Refused(_))
            && !equivalent.contains(&(edit.0, edit.1))
        {
            living.push((edit, verdict));
        }
    }
    println!(
        "{symbol}: {judged} of {} edits, {} live",
        list.len(),
        living.len()
    );
    assert!(living.is_empty(), "{living:#?}");
}

#[test]
fn edits_of_cp_async_and_ldmatrix_are_noticed() {
    let symbol = "stage5_swizzle_swizzle_32x256_k4_f16_d64";
    // It masks keys of the first tile, which has none that are masked in this problem.
    let equivalent = [("setp.lt.s32", 3)];
    assert_noticed(&stage5_swizzle::Swizzle, symbol, SWIZZLE, &equivalent);
}

#[test]
fn edits_of_tma_and_mma_are_noticed() {
    let symbol = "stage6_tma_tma_32x256_k4_f16_d64";
    // A tile whose keys are all visible is masked instead of passed by, which changes no score.
    let equivalent = [("setp.le.s32", 0)];
    assert_noticed(&stage6_tma::Tma, symbol, TMA, &equivalent);
}

#[test]
fn edits_of_wgmma_are_noticed() {
    let symbol = "stage7_wgmma_wgmma_64x128_f16_d64";
    assert_noticed(&stage7_wgmma::Wgmma, symbol, WGMMA, &[]);
}

#[test]
fn edits_of_a_cluster_are_noticed() {
    let symbol = "stage9_cluster_cluster_64x256_f16_d64";
    assert_noticed(&stage9_cluster::Cluster, symbol, CLUSTER, &[]);
}
