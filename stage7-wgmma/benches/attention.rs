//! `cargo bench -p stage7-wgmma`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage7_wgmma::Wgmma)
}
