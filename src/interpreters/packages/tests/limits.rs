//! How long wheels stay on the machine, how much they have together, and who fetches them at a time.

use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::super::fetch::{doing, not_unpacked};
use super::*;
use crate::prepare::PrepareError;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn set_age(path: &Path, age: Duration) {
    File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

fn age_of(path: &Path) -> Duration {
    fs::metadata(path).unwrap().modified().unwrap().elapsed().unwrap_or_default()
}

#[test]
fn what_nobody_uses_is_removed_from_the_folder_of_wheels() {
    let place = Place::new("small");
    place.offer("small-1-py3-none-any.whl", &[("small.py", b"")]);
    place.lock().unwrap();
    let pinned = place.found().mounts[0].host_path.clone();
    set_age(&pinned, 15 * DAY);
    let cases = [
        ("ab".repeat(32), 13 * DAY, true),
        ("cd".repeat(32), 15 * DAY, false),
        (format!("{}.new", "ab".repeat(32)), HOUR / 2, true),
        (format!("{}.new", "ef".repeat(32)), 2 * HOUR, false),
        (".tmpfetching".to_owned(), HOUR / 2, true),
        (".tmpkilled".to_owned(), 2 * HOUR, false),
        ("another".to_owned(), 15 * DAY, true),
    ];
    let wheels = place.path("cache/wheels");
    for (name, age, _) in &cases {
        let folder = wheels.join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        set_age(&folder, *age);
    }
    place.lock().unwrap();
    for (name, _, stays) in cases {
        assert_eq!(wheels.join(&name).exists(), stays, "{name}");
    }
    assert!(age_of(&pinned) < DAY, "what is pinned here is used");
    assert_eq!(place.reports()[1], "unpacked wheels that nobody used for weeks were removed: 1");
}

#[test]
fn a_wheel_that_another_configuration_uses_stays() {
    let place = Place::new("small");
    place.offer("small-1-py3-none-any.whl", &[("small.py", b"")]);
    place.lock().unwrap();
    let folder = place.found().mounts[0].host_path.clone();
    set_age(&folder, 15 * DAY);
    place.found();
    assert!(age_of(&folder) < DAY, "whoever mounts it uses it");
    place.require("other");
    place.offer("other-1-py3-none-any.whl", &[("other.py", b"")]);
    place.lock().unwrap();
    assert!(folder.exists());
    place.require("small");
    place.lock().unwrap();
    set_age(&folder, DAY / 2);
    place.found();
    assert!(age_of(&folder) > DAY / 3, "it is not recorded each time");
}

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
