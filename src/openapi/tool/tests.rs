use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::read::operation::{Location, MediaType, Parameter, ParameterEncoding, Response, Server, Style};
use sekisho_config::{OutboundConfig, PaginationSettings};
use sekisho_outbound::{DomainList, Outbound};

fn api(operations: Vec<Operation>) -> Api {
    Api {
        title: "Pets".into(),
        version: "1".into(),
        description: String::new(),
        servers: vec![Server { url: Url::parse("https://pets.example/v1").unwrap(), description: String::new() }],
        security_schemes: BTreeMap::new(),
        security: Vec::new(),
        operations,
        definitions: Arc::default(),
        report: Report::default(),
    }
}

fn operation(id: Option<&str>, method: Method, path: &str) -> Operation {
    Operation {
        id: id.map(str::to_owned),
        method,
        path: path.into(),
        summary: String::new(),
        description: String::new(),
        tags: Vec::new(),
        deprecated: false,
        parameters: Vec::new(),
        body: None,
        responses: Vec::new(),
        servers: Vec::new(),
        security: None,
        extensions: Map::new(),
    }
}

fn made(api: &Api, settings: serde_json::Value) -> (Vec<ToolDefinition>, Report) {
    let access = Access {
        outbound: Outbound::new(&OutboundConfig::default()).unwrap(),
        allowed: Arc::new(DomainList::any().clone()),
        adapter: None,
        max_response_bytes: 1 << 20,
        pagination: PaginationSettings::default(),
        user: None,
        exchange: None,
    };
    definitions("pets", api, &serde_json::from_value(settings).unwrap(), &Arc::new(access)).unwrap()
}

fn names(operations: &[Operation]) -> Vec<String> {
    let tools = made(&api(operations.to_vec()), json!({})).0;
    tools.into_iter().map(|tool| tool.metadata.name).collect()
}

#[test]
fn names_come_from_ids_or_else_from_method_and_path() {
    let operations = [
        operation(Some("listPets"), Method::GET, "/pets"),
        operation(None, Method::GET, "/pets/{id}"),
        operation(Some(" "), Method::DELETE, "/pets/{id}"),
    ];
    assert_eq!(names(&operations), ["pets__listPets", "pets__get_pets_id", "pets__delete_pets_id"]);
    let in_part = [operation(Some("缓存-set"), Method::POST, "/cache"), operation(Some("créer"), Method::POST, "/new")];
    assert_eq!(names(&in_part)[0], "pets__post_cache");
    assert!(names(&in_part)[1].starts_with("pets__cr_er_"), "{:?}", names(&in_part));
}

#[test]
fn a_doubled_id_gives_names_that_do_not_depend_on_the_order() {
    let mut operations = [operation(Some("list"), Method::GET, "/a"), operation(Some("list"), Method::GET, "/b")];
    let mut forward = names(&operations);
    operations.reverse();
    let mut backward = names(&operations);
    assert_ne!(forward, backward);
    forward.sort();
    backward.sort();
    assert_eq!(forward, backward);
    assert!(forward[0] != forward[1] && forward.iter().all(|name| name.starts_with("pets__GET_")), "{forward:?}");
}

#[test]
fn filters_choose_by_id_and_tag() {
    let mut tagged = operation(Some("b"), Method::GET, "/b");
    tagged.tags = vec!["x".into()];
    let api = api(vec![operation(Some("a"), Method::GET, "/a"), tagged]);
    for (settings, expected) in [
        (json!({}), 2),
        (json!({"operations": ["a"]}), 1),
        (json!({"tags": ["x"]}), 1),
        (json!({"operations": ["a"], "tags": ["x"]}), 0),
        (json!({"paths": ["/a"]}), 1),
        (json!({"paths": ["/*"]}), 2),
        (json!({"paths": ["/"]}), 0),
        (json!({"methods": ["get"], "paths": ["/b*"]}), 1),
        (json!({"methods": ["POST"]}), 0),
    ] {
        let (tools, report) = made(&api, settings.clone());
        assert_eq!((tools.len(), report.tools), (expected, expected), "{settings}");
    }
}

#[test]
fn settings_rename_and_describe_an_operation_by_its_id_or_its_path() {
    let api = api(vec![operation(Some("a/b"), Method::GET, "/a"), operation(None, Method::GET, "/b")]);
    let settings = json!({
        "renames": {"a/b": "first", "GET /b": "second", "gone": "third"},
        "descriptions": {"GET /b": "What b is.", "gone": "Nothing."},
    });
    let (tools, report) = made(&api, settings);
    let listed: Vec<_> =
        tools.iter().map(|tool| (tool.metadata.name.as_str(), tool.metadata.description.as_str())).collect();
    assert_eq!(listed, [("pets__first", "GET /a"), ("pets__second", "What b is.")]);
    assert_eq!(report.approximated.len(), 1);
    assert_eq!(report.approximated[0].operation, "gone");
}

#[test]
fn two_operations_renamed_alike_get_names_of_their_own() {
    let api = api(vec![operation(Some("a"), Method::GET, "/a"), operation(Some("b"), Method::GET, "/b")]);
    let (tools, _) = made(&api, json!({"renames": {"a": "b"}}));
    assert_eq!(tools.len(), 2);
    assert_ne!(tools[0].metadata.name, tools[1].metadata.name);
}

#[test]
fn a_document_can_only_make_its_tools_dearer_slower_and_more_dangerous() {
    let hinted = |cost: f64, rate: u32| {
        let mut hinted = operation(Some("a"), Method::POST, "/a");
        hinted.extensions.insert("x-cost-per-use".into(), cost.into());
        hinted.extensions.insert("x-rate-limit".into(), rate.into());
        hinted.extensions.insert("x-dangerous".into(), true.into());
        let tool = made(&api(vec![hinted]), json!({"base_cost_per_use": 0.5, "rate_limit": 10})).0.remove(0);
        assert!(tool.metadata.dangerous);
        (tool.metadata.cost_per_use.to_string(), tool.metadata.rate_limit)
    };
    assert_eq!(hinted(2.0, 5), ("2".to_owned(), 5));
    assert_eq!(hinted(0.0, 500), ("0.5".to_owned(), 10));
    assert_eq!(hinted(-1.0, 0), ("0.5".to_owned(), 10));
}

#[test]
fn deletions_are_dangerous_unless_the_operator_marks_them_as_harmless() {
    let operations = |hint: Option<serde_json::Value>| {
        let mut drop = operation(Some("drop"), Method::DELETE, "/a");
        drop.tags = vec!["admin".into()];
        drop.extensions.extend(hint.map(|hint| ("x-dangerous".to_owned(), hint)));
        let methods = [Method::GET, Method::PUT, Method::PATCH, Method::POST];
        let others = methods.map(|method| operation(Some(method.as_str()), method.clone(), "/a"));
        [drop].into_iter().chain(others).collect::<Vec<_>>()
    };
    let of = |hint: Option<serde_json::Value>, settings: serde_json::Value| {
        let (tools, report) = made(&api(operations(hint)), json!({"dangerous": settings}));
        let dangerous = tools.iter().filter(|tool| tool.metadata.dangerous).map(|tool| tool.metadata.name.clone());
        (dangerous.map(|name| name.replace("pets__", "")).collect::<Vec<_>>().join(" "), report)
    };
    for (hint, settings, expected, by_method) in [
        (None, json!({}), "drop", 1),
        (None, json!({"methods": []}), "", 0),
        (None, json!({"methods": ["delete", "Put"]}), "drop PUT", 2),
        (None, json!({"methods": [], "tags": ["admin"]}), "drop", 0),
        (None, json!({"methods": [], "operations": ["POST", "GET /a"]}), "GET POST", 0),
        (None, json!({"operations": ["drop"]}), "drop", 0),
        // Set by an overlay; only the stricter ones of a document's own settings are kept.
        (Some(json!(false)), json!({}), "", 0),
        (Some(json!(false)), json!({"operations": ["drop"]}), "", 0),
        (Some(json!(true)), json!({"methods": []}), "drop", 0),
        (Some(json!("false")), json!({"methods": []}), "drop", 0),
    ] {
        let (dangerous, report) = of(hint.clone(), settings.clone());
        assert_eq!((&*dangerous, report.dangerous.len()), (expected, by_method), "{hint:?} {settings}");
    }
    let (_, report) = of(None, json!({}));
    assert!(report.dangers(|_| false).unwrap().contains("1 operation is dangerous"));
    assert!(report.dangers(|_| false).unwrap().contains("`dangerous: {methods: []}`"));
    assert_eq!(report.dangers(|tool| tool == "pets__drop"), None);
    let (_, report) = of(None, json!({"operations": ["dorp"], "methods": ["DELET"]}));
    let noted: Vec<_> = report.approximated.iter().map(|note| note.operation.as_str()).collect();
    assert_eq!(noted, ["dorp", "DELET"]);
}

#[test]
fn deletes_by_name_are_listed_and_dangerous_where_the_settings_say_so() {
    let named = [
        (Some("chat.delete"), Method::POST, "/chat.delete", true),
        (Some("bulkDeleteUsers"), Method::POST, "/users/bulk", true),
        (Some("ERASE_all"), Method::PUT, "/all", true),
        (None, Method::POST, "/users/{id}/remove", true),
        (None, Method::GET, "/users/{id}/destroy", true),
        (Some("removeUser"), Method::GET, "/u", true),
        (Some("getDeleteRequests"), Method::GET, "/requests", false),
        (Some("listDeleted"), Method::POST, "/deleted", false),
        (Some("undelete"), Method::POST, "/drops", false),
        (Some("deleteUser"), Method::DELETE, "/users/{id}", false),
    ];
    let operations: Vec<_> = named.iter().map(|(id, method, path, _)| operation(*id, method.clone(), path)).collect();
    let expected: Vec<_> =
        operations.iter().zip(&named).filter(|(_, named)| named.3).map(|(one, _)| one.label()).collect();
    let labels = |works: &[Works]| works.iter().map(|works| works.operation.clone()).collect::<Vec<_>>();
    let (_, report) = made(&api(operations.clone()), json!({"dangerous": {"methods": []}}));
    assert_eq!(labels(&report.open_deletes), expected);
    let note = report.dangers(|_| false).unwrap();
    assert!(note.contains("6 operations delete by name") && note.contains("pets__chat_delete"), "{note}");
    assert!(note.contains(" and 1 more") && note.contains("`dangerous: {words: true}`"), "{note}");
    let (tools, report) = made(&api(operations.clone()), json!({"dangerous": {"methods": [], "words": true}}));
    assert_eq!(tools.iter().filter(|tool| tool.metadata.dangerous).count(), expected.len());
    assert_eq!(report.dangers(|_| false), None);
    assert_eq!(report.open_deletes, Vec::new());
    let harmless = operations.into_iter().map(|mut one| {
        one.extensions.insert("x-dangerous".into(), false.into());
        one
    });
    assert_eq!(made(&api(harmless.collect()), json!({})).1.open_deletes, []);
}

#[test]
fn annotations_follow_from_the_method() {
    for (method, read_only, destructive, idempotent) in [
        (Method::GET, true, Some(false), true),
        (Method::HEAD, true, Some(false), true),
        (Method::POST, false, None, false),
        (Method::PATCH, false, None, false),
        (Method::PUT, false, None, true),
        (Method::DELETE, false, Some(true), true),
    ] {
        let tool = made(&api(vec![operation(Some("a"), method.clone(), "/a")]), json!({})).0.remove(0);
        let effects = sekisho_calls::tool::Effects { read_only, destructive, open_world: true };
        assert_eq!((tool.metadata.effects, tool.metadata.idempotent), (Some(effects), idempotent), "{method}");
    }
}

#[test]
fn a_deprecated_operation_is_labelled_so() {
    let mut old = operation(Some("old"), Method::GET, "/old");
    old.deprecated = true;
    old.tags = vec!["pets".into()];
    assert_eq!(made(&api(vec![old]), json!({})).0[0].metadata.labels, ["pets", "deprecated"]);
}

#[test]
fn the_output_schema_is_that_of_the_single_success_response() {
    use StatusRange::{Class, Default, Exactly};
    let answer = |status: &StatusRange| {
        let schema = json!({"title": format!("{status:?}")});
        let content = vec![MediaType { name: "application/json".into(), schema, encoding: BTreeMap::new() }];
        Response { status: *status, description: String::new(), content }
    };
    for (statuses, expected) in [
        (vec![Exactly(404), Exactly(200)], Some("Exactly(200)")),
        (vec![Class(4), Class(2), Default], Some("Class(2)")),
        (vec![Exactly(200), Exactly(201)], None),
        (vec![Exactly(404)], None),
        (vec![Default], None),
    ] {
        let mut get = operation(Some("get"), Method::GET, "/pets");
        get.responses = statuses.iter().map(answer).collect();
        let tool = made(&api(vec![get]), json!({})).0.remove(0);
        let title = tool.output_schema.as_ref().map(|schema| schema["title"].as_str().unwrap());
        assert_eq!(title, expected, "{statuses:?}");
    }
}

#[test]
fn one_operation_that_cannot_be_offered_does_not_hold_back_the_others() {
    let mut broken = operation(Some("broken"), Method::GET, "/broken");
    broken.parameters = vec![Parameter {
        name: "q".into(),
        location: Location::Query,
        required: false,
        deprecated: false,
        description: String::new(),
        schema: json!({"$ref": "#/$defs/nowhere"}),
        encoding: ParameterEncoding::Styled {
            style: Style::Form,
            explode: true,
            allow_reserved: false,
            allow_empty: false,
        },
        item_separator: None,
    }];
    let mut reserved = operation(Some("fine"), Method::GET, "/fine");
    let header = Parameter {
        name: "Content-Type".into(),
        location: Location::Header,
        required: true,
        schema: json!({"type": "string"}),
        ..broken.parameters[0].clone()
    };
    reserved.parameters = vec![header];
    let (tools, report) = made(&api(vec![broken, reserved]), json!({}));
    assert_eq!(tools.len(), 1);
    assert_eq!(tools[0].parameters.document()["properties"], json!({}), "by OpenAPI such a header is ignored");
    assert_eq!((report.lost.len(), report.lost[0].operation.as_str()), (1, "broken"));
    assert!(report.approximated[0].reason.contains("Content-Type"), "{report:?}");
}

#[test]
fn descriptions_hold_summary_and_description_and_are_bounded() {
    for (summary, description, expected) in [
        ("List pets", "All of them.", "List pets. All of them."),
        ("List pets.", "", "List pets."),
        ("", "All of them.", "All of them."),
        ("List", "List all pets.", "List all pets."),
        ("", "", "GET /pets"),
    ] {
        let mut one = operation(None, Method::GET, "/pets");
        one.summary = summary.into();
        one.description = description.into();
        assert_eq!(super::description(&one), expected);
        one.deprecated = true;
        assert_eq!(super::description(&one), format!("Deprecated. {expected}"));
    }
    let mut long = operation(None, Method::GET, "/pets");
    long.description = "é".repeat(5_000);
    assert_eq!(super::description(&long).chars().count(), MAX_DESCRIPTION + 1);
}

proptest! {
    #[test]
    fn names_are_valid_and_unique_for_any_document(ids in prop::collection::vec("[a-zA-Z_/ é.]{0,80}", 1..20)) {
        let operations: Vec<_> = ids
            .iter()
            .enumerate()
            .map(|(at, id)| operation(Some(id), Method::GET, &format!("/path/{at}")))
            .collect();
        let found = names(&operations);
        prop_assert_eq!(found.iter().collect::<HashSet<_>>().len(), ids.len());
        for name in found {
            prop_assert!(sekisho_calls::tool::ToolName::parse(&name).is_ok(), "{}", name);
        }
    }
}
