//! Packages that the folder lists.

use super::*;

#[tokio::test]
async fn packages_that_are_not_pinned_are_named_and_leave_the_files() {
    let folder = Folder::new(Vec::new());
    let before = folder.read(&PythonTools::default()).await;
    fs::write(folder.path().join("requirements.txt"), "small==1\n").unwrap();
    let content = FolderContent::of(&folder.config).await.unwrap();
    assert!(!before.is_of(&content), "a list of packages is a part of the folder");
    let tools = folder.read(&before).await;
    assert!(tools.is_of(&content) && !tools.is_as(&before));
    let problem = tools.problems()["python_packages"].clone();
    assert!(problem.contains("requirements.txt:1: `small==1` is not pinned"), "{problem}");
    let verdicts: BTreeMap<_, _> = tools.verdicts().collect();
    assert_eq!(verdicts["python_packages"], Err(problem));
    assert!(verdicts["python:weather"].is_ok() && tools.tools().tools.len() == 1);
    assert_eq!(*folder.stand_in.packages.lock(), [String::new(), String::new()], "none are given");
    fs::write(folder.path().join("requirements.txt"), "# none\n").unwrap();
    let tools = folder.read(&tools).await;
    assert!(tools.problems().is_empty() && folder.jobs() == 2, "what was read is as it was");
}
