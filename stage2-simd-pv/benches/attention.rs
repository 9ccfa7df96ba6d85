//! `cargo bench -p stage2-simd-pv`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage2_simd_pv::SimdPv)
}
