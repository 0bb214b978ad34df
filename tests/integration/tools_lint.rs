//! `sekisho tools lint`: findings, fixes that can be pasted, and the exit code.

use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{sekisho, text};

/// A GET that removes something, and a parameter whose values only its description lists.
fn document() -> Value {
    let responses = json!({"200": {"description": "ok"}});
    json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://pets.example/v1"}],
        "paths": {
            "/pets/latest": {"get": {
                "operationId": "deletePet", "summary": "Takes the latest pet out of the zoo.", "responses": responses,
            }},
            "/pets": {"get": {
                "operationId": "listPets", "summary": "Lists the pets of the zoo by their age.", "responses": responses,
                "parameters": [{
                    "name": "kind", "in": "query", "schema": {"type": "string"}, "description": "One of: cat, dog or bird.",
                }],
            }},
        },
    })
}

fn write(directory: &TempDir, more: &str) {
    let collection =
        "outbound: {openapi_allowed_domains: [pets.example]}\nopenapi: {collections: {zoo: {spec_file: pets.json}}}\n";
    std::fs::write(directory.path().join("sekisho.yaml"), format!("{collection}{more}")).unwrap();
}

fn lint(directory: &TempDir, arguments: &[&str]) -> Output {
    let command = [&["--config", "sekisho.yaml", "tools", "lint"], arguments].concat();
    sekisho(directory).args(command).output().unwrap()
}

/// The score of all tools, and the rules of the findings about one.
fn rules(directory: &TempDir, tool: &str) -> (u64, Vec<String>) {
    let output = lint(directory, &["zoo__", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tools = report["tools"].as_array().unwrap();
    let found = tools.iter().find(|linted| linted["name"] == tool).unwrap();
    let findings = found["findings"].as_array().unwrap().iter();
    let names = findings.map(|finding| finding["rule"].as_str().unwrap().to_owned()).collect();
    (report["score"].as_u64().unwrap(), names)
}

#[test]
fn the_fixes_of_the_linter_can_be_pasted_and_its_score_is_the_exit_code() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("pets.json"), document().to_string()).unwrap();
    write(&directory, "");
    let (before, found) = rules(&directory, "zoo__deletePet");
    assert_eq!(found, ["wrong_annotation"]);
    assert_eq!(rules(&directory, "zoo__listPets").1, ["undeclared_enum"]);
    assert_eq!(before, 75, "the mean of 60 and 90");
    for (arguments, code) in [
        (&["zoo__", "--minimum", "75"][..], 0),
        (&["zoo__", "--minimum", "76"], 1),
        (&["zoo__", "--minimum", "101"], 2),
        (&["no_such_tool"], 1),
    ] {
        let output = lint(&directory, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
    }

    let shown = lint(&directory, &["zoo__"]);
    let stdout = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(stdout.contains("# zoo__listPets: declare the values as `enum`"), "{stdout}");
    let at = stdout.find("\ntools:\n").unwrap_or_else(|| panic!("no overrides: {stdout}"));
    write(&directory, &stdout[at..]);
    let (after, found) = rules(&directory, "zoo__deletePet");
    assert_eq!((after, found), (95, Vec::new()), "{stdout}");
}

/// The tools of the program itself are an example to others.
#[test]
fn built_in_tools_have_a_high_score() {
    let directory = TempDir::new().unwrap();
    let output = sekisho(&directory).args(["tools", "lint", "--minimum", "90"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}
