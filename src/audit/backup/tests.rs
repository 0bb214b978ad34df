use std::io::Write;

use tempfile::TempDir;
use zip::CompressionMethod;

use super::*;

fn places(folder: &Path) -> StatePlaces {
    StatePlaces {
        database: folder.join("sekisho.db"),
        audit: folder.join("audit.jsonl"),
        workspaces: folder.join("workspaces"),
        mcp_servers: folder.join("mcp.json"),
        lock: folder.join("tools.lock"),
    }
}

/// An archive with these entries.
fn archive(path: &Path, entries: &[(&str, &str)]) {
    let mut zip = ZipWriter::new(File::create(path).unwrap());
    for (name, content) in entries {
        // Not compressed, so that a byte of the content can be changed.
        zip.start_file(*name, options().compression_method(CompressionMethod::Stored)).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    }
    zip.finish().unwrap();
}

const MANIFEST_TEXT: &str = r#"{"format": 1, "sekisho": "0.1.0", "created_at": "2026-01-31T00:00:00Z", "audit_file": "audit.jsonl",
    "audit_lines": 0}"#;

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_of_sessions_are_restored_without_links_and_an_existing_file_is_never_replaced() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let session = here.path().join("workspaces/abc/notes");
    fs::create_dir_all(&session).unwrap();
    fs::create_dir(here.path().join("workspaces/abc/empty")).unwrap();
    fs::write(session.join("関所.txt"), "today").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", session.join("link")).unwrap();
    let to = here.path().join("backup.zip");
    let contents = write(&places(here.path()), None, &to).unwrap();
    assert_eq!(contents, BackupContents { audit_lines: 0, workspace_files: 1 });
    assert!(matches!(write(&places(here.path()), None, &to), Err(BackupError::Exists(_))));

    // As after a restore that was killed.
    fs::create_dir(there.path().join("workspaces.restoring")).unwrap();
    fs::write(there.path().join("workspaces.restoring/old"), "").unwrap();
    assert_eq!(restore(&places(there.path()), &to).unwrap(), contents);
    assert_eq!(names_in(&there.path().join("workspaces")), ["abc"]);
    assert_eq!(fs::read_to_string(there.path().join("workspaces/abc/notes/関所.txt")).unwrap(), "today");
    assert_eq!(names_in(&there.path().join("workspaces/abc")), ["empty", "notes"]);
    assert_eq!(names_in(&there.path().join("workspaces/abc/notes")), ["関所.txt"]);
    let refused = restore(&places(there.path()), &to).unwrap_err().to_string();
    assert!(refused.contains("exists already") && refused.contains("SEKISHO_STATE_DIRECTORY"), "{refused}");
    // The archive is the first thing that is looked for.
    let missing = there.path().join("missing.zip");
    assert!(matches!(restore(&places(there.path()), &missing), Err(BackupError::Unreadable { .. })));
}

#[test]
fn what_is_not_a_whole_backup_is_refused_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let from = folder.path().join("backup.zip");
    let newer = MANIFEST_TEXT.replace("\"format\": 1", "\"format\": 2");
    let renamed = MANIFEST_TEXT.replace("audit.jsonl", "trail.jsonl");
    for (entries, expected) in [
        (&[("sekisho.db", "x")][..], "backup.json"),
        (&[("backup.json", "{}")], "missing field"),
        (&[("backup.json", &newer)], "is newer"),
        (&[("backup.json", &renamed)], "named trail.jsonl"),
        (&[("backup.json", MANIFEST_TEXT), ("sekisho.db", "x"), ("other/file", "x")], "other/file is unknown"),
        (&[("backup.json", MANIFEST_TEXT), ("workspaces/a", "x"), ("../../etc/x", "x")], "leads out of it"),
    ] {
        archive(&from, entries);
        let target = TempDir::new().unwrap();
        let refused = restore(&places(target.path()), &from).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
        assert_eq!(names_in(target.path()), Vec::<String>::new(), "{expected}");
    }
    // A changed byte, which the checksum finds.
    archive(&from, &[("backup.json", MANIFEST_TEXT), ("workspaces/a", "first"), ("sekisho.db", "database")]);
    let mut bytes = fs::read(&from).unwrap();
    let at = bytes.windows(8).position(|part| part == b"database").unwrap();
    bytes[at] ^= 1;
    fs::write(&from, bytes).unwrap();
    let target = TempDir::new().unwrap();
    assert!(matches!(restore(&places(target.path()), &from), Err(BackupError::Damaged { .. })));
    assert_eq!(names_in(target.path()), Vec::<String>::new());
    fs::write(&from, "no archive").unwrap();
    assert!(matches!(restore(&places(target.path()), &from), Err(BackupError::Damaged { .. })));
}
