//! `cargo bench -p stage12-decode`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage12_decode::Decode)
}
