use crate::launch::launch;

#[test]
fn coordinates_and_extents() {
    let (grid, block) = ([3, 2, 2], [5, 4, 2]);
    let run = launch("builtins<<<1, 1, 0>>>()").dims(grid, block);
    let values: Vec<u32> = run.same(12 * 40 * 12);
    let mut rows = values.chunks_exact(12);
    for b in 0..12u32 {
        for t in 0..40u32 {
            let thread_idx = [t % 5, t / 5 % 4, t / 20];
            let block_idx = [b % 3, b / 3 % 2, b / 6];
            let expected = [thread_idx, block_idx, block, grid].concat();
            assert_eq!(rows.next().unwrap(), expected);
        }
    }
}

#[test]
fn vector_types_and_ldg() {
    let input: Vec<u32> = (0..32).collect();
    let output: Vec<u32> = launch("vector_copy<<<1, 8, 0>>>()")
        .input(0, &input)
        .output(32)
        .unwrap();
    let expected: Vec<u32> = input
        .chunks(4)
        .flat_map(|v| v.iter().rev().copied().collect::<Vec<_>>())
        .collect();
    assert_eq!(output, expected);
}

#[test]
fn arithmetic() {
    let lefts = [1.5f32, -0.0, 0.0, f32::NAN, 2.0, f32::INFINITY, -3.25, 0.1];
    let rights = [0.5f32, 0.0, -0.0, 4.0, f32::NAN, 1.0, 16.0, 0.3];
    let output: Vec<f32> = launch("arithmetic<<<1, 8, 0>>>()")
        .input(0, &lefts)
        .input(1, &rights)
        .output(56)
        .unwrap();
    for ((&a, &b), row) in lefts.iter().zip(&rights).zip(output.chunks(7)) {
        if a.is_nan() || b.is_nan() {
            let number = if a.is_nan() { b } else { a };
            assert_eq!(row[..2], [number, number], "a NaN loses against a number");
            assert!(row[2].is_nan() && row[4].is_nan());
            continue;
        }
        let zeros = a == 0.0;
        assert_eq!(
            row[0].to_bits(),
            if zeros { 0.0f32 } else { a.max(b) }.to_bits()
        );
        assert_eq!(
            row[1].to_bits(),
            if zeros { -0.0f32 } else { a.min(b) }.to_bits()
        );
        assert_eq!(row[2], a.mul_add(b, 1.0));
        assert!((row[3] - a.exp2()).abs() <= a.exp2() * 1e-6 || row[3] == a.exp2());
        assert!(row[4] == a / b || (a / b).is_nan());
        assert_eq!(row[5].to_bits(), (-a).to_bits());
        // int(infinity) is not defined; the kernel's other rows are.
        if a.is_finite() {
            assert_eq!(row[6], (a as i32).max(1) as f32 + 2.0);
        }
    }
}
