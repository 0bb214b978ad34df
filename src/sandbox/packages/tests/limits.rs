//! How much wheels have together, and who fetches them at a time.

use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::super::fetch::{doing, not_unpacked};
use super::*;
use crate::sandbox::prepare::PrepareError;

#[test]
fn lists_are_read_when_nobody_else_writes_them() {
    let place = Place::new("before");
    place.offer("small-1-py3-none-any.whl", &[("small.py", b"")]);
    owner_only_files::make_folder(&place.path("cache/wheels")).unwrap();
    let held = File::create(place.path("cache/wheels/lock")).unwrap();
    held.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| place.lock());
        let deadline = Instant::now() + Duration::from_secs(10);
        while place.reported.lock().is_empty() {
            assert!(Instant::now() < deadline, "it does not wait");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(place.reported.lock()[0], "another process fetches packages: waiting for it");
        place.require("small");
        drop(held);
        assert_eq!(waiting.join().unwrap().unwrap().packages, ["small 1"]);
    });
}

#[test]
fn packages_that_are_too_large_together_are_refused_by_name() {
    let place = Place::new("one\ntwo\n");
    for name in ["one", "two"] {
        place.offer(&format!("{name}-1-py3-none-any.whl"), &[("x.py", name.as_bytes())]);
    }
    place.lock().unwrap();
    let (pinned, found) = (place.pinned(), place.found());
    let mut sizes = KnownSizes::new();
    let mut find = || Packages::find_in(&place.path("tools"), Some(&place.path("cache/wheels")), &mut sizes);
    assert_eq!(find(), found);
    for mount in &found.mounts {
        // Without content on the disk.
        File::create(mount.host_path.join("large")).unwrap().set_len(65 << 20).unwrap();
    }
    assert_eq!(find(), found, "a sum is measured once");
    let found = place.found();
    assert_eq!((found.names(), found.mounts.len()), (&["one 1".to_owned()][..], 1), "the others can be imported");
    let says = "two 1 cannot be used: with it, the packages have more than 128 MiB together";
    assert!(found.problems()[0].starts_with(says), "{found:?}");
    let refused = place.lock().unwrap_err().to_string();
    assert!(refused.starts_with(&format!("requirements.txt:2: {says}")), "{refused}");
    assert_eq!(place.pinned(), pinned);
}

#[test]
fn a_full_disk_is_named_with_what_a_package_takes() {
    let full = || io::Error::from(io::ErrorKind::StorageFull);
    let in_wheel = PrepareError::DiskFull { doing: "unpack", path: "/cache/wheels/ab.new/small.py".into() };
    let unpacking = not_unpacked(Path::new("/cache/wheels"), 1, "small-1-py3-none-any.whl".to_owned(), in_wheel);
    let errors = [
        (unpacking, "/cache/wheels"),
        (doing("make a folder in", Path::new("/cache/wheels"))(full()), "/cache/wheels"),
        (doing("write", Path::new("/tools/requirements.lock"))(full()), "/tools/requirements.lock"),
    ];
    for (error, path) in errors {
        let says = format!("there is no space left for {path}: ");
        let text = error.to_string();
        assert!(text.starts_with(&says) && text.contains("160 MiB") && !text.contains("interpreter"), "{text}");
        assert!(text.ends_with("run `sekisho tools lock` again"), "{text}");
    }
}
