//! Programs of one session, one after the other in one interpreter.

use super::*;

/// The frames of the programs' ends.
fn session(programs: &[&str]) -> Vec<Value> {
    let (first, further) = programs.split_first().unwrap();
    let ran = run_all(&prelude(), first, 256 << 10, further, None);
    let frames: Vec<_> = ran.frames.iter().filter(|frame| frame["op"] == "done").cloned().collect();
    assert_eq!(frames.len(), programs.len(), "{}", ran.stderr());
    frames
}

fn result(frame: &Value) -> Value {
    frame["result"].as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

#[test]
fn variables_imports_and_functions_are_there_in_the_next_call() {
    let ended = session(&[
        "import math\nx = 41\ndef add(n):\n    global x\n    x += n\n    return x",
        "add(1)",
        "raise SystemExit(3)",
        "1 / 0",
        "[x, math.floor(2.5), add.__module__, __name__]",
    ]);
    assert_eq!(result(&ended[1]), 42);
    assert_eq!((&ended[2]["end"]["code"], &ended[3]["end"]["type"]), (&json!(3), &json!("ZeroDivisionError")));
    assert_eq!(result(&ended[4]), json!([42, 2, "__main__", "__main__"]));
}

#[test]
fn a_traceback_shows_the_lines_of_the_call_that_defined_the_function() {
    let ended = session(&["\n\ndef divide(n):\n    return 1 // n", "x = 1\ndivide(0)"]);
    let end = &ended[1]["end"];
    let traceback = end["traceback"].as_str().unwrap();
    for line in ["File \"<code 2>\", line 2", "File \"<code 1>\", line 4", "return 1 // n"] {
        assert!(traceback.contains(line), "{traceback}");
    }
    assert_eq!((&end["line"], &end["column"]), (&json!(2), &json!(1)), "of this call's program");
}

#[test]
fn random_numbers_go_on_from_call_to_call() {
    let ended = session(&[
        "import random\nrandom.seed(1)\nrandom.random()",
        "random.random()",
        "random.seed(1)\nrandom.random(), random.random()",
    ]);
    let numbers = result(&ended[2]);
    assert_eq!(json!([result(&ended[0]), result(&ended[1])]), numbers);
}

#[test]
fn random_numbers_of_a_copy_are_others() {
    let ended = session(&[
        "import random\nrandom.seed(1)\nrandom.random()",
        "# copy\nrandom.random()",
        "random.seed(1)\nrandom.random(), random.random()",
    ]);
    let numbers = result(&ended[2]);
    assert_eq!(result(&ended[0]), numbers[0]);
    assert_ne!(result(&ended[1]), numbers[1]);
}

#[test]
fn files_that_are_open_stay_open_and_are_complete_after_each_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept");
    let open = format!("f = open({path:?}, 'w'); _ = f.write('a')");
    let ended = session(&[&open, &format!("open({path:?}).read()"), "f.write('b')", &format!("open({path:?}).read()")]);
    assert_eq!([1, 3].map(|at| result(&ended[at])), [json!("a"), json!("ab")]);
}

#[test]
fn a_call_of_a_tool_ends_with_the_call_that_started_it() {
    let ended = session(&[
        "from host import tools\nleft = tools.add.start(a=1, b=2)",
        "try:\n    left.result()\nexcept Exception as error:\n    code = error.code\n[code, tools.add(a=2, b=2)]",
    ]);
    assert_eq!(result(&ended[1]), json!(["cancelled", {"sum": 4}]));
}

#[test]
fn a_call_that_waits_in_a_closed_loop_ends_with_its_program_too() {
    let closed = "import asyncio\nfrom host import tools\nasync def wait():\n    return await tools.add(a=1, b=2)\n\
                  loop = asyncio.new_event_loop()\ntask = loop.create_task(wait())\n\
                  loop.run_until_complete(asyncio.sleep(0))\nloop.close()\n'ended'";
    let ended = session(&[closed, "[sum['sum'] for sum in tools.gather(tools.add(a=5, b=2), tools.add(a=1, b=1))]"]);
    assert_eq!([0, 1].map(|at| result(&ended[at])), [json!("ended"), json!([7, 2])]);
}

/// Methods of the program's classes, and of their classes, would raise.
#[test]
fn variables_are_listed_without_running_code_of_the_program() {
    let hostile = "class Meta(type):\n    def __getattribute__(kind, name): raise KeyboardInterrupt\n\
                   class Bad(metaclass=Meta):\n    __sizeof__ = __class__ = __repr__ = property(lambda value: 1 / 0)\n\
                   class Name(str):\n    __hash__ = str.__hash__\n    def __eq__(self, other): raise KeyboardInterrupt\n\
                   bad, text = Bad(), 'é' * 100\nglobals()[Name('hidden')] = 1\n_own = [1] * 1000\n'\\ud800'";
    let many = "for n in range(2000): globals()[f'v{n}'] = n\n_ = 'a' * 10\nglobals()['n' * 500] = 1";
    let ended = session(&[hostile, "# inspect", many, "# inspect"]);
    let listed = result(&ended[1]);
    let found = |name: &str| {
        let all = listed["variables"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).cloned().unwrap_or_else(|| panic!("no {name}: {listed}"))
    };
    assert_eq!((&found("bad")["type"], &found("text")["type"]), (&json!("Bad"), &json!("str")));
    assert!(found("_own")["size_bytes"].as_u64() > Some(4_000) && found("bad")["size_bytes"].as_u64() < Some(100));
    assert_eq!(listed["truncated"], false);
    assert!(!listed.to_string().contains("hidden") && !listed.to_string().contains("__name__"), "{listed}");
    let listed = result(&ended[3]);
    assert_eq!((listed["variables"].as_array().unwrap().len(), &listed["truncated"]), (1_000, &json!(true)));
}
