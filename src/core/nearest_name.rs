//! Which known name was probably meant by one that is not known.

/// Below this Jaro–Winkler similarity, a suggestion misleads more often than it helps.
const ALIKE: f64 = 0.8;

/// Characters from which two typing errors in a name are likely; shorter names have one.
const LONG: usize = 8;

/// The most similar of the known names, if one is similar.
pub fn nearest_name<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.into_iter().map(|name| (strsim::jaro_winkler(wrong, name), name));
    let (likeness, name) = rated.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (likeness >= ALIKE).then_some(name)
}

/// The known name of which another is probably a typing error: with one other, missing, added or swapped character, or
/// two in a long name. Names that differ only in digits are members of a series.
pub fn misspelled_name<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |name: &str| name.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
    let (lower, without_digits) = (wrong.to_lowercase(), letters(wrong));
    let length = wrong.chars().count();
    let most = |name: &str| if length.min(name.chars().count()) < LONG { 1 } else { 2 };
    let is_near = |name: &str| {
        // An upper bound of the difference that needs no matrix.
        name.len().abs_diff(wrong.len()) <= 8
            && strsim::osa_distance(&lower, &name.to_lowercase()) <= most(name)
            && letters(name) != without_digits
    };
    let near = known.into_iter().filter(|name| is_near(name));
    near.min_by_key(|name| strsim::osa_distance(&lower, &name.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_is_suggested() {
        let known = ["calculator", "calendar", "crm__find"];
        for (wrong, expected) in
            [("calculater", Some("calculator")), ("calender", Some("calendar")), ("zzz", None), ("", None)]
        {
            assert_eq!(nearest_name(wrong, known), expected, "{wrong}");
        }
        assert_eq!(nearest_name("x", []), None);
    }

    #[test]
    fn a_name_with_one_or_two_other_characters_is_misspelled() {
        for (wrong, right, expected) in [
            ("calculater", "calculator", true),
            ("Calculator", "calculator", true),
            ("calcualtor", "calculator", true),
            ("claculater", "calculator", true),
            ("calc", "calculator", false),
            ("crm_find", "crm__find", true),
            ("ehco", "echo", true),
            ("eccho", "echo", true),
            ("acho", "echo", true),
            ("achoo", "echo", false),
            ("step_2", "step_1", false),
            ("crm__list2", "crm__list", false),
            ("größe", "grösse", false),
        ] {
            assert_eq!(misspelled_name(wrong, [right]).is_some(), expected, "{wrong} {right}");
        }
        assert_eq!(misspelled_name("calculater", ["calculate", "calculator"]), Some("calculate"));
    }
}
