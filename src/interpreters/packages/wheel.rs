//! A wheel before it is used: it must be of pure Python, and small enough.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use zip::ZipArchive;

use super::requirements::{is_version, normalized};

const MAX_WHEEL_BYTES: u64 = 32 << 20;

/// How names of files with native code end.
const NATIVE: [&str; 4] = [".so", ".pyd", ".dll", ".dylib"];

/// A wheel that can be unpacked.
#[derive(Debug)]
pub(super) struct Wheel {
    pub(super) path: PathBuf,
    /// The name of the package, as [`normalized`] writes it.
    pub(super) name: String,
    pub(super) version: String,
    pub(super) sha256: String,
    pub(super) content: Vec<u8>,
}

impl Wheel {
    /// Errors: its name, and why it cannot be used.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (name, version) = name_and_version(&file)?;
        let mut content = Vec::new();
        File::open(path)
            .and_then(|opened| opened.take(MAX_WHEEL_BYTES + 1).read_to_end(&mut content))
            .map_err(|error| format!("{file} cannot be read: {error}"))?;
        if content.len() as u64 > MAX_WHEEL_BYTES {
            return Err(format!("{file} has more than {} MiB", MAX_WHEEL_BYTES >> 20));
        }
        if let Some(entry) = native_code(&content).map_err(|error| format!("{file} is no wheel: {error}"))? {
            return Err(with_native_code(&file, &format!("it has {entry}")));
        }
        let sha256 = hex::encode(Sha256::digest(&content));
        Ok(Self { path: path.to_owned(), name, version, sha256, content })
    }
}

/// The name of the package, as [`normalized`] writes it, and its version.
/// Errors: it is no wheel of pure Python 3.
fn name_and_version(file: &str) -> Result<(String, String), String> {
    let parts: Vec<_> = file.strip_suffix(".whl").unwrap_or_default().split('-').collect();
    let ([name, version, python, abi, platform] | [name, version, _, python, abi, platform]) = parts[..] else {
        return Err(format!("{file} is no name of a wheel: NAME-VERSION-PYTHON-ABI-PLATFORM.whl"));
    };
    if abi != "none" || platform != "any" {
        return Err(with_native_code(file, &format!("it is for {abi} on {platform}")));
    }
    if !is_version(version) {
        return Err(format!("{file} has no version in its name"));
    }
    if !python.split('.').any(|tag| tag.starts_with("py3")) {
        return Err(format!("{file} is not for Python 3"));
    }
    Ok((normalized(name), version.to_owned()))
}

fn with_native_code(file: &str, how: &str) -> String {
    format!(
        "{file} has native code ({how}), which cannot run in the sandbox: leave it out of requirements.txt; the \
         interpreter may have the package itself"
    )
}

/// The first file of native code in it.
fn native_code(content: &[u8]) -> Result<Option<String>, zip::result::ZipError> {
    let archive = ZipArchive::new(Cursor::new(content))?;
    let names = archive.file_names_raw().map(|name| String::from_utf8_lossy(name).into_owned());
    let mut native = names.filter(|name| {
        let lower = name.to_ascii_lowercase();
        // As in `libz.so.1`, too.
        NATIVE.iter().any(|ending| lower.ends_with(ending)) || lower.contains(".so.")
    });
    Ok(native.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_wheels_say_what_runs_everywhere() {
        let pure = [
            ("Markdown_It.py-3.0-py3-none-any.whl", ("markdown-it-py", "3.0")),
            ("a-1-1build-py2.py3-none-any.whl", ("a", "1")),
            ("a-1.0+local-py315-none-any.whl", ("a", "1.0+local")),
        ];
        for (file, (name, version)) in pure {
            assert_eq!(name_and_version(file), Ok((name.to_owned(), version.to_owned())));
        }
        for (file, says) in [
            (
                "numpy-2.1-cp313-cp313-manylinux_2_17_x86_64.whl",
                "has native code (it is for cp313 on manylinux_2_17_x86_64)",
            ),
            ("a-1-py3-none-win32.whl", "has native code"),
            ("a-1-cp313-abi3-any.whl", "has native code"),
            ("a-1-py2-none-any.whl", "is not for Python 3"),
            ("a-1.tar.gz", "is no name of a wheel"),
            ("a.whl", "is no name of a wheel"),
        ] {
            let problem = name_and_version(file).unwrap_err();
            assert!(problem.contains(file) && problem.contains(says), "{problem}");
        }
    }
}
