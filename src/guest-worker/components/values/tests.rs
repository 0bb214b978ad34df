use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use super::*;
use sekisho_guest_system::engine::component_engine;

/// A function whose one parameter `v` and result are of this type.
fn function(types: &str, type_: &str) -> ComponentFunc {
    let text = format!(
        "(component
            (import \"t\" (instance
                {types}
                (export \"f\" (func (param \"v\" {type_}) (result {type_}))))))"
    );
    let engine = component_engine(1).unwrap();
    let component = Component::new(&engine, wat::parse_str(text).unwrap()).unwrap();
    let type_ = component.component_type();
    let Some(instance) = type_.get_import(&engine, "t") else { panic!("no import") };
    let ComponentItem::ComponentInstance(instance) = instance.ty else { panic!("no instance") };
    let Some(function) = instance.get_export(&engine, "f") else { panic!("no function") };
    let ComponentItem::ComponentFunc(function) = function.ty else { panic!("no function") };
    function
}

fn there(function: &ComponentFunc, value: &Value) -> Result<Val, Mismatch> {
    let arguments = Map::from_iter([("v".to_owned(), value.clone())]);
    parameters(function, &arguments).map(|mut values| values.remove(0))
}

fn there_and_back(function: &ComponentFunc, value: &Value) -> Value {
    let there = there(function, value).unwrap_or_else(|mismatch| panic!("{value}: {mismatch:?}"));
    // A value that fits is not refused.
    let length = json!({"value": value}).to_string().len() as u64;
    match returned(function, &[there], length).unwrap() {
        Ok(value) => value,
        Err(error) => json!({"error": error}),
    }
}

const TYPES: &str = r#"
    (type $place' (record (field "is-north" bool) (field "name" (option string))))
    (export "place" (type $place (eq $place')))
    (type $shape' (variant (case "none") (case "circle" float32)))
    (export "shape" (type $shape (eq $shape')))
    (type $unit' (enum "celsius" "kelvin"))
    (export "unit" (type $unit (eq $unit')))
    (type $rights' (flags "read" "to-write"))
    (export "rights" (type $rights (eq $rights')))"#;

#[test]
fn values_of_every_type_go_there_and_back() {
    for (type_, values) in [
        ("bool", vec![json!(true)]),
        ("s8", vec![json!(-128), json!(127)]),
        ("u64", vec![json!(u64::MAX), json!(0)]),
        ("s64", vec![json!(i64::MIN)]),
        ("float64", vec![json!(0.1), json!(-2.5)]),
        ("char", vec![json!("é")]),
        ("string", vec![json!(""), json!("関所")]),
        ("(list u8)", vec![json!(""), json!("AAECAw==")]),
        ("(list s16)", vec![json!([]), json!([1, -2])]),
        ("(option string)", vec![json!(null), json!("x")]),
        ("(option (option bool))", vec![json!(null), json!({"some": null}), json!({"some": true})]),
        ("(tuple u8 string)", vec![json!([1, "x"])]),
        ("(list (result u8 (error string)))", vec![json!([{"ok": 1}, {"err": "no"}])]),
        ("(list (result))", vec![json!([{"ok": null}, {"err": null}])]),
        ("$place", vec![json!({"is_north": true, "name": "Bern"}), json!({"is_north": false, "name": null})]),
        ("$shape", vec![json!({"tag": "none"}), json!({"tag": "circle", "val": 1.5})]),
        ("$unit", vec![json!("kelvin")]),
        ("$rights", vec![json!([]), json!(["read", "to-write"])]),
    ] {
        let function = function(TYPES, type_);
        for value in values {
            assert_eq!(there_and_back(&function, &value), value, "{type_}");
        }
    }
    let place = function(TYPES, "$place");
    assert_eq!(there_and_back(&place, &json!({"is_north": true}))["name"], Value::Null, "it may be left out");
    assert_eq!(there(&function("", "u8"), &json!(3.0)), Ok(Val::U8(3)));
    let result = function("", "(result u8 (error string))");
    assert_eq!(there_and_back(&result, &json!({"ok": 7})), 7);
    assert_eq!(there_and_back(&result, &json!({"err": "no"})), json!({"error": "no"}));
}

#[test]
fn a_value_that_does_not_fit_is_named_with_its_place() {
    for (type_, value, path, says) in [
        ("u8", json!(256), "/v", "within the range"),
        ("u8", json!(1.5), "/v", "an integer"),
        ("u8", json!("1"), "/v", "a number"),
        ("float32", json!(1e300), "/v", "too large"),
        ("char", json!("ab"), "/v", "one character"),
        ("(list u8)", json!("*"), "/v", "base64"),
        ("(list bool)", json!([true, 1]), "/v/1", "true or false"),
        ("(tuple u8 u8)", json!([1]), "/v", "2 values"),
        ("$place", json!({"name": "x"}), "/v/is_north", "missing"),
        ("$shape", json!({"tag": "square"}), "/v/tag", "none, circle"),
        ("$shape", json!({"tag": "circle"}), "/v/val", "missing"),
        ("$shape", json!({"tag": "circle", "val": true}), "/v/val", "a number"),
        ("$unit", json!("rankine"), "/v", "one of its cases"),
        ("$rights", json!(["execute"]), "/v", "read, to-write"),
        ("(option (option bool))", json!({"none": 1}), "/v", "`some`"),
        ("(list (result))", json!([{"ok": 1, "err": 2}]), "/v/0", "either"),
    ] {
        let mismatch = there(&function(TYPES, type_), &value).unwrap_err();
        assert!(mismatch.path == path && mismatch.message.contains(says), "{type_} {value}: {mismatch:?}");
    }
    let missing = parameters(&function("", "bool"), &Map::new()).unwrap_err();
    assert_eq!((&*missing.path, &*missing.message), ("/v", "it is missing"));
}

#[test]
fn numbers_that_json_does_not_have_are_refused() {
    let function = function("", "(tuple float64 float64)");
    let result = [Val::Tuple(vec![Val::Float64(1.0), Val::Float64(f64::NAN)])];
    let Err(Unwritten::Mismatch(refused)) = returned(&function, &result, 1_000) else { panic!("it was taken") };
    assert_eq!((&*refused.path, &*refused.message), ("/1", "NaN is no number in JSON"));
}

#[test]
fn results_that_cannot_fit_are_not_made() {
    let (flag, case) = (Val::Flags(vec!["read".to_owned()]), Val::Variant("none".to_owned(), None));
    let (text, byte) = (Val::String("text".to_owned()), Val::U8(7));
    for (type_, item) in [("$rights", flag), ("$shape", case), ("string", text), ("u8", byte)] {
        let function = function(TYPES, &format!("(list {type_})"));
        let list = |items: usize| [Val::List(vec![item.clone(); items])];
        assert!(returned(&function, &list(10), 1_000).is_ok(), "{type_}");
        assert_eq!(returned(&function, &list(1_000), 1_000), Err(Unwritten::TooLong), "{type_}");
    }
}

#[test]
fn only_lists_of_flags_take_more_memory_than_they_count_with() {
    for (type_, expected) in [
        ("string", 1..=1),
        ("(list string)", 1..=1),
        ("$rights", 1..=1),
        ("(option $rights)", 1..=1),
        ("(list $rights)", 2..=8),
        ("(list (tuple u8 (option $rights)))", 2..=8),
        ("(result (list $rights) (error string))", 2..=8),
        ("(result u8 (error (list $rights)))", 2..=8),
        ("(tuple (list u8) $rights)", 1..=1),
    ] {
        let expansion = expansion(&function(TYPES, type_));
        assert!(expected.contains(&expansion), "{type_}: {expansion}");
    }
    let letters: Vec<_> = ('a'..='z').map(String::from).collect();
    let expansion = expansion_of_flags(letters.iter().map(String::as_str));
    assert!((20..=40).contains(&expansion), "{expansion}");
}
