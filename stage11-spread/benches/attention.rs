//! `cargo bench -p stage11-spread`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage11_spread::Spread)
}
