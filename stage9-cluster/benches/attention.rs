//! `cargo bench -p stage9-cluster`; see `attention-bench`.

fn main() -> std::process::ExitCode {
    attention_bench::main(&stage9_cluster::Cluster)
}
