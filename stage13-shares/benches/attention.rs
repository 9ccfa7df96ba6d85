//! `cargo bench -p stage13-shares`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage13_shares::Shares)
}
