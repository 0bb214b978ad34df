//! Check digits of numbers of accounts and persons.

use serde::Deserialize;

/// The check of a number's digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Check {
    /// ISO 13616, of ISO/IEC 7064: MOD 97-10.
    Iban,
    /// No area 000, 666 or 900 to 999, and no part of zeros.
    UsSsn,
    EsDni,
    BrCpf,
    FrNir,
    PlPesel,
}

impl Check {
    pub(crate) fn passes(self, text: &str) -> bool {
        let compact: Vec<u8> =
            text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_uppercase()).collect();
        // A rule of the operator may find anything.
        let has_digits = |count: usize| compact.len() == count && compact.iter().all(u8::is_ascii_digit);
        match self {
            Self::Iban => is_iban(&compact),
            Self::UsSsn => has_digits(9) && is_ssn(&compact),
            Self::EsDni => compact.len() == 9 && compact[1..8].iter().all(u8::is_ascii_digit) && is_dni(&compact),
            Self::BrCpf => has_digits(11) && is_cpf(&compact),
            Self::FrNir => has_digits(15) && number(&compact[..13]) % 97 + number(&compact[13..]) == 97,
            Self::PlPesel => has_digits(11) && is_pesel(&compact),
        }
    }
}

fn is_iban(text: &[u8]) -> bool {
    if !(15..=34).contains(&text.len()) {
        return false;
    }
    let moved = text[4..].iter().chain(&text[..4]);
    let rest = moved.fold(0_u64, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u64::from(byte - b'0')) % 97,
        _ => (rest * 100 + u64::from(byte - b'A') + 10) % 97,
    });
    rest == 1
}

fn is_ssn(digits: &[u8]) -> bool {
    let (area, group, serial) = (&digits[..3], &digits[3..5], &digits[5..]);
    area != b"000" && area != b"666" && !area.starts_with(b"9") && group != b"00" && serial != b"0000"
}

/// The letter is of the number modulo 23; the first letter of a foreigner's number stands for a digit.
fn is_dni(text: &[u8]) -> bool {
    const LETTERS: &[u8; 23] = b"TRWAGMYFPDXBNJZSQVHLCKE";
    let [first, middle @ .., letter] = text else { return false };
    let first = match first {
        b'X' => b'0',
        b'Y' => b'1',
        b'Z' => b'2',
        digit if digit.is_ascii_digit() => *digit,
        _ => return false,
    };
    let of = number(&[&[first], middle].concat()) % 23;
    usize::try_from(of).ok().and_then(|of| LETTERS.get(of)) == Some(letter)
}

fn is_cpf(digits: &[u8]) -> bool {
    let check = |count: u64| {
        let weighted = digits.iter().zip((2..=count).rev()).map(|(digit, weight)| value(*digit) * weight);
        weighted.sum::<u64>() * 10 % 11 % 10
    };
    let is_one_digit = digits.windows(2).all(|pair| pair[0] == pair[1]);
    !is_one_digit && check(10) == value(digits[9]) && check(11) == value(digits[10])
}

fn is_pesel(digits: &[u8]) -> bool {
    const WEIGHTS: [u64; 10] = [1, 3, 7, 9, 1, 3, 7, 9, 1, 3];
    let sum: u64 = digits.iter().zip(WEIGHTS).map(|(digit, weight)| value(*digit) * weight).sum();
    // The months of five centuries.
    let (month, day) = (number(&digits[2..4]) % 20, number(&digits[4..6]));
    (1..=12).contains(&month) && (1..=31).contains(&day) && (10 - sum % 10) % 10 == value(digits[10])
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number, digit| number * 10 + value(*digit))
}

fn value(digit: u8) -> u64 {
    u64::from(digit.wrapping_sub(b'0'))
}
