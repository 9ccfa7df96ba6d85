//! What the traced build sees of a dozen ways to access memory. This rests on the host compiler's instrumentation, so a new
//! compiler shows here first.

use crate::launch::{launch, place};

/// As "reads 16-31 of in 0", sorted.
fn accesses(text: &str) -> Vec<String> {
    let report = launch(text).log().trace([256, 0]);
    assert_eq!(report.hazards, [], "{text}");
    let text = |it: &emulator::trace::LoggedAccess| {
        let memory = it
            .memory
            .trim_start_matches("bytes ")
            .trim_start_matches("byte ");
        format!("{} {memory}", it.access.does)
    };
    let mut all: Vec<String> = report.accesses.iter().map(text).collect();
    all.sort();
    all
}

#[test]
fn an_access_of_the_source_is_an_access_of_the_program() {
    let launches = [
        "snippet_scalar<<<1, 1, 0>>>()",
        "snippet_half<<<1, 1, 0>>>()",
        "snippet_half2<<<1, 1, 0>>>()",
        "snippet_bytes<<<1, 1, 0>>>()",
        "snippet_vector<<<1, 1, 0>>>()",
        "snippet_vector_made<<<1, 1, 0>>>()",
        "snippet_vector_braces<<<1, 1, 0>>>()",
        "snippet_vector_chosen<<<1, 1, 0>>>()",
        "snippet_vector_member<<<1, 1, 0>>>()",
        "snippet_struct<<<1, 1, 0>>>()",
        "snippet_copy_16<<<1, 1, 0>>>()",
        "snippet_copy_48<<<1, 1, 0>>>()",
        "snippet_copy_variable<<<1, 1, 0>>>(20)",
        "snippet_set<<<1, 1, 0>>>()",
        "snippet_twice<<<1, 1, 0>>>()",
    ];
    let lines = launches.map(|launch| format!("{launch}: {}", accesses(launch).join(", ")));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn arrays_of_a_thread_are_not_memory() {
    let all = accesses("snippet_local_array<<<1, 1, 0>>>(0, 3)");
    assert_eq!(all.len(), 9, "{all:?}");
    assert_eq!(
        all.iter().filter(|text| text.starts_with("reads")).count(),
        8
    );
}

#[test]
fn an_access_has_its_line_and_the_lines_it_was_inlined_into() {
    let report = launch("snippet_scalar<<<1, 1, 0>>>()")
        .log()
        .trace([256, 0]);
    let expected = place("snippets.cu", "KERNEL(snippet_scalar)").to_string();
    for logged in &report.accesses {
        assert_eq!(logged.access.places.last().unwrap().to_string(), expected);
    }
}
