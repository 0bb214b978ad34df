//! An exact decimal number of moderate size. A value that does not fit is `None`, never rounded.

use std::fmt;

use serde_json::Number;

/// `mantissa / 10^scale`, without trailing zeros behind the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decimal {
    mantissa: i128,
    scale: u32,
}

/// Most decimal places tried for an exact quotient.
const MAX_SCALE: u32 = 30;

/// Up to this, every integer is an interoperable JSON number (RFC 8259, section 6).
const MAX_JSON_INTEGER: u128 = 1 << 53;

/// Decimals of this many digits survive conversion to a 64-bit float and back (IEEE 754 binary64).
const MAX_JSON_DIGITS: u32 = 15;

impl Decimal {
    /// Reads `-12.5`, `.5` or `7`: no exponent, no separators, at least one digit.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        if fraction.is_empty() || digits.is_empty() {
            return None;
        }
        let mut mantissa: i128 = 0;
        for byte in whole.bytes().chain(fraction.bytes()) {
            let digit = byte.is_ascii_digit().then(|| i128::from(byte - b'0'))?;
            mantissa = mantissa.checked_mul(10)?.checked_add(digit)?;
        }
        let scale = u32::try_from(fraction.len()).ok()?;
        Self { mantissa: if negative { -mantissa } else { mantissa }, scale }.reduced()
    }

    pub(super) fn negate(self) -> Option<Self> {
        Some(Self { mantissa: self.mantissa.checked_neg()?, ..self })
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let scale = self.scale.max(other.scale);
        let sum = self.at_scale(scale)?.checked_add(other.at_scale(scale)?)?;
        Self { mantissa: sum, scale }.reduced()
    }

    pub(super) fn subtract(self, other: Self) -> Option<Self> {
        self.add(other.negate()?)
    }

    pub(super) fn multiply(self, other: Self) -> Option<Self> {
        Self { mantissa: self.mantissa.checked_mul(other.mantissa)?, scale: self.scale + other.scale }.reduced()
    }

    /// `None` also for a division by zero and for a quotient without a finite decimal expansion.
    pub(super) fn divide(self, other: Self) -> Option<Self> {
        let scale = self.scale.max(other.scale);
        let (mut rest, divisor) = (self.at_scale(scale)?, other.at_scale(scale)?);
        let mut quotient = Self { mantissa: rest.checked_div(divisor)?, scale: 0 };
        rest = rest.checked_rem(divisor)?;
        while rest != 0 {
            if quotient.scale == MAX_SCALE {
                return None;
            }
            rest = rest.checked_mul(10)?;
            quotient.mantissa = quotient.mantissa.checked_mul(10)?.checked_add(rest / divisor)?;
            quotient.scale += 1;
            rest %= divisor;
        }
        quotient.reduced()
    }

    /// An interoperable JSON number of exactly this value, if there is one.
    pub(super) fn to_json(self) -> Option<Number> {
        let size = self.mantissa.unsigned_abs();
        if self.scale == 0 {
            let integer = i64::try_from(self.mantissa).ok()?;
            return (size <= MAX_JSON_INTEGER).then(|| Number::from(integer));
        }
        if size >= 10_u128.pow(MAX_JSON_DIGITS) {
            return None;
        }
        Number::from_f64(self.to_string().parse().ok()?)
    }

    fn at_scale(self, scale: u32) -> Option<i128> {
        self.mantissa.checked_mul(10_i128.checked_pow(scale - self.scale)?)
    }

    fn reduced(mut self) -> Option<Self> {
        while self.scale > 0 && self.mantissa % 10 == 0 {
            self.mantissa /= 10;
            self.scale -= 1;
        }
        (self.scale <= MAX_SCALE).then_some(self)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scale == 0 {
            return self.mantissa.fmt(formatter);
        }
        let sign = if self.mantissa < 0 { "-" } else { "" };
        let unit = 10_u128.pow(self.scale);
        let size = self.mantissa.unsigned_abs();
        write!(formatter, "{sign}{}.{:0width$}", size / unit, size % unit, width = self.scale as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn what_is_read_is_shown() {
        for text in ["0", "7", "-7", "0.5", "-0.05", "123.456", "0.0000005", "170141183460469231731687303715884105"] {
            assert_eq!(decimal(text).to_string(), text);
        }
        assert_eq!(decimal("1.500").to_string(), "1.5");
        assert_eq!(decimal("-0").to_string(), "0");
        assert_eq!(decimal(".5").to_string(), "0.5");
    }

    #[test]
    fn what_is_no_plain_decimal_is_not_read() {
        let too_long = "9".repeat(60);
        for text in ["", "-", "1.", ".", "1e5", "1,000", "+1", "--1", "1.2.3", "٣", "approx. 1", too_long.as_str()] {
            assert_eq!(Decimal::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn division_is_exact_or_not_done() {
        let divide = |a: &str, b: &str| decimal(a).divide(decimal(b)).map(|quotient| quotient.to_string());
        assert_eq!(divide("1", "8").as_deref(), Some("0.125"));
        assert_eq!(divide("-1", "8").as_deref(), Some("-0.125"));
        assert_eq!(divide("0.3", "0.1").as_deref(), Some("3"));
        assert_eq!(divide("1", "3"), None);
        assert_eq!(divide("1", "0"), None);
    }

    #[test]
    fn overflow_is_none_not_a_wrong_number() {
        let large = Decimal { mantissa: i128::MAX, scale: 0 };
        assert_eq!(large.add(decimal("1")), None);
        assert_eq!(large.multiply(decimal("2")), None);
        assert_eq!(large.add(decimal("0.1")), None);
        assert_eq!(Decimal { mantissa: i128::MIN, scale: 0 }.negate(), None);
        assert_eq!(Decimal { mantissa: i128::MIN, scale: 0 }.divide(decimal("-1")), None);
        assert_eq!(decimal("0.0000000000000001").multiply(decimal("0.0000000000000001")), None, "32 places");
    }

    #[test]
    fn json_numbers_are_only_those_every_reader_gets_right() {
        let json = |text: &str| decimal(text).to_json().map(|number| number.to_string());
        assert_eq!(json("0.3").as_deref(), Some("0.3"));
        assert_eq!(json("-12.25").as_deref(), Some("-12.25"));
        assert_eq!(json("9007199254740992").as_deref(), Some("9007199254740992"));
        assert_eq!(json("-9007199254740992").as_deref(), Some("-9007199254740992"));
        assert_eq!(json("9007199254740993"), None);
        assert_eq!(json("100000000000000000000"), None);
        assert_eq!(json("0.123456789012345").as_deref(), Some("0.123456789012345"));
        assert_eq!(json("0.1234567890123456"), None);
    }
}
