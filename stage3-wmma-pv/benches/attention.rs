//! `cargo bench -p stage3-wmma-pv`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage3_wmma_pv::WmmaPv)
}
