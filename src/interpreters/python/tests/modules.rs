//! Modules whose functions are tools: their description, and calls of their functions.

mod field;
mod tried;

use super::*;
use sekisho_guest_protocol::{FunctionCall, ModuleTask};

const FILE: &str = "weather.py";

const WEATHER: &str = r#"
"""The weather."""
import datetime as dt
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Literal, NotRequired, Optional, TypedDict
from host import settings, tool, tools

class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"

@dataclass
class Place:
    """A place on earth."""
    latitude: float
    tags: set[str] = field(default_factory=set)

class Report(TypedDict):
    city: str
    day: NotRequired[dt.date]

Days = Annotated[int, "How many days."]

@tool(name="current", cost_usd=0.001, rate_limit=5, timeout_seconds=3, labels=["a"], dangerous=True, needs=["add"])
async def now(city: str, unit: Unit = Unit.C, place: Optional[Place] = None, days: Days = 3, *,
              since: dt.datetime | None = None, kind: Literal["a", 2] = "a", pair: tuple[int, str] = (1, "x")) -> Report:
    """The weather now.

    Measured.

    Args:
        city (str): The city,
            with its country.

    Returns:
        Report: What was measured.
    """
    sum = await tools.add(a=days, b=1)
    kinds = [type(value).__name__ for value in (unit, place, since, pair)]
    return {"city": f"{city} {kinds} {sum['sum']} {settings['x']}", "day": dt.date(2026, 1, 2)}

def divide(by: int) -> int:
    return _divided(by)

def _divided(by):
    return 1 // by

def leaves(code: int) -> None:
    raise SystemExit(code)

def calls_another() -> int:
    return tools.weather()

def returns(what: str) -> object:
    return {"nan": float("nan"), "set": {1}, "place": Place(1.5), "keys": {(1, 2): 2}, "class": Unit, "unit": Unit.F}[what]

def helper(x):
    return x
"#;

fn run_module(code: &str, task: &ModuleTask) -> Ran {
    let task = serde_json::to_string(task).unwrap();
    run_all(&prelude(), code, 256 << 10, &[], Some(&task))
}

fn read(code: &str) -> Value {
    read_with(code, "{}")
}

/// With the sources of shared modules, as JSON.
fn read_with(code: &str, shared: &str) -> Value {
    run_module(code, &ModuleTask::Read { file: FILE.to_owned(), shared: shared.to_owned() }).result()
}

fn call(function: &str, arguments: &Value, needs: &[&str]) -> Ran {
    call_of(WEATHER, function, arguments, needs)
}

fn call_of(code: &str, function: &str, arguments: &Value, needs: &[&str]) -> Ran {
    let call = FunctionCall {
        file: FILE.to_owned(),
        function: function.to_owned(),
        arguments: arguments.to_string(),
        settings: r#"{"x": "y"}"#.to_owned(),
        shared: "{}".to_owned(),
        needs: needs.iter().map(|tool| (*tool).to_owned()).collect(),
        converts: true,
    };
    run_module(code, &ModuleTask::Call(call))
}

#[test]
fn annotations_and_docstrings_are_schemas() {
    let found = read(WEATHER);
    assert_eq!(found["problems"], json!([]));
    let names: Vec<_> = found["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["current", "divide", "leaves", "calls_another", "returns"]);
    let place = json!({
        "type": "object",
        "description": "A place on earth.",
        "properties": {
            "latitude": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
        },
        "required": ["latitude"],
        "additionalProperties": false,
    });
    let expected = json!({
        "function": "now", "name": "current", "line": 26, "description": "The weather now.\n\nMeasured.",
        "cost_usd": "0.001", "rate_limit": 5, "timeout_seconds": 3, "labels": ["a"], "dangerous": true, "needs": ["add"],
        "converts": true,
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city, with its country."},
                "unit": {"enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "place": {"anyOf": [place, {"type": "null"}], "default": null},
                "days": {"type": "integer", "description": "How many days.", "default": 3},
                "since": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": null},
                "kind": {"enum": ["a", 2], "default": "a"},
                "pair": {
                    "type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2,
                    "default": [1, "x"],
                },
            },
            "required": ["city"],
            "additionalProperties": false,
        },
        "output": {
            "type": "object",
            "description": "What was measured.",
            "properties": {"city": {"type": "string"}, "day": {"type": "string", "format": "date"}},
            "required": ["city"],
            "additionalProperties": false,
        },
    });
    assert_eq!(found["tools"][0], expected);
    assert_eq!((&found["tools"][1]["converts"], &found["tools"][1]["description"]), (&json!(false), &json!("Divide")));
}

#[test]
fn docstrings_of_every_form_describe_parameters() {
    let google = "What it does.\n\n    Args:\n        x (int): The number\n            of days.\n        *more: Others.\n\n    \
                  Returns:\n        The sum.\n\n    Raises:\n        ValueError: never.\n";
    let numpy = "What it does.\n\n    Parameters\n    ----------\n    x : int\n        The number\n        of days.\n    y, z : \
                 str\n        Others.\n\n    Returns\n    -------\n    int\n        The sum.\n";
    let rest = "What it does.\n\n    :param int x: The number\n        of days.\n    :type x: int\n    :returns: The sum.\n    \
                :raises ValueError: never.\n";
    for documentation in [google, numpy, rest] {
        let source = format!("def f(x: int) -> int:\n    \"\"\"{documentation}    \"\"\"\n    return x\n");
        let tool = read(&source)["tools"][0].clone();
        assert_eq!(tool["description"], "What it does.", "{documentation}");
        assert_eq!(tool["parameters"]["properties"]["x"]["description"], "The number of days.", "{documentation}");
        assert_eq!(tool["output"]["description"], "The sum.", "{documentation}");
    }
}

#[test]
fn colons_and_brackets_in_docstrings_are_text() {
    let source = "def f(x: dict) -> list:\n    \"\"\"What it does.\n\n    Args:\n        \
                  x (dict(str, int), optional): Rates: by code.\n\n    Returns:\n        \
                  The values in order: first the largest.\n    \"\"\"\n";
    let tool = read(source)["tools"][0].clone();
    assert_eq!(tool["parameters"]["properties"]["x"]["description"], "Rates: by code.", "{tool}");
    assert_eq!(tool["output"]["description"], "The values in order: first the largest.", "{tool}");
    let table = "| a ".repeat(1_000);
    let long = format!("a{table}");
    for (result, says) in [
        ("dict[str, int] | None: The sum.", "The sum."),
        ("list: a: b", "a: b"),
        (table.trim(), table.trim()),
        (long.trim(), long.trim()),
    ] {
        let source = format!("def f() -> object:\n    '''What it does.\n\n    Returns:\n        {result}\n    '''\n");
        assert_eq!(read(&source)["tools"][0]["output"]["description"], says);
    }
}

#[test]
fn an_annotated_member_of_an_enum_is_one() {
    let source = "import enum\nclass Unit(enum.Enum):\n    C: str = 'c'\n    F = 'f'\n\
                  def f(unit: Unit) -> str:\n    return 'x'\n";
    assert_eq!(read(source)["tools"][0]["parameters"]["properties"]["unit"], json!({"enum": ["c", "f"]}));
}

#[test]
fn public_names_are_those_of_all_if_there_is_one() {
    let functions =
        "def one() -> int:\n    return 1\ndef two() -> int:\n    return 2\ndef _three() -> int:\n    return 3\n";
    let names = |code: &str| {
        let found = read(code);
        let tools = found["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        tools.collect::<Vec<_>>()
    };
    assert_eq!(names(functions), ["one", "two"]);
    assert_eq!(names(&format!("__all__ = ['two']\n{functions}")), ["two"]);
}

#[test]
fn a_call_gets_values_of_the_types_that_it_names_and_gives_json() {
    let arguments = json!({"city": "Bern", "unit": "fahrenheit", "place": {"latitude": 1, "tags": ["a"]}, "pair": [1, "x"],
        "since": "2026-01-02T03:04:05Z"});
    let ran = call("now", &arguments, &["add"]);
    let city = "Bern ['Unit', 'Place', 'datetime', 'tuple'] 4 y";
    assert_eq!(ran.result(), json!({"value": {"city": city, "day": "2026-01-02"}}), "{}", ran.stderr());
    for (what, expected) in
        [("set", json!([1])), ("place", json!({"latitude": 1.5, "tags": []})), ("unit", json!("fahrenheit"))]
    {
        assert_eq!(call("returns", &json!({"what": what}), &[]).result(), json!({"value": expected}), "{what}");
    }
    for (what, says) in
        [("nan", "the number nan"), ("keys", "a key of type tuple"), ("class", "a value of type EnumType")]
    {
        let ran = call("returns", &json!({"what": what}), &[]);
        assert!(ran.end()["message"].as_str().unwrap().contains(says), "{what}: {}", ran.end());
    }
}

const SHAPES: &str = r#"
from dataclasses import dataclass
from typing import Literal, TypedDict

@dataclass
class Circle:
    kind: Literal["circle"]
    size: float

@dataclass
class Square:
    kind: Literal["square"]
    size: float

class Row(TypedDict):
    row: int

def kind_of(shape: Circle | Square | list[Circle] | list[Square] | dict[str, Square] | Row) -> str:
    first = shape[0] if isinstance(shape, list) else shape.get("x", shape) if isinstance(shape, dict) else shape
    return type(first).__name__
"#;

#[test]
fn a_member_of_a_union_is_chosen_by_all_that_the_value_has() {
    let (circle, square) = (json!({"kind": "circle", "size": 1}), json!({"kind": "square", "size": 1}));
    for (shape, expected) in [
        (circle.clone(), "Circle"),
        (square.clone(), "Square"),
        (json!([circle]), "Circle"),
        (json!([square]), "Square"),
        (json!({"x": square}), "Square"),
        (json!({"row": 1}), "dict"),
    ] {
        let ran = call_of(SHAPES, "kind_of", &json!({"shape": shape}), &[]);
        assert_eq!(ran.result(), json!({"value": expected}), "{shape} {}", ran.stderr());
    }
}

#[test]
fn numbers_and_texts_that_json_does_not_have_are_in_no_schema_and_no_result() {
    let source = "\u{feff}from typing import Any\n\
                  def f(x: Any = b'a', y: float = 1e999, z: int = 10, n: None = None) -> int:\n    \
                  'What \\ud800 it does.'\n    return 2 ** z\n";
    let tool = read(source)["tools"][0].clone();
    let expected = json!({"x": {}, "y": {"type": "number"}, "z": {"type": "integer", "default": 10},
        "n": {"type": "null", "default": null}});
    assert_eq!(tool["parameters"]["properties"], expected);
    assert_eq!(tool["description"], "What \u{fffd} it does.");
    assert_eq!(call_of(source, "f", &json!({"z": 63}), &[]).result(), json!({"value": 1_u64 << 63}));
    let ran = call_of(source, "f", &json!({"z": 64}), &[]);
    assert!(ran.end()["message"].as_str().unwrap().contains("the integer of 65 bits"), "{}", ran.end());
}

#[test]
fn an_argument_that_its_type_does_not_admit_is_named() {
    let ran = call("now", &json!({"city": "Bern", "since": "never"}), &["add"]);
    assert_eq!(ran.result()["invalid"]["path"], "/since", "{}", ran.stderr());
    let ran = call("now", &json!({"city": "Bern", "place": {"latitude": 1, "other": 2}}), &["add"]);
    assert_eq!(ran.result()["invalid"]["path"], "/place");
}

#[test]
fn a_failure_shows_the_line_in_the_file_and_none_of_its_text() {
    let ran = call("divide", &json!({"by": 0}), &[]);
    let end = ran.end();
    assert_eq!((&end["type"], &end["line"], &end["column"]), (&json!("ZeroDivisionError"), &json!(47), &json!(null)));
    let traceback = end["traceback"].as_str().unwrap();
    assert!(
        traceback.contains("File \"weather.py\", line 44, in divide") && !traceback.contains("1 //"),
        "{traceback}"
    );
    let ran = call("leaves", &json!({"code": 3}), &[]);
    assert_eq!((ran.end(), ran.result()), (&json!({"kind": "exited", "code": 3}), Value::Null));
}

#[test]
fn tools_that_a_function_does_not_name_are_refused_with_what_to_write() {
    let ran = call("calls_another", &json!({}), &["add"]);
    let message = ran.end()["message"].as_str().unwrap();
    assert!(message.contains("does not say that it needs weather: write @tool(needs=[\"weather\"])"), "{message}");
    assert_eq!(ran.frames.len(), 1, "the host is not asked");
}

#[test]
fn broken_files_say_where_and_what_to_write() {
    let cases: Vec<Value> = serde_saphyr::from_str(include_str!("../../../../tests/python_tools/broken.yaml")).unwrap();
    assert!(cases.len() >= 60, "{}", cases.len());
    for case in cases.iter().filter(|case| case["needs_interpreter"] != true) {
        let repeated = &case["repeat"];
        let source = match repeated["times"].as_u64() {
            Some(times) => {
                let text = |name: &str| repeated[name].as_str().unwrap();
                text("before").to_owned() + &text("text").repeat(usize::try_from(times).unwrap())
            }
            None => case["source"].as_str().unwrap().to_owned(),
        };
        let shared = if case["shared"].is_null() { "{}".to_owned() } else { case["shared"].to_string() };
        let found = read_with(&source, &shared);
        let problem = match case["stage"].as_str() {
            None => {
                assert_eq!(found["problems"].as_array().unwrap().len(), 1, "{case}\n{found}");
                assert_eq!(found["problems"][0]["function"], case["function"], "{found}");
                found["problems"][0].clone()
            }
            Some(_) => {
                let functions =
                    found["tools"].as_array().unwrap().iter().map(|tool| tool["function"].as_str().unwrap());
                let functions = functions.map(str::to_owned).collect();
                let task = ModuleTask::Try { file: FILE.to_owned(), functions, settings: "{}".to_owned(), shared };
                let ran = run_module(&source, &task);
                // The gateway has its own message for an end without an exception.
                if ran.end()["kind"] == "exited" {
                    assert!(ran.end()["code"] != 0 || ran.result()["missing"] == json!(["now"]), "{case}");
                    continue;
                }
                json!({"line": ran.end()["line"], "message": format!("{}: {}", ran.end()["type"].as_str().unwrap(),
                    ran.end()["message"].as_str().unwrap())})
            }
        };
        if !case["line"].is_null() {
            assert_eq!(problem["line"], case["line"], "{case}\n{problem}");
        }
        for says in case["says"].as_array().unwrap() {
            assert!(problem["message"].as_str().unwrap().contains(says.as_str().unwrap()), "{case}\n{problem}");
        }
    }
}
