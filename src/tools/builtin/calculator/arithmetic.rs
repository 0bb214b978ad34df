//! Plain arithmetic on decimals: `+ - * / ( )`, exact or `None`.
//!
//! It has no units, functions or powers: an expression that it does not support is `None` and left to fend,
//! which must agree with it on all others (a test compares the two).

use super::decimal::Decimal;

/// Up to this length it takes a few microseconds at most, so it may run inline.
const MAX_BYTES: usize = 256;

const MAX_NESTING: u32 = 64;

/// The exact value, or `None` when the expression is not plain arithmetic or has no exact decimal value.
pub(super) fn evaluate(expression: &str) -> Option<Decimal> {
    if expression.len() > MAX_BYTES {
        return None;
    }
    let mut parser = Parser { rest: expression, nesting: 0 };
    let value = parser.sum()?;
    parser.peek().is_none().then_some(value)
}

struct Parser<'a> {
    rest: &'a str,
    nesting: u32,
}

impl<'a> Parser<'a> {
    fn sum(&mut self) -> Option<Decimal> {
        let mut value = self.product()?;
        loop {
            value = match self.peek() {
                Some(b'+') => value.add(self.next_operand(Self::product)?)?,
                Some(b'-') => value.subtract(self.next_operand(Self::product)?)?,
                _ => return Some(value),
            };
        }
    }

    fn product(&mut self) -> Option<Decimal> {
        let mut value = self.factor()?;
        loop {
            value = match self.peek() {
                // `**` is a power: the second `*` is not a factor, so the result is `None`.
                Some(b'*') => value.multiply(self.next_operand(Self::factor)?)?,
                Some(b'/') => value.divide(self.next_operand(Self::factor)?)?,
                _ => return Some(value),
            };
        }
    }

    fn factor(&mut self) -> Option<Decimal> {
        match self.peek()? {
            b'-' => self.nested(|parser| parser.next_operand(Self::factor)?.negate()),
            b'(' => self.nested(|parser| {
                let value = parser.next_operand(Self::sum)?;
                if parser.peek()? != b')' {
                    return None;
                }
                parser.advance(1);
                Some(value)
            }),
            b'0'..=b'9' | b'.' => Decimal::parse(self.take_number()),
            _ => None,
        }
    }

    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.nesting += 1;
        let value = if self.nesting <= MAX_NESTING { inner(self) } else { None };
        self.nesting -= 1;
        value
    }

    /// Consumes the peeked sign and reads its operand.
    fn next_operand(&mut self, operand: fn(&mut Self) -> Option<Decimal>) -> Option<Decimal> {
        self.advance(1);
        operand(self)
    }

    fn take_number(&mut self) -> &'a str {
        let end = self.rest.bytes().position(|byte| !matches!(byte, b'0'..=b'9' | b'.')).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        number
    }

    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_start_matches(' ');
        self.rest.bytes().next()
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_arithmetic_is_exact() {
        for (expression, result) in [
            ("(2+3)*7", "35"),
            ("0.1+0.2", "0.3"),
            (" 1 + 2 * 3 ", "7"),
            ("1-2-3", "-4"),
            ("8/2/2", "2"),
            ("1/8", "0.125"),
            ("-(-(3))", "3"),
            ("--3", "3"),
            ("2*-3", "-6"),
            ("-0", "0"),
            ("((((1))))", "1"),
            ("100000000000*100000000000", "10000000000000000000000"),
        ] {
            assert_eq!(evaluate(expression).map(|value| value.to_string()).as_deref(), Some(result), "{expression}");
        }
    }

    #[test]
    fn unsupported_expressions_are_left_to_fend() {
        let long = "1+".repeat(200) + "1";
        let deep = "(".repeat(65) + "1" + &")".repeat(65);
        for expression in [
            "", " ", "2**3", "2^3", "1/3", "1/0", "2(3)", "(2)(3)", "2 3", "1e5", "0x10", "1,000", "5 km", "sqrt 2",
            "1 +", "(1", "1)", "()", "1.", ".", "1..2", "+1", "5!", "5%", "1+\t2", "１+１", &long, &deep,
        ] {
            assert_eq!(evaluate(expression), None, "{expression:?}");
        }
    }
}
