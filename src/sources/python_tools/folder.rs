//! The folder with the files of tools.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::config::{TOOL_FILE_RULE, is_tool_file};

/// Files of a folder: each is read in the sandbox.
const MAX_FILES: usize = 1_000;

/// Of one file.
const MAX_BYTES: u64 = 256 << 10;

/// A file's text, or why it cannot be one with tools.
pub(super) type FileText = Result<Arc<str>, String>;

/// Texts of files, by name without `.py`.
pub(super) type Texts = BTreeMap<String, FileText>;

/// The files `NAME.py`, by name. Those that begin with `_` or `.` have no tools.
///
/// # Errors
/// The folder cannot be read, or has too many files.
pub(super) fn read(directory: &Path) -> Result<Texts, String> {
    let shown = directory.display();
    let unreadable = |error: io::Error| {
        format!("the folder {shown} cannot be read: {error}; `sekisho tools new NAME` creates it, with an example")
    };
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_python = path.extension().is_some_and(|extension| extension == "py");
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !is_python || name.starts_with(['_', '.']) || path.is_dir() {
            continue;
        }
        if files.len() == MAX_FILES {
            return Err(format!("the folder {shown} has more than {MAX_FILES} files; put several tools into one"));
        }
        let text = match is_tool_file(&name) {
            true => text_of(&path, &name),
            false => {
                Err(format!("{}: its name gives no names of tools; rename it: {TOOL_FILE_RULE}", name.escape_debug()))
            }
        };
        files.insert(name.escape_debug().to_string(), text);
    }
    Ok(files)
}

fn text_of(path: &Path, name: &str) -> FileText {
    let unreadable = |error: io::Error| format!("{name}.py: it cannot be read: {error}");
    // To open a pipe would otherwise wait for its other end, and to read it would not end.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(format!("{name}.py: it is no regular file; put the Python into one"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("{name}.py: it has more than {} KiB; write several files", MAX_BYTES >> 10));
    }
    String::from_utf8(bytes).map(Arc::from).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{name}.py:{line}: it is not UTF-8; save the file as UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn files_with_tools_are_found_and_others_say_why_they_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
        write("weather.py", b"x = 1");
        write("weather.cases.yaml", b"[]");
        write("_private.py", b"");
        write("a-b.py", b"");
        write("latin.py", b"x = 1\ny = '\xe9'");
        write("large.py", &vec![b'#'; (256 << 10) + 1]);
        fs::create_dir(folder.path().join("package.py")).unwrap();
        std::os::unix::fs::symlink("weather.py", folder.path().join("linked.py")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("lost.py")).unwrap();
        assert!(Command::new("mkfifo").arg(folder.path().join("pipe.py")).status().unwrap().success());
        let found = read(folder.path()).unwrap();
        let names: Vec<_> = found.keys().collect();
        assert_eq!(names, ["a-b", "large", "latin", "linked", "lost", "pipe", "weather"]);
        for name in ["weather", "linked"] {
            assert_eq!(found[name].as_deref(), Ok("x = 1"));
        }
        for (name, says) in [
            ("a-b", "rename it"),
            ("latin", "latin.py:2: it is not UTF-8"),
            ("large", "256 KiB"),
            ("lost", "lost.py: it cannot be read"),
            ("pipe", "pipe.py: it is no regular file"),
        ] {
            let problem = found[name].as_ref().unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
        assert!(read(&folder.path().join("nowhere")).unwrap_err().contains("sekisho tools new"));
    }
}
