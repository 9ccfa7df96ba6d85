//! What nvcc's front end drops without a warning, found without a GPU: the interpreter runs what
//! nvcc has emitted, whatever its source says.

use ptx::case::{Argument, Buffer, Case, ElementType, Filling, Verdict};
use ptx::number::Number;
use ptx::{Module, Program};

const SOURCE: &str = include_str!("kernels/array_initialisers.cu");
const EMITTED: &str = include_str!("kernels/array_initialisers.ptx");

/// Returns an entry of what nvcc has emitted.
fn entry(name: &str) -> Program {
    let module = Module::parse("array_initialisers.ptx", EMITTED).unwrap();
    module.entry(name).unwrap()
}

fn buffer(name: &str, filling: Filling, is_output: bool) -> Buffer {
    Buffer {
        name: name.to_owned(),
        element: ElementType::F32,
        elements: 4,
        filling,
        is_output,
    }
}

/// Returns a launch in which each of four maxima meets a score of -3.
fn launch() -> Case {
    let arguments = ["scores", "maxima"].map(|name| Argument::Address {
        buffer: name.to_owned(),
        offset: 0,
    });
    Case {
        grid: [1; 3],
        block: [1; 3],
        cluster: 1,
        dynamic_shared_bytes: 0,
        buffers: vec![
            buffer("scores", Filling::Value(Number::Real(-3.0)), false),
            buffer("maxima", Filling::Unset, true),
        ],
        arguments: arguments.to_vec(),
        history: None,
    }
}

/// Judges an entry, which races with nothing.
fn judged(program: &Program) -> Verdict {
    let verdict = launch().judge(program, None).unwrap();
    assert!(verdict.is_green(), "{verdict:?}");
    verdict
}

fn maxima(verdict: &Verdict) -> Vec<f64> {
    ElementType::F32.decode(&verdict.outputs[0])
}

/// Returns the number of the source line with these words behind a function's name.
fn line_of(function: &str, words: &str) -> u32 {
    let start = SOURCE.find(function).expect("the source has the function");
    let skipped = SOURCE[start..]
        .find(words)
        .expect("the function has the words");
    SOURCE[..start + skipped].lines().count() as u32
}

#[test]
fn member_initialisers_are_lost_in_every_row_but_the_first() {
    let verdict = judged(&entry("by_member_initialisers"));
    assert_eq!(maxima(&verdict), [-3.0, -3.0, 0.0, 0.0]);
}

#[test]
fn a_named_function_initialises_every_row() {
    let verdict = judged(&entry("by_named_function"));
    assert_eq!(maxima(&verdict), [-3.0; 4]);
}

#[test]
fn a_wrong_element_is_traced_to_the_source_line_that_stored_it() {
    let program = entry("by_member_initialisers");
    let stored = launch().last_store(&program, "maxima", 2 * 4).unwrap();
    let place = stored.expect("a thread has stored it");
    let line = line_of("by_member_initialisers", "maxima[at] =");
    assert_eq!(
        place.to_string(),
        format!("kernels/array_initialisers.cu:{line}")
    );
}

#[test]
fn the_last_of_several_stores_is_named() {
    let twice = EMITTED.replace(
        "\t.loc\t1 46 1\n",
        "\t.loc\t1 44 9\n\tst.global.f32 \t[%rd3+8], %f7;\n\t.loc\t1 46 1\n",
    );
    let module = Module::parse("array_initialisers.ptx", &twice).unwrap();
    let program = module.entry("by_named_function").unwrap();
    let stored = |byte| launch().last_store(&program, "maxima", byte).unwrap();
    let lines = [4, 8, 11, 12].map(|byte| stored(byte).map(|place| place.line));
    assert_eq!(lines, [Some(43), Some(44), Some(44), Some(43)]);
}

#[test]
fn an_element_that_no_thread_stores_has_no_place() {
    let unstored = EMITTED.replace("st.global.f32 \t[%rd3+8], %f8;", "");
    let module = Module::parse("array_initialisers.ptx", &unstored).unwrap();
    let program = module.entry("by_member_initialisers").unwrap();
    assert_eq!(launch().last_store(&program, "maxima", 8).unwrap(), None);
    assert_eq!(launch().last_store(&program, "scores", 8).unwrap(), None);
    assert_eq!(launch().last_store(&program, "maxima", 16).unwrap(), None);
}
