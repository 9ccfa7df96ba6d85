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

/// Fails unless each text is refused by a message that begins so.
fn assert_refused(texts: &[(String, &str)]) {
    for (text, beginning) in texts {
        let message = refusal(text);
        assert!(message.starts_with(beginning), "{text}\n{message}");
    }
}

#[test]
fn sizes_beyond_32_bits_are_refused() {
    let most =
        "kernel.ptx:9: with `b` (4294967290 bytes) the variables of the entry take more than";
    let two = |space: &str, first: &str| {
        entry(&format!(
            ".{space} .b8 a[{first}]; .{space} .b8 b[4294967290];"
        ))
    };
    assert_refused(&[
        (
            entry(".shared .b8 d[65536][65536];"),
            "kernel.ptx:9: `d` has 4 GiB or more: make it smaller",
        ),
        (
            entry(".shared .b32 d[1073741824];"),
            "kernel.ptx:9: `d` has 4 GiB",
        ),
        (
            format!(".global .b8 g[4][4294967295][4294967295];\n{}", entry("")),
            "kernel.ptx:4: `g` has 4 GiB",
        ),
        (two("shared", "4"), most),
        (two("local", "4"), most),
        (two("param", "4"), most),
        (
            two("shared", "4294967290"),
            "kernel.ptx:9: with `a` (4294967290 bytes) the variables of the entry take more than \
             232448 bytes of shared memory",
        ),
        (
            entry(".local .align 3 .b8 a[4];"),
            "kernel.ptx:9: `.align 3`: give a power of two",
        ),
    ]);
}

#[test]
fn variables_of_the_module_have_a_bound_and_a_name() {
    let table = ".global .b8 g[4294967295];\n";
    assert_refused(&[(
        format!("{table}{}", entry("mov.u64 %rd1, g;")),
        "kernel.ptx:10: with `g` (4294967295 bytes) the variables of the entry take more than \
         268435456 bytes of the module's memory",
    )]);
    // What no entry names has no memory.
    assert!(module(&format!("{table}{}", entry(""))).entry("k").is_ok());
}

#[test]
fn parameters_have_as_many_bytes_as_ptx_gives_them() {
    let takes = |bytes: &str| format!(".entry k(.param .b8 a[{bytes}])\n{{ret;}}");
    assert!(Module::parse("kernel.ptx", &format!("{HEAD}{}", takes("32764"))).is_ok());
    let older = HEAD.replace("8.3", "8.0");
    assert!(Module::parse("kernel.ptx", &format!("{older}{}", takes("4352"))).is_ok());
    let error = Module::parse("kernel.ptx", &format!("{older}{}", takes("4353"))).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("more than 4352 bytes"), "{message}");
    let most = "kernel.ptx:4: with `a` the parameters of `k` take more than 32764 bytes";
    let aligned = ".param .align 2147483648 .b8";
    assert_refused(&[
        (takes("32765"), most),
        (takes("2147483647"), most),
        (
            ".entry k(.param .b8 a[4294967295], .param .b8 b[4294967295])\n{ret;}".to_owned(),
            most,
        ),
        (
            format!(".entry k({aligned} a[1], {aligned} b[1], {aligned} c[1])\n{{ret;}}"),
            "kernel.ptx:4: with `b` the parameters",
        ),
    ]);
}

#[test]
fn registers_have_a_bound() {
    assert_refused(&[
        (
            entry(".reg .b32 %q<4294967295>;"),
            "kernel.ptx:9: with `%q<4294967295>` a thread has more than 1048576 registers",
        ),
        (
            entry(".reg .b32 %q<1048570>;"),
            "kernel.ptx:9: with `%q<1048570>` a thread has more than 1048576 registers",
        ),
    ]);
    assert!(module(&entry(".reg .b32 %q<100000>;")).entry("k").is_ok());
}

#[test]
fn directives_of_an_entry_that_no_launch_meets_are_refused() {
    let with = |directive: &str| format!(".entry k()\n{directive}\n{{ret;}}");
    assert_refused(&[
        (
            with(".reqnctapercluster 65536, 65536, 1"),
            "kernel.ptx:4: a cluster of 65536, 65536, 1 blocks has more than 16",
        ),
        (
            with(".reqntid 64, 1, 1, 2"),
            "kernel.ptx:4: `64, 1, 1, 2` has more than three extents",
        ),
        (with(".reqntid 0"), "kernel.ptx:4: `0` is no extent"),
        (with("é.reqntid 64"), "kernel.ptx:4: `é` is not implemented"),
        (with(".reqntid 6é"), "kernel.ptx:4: `6é` is no extent"),
    ]);
}

#[test]
fn literals_that_are_none_are_refused() {
    for (body, literal) in [
        ("mov.u32 %r1, 99999999999999999999;", "99999999999999999999"),
        ("mov.b32 %r1, 0f3f80;", "0f3f80"),
        ("mov.b64 %rd1, 0d3f80;", "0d3f80"),
        (
            "ld.global.u32 %r1, [18446744073709551616];",
            "18446744073709551616",
        ),
        (
            "add.u64 %rd1, %rd1, -9223372036854775809;",
            "-9223372036854775809",
        ),
    ] {
        let message = format!(
            "kernel.ptx:9: `{literal}` is no literal: an integer has up to 64 bits, `0f` takes 8 \
             hexadecimal digits, and `0d` takes 16"
        );
        assert_eq!(refusal(&entry(body)), message);
    }
}

#[test]
fn initial_values_fit_their_variable() {
    let with = |variable: &str| format!(".global {variable};\n{}", entry("mov.u64 %rd1, g;"));
    assert_refused(&[
        (
            with(".b8 g[2] = {300,-1}"),
            "kernel.ptx:4: `300` is no initial value of `g`: give one that fits `.b8`",
        ),
        (
            with(".s8 g[2] = {1,-129}"),
            "kernel.ptx:4: `-129` is no initial",
        ),
        (
            with(".u32 g = 4294967296"),
            "kernel.ptx:4: `4294967296` is no initial",
        ),
        (with(".f32 g = 1"), "kernel.ptx:4: `1` is no initial"),
        (with(".b16 g = 1.5"), "kernel.ptx:4: `1.5` is no initial"),
        (with(".b32 g ="), "kernel.ptx:4: `g` lacks an initial value"),
        (
            with(".b32 g[2] = {1,,2}"),
            "kernel.ptx:4: `g` lacks an initial value",
        ),
        (
            with(".b8 g[8] = {1,2,3,4,5,6,7,8,9}"),
            "kernel.ptx:4: `g` has 8 bytes, and 9 of initial values",
        ),
        (
            with(".u64 g = other"),
            "kernel.ptx:4: `initialiser other` is not",
        ),
    ]);
    for (variable, bytes) in [
        (".b8 g[3] = {255, -128}", vec![255, 128, 0]),
        (
            ".s16 g[] = {{1, 2}, {-1, 4}}",
            vec![1, 0, 2, 0, 255, 255, 4, 0],
        ),
        (".b32 g = 0f3F800000", vec![0, 0, 0x80, 0x3f]),
        (
            ".b64 g = 0d3FF0000000000000",
            vec![0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        ),
    ] {
        let program = module(&with(variable)).entry("k").unwrap();
        assert_eq!(program.globals, bytes, "{variable}");
    }
}

#[test]
fn heads_that_are_none_are_refused() {
    for (directive, message) in [
        (
            ".address_size 32",
            "kernel.ptx:3: `.address_size 32`: addresses have 64 bits here, compile for these",
        ),
        (
            ".target nonsense",
            "kernel.ptx:2: `.target nonsense`: name an architecture, as sm_90a",
        ),
        (
            ".target sm_90a, nonsense",
            "kernel.ptx:2: `.target sm_90a, nonsense`: name an architecture, as sm_90a",
        ),
        (
            ".version -1.0",
            "kernel.ptx:1: `.version -1.0`: give two numbers, as in 8.0",
        ),
        (
            ".version 8",
            "kernel.ptx:1: `.version 8`: give two numbers, as in 8.0",
        ),
    ] {
        let word = directive.split(' ').next().unwrap();
        let lines = HEAD.lines().map(|line| {
            if line.starts_with(word) {
                directive
            } else {
                line
            }
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let error = Module::parse("kernel.ptx", &text).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    for target in ["sm_80", "sm_100f", "sm_90, debug"] {
        let text = HEAD.replace("sm_90a", target);
        assert!(Module::parse("kernel.ptx", &text).is_ok(), "{target}");
    }
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
