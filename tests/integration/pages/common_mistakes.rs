//! Each page for users and operators ends with mistakes that people make, in the words of the program's messages.

use std::path::{Path, PathBuf};

use crate::checkout::checkout;

use super::files_below;

const HEADING: &str = "\n## Common mistakes\n";

/// Pages without that section, and why.
const WITHOUT: [(&str, &str); 8] = [
    ("SUMMARY.md", "the contents"),
    (
        "architecture.md",
        "a map of the code; CONTRIBUTING.md has the steps, with the test that fails where one is forgotten",
    ),
    ("benchmarks.md", "figures"),
    ("bounds.md", "a table of numbers"),
    ("comparison.md", "other gateways"),
    ("glossary.md", "definitions"),
    ("scorecard.md", "results of a run, made by `scripts/scorecard`"),
    ("specification.md", "requirements, with their tests"),
];

/// The least that counts as a quoted message: shorter ones are words.
const MIN_QUOTED: usize = 12;

fn pages() -> Vec<(String, String)> {
    let files = std::fs::read_dir(checkout().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let name = |file: &Path| file.file_name().unwrap().to_str().unwrap().to_owned();
    files.map(|file| (name(&file), std::fs::read_to_string(&file).unwrap())).collect()
}

#[test]
fn each_page_ends_with_common_mistakes() {
    let is_exempt = |name: &str| WITHOUT.iter().any(|(exempt, _)| *exempt == name);
    for (name, text) in pages() {
        let Some((_, section)) = text.split_once(HEADING) else {
            assert!(is_exempt(&name), "docs/{name} has no section \"Common mistakes\"");
            continue;
        };
        assert!(!is_exempt(&name), "docs/{name} has the section, and is among those without");
        assert!(!section.contains("\n## "), "docs/{name} does not end with it");
        let rows = section.lines().filter(|line| line.starts_with("| ")).count().saturating_sub(1);
        let items = section.lines().filter(|line| line.starts_with("- ")).count();
        assert!(rows.max(items) >= 3, "docs/{name} has {rows} mistakes in its table");
    }
}

/// A message that was reworded is searched for by the words of the page, and not found.
#[test]
fn messages_in_common_mistakes_are_messages_of_the_program() {
    let mut files = Vec::new();
    files_below(&checkout().join("src"), &mut files);
    let is_source = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "rs" || extension == "py");
    let sources: String = files
        .iter()
        .filter(|file| is_source(file))
        .map(|file| on_one_line(&std::fs::read_to_string(file).unwrap()))
        .collect();
    let (mut quoted, mut unknown) = (0, Vec::new());
    for (name, text) in pages() {
        let Some((_, section)) = text.split_once(HEADING) else { continue };
        for message in section.lines().flat_map(|line| line.split('"').skip(1).step_by(2)) {
            if message.len() >= MIN_QUOTED && message.contains(' ') {
                quoted += 1;
                if !sources.contains(message) {
                    unknown.push(format!("docs/{name}: {message}"));
                }
            }
        }
    }
    assert_eq!(unknown, Vec::<String>::new(), "no message of the program has these words");
    assert!(quoted >= 60, "only {quoted} messages were found");
}

/// A source with its texts as they are printed: a backslash at the end of a line continues a text, and quotes have no backslash.
fn on_one_line(source: &str) -> String {
    let (mut joined, mut rest) = (String::with_capacity(source.len()), source);
    while let Some((before, after)) = rest.split_once("\\\n") {
        joined.push_str(before);
        rest = after.trim_start();
    }
    (joined + rest).replace("\\\"", "\"")
}

#[test]
fn texts_of_several_lines_are_joined() {
    assert_eq!(on_one_line("a(\"one \\\n      \\\"two\\\" \\\n  three\")"), "a(\"one \"two\" three\")");
}
