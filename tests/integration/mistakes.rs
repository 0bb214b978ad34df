//! Mistakes that people make, as data: each message says what is wrong, where, and what to do next.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tempfile::TempDir;

use crate::cli::{sekisho, text};

const MISTAKES: &str = include_str!("mistakes.yaml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mistake {
    name: String,
    /// Files below the working directory, and their texts.
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    variables: BTreeMap<String, String>,
    /// The arguments of the command line.
    run: Vec<String>,
    exit: i32,
    /// Parts of the message.
    says: Vec<String>,
}

#[test]
fn messages_say_what_is_wrong_where_and_what_to_do_next() {
    let mistakes: Vec<Mistake> = serde_saphyr::from_str(MISTAKES).unwrap();
    let names: BTreeSet<_> = mistakes.iter().map(|mistake| &mistake.name).collect();
    assert!(names.len() == mistakes.len() && names.len() >= 60, "{} of {}", names.len(), mistakes.len());
    let wrong: Vec<_> = mistakes.iter().flat_map(complaints).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// What is wrong about the message.
fn complaints(mistake: &Mistake) -> Vec<String> {
    let Mistake { name, files, variables, run, exit, says } = mistake;
    let directory = TempDir::new().unwrap();
    for (file, content) in files {
        let file = directory.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, content).unwrap();
    }
    let ran = sekisho(&directory).args(run).envs(variables).output().unwrap();
    // Cells of tables may have several lines.
    let said = text(&ran).split_whitespace().collect::<Vec<_>>().join(" ");
    let mut wrong = Vec::new();
    if ran.status.code() != Some(*exit) {
        wrong.push(format!("{name}: it ended with {:?}: {said}", ran.status.code()));
    }
    wrong
        .extend(says.iter().filter(|part| !said.contains(*part)).map(|part| format!("{name}: no {part:?} in: {said}")));
    if said.contains("GET /") || said.contains("POST /") {
        wrong.push(format!("{name}: it names a route: {said}"));
    }
    wrong
}
