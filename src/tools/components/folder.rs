//! The folder with components.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use sekisho_config::{TOOL_FILE_RULE, is_tool_file};
use sekisho_core::owner_only_files;

/// Files of a folder: each costs its code in every worker.
const MAX_FILES: usize = 200;

/// Maximum bytes of one component: an interpreter of another language with its library has some 50 MB.
const MAX_BYTES: u64 = 100 << 20;

/// Maximum bytes of a file beside it.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// The contents of a file and of the files beside it, or why that cannot be a component.
pub(super) type FileContent = Result<Found, String>;

/// A file, and those beside it. Its content is not kept: an interpreter of another language has some 50 MB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    path: PathBuf,
    /// SHA-256 in hexadecimal.
    pub(super) sum: String,
    /// `NAME.wit`: for descriptions.
    pub(super) wit: Option<String>,
    /// `NAME.json`: the description and the schemas of a command.
    pub(super) json: Option<String>,
}

/// The files `NAME.wasm`, by name, with `_` for `-`. Files that begin with `_` or `.` are not read.
/// Errors: the folder cannot be read, or has too many files.
pub(super) fn read(directory: &Path) -> Result<BTreeMap<String, FileContent>, String> {
    let shown = directory.display();
    let no_folder = |error: io::Error| {
        format!("the folder {shown} cannot be read: {error}; create it, and put components there as NAME.wasm")
    };
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(no_folder)? {
        let path = entry.map_err(no_folder)?.path();
        let is_wasm = path.extension().is_some_and(|extension| extension == "wasm");
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !is_wasm || name.starts_with(['_', '.']) || path.is_dir() {
            continue;
        }
        if files.len() == MAX_FILES {
            return Err(format!("the folder {shown} has more than {MAX_FILES} components; put some elsewhere"));
        }
        let tools = name.replace('-', "_");
        let content = match is_tool_file(&tools) {
            _ if files.contains_key(&tools) => {
                Err(format!("another file has the name {tools} for its tools, too: rename one"))
            }
            true => found(&path),
            false => Err(format!("its name gives no names of tools; rename it: {TOOL_FILE_RULE}")),
        };
        let content = content.map_err(|problem| format!("{}.wasm: {problem}", name.escape_debug()));
        files.insert(tools.escape_debug().to_string(), content);
    }
    Ok(files)
}

impl Found {
    /// The content.
    /// Errors: it cannot be read, or is not that any more of which the sum is known.
    pub(super) fn wasm(&self) -> Result<Vec<u8>, String> {
        let wasm = bytes(&self.path, MAX_BYTES)?;
        match hex::encode(Sha256::digest(&wasm)) == self.sum {
            true => Ok(wasm),
            false => Err("it changes while it is read".to_owned()),
        }
    }
}

fn found(path: &Path) -> FileContent {
    let mut content = opened(path)?.take(MAX_BYTES + 1);
    let sum = owner_only_files::sum_of(&mut content).map_err(unreadable)?;
    if content.limit() == 0 {
        return Err(too_large(MAX_BYTES));
    }
    Ok(Found { path: path.to_owned(), sum, wit: beside(path, "wit")?, json: beside(path, "json")? })
}

fn beside(path: &Path, extension: &str) -> Result<Option<String>, String> {
    let path = path.with_extension(extension);
    if !path.is_file() {
        return Ok(None);
    }
    let text = bytes(&path, MAX_TEXT_BYTES)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8; save the file as UTF-8".to_owned()));
    text.map(Some).map_err(|problem| format!("the .{extension} beside it: {problem}"))
}

fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    opened(path)?.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > most { Err(too_large(most)) } else { Ok(bytes) }
}

fn opened(path: &Path) -> Result<File, String> {
    // To open a pipe would otherwise wait for its other end, and to read it would not end.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if found.is_file() { Ok(file) } else { Err("it is no regular file".to_owned()) }
}

#[expect(clippy::needless_pass_by_value, reason = "an error's mapping takes it")]
fn unreadable(error: io::Error) -> String {
    format!("it cannot be read: {error}")
}

fn too_large(most: u64) -> String {
    format!("it has more than {} MiB", most >> 20)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn components_are_found_with_what_is_beside_them_and_others_say_why_they_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
        write("adder.wasm", b"code");
        write("adder.wit", b"package my:tools;");
        write("adder.json", b"{}");
        write("broken.wasm", b"code");
        write("broken.wit", b"\xff");
        for name in ["a-b.wasm", "a-c.wasm", "a_c.wasm", "a.b.wasm"] {
            write(name, b"");
        }
        write("_private.wasm", b"");
        write("weather.py", b"");
        fs::create_dir(folder.path().join("folder.wasm")).unwrap();
        File::create(folder.path().join("large.wasm")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let found = read(folder.path()).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a.b", "a_b", "a_c", "adder", "broken", "large"]);
        assert!(found["a_b"].is_ok(), "a-b.wasm");
        let adder = found["adder"].as_ref().unwrap();
        assert_eq!((adder.wasm().as_deref(), adder.json.as_deref()), (Ok(&b"code"[..]), Some("{}")));
        assert_eq!(adder.sum, hex::encode(Sha256::digest(b"code")));
        assert_eq!(adder.wit.as_deref(), Some("package my:tools;"));
        for (name, says) in [
            ("a.b", "a.b.wasm: its name gives no names of tools"),
            ("a_c", "another file has the name a_c for its tools, too: rename one"),
            ("broken", "broken.wasm: the .wit beside it: it is not UTF-8"),
            ("large", "more than 100 MiB"),
        ] {
            let problem = found[name].as_ref().unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
        write("adder.wasm", b"other");
        assert!(adder.wasm().unwrap_err().contains("changes while it is read"));
        assert!(Command::new("mkfifo").arg(folder.path().join("pipe.wasm")).status().unwrap().success());
        let found = read(folder.path()).unwrap();
        assert!(found["pipe"].as_ref().unwrap_err().contains("it is no regular file"));
        assert!(read(&folder.path().join("nowhere")).unwrap_err().contains("put components there"));
    }
}
