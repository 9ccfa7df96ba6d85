use super::{Module, places::Places};
use crate::step::{Constant, Op};

const HEAD: &str = ".version 8.3\n.target sm_90a\n.address_size 64\n";

fn module(body: &str) -> Module {
    Module::parse("kernel.ptx", &format!("{HEAD}{body}")).unwrap()
}

/// Returns the refusal of a module, or of its first entry.
fn refusal(body: &str) -> String {
    let text = format!("{HEAD}{body}");
    let parsed = Module::parse("kernel.ptx", &text);
    let entry = parsed.and_then(|module| {
        let name = module.entries()[0].name.clone();
        module.entry(&name)
    });
    entry.unwrap_err().to_string()
}

fn entry(body: &str) -> String {
    format!(
        ".visible .entry k()\n{{\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n{body}\nret;\n}}\n"
    )
}

#[test]
fn version_and_target_are_read() {
    let parsed = module("");
    assert_eq!(
        (parsed.version.as_str(), parsed.target.as_str()),
        ("8.3", "sm_90a")
    );
}

#[test]
fn parameters_lie_on_their_boundaries() {
    let parsed = module(
        ".entry k(.param .u32 a, .param .align 64 .b8 map[128], .param .u64 .ptr .global .align 16 p)\n{ret;}",
    );
    let places: Vec<(u32, u32)> = parsed.entries()[0]
        .parameters
        .iter()
        .map(|parameter| (parameter.offset, parameter.bytes))
        .collect();
    assert_eq!(places, [(0, 4), (64, 128), (192, 8)]);
}

#[test]
fn directives_of_an_entry_are_read() {
    let parsed = module(
        ".visible .entry k()\n.maxntid 256, 1, 1\n.minnctapersm 1\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{ret;}",
    );
    let first = &parsed.entries()[0];
    assert_eq!(first.most_threads, Some([256, 1, 1]));
    assert_eq!(first.cluster, Some([2, 1, 1]));
    assert_eq!(first.threads, None);
}

#[test]
fn shared_variables_come_before_dynamic_memory() {
    let body = entry(
        ".shared .align 16 .b8 a[20];\n.shared .align 4 .f32 b[2];\nmov.u32 %r1, b;\nmov.u32 %r2, dynamic;",
    );
    let parsed = module(&format!(
        ".extern .shared .align 1024 .b8 dynamic[];\n{body}"
    ));
    let program = parsed.entry("k").unwrap();
    assert_eq!(program.static_shared_bytes(), 1024);
    assert_eq!(
        program.constants,
        [Constant::Bits(20), Constant::DynamicShared]
    );
}

#[test]
fn initialised_arrays_are_bytes() {
    let body = entry("mov.u64 %rd1, table;");
    let parsed = module(&format!(
        ".const .align 4 .f32 table[3] = {{0f3F800000, 0f40000000}};\n{body}"
    ));
    let program = parsed.entry("k").unwrap();
    let mut image = [1f32.to_ne_bytes(), 2f32.to_ne_bytes(), [0; 4]].concat();
    image.truncate(12);
    assert_eq!(program.globals, image);
}

#[test]
fn a_register_of_an_inner_scope_hides_the_outer_one() {
    let parsed = module(&entry(
        "mov.u32 %r1, 1;\n{\n.reg .b32 %r1;\nmov.u32 %r1, 2;\n}\nmov.u32 %r1, 3;",
    ));
    let program = parsed.entry("k").unwrap();
    let targets: Vec<i32> = program
        .steps
        .iter()
        .filter_map(|step| match step.op {
            Op::One(_, to, _) => Some(to),
            _ => None,
        })
        .collect();
    assert_eq!(targets[0], targets[2]);
    assert_ne!(targets[0], targets[1]);
}

#[test]
fn branches_lead_to_labels_before_and_behind() {
    let parsed = module(&entry(
        "again:\n@%p1 bra behind;\n@!%p1 bra.uni again;\nbehind:",
    ));
    let program = parsed.entry("k").unwrap();
    let targets: Vec<u32> = program
        .steps
        .iter()
        .filter_map(|step| match step.op {
            Op::Branch(target) => Some(target),
            _ => None,
        })
        .collect();
    assert_eq!(targets, [2, 0]);
    assert!(program.steps[1].guard.unwrap().is_negated);
}

#[test]
fn comments_and_sections_are_passed_over() {
    let body = entry("/* mov.u32\n%r1 */ mov.u32 %r1, 1; // ret;");
    let parsed = module(&format!(
        "{body}.section .debug_str\n{{\nlabel:\n.b8 1,2,3\n}}\n"
    ));
    assert_eq!(parsed.entry("k").unwrap().instructions(), 3);
}

#[test]
fn inlined_lines_lead_to_the_kernels_own() {
    let mut places = Places::default();
    places.file(".file 1 \"kernel.cu\"");
    places.file(".file\t2 \"/usr/include/tile.cuh\", 1, 2");
    places.locate(".loc 1 30 5");
    places.locate(".loc 2 20 9, function_name $L__info_string0, inlined_at 1 30 5");
    places.locate(".loc 2 10 1, function_name $L__info_string1, inlined_at 2 20 9");
    let lines: Vec<u32> = places.frames().iter().map(|place| place.line).collect();
    assert_eq!(lines, [10, 20, 30]);
}

#[test]
fn what_is_no_ptx_is_refused() {
    let error = Module::parse("kernel.ptx", "int main();").unwrap_err();
    assert!(error.to_string().starts_with("kernel.ptx:1: "), "{error}");
}

#[test]
fn a_label_is_known_in_its_block_and_those_within() {
    for body in [
        "{ again: bra again; } { again: bra again; }",
        "{ { bra end; } } end: ret;",
    ] {
        assert!(module(&entry(body)).entry("k").is_ok(), "{body}");
    }
    assert_eq!(
        refusal(&entry("{ within: ret; } bra within;")),
        "kernel.ptx:9: there is no label `within`"
    );
    assert_eq!(
        refusal(&entry("twice: twice: ret;")),
        "kernel.ptx:9: the label `twice` stands twice in one block"
    );
}

#[test]
fn refusals_name_the_line() {
    for (body, message) in [
        (
            entry("call f, ();"),
            "kernel.ptx:9: `call`: `f` has no body in this module",
        ),
        (
            entry("mov.u32 %r1, %clock;"),
            "kernel.ptx:9: `%clock` is not implemented",
        ),
        (
            entry("mov.u32 %r9, 1;"),
            "kernel.ptx:9: there is no register `%r9`",
        ),
        (
            entry("bra nowhere;"),
            "kernel.ptx:9: there is no label `nowhere`",
        ),
        (
            entry("add.s32 %r1, %r2;"),
            "kernel.ptx:9: `add.s32`: 2 operands, where it takes 3 to 3",
        ),
        (
            entry(".reg .b128 %q<2>;"),
            "kernel.ptx:9: `.reg .b128` is not implemented",
        ),
        (
            ".entry k()\n.blocksareclusters\n{ret;}".to_owned(),
            "kernel.ptx:4: `.blocksareclusters` is not implemented",
        ),
        (
            entry("mov.u32 %r1, tile;"),
            "kernel.ptx:9: `tile` is not declared",
        ),
    ] {
        assert_eq!(refusal(&body), message);
    }
}

#[test]
fn an_entry_that_is_not_there_is_named_beside_those_that_are() {
    let error = module(&entry("")).entry("other").unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel.ptx has no entry `other`; it has k"
    );
}

#[test]
fn a_line_that_is_inlined_into_itself_ends_the_chain() {
    let own = ".loc 1 1 1, function_name $L__info_string0, inlined_at 1 1 1";
    let mut places = Places::default();
    places.locate(own);
    assert!(places.frames().is_empty());
    places.file(".file 1 \"kernel.cu\"");
    assert_eq!(places.frames().len(), 1);
    places.locate(".loc 1 2 1, function_name $L__info_string0, inlined_at 1 3 1");
    places.locate(".loc 1 3 1, function_name $L__info_string0, inlined_at 1 2 1");
    let lines: Vec<u32> = places.frames().iter().map(|place| place.line).collect();
    assert_eq!(lines, [3, 2]);
}

/// Returns an entry that calls the last of these functions, each of which has this body, with `_`
/// for the one below.
fn tower(functions: u32, body: &str) -> String {
    let mut text = ".func f0()\n{\n}\n".to_owned();
    for number in 1..functions {
        let below = format!("f{}", number - 1);
        text.push_str(&format!(
            ".func f{number}()\n{{\n{}\n}}\n",
            body.replace('_', &below)
        ));
    }
    text + &entry(&format!("call f{}, ();", functions - 1))
}

#[test]
fn functions_that_double_with_each_level_are_refused() {
    for body in ["call _; call _;", "call _; call _; ret;"] {
        let message = refusal(&tower(31, body));
        assert!(message.contains("is called too often"), "{message}");
    }
    assert!(module(&tower(10, "call _; call _;")).entry("k").is_ok());
}

#[test]
fn functions_within_each_other_have_a_bound() {
    let message = refusal(&tower(100_000, "call _;"));
    assert!(
        message.contains("is called through more than 256 functions"),
        "{message}"
    );
    assert!(module(&tower(256, "call _; ret;")).entry("k").is_ok());
}
