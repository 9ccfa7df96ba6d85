use super::*;

/// Adds one row of A times one column of B to `sum`.
fn dot(sum: f32, a: &[f32], b: &[f32]) -> f32 {
    let (mut row, mut columns, mut sums) = ([0.0; 32], [[0.0; WIDTH]; 32], [0.0; WIDTH]);
    row[..a.len()].copy_from_slice(a);
    for (column, &value) in columns.iter_mut().zip(b) {
        column[3] = value;
    }
    sums[3] = sum;
    add_aligned(&mut sums, &row, columns.iter());
    sums[3]
}

#[test]
fn sums_of_codes_lose_what_lies_13_bits_below_the_largest() {
    assert_eq!(dot(0.0, &[], &[]), 0.0);
    assert_eq!(dot(5.0, &[3.0, -2.0], &[7.0, 4.0]), 18.0);
    // 2^16, and ones: each is an eighth of the last place, and cut off on its own.
    let ones = [[256.0].as_slice(), &[1.0; 31]].concat();
    assert_eq!(dot(0.0, &ones, &ones), 65536.0);
    assert_eq!(dot(65536.0, &[1.0; 32], &[1.0; 32]), 65536.0);
    assert_eq!(dot(-65536.0, &[1.0; 32], &[1.0; 32]), -65536.0);
    // The exponent of 1.5 * 1.5 is 0 here, and 1 of what it adds up to.
    assert_eq!(dot(0.0, &[1.5, 2f32.powi(-6)], &[1.5, 2f32.powi(-7)]), 2.25);
    assert_eq!(
        dot(0.0, &[1.0, 2f32.powi(-6)], &[1.0, 2f32.powi(-7)]),
        1.0 + 2f32.powi(-13)
    );
    // A subnormal factor, 2^-9, counts with the exponent of 2^-6: 2^-9 * 2^-6 lies 13 bits
    // below -6 + 4.
    assert_eq!(
        dot(0.0, &[2f32.powi(-9), 2f32.powi(-6)], &[16.0, 2f32.powi(-9)]),
        2f32.powi(-5) + 2f32.powi(-15)
    );
    assert_eq!(
        dot(0.0, &[2f32.powi(-9), 2f32.powi(-6)], &[32.0, 2f32.powi(-9)]),
        2f32.powi(-4)
    );
    // What it starts with is cut off, too, below 2^3 by 2^-10.
    assert_eq!(dot(8.0 + 1.5 / 1024.0, &[], &[]), 8.0 + 1.0 / 1024.0);
    assert_eq!(
        dot(-8.0 - 1.5 / 1024.0, &[], &[]),
        -8.0 - 1.0 / 1024.0,
        "towards 0"
    );
    assert!(dot(f32::NAN, &[1.0], &[1.0]).is_nan() && dot(0.0, &[f32::NAN], &[0.0]).is_nan());
}
