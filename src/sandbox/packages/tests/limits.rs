//! Who fetches wheels at a time.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use super::*;

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
