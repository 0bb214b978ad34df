//! The file system at the start of a guest: the interpreter's files, read-only, beside `/tmp`, `/input` and
//! `/output`. A snapshot contains the descriptors of its start folders, so preparation and worker must both use this
//! module.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

use crate::files::{DataFiles, FileError, Files, FilesImage, FrozenFiles, NodeId, Quota, ROOT, RestoringFiles};
use sekisho_core::owner_only_files;
use sekisho_guest_protocol::DamagedImageError;
use sekisho_guest_protocol::Mount;

/// The interpreter's files, opened once for all guests of a process.
#[derive(Debug)]
pub struct Mounts {
    common: FrozenFiles,
    /// The path that the guest sees, and the folder in its file system.
    folders: Vec<(Arc<str>, NodeId)>,
}

/// A file system, and the folders to start with.
pub type Placed = (Files, Vec<(Arc<str>, NodeId)>);

/// Files of this size are mapped, which all workers share; smaller ones are read.
const MAPPED_BYTES: u64 = 32 << 10;

/// For files of the host, which are free of quota.
const NOTHING: Quota = Quota { bytes: 0, nodes: 0 };

impl Mounts {
    /// Maps files and reads folders of the host.
    /// Errors: I/O errors, errors of [`owner_only_files::open`], and mounts that conflict.
    pub fn open(mounts: &[Mount]) -> io::Result<Self> {
        let mut files = Files::new(NOTHING);
        let mut folders = vec![(Arc::from("/"), ROOT)];
        for (at, mount) in mounts.iter().enumerate() {
            if mount.host_path.is_dir() {
                let mut inside = mount.guest_path.clone();
                match files.place_folder(&inside, true) {
                    Ok(_) => {}
                    // Python's path may lead through the library's zip as if it were a folder, which a file system
                    // cannot represent; so the content is mounted elsewhere, and the guest receives both paths.
                    Err(FileError::NotAFolder) => {
                        inside = format!("/.mounts/{at}");
                        let folder = files.place_folder(&inside, true).map_err(io::Error::other)?;
                        folders.push((mount.guest_path.as_str().into(), folder));
                    }
                    Err(error) => return Err(io::Error::other(error)),
                }
                read_folder(&mut files, &mount.host_path, &inside)?;
            } else {
                let file = owner_only_files::open(&mount.host_path).map_err(io::Error::other)?;
                let content = Bytes::from_owner(map(&file)?);
                files.place_file(&mount.guest_path, content, true).map_err(io::Error::other)?;
            }
        }
        Ok(Self { common: files.freeze(), folders })
    }

    /// A fresh file system with all mounts; nothing is copied.
    /// Errors: when a mount is at the path of one of the guest's own folders.
    pub fn place(&self, quota: Quota) -> Result<Placed, FileError> {
        let mut files = self.common.thaw(quota);
        files.place_folder("/tmp", false)?;
        files.place_folder("/input", true)?;
        let output = files.place_folder("/output", false)?;
        let of_other_sandboxes = (Arc::from("/mnt/data"), output);
        Ok((files, self.folders.iter().cloned().chain([of_other_sandboxes]).collect()))
    }

    /// A file system as an image has it, with the same mounts.
    /// Errors: the image is of other mounts, or damaged.
    pub fn restore(&self, image: FilesImage, data_files: &DataFiles) -> Result<RestoringFiles, DamagedImageError> {
        self.common.restore(image, data_files)
    }
}

/// In the order of their names: images of sessions name files by their numbers.
fn read_folder(files: &mut Files, host: &Path, inside: &str) -> io::Result<()> {
    let mut entries = fs::read_dir(host)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_unstable_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{inside}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read_folder(files, &entry.path(), &path)?;
        } else {
            let mut file = owner_only_files::open(&entry.path()).map_err(io::Error::other)?;
            let content = if file.metadata()?.len() >= MAPPED_BYTES {
                Bytes::from_owner(map(&file)?)
            } else {
                let mut content = Vec::new();
                io::Read::read_to_end(&mut file, &mut content)?;
                content.into()
            };
            files.place_file(&path, content, true).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "files of tens of MB are shared by all guests only as mappings")]
fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: only our user can write the file, and it is never written in place: a new one is renamed over it.
    unsafe { Mmap::map(file) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use tempfile::TempDir;

    use super::*;

    const QUOTA: Quota = Quota { bytes: 1 << 20, nodes: 16 };

    fn write(path: &Path, content: &str) {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
        io::Write::write_all(&mut file, content.as_bytes()).unwrap();
    }

    #[test]
    fn a_guest_starts_with_the_interpreters_files_and_its_own_folders() {
        let host = TempDir::new().unwrap();
        write(&host.path().join("lib.zip"), "library");
        fs::create_dir_all(host.path().join("data/fonts")).unwrap();
        write(&host.path().join("data/fonts/one.ttf"), "font");
        let mounts = [
            Mount { guest_path: "/usr/lib.zip".into(), host_path: host.path().join("lib.zip") },
            Mount { guest_path: "/usr/lib.zip/data".into(), host_path: host.path().join("data") },
        ];
        let (mut files, folders) = Mounts::open(&mounts).unwrap().place(QUOTA).unwrap();
        let reported: Vec<_> = folders.iter().map(|(path, _)| &**path).collect();
        assert_eq!(reported, ["/", "/usr/lib.zip/data", "/mnt/data"]);
        let read = |from, path: &str| {
            let mut content = [0; 16];
            let length = files.read(files.find(from, path).unwrap(), 0, &mut content).unwrap();
            String::from_utf8(content[..length].to_vec()).unwrap()
        };
        assert_eq!(read(ROOT, "usr/lib.zip"), "library");
        assert_eq!(read(folders[1].1, "fonts/one.ttf"), "font");
        files.create_file(folders[2].1, "same").unwrap();
        assert!(files.find(ROOT, "output/same").is_ok(), "the working directory has two names");
        for (path, writable) in [("tmp/a", true), ("output/a", true), ("input/a", false), ("a", false)] {
            assert_eq!(files.create_file(ROOT, path).is_ok(), writable, "{path}");
        }
    }

    #[test]
    fn a_file_that_others_can_write_is_not_mapped() {
        let host = TempDir::new().unwrap();
        let path = host.path().join("lib.zip");
        write(&path, "library");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o622)).unwrap();
        Mounts::open(&[Mount { guest_path: "/lib.zip".into(), host_path: path }]).unwrap_err();
    }
}
