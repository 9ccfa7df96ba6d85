//! A judgement takes no more of the host's memory than it has said. This is a program of its own,
//! with one test, since the system tells the peak of a whole program.

use ptx::Module;
use ptx::case::{Argument, Buffer, Case, ElementType, Filling};
use ptx::memory::Means;
use ptx::number::Number;

const COPIES: &str = include_str!("kernels/copies_of_blocks.ptx");

/// The words that each of 64 blocks of 256 threads copies.
const WORDS_OF_BLOCK: usize = 64 * 256;

fn buffer(name: &str, is_output: bool) -> Buffer {
    Buffer {
        name: name.to_owned(),
        element: ElementType::F32,
        elements: 64 * WORDS_OF_BLOCK,
        filling: Filling::Value(Number::Real(1.0)),
        is_output,
    }
}

/// Returns a number of the process that the system tells in kilobytes, in bytes.
fn told(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.unwrap().trim().strip_suffix("kB").unwrap().trim();
    kilobytes.parse::<u64>().unwrap() * 1024
}

#[test]
fn the_peak_stays_below_the_bound() {
    let arguments = ["from", "to"].map(|name| Argument::Address {
        buffer: name.to_owned(),
        offset: 0,
    });
    let launch = Case {
        grid: [64, 1, 1],
        block: [256, 1, 1],
        cluster: 1,
        dynamic_shared_bytes: 0,
        buffers: vec![buffer("from", false), buffer("to", true)],
        arguments: arguments.to_vec(),
        history: None,
    };
    let module = Module::parse("tests/kernel.ptx", COPIES).unwrap();
    let program = module.entry("copies_of_blocks").unwrap();
    let (workers, orders) = (2, 0);
    let means = Means { workers, orders };
    let bound = launch.bound(&program, &means);
    let most = told("VmRSS:") + bound.bytes();
    let builder = rayon::ThreadPoolBuilder::new().num_threads(workers);
    let pool = builder.build().unwrap();
    let verdict = pool.install(|| launch.judge(&program, None)).unwrap();
    assert!(verdict.is_green(), "{verdict:?}");
    let peak = told("VmHWM:");
    println!("peak {peak}, bound {most}: {bound:?}");
    assert!(peak <= most, "{peak} of {most}: {bound:?}");
    assert!(most <= 3 * peak, "{most} for {peak}: {bound:?}");
}
