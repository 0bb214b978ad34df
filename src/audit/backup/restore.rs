//! Restores a backup.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use zip::ZipArchive;
use zip::read::ZipFile;

use super::{
    AUDIT, BackupContents, BackupError, DATABASE, FORMAT, LOCK, MANIFEST, MCP_SERVERS, Manifest, StatePlaces,
    WORKSPACES,
};

/// Writes the contents of an archive to their places, which must be empty. Everything is extracted beside its place
/// first, so that an incomplete archive leaves nothing.
pub fn restore(places: &StatePlaces, from: &Path) -> Result<BackupContents, BackupError> {
    let damaged = |reason: String| BackupError::Damaged { path: from.to_owned(), reason };
    let file = File::open(from).map_err(|source| BackupError::Unreadable { path: from.to_owned(), source })?;
    refuse_existing(places)?;
    let mut archive = ZipArchive::new(file).map_err(|error| damaged(error.to_string()))?;
    let manifest = manifest(&mut archive).map_err(damaged)?;
    if manifest.format != FORMAT {
        return Err(BackupError::Newer { path: from.to_owned(), version: manifest.sekisho });
    }
    let expected = places.audit_name();
    if manifest.audit_file != expected {
        return Err(BackupError::OtherTrail { found: manifest.audit_file, expected });
    }
    let mut extracted = Extracted { places, moves: Vec::new(), workspace_files: 0 };
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| damaged(error.to_string()))?;
        extracted.extract(&mut entry, damaged)?;
    }
    let contents = BackupContents { audit_lines: manifest.audit_lines, workspace_files: extracted.workspace_files };
    extracted.put_in_place()?;
    Ok(contents)
}

fn refuse_existing(places: &StatePlaces) -> Result<(), BackupError> {
    let StatePlaces { database, audit, workspaces, mcp_servers, lock } = places;
    if crate::exists(audit)? {
        return Err(BackupError::NotEmpty(audit.clone()));
    }
    match [database, workspaces, mcp_servers, lock].into_iter().find(|place| place.exists()) {
        Some(place) => Err(BackupError::NotEmpty(place.clone())),
        None => Ok(()),
    }
}

fn manifest(archive: &mut ZipArchive<File>) -> Result<Manifest, String> {
    /// Many times the size of a manifest.
    const MAX_BYTES: u64 = 64 << 10;
    let entry = archive.by_name(MANIFEST).map_err(|error| format!("{MANIFEST}: {error}"))?;
    let mut text = Vec::new();
    entry.take(MAX_BYTES).read_to_end(&mut text).map_err(|error| format!("{MANIFEST}: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("{MANIFEST}: {error}"))
}

/// Files that were extracted beside their places. Removed on drop, unless they were put in place.
struct Extracted<'a> {
    places: &'a StatePlaces,
    /// From where to where.
    moves: Vec<(PathBuf, PathBuf)>,
    workspace_files: u64,
}

impl Extracted<'_> {
    fn extract(
        &mut self,
        entry: &mut ZipFile<'_, File>,
        damaged: impl Fn(String) -> BackupError,
    ) -> Result<(), BackupError> {
        let Some(path) = entry.enclosed_name() else {
            return Err(damaged("an entry has a path that leads out of it".to_owned()));
        };
        let names: Vec<_> = path.components().map(Component::as_os_str).filter_map(|name| name.to_str()).collect();
        let place = match *names.as_slice() {
            [MANIFEST] => return Ok(()),
            [DATABASE] => self.staged(&self.places.database.clone()),
            [MCP_SERVERS] => self.staged(&self.places.mcp_servers.clone()),
            [LOCK] => self.staged(&self.places.lock.clone()),
            [AUDIT, name] => self.staged(&self.places.audit.with_file_name(name)),
            [WORKSPACES, ref inner @ ..] => {
                self.workspace_files += u64::from(entry.is_file());
                self.staged(&self.places.workspaces.clone()).join(inner.iter().collect::<PathBuf>())
            }
            _ => return Err(damaged(format!("the entry {} is unknown", path.display()))),
        };
        let failed = BackupError::file(&place);
        if entry.is_dir() {
            return make_folder(&place).map_err(failed);
        }
        if !entry.is_file() {
            return Err(damaged(format!("the entry {} is not a file", path.display())));
        }
        place.parent().map_or(Ok(()), make_folder).map_err(&failed)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&place).map_err(&failed)?;
        io::copy(entry, &mut file).map_err(|error| match error.kind() {
            // A full disk, or one that fails.
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::Other => failed(error),
            // Compressed data that are none, or another checksum at the end of the entry.
            _ => damaged(format!("{}: {error}", path.display())),
        })?;
        file.sync_all().map_err(failed)
    }

    /// Where a part is extracted to.
    fn staged(&mut self, place: &Path) -> PathBuf {
        let mut staged = place.as_os_str().to_owned();
        staged.push(".restoring");
        let staged = PathBuf::from(staged);
        if !self.moves.iter().any(|(from, _)| *from == staged) {
            // The files of an earlier restore that was killed.
            remove(&staged);
            self.moves.push((staged.clone(), place.to_owned()));
        }
        staged
    }

    fn put_in_place(&mut self) -> Result<(), BackupError> {
        while let Some((from, to)) = self.moves.pop() {
            fs::rename(&from, &to).map_err(BackupError::file(&to))?;
        }
        Ok(())
    }
}

impl Drop for Extracted<'_> {
    fn drop(&mut self) {
        for (staged, _) in &self.moves {
            remove(staged);
        }
    }
}

/// Removes a file, or a folder with its contents. One that stays is found when its place is written to.
fn remove(path: &Path) {
    let _stays = fs::remove_dir_all(path).or_else(|_| fs::remove_file(path));
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
