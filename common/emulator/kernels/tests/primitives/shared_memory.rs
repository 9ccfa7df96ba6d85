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
    // More blocks than OS threads, so that stacks are used again, after a launch that leaves finite values on them.
    let run = |initialised| {
        launch(&format!(
            "accumulate_registers<<<40, 64, 0>>>({initialised})"
        ))
    };
    for build in [|run: Run| run, Run::untraced] {
        let sums = |initialised| build(run(initialised)).output::<f32>(40 * 64 * 64).unwrap();
        assert!(sums(64).iter().all(|&sum| sum == 1.0));
        for thread in sums(63).chunks(64) {
            assert!(thread[..63].iter().all(|&sum| sum == 1.0), "{thread:?}");
            assert!(thread[63].is_nan(), "{thread:?}");
        }
    }
}

#[test]
fn a_write_behind_the_declared_bytes_is_found() {
    let run = |declared: usize, byte: i32| {
        launch(&format!("write_shared_at<<<3, 32, {declared}>>>({byte})")).output::<i32>(0)
    };
    run(256, 252).unwrap();
    assert_eq!(
        run(256, 256).unwrap_err(),
        Fault::SharedOverflow {
            block: [0; 3],
            declared: 256,
            offset: 257 - 1
        },
        "the first byte outside"
    );
    assert_eq!(
        run(256, 20_000).unwrap_err(),
        Fault::SharedOverflow {
            block: [0; 3],
            declared: 256,
            offset: 20_000
        }
    );
    run(256, 0).unwrap();
    // The whole of it, and the guard behind the largest block.
    run(emulator::MAX_SHARED_BYTES, 232_444).unwrap();
    assert!(matches!(
        run(emulator::MAX_SHARED_BYTES, 232_448),
        Err(Fault::SharedOverflow {
            offset: 232_448,
            ..
        })
    ));
    // A launch that declares less than the one before it.
    run(1024, 1020).unwrap();
    run(128, 124).unwrap();
}
