use emulator::Fault;

use crate::launch::{Run, launch};

#[test]
fn shared_memory_starts_as_nan_in_every_block() {
    let output: Vec<f32> = launch("read_uninitialised<<<40, 64, 256>>>()").same(160);
    for block in output.chunks(4) {
        assert!(block[0].is_nan() && block[1].is_nan());
        assert_eq!(block[2], 1.0);
    }
}

#[test]
fn registers_start_as_nan_in_every_thread_of_every_block() {
    // More blocks than OS threads, so that stacks are used again, after a launch that leaves finite
    // values on them.
    for build in [|run: Run| run, Run::untraced] {
        let sums = |initialised| {
            let text = format!("accumulate_registers<<<40, 64, 0>>>({initialised})");
            build(launch(&text)).output::<f32>(40 * 64 * 64).unwrap()
        };
        assert!(sums(64).iter().all(|&sum| sum == 1.0));
        for thread in sums(63).chunks(64) {
            assert!(thread[..63].iter().all(|&sum| sum == 1.0), "{thread:?}");
            assert!(thread[63].is_nan(), "{thread:?}");
        }
    }
}

#[test]
fn a_write_behind_the_declared_bytes_is_found() {
    let most = emulator::MAX_SHARED_BYTES;
    for (declared, byte, is_inside) in [
        (256, 252, true),
        (256, 256, false), // the first byte outside
        (256, 20_000, false),
        (256, 0, true),
        // The whole of it, and the guard behind the largest block.
        (most, 232_444, true),
        (most, 232_448, false),
        // A launch that declares less than the one before it.
        (1024, 1020, true),
        (128, 124, true),
    ] {
        let overflow = Fault::SharedOverflow {
            block: [0; 3],
            declared,
            offset: byte,
        };
        let expected = if is_inside { Ok(vec![]) } else { Err(overflow) };
        let run = launch(&format!("write_shared_at<<<3, 32, {declared}>>>({byte})"));
        assert_eq!(run.output::<i32>(0), expected);
    }
}
