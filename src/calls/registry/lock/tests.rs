use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::tool::{Attempt, Execution, Executor, Metadata, Parameters};
use sekisho_core::call::Arguments;
use sekisho_core::json::arbitrary::any_json;

fn pin(name: &str, content: Value) -> Pin {
    let Value::Object(mut content) = content else { panic!("{content}") };
    content.entry("origin").or_insert_with(|| json!("mcp:time program uvx"));
    content.entry("description").or_insert_with(|| json!(""));
    content.entry("parameters").or_insert_with(|| json!({"type": "object"}));
    Pin::new(name, content)
}

fn lock(pins: &[(&str, Value)]) -> Lock {
    pins.iter().map(|(name, content)| ((*name).to_owned(), pin(name, content.clone()))).collect()
}

fn compare(before: &[(&str, Value)], after: &[(&str, Value)]) -> Vec<Difference> {
    differences(&lock(before), lock(after).pins(), |_| false)
}

/// `change tool: path` for each edit.
fn reported(differences: &[Difference]) -> Vec<String> {
    let reported = |difference: &Difference| {
        let change = match &difference.change {
            Change::Added => "added".to_owned(),
            Change::Removed => "removed".to_owned(),
            Change::Changed => "changed".to_owned(),
            Change::Renamed { from } => format!("renamed from {from}"),
        };
        let paths: Vec<_> = difference.edits.iter().map(|edit| edit.path.as_str()).collect();
        format!("{change} {}: {}", difference.tool, paths.join(" "))
    };
    differences.iter().map(reported).collect()
}

#[test]
fn the_file_is_what_it_was() {
    let lock = lock(&[
        (
            "time__now",
            json!({"description": "The time.\nNow\u{200b}\u{1b}[8m🙂\u{e0041}", "annotations": {"readOnlyHint": true}}),
        ),
        (
            "calculator",
            json!({"origin": "builtin", "parameters": {"type": "object", "properties": {"z": {"default": 0.1}, "a": {}}}}),
        ),
    ]);
    insta::assert_snapshot!(lock.to_text());
}

/// A tool of a server whose program was installed.
struct InstalledProgram(&'static str);

impl Executor for InstalledProgram {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
        unreachable!("nothing is run")
    }

    fn package(&self) -> Option<Value> {
        Some(json!({"name": "server", "version": "1.0.0", "digest": self.0}))
    }
}

#[test]
fn a_tool_of_a_changed_package_is_a_changed_tool() {
    let pin = |digest| {
        let definition = ToolDefinition {
            metadata: Metadata { source: "mcp:a".to_owned(), ..Metadata::default() },
            parameters: Parameters::shared(json!({"type": "object"})),
            output_schema: None,
            executor: Arc::new(InstalledProgram(digest)),
        };
        Pin::of("a", &definition)
    };
    let lock: Lock = [("a".to_owned(), pin("sha256:1"))].into_iter().collect();
    assert_eq!(lock.violation("a", &pin("sha256:1")), None);
    assert_eq!(lock.violation("a", &pin("sha256:2")), Some(LockViolation::Changed(vec!["package".to_owned()])));
    let now = [("a".to_owned(), pin("sha256:2"))].into_iter().collect();
    assert_eq!(reported(&differences(&lock, &now, |_| false)), ["changed a: /package/digest"]);
    assert_eq!(Lock::parse(lock.to_text().as_bytes()).unwrap(), lock);
}

#[test]
fn the_order_of_keys_and_the_form_of_numbers_change_nothing() {
    let one = pin("a", json!({"parameters": {"type": "object", "properties": {"x": {"default": 1.0}, "y": {}}}}));
    let other = pin("a", json!({"parameters": {"properties": {"y": {}, "x": {"default": 1}}, "type": "object"}}));
    assert_eq!(one.hash(), other.hash());
    assert_ne!(one.hash(), pin("b", json!({"parameters": one.content()["parameters"]})).hash());
}

#[test]
fn a_damaged_file_is_refused_with_the_position() {
    let whole = lock(&[("a", json!({"description": "Adds."})), ("b", json!({}))]).to_text();
    assert_eq!(Lock::parse(whole.as_bytes()).unwrap().pins().len(), 2);
    let twice = whole.replace("\"b\":", "\"a\":");
    for (text, expected) in [
        (String::new(), "EOF"),
        (whole[..whole.len() / 2].to_owned(), "line"),
        (whole.replace("  \"tools\"", "<<<<<<< ours\n  \"tools\""), "line 4"),
        (whole.replace("Adds.", "Adds! "), "a: its hash does not match its block"),
        (whole.replace("\"version\": 1", "\"version\": 2"), "version 2"),
        (whole.replace("\"version\": 1,", ""), "`version`"),
        (whole.replace("\"version\": 1", "\"version\": 1, \"more\": 1"), "nothing else"),
        (whole.replace("\"b\":", "\"no name\":"), "no name"),
        (whole.replace("\"b\":", "\"c\":"), "c: its hash"),
        (whole.replacen("\"hash\": \"", "\"hash\": 5, \"_\": \"", 1), "a: its block"),
        (twice, "duplicate key"),
        ("{\"version\": 1, \"tools\": {\"a\": []}}".to_owned(), "a: its block"),
        ("[]".to_owned(), "`tools`"),
    ] {
        let problem = Lock::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(problem.contains(expected), "{expected}: {problem}");
    }
}

#[test]
fn a_file_is_replaced_atomically_and_a_link_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("real.lock"), folder.path().join("tools.lock"));
    assert_eq!(Lock::read(&link).unwrap(), None);
    std::os::unix::fs::symlink(&file, &link).unwrap();
    std::fs::write(&file, "damaged").unwrap();
    assert!(Lock::read(&link).is_err());
    let lock = lock(&[("a", json!({}))]);
    lock.write(&link).unwrap();
    assert_eq!(Lock::read(&file).unwrap(), Some(lock.clone()));
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    assert!(lock.write(&folder.path().join("missing/tools.lock")).is_err());
}

#[test]
fn changes_are_reported_with_their_path() {
    let schema = |limit: Value, more: Value| json!({"parameters": {"type": "object", "properties": {"limit": {"default": limit}, "more": more}}});
    let before = [("a", schema(json!(10), json!({}))), ("b", json!({})), ("c", json!({"description": "Long gone."}))];
    let after = [
        ("a", schema(json!(1_000), json!({"description": "x"}))),
        ("b", json!({"annotations": {"destructiveHint": false}})),
        ("d", json!({"description": "Something else entirely."})),
    ];
    let found = compare(&before, &after);
    assert_eq!(
        reported(&found),
        [
            "changed a: /parameters/properties/limit/default /parameters/properties/more/description",
            "changed b: /annotations",
            "removed c: ",
            "added d: ",
        ]
    );
    assert_eq!((&found[0].edits[0].before, &found[0].edits[0].after), (&Some(json!(10)), &Some(json!(1_000))));
    assert_eq!(found.iter().map(|difference| difference.quarantined).collect::<Vec<_>>(), [true, true, false, true]);
}

#[test]
fn a_removed_tool_that_was_added_under_another_name_is_reported_as_renamed() {
    let arguments = json!({"type": "object", "properties": {"zone": {"type": "string"}}});
    for (before, after, expected) in [
        (json!({"description": "x"}), json!({"description": "x"}), "renamed from old new: "),
        (
            json!({"description": "Tells the time of a zone."}),
            json!({"description": "Tells the time of a zone.", "title": "Time"}),
            "renamed from old new: /title",
        ),
        (
            json!({"description": "Tells the time.", "parameters": arguments}),
            json!({"description": "Gives the time.", "parameters": arguments}),
            "renamed from old new: /description",
        ),
        (
            json!({"origin": "openapi:pets GET https://a.example:443/pets/{id}", "description": "x"}),
            json!({"origin": "openapi:pets GET https://a.example:443/pets/{id}", "description": "y"}),
            "renamed from old new: /description",
        ),
    ] {
        assert_eq!(reported(&compare(&[("old", before)], &[("new", after)])), [expected]);
    }
    // A tool of another source, or one that matches two others, is not a rename.
    let here = json!({"description": "Tells the time of a zone."});
    let elsewhere = json!({"description": "Tells the time of a zone.", "origin": "mcp:other program x"});
    assert_eq!(compare(&[("old", here.clone())], &[("new", elsewhere)]).len(), 2);
    assert_eq!(compare(&[("old", here.clone())], &[("n1", here.clone()), ("n2", here)]).len(), 3);
}

#[test]
fn tools_of_an_unreachable_source_are_not_reported_as_removed() {
    let before = lock(&[("a", json!({})), ("b", json!({"origin": "mcp:other program x"}))]);
    let found = differences(&before, &BTreeMap::new(), |source| source == "mcp:time");
    assert_eq!(reported(&found), ["removed b: "]);
}

#[test]
fn builtin_tools_are_pinned_and_not_quarantined() {
    let found = compare(
        &[("calculator", json!({"origin": "builtin"}))],
        &[("calculator", json!({"origin": "builtin", "description": "x"}))],
    );
    assert_eq!((reported(&found), found[0].quarantined), (vec!["changed calculator: /description".to_owned()], false));
}

/// A name, and an arbitrary description by a source.
fn any_pins() -> impl Strategy<Value = BTreeMap<String, Pin>> {
    let parts = ("[ -~\u{80}-\u{2fff}\u{e0000}-\u{e007f}]{0,20}", any_json(), proptest::option::of(any_json()));
    let pins = proptest::collection::btree_map("[a-zA-Z0-9_-]{1,12}", parts, 0..6);
    pins.prop_map(|pins| {
        let pin = |(name, (description, schema, annotations)): (String, (String, Value, Option<Value>))| {
            let mut content = json!({"description": description, "parameters": schema});
            if let Some(annotations) = annotations {
                content["annotations"] = annotations;
            }
            (name.clone(), pin(&name, content))
        };
        pins.into_iter().map(pin).collect()
    })
}

proptest! {
    #[test]
    fn any_pins_are_read_back_from_the_file(pins in any_pins()) {
        let lock: Lock = pins.into_iter().collect();
        let text = lock.to_text();
        prop_assert_eq!(&Lock::parse(text.as_bytes()).unwrap(), &lock);
        prop_assert!(!text.chars().any(|c| c != '\n' && sekisho_core::visible_text::is_hidden(c)), "{}", text);
        // Written again, the text is identical, so that version control shows no change.
        prop_assert_eq!(Lock::parse(text.as_bytes()).unwrap().to_text(), text);
    }

    #[test]
    fn once_all_differences_are_approved_there_are_none(before in any_pins(), after in any_pins()) {
        let mut lock: Lock = before.into_iter().collect();
        let quarantined: Vec<_> = after.iter().filter(|(name, pin)| lock.violation(name, pin).is_some()).map(|(name, _)| name.clone()).collect();
        let found = differences(&lock, &after, |_| false);
        let reported: Vec<_> = found.iter().filter(|found| found.change != Change::Removed).map(|found| found.tool.clone()).collect();
        prop_assert_eq!(reported, quarantined, "what is quarantined is what is shown");
        for difference in found {
            if let Change::Renamed { from } = &difference.change {
                lock.approve(from, None);
            }
            lock.approve(&difference.tool, after.get(&difference.tool).cloned());
        }
        prop_assert_eq!(lock.pins(), &after);
    }
}

#[test]
fn hostile_bytes_as_a_lock() {
    let whole = lock(&[("a", json!({"description": "Adds.\u{200b}"})), ("b", json!({"title": "t"}))]).to_text();
    sekisho_core::fuzz::feed(&[whole.as_bytes(), br#"{"version": 1, "tools": {}}"#], |bytes| {
        if let Ok(lock) = Lock::parse(bytes) {
            // Every lock that parses is intact, including all hashes.
            assert_eq!(Lock::parse(lock.to_text().as_bytes()).unwrap(), lock);
        }
    });
}
