//! `from host import tools`, with the tools of `driver.py`.

use serde_json::{Value, json};

use super::{Ran, run};

const IMPORT: &str = "from host import tools, ToolError\nimport asyncio\n";

fn run_with_tools(code: &str) -> Ran {
    run(&[IMPORT, code].concat())
}

/// The operations that a program has requested from the host.
fn operations(ran: &Ran) -> Vec<&str> {
    ran.frames.iter().map(|frame| frame["op"].as_str().unwrap()).collect()
}

#[test]
fn a_tool_is_a_function_that_is_described_when_it_is_first_used() {
    let ran = run_with_tools("[tools.add(a=1, b=2)['sum'] for _ in range(2)] + [tools['add'](2, 1)['sum']]");
    assert_eq!(ran.result(), json!([3, 3, 3]), "{}", ran.stderr());
    assert_eq!(operations(&ran), ["describe", "call", "call", "call", "done"]);
    assert_eq!(ran.frames[0]["identifier"], "add");
    assert_eq!((&ran.frames[1]["args"], &ran.frames[3]["args"]), (&json!({"a": 1, "b": 2}), &json!({"b": 2, "a": 1})));
    assert_eq!(operations(&run_with_tools("dir(tools), repr(tools)")), ["done"], "nothing is listed");
}

#[test]
fn the_value_of_an_effect_that_is_not_made_can_be_passed_on_and_not_be_decided_by() {
    let begin = "made = tools.weather('an effect')\n";
    let cases = [
        ("tools.weather(made)", json!(["weather", {"from": "{{effect:ab:3:}}"}])),
        ("tools.weather.start('here', X_Note=made['id']).result()[1]['X-Note']", json!("{{effect:ab:3:/id}}")),
        ("tools.weather(f\"of {made['a/b~'][0]}\")[1]['from']", json!("of {{effect:ab:3:/a~1b~0/0}}")),
        (
            "[tools.weather.start('an effect').result().get('id'), 'a' + made]",
            json!(["{{effect:ab:3:/id}}", "a{{effect:ab:3:}}"]),
        ),
        ("{'$effect': 1}['$effect']", json!(1)),
    ];
    for (code, expected) in cases {
        let ran = run_with_tools(&[begin, code].concat());
        assert_eq!(ran.result(), expected, "{code}: {}", ran.end());
    }
    for code in [
        "if made: 1",
        "made['n'] > 1",
        "int(made)",
        "made.upper()",
        "[*made]",
        "{made: 1}",
        "made[0:1]",
        "len(made)",
        "made == ''",
    ] {
        let ran = run_with_tools(&[begin, code].concat());
        assert_eq!(ran.end()["type"], "TypeError", "{code}: {}", ran.end());
        assert!(ran.end()["message"].as_str().unwrap().contains("known once the effect is made"), "{}", ran.end());
    }
}

#[test]
fn arguments_are_given_in_the_ways_of_python() {
    let sent = |arguments: Value| json!(["weather", arguments]);
    let cases = [
        ("tools.weather('here')", sent(json!({"from": "here"}))),
        ("tools.weather(from_='here', days=1)", sent(json!({"from": "here", "days": 1}))),
        ("tools.weather('here', X_Note=None)", sent(json!({"from": "here", "X-Note": null}))),
        (
            "tools.weather(**{'from': 'here', 'X-Note': 'a', 'more': 1})",
            sent(json!({"from": "here", "X-Note": "a", "more": 1})),
        ),
        ("tools.weather({'from': 'here'})", sent(json!({"from": "here"}))),
        ("tools.import_(x={1})", json!(["import", {"x": [1]}])),
        (
            "import datetime, decimal, pathlib\ntools['a-b'](d=datetime.date(2026, 1, 2), m=decimal.Decimal('1.5'), p=pathlib.Path('a'))",
            json!(["a-b", {"d": "2026-01-02", "m": 1.5, "p": "a"}]),
        ),
        (
            "import host\ncalls = {'f': getattr(host.tools, 'wea' + 'ther')}\ncalls['f']('here')",
            sent(json!({"from": "here"})),
        ),
        ("from host.tools import weather as w\nw('here')", sent(json!({"from": "here"}))),
    ];
    for (code, expected) in cases {
        let ran = run_with_tools(code);
        assert_eq!(ran.result(), expected, "{code}: {}", ran.end());
    }
    for (code, kind) in [
        ("tools.add(1, 2, 3)", "TypeError"),
        ("tools.add(1, b=2)", "TypeError"),
        ("tools.add(a=object())", "TypeError"),
        ("tools.add(a=float('nan'), b=1)", "ValueError"),
        ("tools.add = 1", "AttributeError"),
    ] {
        let ran = run_with_tools(code);
        assert_eq!(ran.end()["type"], kind, "{code}: {}", ran.end());
        assert!(!operations(&ran).contains(&"call"), "{code}");
    }
}

#[test]
fn two_names_that_are_one_identifier_are_reached_by_their_names_alone() {
    assert_eq!(run_with_tools("[tools['a-b'](), tools['a_b']()]").result(), json!([["a-b", {}], ["a_b", {}]]));
    let ran = run_with_tools("tools.a_b()");
    assert_eq!(ran.end()["type"], "UnknownToolError", "{}", ran.end());
    let found = run_with_tools("[tool['call'] for tool in tools.search('o')]").result();
    assert_eq!(found, json!(["tools.add", "tools.import_", "tools['a-b']", "tools['a_b']"]));
}

#[test]
fn help_shows_types_and_texts() {
    let shown = run_with_tools("help(tools.weather)\nhelp(tools.add)\nhelp(tools.buy)\nhelp(tools)").stdout();
    for part in [
        "weather(from_: str, days: int = 3, units: Literal['metric', 'imperial'] = ..., X_Note: str | None = ...) -> Any",
        "from_ (str) (sent as 'from')",
        "add(b: float, a: float) -> dict",
        "a (float): The first.",
        "sum (float)",
        "    lines (list[dict])\n        sku (str)\n        unit (Literal['kg', 'pc'], 'pc' by default)\n        \
         parts (list[dict] | None, optional)\n            id (int)\n",
        "Returns list[dict] with:\n    price (float)",
        "tools.search(",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn the_schemas_of_a_tool_can_be_read() {
    let ran = run_with_tools(
        "[tools.schema('add')['input']['required'], tools.schema(tools.add)['output'], tools.schema('a-b')]",
    );
    let output = json!({"type": "object", "properties": {"sum": {"type": "number"}}});
    assert_eq!(
        ran.result(),
        json!([["b", "a"], output, {"input": {"type": "object"}, "output": null}]),
        "{}",
        ran.end()
    );
    assert_eq!(run_with_tools("tools.schema('nope')").end()["type"], "UnknownToolError");
}

#[test]
fn refusals_are_exceptions_with_code_message_and_wait() {
    let caught = "try:\n  tools.add(a=1, b=0)\nexcept ToolError as error:\n  kept = [error.code, error.message, error.retry_after]\nkept";
    assert_eq!(run_with_tools(caught).result(), json!(["rate_limited", "too many calls", 1.5]));
    let ran = run_with_tools("tools.add(a=1, b=0)");
    let traceback = ran.end()["traceback"].as_str().unwrap();
    assert!(traceback.contains("host.ToolError: rate_limited") && !traceback.contains("_sekisho"), "{traceback}");
    assert_eq!(ran.end()["line"], 3);
    let detailed = "tools.weather('nowhere')";
    let message = run_with_tools(detailed).end()["message"].as_str().unwrap().to_owned();
    let expected = "invalid_arguments: wrong\n- /from: `from` must be one of \"here\"; did you mean \"here\"?";
    assert_eq!(message, expected, "with the values that are allowed");
    let unknown = "[hasattr(tools, 'nope'), hasattr(tools, '__len__'), getattr(tools, 'nope', 7)]";
    assert_eq!(run_with_tools(unknown).result(), json!([false, false, 7]));
}

#[test]
fn a_tool_that_is_called_in_another_way_is_shown_with_its_call() {
    for (code, note) in [
        ("tools.add(1, 2)", "after `from host import tools`"),
        ("import tools", "after `from host import tools`"),
        ("call_tool('add', {})", "after `from host import tools`"),
        ("add(a=1, b=2)", "'add' is a tool: call it as tools.add(...), after `from host import tools`"),
    ] {
        let ran = run(code);
        let (message, traceback) = (&ran.end()["message"], &ran.end()["traceback"]);
        assert!(message.as_str().unwrap().contains(note) && traceback.as_str().unwrap().contains(note), "{message}");
        assert!(!traceback.as_str().unwrap().contains("Did you mean"), "{traceback}");
    }
    let other = run("ad(1)");
    assert_eq!(other.end()["message"], "name 'ad' is not defined", "{}", other.end());
    assert_eq!(operations(&other), ["describe", "done"]);
}

#[test]
fn calls_run_in_parallel() {
    let sums = |count: usize| Value::from_iter((0..count).map(|n| n + 2));
    let in_sync = "[r['sum'] for r in tools.gather(*[tools.add(a=i, b=2) for i in range(50)])]";
    let awaited = "[r['sum'] for r in await asyncio.gather(*[tools.add(a=i, b=2) for i in range(50)])]";
    let made_before =
        "calls = [tools.add(a=i, b=2) for i in range(50)]\n[r['sum'] for r in await asyncio.gather(*calls)]";
    let tasks = "async def main():\n  async with asyncio.TaskGroup() as group:\n    \
                 tasks = [group.create_task(tools.add(a=i, b=2)) for i in range(50)]\n  \
                 return [task.result()['sum'] for task in tasks]\nasyncio.run(main())";
    for code in [in_sync, awaited, made_before, tasks] {
        let ran = run_with_tools(code);
        assert_eq!(ran.result(), sums(50), "{code}: {}", ran.end());
        let asked = operations(&ran);
        assert_eq!(asked[1..33], ["start"; 32], "{code}");
        assert_eq!(asked.iter().filter(|operation| **operation == "start").count(), 50, "{code}");
    }
    let large = "[r[1]['size'] for r in tools.gather(*[tools['a-b'](size=i) for i in (4, 6, 8, 3)])]";
    assert_eq!(run_with_tools(large).result(), json!([4, 6, 8, 3]), "what does not fit beside others waits for them");
    let too_large =
        "[type(r).__name__ for r in tools.gather(tools['a-b'](size=4), tools['a-b'](size=11), return_exceptions=True)]";
    assert_eq!(run_with_tools(too_large).result(), json!(["list", "ToolError"]));
    let mixed = "async def tick():\n  for _ in range(5): await asyncio.sleep(.001)\n  return 'ticked'\n\
                 await asyncio.gather(tick(), tools.add(a=1, b=1), tools.gather(tools.add(a=1, b=2), 7))";
    assert_eq!(run_with_tools(mixed).result(), json!(["ticked", {"sum": 2}, [{"sum": 3}, 7]]));
    let failing =
        "r = tools.gather(tools.add(a=1, b=2), tools.add(a=3, b=0), return_exceptions=True)\n[r[0], r[1].code]";
    assert_eq!(run_with_tools(failing).result(), json!([{"sum": 3}, "rate_limited"]));
    assert_eq!(run_with_tools("tools.add.start(a=1, b=2).result()").result(), json!({"sum": 3}));
    let no_json = "calls = [tools.add.start(a=1, b=2) for _ in range(33)]\ntry:\n  \
                   tools.add.start(a=float('nan'), b=2)\nexcept ValueError:\n  calls = [call.result() for call in calls]\n\
                   len(calls), calls[0]";
    let expected = json!([33, {"sum": 3}]);
    assert_eq!(run_with_tools(no_json).result(), expected, "refused where it is made, not in the wait for another");
}

/// In place of pandas, which this machine may not have.
const PANDAS: &str = "import sys, types\n\
    class DataFrame(dict): pass\n\
    pandas = types.ModuleType('pandas')\n\
    pandas.DataFrame, pandas.array = DataFrame, lambda values, dtype: [dtype, *values]\n\
    pandas.Series = lambda values, dtype: [dtype.__name__, *values]\n\
    sys.modules['pandas'] = pandas\n\
    def shown(handle):\n  value = tools.result(handle)\n  return [type(value).__name__, value]\n";

#[test]
fn a_stored_result_is_opened_as_values() {
    let ran = run_with_tools("[tools.result('rows'), tools.result('object')['rows'][0]['n'], tools.result('csv')[:6]]");
    let rows = json!([{"city": "Bern", "n": 1}, {"city": "Kyoto", "n": null}]);
    assert_eq!(ran.result(), json!([rows, 1, "city,n"]), "{}", ran.end());
    assert_eq!(operations(&ran), ["call", "call", "call", "done"]);
    assert_eq!(ran.frames[0]["args"], json!({"handle": "rows", "whole": true}));
    let unknown = "try:\n  tools.result('none')\nexcept ToolError as error:\n  kept = error.code\nkept";
    assert_eq!(run_with_tools(unknown).result(), "unknown_result");
    for code in [
        "await tools.result('numbers')",
        "await tools.gather(tools.result('numbers'), tools.add(a=1, b=2))",
        "tools.gather(tools.result('numbers'), tools.add(a=1, b=2))",
    ] {
        let ran = run_with_tools(code);
        let result = ran.result();
        let opened = if code.contains("gather") { &result[0] } else { &result };
        assert_eq!(opened, &json!([1, {"n": 2}]), "{code}: {}", ran.end());
    }
}

#[test]
fn with_pandas_tables_are_opened_as_data_frames() {
    let cases = [
        ("rows", json!(["DataFrame", {"city": ["Bern", "Kyoto"], "n": ["Int64", 1, null]}])),
        ("csv", json!(["DataFrame", {"city": ["Bern, old", "Kyoto"], "n": [1, 2]}])),
        ("semicolons", json!(["DataFrame", {"city": ["Bern"], "n": ["1,5"]}])),
        ("numbers", json!(["list", [1, {"n": 2}]])),
        ("object", json!(["dict", {"rows": [{"n": 1}]}])),
        ("prose", json!(["str", "First, a line.\nThen another one.\n"])),
        ("repeated", json!(["str", "a,a\n1,2\n"])),
        ("head", json!(["str", "city,n\n"])),
        ("quote", json!(["str", "city,n\n\"Bern\"x,1\n"])),
        ("empty", json!(["str", ""])),
    ];
    for (handle, expected) in cases {
        let ran = run_with_tools(&format!("{PANDAS}shown('{handle}')"));
        assert_eq!(ran.result(), expected, "{handle}: {}", ran.end());
    }
    let late = run_with_tools(&format!("{PANDAS}shown('late')[0]"));
    assert_eq!(late.result(), "str", "what is no CSV further on stays a text");
}

#[test]
fn no_value_of_a_table_is_another_one_in_its_data_frame() {
    let codes = json!({
        "zip": ["00001", "10115"],
        "country": ["NA", ""],
        "iban": ["12345678901234567", "98765432109876543"],
        "version": ["1.9", "1.10"],
        "share": [0.300_000_000_000_000_04, 2.0],
        "price": [12.5, 3.0],
        "active": [true, false],
        "n": ["Int64", 7, null],
        "empty": ["", ""],
    });
    let ids = json!({
        "v": [0, 1, 2, 3],
        "price": [1, 2.5, null, null],
        "open": ["boolean", true, null, null, null],
        "any": ["object", 1, "x", null, null],
        "id": ["Int64", null, {"$type": "int", "value": "9007199254740995"}, null, null],
        "large": ["object", null, null, {"$type": "int", "value": "9223372036854775808"}, null],
        "sum": ["object", null, null, {"$type": "int", "value": "9007199254740993"}, 0.5],
    });
    for (handle, expected) in [("codes", codes), ("ids", ids)] {
        let ran = run_with_tools(&format!("{PANDAS}dict(tools.result('{handle}'))"));
        assert_eq!(ran.result(), expected, "{handle}: {}", ran.end());
    }
}

#[test]
fn code_that_awaits_is_told_to_await_calls() {
    let ran = run_with_tools("x = tools.add(a=1, b=2)\nx['sum']\nawait tools.add(a=1, b=2)");
    assert!(ran.end()["message"].as_str().unwrap().contains("`await tools.NAME(...)`"), "{}", ran.end());
    let inner = "def plain():\n  return tools.add(a=1, b=2)['sum']\nawait asyncio.sleep(0)\nplain()";
    assert_eq!(run_with_tools(inner).result(), json!(3), "a plain function gets results");
}

#[test]
fn a_finalizer_can_call_tools_until_the_program_has_ended() {
    let code = "class Late:\n  def __del__(self): print(tools.add(a=1, b=1))\nlate = Late()\n5";
    let ran = run_with_tools(code);
    assert_eq!((ran.result(), ran.stdout()), (json!(5), "{'sum': 2}\n".to_owned()), "{}", ran.stderr());
}
