//! Notes from which commit the program is built, for `sekisho --version` and the metric `build_info`.
//!
//! Only builds with the profile `release`, or one based on it, ask git: every other build would compile this package again after
//! each commit. An archive or a crate has no git: there SEKISHO_COMMIT and SOURCE_DATE_EPOCH say it, or the note of `cargo package`.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

fn main() -> io::Result<()> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    if variable("CARGO_CFG_TARGET_OS").is_some_and(|system| system != "linux") {
        return Err(io::Error::other("sekisho runs on Linux; on macOS and Windows run it in a container"));
    }
    let mut out = io::stdout();
    for changes in ["changed=build.rs", "env-changed=SEKISHO_COMMIT", "env-changed=SOURCE_DATE_EPOCH"] {
        writeln!(out, "cargo::rerun-if-{changes}")?;
    }
    let root = variable("CARGO_MANIFEST_DIR").unwrap_or_default();
    let is_release = variable("PROFILE").is_some_and(|profile| profile == "release");
    let git = Git { root: Path::new(&root) };
    let has_git = is_release && git.root.join(".git").exists();
    if has_git {
        for name in ["HEAD", "logs/HEAD"] {
            let path = git.says(&["rev-parse", "--git-path", name]).map(|path| git.root.join(path));
            if let Some(path) = path.filter(|path| path.exists()) {
                writeln!(out, "cargo::rerun-if-changed={}", path.display())?;
            }
        }
    }
    let from_git = |arguments: &[&str]| has_git.then(|| git.says(arguments)).flatten();
    let commit =
        variable("SEKISHO_COMMIT").or_else(|| from_git(&["rev-parse", "HEAD"])).or_else(|| of_package(git.root));
    let commit: String = commit.unwrap_or_default().chars().take(12).collect();
    let epoch = || variable("SOURCE_DATE_EPOCH").and_then(|seconds| seconds.parse().ok()).map(day_of);
    let date = from_git(&["show", "--no-patch", "--format=%cs", "HEAD"]).or_else(epoch).unwrap_or_default();
    let target = variable("TARGET").unwrap_or_default();
    let source = if commit.is_empty() { "no commit".to_owned() } else { format!("commit {commit}") };
    let described: Vec<_> =
        [source, date.clone(), target.clone()].into_iter().filter(|part| !part.is_empty()).collect();
    for (name, value) in [("_COMMIT", commit), ("_DATE", date), ("_TARGET", target), ("", described.join(", "))] {
        writeln!(out, "cargo::rustc-env=SEKISHO_BUILD{name}={value}")?;
    }
    Ok(())
}

struct Git<'a> {
    root: &'a Path,
}

impl Git<'_> {
    /// One line, unless git is missing or fails.
    fn says(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("git").arg("-C").arg(self.root).args(arguments).output().ok()?;
        let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !line.is_empty()).then_some(line)
    }
}

/// The commit that `cargo package` notes in a crate.
fn of_package(root: &Path) -> Option<String> {
    let note = fs::read_to_string(root.join(".cargo_vcs_info.json")).ok()?;
    let (_, after) = note.split_once("\"sha1\"")?;
    after.split('"').nth(1).map(str::to_owned)
}

/// The day, by Howard Hinnant's `civil_from_days`.
fn day_of(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year_of_era + era * 400 + later)
}
