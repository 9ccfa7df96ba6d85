//! `cargo bench -p stage6-tma`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage6_tma::Tma)
}
