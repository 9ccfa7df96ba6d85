use super::{Apply, comparison, find, sum_in_global_memory};

/// Returns the result of an instruction of the tables.
fn result(name: &str, operands: &[u64]) -> u64 {
    let pure = find(name).unwrap_or_else(|| panic!("{name}"));
    match (pure.apply, operands) {
        (Apply::One(apply), &[a]) => apply(a),
        (Apply::Two(apply), &[a, b]) => apply(a, b),
        (Apply::Three(apply), &[a, b, c]) => apply(a, b, c),
        (Apply::Four(apply), &[a, b, c, d]) => apply(a, b, c, d),
        _ => panic!("{name} takes {} operands", pure.apply.operands()),
    }
}

fn single(value: f32) -> u64 {
    value.to_bits().into()
}

/// A value of 32 bits whose word has garbage above: only the low bits count.
fn with_garbage(value: u32) -> u64 {
    0xdead_beef_0000_0000 | u64::from(value)
}

#[test]
fn sums_wrap_in_their_width() {
    assert_eq!(result("add.s32", &[with_garbage(u32::MAX), 1]), 0);
    assert_eq!(result("add.s64", &[u64::MAX, 2]), 1);
    assert_eq!(result("sub.s16", &[0, 1]), 0xffff);
    assert_eq!(result("add.sat.s32", &[0x7fff_ffff, 1]), 0x7fff_ffff);
}

#[test]
fn products_have_two_halves() {
    let minus_two = u64::from((-2i32) as u32);
    assert_eq!(
        result("mul.lo.s32", &[minus_two, 3]),
        u64::from((-6i32) as u32)
    );
    assert_eq!(result("mul.hi.s32", &[minus_two, 3]), u64::from(u32::MAX));
    assert_eq!(result("mul.hi.u32", &[minus_two, 3]), 2);
    assert_eq!(result("mul.wide.s32", &[minus_two, 3]), (-6i64) as u64);
    assert_eq!(result("mul.wide.u16", &[0xffff, 2]), 0x1_fffe);
    assert_eq!(result("mad.lo.s32", &[minus_two, 3, 10]), 4);
    assert_eq!(result("mul.hi.u64", &[u64::MAX, 2]), 1);
}

#[test]
fn quotients_round_to_zero_and_survive_a_zero() {
    let minus_seven = u64::from((-7i32) as u32);
    assert_eq!(
        result("div.s32", &[minus_seven, 2]),
        u64::from((-3i32) as u32)
    );
    assert_eq!(result("rem.s32", &[minus_seven, 2]), u64::from(u32::MAX));
    assert_eq!(result("div.u32", &[7, 0]), u64::from(u32::MAX));
    assert_eq!(result("rem.u32", &[7, 0]), u64::from(u32::MAX));
    assert_eq!(result("rem.s16", &[7, 0]), 0xffff);
}

#[test]
fn shifts_beyond_the_width_leave_nothing_or_the_sign() {
    assert_eq!(result("shl.b32", &[1, 32]), 0);
    assert_eq!(result("shl.b32", &[1, 31]), 0x8000_0000);
    assert_eq!(result("shr.u32", &[with_garbage(0x8000_0000), 31]), 1);
    assert_eq!(result("shr.s32", &[0x8000_0000, 40]), u64::from(u32::MAX));
    assert_eq!(result("shf.l.wrap.b32", &[0x8000_0000, 1, 1]), 3);
    assert_eq!(result("shf.r.clamp.b32", &[5, 7, 32]), 7);
}

#[test]
fn fields_are_inserted_and_extracted() {
    assert_eq!(result("bfi.b32", &[0xff, 0, 4, 4]), 0xf0);
    assert_eq!(result("bfi.b32", &[0xff, 0x1234, 32, 4]), 0x1234);
    assert_eq!(result("bfe.u32", &[0xabcd, 4, 8]), 0xbc);
    assert_eq!(result("bfe.s32", &[0xf0, 4, 4]), u64::from(u32::MAX));
    assert_eq!(result("bfe.s32", &[0x70, 4, 4]), 7);
    assert_eq!(
        result("prmt.b32", &[0x4433_2211, 0x8877_6655, 0x7410]),
        0x8855_2211
    );
    assert_eq!(result("prmt.b32", &[0x0000_0080, 0, 0x8888]), 0xffff_ffff);
    assert_eq!(
        result("lop3.b32", &[0xf0, 0xcc, 0xaa, 0x96]),
        0xf0 ^ 0xcc ^ 0xaa
    );
}

#[test]
fn floats_round_once_and_flush_where_they_say() {
    let subnormal = 1;
    assert_eq!(result("add.f32", &[subnormal, 0]), subnormal);
    assert_eq!(result("add.ftz.f32", &[subnormal, 0]), 0);
    assert_eq!(
        result("add.sat.f32", &[single(0.75), single(0.5)]),
        single(1.0)
    );
    let tiny = 1.0 + 4.0 * f32::EPSILON;
    let fused = result("fma.rn.f32", &[single(tiny), single(tiny), single(-1.0)]);
    assert_ne!(fused, single(tiny * tiny - 1.0));
    assert_eq!(
        result("sub.f32", &[single(f32::INFINITY), single(f32::INFINITY)]),
        0x7fff_ffff
    );
}

#[test]
fn extremes_prefer_numbers_and_order_zeros() {
    let nan = single(f32::NAN);
    assert_eq!(result("max.f32", &[nan, single(1.0)]), single(1.0));
    assert_eq!(result("max.NaN.f32", &[nan, single(1.0)]), 0x7fff_ffff);
    assert_eq!(result("max.f32", &[single(-0.0), single(0.0)]), single(0.0));
    assert_eq!(
        result("min.f32", &[single(0.0), single(-0.0)]),
        single(-0.0)
    );
}

#[test]
fn exponentials_flush_subnormal_results() {
    assert_eq!(result("ex2.approx.ftz.f32", &[single(3.0)]), single(8.0));
    assert_eq!(result("ex2.approx.ftz.f32", &[single(-130.0)]), 0);
    assert_ne!(result("ex2.approx.f32", &[single(-130.0)]), 0);
    assert_eq!(
        result("lg2.approx.ftz.f32", &[1]),
        single(f32::NEG_INFINITY)
    );
    assert!(find("ex2.approx.ftz.f32").unwrap().is_exponential);
}

#[test]
fn conversions_extend_truncate_round_and_saturate() {
    let minus_one = u64::from((-1i32) as u32);
    assert_eq!(result("cvt.s64.s32", &[minus_one]), u64::MAX);
    assert_eq!(result("cvt.u64.u32", &[with_garbage(5)]), 5);
    assert_eq!(result("cvt.u16.u32", &[0x12345]), 0x2345);
    assert_eq!(result("cvt.sat.u8.s32", &[minus_one]), 0);
    assert_eq!(result("cvt.rzi.s32.f32", &[single(-1.7)]), minus_one);
    assert_eq!(result("cvt.rni.s32.f32", &[single(2.5)]), 2);
    assert_eq!(result("cvt.rzi.u32.f32", &[single(f32::NAN)]), 0);
    assert_eq!(
        result("cvt.rn.f32.s32", &[16_777_217]),
        single(16_777_216.0)
    );
}

#[test]
fn a_narrow_result_is_extended_by_its_sign_to_its_register() {
    assert_eq!(result("cvt.s8.s32", &[0x1ff]), u64::MAX);
    assert_eq!(result("cvt.sat.s8.s32", &[0x8000_0000]), (-128i64) as u64);
    assert_eq!(result("cvt.u8.s32", &[0x1ff]), 0xff);
}

#[test]
fn saturation_is_there_where_a_value_can_be_out_of_range() {
    assert!(find("cvt.sat.s32.u32").is_some());
    assert!(find("cvt.sat.s64.u32").is_none());
}

#[test]
fn a_nan_is_zero_but_where_64_bits_are_converted() {
    let nan = single(f32::NAN);
    assert_eq!(result("cvt.rni.s32.f32", &[nan]), 0);
    assert_eq!(result("cvt.rzi.u64.f32", &[nan]), 1 << 63);
    assert_eq!(result("cvt.rmi.s64.f32", &[nan]), 1 << 63);
    assert_eq!(result("cvt.rzi.s32.f64", &[f64::NAN.to_bits()]), 1 << 31);
    assert_eq!(result("cvt.rzi.u64.f64", &[f64::NAN.to_bits()]), 1 << 63);
}

#[test]
fn an_approximate_quotient_by_a_huge_number_is_zero() {
    let huge = single(1.5 * 2f32.powi(126));
    assert_eq!(result("div.approx.f32", &[single(1e30), huge]), 0);
    assert_ne!(result("div.full.f32", &[single(1e30), huge]), 0);
    let infinity = single(f32::INFINITY);
    assert_eq!(result("div.approx.f32", &[infinity, huge]), 0x7fff_ffff);
}

#[test]
fn narrow_formats_round_to_even_and_pack_the_first_operand_above() {
    assert_eq!(result("cvt.rn.f16.f32", &[single(1.0)]), 0x3c00);
    assert_eq!(result("cvt.rn.f16.f32", &[single(2049.0)]), 0x6800);
    assert_eq!(result("cvt.rn.f16.f32", &[single(65520.0)]), 0x7c00);
    assert_eq!(
        result("cvt.rn.f16x2.f32", &[single(1.0), single(2.0)]),
        0x3c00_4000
    );
    assert_eq!(
        result("cvt.rn.bf16x2.f32", &[single(1.0), single(-2.0)]),
        0x3f80_c000
    );
    assert_eq!(result("cvt.f32.f16", &[0x0001]), single(2f32.powi(-24)));
    assert_eq!(result("cvt.rn.f16x2.e4m3x2", &[0x7e38]), 0x5f00_3c00);
    assert_eq!(
        result("cvt.rn.satfinite.e4m3x2.f32", &[single(1.0), single(1e9)]),
        0x387e
    );
    assert_eq!(
        result("cvt.rn.satfinite.f16x2.f32", &[single(-1e9), single(1.0)]),
        0xfbff_3c00
    );
    assert_eq!(
        result(
            "cvt.rn.satfinite.bf16x2.f32",
            &[single(1.0), single(f32::MAX)]
        ),
        0x3f80_7f7f
    );
}

/// Every code of E4M3 is its own rounding.
#[test]
fn e4m3_survives_a_round_trip() {
    for code in (0..=0xffu8).filter(|code| code & 0x7f != 0x7f) {
        let value = super::half::from_e4m3(code);
        assert_eq!(super::half::to_e4m3(value), code, "{code:#x}");
    }
}

#[test]
fn arithmetic_of_halves_rounds_once() {
    assert_eq!(result("add.f16", &[0x3c00, 0x3c00]), 0x4000);
    assert_eq!(
        result("fma.rn.f16x2", &[0x4000_3c00, 0x4000_3c00, 0x3c00_3c00]),
        0x4500_4000
    );
    assert_eq!(
        result("mul.bf16x2", &[0x4000_3f80, 0x4000_4000]),
        0x4080_4000
    );
    // 1 + 2^-11 + 2^-24 is above the tie between two halves.
    assert_eq!(result("fma.rn.f16", &[0x1001, 0x3c00, 0x3c00]), 0x3c01);
}

#[test]
fn relations_of_a_nan_hold_only_where_they_say() {
    let (nan, number) = (single(f32::NAN), single(1.0));
    for (relation, holds) in [
        ("eq", false),
        ("ne", false),
        ("lt", false),
        ("neu", true),
        ("ltu", true),
        ("nan", true),
        ("num", false),
    ] {
        let compare = comparison(relation, false, "f32").unwrap();
        assert_eq!(compare(nan, number), holds, "{relation}");
    }
}

#[test]
fn relations_know_their_sign_and_type() {
    let minus_one = u64::from(u32::MAX);
    assert!(comparison("lt", false, "s32").unwrap()(minus_one, 0));
    assert!(!comparison("lt", false, "u32").unwrap()(minus_one, 0));
    assert!(comparison("eq", true, "f32").unwrap()(1, 0));
    assert!(comparison("lt", false, "b32").is_none());
    assert!(comparison("ltu", false, "s32").is_none());
    assert!(comparison("eq", true, "s32").is_none());
}

#[test]
fn a_nan_has_no_sign_to_change() {
    for name in ["neg.f32", "abs.f32", "neg.ftz.f32", "abs.ftz.f32"] {
        assert_eq!(result(name, &[0xffc1_2345]), 0x7fff_ffff, "{name}");
    }
    for name in ["neg.f16x2", "abs.f16x2"] {
        assert_eq!(result(name, &[0x7c01_7e00]), 0x7fff_7fff, "{name}");
    }
    assert_eq!(result("neg.bf16", &[0x7f81]), 0x7fff);
    assert_eq!(result("abs.bf16", &[0xff81]), 0x7fff);
    assert_eq!(result("neg.f16x2", &[0x3c00_fc00]), 0xbc00_7c00);
}

#[test]
fn a_double_nan_keeps_its_sign_and_becomes_quiet() {
    for name in ["neg.f64", "abs.f64"] {
        let quiet = result(name, &[0xfff0_0000_0000_0001]);
        assert_eq!(quiet, 0xfff8_0000_0000_0001, "{name}");
    }
    assert_eq!(result("neg.f64", &[1.0f64.to_bits()]), (-1.0f64).to_bits());
}

#[test]
fn the_nan_of_doubles_is_that_of_one_operand() {
    let [first, second, third] = [1, 2, 3].map(|payload| 0x7ff0_0000_0000_0000 | payload);
    let quiet = |nan: u64| nan | 1 << 51;
    for name in ["add.f64", "sub.rn.f64", "mul.f64"] {
        assert_eq!(result(name, &[first, second]), quiet(second), "{name}");
    }
    assert_eq!(result("div.rn.f64", &[first, second]), quiet(first));
    let number = 1.0f64.to_bits();
    let fused = |operands: [u64; 3]| result("fma.rn.f64", &operands);
    assert_eq!(fused([first, second, third]), quiet(second));
    assert_eq!(fused([first, number, third]), quiet(third));
    assert_eq!(fused([first, number, number]), quiet(first));
    let infinity = f64::INFINITY.to_bits();
    let invalid = result("sub.f64", &[infinity, infinity]);
    assert_eq!(invalid, 0xfff8_0000_0000_0000);
}

#[test]
fn a_double_nan_stays_as_it_is_in_global_memory() {
    let (number, nan, other) = (
        1.0f64.to_bits(),
        0x7ff0_0000_0000_0001,
        0xfff0_0000_0000_0002,
    );
    assert_eq!(sum_in_global_memory(number, nan), nan);
    assert_eq!(sum_in_global_memory(nan, number), nan);
    assert_eq!(sum_in_global_memory(nan, other), other);
    assert_eq!(sum_in_global_memory(number, number), 2.0f64.to_bits());
}

#[test]
fn a_nan_that_is_converted_is_canonical_but_from_bf16() {
    let nan = 0xffc1_2345;
    for name in ["rni", "rzi", "rmi", "rpi"] {
        let whole = result(&format!("cvt.{name}.f32.f32"), &[nan]);
        assert_eq!(whole, 0x7fff_ffff, "{name}");
    }
    assert_eq!(result("cvt.f32.f16", &[0x7c01]), 0x7fff_ffff);
    assert_eq!(result("cvt.f32.bf16", &[0x7f81]), 0x7f81_0000);
}

#[test]
fn a_tiny_summand_decides_a_tie_of_bf16() {
    // 5.8125 * 5 is a tie, which 2^-126 breaks.
    assert_eq!(result("fma.rn.bf16", &[0x40ba, 0x40a0, 0x0080]), 0x41e9);
    assert_eq!(result("fma.rn.bf16", &[0x40ba, 0x40a0, 0x8080]), 0x41e8);
    assert_eq!(result("fma.rn.bf16", &[0x40ba, 0x40a0, 0]), 0x41e8);
}

#[test]
fn what_is_subnormal_at_full_precision_is_flushed() {
    let (smallest, below_one) = (single(f32::MIN_POSITIVE), 0x3f7f_ffff);
    assert_eq!(result("mul.rn.f32", &[smallest, below_one]), smallest);
    assert_eq!(result("mul.rn.ftz.f32", &[smallest, below_one]), 0);
    let negative = smallest | 0x8000_0000;
    assert_eq!(result("mul.ftz.f32", &[negative, below_one]), single(-0.0));
    assert_eq!(result("fma.rn.ftz.f32", &[smallest, below_one, 0]), 0);
}

#[test]
fn what_rounds_to_the_smallest_normal_number_is_not_flushed() {
    let smallest = single(f32::MIN_POSITIVE);
    let minus_tiny = single(-2f32.powi(-100));
    let sum = result("fma.rn.ftz.f32", &[smallest, minus_tiny, smallest]);
    assert_eq!(sum, smallest);
}
