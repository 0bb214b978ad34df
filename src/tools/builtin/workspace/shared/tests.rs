use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::SystemTime;

use futures_util::future::join_all;
use tempfile::TempDir;

use super::*;
use crate::builtin::workspace::folder::Content;
use crate::builtin::workspace::tests::OURS;
use crate::builtin::workspace::{WorkspacePath, Workspaces};
use sekisho_config::WorkspaceConfig;
use sekisho_core::until::until;
use sekisho_outbound::blobs::test_support::{folder_storage, storage_out_of_reach};
use sekisho_store::test_support::{beat, expire_workspace, test_store};

/// Replicas on one store and one storage, each with a folder of its own.
struct Replicas {
    store: Store,
    folder: TempDir,
}

impl Replicas {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("storage")).unwrap();
        let store = test_store().await;
        for replica in ["one", "other", "third", "another"] {
            beat(&store, replica).await;
        }
        Self { store, folder }
    }

    /// The replica with the folder of this name.
    fn replica(&self, name: &str) -> Workspaces {
        self.replica_with(name, &self.storage())
    }

    fn replica_with(&self, name: &str, blobs: &Blobs) -> Workspaces {
        let workspaces = Workspaces::new(self.folder.path().join(name), &WorkspaceConfig::default());
        workspaces.share(&Arc::from(name), &self.store, blobs);
        workspaces
    }

    fn storage(&self) -> Blobs {
        folder_storage(&self.folder.path().join("storage"))
    }

    /// The workspace in the folder of a replica.
    fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).join("shared").join(OURS)
    }

    async fn objects(&self) -> usize {
        self.storage().list(&BlobKey::of([FOLDER])).await.unwrap().len()
    }
}

async fn put(workspaces: &Workspaces, path: &str, content: &str, append: bool) -> Result<(), CallError> {
    let (path, content) = (WorkspacePath::parse(path).unwrap(), content.to_owned());
    let write =
        move |workspace: &Workspace| workspace.write(&path, Content::Bytes(content.as_bytes()), append).map(drop);
    workspaces.work(OURS, Reach::Write, write).await
}

async fn write(workspaces: &Workspaces, path: &str, content: &str) {
    put(workspaces, path, content, false).await.unwrap();
}

/// Path and content of all files.
async fn all(workspaces: &Workspaces) -> Vec<(String, String)> {
    let found = workspaces.work(OURS, Reach::Read, Workspace::read_all).await.unwrap();
    found.into_iter().map(|(path, content)| (path, String::from_utf8(content).unwrap())).collect()
}

fn files(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect()
}

#[tokio::test]
async fn what_one_replica_writes_the_others_read() {
    let replicas = Replicas::new().await;
    let (one, other) = (replicas.replica("one"), replicas.replica("other"));
    assert!(all(&other).await.is_empty());
    write(&one, "notes/a.txt", "first").await;
    write(&one, "empty", "").await;
    assert_eq!(all(&other).await, files(&[("empty", ""), ("notes/a.txt", "first")]));
    write(&other, "notes/a.txt", "second").await;
    write(&other, "b", "b").await;
    let expected = files(&[("b", "b"), ("empty", ""), ("notes/a.txt", "second")]);
    assert_eq!(all(&one).await, expected);
    assert_eq!(all(&replicas.replica("third")).await, expected);
    until("replaced objects are removed", async || replicas.objects().await == 2).await;
    assert_eq!(replicas.store.workspaces().files(OURS).await.unwrap().unwrap().matches("object").count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_at_two_replicas_work_one_after_the_other() {
    let replicas = Replicas::new().await;
    let both = [replicas.replica("one"), replicas.replica("other")];
    let is_busy = Arc::new(AtomicBool::new(false));
    let calls = (0..20).map(|n| {
        let (workspaces, is_busy) = (both[n % 2].clone(), Arc::clone(&is_busy));
        async move {
            let path = WorkspacePath::parse("log").unwrap();
            let append = move |workspace: &Workspace| {
                assert!(!is_busy.swap(true, Ordering::SeqCst), "two calls work at once");
                let written = workspace.write(&path, Content::Bytes(format!("{n};").as_bytes()), true);
                is_busy.store(false, Ordering::SeqCst);
                written.map(drop)
            };
            workspaces.work(OURS, Reach::Write, append).await.unwrap();
        }
    });
    join_all(calls).await;
    for workspaces in &both {
        let [(_, log)] = all(workspaces).await.try_into().unwrap();
        let mut lines: Vec<usize> = log.trim_end_matches(';').split(';').map(|n| n.parse().unwrap()).collect();
        lines.sort_unstable();
        assert_eq!(lines, (0..20).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_call_that_ends_before_its_changes_are_named_leaves_the_files_as_they_were() {
    let replicas = Replicas::new().await;
    write(&replicas.replica("one"), "a", "stored").await;
    // As a process leaves them that is killed after its call has written.
    fs::write(replicas.place("one").join("a"), "changed").unwrap();
    fs::write(replicas.place("one").join("b"), "new").unwrap();
    for name in ["one", "other"] {
        assert_eq!(all(&replicas.replica(name)).await, files(&[("a", "stored")]), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_lost_its_workspace_stores_nothing() {
    let replicas = Replicas::new().await;
    let (one, other) = (replicas.replica("one"), replicas.replica("other"));
    write(&one, "a", "before").await;
    let (started, has_started) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let slow = tokio::spawn({
        let one = one.clone();
        async move {
            let job = move |workspace: &Workspace| {
                started.send(()).unwrap();
                may_go_on.recv().unwrap();
                workspace.write(&WorkspacePath::parse("a").unwrap(), Content::Bytes(b"late"), false).map(drop)
            };
            one.work(OURS, Reach::Write, job).await
        }
    });
    has_started.await.unwrap();
    expire_workspace(&replicas.store, OURS).await;
    write(&other, "a", "taken over").await;
    go_on.send(()).unwrap();
    let error = slow.await.unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded, "{error}");
    for workspaces in [&one, &other] {
        assert_eq!(all(workspaces).await, files(&[("a", "taken over")]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_while_it_waits_never_runs_and_one_that_runs_is_stored() {
    let replicas = Replicas::new().await;
    let one = replicas.replica("one");
    let lock = replicas.store.workspaces().lock(OURS, "another").await.unwrap().unwrap();
    let waiting = put(&one, "a", "never", false);
    assert!(tokio::time::timeout(Duration::from_millis(200), waiting).await.is_err());
    replicas.store.workspaces().unlock(&lock).await.unwrap();
    assert!(all(&one).await.is_empty());

    let (started, has_started) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let job = move |workspace: &Workspace| {
        started.send(()).unwrap();
        may_go_on.recv().unwrap();
        workspace.write(&WorkspacePath::parse("a").unwrap(), Content::Bytes(b"kept"), false).map(drop)
    };
    tokio::select! {
        _ = one.work(OURS, Reach::Write, job) => panic!("it cannot go on"),
        started = has_started => started.unwrap(),
    }
    go_on.send(()).unwrap();
    assert_eq!(all(&replicas.replica("other")).await, files(&[("a", "kept")]));
}

#[tokio::test]
async fn without_its_storage_a_call_fails_and_the_files_are_as_they_were() {
    let replicas = Replicas::new().await;
    write(&replicas.replica("one"), "a", "stored").await;
    let away = replicas.replica_with("one", &storage_out_of_reach());
    // The folder has the stored files, so that reading needs nothing.
    assert_eq!(all(&away).await, files(&[("a", "stored")]));
    let error = put(&away, "a", "changed", false).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded, "{error}");
    assert_eq!(all(&replicas.replica("one")).await, files(&[("a", "stored")]));
    let nothing_here = replicas.replica_with("other", &storage_out_of_reach());
    let error = nothing_here.work(OURS, Reach::Read, Workspace::read_all).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded, "{error}");
}

#[tokio::test]
async fn an_object_that_was_changed_is_an_error() {
    let replicas = Replicas::new().await;
    write(&replicas.replica("one"), "a", "stored").await;
    let [object] = replicas.storage().list(&BlobKey::of([FOLDER])).await.unwrap().try_into().unwrap();
    replicas.storage().put(&object.key, "forged".into()).await.unwrap();
    let other = replicas.replica("other");
    assert!(other.work(OURS, Reach::Read, Workspace::read_all).await.is_err());
    assert!(!replicas.place("other").join("a").exists());
}

#[tokio::test]
async fn a_workspace_is_removed_at_all_replicas_and_when_it_is_idle_at_all() {
    let replicas = Replicas::new().await;
    let (one, other) = (replicas.replica("one"), replicas.replica("other"));
    write(&one, "a", "a").await;
    all(&other).await;
    // Idle at one: its folder goes, and the shared workspace stays.
    one.remove_idle(OURS, || false).await.unwrap();
    assert!(!replicas.place("one").exists());
    assert_eq!(all(&one).await, files(&[("a", "a")]));
    other.remove(OURS).await.unwrap();
    assert_eq!(replicas.objects().await, 0);
    assert_eq!(replicas.store.workspaces().files(OURS).await.unwrap(), None);
    assert!(all(&one).await.is_empty(), "what is in its folder is no longer shared");
    write(&other, "a", "anew").await;
    assert_eq!(all(&one).await, files(&[("a", "anew")]));
    other.remove(OURS).await.unwrap();

    write(&other, "b", "b").await;
    one.remove_older_than(Duration::ZERO, HashSet::from([OURS.to_owned()])).await.unwrap();
    assert!(replicas.store.workspaces().files(OURS).await.unwrap().is_some(), "it has a conversation");
    one.remove_older_than(Duration::ZERO, HashSet::new()).await.unwrap();
    assert_eq!(replicas.store.workspaces().files(OURS).await.unwrap(), None);
}

#[tokio::test]
async fn a_copy_to_which_nobody_writes_goes_and_is_fetched_again() {
    let (replicas, hour) = (Replicas::new().await, Duration::from_secs(3_600));
    let one = replicas.replica("one");
    write(&one, "a", "a").await;
    fs::File::open(replicas.place("one")).unwrap().set_modified(SystemTime::now() - 2 * hour).unwrap();
    let shared = Arc::clone(one.0.shared.get().unwrap());
    let folder = shared.folders.entry(OURS).unwrap();
    let a_call_works = folder.lock().await;
    assert_eq!(one.remove_older_than(hour, HashSet::new()).await.unwrap(), 0);
    drop(a_call_works);
    drop(folder);
    assert_eq!(one.remove_older_than(hour, HashSet::new()).await.unwrap(), 1);
    assert!(!replicas.place("one").exists());
    assert_eq!((shared.folders.len(), one.0.in_use.len()), (0, 0));
    assert_eq!(all(&one).await, files(&[("a", "a")]), "its row was used within the hour");
}

#[tokio::test]
async fn objects_that_no_row_names_are_removed_when_they_are_old() {
    let replicas = Replicas::new().await;
    let one = replicas.replica("one");
    write(&one, "a", "a").await;
    replicas.storage().add(&folder_of(OURS), "of a call that ended".into()).await.unwrap();
    one.remove_orphans().await.unwrap();
    assert_eq!(replicas.objects().await, 2, "a call may be about to name it");
    make_old(&replicas.folder.path().join("storage"));
    one.remove_orphans().await.unwrap();
    assert_eq!(replicas.objects().await, 1);
    assert_eq!(all(&replicas.replica("other")).await, files(&[("a", "a")]));
}

/// As if all files below `folder` had been written two hours ago.
fn make_old(folder: &Path) {
    let then = SystemTime::now() - Duration::from_secs(7_200);
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => make_old(&path),
            false => fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap(),
        }
    }
}
