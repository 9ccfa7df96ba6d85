//! `cargo bench -p stage13-persistent`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage13_persistent::Persistent)
}
