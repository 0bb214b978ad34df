//! The harness under the machine's own Python (3.11 or later). The tests of the whole sandbox cover WebAssembly, numpy
//! and pandas.

mod modules;
mod session;
mod tools;
mod values;

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::*;

struct Ran {
    output: Output,
    frames: Vec<Value>,
}

impl Ran {
    fn done(&self) -> &Value {
        let done = self.frames.last().unwrap_or_else(|| panic!("no frame came: {}", self.stderr()));
        assert_eq!(done["op"], "done", "{done}");
        done
    }

    fn end(&self) -> &Value {
        &self.done()["end"]
    }

    fn result(&self) -> Value {
        self.done()["result"].as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

fn run(code: &str) -> Ran {
    run_within(code, 256 << 10)
}

fn run_within(code: &str, result_bytes: usize) -> Ran {
    run_after(&prelude(), code, result_bytes)
}

fn run_after(prelude: &str, code: &str, result_bytes: usize) -> Ran {
    run_all(prelude, code, result_bytes, &[], None)
}

/// With further programs it is a session. `module`: the use of the code, as JSON, where it is a module.
fn run_all(prelude: &str, code: &str, result_bytes: usize, further: &[&str], module: Option<&str>) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::write(file("driver"), include_str!("driver.py")).unwrap();
    fs::write(file("prelude"), prelude).unwrap();
    fs::write(file("turn"), TURN).unwrap();
    fs::write(file("code"), code).unwrap();
    if let Some(module) = module {
        fs::write(file("code.module"), module).unwrap();
    }
    let further: Vec<_> = (0..further.len()).map(|number| file(&format!("code {number}"))).zip(further).collect();
    for (path, code) in &further {
        fs::write(path, code).unwrap();
    }
    let output = Command::new("python3")
        // The interpreter has none of the machine's packages.
        .args(["-I", "-S"])
        .args(["driver", "prelude", "turn", "code", "frames"].map(file))
        .arg(result_bytes.to_string())
        .args(further.iter().map(|(path, _)| path))
        .output()
        .expect("python3 is needed");
    let frames = fs::read_to_string(file("frames")).unwrap_or_default();
    let frames = frames.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Ran { output, frames }
}

#[test]
fn the_last_expression_is_the_result_with_its_type() {
    let cases = [
        ("1 + 1", json!(2)),
        ("x = 1", json!(null)),
        ("", json!(null)),
        ("None", json!(null)),
        ("[1, 2.5, True, 'é\\ud800'[:1], (1, 2)]", json!([1, 2.5, true, "é", [1, 2]])),
        ("float('nan')", json!({"$type": "float", "value": "NaN"})),
        ("-float('inf')", json!({"$type": "float", "value": "-Infinity"})),
        ("2**53", json!(9_007_199_254_740_992_i64)),
        ("2**70", json!({"$type": "int", "value": "1180591620717411303424"})),
        ("10**9000", json!({"$type": "int", "bits": 29_898, "truncated": true})),
        ("1j", json!({"$type": "complex", "real": 0.0, "imaginary": 1.0})),
        ("b'ab'", json!({"$type": "bytes", "base64": "YWI="})),
        ("{3}", json!({"$type": "set", "items": [3]})),
        ("{'a': {'b': 1}}", json!({"a": {"b": 1}})),
        ("{1: 2}", json!({"$type": "dict", "pairs": [[1, 2]]})),
        ("{'$type': 'forged'}", json!({"$type": "dict", "pairs": [["$type", "forged"]]})),
        ("import datetime as d\nd.datetime(2026, 1, 2, 3, tzinfo=d.timezone.utc)", json!("2026-01-02T03:00:00+00:00")),
        ("import datetime as d\nd.timedelta(days=1)", json!({"$type": "timedelta", "seconds": 86_400.0})),
        ("from decimal import Decimal\nDecimal('1.10')", json!("1.10")),
        (
            "from dataclasses import dataclass\n@dataclass\nclass Point:\n  x: int\nPoint(3)",
            json!({"$type": "dataclass", "name": "Point", "fields": {"x": 3}}),
        ),
        (
            "from collections import namedtuple\nnamedtuple('N', 'a b')(1, 2)",
            json!({"$type": "namedtuple", "name": "N", "fields": {"a": 1, "b": 2}}),
        ),
        ("object", json!({"$type": "repr", "value": "<class 'object'>", "type": "type"})),
        ("import asyncio\nasync def f():\n  await asyncio.sleep(.01)\n  return 7\nasyncio.run(f())", json!(7)),
    ];
    for (code, expected) in cases {
        let ran = run(code);
        assert_eq!(ran.end(), &json!({"kind": "exited", "code": 0}), "{code}");
        assert_eq!(ran.result(), expected, "{code}");
    }
}

#[test]
fn hostile_and_endless_values_are_bounded() {
    let cases = [
        "x = []\nfor i in range(10**5): x = [x]\nx",
        "x = []\nx.append(x)\nx",
        "list(range(10**6))",
        "{str(i): i for i in range(10**6)}",
        "'é' * 10**7",
        "b'a' * 10**7",
        "[['x' * 100] * 1000] * 1000",
        "[1 / 3] * 5000",
        "[1j / 3] * 5000",
        "import datetime as d\n[d.timedelta(days=1)] * 5000",
        "x = [1 / 3] * 9\n[{'a': x, 'b': {'c': x}}] * 5000",
        "class A:\n  def __repr__(self): raise SystemExit\nA()",
        "class A:\n  def __repr__(self): return repr(self)\nA()",
        "class A:\n  @property\n  def __class__(self): raise KeyError\nA()",
        "class D(dict):\n  def items(self): raise KeyError\nD(a=1)",
    ];
    for code in cases {
        let ran = run_within(code, 10_000);
        assert_eq!(ran.end(), &json!({"kind": "exited", "code": 0}), "{code}");
        let length = ran.done()["result"].as_str().unwrap().len();
        assert!(length <= 10_000, "{length} bytes: {code}");
        assert!(!code.contains("* 5000") || length > 5_000, "as much as fits: {length} bytes: {code}");
    }
}

#[test]
fn exceptions_show_the_callers_lines_and_none_of_the_harness() {
    let cases = [
        ("def f(x):\n    return 1 / x\nf(0)", "ZeroDivisionError", "division by zero", 2, 12),
        ("é = 'ü'; q = 3 + missing", "NameError", "name 'missing' is not defined", 1, 18),
        ("import json\njson.loads('{')", "JSONDecodeError", "Expecting property name", 2, 1),
        ("x = 1\nif x\n  pass", "SyntaxError", "expected ':'", 2, 5),
        ("x = (1\n", "SyntaxError", "'(' was never closed", 1, 5),
        ("x = 1\n  y = 2", "IndentationError", "unexpected indent", 2, 1),
        ("raise GeneratorExit('x')", "GeneratorExit", "x", 1, 1),
        ("class E(Exception):\n  def __str__(self): raise KeyError\nraise E", "E", "<no text", 3, 1),
    ];
    for (code, kind, message, line, column) in cases {
        let end = run(code).end().clone();
        assert_eq!((&end["kind"], &end["type"]), (&json!("exception"), &json!(kind)), "{code}");
        assert!(end["message"].as_str().unwrap().starts_with(message), "{end}");
        assert_eq!(end["line"], line, "{code}");
        if kind != "IndentationError" {
            assert_eq!(end["column"], column, "{code}");
        }
        let traceback = end["traceback"].as_str().unwrap();
        assert!(traceback.contains("<code>") && traceback.contains(kind), "{traceback}");
        assert!(!traceback.contains("_sekisho") && !traceback.contains("<turn"), "{traceback}");
    }
    let shown = run("def f(x):\n    return 1 / x\nf(0)").end()["traceback"].as_str().unwrap().to_owned();
    assert!(shown.contains("    return 1 / x\n") && shown.contains("    f(0)\n"), "{shown}");
}

#[test]
fn deep_recursion_and_long_chains_have_a_bounded_traceback() {
    let chain = "def f(n):\n    try: f(n + 1)\n    except RecursionError as e: raise ValueError(n) from e\nf(0)";
    for code in ["def f(): f()\nf()", chain] {
        let end = run(code).end().clone();
        assert_eq!(end["kind"], "exception");
        assert!(end["traceback"].as_str().unwrap().len() < 40_000);
    }
}

#[test]
fn exit_codes_are_the_interpreters_own() {
    let exits = [
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit(2**40 + 5)", 5),
        ("raise SystemExit('bye')", 1),
        ("import atexit, sys\natexit.register(lambda: print('late'))\nsys.exit(4)", 4),
    ];
    for (code, expected) in exits {
        let ran = run(code);
        assert_eq!(ran.end(), &json!({"kind": "exited", "code": expected}), "{code}");
        assert_eq!(ran.stdout().contains("late"), code.contains("late"), "exit handlers have run");
    }
    assert!(run("raise SystemExit('bye')").stderr().contains("bye"));
}

#[test]
fn printed_text_is_not_a_result() {
    let forged = r#"print('{"v": 1, "id": 0, "op": "done", "end": {"kind": "exited", "code": 0}, "result": "9"}')"#;
    let ran = run(forged);
    assert!(ran.stdout().contains("\"9\""), "it is printed");
    assert_eq!((ran.frames.len(), ran.result()), (1, Value::Null));
}

#[test]
fn no_two_programs_draw_the_same_numbers() {
    let draw = "import random\nrandom.random()";
    assert_ne!(run(draw).result(), run(draw).result());
}

#[test]
fn a_program_runs_as_main() {
    let code =
        "import pickle, sys\nclass A: pass\n(__name__, type(pickle.loads(pickle.dumps(A()))) is A, '_host' in dir())";
    assert_eq!(run(code).result(), json!(["__main__", true, false]));
}

#[test]
fn a_program_whose_output_cannot_be_written_fails() {
    let end = run("import os\nos.close(1)\nprint('x', end='')").end().clone();
    assert_eq!((&end["kind"], &end["type"]), (&json!("exception"), &json!("OSError")));
    let closed = run("import sys\nsys.stdout.close()");
    assert_eq!(closed.end(), &json!({"kind": "exited", "code": 0}));
    let failed = run("import os\nos.close(1)\nprint('x', end='')\nraise SystemExit(3)");
    assert_eq!(failed.end(), &json!({"kind": "exited", "code": 3}), "the program's own exit code takes precedence");
}

/// A rehearsal has no lasting effect: every snapshot contains its state.
#[test]
fn a_rehearsal_prints_nothing_and_changes_nothing() {
    let before = "import random, sys\nkept = (sys.modules['__main__'], sys.modules.get('atexit'))\n";
    let after = "assert kept == (sys.modules['__main__'], sys.modules.get('atexit'))\n";
    let prelude = [&prelude(), before, REHEARSAL, after].concat();
    let rehearsed = run_after(&prelude, "'frame' in dir(), f'{1 / 2}'", 1 << 10);
    assert_eq!((rehearsed.result(), rehearsed.frames.len()), (json!([false, "0.5"]), 1));
    assert_eq!((rehearsed.stdout(), rehearsed.stderr()), (String::new(), String::new()));
}

#[test]
fn files_that_were_not_closed_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let cases = [
        ("f = open(PATH, 'w'); f.write('text')", "text"),
        ("import csv\ncsv.writer(open(PATH, 'w', newline='')).writerow([1, 2])", "1,2\r\n"),
        ("import io\nf = io.BufferedWriter(io.FileIO(PATH, 'w')); f.write(b'text')", "text"),
        // The object that keeps the file is part of a cycle, or lives in a module.
        ("class A: pass\na = A(); a.me = a; a.f = open(PATH, 'w'); a.f.write('text')", "text"),
        ("import json\njson.f = open(PATH, 'w'); json.f.write('text')", "text"),
        ("f = open(PATH, 'w'); f.write('text'); raise ValueError", "text"),
        ("f = open(PATH, 'w'); f.write('text'); exit(3)", "text"),
    ];
    for (at, (code, expected)) in cases.into_iter().enumerate() {
        let path = path(&at.to_string());
        let ran = run(&code.replace("PATH", &format!("{path:?}")));
        assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{code}: {}", ran.stderr());
    }
    let path = path("zip");
    run(&format!("import zipfile\nz = zipfile.ZipFile({path:?}, 'w'); z.writestr('a', 'b')\nNone"));
    assert_eq!(zip::ZipArchive::new(fs::File::open(path).unwrap()).unwrap().len(), 1);
}

#[test]
fn a_program_that_is_killed_has_shown_its_lines() {
    assert_eq!(run("import os\nprint('step 1 done')\nos._exit(0)").stdout(), "step 1 done\n");
}

#[test]
fn lone_surrogates_become_replacement_characters() {
    let ran = run("print('kept')\n['\\ud800x', {'\\udc80': 1}]");
    assert_eq!((ran.result(), ran.stdout()), (json!(["\u{fffd}x", {"\u{fffd}": 1}]), "kept\n".to_owned()));
    assert!(ran.stderr().contains("lone surrogates") && ran.stderr().lines().count() == 1, "{}", ran.stderr());
    assert_eq!(run("raise ValueError('\\ud800')").end()["message"], "\u{fffd}");
}

#[test]
fn what_models_write_besides_python_is_accepted() {
    let cases = [
        ("```python\n1 + 2\n```\n", ""),
        ("```\n1 + 2\n```", ""),
        ("\u{feff}1 + 2", ""),
        ("%matplotlib inline\n1 + 2", "line 1: `%matplotlib inline` is skipped"),
        ("if True:\n    !pip install polars\n1 + 2", "line 2: `!pip install polars` is skipped: nothing can be"),
        ("import asyncio\nawait asyncio.sleep(0)\nasync def f():\n  return 3\nawait f()", ""),
        ("import asyncio\nx = await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))\nsum(x)", ""),
        ("\n    x = 1\n    if x:\n        x += 2\n    x", ""),
        ("from IPython.display import display, Markdown\nfrom IPython import get_ipython\nget_ipython() or 3", ""),
        ("text = '''\n%d\n''' % 3\nint(text)", ""),
    ];
    for (code, warning) in cases {
        let ran = run(code);
        assert_eq!((ran.end(), ran.result()), (&json!({"kind": "exited", "code": 0}), json!(3)), "{code}");
        let stderr = ran.stderr();
        assert!(stderr.starts_with(warning) && stderr.is_empty() == warning.is_empty(), "{code}: {stderr}");
    }
    assert_eq!(run("display(1 + 2, 'a')").stdout(), "3\n'a'\n");
    let wrong = run("```python\nx = 1\nif x\n```").end().clone();
    assert_eq!((&wrong["type"], &wrong["line"]), (&json!("SyntaxError"), &json!(3)), "lines keep their numbers");
}

#[test]
fn work_for_threads_is_done_at_once() {
    let cases = [
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n  x = sum(pool.map(int, '123'))\nx",
        "from concurrent.futures import ThreadPoolExecutor, as_completed\npool = ThreadPoolExecutor(initializer=print)\n\
         sum(done.result() for done in as_completed([pool.submit(int, c) for c in '123']))",
        "import asyncio\nasync def main(): return sum([await asyncio.to_thread(int, c) for c in '123'])\nasyncio.run(main())",
    ];
    for code in cases {
        let ran = run(code);
        assert_eq!(ran.result(), json!(6), "{code}: {}", ran.end());
    }
    let failed =
        run("from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().submit(int, 'x').result()");
    assert_eq!(failed.end()["type"], "ValueError");
}

#[test]
fn waits_that_no_thread_can_end_are_errors_and_others_end_in_time() {
    for (code, expected) in [
        ("import queue\ntry:\n  queue.Queue().get(timeout=.01)\nexcept queue.Empty:\n  x = 'empty'\nx", json!("empty")),
        ("import queue\nq = queue.SimpleQueue()\nq.put(1)\n[q.get(), q.empty()]", json!([1, true])),
        (
            "import threading\nthreading.Event().wait(.01), threading.Semaphore(0).acquire(timeout=.01)",
            json!([false, false]),
        ),
    ] {
        let ran = run(code);
        assert_eq!(ran.result(), expected, "{code}: {}", ran.end());
    }
    for code in ["import threading\nthreading.Event().wait()", "import queue\nqueue.SimpleQueue().get()"] {
        let end = run(code).end().clone();
        assert_eq!(end["type"], "RuntimeError", "{code}: {end}");
        assert!(end["message"].as_str().unwrap().starts_with("deadlock: ") && end["line"] == 2, "{end}");
    }
}

#[test]
fn exceptions_say_what_is_different_here() {
    let cases = [
        ("import polars", "nothing can be installed here"),
        ("raise RuntimeError(\"can't start new thread\")", "there are no threads here"),
        ("raise OSError(58, 'wasi does not support processes.')", "no other programs"),
        ("from urllib.error import URLError\nraise URLError('unknown url type: https')", "there is no network"),
        ("raise ModuleNotFoundError('no _ssl', name='_ssl')", "there is no network"),
        ("raise OSError('encoder jpeg not available')", "use PNG"),
        ("raise OSError(30, 'Read-only file system')", "/output"),
        ("raise OverflowError('Python int too large to convert to C ssize_t')", "32 bits"),
    ];
    for (code, words) in cases {
        let end = run(code).end().clone();
        assert!(end["message"].as_str().unwrap().contains(words), "{end}");
        assert!(end["traceback"].as_str().unwrap().contains("\nnote: "), "{end}");
    }
    assert_eq!(run("raise ValueError('x')").end()["message"], "x");
}

#[test]
fn an_exception_that_pretends_to_be_an_exit_is_an_exception() {
    for code in [
        "class E(Exception):\n  def __str__(self): raise SystemExit(0)\nraise E",
        "class E(Exception):\n  @property\n  def __traceback__(self): raise SystemExit(0)\nraise E",
        "exec('class ' + 'A' * 2_000_000 + '(Exception): pass\\nraise ' + 'A' * 2_000_000)",
    ] {
        let ran = run(code);
        assert_eq!(ran.end()["kind"], "exception", "{code}");
        assert!(ran.end().to_string().len() < 50_000, "{code}");
    }
}
