//! `cargo bench -p stage4-warpspec`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage4_warpspec::WarpSpec)
}
