use emulator::Fault;

use crate::launch::{SCHEDULES, launch};
use crate::ptx::halves;

#[test]
fn every_layout_multiplies_asymmetric_operands_exactly() {
    let cases = [
        ("wmma_row_row", [16, 16]),
        ("wmma_row_col", [16, 16]),
        ("wmma_col_row", [16, 16]),
        ("wmma_col_col", [16, 16]),
        ("wmma_half_accumulator", [16, 16]),
        ("wmma_32x8_row_col", [32, 8]),
        ("wmma_8x32_col_row", [8, 32]),
    ];
    for (kernel, [m, n]) in cases {
        // Small integers: every product and sum is exact, in half too.
        let a: Vec<i32> = (0..m * 16).map(|i| (i * 7 + i / 16) % 11 - 5).collect();
        let b: Vec<i32> = (0..16 * n).map(|i| (i * 5 + i / 8) % 13 - 6).collect();
        let c: Vec<i32> = (0..m * n).map(|i| i % 101 - 50).collect();
        let floats: Vec<f32> = c.iter().map(|&x| x as f32).collect();
        let run = launch(&format!("{kernel}<<<1, 32, 16384>>>()"))
            .input(0, &halves(&a))
            .input(1, &halves(&b))
            .input(2, &floats);
        let columns = n as usize;
        let mut expected = Vec::new();
        for (i, start) in c.iter().enumerate() {
            let (row, column) = (i / columns, i % columns);
            let products = (0..16).map(|k| a[row * 16 + k] * b[k * columns + column]);
            expected.push((products.sum::<i32>() + 2 * start) as f32);
        }
        assert_eq!(run.same::<f32>(expected.len()), expected, "{kernel}");
    }
}

#[test]
fn accumulators_are_stored_by_the_instructions_that_nvcc_makes() {
    const ROW: i32 = 1;
    const COLUMN: i32 = 0;
    // Fragment, contiguous in memory, stride; requests, bytes a lane, wavefronts.
    let table = [
        ("16x16 f32", 0, ROW, 68, 4, 8, 16),
        ("16x16 f32", 0, COLUMN, 68, 8, 4, 8),
        ("32x8 f32", 1, ROW, 68, 4, 8, 16),
        ("32x8 f32", 1, COLUMN, 68, 8, 4, 8),
        ("8x32 f32", 2, ROW, 68, 8, 4, 8),
        ("8x32 f32", 2, COLUMN, 68, 4, 8, 16),
        ("16x16 f16", 3, ROW, 72, 4, 4, 4),
        ("16x16 f16", 3, COLUMN, 72, 4, 4, 4),
        ("8x32 f16", 4, ROW, 72, 4, 4, 4),
        ("8x32 f16", 4, COLUMN, 72, 4, 4, 4),
        ("8x32 f32, rows in the same banks", 2, ROW, 64, 8, 4, 32),
    ];
    for (name, fragment, layout, stride, requests, lane_bytes, wavefronts) in table {
        let run = launch(&format!(
            "wmma_stores<<<1, 32, 16384>>>({stride}, {fragment}, {layout})"
        ));
        let write = run.counted(0).shared_write;
        let counted = (write.requests, write.bytes, write.wavefronts);
        assert_eq!(
            counted,
            (requests, requests * 32 * lane_bytes, wavefronts),
            "{name}, row-major: {}",
            layout == ROW
        );
    }
}

#[test]
fn the_layout_of_registers_is_nothing_to_rely_on() {
    let registers = SCHEDULES.map(|schedule| {
        let run = launch("wmma_registers<<<1, 32, 512>>>()").schedule(schedule);
        let mut output: Vec<f32> = run.output(256).unwrap();
        let as_they_lie = output.clone();
        output.sort_unstable_by(f32::total_cmp);
        assert!(
            output.iter().enumerate().all(|(i, &x)| x == i as f32),
            "each element is in one register"
        );
        as_they_lie
    });
    for other in &registers[1..] {
        assert_ne!(&registers[0], other);
    }
    assert_ne!(registers[2], registers[3], "two seeds");
}

#[test]
fn a_misaligned_pointer_is_reported_as_it_is() {
    let fault = launch("wmma_misaligned<<<1, 32, 4096>>>(16, 16)").output::<i32>(0);
    assert!(matches!(fault, Err(Fault::Misaligned { value, .. }) if value % 32 == 16));
}
