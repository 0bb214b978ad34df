//! Removes folders of packages.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::tree::MAX_DEPTH;

/// Scripts of packages may have taken the permissions of their folders away, which would keep the files of each attempt.
pub(super) fn remove(path: &Path) {
    let removed = fs::remove_dir_all(path).or_else(|_| {
        make_removable(path);
        fs::remove_dir_all(path)
    });
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "a folder of packages cannot be removed");
        }
        _ => {}
    }
}

/// Gives this user all permissions of the folders. No link is followed.
fn make_removable(path: &Path) {
    let mut left = vec![path.to_owned()];
    while let Some(folder) = left.pop() {
        if !folder.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        _ = fs::set_permissions(&folder, Permissions::from_mode(0o700));
        let entries = fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
        left.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
}

/// Removes all folders with this name below a folder, down to the depth of a tree that has a digest. No link is followed.
pub(super) fn remove_each(folder: &Path, name: &str) {
    // Those on the way to the one that is read: nothing limits how many folders a script makes.
    let mut open: Vec<_> = fs::read_dir(folder).into_iter().collect();
    while let Some(entries) = open.last_mut() {
        let Some(entry) = entries.next() else {
            open.pop();
            continue;
        };
        let Some(entry) = entry.ok().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) else {
            continue;
        };
        if entry.file_name() == name {
            remove(&entry.path());
        } else if open.len() <= MAX_DEPTH {
            open.extend(fs::read_dir(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_without_permissions_is_removed_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (packages, outside) = (folder.path().join("packages"), folder.path().join("outside"));
        let closed = packages.join("a/closed");
        for made in [&closed, &outside] {
            fs::create_dir_all(made).unwrap();
        }
        fs::write(closed.join("file"), "").unwrap();
        symlink(&outside, packages.join("a/link")).unwrap();
        fs::set_permissions(&outside, Permissions::from_mode(0o755)).unwrap();
        for without in [&closed, &packages] {
            fs::set_permissions(without, Permissions::from_mode(0o000)).unwrap();
        }
        remove(&packages);
        assert!(!packages.exists());
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o755);
        // Nothing to remove is no problem.
        remove(&packages);
    }

    #[test]
    fn folders_with_a_name_are_removed_at_every_depth_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (packages, outside) = (folder.path().join("packages"), folder.path().join("outside"));
        for made in ["packages/__pycache__/a", "packages/lib/a/__pycache__", "packages/lib/b", "outside/__pycache__"] {
            fs::create_dir_all(folder.path().join(made)).unwrap();
        }
        symlink(&outside, packages.join("lib/link")).unwrap();
        remove_each(&packages, "__pycache__");
        assert!(!packages.join("__pycache__").exists() && !packages.join("lib/a/__pycache__").exists());
        assert!(packages.join("lib/b").exists() && outside.join("__pycache__").exists());
    }
}
