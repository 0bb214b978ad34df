//! Wheels that are made here, fetched by a stand-in for pip, and found again.

mod limits;

use std::fs;
use std::io::{Cursor, Write};
use std::os::unix::fs::PermissionsExt;

use parking_lot::Mutex;
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::fetch::{Fetching, PackageError};
use super::*;

/// A folder of tools, and one for wheels.
struct Place {
    folder: TempDir,
    reported: Mutex<Vec<String>>,
}

impl Place {
    fn new(requirements: &str) -> Self {
        let folder = TempDir::new().unwrap();
        for name in ["tools", "index"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let place = Self { folder, reported: Mutex::default() };
        place.require(requirements);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn require(&self, requirements: &str) {
        fs::write(self.path("tools/requirements.txt"), requirements).unwrap();
    }

    /// Adds a wheel to the index of the stand-in for pip.
    fn offer(&self, name: &str, files: &[(&str, &[u8])]) {
        fs::write(self.path("index").join(name), zip_of(files)).unwrap();
    }

    /// Stands in for Python: gives the wheel whose name begins like the requirement.
    fn pip(&self) -> WheelSource {
        let script = format!(
            r#"echo "$*" >> {asked}
            pwd -P > {started_in}
            while [ "$1" != --dest ]; do shift; done
            name=$(echo "$3" | sed 's/[=<>].*//' | tr A-Z- a-z_)
            cp {index}/$name-*.whl "$2" || {{ echo "ERROR: No matching distribution found for $3" >&2; exit 1; }}"#,
            asked = self.path("asked").display(),
            started_in = self.path("started_in").display(),
            index = self.path("index").display(),
        );
        fs::write(self.path("python.sh"), script).unwrap();
        WheelSource::Pip(vec!["sh".into(), self.path("python.sh").into()])
    }

    fn lock_with(&self, source: &WheelSource) -> Result<LockedPackages, PackageError> {
        let report = |text: &str| self.reported.lock().push(text.to_owned());
        let wheels = self.path("cache/wheels");
        Fetching { wheels: &wheels, python: "3.15", source, report: &report }.lock(&self.path("tools"))
    }

    fn lock(&self) -> Result<LockedPackages, PackageError> {
        self.lock_with(&self.pip())
    }

    fn found(&self) -> Packages {
        Packages::find_in(&self.path("tools"), Some(&self.path("cache/wheels")), &mut KnownSizes::new())
    }

    /// The reports besides waiting: a process that another test is just starting holds a lock too.
    fn reports(&self) -> Vec<String> {
        self.reported.lock().iter().filter(|text| !text.contains("waiting for it")).cloned().collect()
    }

    fn pinned(&self) -> String {
        fs::read_to_string(self.path("tools/requirements.lock")).unwrap()
    }
}

fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

const METADATA: &[u8] =
    b"Name: small\nRequires-Dist: other>=1\nRequires-Dist: more; extra == 'x'\n\nRequires-Dist: no\n";

#[test]
fn wheels_are_fetched_once_pinned_and_mounted() {
    let place = Place::new("Small_One>=1\n");
    place.offer(
        "small_one-1.2-py3-none-any.whl",
        &[
            ("small_one/__init__.py", b"x = 1"),
            ("small_one-1.2.dist-info/METADATA", METADATA),
            ("small_one-1.2.data/scripts/run", b"moved elsewhere by pip"),
        ],
    );
    assert!(
        place.found().problems()[0]
            .contains("`Small_One>=1` is not pinned in requirements.lock: run `sekisho tools lock`")
    );
    let locked = place.lock().unwrap();
    assert_eq!(locked.packages, ["small-one 1.2"]);
    let needs = "small-one needs `other>=1`: name it in requirements.txt too, unless the interpreter has it";
    assert_eq!(locked.needs, [needs]);
    let asked = fs::read_to_string(place.path("asked")).unwrap();
    let options = "--no-deps --only-binary :all: --implementation py --abi none --platform any --python-version 3.15";
    assert!(asked.starts_with("-m pip ") && asked.contains(options), "{asked}");
    let started_in = fs::read_to_string(place.path("started_in")).unwrap();
    let wheels = fs::canonicalize(place.path("cache/wheels")).unwrap();
    assert!(Path::new(&started_in).starts_with(wheels), "a `pip.py` in the folder of tools is not run: {started_in}");

    let found = place.found();
    assert_eq!((found.names(), found.problems()), (&["small-one 1.2".to_owned()][..], &[][..]));
    let mount = &found.mounts[0];
    assert_eq!(mount.guest_path, "/usr/local/lib/tools/small-one");
    assert_eq!(fs::read(mount.host_path.join("small_one/__init__.py")).unwrap(), b"x = 1");
    assert!(!mount.host_path.join("small_one-1.2.data").exists());
    assert!(!found.sum().is_empty() && Packages::default().sum().is_empty());
    assert!(place.pinned().contains("small-one==1.2 --hash=sha256:"), "{}", place.pinned());

    assert_eq!(place.lock().unwrap(), locked);
    assert_eq!(place.reports(), ["fetching Small_One>=1"], "what is here is not fetched again");
    fs::remove_dir_all(&mount.host_path).unwrap();
    let missing = place.found();
    assert!(missing.problems()[0].contains("is not on this machine ("), "{missing:?}");
    place.lock().unwrap();
    assert_eq!(place.reports()[1], "fetching small-one==1.2", "as it is pinned");
    assert_eq!(place.found(), found);
    place.require("Small_One>=1.1");
    let other = place.found();
    assert!(other.problems()[0].contains("is not pinned"), "its requirement is another one");
}

#[test]
fn a_wheel_with_other_content_than_its_pin_is_refused() {
    let place = Place::new("small");
    place.offer("small-1-py3-none-any.whl", &[("small.py", b"x = 1")]);
    place.lock().unwrap();
    let (pinned, found) = (place.pinned(), place.found());
    fs::remove_dir_all(&found.mounts[0].host_path).unwrap();
    place.offer("small-1-py3-none-any.whl", &[("small.py", b"x = 2")]);
    let refused = place.lock().unwrap_err().to_string();
    assert!(refused.contains("small-1-py3-none-any.whl has the SHA-256 sum "), "{refused}");
    assert!(refused.contains("remove its line from requirements.lock to accept the new one"), "{refused}");
    assert_eq!((place.pinned(), place.found().mounts.len()), (pinned, 0));
    fs::remove_file(place.path("tools/requirements.lock")).unwrap();
    place.lock().unwrap();
    assert_ne!(place.found().sum(), found.sum());
}

#[test]
fn an_unpacked_wheel_that_others_can_change_is_not_mounted() {
    let place = Place::new("small");
    place.offer("small-1-py3-none-any.whl", &[("small.py", b"")]);
    place.lock().unwrap();
    let folder = place.found().mounts[0].host_path.clone();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let found = place.found();
    assert!(found.mounts.is_empty() && found.problems()[0].contains("can be changed by other users"), "{found:?}");
    place.lock().unwrap();
    assert_eq!((place.found().mounts.len(), place.found().problems()), (1, &[][..]), "it is replaced");
}

#[test]
fn wheels_that_cannot_be_used_are_refused_by_name() {
    let big = vec![0; 129 << 20];
    let many: Vec<_> = (0..20_001).map(|number| format!("{number}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
    let long = format!("{}/x.py", "d".repeat(300));
    let deep = format!("{}x.py", "d/".repeat(65));
    // Few files, each in 60 folders of its own.
    let wide: Vec<_> = (0..340).map(|number| format!("{number}/{}x.py", "d/".repeat(59))).collect();
    let wide: Vec<_> = wide.iter().map(|name| (name.as_str(), &b""[..])).collect();
    for (name, files, says) in [
        (
            "bad-1-cp313-cp313-manylinux_2_17_x86_64.whl",
            &[("bad.py", &b""[..])][..],
            "has native code (it is for cp313",
        ),
        ("bad-1-py3-none-any.whl", &[("bad/_fast.cpython-313.so", b"")], "has native code (it has bad/_fast"),
        ("bad-1-py3-none-any.whl", &[("bad/libz.so.1", b"")], "has native code"),
        ("bad-1-py3-none-any.whl", &[("../escaped.py", b"")], "../escaped.py in "),
        ("bad-1-py3-none-any.whl", &[("/escaped.py", b""), ("bad/../../escaped.py", b"")], "leads out of its folder"),
        ("bad-1-py3-none-any.whl", &[("bomb", &big)], "unpacks to more than"),
        ("bad-1-py3-none-any.whl", &many, "it has more than 20000 files"),
        ("bad-1-py3-none-any.whl", &[(&deep, b"")], "a file is in more than 64 folders"),
        ("bad-1-py3-none-any.whl", &wide, "it has more than 20000 folders"),
        ("bad-1-py3-none-any.whl", &[(&long, b"")], "cannot make the folder"),
        ("bad-1-py3-none-any.whl", &[("a", b""), ("a/b", b"")], "cannot make the folder"),
    ] {
        let place = Place::new("# Ours.\nbad\n");
        place.offer(name, files);
        let refused = place.lock().unwrap_err().to_string();
        assert!(refused.starts_with("requirements.txt:2: ") && refused.contains(says), "{says}: {refused}");
        assert!(refused.contains("bad"), "{refused}");
        assert!(!place.path("tools/requirements.lock").exists() && place.found().mounts.is_empty());
        assert!(!place.path("cache/wheels/escaped.py").exists() && !place.path("cache/escaped.py").exists());
    }
}

#[test]
fn a_link_in_a_wheel_is_refused() {
    let place = Place::new("bad");
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.add_symlink("bad/link", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    let content = writer.finish().unwrap().into_inner();
    fs::write(place.path("index/bad-1-py3-none-any.whl"), content).unwrap();
    let refused = place.lock().unwrap_err().to_string();
    assert!(refused.contains("bad/link in ") && refused.contains("is not a regular file"), "{refused}");
}

#[test]
fn what_cannot_be_fetched_says_what_to_do() {
    let place = Place::new("missing>=2");
    let refused = place.lock().unwrap_err().to_string();
    assert!(refused.contains("requirements.txt:1: pip found no wheel of pure Python for `missing>=2`"), "{refused}");
    assert!(refused.contains("No matching distribution found for missing>=2"), "{refused}");
    let refused = place.lock_with(&WheelSource::Pip(vec!["/nonexistent/python3".into()])).unwrap_err();
    assert!(matches!(&refused, PackageError::NoPip { .. }) && refused.to_string().contains("--wheels"), "{refused}");
    place.require("");
    assert!(matches!(place.lock().unwrap_err(), PackageError::NothingListed(_)));
    place.require("missing");
    fs::write(place.path("tools/requirements.lock"), "damaged").unwrap();
    assert!(matches!(place.lock().unwrap_err(), PackageError::List(_)));
    assert!(place.found().problems()[0].contains("requirements.lock:1: "));
    assert_eq!(Packages::find_in(&place.path("nowhere"), None, &mut KnownSizes::new()), Packages::default());
}

#[test]
fn wheels_of_a_folder_are_used_where_there_is_no_pip() {
    let place = Place::new("small==1");
    place.offer("small-1-py3-none-any.whl", &[("small.py", b"")]);
    place.offer("small-2-py3-none-any.whl", &[("small.py", b"")]);
    let source = WheelSource::Folder(place.path("index"));
    assert_eq!(place.lock_with(&source).unwrap().packages, ["small 1"]);
    for (requirement, says) in [("small>=1", "write `small==VERSION`"), ("small==3", "there is no wheel of small 3")] {
        place.require(requirement);
        let refused = place.lock_with(&source).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
}
