use proptest::prelude::*;

use super::*;
use crate::{Choice, Direction, Rules};

const ALL: [Detector; 3] = [Detector::Secrets, Detector::Emails, Detector::CardNumbers];

fn struck(detector: Detector, text: &str) -> String {
    strike(text, &[detector], "#").map_or_else(|| text.to_owned(), |(struck, _)| struck)
}

fn strike(text: &str, detectors: &[Detector], replacement: &str) -> Option<(String, usize)> {
    Choice::new(&Rules::shipped(), detectors, &[], Direction::Answers).strike(text, replacement)
}

#[test]
fn secrets_of_known_forms_are_found_and_other_words_are_not() {
    let github = format!("ghp_{}", "a1B2".repeat(9));
    let managed = format!("sk_{}_{}", "0f".repeat(8), "a1".repeat(32));
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.s1gnature";
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\nAAAA\n-----END RSA PRIVATE KEY-----";
    for (text, expected) in [
        ("key AKIAIOSFODNN7EXAMPLE.", "key #."),
        (&*format!("token: {github}"), "token: #"),
        (&*format!("({managed})"), "(#)"),
        (&*format!("sk-{}", "aB3-".repeat(6)), "#"),
        (&*format!("cookie {jwt}; next"), "cookie #; next"),
        (&*format!("Bearer {jwt}, {jwt} AKIAIOSFODNN7EXAMPLE"), "Bearer #, # #"),
        (&*format!("a {key} b"), "a # b"),
        ("-----BEGIN PRIVATE KEY-----\nMIIB cut", "#"),
        ("Authorization: Bearer abcdefgh12345678==", "Authorization: Bearer #"),
        ("postgres://app:hunter2@db.example/x", "postgres://app:#@db.example/x"),
        ("password = \"correct-horse\"", "password = \"#\""),
        (r#"{\"api_key\": \"0123456789\"}"#, r##"{\"api_key\": \"#\"}"##),
        ("the bearer of this letter", "the bearer of this letter"),
        ("https://example.com:8080/a@b", "https://example.com:8080/a@b"),
        ("the password is secret", "the password is secret"),
        ("AKIAshort", "AKIAshort"),
    ] {
        assert_eq!(struck(Detector::Secrets, text), expected);
    }
}

/// A hostile tool answers so. If the search for each reads to the end of the text, that takes minutes.
#[test]
fn secrets_among_beginnings_of_others_are_found_in_time() {
    for part in [
        "x.AKIAIOSFODNN7EXAMPLE.",
        "eyJ-AKIAIOSFODNN7EXAMPLE-",
        "://u:;AKIAIOSFODNN7EXAMPLE;",
        "-----BEGIN AKIAIOSFODNN7EXAMPLE ",
    ] {
        let struck = struck(Detector::Secrets, &part.repeat(20_000));
        assert_eq!(struck.matches('#').count(), 20_000, "{part}");
    }
}

#[test]
fn addresses_are_found_in_any_script_and_in_urls() {
    for (text, expected) in [
        ("Ann <ann.b+c@mail.example.com>, Bob", "Ann <#>, Bob"),
        ("mailto:ann@example.org?subject=x", "mailto:#?subject=x"),
        ("jürgen@bücher.example.", "#."),
        ("?to=ann%40example.org&x", "?to=#&x"),
        ("a@b.example,c@d.example", "#,#"),
        ("not@home", "not@home"),
        ("@handle and @other.example", "@handle and @other.example"),
        ("pkg@1.2.3", "pkg@1.2.3"),
    ] {
        assert_eq!(struck(Detector::Emails, text), expected);
    }
}

#[test]
fn card_numbers_have_a_valid_check_digit_and_whole_groups() {
    for (text, expected) in [
        ("4111111111111111", "#"),
        ("card 4111 1111 1111 1111 12/27", "card # 12/27"),
        ("4111-1111-1111-1111", "#"),
        ("3782 822463 10005", "#"),
        ("no. 6011000990139424, thanks", "no. #, thanks"),
        ("4111111111111111 5500005555555559", "# #"),
        ("2024 4111 1111 1111 1111", "2024 #"),
        ("4111111111111112", "4111111111111112"),
        ("1111111111111117", "1111111111111117"),
        ("411111111111", "411111111111"),
        ("41111111111111110000", "41111111111111110000"),
        ("0.4111111111111111", "0.4111111111111111"),
        ("4111  1111 1111 1111", "#"),
        ("4111\n1111 1111 1111", "4111\n1111 1111 1111"),
    ] {
        assert_eq!(struck(Detector::CardNumbers, text), expected);
    }
}

/// As pages and evaders of a detector write them.
#[test]
fn what_a_person_reads_is_found_however_it_is_written() {
    use Detector::{CardNumbers, Emails, Secrets};
    for (detector, text, expected) in [
        (CardNumbers, "card 4111\u{a0}1111\u{a0}1111\u{a0}1111, thanks", "card #, thanks"),
        (CardNumbers, "4111\u{2009}1111\u{202f}1111\u{3000}1111.", "#."),
        (CardNumbers, "4111 \u{a0} 1111\t1111  1111 x", "# x"),
        (CardNumbers, "41\u{200b}11111111111111", "#"),
        (CardNumbers, "(４１１１ １１１１ １１１１ １１１１)", "(#)"),
        (CardNumbers, "٤١١١١١١١١١١١١١١١", "#"),
        (CardNumbers, "4111&nbsp;1111&#160;1111&#xA0;1111<br>", "#<br>"),
        (CardNumbers, "4111\u{2011}1111\u{2013}1111\u{2212}1111", "#"),
        (CardNumbers, "4&#49;11111111111111", "#"),
        // Characters that divide two of them.
        (CardNumbers, "4111111111111111\u{200b}5500005555555559", "#\u{200b}#"),
        (CardNumbers, "4111\u{a0}1111\u{a0}1111\u{a0}1112", "4111\u{a0}1111\u{a0}1111\u{a0}1112"),
        (Emails, "to ann\u{200b}@exam\u{ad}ple.org!", "to #!"),
        (Emails, "ann＠example．org", "#"),
        (Emails, "<a href='mailto:ann&#64;example&period;org'>", "<a href='mailto:#'>"),
        (Emails, "ann&commat;example.org &amp; bob", "# &amp; bob"),
        (Emails, "größe  and name", "größe  and name"),
        (Secrets, "key AKIA\u{200b}IOSFODNN7EXAMPLE.", "key #."),
        (Secrets, "AKIAIOSF\u{e0041}ODNN7EXAMPLE", "#"),
        (Secrets, "ＡＫＩＡＩＯＳＦＯＤＮＮ７ＥＸＡＭＰＬＥ", "#"),
        (Secrets, "password&#61;correct-horse", "password&#61;#"),
    ] {
        assert_eq!(struck(detector, text), expected, "{text:?}");
    }
}

/// Each character is looked at once, in any text of a hostile tool.
#[test]
fn texts_that_must_be_rewritten_are_searched_in_time() {
    for part in ["&", "&#", "&#x", "&amp", "\u{200b}", "\u{a0} ", "４", "& &nbsp;", "1\u{a0}"] {
        let text = part.repeat(100_000);
        for detector in ALL {
            let _ = struck(detector, &text);
        }
    }
}

#[test]
fn everything_that_is_found_is_counted() {
    let text = "ann@example.org paid with 4111111111111111, bob@example.org did not";
    let (struck, count) = strike(text, &ALL, "[redacted]").unwrap();
    assert_eq!(struck, "[redacted] paid with [redacted], [redacted] did not");
    assert_eq!(count, 3);
    assert_eq!(strike("nothing here", &ALL, "#"), None);
}

/// The digits with the check digit that makes them a card number.
fn with_check_digit(mut digits: String) -> String {
    let check = ('0'..='9').find(|check| passes_luhn(format!("{digits}{check}").as_bytes()));
    digits.push(check.unwrap());
    digits
}

/// Digits, in groups of so many.
fn grouped(digits: &str, size: usize, divider: char) -> String {
    let groups: Vec<_> = digits.as_bytes().chunks(size).map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(&divider.to_string())
}

proptest! {
    #[test]
    fn any_text_is_searched_and_nothing_else_is_changed(text in ".*") {
        for detector in ALL {
            let found = find(finder(detector).unwrap(), &text);
            let in_order = found.windows(2).all(|pair| pair[0].end <= pair[1].start);
            let are_texts = found.iter().all(|place| text.get(place.clone()).is_some_and(|found| !found.is_empty()));
            prop_assert!(in_order && are_texts, "{detector:?}: {found:?}");
            let kept: String = found.iter().rev().fold(text.clone(), |mut kept, place| {
                kept.replace_range(place.clone(), "");
                kept
            });
            prop_assert_eq!(strike(&text, &[detector], "").map_or(text.clone(), |(struck, _)| struck), kept);
        }
    }

    #[test]
    fn every_card_number_is_found_however_it_is_grouped(
        digits in "[2-6][0-9]{11,17}",
        size in 3_usize..20,
        divider in prop::sample::select(vec![' ', '-']),
        before in "[a-z(:,]{0,5}",
        after in "[a-z):,]{0,5}",
    ) {
        let card = grouped(&with_check_digit(digits), size, divider);
        let text = format!("{before}{card}{after}");
        prop_assert_eq!(struck(Detector::CardNumbers, &text), format!("{before}#{after}"));
    }

    #[test]
    fn a_wrong_digit_makes_a_number_none_of_a_card(digits in "[2-6][0-9]{11,17}", wrong in 1_u8..10) {
        let card = with_check_digit(digits);
        let last = (card.as_bytes()[card.len() - 1] - b'0' + wrong) % 10;
        let other = format!("{}{last}", &card[..card.len() - 1]);
        prop_assert_eq!(struck(Detector::CardNumbers, &other), other);
    }

    #[test]
    fn every_address_is_found_between_words(
        local in "[a-z0-9][a-z0-9._+-]{0,20}",
        domain in "[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?\\.[a-z]{2,10}",
        word in "[a-z ]{0,10}",
    ) {
        let text = format!("{word} <{local}@{domain}> {word}");
        prop_assert_eq!(struck(Detector::Emails, &text), format!("{word} <#> {word}"));
    }
}
