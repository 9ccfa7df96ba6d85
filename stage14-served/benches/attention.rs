//! `cargo bench -p stage14-served`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage14_served::Served)
}
