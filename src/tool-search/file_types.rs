//! Words for the files and addresses that a query names: a path has none that tools have.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The words of each end of file names.
static TYPES: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let lines = include_str!("file_types.txt").lines().filter(|line| !line.starts_with('#'));
    let types = lines.filter_map(|line| line.split_once(": "));
    types.flat_map(|(ends, words)| ends.split(' ').map(move |end| (end, words))).collect()
});

/// The words of the files and addresses in a text.
pub(crate) fn words_of_files(text: &str) -> impl Iterator<Item = &'static str> {
    let is_between = |character: char| character.is_whitespace() || "\"'`,()<>".contains(character);
    text.split(is_between).flat_map(|part| of(part.trim_end_matches(['.', '?', '!', ';', ':'])).split(' '))
}

fn of(part: &str) -> &'static str {
    if ["http://", "https://", "www."].iter().any(|beginning| part.starts_with(beginning)) {
        return "url web page";
    }
    let kind = part.rsplit_once('.').filter(|(name, _)| !name.is_empty());
    let kind = kind.and_then(|(_, end)| TYPES.get(end.to_ascii_lowercase().as_str()));
    kind.copied().unwrap_or(if part.len() > 1 && part.starts_with('/') { "file" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_addresses_have_words() {
        for (text, expected) in [
            ("sum /data/sales.XLSX.", "excel spreadsheet file"),
            ("see https://example.com/a.pdf", "url web page"),
            ("look into /var/lib", "file"),
            ("version 1.2 of it.", ""),
        ] {
            let found: Vec<_> = words_of_files(text).filter(|word| !word.is_empty()).collect();
            assert_eq!(found.join(" "), expected, "{text}");
        }
    }
}
