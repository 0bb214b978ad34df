//! Markdown files that begin with YAML between lines of `---`: skills, and types of sub-agents.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

/// Maximum bytes of such a file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file that cannot be used.
#[derive(Debug, Error)]
#[error("{}: {problem}", file.display())]
pub struct UnusableFile {
    file: PathBuf,
    problem: String,
}

impl UnusableFile {
    pub(super) fn new(file: &Path, problem: impl Display) -> Self {
        Self { file: file.to_owned(), problem: problem.to_string() }
    }
}

/// The front matter and the text after it.
/// Errors: the file cannot be read, is too large, or has no front matter of that form.
pub(super) fn read<T: DeserializeOwned>(file: &Path) -> Result<(T, String), UnusableFile> {
    let text = read_text(file).map_err(|error| UnusableFile::new(file, error))?;
    parse(&text).map_err(|problem| UnusableFile::new(file, problem))
}

/// Errors: the problem of the text.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<(T, String), String> {
    const FORM: &str = "it must begin with front matter: YAML between two lines of `---`";
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let after = text.strip_prefix("---\n").ok_or(FORM)?;
    let (yaml, body) = after.split_once("\n---\n").or_else(|| Some((after.strip_suffix("\n---")?, ""))).ok_or(FORM)?;
    let matter = serde_saphyr::from_str(yaml).map_err(|problem| format!("the front matter is invalid: {problem}"))?;
    Ok((matter, body.trim().to_owned()))
}

/// Errors: it cannot be read, is too large, or is not UTF-8.
pub(super) fn read_text(file: &Path) -> io::Result<String> {
    let bytes = std::fs::metadata(file)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it has {bytes} bytes, and {MAX_FILE_BYTES} are allowed")));
    }
    std::fs::read_to_string(file)
}

/// The files and folders of a folder, by name.
/// Errors: the folder cannot be read.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, UnusableFile> {
    let read = || -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
    };
    let mut entries = read().map_err(|error| UnusableFile::new(folder, error))?;
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_matter_and_the_text_are_separated_whatever_ends_the_lines() {
        for text in ["---\na: 1\n---\n\nText --- here.\n", "\u{feff}---\r\na: 1\r\n---\r\nText --- here."] {
            assert_eq!(parse::<Value>(text), Ok((json!({"a": 1}), "Text --- here.".to_owned())), "{text:?}");
        }
        assert_eq!(parse::<Value>("---\na: 1\n---"), Ok((json!({"a": 1}), String::new())));
        for text in ["", "a: 1", "---\na: 1\n", "Text\n---\na: 1\n---\n"] {
            assert!(parse::<Value>(text).unwrap_err().contains("must begin with front matter"), "{text:?}");
        }
        assert!(parse::<Value>("---\na: [\n---\n").unwrap_err().contains("the front matter is invalid"));
    }
}
