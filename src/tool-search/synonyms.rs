//! English words that often mean the same for tools.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::words::Stems;

/// The other stems of the groups of each stem.
static OTHERS: LazyLock<HashMap<String, Vec<String>>> = LazyLock::new(|| {
    let stems = Stems::new();
    let mut others = HashMap::<String, Vec<String>>::new();
    for line in include_str!("synonyms.txt").lines().filter(|line| !line.starts_with('#')) {
        let group: Vec<String> = line.split(' ').map(|word| stems.of(word)).collect();
        for stem in &group {
            let entry = others.entry(stem.clone()).or_default();
            entry.extend(group.iter().filter(|other| *other != stem).cloned());
        }
    }
    others
});

/// The stems that often mean the same as this one.
pub(crate) fn of(stem: &str) -> impl Iterator<Item = &'static String> {
    OTHERS.get(stem).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_the_others_of_all_its_groups() {
        let found: Vec<_> = of("export").map(String::as_str).collect();
        assert_eq!(found, ["write", "save", "store", "convert", "transform", "translat"]);
        assert_eq!(of("zebra").count(), 0);
    }
}
