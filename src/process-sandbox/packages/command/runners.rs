//! The programs that fetch packages and run them, with their options before the package.

use serde::{Deserialize, Serialize};

/// The program that installs packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Installer {
    Npm,
    Pnpm,
    Bun,
    Uv,
    /// A virtual environment, for pipx.
    Pip,
}

/// The programs with their first arguments.
pub(super) const FORMS: [(&str, &[&str], Installer); 10] = [
    ("npx", &[], Installer::Npm),
    ("npm", &["exec"], Installer::Npm),
    ("npm", &["x"], Installer::Npm),
    ("pnpx", &[], Installer::Pnpm),
    ("pnpm", &["dlx"], Installer::Pnpm),
    ("bunx", &[], Installer::Bun),
    ("bun", &["x"], Installer::Bun),
    ("uvx", &[], Installer::Uv),
    ("uv", &["tool", "run"], Installer::Uv),
    ("pipx", &["run"], Installer::Pip),
];

/// Programs that fetch packages in forms for which there is no step of their own: with one of these words, which is the first argument or
/// comes after options.
const OTHER_FORMS: [(&str, &[&str]); 8] = [
    ("bun", &["x"]),
    ("dotnet", &["dnx"]),
    ("npm", &["exec", "x"]),
    ("pipx", &["run"]),
    ("pnpm", &["dlx"]),
    ("uv", &["tool"]),
    ("yarn", &["dlx"]),
    ("yarnpkg", &["dlx"]),
];

/// Programs that run code from an address, which begins as one of these.
const BY_ADDRESS: [(&str, &[&str]); 1] = [("deno", &["npm:", "jsr:", "http:", "https:"])];

/// Whether a command fetches packages when it is started, in a form that is not among [`FORMS`].
pub(super) fn fetches_otherwise(program: &str, args: &[String]) -> bool {
    let is_option = |arg: &String| arg.starts_with('-');
    let has_word = |words: &[&str]| {
        let is_word = |arg: &String| words.contains(&arg.as_str());
        args.first().is_some_and(is_word) || args.first().is_some_and(is_option) && args.iter().any(is_word)
    };
    let has_address = |begins: &[&str]| args.iter().any(|arg| begins.iter().any(|begin| arg.starts_with(begin)));
    OTHER_FORMS.iter().any(|(name, words)| *name == program && has_word(words))
        || BY_ADDRESS.iter().any(|(name, begins)| *name == program && has_address(begins))
        || program == "dnx" && !args.is_empty()
        // `go run MODULE@VERSION`; without a version it is of this machine.
        || program == "go" && args.first().is_some_and(|arg| arg == "run") && args.iter().any(|arg| arg.contains('@'))
}

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
    /// The program is run by the installer's own interpreter.
    ByInstaller,
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

const PNPM_OPTIONS: [(&[&str], Meaning); 5] = [
    (&["-s", "--silent", "--prefer-offline"], Meaning::Ignored),
    (&["--package"], Meaning::Package),
    (&["--allow-build", "--ignore-scripts"], Meaning::Passed),
    (&["--registry"], Meaning::PassedWithValue),
    (&["--"], Meaning::Ignored),
];

const BUN_OPTIONS: [(&[&str], Meaning); 3] = [
    (&["-y", "--yes", "--silent", "--verbose"], Meaning::Ignored),
    (&["-p", "--package"], Meaning::Package),
    (&["-b", "--bun"], Meaning::ByInstaller),
];

const PIPX_OPTIONS: [(&[&str], Meaning); 4] = [
    (&["-q", "--quiet", "-v", "--verbose", "--no-cache", "--"], Meaning::Ignored),
    (&["--spec"], Meaning::Package),
    (&["--python"], Meaning::Python),
    (&["-i", "--index-url"], Meaning::PassedWithValue),
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
            Self::Pnpm => &PNPM_OPTIONS,
            Self::Bun => &BUN_OPTIONS,
            Self::Uv => &UV_OPTIONS,
            Self::Pip => &PIPX_OPTIONS,
        };
        options.iter().find(|(names, _)| names.contains(&option)).map(|(_, meaning)| *meaning)
    }

    /// The name of its program. A virtual environment is made by Python itself.
    pub(in crate::packages) fn program(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pnpm => "pnpm",
            Self::Bun => "bun",
            Self::Uv => "uv",
            Self::Pip => "python3",
        }
    }

    /// Whether packages are of Python, in a virtual environment; the others are of npm, in `node_modules`.
    pub(in crate::packages) fn is_of_python(self) -> bool {
        match self {
            Self::Uv | Self::Pip => true,
            Self::Npm | Self::Pnpm | Self::Bun => false,
        }
    }

    /// A part of its output when a script of a package failed.
    pub(in crate::packages) fn script_failed(self) -> Option<&'static str> {
        match self {
            Self::Npm => Some("npm error command failed"),
            Self::Pnpm => Some("ELIFECYCLE"),
            Self::Bun => Some("script from"),
            Self::Uv | Self::Pip => None,
        }
    }
}
