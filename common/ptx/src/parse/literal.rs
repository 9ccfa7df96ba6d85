//! Numbers as PTX writes them.

/// Reads `12`, `-0x1F`, `017`, `0b101`, each with an optional `U`; `None` if it is none of these,
/// or has more than 64 bits.
pub(crate) fn integer_literal(text: &str) -> Option<i128> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    let plain = digits.strip_suffix(['U', 'u']).unwrap_or(digits);
    let value = if let Some(hex) = plain.strip_prefix("0x").or(plain.strip_prefix("0X")) {
        unsigned(hex, 16)?
    } else if let Some(bits) = plain.strip_prefix("0b").or(plain.strip_prefix("0B")) {
        unsigned(bits, 2)?
    } else if plain.len() > 1 && plain.starts_with('0') {
        unsigned(plain, 8)?
    } else {
        unsigned(plain, 10)?
    };
    let signed = if is_negative {
        -i128::from(value)
    } else {
        value.into()
    };
    (signed >= i64::MIN.into()).then_some(signed)
}

/// Reads digits alone: a sign, which the standard library reads, too, is none of a literal's.
fn unsigned(digits: &str, radix: u32) -> Option<u64> {
    let is_plain = digits.chars().all(|digit| digit.is_digit(radix));
    is_plain
        .then(|| u64::from_str_radix(digits, radix).ok())
        .flatten()
}

/// Returns whether a text begins as numbers do, and no name does.
pub(crate) fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).trim_start();
    digits.starts_with(|c: char| c.is_ascii_digit())
}

/// Reads `0f3F800000`, `0d3FF0000000000000`, `1.5` or `-2e3`; `None` if it is none of these.
pub(crate) fn float_literal(text: &str) -> Option<f64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let value = if let Some(hex) = digits.strip_prefix("0f").or(digits.strip_prefix("0F")) {
        f64::from(f32::from_bits(bits_of(hex, 8)? as u32))
    } else if let Some(hex) = digits.strip_prefix("0d").or(digits.strip_prefix("0D")) {
        f64::from_bits(bits_of(hex, 16)?)
    } else if digits.contains(['.', 'e', 'E']) && digits.starts_with(|c: char| c.is_ascii_digit()) {
        digits.parse().ok()?
    } else {
        return None;
    };
    Some(if is_negative { -value } else { value })
}

/// Reads hexadecimal digits, exactly as many.
fn bits_of(hex: &str, digits: usize) -> Option<u64> {
    let bits = unsigned(hex, 16);
    bits.filter(|_| hex.len() == digits)
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
    fn integers_have_64_bits() {
        for (text, value) in [
            ("18446744073709551615", u64::MAX.into()),
            ("0xFFFFFFFFFFFFFFFFU", u64::MAX.into()),
            ("-9223372036854775808", i64::MIN.into()),
        ] {
            assert_eq!(integer_literal(text), Some(value), "{text}");
        }
        for text in [
            "18446744073709551616",
            "99999999999999999999",
            "0x10000000000000000",
            "-9223372036854775809",
            "-0xFFFFFFFFFFFFFFFF",
            "999999999999999999999999999999999999999999",
            "0x",
            "0x-1",
            "0b+1",
            "--1",
        ] {
            assert_eq!(integer_literal(text), None, "{text}");
        }
    }

    #[test]
    fn the_bits_of_a_float_are_all_written() {
        for text in [
            "0f3f80",
            "0f",
            "0f3F8000000",
            "0f+3F80000",
            "0d3FF0",
            "0d3F800000",
            "0d+FF0000000000000",
        ] {
            assert_eq!(float_literal(text), None, "{text}");
        }
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
