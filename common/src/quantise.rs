//! E4M3 codes of values and back: one f32 scale per batch and head, `value = scale * code`. Encoder
//! and decoder stand side by side so that they cannot use different level counts.

use crate::e4m3::E4m3;
use rayon::prelude::*;

/// Returns `absmax / 448`; 1 for an all-zero head, at least the smallest normal f32. `values` are
/// finite.
pub fn scale_of(values: &[f32]) -> f32 {
    let absmax = values
        .iter()
        .fold(0.0f32, |largest, value| largest.max(value.abs()));
    if absmax == 0.0 {
        1.0
    } else {
        (absmax / E4m3::MAX).max(f32::MIN_POSITIVE)
    }
}

/// Returns the nearest code to `value / scale`, saturating beyond ±448. The division rounds in f32
/// first: a quotient within 2^-24 of a midpoint may take the other neighbour; the order of values
/// is kept.
pub fn encode(value: f32, scale: f32) -> E4m3 {
    E4m3::from_f32(value / scale)
}

/// Returns the exact value of a code: 4 bits times 24 bits fit in an f64, not always in an f32.
pub fn decode(code: E4m3, scale: f32) -> f64 {
    f64::from(scale) * f64::from(code.to_f32())
}

/// Stored values `[heads, head_len]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// The codes, one per value.
    pub codes: Vec<u8>,
    /// The scales, one per head.
    pub scales: Vec<f32>,
}

/// Quantises heads of `head_len` values each, with these scales, or [`scale_of`] each head.
///
/// # Panics
///
/// If `head_len` is zero or does not divide the number of values, or without one scale per head.
pub fn quantise(values: &[f32], head_len: usize, scales: Option<Vec<f32>>) -> Quantised {
    assert!(
        head_len > 0 && values.len().is_multiple_of(head_len),
        "{} values in heads of {head_len}",
        values.len()
    );
    let head_scales: Vec<f32> =
        scales.unwrap_or_else(|| values.par_chunks(head_len).map(scale_of).collect());
    assert_eq!(
        head_scales.len(),
        values.len() / head_len,
        "one scale per head"
    );
    let mut codes = vec![0; values.len()];
    codes
        .par_chunks_mut(head_len)
        .zip(values.par_chunks(head_len))
        .zip(&head_scales)
        .for_each(|((head_codes, head_values), scale)| {
            for (code, value) in head_codes.iter_mut().zip(head_values) {
                *code = encode(*value, *scale).to_bits();
            }
        });
    Quantised {
        codes,
        scales: head_scales,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(value: f32, scale: f32) -> f64 {
        decode(encode(value, scale), scale)
    }

    #[test]
    fn zero_and_absmax_survive_with_one_head() {
        for absmax in [1.0f32, 3.7, 448.0, 1e-3, 6e4, 0.1] {
            let values = [0.0, absmax, -absmax, absmax / 2.0, -absmax / 2.0];
            let quantised = quantise(&values, values.len(), None);
            assert_eq!(quantised.codes, [0x00, 0x7e, 0xfe, 0x76, 0xf6], "{absmax}");
            let restored = round_trip(absmax, quantised.scales[0]);
            assert!(
                (restored - f64::from(absmax)).abs() <= f64::from(absmax) * f64::from(f32::EPSILON)
            );
        }
    }

    #[test]
    fn a_zero_head_takes_scale_one_beside_a_live_one() {
        let quantised = quantise(&[0.0, -0.0, 2.0, -4.0], 2, None);
        assert_eq!(quantised.scales, [1.0, 4.0 / 448.0]);
        assert_eq!(quantised.codes[0], 0);
        assert_eq!(quantised.codes[3], 0xfe);
    }

    #[test]
    fn tiny_heads_stay_finite() {
        let quantised = quantise(&[f32::from_bits(1), 0.0], 2, None);
        assert_eq!(quantised.scales, [f32::MIN_POSITIVE]);
        assert!(
            quantised
                .codes
                .iter()
                .all(|&code| !E4m3::from_bits(code).is_nan())
        );
    }

    /// A codec that scales by 127.5 on one side and 127 on the other (fault P4) has gain 1.004 and
    /// a bias of 0.4 % of the largest value.
    #[test]
    fn the_codec_has_no_gain_and_no_bias() {
        let values: Vec<f32> = (-1000..=1000).map(|step| step as f32 / 1000.0).collect();
        let scale = scale_of(&values);
        let (mut bias, mut energy, mut gain) = (0.0, 0.0, 0.0);
        for &value in &values {
            let exact = f64::from(value);
            let restored = round_trip(value, scale);
            bias += (restored - exact) / values.len() as f64;
            energy += exact * exact;
            gain += restored * exact;
        }
        gain /= energy;
        assert!(bias.abs() <= 1e-9, "bias {bias}");
        assert!((gain - 1.0).abs() <= 1e-3, "gain {gain}");
    }

    proptest! {
        #[test]
        fn monotone_odd_and_within_half_a_step(
            a in -500f32..500.0,
            b in -500f32..500.0,
            absmax in 1e-4f32..500.0,
        ) {
            let scale = scale_of(&[absmax]);
            let (low, high) = if a <= b { (a, b) } else { (b, a) };
            prop_assert!(round_trip(low, scale) <= round_trip(high, scale));
            prop_assert_eq!(round_trip(-a, scale), -round_trip(a, scale));
            // 3 mantissa bits: half a step is at most 2^-4 of a normal value, and 2^-10 of the
            // scale below.
            let clamped = f64::from(a.clamp(-absmax, absmax));
            let bound = (clamped.abs() / 16.0).max(f64::from(scale) / 1024.0) * (1.0 + 1e-6);
            let error = (round_trip(clamped as f32, scale) - clamped).abs();
            prop_assert!(error <= bound, "{} > {}", error, bound);
        }
    }
}
