//! A file that the user attached to a message. The model reads where it is; a short text itself, and a PDF if it can.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Longest text, in bytes, that the model reads as part of the message.
const MAX_SHOWN_TEXT: usize = 16 << 10;

pub const PDF: &str = "application/pdf";

/// How a PDF begins.
const PDF_MARK: &[u8] = b"%PDF-";

/// Largest PDF that a model reads itself: Bedrock accepts no larger one.
const MAX_DOCUMENT: usize = 4_500_000;

/// Bytes of a PDF's page, on average.
const BYTES_OF_A_PAGE: usize = 50_000;

/// A file of a user's message. Its content is in the workspace of the run's session; here only until it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserFile {
    /// One path segment.
    pub name: String,
    pub media_type: Option<String>,
    pub bytes: usize,
    /// SHA-256 of the content, in hexadecimal.
    digest: String,
    /// The content, if it is a short text.
    text: Option<String>,
    /// The content in base64, if it is a PDF and the run's model reads it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    document: Option<Arc<str>>,
    /// Where it is in the workspace of the run's session.
    pub path: Option<String>,
    /// The content that is to be written to the workspace.
    #[serde(skip)]
    pub unwritten: Option<Vec<u8>>,
}

impl UserFile {
    /// `name` may be a path, of which the last segment counts.
    pub fn new(name: &str, media_type: Option<String>, content: Vec<u8>) -> Self {
        let text = std::str::from_utf8(&content).ok().filter(|text| text.len() <= MAX_SHOWN_TEXT && is_printable(text));
        let is_document = content.starts_with(PDF_MARK) && content.len() <= MAX_DOCUMENT;
        Self {
            name: segment(name),
            media_type,
            bytes: content.len(),
            digest: hex::encode(Sha256::digest(&content)),
            text: text.map(str::to_owned),
            document: is_document.then(|| BASE64_STANDARD.encode(&content).into()),
            path: None,
            unwritten: Some(content),
        }
    }

    /// The path that it has in every workspace: another file of the same name has another.
    pub fn workspace_path(&self) -> String {
        let folder = self.digest.get(..8).unwrap_or_default();
        format!("uploads/{folder}/{}", self.name)
    }

    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The content of a PDF for a model that reads it, in base64.
    pub fn document(&self) -> Option<&str> {
        self.document.as_deref()
    }

    /// The model does not read it.
    pub(super) fn forget_document(&mut self) {
        self.document = None;
    }

    /// Estimated pages that the model reads.
    pub(super) fn pages(&self) -> usize {
        self.document.as_ref().map_or(0, |_| self.bytes / BYTES_OF_A_PAGE + 1)
    }

    /// Whether the model can read it without the workspace.
    pub fn is_shown(&self) -> bool {
        self.text.is_some()
    }

    /// The text that the model reads in its place.
    pub fn description(&self) -> String {
        let media_type = self.media_type.as_deref().map(|kind| format!("{kind}, ")).unwrap_or_default();
        let mut description =
            format!("[The user attached the file `{}` ({media_type}{} bytes).", self.name, self.bytes);
        if let Some(path) = &self.path {
            description.push_str(&format!(" It is in the workspace: `{path}`."));
        }
        match &self.text {
            Some(text) => description.push_str(&format!(" Its content:]\n{text}\n[End of `{}`.]", self.name)),
            None => description.push(']'),
        }
        description
    }

    /// Estimated memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        let texts = [Some(&self.name), self.media_type.as_ref(), self.text.as_ref(), self.path.as_ref()];
        let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
        let document = self.document.as_ref().map_or(0, |document| document.len());
        texts + document + self.digest.len() + self.unwritten.as_ref().map_or(0, Vec::len)
    }
}

fn is_printable(text: &str) -> bool {
    !text.chars().any(|character| character.is_control() && !matches!(character, '\n' | '\r' | '\t'))
}

/// A name that is one segment of a path in every workspace, and cannot end the text that quotes it.
fn segment(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let kept = last.chars().map(|character| match character {
        character if character.is_control() || "`:*?\"<>|".contains(character) => '_',
        character => character,
    });
    let kept: String = kept.take(100).collect();
    let kept = kept.trim();
    if kept.trim_matches('.').is_empty() { "file".to_owned() } else { kept.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_reads_short_texts_and_the_place_of_every_file() {
        let mut notes = UserFile::new("notes.txt", Some("text/plain".into()), b"buy milk\n".to_vec());
        assert!(notes.is_shown());
        assert_eq!(
            notes.description(),
            "[The user attached the file `notes.txt` (text/plain, 9 bytes). Its content:]\nbuy milk\n\n[End of `notes.txt`.]"
        );
        notes.path = Some(notes.workspace_path());
        assert!(notes.description().contains("in the workspace: `uploads/"), "{notes:?}");
        for content in [vec![b'x'; MAX_SHOWN_TEXT + 1], vec![0xff, 0xfe], b"a\0b".to_vec()] {
            let file = UserFile::new("a.bin", None, content);
            assert!(!file.is_shown() && file.description().ends_with("bytes).]"), "{}", file.description());
        }
    }

    #[test]
    fn names_are_one_segment_and_other_contents_have_other_paths() {
        for (name, expected) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "passwd"),
            ("C:\\Users\\ann\\a.csv", "a.csv"),
            ("a`\nb", "a__b"),
            ("..", "file"),
            ("", "file"),
            ("folder/", "file"),
            ("日本.txt", "日本.txt"),
        ] {
            assert_eq!(UserFile::new(name, None, Vec::new()).name, expected, "{name:?}");
        }
        let path = |content: &[u8]| UserFile::new("a", None, content.to_vec()).workspace_path();
        assert_eq!(path(b"1"), path(b"1"));
        assert_ne!(path(b"1"), path(b"2"));
    }
}
