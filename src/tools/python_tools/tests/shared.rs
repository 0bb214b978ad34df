//! Modules that files share.

use super::*;

#[tokio::test]
async fn a_file_has_the_modules_that_it_imports_and_is_another_version_with_others() {
    let of = |found: Vec<&str>| {
        let mut answer: Value = serde_json::from_str(&found_now()).unwrap();
        answer["shared"] = json!(found);
        exited(&answer.to_string())
    };
    let folder = Folder::new(vec![of(vec!["_shared.py"]), exited(TRIED)]);
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("_shared.py", "x = 1");
    write("_other.py", "y = 1");
    let first = folder.read(&PythonTools::default()).await;
    assert!(first.is_of(&FolderContent::of(&folder.config).await.unwrap()));
    call(&first.tools().tools[0], json!({})).await.unwrap_err();
    let shared = |at: usize| match folder.stand_in.jobs.lock()[at].module.clone().unwrap() {
        ModuleTask::Read { shared, .. } | ModuleTask::Try { shared, .. } => shared,
        ModuleTask::Call(call) => call.shared,
    };
    assert_eq!(shared(0), r#"{"_other.py":"y = 1","_shared.py":"x = 1"}"#, "it is read with all of them");
    assert_eq!([shared(1), shared(2)], [r#"{"_shared.py":"x = 1"}"#; 2], "and has those that it imports");

    write("_shared.py", "x = 2");
    assert!(!first.is_of(&FolderContent::of(&folder.config).await.unwrap()));
    folder.stand_in.answers.lock().extend([of(vec!["_shared.py"]), exited(TRIED)]);
    let second = folder.read(&first).await;
    assert!(folder.jobs() == 5 && !second.is_as(&first));
    let version = |tools: &PythonTools| tools.tools().tools[0].metadata.version.clone();
    assert_ne!(version(&first), version(&second));
    write("_other.py", "y = 2");
    folder.stand_in.answers.lock().extend([of(vec!["_shared.py"]), exited(TRIED)]);
    assert_eq!(version(&folder.read(&second).await), version(&second), "the version is that of its own modules");
}

#[tokio::test]
async fn a_module_that_cannot_be_read_is_named_and_leaves_the_files() {
    let folder = Folder::new(Vec::new());
    fs::write(folder.path().join("_latin.py"), b"x = '\xe9'").unwrap();
    let tools = folder.read(&PythonTools::default()).await;
    assert!(tools.problems()["python_shared"].contains("_latin.py:1: it is not UTF-8"), "{:?}", tools.problems());
    assert_eq!(tools.tools().tools.len(), 1);
    let verdicts: BTreeMap<_, _> = tools.verdicts().collect();
    assert!(verdicts["python_shared"].is_err() && verdicts["python:weather"].is_ok());
    assert_eq!(tools.folder_problems().len(), 1);
}

fn found_now() -> String {
    found(&json!([function("now", &json!({}))]), &json!([]))
}
