//! `cargo bench -p stage8-overlap`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage8_overlap::Overlap)
}
