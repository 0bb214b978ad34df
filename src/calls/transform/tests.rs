use serde_json::{Value, json};

use super::*;
use sekisho_config::Detector;
use sekisho_core::call::{McpResult, ToolOutput};
use sekisho_core::error::CallError;

fn rule(name: &str) -> TransformRule {
    TransformRule { name: name.into(), tools: Vec::new(), paths: Vec::new(), detect: Vec::new(), replace: None }
}

fn by_path(path: &str) -> TransformRule {
    TransformRule { paths: vec![path.into()], ..rule("path") }
}

fn emails() -> TransformRule {
    TransformRule { detect: vec![Detector::Emails], ..rule("mail") }
}

/// The rules for both parts of a call of the tool `crm__find`.
fn transforms(rules: &[TransformRule]) -> Arc<Transforms> {
    let config = TransformConfig { arguments: rules.to_vec(), results: rules.to_vec() };
    TransformRules::compile(&config, &Rules::shipped()).unwrap().for_tool("crm__find").unwrap()
}

/// The value after the rules, and rule, path and count of their findings.
fn changed(rules: &[TransformRule], value: Value) -> (Value, Vec<(String, String, usize)>) {
    let mut output = value.into();
    let findings = transforms(rules).change_output(&mut output);
    let findings = findings.iter().map(|found| (found.rule.to_string(), found.path.to_string(), found.count));
    (output.value, findings.collect())
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn of_mcp(value: Value, content: Vec<Value>) -> ToolOutput {
    let mcp = McpResult { content, structured: !value.is_string(), ..McpResult::default() };
    ToolOutput { text: mcp.text(), mcp: Some(Box::new(mcp)), ..value.into() }
}

#[test]
fn a_path_redacts_or_replaces_what_it_selects() {
    let customers = json!([{"name": "Ann", "iban": "DE1", "n": 1}, {"name": "Bob", "iban": "DE2", "n": 2}]);
    let (value, found) = changed(&[by_path("$[*].iban")], customers.clone());
    assert_eq!((&value[0]["iban"], &value[1]["iban"]), (&json!("[redacted]"), &json!("[redacted]")));
    assert_eq!(found, [("path".to_owned(), "$[*].iban".to_owned(), 2)]);
    let zero = TransformRule { replace: Some(json!(0)), ..by_path("$[?@.name == 'Bob'].n") };
    assert_eq!(changed(&[zero], customers.clone()).0, json!([customers[0], {"name": "Bob", "iban": "DE2", "n": 0}]));
    assert_eq!(changed(&[by_path("$[*].phone")], customers.clone()), (customers.clone(), Vec::new()));
    // The content of a replaced value is gone.
    assert_eq!(changed(&[by_path("$..*")], json!({"a": {"b": 1}})).0, json!({"a": "[redacted]"}));
    assert_eq!(changed(&[by_path("$")], customers).0, json!("[redacted]"));
}

#[test]
fn detectors_look_into_every_text_and_name_or_into_those_of_a_path() {
    let value = json!({"note": "by ann@example.org", "list": [{"bob@example.org": 1}, 7], "to": "eve@example.org"});
    let (all, found) = changed(&[emails()], value.clone());
    assert_eq!(all, json!({"note": "by [redacted]", "list": [{"[redacted]": 1}, 7], "to": "[redacted]"}));
    assert_eq!(found, [("mail".to_owned(), "$".to_owned(), 3)]);
    let only_to = TransformRule { paths: vec!["$.to".into()], replace: Some(json!("x")), ..emails() };
    let (value, found) = changed(&[only_to], value);
    assert_eq!((&value["note"], &value["to"]), (&json!("by ann@example.org"), &json!("x")));
    assert_eq!(found[0].1, "$.to");
    // Members whose names become equal are kept.
    let two = changed(&[emails()], json!({"a@b.example": 1, "c@d.example": 2})).0;
    assert_eq!(two, json!({"[redacted]": 1, "[redacted] 2": 2}));
    let cards = TransformRule { detect: vec![Detector::CardNumbers], ..rule("cards") };
    assert_eq!(changed(&[cards], json!({"n": 4_111_111_111_111_111_u64})).0, json!({"n": "[redacted]"}));
}

/// An upstream chooses the names: a search for each free number from the first one would take minutes.
#[test]
fn many_names_that_become_one_are_numbered_in_time() {
    let members: serde_json::Map<_, _> = (0..20_000).map(|n| (format!("u{n}@b.example"), json!(n))).collect();
    let (value, found) = changed(&[emails()], Value::Object(members));
    assert_eq!((value.as_object().unwrap().len(), found[0].2), (20_000, 20_000));
    assert_eq!((&value["[redacted]"], &value["[redacted] 20000"]), (&json!(0), &json!(19_999)));
}

#[test]
fn rules_are_for_the_tools_that_they_name_and_apply_in_order() {
    let config = TransformConfig {
        arguments: vec![TransformRule { tools: vec!["crm__*".into(), "mail".into()], ..emails() }],
        results: Vec::new(),
    };
    let rules = TransformRules::compile(&config, &Rules::shipped()).unwrap();
    for (tool, is_for) in [("crm__find", true), ("mail", true), ("mails", false), ("crm", false)] {
        assert_eq!(rules.for_tool(tool).is_some(), is_for, "{tool}");
    }
    assert!(!rules.change_results());
    let to_mail = TransformRule { replace: Some(json!("a@b.example")), ..by_path("$.to") };
    assert_eq!(changed(&[to_mail, emails()], json!({"to": 1})).0, json!({"to": "[redacted]"}));
}

#[test]
fn arguments_are_changed_once() {
    let rules = transforms(&[by_path("$.iban"), emails()]);
    let mut arguments = json!({"iban": "DE1", "to": "a@b.example"}).as_object().cloned().unwrap();
    assert_eq!(rules.change_arguments(&mut arguments).len(), 2);
    assert_eq!(Value::Object(arguments.clone()), json!({"iban": "[redacted]", "to": "[redacted]"}));
    let again = rules.change_arguments(&mut arguments);
    assert!(again.is_empty(), "a call that is sent again with what was approved is the same: {again:?}");
}

#[test]
fn every_form_of_a_result_is_changed() {
    let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
    let blocks =
        vec![text("by a@b.example"), image.clone(), json!({"type": "resource", "resource": {"text": "c@d.example"}})];
    let mut output = of_mcp(json!({"by": "a@b.example"}), blocks);
    output.metadata.insert("url".into(), "https://x.example/?to=a@b.example".into());
    output.tokens = Some(7);
    transforms(&[emails()]).change_output(&mut output);
    assert_eq!(output.value, json!({"by": "[redacted]"}));
    assert_eq!(output.text.as_deref(), Some("by [redacted]\n[image image/png]\n[redacted]"));
    let content = &output.mcp.as_ref().unwrap().content;
    assert_eq!((&content[0]["text"], &content[1]), (&json!("by [redacted]"), &image));
    assert_eq!(content[2]["resource"]["text"], "[redacted]");
    assert_eq!((&output.metadata["url"], output.tokens), (&json!("https://x.example/?to=[redacted]"), None));
}

/// Most servers send JSON as text.
#[test]
fn paths_look_into_texts_that_are_json() {
    let rules = transforms(&[by_path("$.iban")]);
    let said = r#"{"iban": "DE1", "name": "Ann"}"#;
    let mut alone = of_mcp(json!(said), vec![text(said)]);
    let found = rules.change_output(&mut alone);
    let expected = r#"{"iban":"[redacted]","name":"Ann"}"#;
    assert_eq!((&alone.value, alone.text.as_deref(), found[0].count), (&json!(expected), Some(expected), 1));
    assert_eq!(alone.mcp.unwrap().content[0]["text"], expected);
    let mut two = of_mcp(json!(format!("{said}\nfine")), vec![text(said), text("fine")]);
    rules.change_output(&mut two);
    assert_eq!(two.text, Some(format!("{expected}\nfine")));
    assert_eq!(two.value, json!(two.text));
}

#[test]
fn the_path_of_the_whole_selects_each_text_of_an_mcp_server() {
    let two = || {
        let content = vec![text("by a@b.example"), text(r#"{"n": 1}"#)];
        of_mcp(json!("by a@b.example\n{\"n\": 1}"), content)
    };
    let mut whole = two();
    let found = transforms(&[by_path("$")]).change_output(&mut whole);
    let expected = "[redacted]\n[redacted]";
    assert_eq!((&whole.value, whole.text.as_deref(), found[0].count), (&json!(expected), Some(expected), 2));
    assert!(whole.mcp.unwrap().content.iter().all(|block| block["text"] == "[redacted]"));
    let mut found_in_it = two();
    transforms(&[TransformRule { paths: vec!["$".into()], ..emails() }]).change_output(&mut found_in_it);
    let expected = "by [redacted]\n{\"n\": 1}";
    assert_eq!((&found_in_it.value, found_in_it.text.as_deref()), (&json!(expected), Some(expected)));
    assert_eq!(found_in_it.mcp.unwrap().content[0]["text"], "by [redacted]");
}

#[test]
fn a_text_of_unusual_json_hides_nothing_from_a_path() {
    let rules = transforms(&[by_path("$.iban")]);
    for (said, expected) in [
        (r#"{"iban": "DE1", "iban": "DE2"}"#, r#"{"iban":"[redacted]"}"#),
        (r#" {"iban": "DE1", "id": 123456789012345678901}"#, r#"{"iban":"[redacted]","id":"123456789012345678901"}"#),
    ] {
        let mut output = of_mcp(json!(said), vec![text(said)]);
        rules.change_output(&mut output);
        assert_eq!(output.text.as_deref(), Some(expected));
    }
    let mut prose = of_mcp(json!("{no JSON}"), vec![text("{no JSON}")]);
    assert!(rules.change_output(&mut prose).is_empty());
    assert_eq!(prose.text.as_deref(), Some("{no JSON}"));
}

/// Nobody can say which part of a sentence is the value.
#[test]
fn a_text_that_repeats_what_a_path_selects_makes_way_for_the_changed_value() {
    let rules = transforms(&[by_path("$.iban")]);
    let mut output = of_mcp(json!({"iban": "DE1"}), vec![text("The IBAN is DE1."), text(r#"{"iban": "DE1"}"#)]);
    rules.change_output(&mut output);
    let expected = r#"{"iban":"[redacted]"}"#;
    assert_eq!(output.text.as_deref(), Some(expected));
    let content = output.mcp.unwrap().content;
    assert!(content.iter().all(|block| block["text"] == expected), "{content:?}");
    // A text is as it was where the path selects nothing.
    let mut other = of_mcp(json!({"name": "Ann"}), vec![text("Ann")]);
    rules.change_output(&mut other);
    assert_eq!(other.text.as_deref(), Some("Ann"));
}

#[test]
fn what_a_failed_tool_says_is_changed_too() {
    let said = "no customer a@b.example";
    let result = McpResult { content: vec![text(said)], ..McpResult::default() };
    let mut error = CallError::tool(said).with_output(json!(said)).as_told_by_mcp(result).caused_by(said);
    let found = transforms(&[emails()]).change_error(&mut error);
    let expected = "no customer [redacted]";
    assert_eq!((error.message(), error.cause(), found.len()), (expected, Some(expected), 1));
    assert_eq!(
        (error.output(), &error.mcp_result().unwrap().content[0]["text"]),
        (Some(&json!(expected)), &json!(expected))
    );
    let mut without = CallError::tool("fine").with_output(json!({"iban": "DE1"}));
    transforms(&[by_path("$.iban")]).change_error(&mut without);
    assert_eq!(without.output(), Some(&json!({"iban": "[redacted]"})));
    let mut bare = CallError::tool("fine");
    transforms(&[emails()]).change_error(&mut bare);
    assert_eq!((bare.message(), bare.output()), ("fine", None));
}

#[test]
fn a_wrong_path_is_named() {
    let config = TransformConfig { arguments: vec![by_path("iban")], results: Vec::new() };
    let error = TransformRules::compile(&config, &Rules::shipped()).unwrap_err().to_string();
    assert!(error.contains("\"path\"") && error.contains("JSONPath"), "{error}");
}
