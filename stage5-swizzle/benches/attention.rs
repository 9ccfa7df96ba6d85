//! `cargo bench -p stage5-swizzle`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage5_swizzle::Swizzle)
}
