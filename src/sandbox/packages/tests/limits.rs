//! Who fetches wheels at a time, and what a full disk says.

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
