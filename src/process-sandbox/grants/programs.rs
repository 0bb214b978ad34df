//! The files that a program is made of: its own, its interpreter's, and the folders of `PATH`.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Grants, Reason, Request};
use crate::links;

/// Names of folders of programs; the libraries are beside them.
const PROGRAM_FOLDERS: [&str; 5] = ["bin", "sbin", "shims", ".bin", "Scripts"];

/// In the home: the folders of installers of programs, whole.
const INSTALLERS: [&str; 21] = [
    ".asdf",
    ".bun/bin",
    ".bun/install",
    ".cargo/bin",
    ".deno/bin",
    ".fnm",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".rustup/toolchains",
    ".sdkman",
    ".volta",
];

/// A folder with one of these is the root of a project, whose files a script in it needs.
const PROJECT_MARKS: [&str; 9] = [
    "package.json",
    "node_modules",
    "pyproject.toml",
    "setup.py",
    "requirements.txt",
    "pyvenv.cfg",
    "Gemfile",
    "composer.json",
    ".git",
];

/// The most links and interpreters from a program to its file.
const MAX_STEPS: usize = 16;

pub(super) fn add(grants: &mut Grants, request: &Request<'_>) {
    let folders: Vec<_> = request.path.split(':').map(Path::new).filter(|folder| folder.is_absolute()).collect();
    grants.program = find(request, &folders);
    let may_be = |program: &PathBuf| !links::lead_out(program, &grants.written) || is_of_programs(program);
    if let Some(program) = grants.program.clone().filter(may_be) {
        for file in files_of(&program) {
            add_tree(grants, request, file.parent().unwrap_or(&file), Reason::Program);
            grants.add_program(request, &file, Reason::Program);
        }
    }
    for folder in folders {
        add_tree(grants, request, folder, Reason::SearchPath);
        if let Ok(real) = folder.canonicalize()
            && !links::lead_out(folder, &grants.written)
        {
            add_tree(grants, request, &real, Reason::SearchPath);
        }
    }
}

/// A script needs its project, or the files beside it.
pub(super) fn add_script(grants: &mut Grants, request: &Request<'_>, script: &Path) {
    for file in files_of(script) {
        let Some(folder) = file.parent() else { continue };
        let is_root = |folder: &&Path| PROJECT_MARKS.iter().any(|mark| folder.join(mark).exists());
        let may_be = |folder: &&Path| super::refusal(request, folder).is_none();
        let root = folder.ancestors().take_while(may_be).find(is_root).unwrap_or(folder);
        grants.add_program(request, root, Reason::Program);
    }
}

/// The program's file: as a shell finds it.
fn find(request: &Request<'_>, folders: &[&Path]) -> Option<PathBuf> {
    if request.program.contains('/') {
        let base = request.cwd.map(Path::to_owned).or_else(|| std::env::current_dir().ok())?;
        return Some(base.join(request.program)).filter(|path| path.exists());
    }
    folders.iter().map(|folder| folder.join(request.program)).find(|path| path.is_file() && is_executable(path))
}

pub(super) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn is_in_program_folder(path: &Path) -> bool {
    let name = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    name.is_some_and(|name| PROGRAM_FOLDERS.contains(&name))
}

/// Whether it is, or a link leads to, a program in a folder of programs.
pub(super) fn is_of_programs(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| is_executable(&real) && is_in_program_folder(&real))
}

/// The file, those that links lead to, and the interpreter of a script with its own.
fn files_of(program: &Path) -> Vec<PathBuf> {
    let mut files = vec![program.to_owned()];
    let mut next = 0;
    while let Some(file) = files.get(next).cloned().filter(|_| next < MAX_STEPS) {
        next += 1;
        let link = fs::read_link(&file).ok().map(|target| file.parent().unwrap_or(&file).join(target));
        let further = match link {
            Some(target) => Some(target),
            None => interpreter(&file).or_else(|| file.canonicalize().ok()),
        };
        files.extend(further.filter(|further| !files.contains(further)));
    }
    files
}

/// The program that a script names in its first line.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut begin = [0; 512];
    let length = File::open(script).ok()?.read(&mut begin).ok()?;
    let line = begin.get(..length)?.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = std::str::from_utf8(line).ok()?.split_whitespace().next()?;
    // The program may have written the line: it names no folder but one of programs.
    Some(PathBuf::from(name)).filter(|path| path.is_absolute() && is_in_program_folder(path) && is_executable(path))
}

/// Adds the folder of programs with their libraries: the folder above, or an installer's in the home.
fn add_tree(grants: &mut Grants, request: &Request<'_>, folder: &Path, reason: Reason) {
    let Some(of_home) = request.home.and_then(|home| folder.strip_prefix(home).ok()) else {
        add_prefix(grants, request, folder, reason);
        return;
    };
    let installer = INSTALLERS.iter().find(|installer| of_home.starts_with(installer));
    match (request.home, installer) {
        (Some(home), Some(installer)) => grants.add_program(request, &home.join(installer), reason),
        // The libraries of `~/.local/bin` and its like are in folders with everything else.
        _ if of_home.components().count() <= 2 && is_hidden(of_home) => grants.add_program(request, folder, reason),
        _ => add_prefix(grants, request, folder, reason),
    }
}

fn is_hidden(path: &Path) -> bool {
    const SHARED: [&str; 3] = [".local", ".config", ".cache"];
    SHARED.iter().any(|shared| path.starts_with(shared))
}

fn add_prefix(grants: &mut Grants, request: &Request<'_>, folder: &Path, reason: Reason) {
    let is_program_folder =
        folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| PROGRAM_FOLDERS.contains(&name));
    let above = folder.parent().filter(|above| is_program_folder && super::refusal(request, above).is_none());
    // `/opt/bin` does not grant all of `/opt`.
    let above = above.filter(|above| above.components().count() > 2);
    grants.add_program(request, above.unwrap_or(folder), reason);
}
