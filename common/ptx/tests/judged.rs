//! Small kernels in PTX: a right one is quiet, and its faulty neighbour, one line away, is named by
//! the line of the text.

use emulator::Schedule;
use ptx::Module;
use ptx::case::{
    Argument, Buffer, Case, CaseError, ElementType, Failure, Filling, Finding, MapOver, Part,
    Verdict,
};
use ptx::explore::Exploration;
use ptx::number::Number;

fn buffer(name: &str, element: ElementType, elements: usize, is_output: bool) -> Buffer {
    Buffer {
        name: name.to_owned(),
        element,
        elements,
        filling: if is_output {
            Filling::Unset
        } else {
            Filling::Index
        },
        is_output,
    }
}

fn case(threads: u32, buffers: Vec<Buffer>, arguments: Vec<Argument>) -> Case {
    Case {
        grid: [1; 3],
        block: [threads, 1, 1],
        cluster: 1,
        dynamic_shared_bytes: 0,
        buffers,
        arguments,
        history: None,
    }
}

fn address(name: &str) -> Argument {
    Argument::Address {
        buffer: name.to_owned(),
        offset: 0,
    }
}

/// Returns a map over rows of 128 bytes of halves, of which a box has 8.
fn rows(buffer_name: &str, count: u64) -> Argument {
    Argument::Map(MapOver {
        buffer: buffer_name.to_owned(),
        offset: 0,
        extents: vec![64, count],
        strides: vec![128],
        box_extents: vec![64, 8],
        swizzle: 128,
    })
}

fn judge(text: &str, launch: &Case) -> Verdict {
    let module = Module::parse("tests/kernel.ptx", text).unwrap();
    let name = module.entries()[0].name.clone();
    let program = module.entry(&name).unwrap();
    launch.judge(&program, None).unwrap()
}

/// Returns everything that a verdict says, a line each.
fn said(verdict: &Verdict) -> String {
    let mut lines: Vec<String> = verdict.hazards.iter().map(ToString::to_string).collect();
    for finding in &verdict.findings {
        lines.push(match &finding.failure {
            Failure::Stopped(fault) => fault.to_string(),
            Failure::Differs { buffer, byte } => format!("{buffer} differs at byte {byte}"),
        });
    }
    lines.join("\n")
}

fn assert_quiet(text: &str, launch: &Case) -> Verdict {
    let verdict = judge(text, launch);
    assert!(verdict.is_green(), "{}", said(&verdict));
    verdict
}

/// Returns `tests/kernel.ptx:N` of the line that holds the words.
fn line_of(text: &str, words: &str) -> String {
    let index = text.lines().position(|line| line.contains(words));
    format!("tests/kernel.ptx:{}", index.expect(words) + 1)
}

/// Fails unless the verdict has a hazard of this kind that names the lines with these words.
fn assert_named(text: &str, launch: &Case, kind: &str, words: &[&str]) {
    let verdict = judge(text, launch);
    let all = said(&verdict);
    let lines: Vec<String> = words.iter().map(|word| line_of(text, word)).collect();
    let is_named = all
        .lines()
        .any(|line| line.contains(kind) && lines.iter().all(|place| line.contains(place.as_str())));
    assert!(is_named, "no {kind} at {lines:?} in:\n{all}");
}

/// Replaces the line that ends in these words.
fn edited(text: &str, words: &str, replacement: &str) -> String {
    assert_eq!(text.matches(words).count(), 1, "{words}");
    let lines = text.lines().map(|line| {
        if line.contains(words) {
            replacement
        } else {
            line
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn words_of(bytes: &[u8]) -> Vec<u32> {
    let chunks = bytes.chunks_exact(4);
    chunks
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

const BARRIER: &str = include_str!("kernels/barrier.ptx");
const COPIES: &str = include_str!("kernels/copies.ptx");
const TENSOR_STORE: &str = include_str!("kernels/tensor_store.ptx");
const RING: &str = include_str!("kernels/ring.ptx");
const PRODUCT: &str = include_str!("kernels/product.ptx");
const CLUSTER: &str = include_str!("kernels/cluster.ptx");

fn barrier_launch() -> Case {
    let to = buffer("to", ElementType::I32, 128, true);
    case(128, vec![to], vec![address("to")])
}

#[test]
fn threads_that_meet_at_a_barrier_see_each_others_writes() {
    let verdict = assert_quiet(BARRIER, &barrier_launch());
    let mirrored: Vec<u32> = (0..128).rev().collect();
    assert_eq!(words_of(&verdict.outputs[0]), mirrored);
}

#[test]
fn a_missing_barrier_is_a_race_of_write_and_read() {
    let text = edited(BARRIER, "// barrier", "");
    assert_named(&text, &barrier_launch(), "race", &["// write", "// read"]);
}

fn copies_launch() -> Case {
    let to = buffer("to", ElementType::I32, 128, true);
    let from = buffer("from", ElementType::I32, 128, false);
    case(32, vec![to, from], vec![address("to"), address("from")])
}

#[test]
fn a_copy_that_is_waited_for_has_landed() {
    let verdict = assert_quiet(COPIES, &copies_launch());
    let indices: Vec<u32> = (0..128).collect();
    assert_eq!(words_of(&verdict.outputs[0]), indices);
}

#[test]
fn a_copy_without_its_wait_is_read_in_flight() {
    let text = edited(COPIES, "// wait", "");
    assert_named(
        &text,
        &copies_launch(),
        "in-flight",
        &["// copy", "// read"],
    );
}

fn store_launch() -> Case {
    let to = buffer("to", ElementType::F16, 512, true);
    case(32, vec![to], vec![rows("to", 8)])
}

#[test]
fn a_box_that_is_fenced_is_stored() {
    let verdict = assert_quiet(TENSOR_STORE, &store_launch());
    assert_eq!(words_of(&verdict.outputs[0]), [0x3C00_3C00; 256]);
}

#[test]
fn generic_writes_without_a_fence_are_not_seen_by_tma() {
    let text = edited(TENSOR_STORE, "// fence", "");
    assert_named(
        &text,
        &store_launch(),
        "missing fence",
        &["// write", "// store"],
    );
}

#[test]
fn a_store_that_nobody_waits_for_is_named() {
    let text = edited(TENSOR_STORE, "// wait", "");
    assert_named(&text, &store_launch(), "tma_store", &["// store"]);
}

fn ring_launch() -> Case {
    let to = buffer("to", ElementType::I32, 96, true);
    let mut from = buffer("from", ElementType::F16, 24 * 64, false);
    from.filling = Filling::Random(1);
    let mut launch = case(64, vec![to, from], vec![address("to"), rows("from", 24)]);
    launch.dynamic_shared_bytes = 1024;
    launch
}

#[test]
fn a_ring_of_one_slot_is_right() {
    assert_quiet(RING, &ring_launch());
}

#[test]
fn a_slot_that_is_freed_before_its_last_read_is_named() {
    let early = edited(RING, "// free", "");
    let text = edited(
        &early,
        "// early arrival",
        "	mbarrier.arrive.shared.b64 _, [%r4];",
    );
    assert_named(&text, &ring_launch(), "race", &["// read", "// load"]);
}

#[test]
fn an_arrival_that_is_missing_is_a_deadlock_of_the_producer() {
    let count = "	mbarrier.init.shared.b64 [%r4], 33;";
    let text = edited(RING, "// count", count);
    assert_named(&text, &ring_launch(), "can't go on", &["// slot is free"]);
}

#[test]
fn a_wait_on_the_wrong_parity_reads_in_flight() {
    let text = edited(
        RING,
        "// parity",
        "	and.b32 %r6, %r5, 1; xor.b32 %r6, %r6, 1;",
    );
    assert_named(&text, &ring_launch(), "", &["// read"]);
}

fn product_launch() -> Case {
    let to = buffer("to", ElementType::F32, 512, true);
    case(128, vec![to], vec![address("to")])
}

#[test]
fn a_product_of_ones_counts_them() {
    let verdict = assert_quiet(PRODUCT, &product_launch());
    assert_eq!(words_of(&verdict.outputs[0]), [16f32.to_bits(); 512]);
}

#[test]
fn operands_that_are_overwritten_before_the_wait_race_with_the_product() {
    let store = "	st.shared.v2.u32 [%r8], {%r1, %r1}; // early";
    let text = edited(PRODUCT, "// overwritten early", store);
    assert_named(
        &text,
        &product_launch(),
        "race",
        &["// early", "// product"],
    );
}

#[test]
fn accumulators_that_are_read_before_the_wait_are_held() {
    let text = edited(
        PRODUCT,
        "// overwritten early",
        "	add.f32 %f5, %f1, %f1; // early",
    );
    assert_named(
        &text,
        &product_launch(),
        "registers that wgmma holds",
        &["// early", "// product"],
    );
}

#[test]
fn operands_without_a_fence_are_not_seen_by_wgmma() {
    let text = edited(PRODUCT, "// fence", "");
    assert_named(
        &text,
        &product_launch(),
        "missing fence",
        &["// write", "// product"],
    );
}

fn cluster_launch() -> Case {
    let to = buffer("to", ElementType::I32, 128, true);
    let mut launch = case(128, vec![to], vec![address("to")]);
    (launch.grid, launch.cluster) = ([2, 1, 1], 2);
    launch
}

#[test]
fn a_store_to_another_block_arrives() {
    let verdict = assert_quiet(CLUSTER, &cluster_launch());
    assert_eq!(words_of(&verdict.outputs[0]), [7; 128]);
}

#[test]
fn a_peer_that_exits_before_a_store_arrives_is_named() {
    let text = edited(CLUSTER, "// exits early", "	bra done;");
    assert_named(&text, &cluster_launch(), "", &["// store"]);
}

#[test]
fn every_synchronisation_of_the_ring_is_needed() {
    let module = Module::parse("tests/kernel.ptx", RING).unwrap();
    let program = module.entry("ring").unwrap();
    let launch = ring_launch();
    let verdict = launch.judge(&program, None).unwrap();
    let mut needless = Vec::new();
    for site in &verdict.sync_sites {
        let without = launch.judge(&program, Some(&site.place)).unwrap();
        if without.is_green() && without.outputs == verdict.outputs {
            needless.push(site.to_owned());
        }
    }
    assert!(needless.is_empty(), "{needless:?}");
    assert!(verdict.sync_sites.len() >= 6, "{:?}", verdict.sync_sites);
}

const MESSAGE: &str = include_str!("kernels/message.ptx");
const COUNTER: &str = include_str!("kernels/counter.ptx");
const LOCK: &str = include_str!("kernels/lock.ptx");

/// A launch of two warps with one word, which is 0.
fn word_launch() -> Case {
    let word = Buffer {
        filling: Filling::Value(Number::Real(0.0)),
        ..buffer("to", ElementType::I32, 1, true)
    };
    case(64, vec![word], vec![address("to")])
}

#[test]
fn a_release_that_is_acquired_orders_what_came_before_it() {
    let verdict = assert_quiet(MESSAGE, &word_launch());
    assert_eq!(words_of(&verdict.outputs[0]), [7]);
}

#[test]
fn a_flag_that_is_not_released_orders_nothing() {
    let text = MESSAGE.replace("st.release", "st.relaxed");
    assert_named(&text, &word_launch(), "race", &["// write", "// read"]);
}

#[test]
fn a_flag_that_is_not_acquired_orders_nothing() {
    let text = MESSAGE.replace("ld.acquire", "ld.relaxed");
    assert_named(&text, &word_launch(), "race", &["// write", "// read"]);
}

#[test]
fn a_flag_that_is_read_weakly_is_raced_for() {
    let text = MESSAGE.replace("ld.acquire.cta", "ld");
    assert_named(&text, &word_launch(), "race", &["// release", "// acquire"]);
}

#[test]
fn a_flag_that_nobody_raises_is_a_deadlock() {
    let text = edited(MESSAGE, "// release", "");
    let all = said(&judge(&text, &word_launch()));
    assert!(all.contains("deadlock"), "{all}");
}

fn counter_launch() -> Case {
    Case {
        grid: [3, 1, 1],
        ..word_launch()
    }
}

#[test]
fn atomics_of_all_blocks_are_no_race_and_none_is_lost() {
    let verdict = assert_quiet(COUNTER, &counter_launch());
    assert_eq!(words_of(&verdict.outputs[0]), [3 * 64]);
}

#[test]
fn an_atomic_and_a_weak_read_of_another_block_are_a_race() {
    let text = edited(
        COUNTER,
        "// count",
        "red.global.add.u32 [%rd1], 1; // count\n\
         ld.global.u32 %r1, [%rd1]; // look\n\
         st.global.u32 [%rd1], %r1;",
    );
    assert_named(&text, &counter_launch(), "race", &["// count", "// look"]);
}

#[test]
fn an_access_at_the_end_of_all_addresses_is_out_of_bounds() {
    for access in [
        "red.relaxed.gpu.global.add.u32 [%rd1], 1; // count",
        "st.release.gpu.global.u32 [%rd1], 1; // count",
        "ld.acquire.gpu.global.u32 %r1, [%rd1]; // count",
        "ld.global.u32 %r1, [%rd1]; // count",
        "st.global.v2.u32 [%rd1], {1, 2}; // count",
    ] {
        for last in [-1, -4, -8] {
            let instructions = format!("mov.u64 %rd1, {last}; {access}");
            let text = edited(COUNTER, "// count", &instructions);
            assert_named(&text, &counter_launch(), "out of bounds", &["// count"]);
        }
    }
}

#[test]
fn a_lock_orders_those_who_take_it() {
    let verdict = assert_quiet(LOCK, &word_launch());
    assert_eq!(words_of(&verdict.outputs[0]), [64]);
}

#[test]
fn a_lock_that_is_given_without_a_release_orders_nothing() {
    let text = LOCK.replace("atom.release", "atom.relaxed");
    assert_named(&text, &word_launch(), "race", &["// write", "// read"]);
}

/// A word after an instruction, and what the instruction gave.
struct Updated {
    word: Vec<u8>,
    old: Vec<u8>,
}

/// Runs one thread of an instruction on a word.
fn updated(instruction: &str, word: f64, element: ElementType) -> Updated {
    let text = format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n\
         .visible .entry update(.param .u64 to, .param .u64 old)\n{{\n\
         .reg .b32 %r<2>;\n.reg .b64 %rd<3>;\n\
         ld.param.u64 %rd1, [to];\nld.param.u64 %rd2, [old];\n\
         {instruction}\nst.global.b32 [%rd2], %r1;\nret;\n}}\n"
    );
    let filled = |name: &str| Buffer {
        filling: Filling::Value(Number::Real(word)),
        ..buffer(name, element, 1, true)
    };
    let launch = case(
        1,
        vec![filled("to"), filled("old")],
        vec![address("to"), address("old")],
    );
    let mut outputs = assert_quiet(&text, &launch).outputs;
    let old = outputs.pop().unwrap();
    Updated {
        word: outputs.pop().unwrap(),
        old,
    }
}

#[test]
fn an_atomic_gives_what_was_there_and_leaves_what_it_says() {
    for (operation, value, expected) in [
        ("add.u32", 3, 8),
        ("max.s32", 3, 5),
        ("min.u32", 3, 3),
        ("and.b32", 4, 4),
        ("or.b32", 8, 13),
        ("xor.b32", 1, 4),
        ("exch.b32", 9, 9),
        ("inc.u32", 5, 0),
        ("inc.u32", 6, 6),
        ("dec.u32", 9, 4),
        ("dec.u32", 4, 4),
    ] {
        let instruction = format!("atom.global.{operation} %r1, [%rd1], {value};");
        let Updated { word, old } = updated(&instruction, 5.0, ElementType::I32);
        assert_eq!(words_of(&word), [expected], "{instruction}");
        assert_eq!(words_of(&old), [5], "{instruction}");
    }
}

#[test]
fn a_word_is_swapped_where_it_is_the_expected_one() {
    for (expected, swapped) in [(5, 9), (6, 5)] {
        let instruction = format!("atom.global.cas.b32 %r1, [%rd1], {expected}, 9;");
        let Updated { word, old } = updated(&instruction, 5.0, ElementType::I32);
        assert_eq!(words_of(&word), [swapped]);
        assert_eq!(words_of(&old), [5]);
    }
}

#[test]
fn floating_point_is_added_atomically() {
    let instruction = "atom.global.gpu.acq_rel.add.f32 %r1, [%rd1], 0f3FC00000;";
    let word = updated(instruction, 2.0, ElementType::F32).word;
    assert_eq!(ElementType::F32.decode(&word), [3.5]);
}

/// Returns a kernel whose lanes all store one register to one place.
fn lanes_store(register: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n\
         .visible .entry lanes(.param .u64 to)\n{{\n\
         .reg .b32 %r<5>;\n.reg .b64 %rd<2>;\n.shared .align 4 .b8 place[4];\n\
         ld.param.u64 %rd1, [to];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, place;\n\
         mov.u32 %r3, 7;\n\
         st.shared.u32 [%r2], {register}; // store\n\
         bar.sync 0;\nld.shared.u32 %r4, [%r2];\nst.relaxed.gpu.global.u32 [%rd1], %r4;\nret;\n}}\n"
    )
}

fn warp_launch(threads: u32) -> Case {
    Case {
        block: [threads, 1, 1],
        ..word_launch()
    }
}

#[test]
fn lanes_of_a_warp_may_store_one_value_to_one_place() {
    let verdict = assert_quiet(&lanes_store("%r3"), &warp_launch(32));
    assert_eq!(words_of(&verdict.outputs[0]), [7]);
}

#[test]
fn lanes_of_a_warp_that_store_different_values_to_one_place_race() {
    assert_named(&lanes_store("%r1"), &warp_launch(32), "race", &["// store"]);
}

#[test]
fn warps_that_store_one_value_to_one_place_race() {
    assert_named(&lanes_store("%r3"), &warp_launch(64), "race", &["// store"]);
}

const FUNCTIONS: &str = include_str!("kernels/functions.ptx");

fn functions_launch() -> Case {
    let to = buffer("to", ElementType::I32, 64, true);
    case(64, vec![to], vec![address("to")])
}

#[test]
fn functions_take_and_return_values() {
    let verdict = assert_quiet(FUNCTIONS, &functions_launch());
    let mut expected: Vec<u32> = (1..=64).collect();
    expected[0] = 7;
    assert_eq!(words_of(&verdict.outputs[0]), expected);
}

#[test]
fn a_race_between_functions_is_named_in_them_and_where_they_are_called() {
    let text = edited(FUNCTIONS, "// barrier", "");
    assert_named(
        &text,
        &functions_launch(),
        "race",
        &["// write", "// call of write", "// read", "// call of read"],
    );
}

/// Returns why the entry is refused.
fn refusal(text: &str) -> String {
    let module = Module::parse("tests/kernel.ptx", text).unwrap();
    module.entry("neighbours").unwrap_err().to_string()
}

#[test]
fn what_a_call_cannot_reach_is_refused_by_name() {
    for (call, reason) in [
        (
            "call.uni %rd1, (param0), prototype;",
            "a call through a register (`%rd1`) is not implemented",
        ),
        (
            "call.uni sqrt, (param0);",
            "`sqrt` has no body in this module",
        ),
        (
            "call.uni write, (%r1);",
            "`%r1` is no variable of `.param` space of the caller",
        ),
        (
            "call.uni write;",
            "`write` has 0 variables here, where it declares 1",
        ),
        ("call.uni;", "it names no function"),
    ] {
        let text = edited(FUNCTIONS, "// call of write", call);
        let place = line_of(FUNCTIONS, "// call of write");
        let error = refusal(&text);
        assert!(
            error.starts_with(&format!("{place}: `call.uni`: {reason}")),
            "{error}"
        );
    }
}

#[test]
fn recursion_is_refused_by_name() {
    let text = FUNCTIONS.replacen("address_of, (param0)", "read, (param0)", 2);
    let error = refusal(&text);
    assert!(error.contains("`read` calls itself"), "{error}");
}

#[test]
fn a_prototype_alone_is_no_call() {
    let text = edited(
        FUNCTIONS,
        "// barrier",
        "bar.sync 0; prototype : .callprototype (.param .b32 _) _ (.param .b32 _);",
    );
    assert_quiet(&text, &functions_launch());
}

#[test]
fn a_failed_assertion_is_a_trap() {
    let text = edited(
        FUNCTIONS,
        "// barrier",
        "bar.sync 0; setp.eq.u32 %p1, %r1, 5; @%p1 call __assertfail, (param0);",
    );
    let all = said(&judge(&text, &functions_launch()));
    assert!(all.contains("an assertion failed"), "{all}");
}

#[test]
fn a_function_keeps_its_shared_variable_from_call_to_call() {
    let own = ".shared .align 4 .b8 tile[256];";
    let text = FUNCTIONS.replacen(&format!("{own}\n"), "", 1);
    let inside = text.replacen(
        "(.param .b32 index)\n{",
        &format!("(.param .b32 index)\n{{\n{own}"),
        1,
    );
    assert_quiet(&inside, &functions_launch());
}

const STORED_THEN_READ: &str = include_str!("kernels/stored_then_read.ptx");

fn stored_then_read_launch() -> Case {
    let stored = buffer("stored", ElementType::F16, 512, true);
    let read = buffer("read", ElementType::I32, 32, true);
    case(
        32,
        vec![stored, read],
        vec![address("stored"), address("read"), rows("stored", 8)],
    )
}

#[test]
fn what_a_store_has_written_is_read_after_the_wait_for_its_writes() {
    let verdict = assert_quiet(STORED_THEN_READ, &stored_then_read_launch());
    assert_eq!(words_of(&verdict.outputs[0]), [0x3C00_3C00; 256]);
    assert_eq!(words_of(&verdict.outputs[1]), [2 * 0x3C00_3C00; 32]);
}

/// Returns the kernel with this in place of the wait for the store's writes.
fn without_the_wait_for_writes(wait: &str) -> String {
    edited(STORED_THEN_READ, "// wait", wait)
}

#[test]
fn a_wait_for_the_source_alone_does_not_cover_what_a_store_writes() {
    let text = without_the_wait_for_writes("cp.async.bulk.wait_group.read 0;");
    for read in ["// read by the same thread", "// load", "// read by all"] {
        let launch = stored_then_read_launch();
        assert_named(&text, &launch, "race", &["// store", read]);
        assert_named(&text, &launch, "without .read", &["// store", read]);
    }
}

#[test]
fn a_wait_that_leaves_the_newest_group_does_not_cover_its_store() {
    let text = without_the_wait_for_writes("cp.async.bulk.wait_group 1;");
    assert_named(
        &text,
        &stored_then_read_launch(),
        "race",
        &["// store", "// read by the same thread"],
    );
}

#[test]
fn a_store_that_is_read_before_its_wait_is_named() {
    let early = "	ld.global.u32 %r9, [%rd1]; // early";
    let text = edited(STORED_THEN_READ, "// read early", early);
    assert_named(
        &text,
        &stored_then_read_launch(),
        "race",
        &["// store", "// early"],
    );
}

#[test]
fn a_wait_for_the_source_comes_before_the_wait_for_the_writes() {
    let both = "cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;";
    assert_quiet(
        &without_the_wait_for_writes(both),
        &stored_then_read_launch(),
    );
}

#[test]
fn a_completed_store_is_told_to_others_by_a_barrier_alone() {
    let text = edited(STORED_THEN_READ, "// barrier", "");
    assert_named(
        &text,
        &stored_then_read_launch(),
        "race",
        &["// store", "// read by all"],
    );
}

const OWN_ROWS: &str = include_str!("kernels/own_rows.ptx");

#[test]
fn a_warp_may_write_its_own_rows_of_a_and_meet_no_other() {
    let verdict = assert_quiet(OWN_ROWS, &product_launch());
    assert_eq!(words_of(&verdict.outputs[0]), [16f32.to_bits(); 512]);
}

#[test]
fn rows_of_a_that_another_warp_writes_race_with_the_product() {
    let text = edited(OWN_ROWS, "// row", "	xor.b32 %r9, %r1, 32;");
    assert_named(
        &text,
        &product_launch(),
        "race",
        &["// write", "// product"],
    );
}

const MULTICAST: &str = include_str!("kernels/multicast.ptx");

fn multicast_launch() -> Case {
    Case {
        grid: [2, 1, 1],
        block: [128, 1, 1],
        cluster: 2,
        ..Case {
            buffers: vec![
                buffer("to", ElementType::I32, 192, true),
                buffer("from", ElementType::F16, 24 * 64, false),
            ],
            ..ring_launch()
        }
    }
}

#[test]
fn a_box_comes_to_each_block_that_the_load_names() {
    let verdict = assert_quiet(MULTICAST, &multicast_launch());
    let words = words_of(&verdict.outputs[0]);
    for round in words.chunks(64) {
        let (first, second) = round.split_at(32);
        assert_eq!(first, second, "both blocks have read the same box");
    }
    assert_ne!(words[..64], words[64..128]);
}

#[test]
fn a_load_to_one_block_leaves_the_other_one_waiting() {
    let text = edited(MULTICAST, "// blocks", "	mov.u16 %rs1, 1;");
    assert_named(
        &text,
        &multicast_launch(),
        "can't go on",
        &["// slot is full"],
    );
}

#[test]
fn an_arrival_in_a_block_that_may_have_ended_is_named() {
    let text = edited(MULTICAST, "// exits early", "	ret;");
    assert_named(
        &text,
        &multicast_launch(),
        "may have ended before it",
        &["// free"],
    );
}

#[test]
fn a_slot_of_another_block_that_is_not_freed_races_with_the_next_load() {
    let alone = edited(MULTICAST, "// count", "	mbarrier.init.shared.b64 [%r4], 1;");
    let free =
        "	setp.ne.or.s32 %p1, %r16, 0, %p1; @!%p1 mbarrier.arrive.shared::cluster.b64 _, [%r18];";
    let text = edited(&alone, "// free", free);
    assert_named(&text, &multicast_launch(), "race", &["// read", "// load"]);
}

#[test]
fn an_arrival_in_another_block_by_one_lane_tells_nothing_of_the_others() {
    let text = edited(MULTICAST, "// all lanes", "");
    assert_named(&text, &multicast_launch(), "race", &["// read", "// load"]);
}

#[test]
fn several_arrivals_at_once_are_as_many() {
    let counted = edited(
        RING,
        "// count",
        "	mbarrier.init.shared.b64 [%r4], 64; mov.u32 %r20, 2;",
    );
    let text = edited(
        &counted,
        "// free",
        "	mov.u32 %r20, 2; mbarrier.arrive.release.cta.shared::cta.b64 state, [%r4], %r20;",
    );
    assert_quiet(&text, &ring_launch());
}

#[test]
fn a_proxy_fence_publishes_mbarriers_to_tma() {
    let fence = "fence.mbarrier_init.release.cluster;";
    let text = RING.replace(fence, "fence.proxy.async.shared::cta;");
    assert_quiet(&text, &ring_launch());
    let all = said(&judge(&RING.replace(fence, ""), &ring_launch()));
    assert!(all.contains("TMA does not know of it"), "{all}");
}

const ELECTION: &str = include_str!("kernels/election.ptx");

#[test]
fn all_lanes_know_which_one_is_elected() {
    let verdict = assert_quiet(ELECTION, &word_launch_of_a_warp());
    assert_eq!(words_of(&verdict.outputs[0]), [5]);
    assert_eq!(verdict.election, None, "whichever lane it is");
}

fn word_launch_of_a_warp() -> Case {
    warp_launch(32)
}

#[test]
fn a_kernel_that_counts_on_the_lowest_lane_is_told_so() {
    let text = edited(ELECTION, "// 0 in", "	mov.u32 %r3, %r1;");
    let verdict = assert_quiet(&text, &word_launch_of_a_warp());
    assert_eq!(
        verdict.election,
        Some(Failure::Differs {
            buffer: "to".to_owned(),
            byte: 0
        })
    );
}

/// A kernel that takes a structure: a number, an address and a number.
const STRUCTURE: &str = "
.version 8.0
.target sm_90a
.address_size 64
.visible .entry structure(.param .align 8 .b8 all[24])
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	ld.param.u32 %r1, [all];
	ld.param.u64 %rd1, [all+8];
	ld.param.u32 %r2, [all+20];
	add.s32 %r3, %r1, %r2;
	st.global.u32 [%rd1], %r3;
	ret;
}
";

fn part(at: usize, value: Argument) -> Part {
    Part { at, value }
}

fn structure_launch(at: usize) -> Case {
    let to = buffer("to", ElementType::I32, 2, true);
    let behind = Argument::Address {
        buffer: "to".to_owned(),
        offset: 4,
    };
    let argument = Argument::Structure {
        bytes: 24,
        parts: vec![
            part(0, Argument::Scalar(ElementType::I32, Number::Real(30.0))),
            part(8, behind),
            part(at, Argument::Bytes(vec![12, 0])),
        ],
    };
    case(1, vec![to], vec![argument])
}

#[test]
fn a_structure_is_made_of_its_parts() {
    let verdict = assert_quiet(STRUCTURE, &structure_launch(20));
    assert_eq!(words_of(&verdict.outputs[0]), [u32::MAX, 42]);
}

#[test]
fn a_case_that_does_not_fit_its_kernel_says_why() {
    let module = Module::parse("tests/kernel.ptx", STRUCTURE).unwrap();
    let program = module.entry("structure").unwrap();
    let refused = |launch: &Case| launch.judge(&program, None).unwrap_err().to_string();
    assert_eq!(
        refused(&structure_launch(23)),
        "a part of an argument reaches byte 25 of 24"
    );
    let mut short = structure_launch(20);
    short.buffers[0].filling = Filling::Bytes(vec![0; 4]);
    assert_eq!(
        refused(&short),
        "buffer `to` is filled with 4 bytes, and has 8"
    );
}

#[test]
fn a_structure_beyond_all_memory_is_compared_with_its_parameter_first() {
    let module = Module::parse("tests/kernel.ptx", STRUCTURE).unwrap();
    let program = module.entry("structure").unwrap();
    let refused = |launch: &Case| launch.judge(&program, None).unwrap_err().to_string();
    let huge = Argument::Structure {
        bytes: usize::MAX / 2,
        parts: Vec::new(),
    };
    let mut whole = structure_launch(20);
    whole.arguments = vec![huge.clone()];
    let has = usize::MAX / 2;
    assert_eq!(
        refused(&whole),
        format!("argument 1 (`all`) takes 24 bytes, and the launch has {has}")
    );
    let mut inner = structure_launch(20);
    inner.arguments = vec![Argument::Structure {
        bytes: 24,
        parts: vec![part(8, huge)],
    }];
    assert_eq!(
        refused(&inner),
        format!("a part of an argument reaches byte {} of 24", has + 8)
    );
}

#[test]
fn an_offset_beyond_its_buffer_is_refused() {
    let mut launch = store_launch();
    let Argument::Map(map) = &mut launch.arguments[0] else {
        panic!("a map")
    };
    map.offset = usize::MAX;
    let beyond_map = misfit(TENSOR_STORE, &launch);
    assert!(
        matches!(beyond_map, CaseError::MapEnd { .. }),
        "{beyond_map}"
    );
    let mut word = word_launch();
    word.arguments = vec![Argument::Address {
        buffer: word.buffers[0].name.clone(),
        offset: usize::MAX,
    }];
    let beyond_buffer = misfit(COUNTER, &word);
    assert!(
        matches!(beyond_buffer, CaseError::Offset { .. }),
        "{beyond_buffer}"
    );
}

/// Returns why a launch does not fit the entry of this text.
fn misfit(text: &str, launch: &Case) -> CaseError {
    let module = Module::parse("tests/kernel.ptx", text).unwrap();
    let program = module.entry(&module.entries()[0].name).unwrap();
    launch.judge(&program, None).unwrap_err()
}

#[test]
fn blocks_that_an_entry_does_not_run_are_refused() {
    for has in [[32, 1, 1], [8, 8, 1], [1024, 1, 1], [64, 2, 1]] {
        let launch = Case {
            block: has,
            ..counter_launch()
        };
        let takes = [64, 1, 1];
        assert_eq!(misfit(COUNTER, &launch), CaseError::Threads { takes, has });
    }
    let at_most = |threads: u32| {
        let directive = format!(".maxntid {threads}, 2");
        edited(COUNTER, ".reqntid 64, 1, 1", &directive)
    };
    assert_quiet(&at_most(32), &counter_launch());
    let error = misfit(&at_most(16), &counter_launch());
    assert_eq!(error, CaseError::MostThreads { most: 32, has: 64 });
    assert!(
        error.to_string().contains("make `block` smaller"),
        "{error}"
    );
}

#[test]
fn clusters_that_an_entry_does_not_run_are_refused() {
    for has in [1, 4] {
        let launch = Case {
            grid: [4, 1, 1],
            cluster: has,
            ..cluster_launch()
        };
        let takes = 2;
        assert_eq!(misfit(CLUSTER, &launch), CaseError::Cluster { takes, has });
    }
}

const WINDOW: &str = include_str!("kernels/window.ptx");

fn window_launch() -> Case {
    let word = |name: &str| Buffer {
        filling: Filling::Value(Number::Real(0.0)),
        ..buffer(name, ElementType::I32, 1, true)
    };
    case(
        64,
        vec![word("gate"), word("passed")],
        vec![address("gate"), address("passed")],
    )
}

/// Explores a kernel in which the default schedules find nothing.
fn explored(text: &str, launch: &Case, most: usize) -> Exploration {
    let verdict = assert_quiet(text, launch);
    let module = Module::parse("tests/kernel.ptx", text).unwrap();
    let program = module.entry(&module.entries()[0].name).unwrap();
    let explored = launch.explore(&program, &verdict.outputs, most, &mut |_| true);
    explored.unwrap()
}

#[test]
fn a_moment_that_no_default_schedule_meets_is_found_with_one_delay() {
    let found = explored(WINDOW, &window_launch(), 100);
    let [Finding { schedule, failure }] = found.findings.as_slice() else {
        panic!("{found:?}")
    };
    let Schedule::Delayed(delays) = schedule else {
        panic!("{schedule:?}")
    };
    assert_eq!(delays.points().len(), 1);
    let differs = Failure::Differs {
        buffer: "passed".to_owned(),
        byte: 0,
    };
    assert_eq!(*failure, differs);
    assert!(found.complete >= Some(1), "{}", found.extent());
}

#[test]
fn an_exploration_ends_at_its_bound_and_says_what_it_leaves_out() {
    let found = explored(WINDOW, &window_launch(), 5);
    assert_eq!((found.orders, found.complete, found.more), (5, Some(0), 4));
    let points = found.choice_points;
    assert_eq!(
        found.extent(),
        format!(
            "5 orders of warps were run, of up to {points} choice points each: all with at most \
             0 delays and 4 of those with one more"
        )
    );
}

#[test]
fn a_gate_that_never_opens_is_the_same_in_all_orders() {
    let text = edited(WINDOW, "// open", "");
    let found = explored(&text, &window_launch(), 1000);
    assert!(found.findings.is_empty(), "{found:?}");
    assert!(found.complete >= Some(2), "{}", found.extent());
}

#[test]
fn a_single_warp_has_one_order() {
    let found = explored(ELECTION, &warp_launch(32), 10);
    assert_eq!(
        found.extent(),
        "one order of warps is possible, and was run"
    );
}

#[test]
fn an_exploration_that_is_interrupted_says_so() {
    let verdict = assert_quiet(WINDOW, &window_launch());
    let module = Module::parse("tests/kernel.ptx", WINDOW).unwrap();
    let program = module.entry("window").unwrap();
    let mut goes_on = |run| run < 2;
    let explored = window_launch().explore(&program, &verdict.outputs, 10, &mut goes_on);
    let found = explored.unwrap();
    assert_eq!((found.orders, found.is_interrupted), (2, true));
}
