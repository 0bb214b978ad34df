//! A backup of the files of a gateway with the embedded store: one ZIP archive.
//!
//! The gateway may run meanwhile. The database is copied first, then the audit trail, then the files of sessions: the
//! trail has the line of each call that the database knows.

mod error;
mod restore;

use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

pub use self::error::BackupError;
pub use self::restore::restore;
use sekisho_config::Config;

/// The version of the archive's form.
const FORMAT: u32 = 1;

/// Entries of the archive.
const MANIFEST: &str = "backup.json";
const DATABASE: &str = "sekisho.db";
const MCP_SERVERS: &str = "mcp.json";
const LOCK: &str = "tools.lock";
const AUDIT: &str = "audit";
const WORKSPACES: &str = "workspaces";

/// Where the parts of a backup are on disk.
#[derive(Debug, Clone)]
pub struct StatePlaces {
    /// The SQLite file.
    pub database: PathBuf,
    /// The segment of the audit trail that is written.
    pub audit: PathBuf,
    pub workspaces: PathBuf,
    /// The file of `sekisho mcp add`.
    pub mcp_servers: PathBuf,
    /// The file of `sekisho lock` of a gateway without a configuration file; another one is beside the configuration.
    pub lock: PathBuf,
}

/// The contents of a backup, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BackupContents {
    pub audit_lines: u64,
    /// Files of sessions.
    pub workspace_files: u64,
}

/// The first entry of the archive.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    /// The version of the program.
    sekisho: String,
    /// RFC 3339.
    created_at: String,
    /// The name of the trail's file; the names of its segments derive from it.
    audit_file: String,
    audit_lines: u64,
}

impl StatePlaces {
    pub fn of(config: &Config) -> Self {
        Self {
            database: config.store_file(),
            audit: config.audit_file(),
            workspaces: config.workspaces_directory(),
            mcp_servers: config.state_directory().join(MCP_SERVERS),
            lock: config.state_directory().join(LOCK),
        }
    }

    fn audit_name(&self) -> String {
        self.audit.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Writes a new archive that only this user can read. `database` is a copy of the database, if there is one.
/// Errors: [`BackupError`]; nothing is left then.
pub fn write(places: &StatePlaces, database: Option<&Path>, to: &Path) -> Result<BackupContents, BackupError> {
    if to.exists() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let mut unfinished = to.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    let failed = BackupError::file(&unfinished);
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished);
    let written = file.map_err(&failed).and_then(|file| {
        let contents = Archive(ZipWriter::new(file)).fill(places, database)?;
        fs::rename(&unfinished, to).map_err(&failed)?;
        Ok(contents)
    });
    if written.is_err() {
        // The first error is reported.
        let _stays = fs::remove_file(&unfinished);
    }
    written
}

/// An archive that is being written.
struct Archive(ZipWriter<File>);

impl Archive {
    fn fill(mut self, places: &StatePlaces, database: Option<&Path>) -> Result<BackupContents, BackupError> {
        // Opened before the database is written, since segments may be removed meanwhile.
        let trail = if crate::exists(&places.audit)? { Some(crate::copy(&places.audit)?) } else { None };
        let audit_lines = trail.as_ref().map_or(0, |trail| trail.lines);
        let manifest = Manifest {
            format: FORMAT,
            sekisho: env!("CARGO_PKG_VERSION").to_owned(),
            created_at: Timestamp::now().to_string(),
            audit_file: places.audit_name(),
            audit_lines,
        };
        self.add(MANIFEST, &mut &*serde_json::to_vec_pretty(&manifest).map_err(io::Error::from)?)?;
        if let Some(database) = database {
            self.add_file(DATABASE, database)?;
        }
        for crate::CopiedFile { name, file, bytes } in trail.iter().flat_map(|trail| &trail.files) {
            self.add_trail_file(name, file, *bytes)?;
        }
        if let Some((name, head)) = trail.map(|trail| trail.head) {
            self.add(&format!("{AUDIT}/{name}"), &mut &*head)?;
        }
        for (name, file) in [(MCP_SERVERS, &places.mcp_servers), (LOCK, &places.lock)] {
            if file.is_file() {
                self.add_file(name, file)?;
            }
        }
        let workspace_files = self.add_folder(WORKSPACES, &places.workspaces)?;
        self.0.finish()?.sync_all()?;
        Ok(BackupContents { audit_lines, workspace_files })
    }

    fn add(&mut self, name: &str, content: &mut dyn Read) -> Result<(), BackupError> {
        self.0.start_file(name, options())?;
        io::copy(content, &mut self.0)?;
        Ok(())
    }

    fn add_file(&mut self, name: &str, path: &Path) -> Result<(), BackupError> {
        let mut file = File::open(path).map_err(BackupError::file(path))?;
        self.add(name, &mut file)
    }

    /// The file was read to its end when it was verified.
    fn add_trail_file(&mut self, name: &str, mut file: &File, bytes: u64) -> Result<(), BackupError> {
        io::Seek::rewind(&mut file)?;
        self.add(&format!("{AUDIT}/{name}"), &mut file.take(bytes))
    }

    /// Adds a folder with everything in it, but links and special files. Returns the number of files.
    fn add_folder(&mut self, name: &str, path: &Path) -> Result<u64, BackupError> {
        let failed = BackupError::file(path);
        let entries = match fs::read_dir(path) {
            // Removed meanwhile, or never made.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries.map_err(&failed)?,
        };
        self.0.add_directory(name, options())?;
        let mut files = 0;
        for entry in entries {
            files += self.add_entry(name, &entry.map_err(&failed)?)?;
        }
        Ok(files)
    }

    fn add_entry(&mut self, folder: &str, entry: &DirEntry) -> Result<u64, BackupError> {
        let path = entry.path();
        let failed = BackupError::file(&path);
        let name = entry.file_name().into_string().map_err(|_| failed(io::ErrorKind::InvalidFilename.into()))?;
        let name = format!("{folder}/{name}");
        let kind = match entry.file_type() {
            Ok(kind) if kind.is_dir() => return self.add_folder(&name, &path),
            kind => kind.map_err(&failed)?,
        };
        if !kind.is_file() {
            return Ok(0);
        }
        match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            file => self.add(&name, &mut file.map_err(&failed)?)?,
        }
        Ok(1)
    }
}

fn options() -> SimpleFileOptions {
    SimpleFileOptions::default().large_file(true).unix_permissions(0o600)
}

#[cfg(test)]
mod tests;
