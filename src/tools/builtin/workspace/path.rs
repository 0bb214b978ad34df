//! A path inside a workspace, made of portable file names.

use std::fmt;

use sekisho_core::error::CallError;

/// Longest whole path.
const MAX_PATH_BYTES: usize = 1024;

/// Longest single name: the limit of file systems (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;

/// Deepest nesting of folders.
const MAX_DEPTH: usize = 16;

/// Prefix of this program's temporary files.
pub(super) const RESERVED_PREFIX: &str = ".sekisho-";

/// At least one name; none of them `..` or anything else that leaves the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct WorkspacePath(Vec<String>);

impl WorkspacePath {
    /// Errors: `tool_error` with the problem and how to write the path instead. An ambiguous path is refused, never
    /// repaired.
    pub(in super::super) fn parse(text: &str) -> Result<Self, CallError> {
        if text.len() > MAX_PATH_BYTES {
            return Err(refused("", &format!("it is longer than {MAX_PATH_BYTES} bytes")));
        }
        if text.starts_with('/') {
            return Err(refused(text, "it is absolute; paths are relative to the workspace, e.g. \"notes/today.md\""));
        }
        let names: Vec<String> = text.split('/').map(str::to_owned).collect();
        if names.len() > MAX_DEPTH {
            return Err(refused(text, &format!("it is more than {MAX_DEPTH} folders deep")));
        }
        match names.iter().find_map(|name| fault_of(name)) {
            Some(fault) => Err(refused(text, fault)),
            None => Ok(Self(names)),
        }
    }

    pub(super) fn folders(&self) -> &[String] {
        self.0.split_last().map_or(&[], |(_, folders)| folders)
    }

    pub(super) fn name(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join("/"))
    }
}

fn refused(path: &str, fault: &str) -> CallError {
    CallError::tool(format!("the path {path:?} cannot be used: {fault}"))
}

fn fault_of(name: &str) -> Option<&'static str> {
    let unclear = |character: char| character.is_control() || "\\:*?\"<>|".contains(character);
    if name.is_empty() {
        Some("it has an empty name in it; write one slash between names and none at the end")
    } else if name == "." || name == ".." {
        Some("\".\" and \"..\" are not supported; write the path from the top of the workspace")
    } else if name.len() > MAX_NAME_BYTES {
        Some("a name in it is longer than 255 bytes")
    } else if name.contains(unclear) {
        Some("it has a control character or one of \\ : * ? \" < > | in it; use letters, digits, - _ and .")
    } else if name.starts_with(' ') || name.ends_with([' ', '.']) {
        Some("a name in it begins with a space, or ends with a space or dot")
    } else if is_device(name) {
        Some("a name in it is a device name on some systems")
    } else if name.starts_with(RESERVED_PREFIX) {
        Some("names beginning with \".sekisho-\" are reserved")
    } else if !is_plain(name) {
        Some("a name in it has invisible characters, or accents apart from their letters; write it in NFC")
    } else {
        None
    }
}

/// `CON`, `nul.txt` and the like (Windows naming rules): names that other systems refuse.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).trim_end().to_ascii_uppercase();
    let numbered = |device: &str| {
        let mut rest = stem.strip_prefix(device).unwrap_or_default().chars();
        matches!((rest.next(), rest.next()), (Some('0'..='9' | '¹' | '²' | '³'), None))
    };
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
}

/// Unambiguous text: normalised (UAX #15, form C), without invisible or bidirectional control characters.
fn is_plain(name: &str) -> bool {
    let invisible = |character: char| {
        matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{3000}' | '\u{3164}'
            | '\u{a0}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{ffff}'
            | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}')
    };
    name.is_ascii()
        || (!name.contains(invisible) && icu_normalizer::ComposingNormalizerBorrowed::new_nfc().is_normalized(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn clear_names_are_taken_as_they_are() {
        for path in [
            "a",
            "notes.txt",
            "a/b/c.md",
            "My report (2).pdf",
            ".hidden",
            "größe.txt",
            "日本語/関所.md",
            "com",
            "console.log",
            "...a",
            "a..b",
            "~",
            "-rf",
            "%2e%2e",
        ] {
            assert_eq!(WorkspacePath::parse(path).unwrap().to_string(), path);
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_or_are_unclear_are_refused() {
        let long_name = "a".repeat(256);
        let long_path = "a/".repeat(600) + "a";
        let deep = "a/".repeat(16) + "a";
        for path in [
            "",
            "/",
            "/etc/passwd",
            "//etc/passwd",
            "..",
            "../x",
            "a/../b",
            "a/..",
            "./a",
            ".",
            "a/./b",
            "a//b",
            "a/",
            "..\\x",
            "a\\b",
            "C:",
            "C:\\x",
            "file:///etc/passwd",
            "\\\\server\\share",
            "a\0b",
            "a\nb",
            "a\u{7f}",
            "a\u{85}",
            " a",
            "a ",
            "a.",
            "a. .",
            "..  ",
            "... ",
            "....",
            "CON",
            "con",
            "nul.txt",
            "Aux.tar.gz",
            "COM1",
            "lpt9.doc",
            "com¹",
            "a*",
            "a?",
            "a|b",
            "a<b",
            "a\"b",
            "e\u{301}.txt",
            "a\u{200b}b",
            "a\u{202e}txt.exe",
            "\u{feff}a",
            "\u{2024}\u{2024}/x\u{ad}",
            "a\u{a0}b",
            "\u{ff0e}\u{ff0e}/x\u{3164}",
            ".sekisho-1.tmp",
            "a/.sekisho-1",
            "\u{e0001}a",
            &long_name,
            &long_path,
            &deep,
        ] {
            let error = WorkspacePath::parse(path).expect_err(path);
            assert!(error.message().contains("cannot be used: "), "{path:?}: {}", error.message());
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_has_only_plain_names(text in "\\PC{0,40}|[a-z./\\\\ ~:]{0,20}") {
            if let Ok(path) = WorkspacePath::parse(&text) {
                prop_assert_eq!(path.to_string(), text);
                for name in path.names() {
                    prop_assert!(!name.is_empty() && name != ".." && name != "." && !name.contains(['/', '\\', '\0']));
                }
            }
        }
    }
}
