//! The programs that fetch packages and run them, with their options before the package.

use serde::{Deserialize, Serialize};

/// The program that installs packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Installer {
    Npm,
    Uv,
}

/// The programs with their first arguments.
pub(super) const FORMS: [(&str, &[&str], Installer); 5] = [
    ("npx", &[], Installer::Npm),
    ("npm", &["exec"], Installer::Npm),
    ("npm", &["x"], Installer::Npm),
    ("uvx", &[], Installer::Uv),
    ("uv", &["tool", "run"], Installer::Uv),
];

/// An option before the package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It changes nothing for packages that are installed.
    Ignored,
    /// Its value is a package; the first argument is a program then.
    Package,
    /// Its value is another package.
    Beside,
    /// Its value is a version of Python.
    Python,
    /// It is passed to the installer.
    Passed,
    /// It is passed to the installer with its value.
    PassedWithValue,
}

const NPM_OPTIONS: [(&[&str], Meaning); 5] = [
    (&["-y", "--yes", "-q", "--quiet", "-s", "--silent", "--prefer-offline", "--prefer-online"], Meaning::Ignored),
    (&["-p", "--package"], Meaning::Package),
    (&["--legacy-peer-deps", "--force", "--ignore-scripts"], Meaning::Passed),
    (&["--registry"], Meaning::PassedWithValue),
    (&["--"], Meaning::Ignored),
];

const UV_OPTIONS: [(&[&str], Meaning); 6] = [
    (
        &[
            "-q",
            "--quiet",
            "-v",
            "--isolated",
            "-U",
            "--upgrade",
            "--refresh",
            "-n",
            "--no-cache",
            "--no-progress",
            "--",
        ],
        Meaning::Ignored,
    ),
    (&["--from"], Meaning::Package),
    (&["-w", "--with"], Meaning::Beside),
    (&["-p", "--python"], Meaning::Python),
    (&["--native-tls", "--system-certs", "--no-index"], Meaning::Passed),
    (
        &[
            "-i",
            "--index-url",
            "--default-index",
            "--index",
            "--extra-index-url",
            "-f",
            "--find-links",
            "--prerelease",
            "--resolution",
            "--exclude-newer",
        ],
        Meaning::PassedWithValue,
    ),
];

impl Installer {
    pub(super) fn meaning(self, option: &str) -> Option<Meaning> {
        let options: &[(&[&str], Meaning)] = match self {
            Self::Npm => &NPM_OPTIONS,
            Self::Uv => &UV_OPTIONS,
        };
        options.iter().find(|(names, _)| names.contains(&option)).map(|(_, meaning)| *meaning)
    }
}
