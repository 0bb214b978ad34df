use serde_json::json;

use super::*;
use crate::text::{Language, Texts};
use sekisho_api::UploadedFile;
use sekisho_core::error::Detail;

fn filled(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn read(schema: &Value, pairs: &[(&str, &str)]) -> Value {
    Value::Object(arguments(schema, &filled(pairs)).unwrap())
}

fn drawn(schema: &Value, filled: &Filled, problems: &[Detail]) -> String {
    draw(&Texts::new(Language::English), schema, filled, problems).into_string()
}

fn schema() -> Value {
    json!({
        "type": "object", "required": ["name"],
        "properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "on": {"type": "boolean"},
            "level": {"enum": [1, "two"]}, "any": {},
        },
    })
}

fn nested() -> Value {
    json!({
        "$defs": {"item": {"type": "object", "properties": {
            "sku": {"type": "string"}, "amount": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}},
        "properties": {
            "a/b": {"type": "object", "required": ["city"], "properties": {
                "city": {"type": ["string", "null"]}, "zip~": {"type": "string"}}},
            "tags": {"type": "array", "items": {"type": "string"}},
            "days": {"type": "array", "items": {"enum": ["mon", "tue", 3]}},
            "items": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/item"}},
            "version": {"const": 2},
            "status": {"oneOf": [{"type": "string", "enum": ["on", "auto"]}, {"const": "off", "description": "Not at all."}]},
        },
    })
}

#[test]
fn what_is_filled_in_becomes_arguments_of_their_types() {
    let form = [
        ("token", "t"),
        ("argument.name", "a\r\nb"),
        ("argument.count", " 3 "),
        ("argument.on", "false"),
        ("argument.level", "1"),
        ("argument.any", "[\"x\"]"),
        ("argument.other", "ignored"),
    ];
    assert_eq!(read(&schema(), &form), json!({"name": "a\nb", "count": 3, "on": false, "level": 1, "any": ["x"]}));
    let form = [("argument.count", "many"), ("argument.level", "two")];
    assert_eq!(read(&schema(), &form), json!({"count": "many", "level": "two"}));
}

#[test]
fn objects_lists_and_choices_have_fields_of_their_own() {
    let form = [
        ("argument.a~1b/city", "Nara"),
        ("argument.a~1b/zip~0", ""),
        ("count.tags", "3"),
        ("argument.tags/0", "x"),
        ("argument.tags/1", ""),
        ("argument.tags/2", "z"),
        ("argument.days", "tue"),
        ("argument.days", "3"),
        ("argument.items/1/sku", "s"),
        ("argument.items/1/amount", "4"),
        ("argument.version", "2"),
        ("argument.status", "off"),
    ];
    let expected = json!({
        "a/b": {"city": "Nara"}, "tags": ["x", "z"], "days": ["tue", 3], "items": [{"sku": "s", "amount": 4}], "version": 2,
        "status": "off",
    });
    assert_eq!(read(&nested(), &form), expected);
    let form = drawn(&nested(), &[], &[]);
    let status = form.split("name=\"argument.status\"").nth(1).unwrap();
    let options = status.split("</select>").next().unwrap().matches("<option value=\"");
    assert_eq!(options.count(), 4, "one for none, and those of each variant: {form}");
    assert_eq!(read(&nested(), &[("argument.a~1b/city", ""), ("count.tags", "x")]), json!({}));
    // The form is filled in again without empty fields.
    let Value::Object(arguments) = expected else { panic!() };
    let again = filled_with(&nested(), &arguments);
    assert_eq!(Value::Object(super::arguments(&nested(), &again).unwrap()), Value::Object(arguments));
    assert_eq!(value_of(&again, "argument.items/0/sku"), Some("s"));
}

#[test]
fn a_list_grows_by_its_button_alone() {
    let mut form = filled(&[("argument.tags/0", "x")]);
    assert!(!grow(&nested(), &mut form));
    form.push((MORE.to_owned(), "/tags".to_owned()));
    assert!(grow(&nested(), &mut form));
    assert_eq!(value_of(&form, "count.tags"), Some("2"));
    let page = drawn(&nested(), &form, &[]);
    assert!(page.contains("name=\"argument.tags/1\"") && page.contains("name=\"argument.items/1/sku\""), "{page}");
    for _ in 0..2 * MAX_ENTRIES {
        assert!(grow(&nested(), &mut form));
    }
    assert_eq!(value_of(&form, "count.tags"), Some("20"));
    let mut form = filled(&[(MORE, "/none/of/these")]);
    assert!(grow(&nested(), &mut form) && form.len() == 1, "nothing is run by it either");
}

#[test]
fn a_file_is_sent_in_base64_with_its_name() {
    let file = json!({"type": "object", "properties": {
        "filename": {"type": "string"}, "content_base64": {"type": "string", "contentEncoding": "base64"}}});
    let schema = json!({"properties": {"photo": file}});
    let mut form = filled(&[("argument.photo/filename", "")]);
    let upload = |field: &str| UploadedFile {
        field: field.to_owned(),
        name: "a.png".to_owned(),
        media_type: "image/png".to_owned(),
        content: b"hi".to_vec().into(),
    };
    attach(&mut form, vec![upload("file.photo/content_base64"), upload("token")]);
    let expected = json!({"photo": {"filename": "a.png", "content_base64": "aGk="}});
    assert_eq!(Value::Object(arguments(&schema, &form).unwrap()), expected);
    let page = drawn(&schema, &form, &[]);
    assert!(page.contains("type=\"file\" name=\"file.photo/content_base64\""), "{page}");
    assert!(page.contains("type=\"hidden\" name=\"argument.photo/content_base64\" value=\"aGk=\""), "{page}");
}

#[test]
fn what_is_no_json_is_said_at_its_field() {
    let form = filled(&[("argument.any", "[1"), ("argument.name", "n")]);
    let wrong = arguments(&schema(), &form).unwrap_err();
    assert_eq!((wrong.len(), &*wrong[0].path), (1, "/any"));
    assert_eq!(read(&schema(), &[("json", "{\"name\": \"n\"}"), ("argument.name", "other")]), json!({"name": "n"}));
    for text in ["[1]", "{\"a\": 1, \"a\": 2}", "{"] {
        assert!(arguments(&schema(), &filled(&[("json", text)])).is_err(), "{text}");
    }
}

#[test]
fn a_problem_is_at_the_deepest_field_of_its_place() {
    let problem = |path: &str| Detail { path: path.into(), rule: "r".into(), message: format!("wrong at {path}") };
    let page = drawn(&nested(), &[], &[problem("/a~1b/city"), problem("/items/1/amount/x"), problem("/nowhere")]);
    let id_of = |name: &str| {
        let before = page.split_once(&format!(" name=\"{name}\"")).unwrap().0;
        before.rsplit_once("id=\"").unwrap().1.split('"').next().unwrap().to_owned()
    };
    for (path, name) in [("/a~1b/city", "argument.a~1b/city"), ("/items/1/amount/x", "argument.items/1/amount")] {
        let link = format!("<a href=\"#{}\">", id_of(name));
        assert!(page.contains(&link) && page.contains(&format!("<p class=\"error\">wrong at {path}</p>")), "{page}");
    }
    assert!(page.contains("<a href=\"#json\">/nowhere</a>"), "{page}");
}

#[test]
fn a_schema_without_end_has_a_form_with_an_end() {
    let endless = json!({"properties": {
        "a": {"$ref": "#"}, "b": {"type": "array", "items": {"$ref": "#"}}, "c": {"$ref": "#"}, "d": {"$ref": "#/x"}}});
    assert!(drawn(&endless, &[], &[]).len() < 400_000);
    let many: serde_json::Map<_, _> = (0..=MAX_ARGUMENTS).map(|at| (at.to_string(), json!({}))).collect();
    assert!(!drawn(&json!({"properties": many}), &[], &[]).contains(PREFIX));
}

#[test]
fn names_and_texts_of_a_schema_are_escaped() {
    let hostile = "\"><script>alert(1)</script>";
    let text = json!({"type": "string", "description": hostile, "default": hostile, "enum": [hostile]});
    let object = json!({"description": hostile, "properties": {hostile: text}});
    let schema = json!({"properties": {
        hostile: text, "object": object, "list": {"items": object, "type": "array", "description": hostile},
        "choices": {"type": "array", "items": text}}});
    let detail = Detail { path: format!("/{}", hostile.replace('/', "~1")), rule: "r".into(), message: hostile.into() };
    let name = format!("{PREFIX}{}", hostile.replace('/', "~1"));
    let form = drawn(&schema, &filled(&[(&name, hostile)]), &[detail]);
    assert!(!form.contains("<script"), "{form}");
    assert!(form.contains("aria-invalid=\"true\""), "{form}");
}
