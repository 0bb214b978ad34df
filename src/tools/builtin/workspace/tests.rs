use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::file_tool::{FileRequest, Job};
use super::*;
use crate::builtin::{file_list, file_read, file_write};
use sekisho_calls::tool::ToolDefinition;
use sekisho_core::call::ToolOutput;
use sekisho_core::error::ErrorCode;

pub(super) const OURS: &str = "a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1";
const THEIRS: &str = "b4e2b4e2b4e2b4e2b4e2b4e2b4e2b4e2b4e2b4e2b4e2b4e2b4e2b4e2b4e2b4e2";

/// Workspaces in a folder that goes away with the test.
struct Place {
    directory: TempDir,
    workspaces: Workspaces,
}

impl Place {
    fn new(limits: &WorkspaceConfig) -> Self {
        let directory = TempDir::new().unwrap();
        let workspaces = Workspaces::new(directory.path().join("workspaces"), limits);
        Self { directory, workspaces }
    }

    fn small() -> Self {
        Self::new(&WorkspaceConfig { quota_bytes: 1_000, max_files: 10, max_file_bytes: 600, directory: None })
    }

    /// The workspace as others on the machine see it.
    fn path(&self) -> PathBuf {
        self.directory.path().join("workspaces").join(OURS)
    }

    async fn write(&self, path: &str, content: &str) -> Result<ToolOutput, CallError> {
        self.call("file_write", OURS, json!({"path": path, "content": content})).await
    }

    async fn read(&self, path: &str) -> Result<ToolOutput, CallError> {
        self.call("file_read", OURS, json!({"path": path})).await
    }

    async fn list(&self, arguments: Value) -> Vec<String> {
        let output = self.call("file_list", OURS, arguments).await.unwrap();
        let entries = output.value["entries"].as_array().unwrap().clone();
        entries
            .iter()
            .map(|entry| format!("{} {}", entry["path"].as_str().unwrap(), entry["kind"].as_str().unwrap()))
            .collect()
    }

    async fn call(&self, tool: &str, workspace: &str, arguments: Value) -> Result<ToolOutput, CallError> {
        let (reach, job, definition): (_, Job, _) = match tool {
            "file_read" => (Reach::Read, file_read::read, file_read::definition(&self.workspaces)),
            "file_write" => (Reach::Write, file_write::write, file_write::definition(&self.workspaces)),
            _ => (Reach::Read, file_list::list, file_list::definition(&self.workspaces)),
        };
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let tool = FileTool { workspaces: self.workspaces.clone(), reach, job };
        let request = FileRequest { arguments, upload: None, max_output_bytes: 4_096 };
        let output = tool.run_in(workspace, request).await?;
        assert_fits(&definition, &output.value);
        Ok(output)
    }

    fn usage(&self) -> Option<Usage> {
        *self.workspaces.0.in_use.entry(OURS).unwrap().lock()
    }
}

fn assert_fits(definition: &ToolDefinition, output: &Value) {
    let validator = jsonschema::validator_for(definition.output_schema.as_ref().unwrap()).unwrap();
    assert!(validator.is_valid(output), "{output}");
}

fn message(outcome: Result<ToolOutput, CallError>) -> String {
    let error = outcome.expect_err("should be refused");
    assert_eq!(error.code(), ErrorCode::ToolError, "{error} ({:?})", error.cause());
    error.message().to_owned()
}

#[tokio::test]
async fn what_is_written_is_read_and_listed() {
    let place = Place::small();
    let written = place.write("notes/today.md", "関所").await.unwrap();
    assert_eq!(written.value, json!({"path": "notes/today.md", "bytes_written": 6, "size": 6}));
    assert_eq!(
        place.read("notes/today.md").await.unwrap().value,
        json!({"path": "notes/today.md", "content": "関所", "size": 6, "truncated": false, "encoding": "utf8"})
    );
    assert_eq!(place.list(json!({})).await, ["notes folder"]);
    assert_eq!(place.list(json!({"recursive": true})).await, ["notes folder", "notes/today.md file"]);
    assert_eq!(place.list(json!({"path": "notes"})).await, ["notes/today.md file"]);
}

#[tokio::test]
async fn files_and_folders_are_closed_to_other_users() {
    let place = Place::small();
    place.write("notes/today.md", "1").await.unwrap();
    place.write("notes/today.md", "2").await.unwrap();
    for (path, mode) in
        [("", 0o700), (OURS, 0o700), (&*format!("{OURS}/notes"), 0o700), (&*format!("{OURS}/notes/today.md"), 0o600)]
    {
        let found = fs::metadata(place.directory.path().join("workspaces").join(path)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{path}: {found:o}");
    }
}

#[tokio::test]
async fn writing_replaces_and_appending_adds() {
    let place = Place::small();
    place.write("a", "first").await.unwrap();
    place.write("a", "second").await.unwrap();
    let append = json!({"path": "a", "content": "IHRoaXJk", "encoding": "base64", "append": true});
    assert_eq!(place.call("file_write", OURS, append).await.unwrap().value["size"], 12);
    assert_eq!(place.read("a").await.unwrap().value["content"], "second third");
    assert_eq!(place.usage(), Some(Usage { bytes: 12, entries: 1 }));
}

#[tokio::test]
async fn long_files_are_read_in_parts_that_end_between_characters() {
    let place = Place::small();
    place.write("a", "aéz").await.unwrap();
    let part = |offset: u64, length: u64| {
        place.call("file_read", OURS, json!({"path": "a", "offset": offset, "length": length}))
    };
    let first = part(0, 2).await.unwrap();
    assert_eq!((&first.value["content"], &first.value["next_offset"]), (&json!("a"), &json!(1)));
    assert!(first.text.unwrap().contains("continue with offset 1"));
    let rest = part(1, 100).await.unwrap();
    assert_eq!((&rest.value["content"], &rest.value["truncated"]), (&json!("éz"), &json!(false)));
    for beyond in [4, 99, u64::MAX] {
        let nothing = part(beyond, 1).await.unwrap();
        assert_eq!((&nothing.value["content"], &nothing.value["truncated"]), (&json!(""), &json!(false)));
    }
    assert!(message(part(2, 2).await).contains("byte 2 is inside a character"));
    assert!(message(part(1, 1).await).contains("is not UTF-8"));
}

#[tokio::test]
async fn bytes_that_are_no_text_come_as_base64_when_asked() {
    let place = Place::small();
    let bytes = json!({"path": "a.bin", "content": "/wD+", "encoding": "base64"});
    place.call("file_write", OURS, bytes).await.unwrap();
    assert!(message(place.read("a.bin").await).contains("read it with encoding \"base64\""));
    let read = place.call("file_read", OURS, json!({"path": "a.bin", "encoding": "base64"})).await.unwrap();
    assert_eq!(read.value["content"], "/wD+");
    let broken = json!({"path": "b", "content": "%%", "encoding": "base64"});
    assert!(message(place.call("file_write", OURS, broken).await).contains("not base64"));
}

/// Fault 11: a workspace opened by somebody else. Names are hashes over tenant, caller and session.
#[tokio::test]
async fn another_workspace_sees_nothing() {
    let place = Place::small();
    place.write("secret.txt", "ours").await.unwrap();
    let read = place.call("file_read", THEIRS, json!({"path": "secret.txt"})).await;
    assert!(message(read).contains("secret.txt does not exist"));
    let listed = place.call("file_list", THEIRS, json!({"recursive": true})).await.unwrap();
    assert_eq!(listed.value["entries"], json!([]));
    for path in ["../", "..", "../a3f1", &format!("../{OURS}/secret.txt"), &format!("/{OURS}/secret.txt")] {
        message(place.call("file_read", THEIRS, json!({"path": path})).await);
        message(place.call("file_list", THEIRS, json!({"path": path})).await);
    }
    assert!(!place.directory.path().join("workspaces").join(THEIRS).exists(), "reading makes no folder");
}

#[tokio::test]
async fn links_pipes_and_files_with_two_names_are_not_opened() {
    let place = Place::small();
    place.write("inside/real.txt", "real").await.unwrap();
    let outside = place.directory.path().join("outside.txt");
    fs::write(&outside, "outside").unwrap();
    let root = place.path();
    symlink(&outside, root.join("link")).unwrap();
    symlink(place.directory.path(), root.join("folder_link")).unwrap();
    symlink("inside/real.txt", root.join("inner_link")).unwrap();
    symlink("inside", root.join("inner_folder_link")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    fs::hard_link(&outside, root.join("second_name")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
    for path in
        ["link", "folder_link/outside.txt", "inner_link", "inner_folder_link/real.txt", "loop", "second_name", "pipe"]
    {
        assert!(message(place.read(path).await).contains("only regular files"), "{path}");
        assert!(message(place.write(path, "mine").await).contains("only regular files"), "{path}");
    }
    message(place.call("file_list", OURS, json!({"path": "folder_link"})).await);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "outside");
    assert_eq!(fs::read_to_string(root.join("inside/real.txt")).unwrap(), "real");
    let listed = place.list(json!({"recursive": true})).await;
    assert!(
        listed.contains(&"folder_link other".to_owned()) && listed.contains(&"pipe other".to_owned()),
        "{listed:?}"
    );
    assert!(!listed.iter().any(|entry| entry.starts_with("folder_link/")), "links are not walked through");
}

#[tokio::test]
async fn a_workspace_folder_that_is_a_link_is_not_entered() {
    let place = Place::small();
    fs::create_dir_all(place.directory.path().join("workspaces")).unwrap();
    symlink("/tmp", place.path()).unwrap();
    for outcome in [place.write("a", "x").await, place.read("a").await] {
        assert_eq!(outcome.unwrap_err().code(), ErrorCode::Internal);
    }
}

#[tokio::test]
async fn files_and_folders_are_distinguished() {
    let place = Place::small();
    place.write("folder/file", "x").await.unwrap();
    assert!(message(place.read("folder").await).contains("is a folder"));
    assert!(message(place.write("folder", "x").await).contains("is a folder"));
    assert!(message(place.write("folder/file/below", "x").await).contains("is a file, not a folder"));
    assert!(message(place.read("missing").await).contains("missing does not exist"));
    assert!(message(place.read("missing/below").await).contains("missing/below does not exist"));
    let list = place.call("file_list", OURS, json!({"path": "folder/file"})).await;
    assert!(message(list).contains("not a folder"));
}

#[tokio::test]
async fn limits_hold_and_refused_writes_change_nothing() {
    let place = Place::small();
    assert!(message(place.write("big", &"x".repeat(601)).await).contains("600 are allowed in one file"));
    place.write("one", &"x".repeat(600)).await.unwrap();
    place.write("two", &"x".repeat(400)).await.unwrap();
    assert!(message(place.write("three", "x").await).contains("1000 are allowed"));
    let append = json!({"path": "two", "content": "x", "append": true});
    assert!(message(place.call("file_write", OURS, append).await).contains("1000 are allowed"));
    assert_eq!(place.list(json!({})).await, ["one file", "two file"]);
    place.write("one", "").await.unwrap();
    place.write("three", "x").await.unwrap();
    assert_eq!(place.usage(), Some(Usage { bytes: 401, entries: 3 }));
    assert!(message(place.write("a/b/c/d/e/f/g/h", "x").await).contains("10 are allowed"));
    assert!(!place.path().join("a").exists());
    place.write("a/b/c/d/e/f/g", "x").await.unwrap();
    assert!(message(place.write("more", "").await).contains("files and folders"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_writers_never_pass_the_quota() {
    let place = Place::new(&WorkspaceConfig { quota_bytes: 1_000, max_files: 8, max_file_bytes: 600, directory: None });
    let writes = (0..40).map(|at| {
        let place = &place;
        async move { place.write(&format!("file{}", at % 20), &"x".repeat(130)).await.is_ok() }
    });
    let succeeded = futures_util::future::join_all(writes).await.into_iter().filter(|done| *done).count();
    let sizes: Vec<u64> =
        fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
    let held = Usage { bytes: sizes.iter().sum(), entries: sizes.len() as u64 };
    assert!(held.bytes <= 1_000 && held.entries <= 8, "{held:?}");
    assert!(succeeded >= 7, "{succeeded}");
    assert_eq!(place.usage(), Some(held), "what is counted is what there is");
}

#[tokio::test]
async fn a_workspace_from_an_earlier_life_is_counted_and_cleaned() {
    let place = Place::small();
    let root = place.path();
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::write(root.join("deep/er/old"), "x".repeat(500)).unwrap();
    fs::write(root.join(".sekisho-interrupted"), "x".repeat(400)).unwrap();
    assert_eq!(place.list(json!({})).await, ["deep folder"]);
    place.write("new", &"x".repeat(500)).await.unwrap();
    assert_eq!(place.usage(), Some(Usage { bytes: 1_000, entries: 4 }));
    assert!(!root.join(".sekisho-interrupted").exists());
}

#[tokio::test]
async fn removing_takes_everything_and_starts_the_count_anew() {
    let place = Place::small();
    place.write("a/b", &"x".repeat(600)).await.unwrap();
    place.workspaces.remove(OURS).await.unwrap();
    assert!(!place.path().exists());
    assert_eq!(place.workspaces.0.in_use.len(), 0);
    place.workspaces.remove(OURS).await.unwrap();
    place.write("c", &"x".repeat(600)).await.unwrap();
    assert_eq!(place.usage(), Some(Usage { bytes: 600, entries: 1 }));
}

#[tokio::test]
async fn removing_goes_by_name_and_never_elsewhere() {
    let place = Place::small();
    place.write("a", "x").await.unwrap();
    for name in [
        "",
        ".",
        "..",
        "../..",
        "/",
        "/tmp",
        &OURS.to_uppercase(),
        &OURS[1..],
        &format!("{OURS}/a"),
        &format!("../{}", &OURS[3..]),
    ] {
        assert_eq!(place.workspaces.remove(name).await.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
        let run = place.call("file_list", name, json!({})).await;
        assert_eq!(run.unwrap_err().code(), ErrorCode::Internal, "{name:?}");
    }
    assert!(place.path().join("a").exists());
}

#[tokio::test]
async fn only_old_workspaces_in_which_no_call_works_are_deleted() {
    let place = Place::small();
    assert_eq!(
        place.workspaces.remove_older_than(Duration::ZERO, HashSet::new()).await.unwrap(),
        0,
        "nothing there yet"
    );
    place.write("a", "x").await.unwrap();
    let base = place.directory.path().join("workspaces");
    fs::create_dir(base.join(THEIRS)).unwrap();
    fs::create_dir(base.join("something else")).unwrap();
    symlink(place.directory.path(), base.join("c".repeat(64))).unwrap();
    assert_eq!(
        place.workspaces.remove_older_than(Duration::from_secs(3600), HashSet::new()).await.unwrap(),
        0,
        "too young"
    );
    let a_call_works = place.workspaces.0.in_use.entry(OURS).unwrap();
    place.workspaces.remove_older_than(Duration::ZERO, HashSet::new()).await.unwrap();
    assert!(!base.join(THEIRS).exists() && place.path().exists());
    drop(a_call_works);
    let kept = HashSet::from([OURS.to_owned()]);
    place.workspaces.remove_older_than(Duration::ZERO, kept).await.unwrap();
    assert!(place.path().exists(), "of a conversation");
    place.workspaces.remove_older_than(Duration::ZERO, HashSet::new()).await.unwrap();
    assert!(!place.path().exists() && place.workspaces.0.in_use.len() == 0, "used before");
    assert!(base.join("something else").exists() && Path::new(place.directory.path()).exists());
}

#[tokio::test]
async fn a_call_that_begins_while_its_workspace_is_deleted_gets_a_new_one() {
    let place = Place::small();
    place.write("old", "x").await.unwrap();
    let workspaces = place.workspaces.clone();
    let (begins, has_begun) = std::sync::mpsc::channel();
    let writing = std::thread::spawn(move || {
        has_begun.recv().unwrap();
        let workspace = workspaces.0.open(OURS, Reach::Write).unwrap();
        workspace.write(&WorkspacePath::parse("new").unwrap(), Content::Bytes(b"x"), false).unwrap();
    });
    let is_used = move || {
        begins.send(()).unwrap();
        // It waits for the entry of the folder, if it has come so far.
        std::thread::yield_now();
        false
    };
    place.workspaces.remove_idle(OURS, is_used).await.unwrap();
    writing.join().unwrap();
    assert_eq!(place.list(json!({})).await, ["new file"]);
    let base = place.directory.path().join("workspaces");
    assert_eq!(fs::read_dir(&base).unwrap().count(), 1, "what was deleted is gone under its other name, too");
}

#[tokio::test]
async fn a_workspace_that_is_used_again_is_not_deleted() {
    let place = Place::small();
    place.write("a", "x").await.unwrap();
    place.workspaces.remove_idle(OURS, || true).await.unwrap();
    assert_eq!(place.list(json!({})).await, ["a file"], "its session is open again");
    let a_call_works = place.workspaces.0.in_use.entry(OURS).unwrap();
    place.workspaces.remove_idle(OURS, || false).await.unwrap();
    assert!(place.path().exists());
    drop(a_call_works);
    // Somebody writes to it after it was found to be old.
    let inner = &place.workspaces.0;
    let writes = |_: &Dir| inner.base().map(|base| base.symlink_metadata(OURS).is_ok());
    assert!(!inner.remove_unless(OURS, writes).unwrap() && place.path().exists());
    place.workspaces.remove_idle(OURS, || false).await.unwrap();
    assert!(!place.path().exists());
    place.workspaces.remove_idle(OURS, || false).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_deleted_does_not_keep_old_workspaces() {
    let place = Place::small();
    place.write("a", "x").await.unwrap();
    let base = place.directory.path().join("workspaces");
    // Neither is a workspace. The second is from a process that ended while it deleted one.
    fs::write(base.join("0".repeat(64)), "x").unwrap();
    fs::create_dir_all(base.join("removed-1/a/b")).unwrap();
    for letter in ['b', 'c', 'd', 'e'] {
        fs::create_dir(base.join(letter.to_string().repeat(64))).unwrap();
    }
    assert_eq!(place.workspaces.remove_older_than(Duration::ZERO, HashSet::new()).await.unwrap(), 5);
    assert_eq!(fs::read_dir(&base).unwrap().count(), 1);
}

#[tokio::test]
async fn looking_for_files_where_there_are_none_leaves_nothing() {
    let place = Place::small();
    for number in 0..10 {
        let name = format!("{number:064}");
        assert!(place.workspaces.files(&name, 10).await.unwrap().is_empty());
    }
    assert_eq!(place.workspaces.0.in_use.len(), 0);
    place.write("a", "x").await.unwrap();
    place.list(json!({})).await;
    assert_eq!(place.workspaces.0.in_use.len(), 1, "what is counted of a folder stays known");
}

#[tokio::test]
async fn the_gateway_writes_and_lists_files_within_the_limits_of_the_workspace() {
    let place = Place::small();
    assert!(place.workspaces.files(OURS, 10).await.unwrap().is_empty());
    let file = |path: &str, content: &str| (path.to_owned(), content.to_owned());
    let files = vec![file("skills/pdf/read.py", "print(1)"), file("a.txt", "old")];
    place.workspaces.write_files(OURS, files).await.unwrap();
    place.workspaces.write_files(OURS, vec![file("a.txt", "new")]).await.unwrap();
    assert_eq!(place.workspaces.files(OURS, 10).await.unwrap(), ["a.txt", "skills/pdf/read.py"]);
    assert_eq!(place.read("a.txt").await.unwrap().text.as_deref(), Some("new"));
    assert!(place.workspaces.files(THEIRS, 10).await.unwrap().is_empty());
    for refused in [file("../a.txt", ""), file("/etc/passwd", ""), file("big.txt", &"x".repeat(700))] {
        assert!(place.workspaces.write_files(OURS, vec![refused.clone()]).await.is_err(), "{refused:?}");
    }
}
