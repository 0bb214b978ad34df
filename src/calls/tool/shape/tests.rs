use serde_json::json;

use super::*;
use crate::tool::tests::{Silent, tool_with};
use crate::tool::{Aliases, Metadata};
use sekisho_config::{PreparedShape, prepared_names, prepared_server};
use sekisho_core::call::McpResult;

fn shape(changes: Value) -> Option<Arc<Shape>> {
    let changes: ToolOverride = serde_json::from_value(changes).unwrap();
    Shape::compile("issues", &changes, Some(&known())).unwrap().map(Arc::new)
}

/// Values that were read for arguments of the tool.
fn known() -> BTreeMap<String, Vec<Value>> {
    [("repo".to_owned(), vec![json!("a/b"), json!("c/d")])].into()
}

fn shaped(changes: Value, parameters: Value, output: Option<Value>) -> Result<Tool, InvalidSchema> {
    let metadata = Metadata { name: "issues".into(), ..Metadata::default() };
    tool_with(metadata, parameters, output).with_shape(shape(changes))
}

/// The parameters of a tool that lists issues.
fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "repo": {"$ref": "#/$defs/Name"},
            "state": {"enum": ["open", "closed"]},
            "limit": {"type": "integer", "maximum": 50},
            "query": {"type": "string"},
        },
        "required": ["repo", "limit"],
        "anyOf": [{"required": ["repo", "query"]}, {"required": ["repo", "state"]}],
        "$defs": {"Name": {"type": "string"}},
    })
}

fn fixed() -> Tool {
    shaped(json!({"fix": {"repo": "a/b"}, "defaults": {"limit": 5}}), parameters(), None).unwrap()
}

/// The arguments as policies see them and as they are sent.
fn sent(tool: &Tool, arguments: &Value) -> Result<Value, CallError> {
    let valid = tool.valid_arguments(arguments.as_object().cloned().unwrap(), &Map::new())?;
    assert_eq!(valid.as_map(), valid.sent());
    Ok(Value::Object(valid.sent().clone()))
}

#[test]
fn a_fixed_argument_is_sent_and_not_offered() {
    let tool = fixed();
    let offered = tool.input.document();
    let mut names: Vec<_> = offered["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["limit", "query", "state"]);
    assert_eq!((&offered["required"], &offered["properties"]["limit"]["default"]), (&json!([]), &json!(5)));
    assert_eq!((&offered["additionalProperties"], offered.get("anyOf")), (&json!(false), None));
    let complete = json!({"query": "x", "limit": 5, "repo": "a/b"});
    assert_eq!(sent(&tool, &json!({"query": "x"})).unwrap(), complete);
    assert_eq!(sent(&tool, &complete).unwrap(), complete, "a completed call is the same when it comes again");
    assert_eq!(sent(&tool, &json!({"query": "x", "limit": 7})).unwrap()["limit"], 7);
}

#[test]
fn nobody_gives_a_fixed_argument_another_value() {
    let tool = fixed();
    for (arguments, problem) in [
        (json!({"query": "x", "repo": "c/d"}), "takes no argument `repo`"),
        (json!({"issues": {"query": "x", "repo": "c/d"}}), "invalid arguments"),
        (json!({"query": "x", "repository": "c/d"}), "invalid arguments"),
        // The rules of the source for the whole hold too.
        (json!({}), "invalid arguments"),
        (json!({"query": "x", "limit": 51}), "invalid arguments"),
    ] {
        let error = sent(&tool, &arguments).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArguments);
        assert!(error.message().contains(problem), "{arguments}: {error}");
    }
}

#[test]
fn an_alias_of_a_fixed_argument_sets_nothing() {
    let names = [("Repo".to_owned(), "repo".to_owned()), ("Query".to_owned(), "query".to_owned())].into();
    let aliases = Aliases { names, ..Aliases::default() };
    let schema = crate::tool::ArgumentSchema::compile(parameters()).unwrap().with_aliases(aliases);
    let input = InputSchema::compile("issues", crate::tool::Parameters::Compiled(Arc::new(schema)), true).unwrap();
    let mut tool = tool_with(Metadata { name: "issues".into(), ..Metadata::default() }, json!({}), None);
    tool.input = input;
    let tool = tool.with_shape(shape(json!({"fix": {"repo": "a/b", "limit": 1}}))).unwrap();
    let found = sent(&tool, &json!({"Query": "x"})).unwrap();
    assert_eq!(found, json!({"query": "x", "repo": "a/b", "limit": 1}));
    assert!(sent(&tool, &json!({"query": "x", "Repo": "c/d"})).is_err());
}

#[test]
fn values_that_the_source_does_not_allow_are_refused() {
    for (changes, problem) in [
        (json!({"fix": {"owner": "a"}}), "`tools.overrides.issues.fix` names \"owner\""),
        (json!({"defaults": {"owner": "a"}}), "`tools.overrides.issues.defaults` names \"owner\""),
        (json!({"fix": {"repo": 1}}), "`fix` or `defaults`"),
        (json!({"fix": {"limit": "5"}}), "/limit has another type"),
        (json!({"defaults": {"limit": 51}}), "`fix` or `defaults`"),
    ] {
        let error = shaped(changes.clone(), parameters(), None).unwrap_err();
        assert!(error.to_string().contains(problem), "{changes}: {error}");
    }
}

#[test]
fn values_of_another_tool_are_offered_while_they_are_known() {
    let enumerate = |argument: &str| json!({"enumerate": {argument: {"tool": "repos", "path": "[*].name"}}});
    let tool = shaped(enumerate("repo"), parameters(), None).unwrap();
    assert_eq!(tool.input.document()["properties"]["repo"]["enum"], json!(["a/b", "c/d"]));
    let arguments = |repo: &str| json!({"repo": repo, "limit": 5, "query": "x"});
    assert_eq!(sent(&tool, &arguments("c/d")).unwrap(), arguments("c/d"));
    assert_eq!(sent(&tool, &arguments("e/f")).unwrap_err().code(), ErrorCode::InvalidArguments);
    // Without values, the schema has none and any is sent.
    let unknown = shaped(enumerate("query"), parameters(), None).unwrap();
    assert_eq!(unknown.input.document()["properties"]["query"].get("enum"), None);
    assert_eq!(sent(&unknown, &arguments("e/f")).unwrap(), arguments("e/f"));
    let error = shaped(enumerate("owner"), parameters(), None).unwrap_err();
    assert!(error.to_string().contains("`tools.overrides.issues.enumerate` names \"owner\""), "{error}");
}

#[test]
fn a_projection_replaces_all_forms_of_a_result() {
    let schema = json!({"type": "object", "properties": {"items": {"type": "array"}}});
    let tool = shaped(json!({"project": "items[*].title"}), json!({}), Some(schema)).unwrap();
    assert!(tool.output.is_none() && tool.source_output().is_some(), "clients are told no schema that does not hold");
    let mcp =
        McpResult { content: vec![json!({"type": "text", "text": "long"})], structured: true, ..McpResult::default() };
    let metadata: Map<_, _> =
        [(LARGE_NUMBERS.to_owned(), json!(["/items/0/id"])), ("url".to_owned(), json!("u"))].into_iter().collect();
    let value = json!({"items": [{"title": "a", "id": "1"}, {"title": "b"}]});
    let output = ToolOutput { text: Some("long".into()), tokens: Some(9), mcp: Some(Box::new(mcp)), metadata, value };
    let projected = tool.projected(output).unwrap();
    let metadata: Map<_, _> = [("url".to_owned(), json!("u"))].into_iter().collect();
    assert_eq!(projected, ToolOutput { metadata, ..json!(["a", "b"]).into() });
    let in_text = ToolOutput::from(json!(r#"{"items": [{"title": "c"}]}"#));
    assert_eq!(tool.projected(in_text).unwrap().value, json!(["c"]));
    let prose = ToolOutput { text: Some("none".into()), ..json!("none").into() };
    assert_eq!(tool.projected(prose.clone()).unwrap(), prose);
}

#[test]
fn a_projection_that_fails_names_the_tool_and_the_expression() {
    let tool = shaped(json!({"project": "sum(items)"}), json!({}), None).unwrap();
    let error = tool.projected(json!({"items": ["a"]}).into()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidOutput);
    assert!(error.message().contains("\"issues\" (sum(items))") && error.message().contains("tools test"), "{error}");
}

#[test]
fn the_definition_stays_the_one_of_the_source() {
    let plain = shaped(json!({}), parameters(), None).unwrap();
    assert!(plain.shape().is_none());
    assert_eq!(plain.definition_digest(), fixed().definition_digest());
}

#[test]
fn a_projected_result_is_asserted_by_nobody() {
    let labels = |changes: Value| shaped(changes, json!({}), None).unwrap().labels().returns.authored.len();
    assert_eq!((labels(json!({})), labels(json!({"project": "a"}))), (0, 1));
}

fn definition(prepared: PreparedShape) -> ToolDefinition {
    let metadata = Metadata { name: "issues".into(), prepared: Some(prepared), ..Metadata::default() };
    ToolDefinition { metadata, parameters: parameters().into(), output_schema: None, executor: Arc::new(Silent) }
}

#[test]
fn an_overlay_shapes_a_tool_where_its_override_says_nothing() {
    let prepared = |defaults: Value, project: &str| PreparedShape {
        defaults: serde_json::from_value(defaults).unwrap(),
        project: Some(project.to_owned()),
        ..PreparedShape::default()
    };
    let own = shape(json!({"defaults": {"limit": 7}, "fix": {"state": "open"}}));
    let definition_of = |defaults: Value| definition(prepared(defaults, "items"));
    let found = Shape::of(&definition_of(json!({"limit": 5, "state": "closed", "query": "x"})), own.as_ref()).unwrap();
    assert_eq!(Value::Object(found.defaults.clone()), json!({"limit": 7, "query": "x"}));
    assert_eq!(found.selected(&json!({"items": [1], "more": 2}), 1 << 20, 1 << 10).unwrap(), Some(json!([1])));
    let first = Shape::of(&definition_of(json!({"limit": 5})), None).unwrap();
    assert_eq!(Value::Object(first.defaults.clone()), json!({"limit": 5}));
    // A later version of the server may have no such argument, or another type.
    for defaults in [json!({"per_page": 5}), json!({"query": 1})] {
        assert_eq!(Shape::of(&definition_of(defaults.clone()), own.as_ref()), own, "{defaults}");
    }
}

#[test]
fn each_prepared_shape_can_be_used_and_makes_answers_smaller() {
    let servers = prepared_names().map(|name| (name, prepared_server(name).unwrap()));
    let mut shaped = 0;
    for (name, server) in servers {
        for (tool, prepared) in server.shapes() {
            shaped += 1;
            assert!(!prepared.defaults.is_empty() || prepared.project.is_some(), "{name} {tool} has no shape");
            let project = prepared.project.as_deref().unwrap_or("@");
            Projection::compile(tool, project).unwrap_or_else(|error| panic!("{name} {tool}: {error}"));
        }
    }
    assert!(shaped >= 10, "{shaped}");
    let history = prepared_server("slack").unwrap().tool("slack_get_channel_history").shape.unwrap();
    let shape = Shape::of(&definition(history), None).unwrap();
    let blocks = json!([{"type": "rich_text", "elements": [{"type": "text", "text": "hello"}]}]);
    let message =
        json!({"type": "message", "user": "U1", "ts": "1.2", "text": "hello", "team": "T1", "blocks": blocks});
    let answer = json!({"ok": true, "messages": [message], "has_more": false}).to_string();
    let selected = shape.selected(&Value::String(answer), 1 << 20, 1 << 10).unwrap().unwrap();
    assert_eq!(selected["messages"][0]["text"], "hello");
    assert!(selected["messages"][0].get("blocks").is_none() && selected["ok"] == true, "{selected}");
    let failed =
        shape.selected(&json!({"ok": false, "error": "channel_not_found"}), 1 << 20, 1 << 10).unwrap().unwrap();
    assert_eq!(failed["error"], "channel_not_found");
}
