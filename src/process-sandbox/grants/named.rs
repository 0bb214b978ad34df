//! Files and folders that stand in an entry's arguments and variables: the operator named them. Of a file that does not exist yet, it is
//! the folder that it will be in.

use std::path::{Path, PathBuf};

use super::{Grants, Reason, Request, programs};
use crate::links;

/// A program in one of these files needs the files beside it.
const SCRIPTS: [&str; 17] =
    ["js", "mjs", "cjs", "ts", "mts", "tsx", "py", "pyz", "rb", "php", "pl", "sh", "jar", "java", "lua", "r", "wasm"];

/// A database in one of these files writes others beside it, and loses data if it cannot.
const DATABASES: [&str; 7] = ["db", "db3", "sqlite", "sqlite3", "sqlitedb", "duckdb", "kuzu"];

/// Certificates and keys.
const TRUST: [&str; 7] = ["pem", "crt", "cer", "key", "p12", "pfx", "pub"];

/// Folders, and files, with what other programs of the user execute or trust: a new command in a kubeconfig would run outside of the sandbox.
const OF_OTHERS: [&str; 17] = [
    ".aws",
    ".azure",
    ".bash_profile",
    ".bashrc",
    ".docker",
    ".env",
    ".git-credentials",
    ".gitconfig",
    ".gnupg",
    ".kube",
    ".netrc",
    ".npmrc",
    ".profile",
    ".pypirc",
    ".ssh",
    ".zprofile",
    ".zshrc",
];

pub(super) fn add(grants: &mut Grants, request: &Request<'_>) {
    for (text, reason) in texts(request) {
        add_text(grants, request, text, &reason);
    }
}

/// The texts that may name something.
fn texts<'a>(request: &'a Request<'_>) -> impl Iterator<Item = (&'a str, Reason)> {
    let arguments = request.args.iter().map(|argument| (*argument, Reason::Argument));
    // In `PATH`, the program is looked up.
    let variables = request.env.iter().filter(|(name, _)| *name != "PATH");
    let variables = variables.flat_map(|(name, value)| {
        let parts = value.split(':').filter(|part| part.starts_with('/')).chain([*value]);
        parts.map(|part| (part, Reason::Variable((*name).to_owned())))
    });
    arguments.chain(variables)
}

fn add_text(grants: &mut Grants, request: &Request<'_>, text: &str, reason: &Reason) {
    for candidate in candidates(text) {
        if let Some(path) = path_of(grants, request, candidate) {
            add_path(grants, request, &path, reason);
        }
    }
}

/// A text itself, the part behind `=` of an option, and the path of a URL.
fn candidates(text: &str) -> impl Iterator<Item = &str> {
    let value = text.split_once('=').map(|(_, value)| value);
    [Some(text), value].into_iter().flatten().flat_map(|text| {
        let schemes = ["file://", "sqlite://", "duckdb://"];
        let of_url = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
        // `sqlite:////srv/a.db` and `sqlite:///srv/a.db` are both written.
        let of_url = of_url.map(|path| path.split('?').next().unwrap_or(path));
        let shorter = of_url.filter(|path| path.starts_with("//")).map(|path| &path[1..]);
        [Some(text), of_url, shorter].into_iter().flatten()
    })
}

/// The path that a text names, whether it exists or not. A relative one is in the folder where the program starts: a word without a slash
/// or a dot names no file, although one may have that name.
fn named(request: &Request<'_>, text: &str) -> Option<PathBuf> {
    if text.is_empty() || text.contains('\0') || text.len() > 4_096 {
        return None;
    }
    if let Some(rest) = text.strip_prefix("~/") {
        return request.home.map(|home| home.join(rest));
    }
    if Path::new(text).is_absolute() {
        return Some(text.into());
    }
    if !text.contains(['/', '.']) || text.starts_with('-') {
        return None;
    }
    Some(base(request)?.join(text))
}

fn base(request: &Request<'_>) -> Option<PathBuf> {
    request.cwd.map(Path::to_owned).or_else(|| std::env::current_dir().ok())
}

/// The path that a text names, if it exists or may be made.
fn path_of(grants: &mut Grants, request: &Request<'_>, text: &str) -> Option<PathBuf> {
    let path = named(request, text)?;
    if text.starts_with("~/") {
        return path.exists().then_some(path);
    }
    if Path::new(text).is_absolute() {
        let may_be_made = || path.extension().is_some() && path.parent().is_some_and(Path::is_dir);
        return (path.exists() || may_be_made()).then_some(path);
    }
    let may_be_made = || (text.contains('/') || is_database(&path)) && path.extension().is_some();
    let found = match path.canonicalize() {
        // The link is examined.
        Ok(_) if links::lead_out(&path, &grants.written) => path,
        Ok(found) => found,
        Err(_) if may_be_made() => path.parent()?.canonicalize().ok()?.join(path.file_name()?),
        Err(_) => return None,
    };
    if grants.cwd.is_none() {
        grants.cwd = base(request);
    }
    Some(found)
}

/// Folders that the entry names, and the folders for its files that the program may make.
pub(super) fn written(request: &Request<'_>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for path in texts(request).flat_map(|(text, _)| candidates(text)).filter_map(|text| named(request, text)) {
        if path.extension().is_some() && !SCRIPTS.contains(&&*extension_of(&path)) {
            folders.extend(path.parent().map(Path::to_owned));
        }
        folders.push(path);
    }
    folders
}

fn add_path(grants: &mut Grants, request: &Request<'_>, path: &Path, reason: &Reason) {
    if !path.exists() {
        let folder = path.parent().unwrap_or(path);
        grants.try_add(request, folder, true, reason.clone());
        return;
    }
    if path.is_dir() {
        grants.try_add(request, path, true, reason.clone());
        return;
    }
    if SCRIPTS.contains(&&*extension_of(path)) || programs::is_executable(path) {
        if links::lead_out(path, &grants.written) && programs::is_of_programs(path) {
            // A virtual environment's interpreter.
            return;
        }
        // Its own file is read-only: a server may not change its program.
        grants.try_add(request, path, false, reason.clone());
        if !links::lead_out(path, &grants.written) {
            programs::add_script(grants, request, path);
        }
        return;
    }
    let folder = path.parent().filter(|folder| super::refusal(request, folder).is_none());
    match folder {
        Some(folder) if is_database(path) => {
            grants.try_add(request, folder, true, reason.clone());
        }
        _ => grants.try_add(request, path, !is_of_others(path), reason.clone()),
    }
}

fn is_of_others(path: &Path) -> bool {
    let mut parts = path.components().filter_map(|part| part.as_os_str().to_str());
    TRUST.contains(&&*extension_of(path)) || parts.any(|part| OF_OTHERS.contains(&part))
}

fn is_database(path: &Path) -> bool {
    DATABASES.contains(&&*extension_of(path))
}

fn extension_of(path: &Path) -> String {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase()
}
