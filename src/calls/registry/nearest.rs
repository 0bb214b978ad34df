//! Names that were probably meant by one that no tool has.

/// Jaro–Winkler similarity from which a name is suggested as an alternative.
const LIKELY_MEANT: f64 = 0.75;

/// Maximum number of such names.
const MAX_NEAREST: usize = 3;

/// The names that are most similar to a given one: as a whole, or without the prefix of their source.
pub fn nearest_names<'n>(given: &str, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let given = shown_name(given);
    let likeness = |name: &str| {
        let own = name.split_once("__").map_or(name, |(_, own)| own);
        strsim::jaro_winkler(name, &given).max(strsim::jaro_winkler(own, &given))
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
