//! Packages that were installed: their names, versions and programs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::command::{Installer, PackageCommand};
use super::tree::{self, Tree, TreeError};
use crate::links::resolve_within;
use crate::profile::{Packages, Profile};

/// The folder of the packages as the programs see it: the same on every machine, so that an installer writes the same into a tree.
pub(crate) const FOLDER: &str = "/sekisho-packages";

/// Maximum bytes of a file about a package.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Maximum characters of a version.
const MAX_VERSION: usize = 64;

/// A package that is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    /// Empty where the package states none.
    pub version: String,
    /// Of its folder, with all packages that it needs.
    pub digest: String,
}

/// A package as it is in its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub package: Package,
    tree: Tree,
}

/// The folder of a package that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    pub package: Package,
    /// In the folder.
    pub(super) program: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) installer: Installer,
}

impl Installed {
    /// The package as it is now: the files are read where the folder has changed since it was read `before`.
    /// Errors: when the folder cannot be read, or it is too large.
    pub fn read(&self, before: Option<&Reading>) -> Result<Reading, TreeError> {
        let tree = tree::read(&self.folder, before.map(|before| &before.tree))?;
        Ok(Reading { package: Package { digest: tree.digest.clone(), ..self.package.clone() }, tree })
    }

    /// Has a profile run the package's program, with the arguments of the command.
    pub fn run_by(&self, command: &PackageCommand, profile: &mut Profile) {
        let folder = PathBuf::from(FOLDER);
        if self.is_run_by_bun(command, profile) {
            let script = folder.join(self.script()).to_string_lossy().into_owned();
            profile.args = ["--bun".to_owned(), script].into_iter().chain(command.args.iter().cloned()).collect();
            profile.program.set_file_name("bun");
        } else {
            profile.args.clone_from(&command.args);
            profile.program = folder.join(&self.program);
        }
        let programs = self.program.parent().map(|programs| folder.join(programs)).unwrap_or_default();
        if let Some((_, path)) = profile.env.iter_mut().find(|(name, _)| name == "PATH") {
            *path = format!("{}:{path}", programs.display());
        }
        if self.installer.is_of_python() {
            // Python cannot write beside its modules.
            let compiled = profile.home.path.join(".cache/python-bytecode").display().to_string();
            profile.env.push(("PYTHONPYCACHEPREFIX".to_owned(), compiled));
        }
        profile.packages = Some(Packages { path: folder, kept: self.folder.clone(), write: false });
    }

    /// As bunx does: where it is told to, and where there is no node, which the first line of the program names.
    fn is_run_by_bun(&self, command: &PackageCommand, profile: &Profile) -> bool {
        let path = profile.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str());
        let has_node = || std::env::split_paths(path.unwrap_or_default()).any(|folder| folder.join("node").exists());
        self.installer == Installer::Bun && (command.by_installer || !has_node())
    }

    /// The file of the program, in the folder: links have no extension, which says how it is read.
    fn script(&self) -> PathBuf {
        let real = |path: &Path| path.canonicalize().ok();
        let file = real(&self.folder.join(&self.program)).zip(real(&self.folder));
        let file = file.and_then(|(file, folder)| file.strip_prefix(folder).ok().map(Path::to_owned));
        file.unwrap_or_else(|| self.program.clone())
    }

    /// Whether its program can be started: the interpreter of a virtual environment may have been removed.
    pub(super) fn is_whole(&self) -> bool {
        let program = self.folder.join(&self.program);
        let interpreter = self.installer.is_of_python().then(|| self.folder.join("bin/python"));
        program.exists() && interpreter.is_none_or(|interpreter| interpreter.exists())
    }
}

/// The name, version and program of the packages that a command installed into a folder.
/// Errors: why there is no program.
pub(super) fn find(command: &PackageCommand, folder: &Path) -> Result<(String, String, PathBuf), String> {
    let first = command.packages.first().map(String::as_str).unwrap_or_default();
    match command.installer.is_of_python() {
        true => find_python(command, first, folder),
        false => find_npm(command, first, folder),
    }
}

fn find_npm(command: &PackageCommand, package: &str, folder: &Path) -> Result<(String, String, PathBuf), String> {
    let named = npm_name(package).map(str::to_owned);
    // Of a repository, its name is known once it is installed.
    let name = named.or_else(|| only_dependency(folder)).ok_or_else(|| format!("{package} has no name"))?;
    let document = json_file(folder, &format!("node_modules/{name}/package.json"))
        .ok_or_else(|| format!("{name} was not installed"))?;
    let program = match &command.program {
        Some(program) => program.clone(),
        None => npm_program(&name, &document).ok_or_else(|| format!("{name} has no program of its own"))?,
    };
    let program = program_in(folder, "node_modules/.bin", &program)?;
    let version = document.get("version").and_then(Value::as_str).unwrap_or_default();
    Ok((name, version.chars().take(MAX_VERSION).collect(), program))
}

/// `@scope/name` of `@scope/name@version`; `None` of a repository.
fn npm_name(package: &str) -> Option<&str> {
    let scope = usize::from(package.starts_with('@'));
    let end = package.get(scope..)?.find('@').map_or(package.len(), |end| end + scope);
    let (name, version) = package.split_at(end);
    let slashes = name.matches('/').count();
    let is_name = slashes == scope && !name.contains(':') && !name.contains("..");
    (is_name && !version.contains('/') && !version.contains(':')).then_some(name)
}

fn only_dependency(folder: &Path) -> Option<String> {
    let document = json_file(folder, "package.json")?;
    let name = document.get("dependencies")?.as_object()?.keys().next()?.clone();
    (!name.contains("..")).then_some(name)
}

/// As `npx` chooses among a package's programs: the only one, or the one with the package's name.
fn npm_program(name: &str, document: &Value) -> Option<String> {
    let own = name.rsplit('/').next().unwrap_or(name);
    match document.get("bin")? {
        Value::String(_) => Some(own.to_owned()),
        Value::Object(programs) => {
            let (first, file) = programs.iter().next()?;
            let is_one = programs.values().all(|other| other == file);
            let named = || programs.contains_key(own).then(|| own.to_owned());
            if is_one { Some(first.clone()) } else { named() }
        }
        _ => None,
    }
}

fn find_python(command: &PackageCommand, package: &str, folder: &Path) -> Result<(String, String, PathBuf), String> {
    let end = package.find(|end: char| !(end.is_ascii_alphanumeric() || "-_.".contains(end)));
    let name = package.get(..end.unwrap_or(package.len())).unwrap_or(package);
    let is_repository = package.contains("://") && !package.contains(" @ ");
    // Of a repository it is not known; most have the name of their program.
    let name = if is_repository { command.program.as_deref().unwrap_or(name) } else { name };
    let program = program_in(folder, "bin", command.program.as_deref().unwrap_or(name))?;
    Ok((name.to_owned(), distribution_version(folder, name).unwrap_or_default(), program))
}

/// The version in the name of the folder `NAME-VERSION.dist-info`.
fn distribution_version(folder: &Path, name: &str) -> Option<String> {
    let normal = |name: &str| name.to_ascii_lowercase().replace(['-', '.'], "_");
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let libraries = entries(&folder.join("lib")).map(|library| library.path().join("site-packages"));
    libraries.flat_map(|library| entries(&library)).find_map(|entry| {
        let entry = entry.file_name();
        let (own, version) = entry.to_str()?.strip_suffix(".dist-info")?.split_once('-')?;
        (normal(own) == normal(name)).then(|| version.chars().take(MAX_VERSION).collect())
    })
}

/// The path of a program in the folder.
fn program_in(folder: &Path, programs: &str, program: &str) -> Result<PathBuf, String> {
    let path = Path::new(programs).join(program);
    let is_there = !program.contains('/') && folder.join(&path).exists();
    if is_there { Ok(path) } else { Err(format!("its packages have no program {program}")) }
}

/// A file that the packages have themselves written: no link out of the folder is followed.
fn json_file(folder: &Path, name: &str) -> Option<Value> {
    let folder = folder.canonicalize().ok()?;
    let path = resolve_within(&folder.join(name), std::slice::from_ref(&folder)).ok()??;
    if !path.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn command(text: &str) -> PackageCommand {
        let words: Vec<_> = text.split(' ').map(str::to_owned).collect();
        PackageCommand::parse(&words[0], &words[1..]).unwrap().unwrap()
    }

    fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    #[test]
    fn names_of_npm_packages_are_without_their_version() {
        for (package, name) in [
            ("a", Some("a")),
            ("a@1.2", Some("a")),
            ("@a/b", Some("@a/b")),
            ("@a/b@latest", Some("@a/b")),
            ("github:a/b", None),
            ("a/b", None),
            ("https://a.test/b.tgz", None),
            ("a@npm:b", None),
            ("../a", None),
        ] {
            assert_eq!(npm_name(package), name, "{package}");
        }
    }

    #[test]
    fn the_program_of_an_npm_package_is_the_one_that_npx_starts() {
        for (bin, expected) in [
            (r#""a.js""#, Some("b")),
            (r#"{"tool": "a.js"}"#, Some("tool")),
            (r#"{"tool": "a.js", "tool-too": "a.js"}"#, Some("tool")),
            (r#"{"tool": "a.js", "b": "b.js"}"#, Some("b")),
            (r#"{"tool": "a.js", "other": "b.js"}"#, None),
            ("{}", None),
            ("null", None),
        ] {
            let document = serde_json::from_str(&format!(r#"{{"bin": {bin}}}"#)).unwrap();
            assert_eq!(npm_program("@a/b", &document).as_deref(), expected, "{bin}");
        }
    }

    #[test]
    fn a_package_is_found_with_its_version_and_program() {
        let npm = files(&[
            ("package.json", r#"{"dependencies": {"@a/b": "1"}}"#),
            ("node_modules/@a/b/package.json", r#"{"version": "1.2.3", "bin": "a.js"}"#),
            ("node_modules/.bin/b", ""),
            ("node_modules/.bin/tool", ""),
        ]);
        let found = |text: &str, program: &str| {
            let expected = ("@a/b".to_owned(), "1.2.3".to_owned(), format!("node_modules/.bin/{program}").into());
            assert_eq!(find(&command(text), npm.path()), Ok(expected), "{text}");
        };
        found("npx @a/b@1", "b");
        found("npx -p @a/b tool", "tool");
        found("npx github:a/b", "b");
        found("pnpm dlx @a/b@1", "b");
        found("bunx -p @a/b tool", "tool");
        assert_eq!(find(&command("npx -p @a/b x"), npm.path()), Err("its packages have no program x".to_owned()));
        assert_eq!(find(&command("npx c"), npm.path()), Err("c was not installed".to_owned()));
        let uv = files(&[
            ("bin/my-tool", ""),
            ("bin/x", ""),
            ("lib/python3.12/site-packages/my_tool-2.0.dist-info/RECORD", ""),
        ]);
        let found = |text: &str, program: &str| {
            let expected = ("my-tool".to_owned(), "2.0".to_owned(), format!("bin/{program}").into());
            assert_eq!(find(&command(text), uv.path()), Ok(expected), "{text}");
        };
        found("uvx my-tool@2.0", "my-tool");
        found("uvx --from my-tool[cli]>=1 x", "x");
        found("uvx --from git+https://a.test/b my-tool", "my-tool");
        found("pipx run my-tool==2.0", "my-tool");
        found("pipx run --spec my-tool==2.0 x", "x");
        assert!(find(&command("uvx other"), uv.path()).is_err());
    }

    #[test]
    fn bun_runs_programs_where_it_is_told_to_and_where_there_is_no_node() {
        let packages = files(&[
            ("package.json", r#"{"dependencies": {"a": "1"}}"#),
            ("node_modules/a/package.json", r#"{"version": "1.0.0", "bin": "index.js"}"#),
            ("node_modules/a/index.js", ""),
            ("node_modules/.bin/other", ""),
            ("programs/node", ""),
        ]);
        symlink("../a/index.js", packages.path().join("node_modules/.bin/a")).unwrap();
        let with_node = packages.path().join("programs").display().to_string();
        for (text, path, program, args) in [
            ("bunx a x", &*with_node, "/sekisho-packages/node_modules/.bin/a", "x"),
            ("bunx --bun a x", &*with_node, "/opt/bun", "--bun /sekisho-packages/node_modules/a/index.js x"),
            ("bun x a", "/nothing", "/opt/bun", "--bun /sekisho-packages/node_modules/a/index.js"),
            ("npx a", "/nothing", "/sekisho-packages/node_modules/.bin/a", ""),
        ] {
            let command = command(text);
            let (name, version, found) = find(&command, packages.path()).unwrap();
            let package = Package { name, version, digest: String::new() };
            let folder = packages.path().to_owned();
            let installed = Installed { package, program: found, folder, installer: command.installer };
            let mut profile = crate::profile::tests::of_program("/opt/bunx");
            profile.env.push(("PATH".to_owned(), path.to_owned()));
            installed.run_by(&command, &mut profile);
            assert_eq!((profile.program.to_str().unwrap(), &*profile.args.join(" ")), (program, args), "{text}");
        }
    }

    #[test]
    fn a_link_out_of_the_packages_is_not_read() {
        let outside = files(&[("secret.json", r#"{"version": "secret", "bin": "a"}"#)]);
        let npm = files(&[("node_modules/.bin/a", ""), ("node_modules/a/index.js", "")]);
        symlink(outside.path().join("secret.json"), npm.path().join("node_modules/a/package.json")).unwrap();
        assert_eq!(find(&command("npx a"), npm.path()), Err("a was not installed".to_owned()));
    }
}
