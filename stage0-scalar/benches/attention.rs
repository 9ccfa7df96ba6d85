//! `cargo bench -p stage0-scalar`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage0_scalar::Scalar)
}
