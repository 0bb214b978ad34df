//! Names that were probably meant by one that no tool has.

/// Jaro–Winkler similarity from which a name is suggested as an alternative.
const LIKELY_MEANT: f64 = 0.75;

/// Jaro similarity up to which `strsim` adds nothing for a common beginning.
const LEAST_JARO: f64 = 0.7;

/// Maximum number of such names.
const MAX_NEAREST: usize = 3;

/// Counters of letters. Letters with the same counter are taken for the same letter.
const COUNTERS: usize = 128;

/// A name of a caller, at most 64 characters, with the count of each letter. A comparison of two names takes time by the product
/// of their lengths, and a call of an unknown tool compares with the names of all tools: most of them have too few letters in
/// common with the name, which takes less time to find.
struct GivenName {
    text: String,
    letters: usize,
    counts: [u8; COUNTERS],
}

impl GivenName {
    fn new(given: &str) -> Self {
        let text = shown_name(given);
        let (mut letters, mut counts) = (0, [0; COUNTERS]);
        for letter in text.chars() {
            letters += 1;
            counts[counter(letter)] += 1;
        }
        Self { text, letters, counts }
    }

    /// The Jaro–Winkler similarity with a name; zero where it is certainly less than [`LIKELY_MEANT`].
    fn likeness(&self, name: &str) -> f64 {
        let (mut letters, mut common, mut left) = (0_usize, 0_usize, self.counts);
        for letter in name.chars() {
            letters += 1;
            let left = &mut left[counter(letter)];
            if *left > 0 {
                *left -= 1;
                common += 1;
            }
        }
        let common = common as f64;
        // The Jaro similarity, if all common letters were at the same places. Not a number if a name is empty.
        let at_most = (common / letters as f64 + common / self.letters as f64 + 1.0) / 3.0;
        if at_most <= LEAST_JARO { 0.0 } else { strsim::jaro_winkler(name, &self.text) }
    }
}

fn counter(letter: char) -> usize {
    letter as usize % COUNTERS
}

/// The names that are most similar to a given one: as a whole, or without the prefix of their source.
pub fn nearest_names<'n>(given: &str, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let given = GivenName::new(given);
    let likeness = |name: &str| {
        let whole = given.likeness(name);
        name.split_once("__").map_or(whole, |(_, own)| whole.max(given.likeness(own)))
    };
    let mut near: Vec<_> =
        names.map(|name| (likeness(name), name)).filter(|(likeness, _)| *likeness >= LIKELY_MEANT).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().take(MAX_NEAREST).map(|(_, name)| name.to_owned()).collect()
}

/// The beginning of an unknown name, which has no other bound.
pub fn shown_name(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_name_that_was_likely_meant_is_passed_over(given in "[a-d_é]{0,12}", name in "[a-d_é]{0,12}") {
            let (quick, whole) = (GivenName::new(&given).likeness(&name), strsim::jaro_winkler(&name, &given));
            prop_assert_eq!(quick >= LIKELY_MEANT, whole >= LIKELY_MEANT);
            prop_assert!(quick == whole || quick == 0.0);
        }
    }

    #[test]
    fn names_with_few_common_letters_are_not_compared() {
        let given = GivenName::new("calculater");
        assert!(strsim::jaro_winkler("web_search", "calculater") > 0.0);
        assert_eq!(given.likeness("web_search"), 0.0);
        assert!(given.likeness("calculator") > 0.9);
    }
}
