//! What the traced build sees of a dozen ways to access memory. This rests on the host compiler's
//! instrumentation, so a new compiler shows here first.

use crate::launch::launch;
use emulator::trace::Counters;

/// Accesses of global memory, and the bytes of all: `1 read, 16 bytes; 0 writes, 0 bytes`.
fn accesses(text: &str) -> String {
    let report = launch(text).trace([256, 0]);
    assert_eq!(report.hazards, [], "{text}");
    let Counters {
        global_read,
        global_write,
        ..
    } = report.counted.sum;
    format!(
        "{} reads, {} bytes; {} writes, {} bytes",
        global_read.requests, global_read.bytes, global_write.requests, global_write.bytes
    )
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
        // An array of a thread is not memory.
        "snippet_local_array<<<1, 1, 0>>>(0, 3)",
    ];
    let lines = launches.map(|launch| format!("{launch}: {}", accesses(launch)));
    insta::assert_snapshot!(lines.join("\n"));
}
