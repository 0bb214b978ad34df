//! Extracts files from a wheel and from the archives inside it. A file gets its name only after its hash was
//! verified.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use sha2::{Digest as _, Sha256};
use zip::ZipArchive;
use zip::result::ZipError;

use super::error::doing;
use super::{Interpreters, PrepareError, Progress};
use crate::interpreter::{Manifest, SourceArchive, SourcePackage};
use sekisho_core::owner_only_files;

/// Maximum size of one file: ten times the largest there is, so that a hostile package cannot fill the disk.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Maximum size of all files of an inner archive together, and of the archive itself.
const MAX_ARCHIVE_BYTES: u64 = 256 << 20;
/// The same of a wheel with a package for functions.
const MAX_WHEEL_BYTES: u64 = 128 << 20;
/// Files and folders in one archive; and the folders around them, which need no entries.
const MAX_ENTRIES: usize = 20_000;
/// Folders around one entry.
const MAX_DEPTH: usize = 64;
const CHUNK_BYTES: usize = 64 << 10;

/// Why copying stopped; the caller adds the place.
enum Stopped {
    Io(io::Error),
    Hash(String),
    TooLarge,
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Every missing file of the manifest, out of a wheel or a folder.
pub fn files(
    folder: &Interpreters,
    manifest: &Manifest,
    package: &Path,
    progress: &Progress,
) -> Result<(), PrepareError> {
    let mut wheel = if package.is_dir() { None } else { Some(open_archive(package)?) };
    for file in &manifest.files {
        let target = folder.file_path(&file.sha256);
        if owner_only_files::open(&target).is_ok() {
            continue;
        }
        let (entry, size): (Box<dyn Read + '_>, u64) = if let Some(archive) = &mut wheel {
            let entry = archive.by_name(&file.path).map_err(|error| unusable(package, &error))?;
            let size = entry.size();
            (Box::new(entry), size)
        } else {
            let path = package.join(&file.path);
            let entry = File::open(&path).map_err(doing("open", &path))?;
            let size = entry.metadata().map_err(doing("read", &path))?.len();
            (Box::new(entry), size)
        };
        let step = progress.step(&format!("unpacking {}", file.name), Some(size));
        let expected = file.sha256.as_str();
        let copied = owner_only_files::write(&target, |out| {
            let actual = copy(entry, out, MAX_FILE_BYTES, |bytes| step.advance(bytes))?.0;
            if actual == expected { Ok(()) } else { Err(Stopped::Hash(actual)) }
        });
        copied.map_err(|stopped| match stopped {
            Stopped::Io(error) => doing("unpack", &target)(error),
            Stopped::TooLarge => too_large(package, &file.path, MAX_FILE_BYTES),
            Stopped::Hash(actual) => PrepareError::Hash {
                archive: package.to_owned(),
                entry: file.path.clone(),
                expected: expected.to_owned(),
                actual,
            },
        })?;
        step.done();
    }
    Ok(())
}

/// Every inner archive that is not unpacked yet.
pub fn archives(folder: &Interpreters, manifest: &Manifest, progress: &Progress) -> Result<(), PrepareError> {
    for archive in &manifest.archives {
        let target = folder.archive_path(&archive.sha256);
        if owner_only_files::check_folder(&target).is_ok() {
            continue;
        }
        let Some(file) = manifest.files.iter().find(|file| file.name == archive.file) else { continue };
        let outer = folder.file_path(&file.sha256);
        let content = inner_archive(&outer, archive)?;
        let step = progress.step(&format!("unpacking {}", archive.path), None);
        into_folder(&target, |unfinished| unpack_all(&outer, &content, unfinished, MAX_ARCHIVE_BYTES, |_| true))?;
        step.done();
    }
    Ok(())
}

/// These packages, out of the wheels in a folder; a wheel is recognised by its sum.
pub fn packages(
    folder: &Interpreters,
    packages: &[&SourcePackage],
    wheels: &Path,
    progress: &Progress,
) -> Result<(), PrepareError> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(wheels).map_err(doing("read", wheels))? {
        let path = entry.map_err(doing("read", wheels))?.path();
        if path.extension().is_some_and(|kind| kind == "whl") {
            let content = fs::read(&path).map_err(doing("read", &path))?;
            found.insert(hex::encode(Sha256::digest(&content)), (path, content));
        }
    }
    for package in packages {
        let name = format!("{}=={}", package.name, package.version);
        let Some((path, content)) = found.get(package.sha256.as_str()) else {
            let reason = format!("no file in {} has the sum {}", wheels.display(), package.sha256.as_str());
            return Err(PrepareError::Download { package: name, reason });
        };
        let step = progress.step(&format!("unpacking {name}"), None);
        let is_wanted = |entry: &str| match &package.only {
            Some(only) => entry == only,
            None => is_of_package(entry),
        };
        let target = folder.archive_path(&package.sha256);
        into_folder(&target, |unfinished| unpack_all(path, content, unfinished, MAX_ARCHIVE_BYTES, is_wanted))?;
        step.done();
    }
    Ok(())
}

/// A wheel, whose content this is, into the folder of that name.
pub fn wheel(path: &Path, content: &[u8], target: &Path) -> Result<(), PrepareError> {
    into_folder(target, |unfinished| unpack_all(path, content, unfinished, MAX_WHEEL_BYTES, is_of_package))
}

/// pip would move the files of a folder NAME.data out of the package.
fn is_of_package(entry: &str) -> bool {
    !entry.split('/').next().is_some_and(|top| top.ends_with(".data"))
}

/// Fills a folder, which gets its name when it is complete.
fn into_folder(target: &Path, fill: impl FnOnce(&Path) -> Result<(), PrepareError>) -> Result<(), PrepareError> {
    // Removes the rest of an interrupted step.
    let unfinished = target.with_extension("new");
    clear(&unfinished).map_err(doing("clear", &unfinished))?;
    owner_only_files::make_folder(&unfinished).map_err(doing("make the folder", &unfinished))?;
    let filled = fill(&unfinished);
    if filled.is_err() {
        // The next preparation starts by removing it.
        let _ = clear(&unfinished);
    }
    filled?;
    // A folder that others can change is replaced.
    clear(target).map_err(doing("clear", target))?;
    fs::rename(&unfinished, target).map_err(doing("finish", target))
}

fn inner_archive(outer: &Path, archive: &SourceArchive) -> Result<Vec<u8>, PrepareError> {
    let mut zip = open_archive(outer)?;
    let entry = zip.by_name(&archive.path).map_err(|error| unusable(outer, &error))?;
    let mut content = Vec::new();
    let (actual, _) = copy(entry, &mut content, MAX_ARCHIVE_BYTES, |_| {})
        .map_err(|stopped| stopped_in(stopped, outer, &archive.path, MAX_ARCHIVE_BYTES))?;
    if actual == archive.sha256.as_str() {
        return Ok(content);
    }
    Err(PrepareError::Hash {
        archive: outer.to_owned(),
        entry: archive.path.clone(),
        expected: archive.sha256.as_str().to_owned(),
        actual,
    })
}

/// All wanted files of an archive whose hash was verified; still, none may leave the folder.
fn unpack_all(
    outer: &Path,
    content: &[u8],
    folder: &Path,
    max_bytes: u64,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(), PrepareError> {
    let mut archive = ZipArchive::new(io::Cursor::new(content)).map_err(|error| unusable(outer, &error))?;
    check_counts(&archive).map_err(|reason| PrepareError::Archive { path: outer.to_owned(), reason })?;
    let mut left = max_bytes;
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(|error| unusable(outer, &error))?;
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        if !is_wanted(&name) {
            continue;
        }
        let leads_out = || PrepareError::Entry { archive: outer.to_owned(), entry: name.clone() };
        let inside = entry.enclosed_name().ok_or_else(leads_out)?;
        let target = folder.join(inside);
        if entry.is_dir() {
            owner_only_files::make_folder(&target).map_err(doing("make the folder", &target))?;
            continue;
        }
        if !entry.is_file() {
            return Err(leads_out());
        }
        let parent = target.parent().unwrap_or(folder);
        owner_only_files::make_folder(parent).map_err(doing("make the folder", parent))?;
        let mut file = owner_only_files::create(&target).map_err(doing("make", &target))?;
        let (_, bytes) = copy(entry, &mut file, left, |_| {}).map_err(|stopped| match stopped {
            Stopped::Io(error) => doing("unpack", &target)(error),
            other => stopped_in(other, outer, &name, max_bytes),
        })?;
        left = left.saturating_sub(bytes);
        file.sync_all().map_err(doing("write", &target))?;
    }
    Ok(())
}

/// Errors: it has too many files, or folders.
fn check_counts(archive: &ZipArchive<io::Cursor<&[u8]>>) -> Result<(), String> {
    if archive.len() > MAX_ENTRIES {
        return Err(format!("it has more than {MAX_ENTRIES} files"));
    }
    let mut folders = HashSet::new();
    for name in archive.file_names() {
        let name = name.map_err(|error| error.to_string())?;
        let ends: Vec<_> = name.match_indices(['/', '\\']).map(|(end, _)| end).take(MAX_DEPTH + 1).collect();
        if ends.len() > MAX_DEPTH {
            return Err(format!("a file is in more than {MAX_DEPTH} folders"));
        }
        folders.extend(ends.into_iter().filter_map(|end| name.get(..end)).map(str::to_owned));
        if folders.len() > MAX_ENTRIES {
            return Err(format!("it has more than {MAX_ENTRIES} folders"));
        }
    }
    Ok(())
}

/// Copies; returns the SHA-256 sum and the length of the content.
fn copy(
    mut from: impl Read,
    to: &mut impl Write,
    limit: u64,
    mut advance: impl FnMut(u64),
) -> Result<(String, u64), Stopped> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        let length = match from.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let bytes = chunk.get(..length).unwrap_or_default();
        if bytes.is_empty() {
            return Ok((hex::encode(hasher.finalize()), total));
        }
        total += bytes.len() as u64;
        if total > limit {
            return Err(Stopped::TooLarge);
        }
        hasher.update(bytes);
        to.write_all(bytes)?;
        advance(bytes.len() as u64);
    }
}

fn open_archive(path: &Path) -> Result<ZipArchive<impl Read + Seek>, PrepareError> {
    let file = File::open(path).map_err(doing("open", path))?;
    ZipArchive::new(io::BufReader::new(file)).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &ZipError) -> PrepareError {
    PrepareError::Archive { path: path.to_owned(), reason: error.to_string() }
}

fn too_large(archive: &Path, entry: &str, limit: u64) -> PrepareError {
    PrepareError::TooLarge { archive: archive.to_owned(), entry: entry.to_owned(), limit }
}

fn stopped_in(stopped: Stopped, archive: &Path, entry: &str, limit: u64) -> PrepareError {
    match stopped {
        Stopped::TooLarge => too_large(archive, entry, limit),
        Stopped::Io(error) => doing("unpack", archive)(error),
        Stopped::Hash(actual) => {
            PrepareError::Archive { path: archive.to_owned(), reason: format!("{entry} has the sum {actual}") }
        }
    }
}

fn clear(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
