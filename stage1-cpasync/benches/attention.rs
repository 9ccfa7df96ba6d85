//! `cargo bench -p stage1-cpasync`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage1_cpasync::CpAsync)
}
