//! Real programs, as data: each folder of `tests/sandbox/programs` has a program, the files it is sent, and
//! what must come of it.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::PythonApp;
use crate::checkout::checkout;

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn arguments(folder: &Path) -> Value {
    let files = entries(&folder.join("input")).into_iter().map(|path| {
        let content = BASE64_STANDARD.encode(std::fs::read(&path).unwrap());
        json!({"path": path.file_name().unwrap().to_str(), "content_base64": content})
    });
    json!({"code": std::fs::read_to_string(folder.join("program.py")).unwrap(), "files": files.collect::<Vec<_>>()})
}

#[tokio::test]
async fn real_programs_do_their_work() {
    let app = PythonApp::start().await;
    let folders = entries(&checkout().join("tests/sandbox/programs"));
    assert!(folders.len() >= 5);
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let expected: Value = serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
        let output = app.run_with(arguments(&folder)).await;
        assert_eq!(output["result"], expected["result"], "{name}: {output}");
        let files: Vec<_> = output["files"].as_array().unwrap().iter().map(|file| &file["path"]).collect();
        assert_eq!(json!(files), expected["files"], "{name}");
        assert_eq!(output["images"].as_array().unwrap().len(), expected["images"], "{name}");
    }
}
