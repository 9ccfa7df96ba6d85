//! What the traced build sees of a dozen ways to access memory. This rests on the host compiler's instrumentation, so a new
//! compiler shows here first.

use emulator::Entry;
use emulator_kernels::traced;

use crate::support::{Run, at};

/// As "reads 16-31 of in 0", sorted.
fn accesses(entry: Entry, number: i32) -> Vec<String> {
    let input: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let report = Run::new(entry, 1)
        .input(0, &input)
        .number(0, number)
        .number(1, 3)
        .log()
        .trace([256, 0]);
    assert_eq!(report.hazards, []);
    let text = |it: &emulator::trace::LoggedAccess| {
        format!(
            "{} {}",
            it.access.does,
            it.memory
                .trim_start_matches("bytes ")
                .trim_start_matches("byte ")
        )
    };
    let mut all: Vec<String> = report.accesses.iter().map(text).collect();
    all.sort();
    all
}

#[test]
fn an_access_of_the_source_is_an_access_of_the_program() {
    let expected: [(Entry, i32, &[&str]); 15] = [
        (
            traced::snippet_scalar,
            0,
            &["reads 4-7 of in 0", "writes 0-3 of out 0"],
        ),
        (
            traced::snippet_half,
            0,
            &["reads 2-3 of in 0", "writes 0-1 of out 0"],
        ),
        (
            traced::snippet_half2,
            0,
            &[
                "reads 0-1 of in 0",
                "reads 2-3 of in 0",
                "writes 0-3 of out 0",
            ],
        ),
        (
            traced::snippet_bytes,
            0,
            &["reads 5 of in 0", "writes 3 of out 0"],
        ),
        (
            traced::snippet_vector,
            0,
            &["reads 16-31 of in 0", "writes 0-15 of out 0"],
        ),
        (traced::snippet_vector_made, 0, &["writes 0-15 of out 0"]),
        (traced::snippet_vector_braces, 0, &["writes 0-15 of out 0"]),
        (
            traced::snippet_vector_chosen,
            0,
            &["reads 0-15 of in 0", "writes 0-3 of out 0"],
        ),
        (
            traced::snippet_vector_member,
            0,
            &["reads 8-11 of in 0", "writes 0-3 of out 0"],
        ),
        (
            traced::snippet_struct,
            0,
            &["reads 0-63 of in 0", "writes 0-63 of out 0"],
        ),
        (
            traced::snippet_copy_16,
            0,
            &["reads 0-15 of in 0", "writes 0-15 of out 0"],
        ),
        (
            traced::snippet_copy_48,
            0,
            &["reads 0-47 of in 0", "writes 0-47 of out 0"],
        ),
        (
            traced::snippet_copy_variable,
            20,
            &["reads 0-19 of in 0", "writes 0-19 of out 0"],
        ),
        (traced::snippet_set, 0, &["writes 0-63 of out 0"]),
        (
            traced::snippet_twice,
            0,
            &[
                "reads 0-3 of in 0",
                "reads 16-19 of in 0",
                "writes 0-3 of out 0",
            ],
        ),
    ];
    for (index, (entry, number, expected)) in expected.into_iter().enumerate() {
        assert_eq!(accesses(entry, number), expected, "snippet {index}");
    }
}

#[test]
fn arrays_of_a_thread_are_not_memory() {
    let all = accesses(traced::snippet_local_array, 0);
    assert_eq!(all.len(), 9, "{all:?}");
    assert_eq!(
        all.iter().filter(|text| text.starts_with("reads")).count(),
        8
    );
}

#[test]
fn an_access_has_its_line_and_the_lines_it_was_inlined_into() {
    let report = Run::new(traced::snippet_scalar, 1)
        .input(0, &[0f32; 4])
        .log()
        .trace([256, 0]);
    let expected = at("snippets.cu", "KERNEL(snippet_scalar)");
    for logged in &report.accesses {
        assert_eq!(logged.access.places.last().unwrap().to_string(), expected);
    }
}
