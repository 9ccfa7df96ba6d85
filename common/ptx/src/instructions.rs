//! What is implemented, as a table that a test compares with the code and with what a card did.

use std::collections::BTreeMap;
use std::fmt::Write;

pub use crate::isa::Function;
use crate::isa::{self, Fidelity};

/// An instruction that is no function of its operands alone.
struct Row {
    /// An example, which a test decodes.
    example: &'static str,
    meaning: &'static str,
}

const fn row(example: &'static str, meaning: &'static str) -> Row {
    Row { example, meaning }
}

const CONTROL: &str = "control flow";
const MEMORY: &str = "access that the judge sees by the bytes that it touches";
const STRONG: &str = "strong: raced for by weak accesses alone; orders threads of a block, none of \
                      two blocks";
const ADDRESS: &str = "addresses; shared memory has offsets, all else addresses of this program";
const LANES: &str = "exchange of lanes; orders nothing";
const MATRIX: &str = "one access of the warp as a whole";
const MMA: &str = "products exact in FP32, summed in ascending k, each sum rounded; a tensor core \
                   sums in another order";
const COPY: &str = "asynchronous; complete for whoever waits for it";
const NOTHING: &str = "no effect: it orders nothing that is judged";

/// The instructions outside of the tables, an example each.
const OTHERS: &[Row] = &[
    row("bra end", CONTROL),
    row("ret", CONTROL),
    row("exit", CONTROL),
    row("trap", CONTROL),
    row(
        "call.uni (result), callee, (argument0)",
        "a function of the module, in its caller's place; `__assertfail` is a trap, `vprintf` \
         prints nothing",
    ),
    row(
        "setp.lt.s32 %p1, %r1, %r2",
        "comparison, alone or combined with a predicate",
    ),
    row(
        "setp.ltu.ftz.f32 %p1, %f1, %f2",
        "comparison, alone or combined with a predicate",
    ),
    row(
        "setp.ne.and.b32 %p1|%p2, %r1, 0, !%p3",
        "comparison, alone or combined with a predicate",
    ),
    row("mov.b64 {%r1, %r2}, %rd1", "packs and unpacks"),
    row("mov.b32 %r1, {%rs1, %rs2}", "packs and unpacks"),
    row(
        "ld.global.nc.L1::evict_last.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16]",
        MEMORY,
    ),
    row("ld.shared.s8 %r1, [%r2]", MEMORY),
    row(
        "ld.param.u64 %rd1, [argument]",
        "parameters, local memory and constants are not judged",
    ),
    row(
        "ld.local.u32 %r1, [%rd1]",
        "parameters, local memory and constants are not judged",
    ),
    row("st.global.u16 [%rd1], %rs1", MEMORY),
    row("st.shared.v2.u64 [%r1], {%rd1, %rd2}", MEMORY),
    row("ld.acquire.gpu.global.u32 %r1, [%rd1]", STRONG),
    row("ld.relaxed.cta.shared.u32 %r1, [%r2]", STRONG),
    row("ld.volatile.shared.u32 %r1, [%r2]", STRONG),
    row("st.release.gpu.global.u32 [%rd1], %r1", STRONG),
    row("atom.global.gpu.acq_rel.add.f32 %f1, [%rd1], %f2", STRONG),
    row("atom.shared.cas.b32 %r1, [%r2], %r3, %r4", STRONG),
    row("red.relaxed.gpu.global.max.s32 [%rd1], %r1", STRONG),
    row("red.global.add.noftz.f16x2 [%rd1], %r1", STRONG),
    row("cvta.to.shared.u64 %rd1, %rd2", ADDRESS),
    row("cvta.global.u64 %rd1, %rd2", ADDRESS),
    row("isspacep.shared %p1, %rd1", ADDRESS),
    row("mapa.shared::cluster.u32 %r1, %r2, %r3", ADDRESS),
    row("bar.sync 0", "the block's barrier"),
    row(
        "barrier.sync.aligned 1, 64",
        "a named barrier of whole warps",
    ),
    row("bar.arrive 1, 64", "a named barrier of whole warps"),
    row("bar.warp.sync 0xffffffff", "orders the lanes that it names"),
    row(
        "barrier.cluster.arrive.release.aligned",
        "the cluster's barrier",
    ),
    row(
        "barrier.cluster.arrive.relaxed.aligned",
        "the cluster's barrier",
    ),
    row(
        "barrier.cluster.wait.acquire.aligned",
        "the cluster's barrier",
    ),
    row(
        "fence.proxy.async.shared::cta",
        "makes a thread's writes known to the async proxy",
    ),
    row(
        "fence.mbarrier_init.release.cluster",
        "makes an mbarrier known to TMA and the cluster",
    ),
    row("fence.acq_rel.gpu", NOTHING),
    row("membar.gl", NOTHING),
    row(
        "setmaxnreg.inc.sync.aligned.u32 232",
        "waits until the block's pool has the registers",
    ),
    row(
        "setmaxnreg.dec.sync.aligned.u32 40",
        "waits until the block's pool has the registers",
    ),
    row("mbarrier.init.shared.b64 [%r1], 1", "an mbarrier"),
    row("mbarrier.arrive.shared.b64 _, [%r1]", "an mbarrier"),
    row(
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r1], %r2",
        "an mbarrier",
    ),
    row(
        "mbarrier.arrive.shared::cluster.b64 _, [%r1]",
        "an mbarrier, perhaps of another block; orders whatever the scope",
    ),
    row(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024",
        "an mbarrier",
    ),
    row(
        "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0",
        "an mbarrier",
    ),
    row(
        "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0",
        "an mbarrier; may fail spuriously",
    ),
    row(
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], 0",
        "an mbarrier; acquires what other blocks stored",
    ),
    row("shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1", LANES),
    row("shfl.sync.idx.b32 %r1, %r2, 1, 31, -1", LANES),
    row("shfl.sync.up.b32 %r1, %r2, 1, 0, -1", LANES),
    row("shfl.sync.down.b32 %r1, %r2, 1, 31, -1", LANES),
    row("vote.sync.any.pred %p1, %p2, -1", LANES),
    row("vote.sync.all.pred %p1, !%p2, -1", LANES),
    row("vote.sync.uni.pred %p1, %p2, -1", LANES),
    row("vote.sync.ballot.b32 %r1, %p2, -1", LANES),
    row(
        "elect.sync _|%p1, -1",
        "elects lane 0 or 31, as the schedule says",
    ),
    row("redux.sync.max.s32 %r1, %r2, -1", LANES),
    row(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r5]",
        MATRIX,
    ),
    row(
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r5], {%r1, %r2}",
        MATRIX,
    ),
    row(
        "stmatrix.sync.aligned.x2.trans.m8n8.shared.b16 [%r5], {%r1, %r2}",
        MATRIX,
    ),
    row(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, \
         %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}",
        MMA,
    ),
    row(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, \
         %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}",
        MMA,
    ),
    row(
        "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, \
         %r8}, [%r9], %r10",
        "a fragment whose layout changes with the schedule",
    ),
    row(
        "wmma.mma.sync.aligned.row.col.m8n32k16.f32.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, \
         {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, {%f1, \
         %f2, %f3, %f4, %f5, %f6, %f7, %f8}",
        MMA,
    ),
    row(
        "wmma.store.d.sync.aligned.row.m32n8k16.shared.f32 [%r9], {%f1, %f2, %f3, %f4, %f5, %f6, \
         %f7, %f8}, %r10",
        "a fragment whose layout changes with the schedule",
    ),
    row(
        "wgmma.fence.sync.aligned",
        "orders registers with the products behind it",
    ),
    row("wgmma.commit_group.sync.aligned", COPY),
    row("wgmma.wait_group.sync.aligned 0", COPY),
    row(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, \
         %p1, 1, 1, 0, 1",
        "runs as late as its wait allows, or at once; holds its registers until then",
    ),
    row(
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, \
         %r4}, %rd2, %p1, 1, 1",
        "sums as Hopper does (E4M3)",
    ),
    row("cp.async.ca.shared.global [%r1], [%rd1], 4, %r2", COPY),
    row("cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16", COPY),
    row("cp.async.commit_group", COPY),
    row("cp.async.wait_group 1", COPY),
    row("cp.async.wait_all", COPY),
    row("cp.async.mbarrier.arrive.noinc.shared.b64 [%r1]", COPY),
    row(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], \
         [%rd1, {%r2, %r3, %r4, %r5}], [%r6]",
        "asynchronous; complete for whoever waits for it; a box of up to five dimensions, zero \
         outside of the tensor",
    ),
    row(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster \
         [%r1], [%rd1, {%r2, %r3}], [%r6], %rs1",
        "asynchronous; to each block of the cluster that it names",
    ),
    row(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r2, %r3}], [%r1]",
        COPY,
    ),
    row(
        "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%rd1, {%r2, %r3, %r4, %r5, %r6}], \
         [%r1]",
        "asynchronous; complete for whoever waits for it; a box of up to five dimensions, of which \
         what lies in the tensor is written",
    ),
    row(
        "cp.async.bulk.prefetch.tensor.4d.L2.global [%rd1, {%r2, %r3, %r4, %r5}]",
        NOTHING,
    ),
    row("cp.async.bulk.commit_group", COPY),
    row(
        "cp.async.bulk.wait_group.read 0",
        "waits until TMA stores have read shared memory",
    ),
    row(
        "cp.async.bulk.wait_group 0",
        "waits until TMA stores have written global memory, too",
    ),
    row("prefetch.tensormap [%rd1]", "demands a tensor map"),
    row(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r1], {%r2, %r3, %r4, %r5}, \
         [%r6]",
        COPY,
    ),
    row("griddepcontrol.wait", NOTHING),
    row("nanosleep.u32 20", NOTHING),
];

/// Returns the functions of operands, sorted by name.
pub fn functions() -> Vec<Function> {
    isa::listed()
}

/// Returns an example of each other instruction, in the page's order.
pub fn examples() -> impl Iterator<Item = &'static str> {
    OTHERS.iter().map(|row| row.example)
}

/// The results in which a card and the interpreter were seen to agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnACard {
    /// The card's name and driver; empty if nothing was compared.
    pub card: String,
    /// The comparisons, by the instruction's name or example.
    pub seen: BTreeMap<String, Seen>,
}

/// The comparison of an instruction with a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The page's cell.
    pub cell: String,
    /// Whether all results were equal, bit for bit.
    pub is_equal: bool,
}

impl OnACard {
    /// Returns the page's sentences on what was compared.
    pub fn summary(&self) -> String {
        let all = OTHERS.len() + isa::listed().len();
        let compared = self.seen.len();
        let counted = format!("Compared with a card: {compared} of {all} instructions");
        if compared == 0 {
            return format!("{counted}.");
        }
        let equal = self.seen.values().filter(|seen| seen.is_equal).count();
        format!(
            "{counted} ({}). Of these, {equal} are equal bit for bit.",
            self.card
        )
    }

    fn cell(&self, name: &str) -> &str {
        self.seen
            .get(name)
            .map_or("specification", |seen| seen.cell.as_str())
    }
}

/// Returns the table in Markdown.
pub fn table(on_a_card: &OnACard) -> String {
    let mut text = format!(
        "# Instructions\n\nAn instruction that is in neither table, or has another modifier, is \
         refused by name and line. This page is generated (`cargo test -p ptx`).\n\n{}\n\n\
         *On a card*: a kernel around the instruction ran on a GPU and here, on the same operand \
         sets. *Equal*: all bits of all results are. *Equal but for bits of NaN*: where the bits \
         differ, both results are NaN. *Within N ulp*: a NaN counts as equal to a NaN, and no \
         other result is further away; where a bound of 2^-N stands, a result may instead differ \
         by no more than that. *The card's are*: what all bits of the card's results are instead. \
         *Specification*: not compared.\n\n\
         ## Memory, synchronisation and matrices\n\n| example | meaning | on a card \
         |\n|---|---|---|\n",
        on_a_card.summary()
    );
    for Row { example, meaning } in OTHERS {
        // A table's cells end at this character.
        let shown = example.replace('|', "\\|");
        let _ = writeln!(
            text,
            "| `{shown}` | {meaning} | {} |",
            on_a_card.cell(example)
        );
    }
    text += "\n## Functions of their operands\n\n\
             *Exact*: the specification defines every bit. *Approximate*: it allows an error, and \
             the result here is rounded once.\n\n| instruction | bits | on a card \
             |\n|---|---|---|\n";
    for function in functions() {
        let bits = match function.fidelity {
            Fidelity::Exact => "exact",
            Fidelity::Approximate => "approximate",
        };
        let name = function.name;
        let _ = writeln!(text, "| `{name}` | {bits} | {} |", on_a_card.cell(name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Module;

    fn opcode(example: &str) -> &str {
        example.split_whitespace().next().unwrap_or_default()
    }

    /// Returns a module whose entry has the instruction.
    fn module(instruction: &str) -> String {
        format!(
            ".version 8.0\n.target sm_90a\n.address_size 64\n\
             .visible .entry kernel(.param .u64 argument)\n{{\n.reg .pred %p<8>;\n.reg .b16 \
             %rs<8>;\n.reg .b32 %r<16>;\n.reg .f32 %f<16>;\n.reg .b64 %rd<8>; .param .b32 result; \
             .param .b32 argument0;\n{instruction};\nend:\nret;\n}}\n\
             .func (.param .b32 to) callee(.param .b32 from)\n{{\nret;\n}}\n"
        )
    }

    #[test]
    fn every_example_is_decoded() {
        for Row { example, .. } in OTHERS {
            let text = module(example);
            let program = Module::parse("kernel.ptx", &text)
                .and_then(|parsed| parsed.entry("kernel"))
                .unwrap();
            let names = program.opcodes();
            assert!(
                names.iter().any(|name| name == opcode(example)),
                "{example}"
            );
        }
    }

    #[test]
    fn what_is_not_there_is_refused_by_name_and_line() {
        for instruction in [
            "tcgen05.fence",
            "add.rz.f32 %f1, %f2, %f3",
            "atom.global.add.s8 %r1, [%rd1], 1",
            "red.global.add.v2.f32 [%rd1], {%f1, %f2}",
            "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2, %r3, %r4}, \
             {%r5, %r6}, {%r1, %r2}",
        ] {
            let text = module(instruction);
            let parsed = Module::parse("kernel.ptx", &text).unwrap();
            let error = parsed.entry("kernel").unwrap_err().to_string();
            let name = opcode(instruction);
            assert_eq!(error, format!("kernel.ptx:11: `{name}` is not implemented"));
        }
    }
}
