//! Modules of functions: the packages that they import, and the images of what they have done.

use std::fs;
use std::io::{Cursor, Write};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{OwnTools, WEATHER};
use crate::app::config;
use crate::cli::{sekisho, text};

/// A wheel with one module.
fn wheel(source: &str) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in
        [("sekisho_small/__init__.py", source), ("sekisho_small-1.0.dist-info/METADATA", "Name: s\n")]
    {
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        writer.write_all(content.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Lists the package in the folder of tools, with its wheel beside.
fn list_package(directory: &TempDir) {
    let wheels = directory.path().join("wheels");
    fs::create_dir(&wheels).unwrap();
    fs::write(wheels.join("sekisho_small-1.0-py3-none-any.whl"), wheel("ANSWER = 42\n")).unwrap();
    fs::write(directory.path().join("tools/requirements.txt"), "sekisho-small==1.0\n").unwrap();
    fs::write(directory.path().join("sekisho.yaml"), "python_tools: {directory: tools}\n").unwrap();
}

fn pin_package(directory: &TempDir) -> Value {
    let arguments = ["--config", "sekisho.yaml", "--json", "tools", "lock", "--wheels", "wheels"];
    let locked = sekisho(directory).args(arguments).output().unwrap();
    assert_eq!(locked.status.code(), Some(0), "{}", text(&locked));
    serde_json::from_slice(&locked.stdout).unwrap()
}

const USES: &str = r#"
import sekisho_small

def answer() -> int:
    return sekisho_small.ANSWER

def writes() -> str:
    try:
        open(sekisho_small.__file__, "w")
    except OSError as error:
        return str(error)
"#;

#[tokio::test]
async fn functions_alone_import_the_packages_that_are_pinned() {
    let own = OwnTools::start(&[("weather.py", WEATHER)], "").await;
    let directory = &own.app.app.directory;
    list_package(directory);
    own.write("uses.py", USES).await;
    let degraded = own.degraded().await;
    let reason = degraded["python_packages"].as_str().unwrap_or_else(|| panic!("{degraded}"));
    assert!(reason.contains("requirements.txt:1: `sekisho-small==1.0` is not pinned"), "{reason}");
    let reason = degraded["python:uses"].as_str().unwrap_or_else(|| panic!("{degraded}"));
    assert!(reason.contains("uses.py:2: ModuleNotFoundError"), "{reason}");

    assert_eq!(pin_package(directory), json!({"packages": ["sekisho-small 1.0"], "needs": []}));
    own.write("uses.py", USES).await;
    assert_eq!(own.output("uses__answer", json!({})).await, 42);
    let refused = own.output("uses__writes", json!({})).await;
    assert!(refused.as_str().unwrap().contains("Read-only"), "{refused}");
    assert_eq!(own.output("weather__now", json!({"city": "Bern"})).await["city"], "Bern");
    let program = "try:\n    import sekisho_small\n    found = True\nexcept ImportError:\n    found = False\nfound";
    assert_eq!(own.app.run(program).await["result"], false, "programs of callers do not see them");

    fs::write(directory.path().join("tools/requirements.txt"), "sekisho-small==2.0\n").unwrap();
    own.write("uses.py", USES).await;
    let degraded = own.degraded().await;
    assert!(degraded["python_packages"].is_string() && degraded["python:uses"].is_string(), "{degraded}");
    assert_eq!(own.call("uses__answer", json!({})).await.0, StatusCode::NOT_FOUND);
}

/// The files of the refused configuration were read, with other packages.
#[tokio::test]
async fn a_reload_that_fails_leaves_functions_their_packages() {
    let often = "uses__answer: {rate_limit: 1000000}";
    let own = OwnTools::with(&[("weather.py", WEATHER)], "{}", often, "").await;
    let directory = &own.app.app.directory;
    list_package(directory);
    pin_package(directory);
    own.write("uses.py", USES).await;
    assert_eq!(own.output("uses__answer", json!({})).await, 42);

    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("weather.py"), WEATHER).unwrap();
    let clash = "tools: {overrides: {echo: {rename: calculator}}}";
    let yaml = format!("python_tools: {{directory: '{}'}}\n{clash}\n", other.display());
    own.app.app.gateway.reload(config(directory, &yaml)).await;
    let problem = own.degraded().await["configuration"].take();
    assert!(problem.as_str().is_some_and(|problem| problem.contains("two tools have the name")), "{problem}");
    own.until("uses__answer", json!({}), |_, reply| reply["output"] == 42).await;
}

const SLOW: &str = r#"
import random
import time

time.sleep(0.4)
BEGAN = time.monotonic()
OWN = random.Random(7)
SEEN = []
with open("/tmp/written", "w") as file:
    file.write("once")

def state() -> dict:
    SEEN.append(1)
    with open("/tmp/written") as file:
        written = file.read()
    with open("/tmp/written", "w") as file:
        file.write("changed")
    return {"seen": len(SEEN), "written": written, "own": OWN.random(), "drawn": random.random()}

def clocks() -> dict:
    return {"time": time.time(), "since": time.monotonic() - BEGAN}

def uses_numpy() -> float:
    import numpy
    return float(numpy.random.random())
"#;

/// What a module does when it is executed is done once, and calls share nothing of it.
#[tokio::test]
async fn a_call_goes_on_from_the_image_of_its_module() {
    let own = OwnTools::start(&[("slow.py", SLOW)], "").await;
    let mut drawn = Vec::new();
    for _ in 0..4 {
        let (status, reply) = own.call("slow__state", json!({})).await;
        let output = &reply["output"];
        assert_eq!(
            (status, &output["seen"], &output["written"]),
            (StatusCode::OK, &json!(1), &json!("once")),
            "{reply}"
        );
        assert_eq!(output["own"], 0.32383276483316237, "a generator with a seed begins with it in each call: {reply}");
        assert!(reply["metadata"]["wall_ms"].as_f64().unwrap() < 400.0, "it is not executed again: {reply}");
        drawn.push(output["drawn"].to_string());
        drawn.push(own.output("slow__uses_numpy", json!({})).await.to_string());
    }
    let different: std::collections::BTreeSet<_> = drawn.iter().collect();
    assert_eq!(different.len(), drawn.len(), "random numbers are not shared: {drawn:?}");
    let clocks = own.output("slow__clocks", json!({})).await;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((clocks["time"].as_f64().unwrap() - now).abs() < 30.0, "{clocks}");
    assert!((0.0..30.0).contains(&clocks["since"].as_f64().unwrap()), "{clocks}");

    own.write("slow.py", &SLOW.replace("\"once\"", "\"twice\"")).await;
    assert_eq!(own.output("slow__state", json!({})).await["written"], "twice", "other code has another image");
}

#[tokio::test]
async fn a_module_whose_executions_differ_is_executed_in_each_call() {
    let modules = [
        ("bytes.py", "import os\nVALUE = os.urandom(8).hex()\n"),
        ("day.py", "import time\nVALUE = str(time.time_ns())\n"),
        ("number.py", "import random\nVALUE = str(random.random())\n"),
    ];
    let sources = modules.map(|(name, text)| (name, format!("{text}def value() -> str:\n    return VALUE\n")));
    let files: Vec<_> = sources.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let own = OwnTools::start(&files, "").await;
    for tool in ["bytes__value", "day__value", "number__value"] {
        let first = own.output(tool, json!({})).await;
        assert_ne!(first, own.output(tool, json!({})).await, "{tool}");
    }
}

/// What it changes runs in each instance before a program arrives.
#[tokio::test]
async fn a_module_that_keeps_its_image_from_being_used_is_executed_in_each_call() {
    let hangs = "import random\n\ndef forever(*_):\n    while True:\n        pass\n\nrandom.seed = forever\n\n";
    let hangs = format!("{hangs}def value() -> int:\n    return 7\n");
    let own = OwnTools::start(&[("hangs.py", &hangs), ("weather.py", WEATHER)], "").await;
    for _ in 0..3 {
        assert_eq!(own.output("hangs__value", json!({})).await, 7);
        assert_eq!(own.output("weather__now", json!({"city": "Bern"})).await["city"], "Bern");
    }
}
