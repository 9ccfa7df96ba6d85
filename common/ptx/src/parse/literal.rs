//! Numbers as PTX writes them.

/// Reads `12`, `-0x1F`, `017`, `0b101`, each with an optional `U`.
pub(crate) fn integer_literal(text: &str) -> Option<i128> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    let plain = digits.strip_suffix(['U', 'u']).unwrap_or(digits);
    let value = if let Some(hex) = plain.strip_prefix("0x").or(plain.strip_prefix("0X")) {
        i128::from_str_radix(hex, 16).ok()?
    } else if let Some(bits) = plain.strip_prefix("0b").or(plain.strip_prefix("0B")) {
        i128::from_str_radix(bits, 2).ok()?
    } else if plain.len() > 1 && plain.starts_with('0') {
        i128::from_str_radix(plain, 8).ok()?
    } else if plain.starts_with(|c: char| c.is_ascii_digit()) {
        plain.parse().ok()?
    } else {
        return None;
    };
    Some(if is_negative { -value } else { value })
}

/// Reads `0f3F800000`, `0d3FF0000000000000`, `1.5` or `-2e3`; `None` if it is none of these.
pub(crate) fn float_literal(text: &str) -> Option<f64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let value = if let Some(hex) = digits.strip_prefix("0f").or(digits.strip_prefix("0F")) {
        f64::from(f32::from_bits(u32::from_str_radix(hex, 16).ok()?))
    } else if let Some(hex) = digits.strip_prefix("0d").or(digits.strip_prefix("0D")) {
        f64::from_bits(u64::from_str_radix(hex, 16).ok()?)
    } else if digits.contains(['.', 'e', 'E']) && digits.starts_with(|c: char| c.is_ascii_digit()) {
        digits.parse().ok()?
    } else {
        return None;
    };
    Some(if is_negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_four_radices() {
        for (text, value) in [
            ("0", 0),
            ("12", 12),
            ("-7", -7),
            ("0x1F", 31),
            ("017", 15),
            ("0b101", 5),
            ("4611686293305360384", 4_611_686_293_305_360_384),
            ("3U", 3),
        ] {
            assert_eq!(integer_literal(text), Some(value), "{text}");
        }
        assert_eq!(integer_literal("%r1"), None);
        assert_eq!(integer_literal("0f3F800000"), None);
    }

    #[test]
    fn floats_are_bits_or_decimals() {
        for (text, value) in [
            ("0f3F800000", 1.0),
            ("0fBF800000", -1.0),
            ("0d3FF0000000000000", 1.0),
            ("1.5", 1.5),
            ("-2e3", -2000.0),
        ] {
            assert_eq!(float_literal(text), Some(value), "{text}");
        }
        assert_eq!(float_literal("12"), None);
    }
}
