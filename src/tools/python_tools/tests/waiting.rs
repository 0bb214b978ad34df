//! Files that the sandbox could not read at once.

use super::*;

#[tokio::test]
async fn what_the_sandbox_cannot_read_yet_is_read_later() {
    let missing = || Err(CallError::new(ErrorCode::WarmingUp, "the interpreter is being set up"));
    let folder = Folder::new(vec![missing()]);
    let tools = folder.read(&PythonTools::default()).await;
    assert!(tools.is_waiting());
    assert_eq!(tools.problems()["python:weather"], "weather.py is not read yet: the interpreter is being set up");
    let tools = folder.read(&tools).await;
    assert!(!tools.is_waiting() && tools.tools().tools.len() == 1, "its text has not changed");
}

#[tokio::test]
async fn what_waits_for_the_same_is_nothing_new() {
    let missing = || Err(CallError::new(ErrorCode::WarmingUp, "the interpreter is being set up"));
    let folder = Folder::new(vec![missing(), missing()]);
    let first = folder.read(&PythonTools::default()).await;
    assert!(!first.is_as(&PythonTools::default()));
    let second = folder.read(&first).await;
    assert!(second.is_waiting() && second.is_as(&first));
    let content = FolderContent::of(&folder.config).await.unwrap();
    assert!(second.is_of(&content));
    fs::write(folder.path().join("weather.py"), "changed").unwrap();
    let content = FolderContent::of(&folder.config).await.unwrap();
    assert!(!second.is_of(&content));
    let third = folder.read(&second).await;
    assert!(third.is_of(&content) && !third.is_as(&second) && folder.read(&third).await.is_as(&third));
}

/// The worker may have exited because of another run.
#[tokio::test]
async fn a_file_whose_worker_exited_is_read_once_more() {
    let lost = Err(CallError::new(ErrorCode::SandboxTrap, "the worker exited"));
    let folder = Folder::new(vec![lost]);
    let tools = folder.read(&PythonTools::default()).await;
    assert_eq!((folder.jobs(), tools.tools().tools.len()), (3, 1), "{:?}", tools.problems());
}

/// A run that waited for others has little time left, which says nothing of the file.
#[tokio::test(start_paused = true)]
async fn a_file_that_had_no_time_is_read_later() {
    let late = Ok(outcome(End::Timeout, None));
    let folder = Folder::slow(vec![late], Duration::from_secs(40));
    let tools = folder.read(&PythonTools::default()).await;
    assert!(tools.is_waiting(), "{:?}", tools.problems());
    assert!(tools.problems()["python:weather"].contains("busy with other runs"));
    let folder = Folder::slow(vec![Ok(outcome(End::Timeout, None))], Duration::from_secs(10));
    assert!(!folder.read(&PythonTools::default()).await.is_waiting(), "it had all of its time");
}
