//! A folder that only this process uses.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;

use tempfile::{Builder, TempDir};

/// A new folder that only this user can enter. It is removed with its content on drop.
/// Errors: the folder for temporary files cannot be written to.
pub fn private_folder() -> io::Result<TempDir> {
    Builder::new().prefix("sekisho-").permissions(Permissions::from_mode(0o700)).tempdir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_and_goes_with_its_content() {
        let folder = private_folder().unwrap();
        let path = folder.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("file"), "content").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
