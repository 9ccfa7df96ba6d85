//! `cargo bench -p stage10-fp8`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage10_fp8::Fp8)
}
