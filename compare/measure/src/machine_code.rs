//! Machine code as evidence: the output of `cuobjdump -sass` by function, and what its main loop
//! consists of. Pure.

use common::metric::Metric;
use results::table::StageMeta;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A figure of the main loop: the number of its instructions of some classes.
struct Counter {
    metric: Metric,
    classes: &'static [&'static str],
}

impl Counter {
    const fn new(metric: Metric, classes: &'static [&'static str]) -> Self {
        Self { metric, classes }
    }
}

/// The counters of the main loop. Tensor-core products are HMMA (per warp, f16), HGMMA and QGMMA
/// (per warpgroup, f16 and FP8).
const COUNTERS: [Counter; 12] = [
    Counter::new(Metric::LoopHmma, &["HMMA"]),
    Counter::new(Metric::LoopHgmma, &["HGMMA"]),
    Counter::new(Metric::LoopQgmma, &["QGMMA"]),
    Counter::new(Metric::LoopLdsm, &["LDSM"]),
    Counter::new(Metric::LoopLds, &["LDS"]),
    Counter::new(Metric::LoopSts, &["STS", "STSM"]),
    Counter::new(Metric::LoopLdgsts, &["LDGSTS"]),
    Counter::new(Metric::LoopTma, &["UTMALDG", "UBLKCP"]),
    Counter::new(Metric::LoopMufu, &["MUFU"]),
    Counter::new(Metric::LoopFma, &["FFMA", "HFMA2"]),
    Counter::new(Metric::LoopShuffles, &["SHFL"]),
    Counter::new(Metric::LoopBarriers, &["BAR", "SYNCS"]),
];

/// Loads and stores of local memory: spills, and arrays that are indexed at run time.
const LOCAL: [&str; 2] = ["LDL", "STL"];

/// The bytes of an instruction, on every architecture since sm_70.
const INSTRUCTION_BYTES: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Instruction<'a> {
    /// Offset in bytes from the function's start.
    address: u64,
    /// The instruction as printed.
    text: &'a str,
}

/// The code of each instance, in the order of addresses, by architecture (`sm_90a`) and symbol.
type Functions<'a> = BTreeMap<(&'a str, &'a str), Vec<Instruction<'a>>>;

fn functions(listing: &str) -> Functions<'_> {
    let mut functions = Functions::new();
    let mut arch = "";
    let mut symbol = "";
    for line in listing.lines().map(str::trim) {
        if let Some(next) = line.strip_prefix("code for ") {
            arch = next.trim();
        } else if let Some(next) = line.strip_prefix("Function : ") {
            symbol = next;
        } else if let Some(instruction) = instruction(line) {
            let code = functions.entry((arch, symbol)).or_default();
            code.push(instruction);
        }
    }
    functions
}

/// Reads `/*1a10*/ @!P0 BRA 0x650 ; /* 0x… */`
fn instruction(line: &str) -> Option<Instruction<'_>> {
    let (address, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    Some(Instruction {
        address: u64::from_str_radix(address, 16).ok()?,
        text: rest.split_once(';')?.0.trim(),
    })
}

impl<'a> Instruction<'a> {
    /// Returns its name without modifiers, and those: `HGMMA`, `64x64x16`, `F32`. A predicate is no
    /// part of it.
    fn name(&self) -> impl Iterator<Item = &'a str> {
        let mut words = self.text.split_whitespace();
        let name = words.find(|word| !word.starts_with('@'));
        name.unwrap_or_default().split('.')
    }

    fn class(&self) -> &'a str {
        self.name().next().unwrap_or_default()
    }

    fn target(&self) -> Option<u64> {
        if self.class() != "BRA" {
            return None;
        }
        let last = self.text.split_whitespace().last()?;
        u64::from_str_radix(last.strip_prefix("0x")?, 16).ok()
    }

    /// Returns the multiply-adds of one warp on tensor cores: 2048 for m16n8k16; a quarter of a
    /// warpgroup's m64nNk16.
    fn tensor_macs(&self) -> u64 {
        let mut name = self.name();
        match (name.next(), name.next()) {
            (Some("HMMA"), Some("16816")) => 16 * 8 * 16,
            (Some("HMMA"), Some("1688")) => 16 * 8 * 8,
            (Some("HGMMA" | "QGMMA"), Some(shape)) => {
                let sizes = shape.split('x').map(str::parse::<u64>);
                sizes.product::<Result<u64, _>>().unwrap_or(0) / 4
            }
            _ => 0,
        }
    }

    /// Returns the multiply-adds of one warp outside the tensor cores.
    fn scalar_macs(&self) -> u64 {
        match self.class() {
            "FFMA" => 32,
            "HFMA2" => 64,
            _ => 0,
        }
    }
}

/// Returns the main loop: the loop whose own instructions, without those of inner loops, do the
/// most multiply-adds (on tensor cores if the function uses them). Of equals it is the last, which
/// is the steady state of a kernel that peels its first tiles.
fn main_loop<'a>(code: &[Instruction<'a>]) -> Vec<Instruction<'a>> {
    let mut loops: Vec<RangeInclusive<u64>> = Vec::new();
    for branch in code {
        let Some(target) = branch.target() else {
            continue;
        };
        if !is_loop(code, target, branch.address) {
            continue;
        }
        match loops.iter_mut().find(|known| *known.start() == target) {
            // Two branches to one target are one loop.
            Some(known) => *known = target..=branch.address.max(*known.end()),
            None => loops.push(target..=branch.address),
        }
    }
    let mut bodies = vec![Vec::new(); loops.len()];
    for instruction in code {
        let around = (0..loops.len()).filter(|at| loops[*at].contains(&instruction.address));
        if let Some(innermost) = around.min_by_key(|at| loops[*at].end() - loops[*at].start()) {
            bodies[innermost].push(*instruction);
        }
    }
    let macs = if code.iter().any(|instruction| instruction.tensor_macs() > 0) {
        Instruction::tensor_macs
    } else {
        Instruction::scalar_macs
    };
    let mut main_loop = Vec::new();
    let mut most_macs = 1;
    for body in bodies {
        let body_macs: u64 = body.iter().map(macs).sum();
        if body_macs >= most_macs {
            most_macs = body_macs;
            main_loop = body;
        }
    }
    main_loop
}

/// Returns whether a branch closes a loop: it goes backward, but not to itself (padding), nor from
/// a wait that was moved out of line, behind an EXIT.
fn is_loop(code: &[Instruction<'_>], target: u64, branch: u64) -> bool {
    if target >= branch {
        return false;
    }
    let mut body = code
        .iter()
        .filter(|instruction| (target..branch).contains(&instruction.address));
    body.all(|instruction| instruction.text != "EXIT")
}

/// Counts the instructions of these classes.
fn count(code: &[Instruction<'_>], classes: &[&str]) -> f64 {
    code.iter()
        .filter(|instruction| classes.contains(&instruction.class()))
        .count() as f64
}

/// Returns the figures that a run keeps of an instance; 0 for classes that do not occur.
fn figures(code: &[Instruction<'_>]) -> Vec<(Metric, f64)> {
    let main_loop = main_loop(code);
    let bytes = code
        .last()
        .map_or(0, |last| last.address + INSTRUCTION_BYTES);
    let macs: u64 = main_loop.iter().map(Instruction::tensor_macs).sum();
    let mut figures = vec![
        (Metric::CodeBytes, bytes as f64),
        (Metric::LocalAccesses, count(code, &LOCAL)),
        (Metric::LoopInstructions, main_loop.len() as f64),
        (Metric::LoopMacs, macs as f64),
    ];
    for counter in &COUNTERS {
        figures.push((counter.metric, count(&main_loop, counter.classes)));
    }
    figures
}

/// Adds the figures of its machine code to each instance of `stage`, from the listing.
pub fn complete(stage: &mut StageMeta, listing: &str) {
    let functions = functions(listing);
    for variant in &mut stage.variants {
        for kernel in &mut variant.kernels {
            for built in &mut kernel.built {
                let code = functions.get(&(&*built.ptxas.arch, &*kernel.facts.symbol));
                built.code = code.map_or(vec![], |instructions| figures(instructions));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::resources::PtxasEntry;
    use results::table::session::BuiltKernel;
    use results::table::{Row, Source};

    /// A listing of cuobjdump, shortened: two architectures; a peeled loop, the steady loop with a
    /// slow path inside that loops itself, a wait out of line, and padding.
    const LISTING: &str = "
\tcode for sm_80
\t\tFunction : tile
\t.headerflags\t@\"EF_CUDA_SM80\"
        /*0000*/                   MOV R1, c[0x0][0x28] ;                     /* 0x00000a0000017a02 */
                                                                              /* 0x000fe40000000f00 */
        /*0010*/                   LDGSTS.E.BYPASS.LTC128B.128 [R5], [R2.64] ; /* 0x0 */
        /*0020*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;              /* 0x0 */
        /*0030*/                   LDSM.16.MT88.4 R8, [R4] ;                  /* 0x0 */
        /*0040*/                   HMMA.16816.F32 R12, R8, R10, R12 ;         /* 0x0 */
        /*0050*/                   HMMA.1688.F32 R12, R8, R10, R12 ;          /* 0x0 */
        /*0060*/              @!P0 BRA 0x10 ;                                 /* 0x0 */
        /*0070*/                   EXIT ;                                     /* 0x0 */
        /*0080*/                   BRA 0x80;                                  /* 0x0 */
\tcode for sm_90a
\t\tFunction : tile
        /*0000*/                   HGMMA.64x64x16.F32 R24, gdesc[UR12], RZ, !UPT ; /* 0x0 */
        /*0010*/                   MUFU.EX2 R2, R2 ;                          /* 0x0 */
        /*0020*/              @!P0 BRA 0x0 ;                                  /* 0x0 */
        /*0030*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR23+0x20040], R8 ; /* 0x0 */
        /*0040*/              @!P0 BRA 0x100 ;                                /* 0x0 */
        /*0050*/                   HGMMA.64x64x16.F32 R24, gdesc[UR12], RZ, !UPT ; /* 0x0 */
        /*0060*/                   MUFU.EX2 R2, R2 ;                          /* 0x0 */
        /*0070*/                   MUFU.EX2 R3, R3 ;                          /* 0x0 */
        /*0080*/               @P1 BRA 0xc0 ;                                 /* 0x0 */
        /*0090*/                   LDSM.16.M88.4 R8, [R4] ;                   /* 0x0 */
        /*00a0*/                   HMMA.16816.F32 R12, R8, R10, R12 ;         /* 0x0 */
        /*00b0*/               @P0 BRA 0x90 ;                                 /* 0x0 */
        /*00c0*/               @P2 BRA 0x30 ;                                 /* 0x0 */
        /*00d0*/                   LDL R5, [R1] ;                             /* 0x0 */
        /*00e0*/                   EXIT ;                                     /* 0x0 */
        /*00f0*/                   NOP ;                                      /* 0x0 */
        /*0100*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR23+0x20040], R8 ; /* 0x0 */
        /*0110*/              @!P0 BRA 0x100 ;                                /* 0x0 */
        /*0120*/                   BRA 0x50 ;                                 /* 0x0 */
\t\tFunction : codes
        /*0000*/                   QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR12], R24 ; /* 0x0 */
        /*0010*/                   UTMALDG.4D [UR8], [UR4] ;                  /* 0x0 */
        /*0020*/          @P0 BRA.U.ANY 0x0 ;                                 /* 0x0 */
";

    /// Returns the figures of a function that are not 0.
    fn figures_of(arch: &str, symbol: &str) -> Vec<(Metric, f64)> {
        let mut figures = figures(&functions(LISTING)[&(arch, symbol)]);
        figures.retain(|(_, value)| *value != 0.0);
        figures
    }

    #[test]
    fn the_steady_loop_is_counted_without_loops_inside_it() {
        assert_eq!(
            figures_of("sm_90a", "tile"),
            [
                (Metric::CodeBytes, 304.0),
                (Metric::LocalAccesses, 1.0),
                (Metric::LoopInstructions, 7.0),
                (Metric::LoopMacs, 16384.0),
                (Metric::LoopHgmma, 1.0),
                (Metric::LoopMufu, 2.0),
                (Metric::LoopBarriers, 1.0),
            ]
        );
    }

    #[test]
    fn each_architecture_has_code_of_its_own() {
        assert_eq!(
            figures_of("sm_80", "tile"),
            [
                (Metric::CodeBytes, 144.0),
                (Metric::LoopInstructions, 6.0),
                (Metric::LoopMacs, 3072.0),
                (Metric::LoopHmma, 2.0),
                (Metric::LoopLdsm, 1.0),
                (Metric::LoopLdgsts, 1.0),
                (Metric::LoopBarriers, 1.0),
            ]
        );
        assert_eq!(functions(LISTING).len(), 3);
    }

    #[test]
    fn fp8_products_have_twice_the_depth() {
        let figures = figures_of("sm_90a", "codes");
        for expected in [
            (Metric::LoopMacs, 65536.0),
            (Metric::LoopQgmma, 1.0),
            (Metric::LoopTma, 1.0),
        ] {
            assert!(figures.contains(&expected), "{figures:?}");
        }
    }

    #[test]
    fn instances_are_found_by_their_symbols() {
        let mut stage = results::testing::ladder().remove(0);
        let kernel = &mut stage.variants[0].kernels[0];
        kernel.facts.symbol = "tile".into();
        let ptxas = PtxasEntry {
            arch: "sm_90a".into(),
            sass_sha256: String::new(),
            resources: <_>::default(),
            warnings: vec![],
        };
        kernel.built.push(BuiltKernel {
            ptxas,
            code: vec![],
        });
        complete(&mut stage, LISTING);
        let row = Row::built(&stage)
            .into_iter()
            .find(|row| row.source() == Source::Ptxas)
            .unwrap();
        assert_eq!(row.value(Metric::LoopHgmma), Some(1.0));
        assert_eq!(row.value(Metric::LoopHmma), Some(0.0));
    }
}
