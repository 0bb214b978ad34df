//! The folder with the files of tools.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::shared::SharedModules;
use sekisho_config::{TOOL_FILE_RULE, is_tool_file};

/// Files of a folder: each is read in the sandbox.
const MAX_FILES: usize = 1_000;

/// Maximum bytes of one file.
const MAX_BYTES: u64 = 256 << 10;

/// A file that was changed this long before it was read has another time once it is changed again, also where a file system
/// keeps times of two seconds.
const SETTLED_SECONDS: i64 = 4;

/// A file's text, or why it cannot be one with tools.
pub(super) type FileText = Result<Arc<str>, String>;

/// Texts of files, by name without `.py`.
pub(super) type Texts = BTreeMap<String, FileText>;

/// The files of tools, and the modules that they share.
pub(super) type Content = (Texts, SharedModules);

/// Texts that were read before, by name.
pub(super) type KnownTexts = BTreeMap<String, KnownText>;

/// A text that is not read again while its file is the same.
#[derive(Debug, Clone)]
pub(super) struct KnownText {
    stamp: Stamp,
    text: Arc<str>,
}

/// The file system's data about a file. Nobody can set the time of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let last = self.modified.0.max(self.changed.0).saturating_add(SETTLED_SECONDS);
        last <= i64::try_from(now).unwrap_or(i64::MAX)
    }
}

/// The files `NAME.py`, by name, and the modules that they share. Files that begin with `_` or `.` have no tools. Texts in `known` are not read again
/// where their files are the same; afterwards `known` has the current texts.
/// Errors: the folder cannot be read, or has too many files.
pub(super) fn read(directory: &Path, known: &mut KnownTexts, now: SystemTime) -> Result<Content, String> {
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
            true => text_of(&path, &name, known, now),
            false => {
                Err(format!("{}: its name gives no names of tools; rename it: {TOOL_FILE_RULE}", name.escape_debug()))
            }
        };
        files.insert(name.escape_debug().to_string(), text);
    }
    let shared = SharedModules::read(directory, known, now);
    known.retain(|name, _| files.contains_key(name) || shared.has(name));
    Ok((files, shared))
}

pub(super) fn text_of(path: &Path, name: &str, known: &mut KnownTexts, now: SystemTime) -> FileText {
    let unreadable = |error: io::Error| format!("{name}.py: it cannot be read: {error}");
    // To open a pipe would otherwise wait for its other end, and to read it would not end.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(format!("{name}.py: it is no regular file; put the Python into one"));
    }
    // The stamp from before the text is read: whoever changes the file meanwhile gives it another one.
    let stamp = Stamp::of(&found);
    if let Some(known) = known.get(name).filter(|known| known.stamp == stamp) {
        return Ok(Arc::clone(&known.text));
    }
    known.remove(name);
    let text = text_in(file, name)?;
    if stamp.is_settled(now) {
        known.insert(name.to_owned(), KnownText { stamp, text: Arc::clone(&text) });
    }
    Ok(text)
}

fn text_in(file: File, name: &str) -> FileText {
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("{name}.py: it cannot be read: {error}"))?;
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
    use std::time::Duration;

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
        let read = |path: &Path| read(path, &mut KnownTexts::new(), SystemTime::now());
        let (found, shared) = read(folder.path()).unwrap();
        assert!(shared.has("_private"));
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

    #[test]
    fn a_file_that_is_the_same_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weather.py");
        fs::write(&path, "x = 1").unwrap();
        let (now, later) = (SystemTime::now(), SystemTime::now() + Duration::from_secs(60));
        let mut known = KnownTexts::new();
        let text = |known: &mut KnownTexts, at| read(folder.path(), known, at).unwrap().0["weather"].clone().unwrap();
        assert_eq!(&*text(&mut known, now), "x = 1");
        assert!(known.is_empty(), "it may be changed once more at the same time");
        assert_eq!(&*text(&mut known, later), "x = 1");
        known.get_mut("weather").unwrap().text = "as it was".into();
        assert_eq!(&*text(&mut known, later), "as it was", "it is not read");

        // As long as before, and with its time of modification. The clock of the file system may not have gone on yet.
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        known.get_mut("weather").unwrap().stamp.changed.1 ^= 1;
        fs::write(&path, "x = 2").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        assert_eq!(&*text(&mut known, later), "x = 2");
        let other = folder.path().join("other");
        fs::write(&other, "x = 3").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(&*text(&mut known, later), "x = 3");
        fs::remove_file(&path).unwrap();
        assert!(read(folder.path(), &mut known, later).unwrap().0.is_empty() && known.is_empty());
    }
}
