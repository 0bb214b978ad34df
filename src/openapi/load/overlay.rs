//! OpenAPI Overlay 1.0 and 1.1 (<https://spec.openapis.org/overlay/v1.1.0.html>): a list of changes, each with a
//! JSONPath (RFC 9535), applied to a document before it is read.

use std::cmp::Ordering;

use serde::Deserialize;
use serde_json::Value;
use serde_json_path::{JsonPath, NormalizedPath};
use thiserror::Error;

use super::document::MAX_DEPTH;
use sekisho_core::json;

/// Most actions of one overlay.
const MAX_ACTIONS: usize = 10_000;

/// Most bytes of memory that an overlay may add to a document: an update of several targets is copied to each.
const MAX_ADDED_BYTES: usize = 64 << 20;

/// Why an overlay cannot be applied. The document is then unchanged.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OverlayError {
    #[error("this is not an overlay: {0}")]
    Form(String),
    #[error("`overlay` is {0:?}; only overlays of version 1.0 and 1.1 are supported")]
    Version(String),
    #[error("the overlay has more than {MAX_ACTIONS} actions")]
    TooManyActions,
    #[error("with `actions[{action}]` the overlay adds more than {} MiB; select fewer targets", MAX_ADDED_BYTES >> 20)]
    TooLarge { action: usize },
    #[error("with `actions[{action}]` the document is nested more than {MAX_DEPTH} levels deep; write it flatter")]
    TooDeep { action: usize },
    #[error("`actions[{action}].{field}` is not a JSONPath (RFC 9535): {problem}")]
    Path { action: usize, field: &'static str, problem: String },
    #[error("`actions[{action}]` has neither `update`, `copy` nor `remove: true`; give one of them")]
    NothingToDo { action: usize },
    #[error("`actions[{action}]` has `copy`, which overlays of version 1.1 have; write `overlay: 1.1.0`")]
    CopyBefore1_1 { action: usize },
    #[error("`actions[{action}].copy` selects {selected} values; it must select one")]
    NotOneSource { action: usize, selected: usize },
    #[error("`actions[{action}]` would change {place:?}, which is neither an object nor an array")]
    NoContainer { action: usize, place: String },
    #[error("`actions[{action}]` would replace {place:?}, a single value, with an object or an array")]
    NoSingleValue { action: usize, place: String },
    #[error("`actions[{action}]` would update {place:?}, an object, with a value that is not an object")]
    NoObject { action: usize, place: String },
    #[error("`actions[{action}]` would remove the whole document")]
    WholeDocument { action: usize },
}

#[derive(Deserialize)]
struct Overlay {
    overlay: String,
    actions: Vec<Action>,
}

#[derive(Deserialize)]
struct Action {
    target: String,
    update: Option<Value>,
    copy: Option<String>,
    #[serde(default)]
    remove: bool,
}

/// The features of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1_0,
    V1_1,
}

impl Version {
    fn of(written: &str) -> Option<Self> {
        let is =
            |version: &str| written.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        [("1.0", Self::V1_0), ("1.1", Self::V1_1)].into_iter().find_map(|(name, version)| is(name).then_some(version))
    }
}

/// Applies the actions in order, all or none, and returns the targets that select nothing: valid by the
/// specification, but probably a mistake.
/// Errors: [`OverlayError`], naming the action.
pub(crate) fn apply(document: &mut Value, overlay: &Value) -> Result<Vec<String>, OverlayError> {
    let overlay = Overlay::deserialize(overlay).map_err(|error| OverlayError::Form(error.to_string()))?;
    let Some(version) = Version::of(&overlay.overlay) else {
        return Err(OverlayError::Version(overlay.overlay));
    };
    if overlay.actions.len() > MAX_ACTIONS {
        return Err(OverlayError::TooManyActions);
    }
    let mut changed = document.clone();
    let mut selecting_nothing = Vec::new();
    let mut room = MAX_ADDED_BYTES;
    for (index, action) in overlay.actions.into_iter().enumerate() {
        let target = path(&action.target, "target", index)?;
        let places = places(&target, &changed);
        if places.is_empty() {
            selecting_nothing.push(action.target);
            continue;
        }
        // `remove` takes precedence.
        if action.remove {
            remove(&mut changed, places, index)?;
            continue;
        }
        let update = match (action.update, action.copy) {
            (Some(update), _) => update,
            (None, Some(source)) if version == Version::V1_1 => copied(&source, &changed, index)?,
            (None, Some(_)) => return Err(OverlayError::CopyBefore1_1 { action: index }),
            (None, None) => return Err(OverlayError::NothingToDo { action: index }),
        };
        let added = json::footprint(&update).saturating_mul(places.len());
        room = room.checked_sub(added).ok_or(OverlayError::TooLarge { action: index })?;
        let above = places.iter().map(|place| place.matches('/').count()).max().unwrap_or_default();
        if above + depth(&update) > MAX_DEPTH {
            return Err(OverlayError::TooDeep { action: index });
        }
        places.iter().try_for_each(|place| change(&mut changed, place, &update, version, index))?;
    }
    *document = changed;
    Ok(selecting_nothing)
}

fn path(written: &str, field: &'static str, action: usize) -> Result<JsonPath, OverlayError> {
    JsonPath::parse(written).map_err(|error| OverlayError::Path { action, field, problem: error.to_string() })
}

/// Values within each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// The one value that `copy` selects.
fn copied(source: &str, document: &Value, action: usize) -> Result<Value, OverlayError> {
    let selected = path(source, "copy", action)?.query(document).all();
    match selected.as_slice() {
        [one] => Ok(Value::clone(one)),
        other => Err(OverlayError::NotOneSource { action, selected: other.len() }),
    }
}

/// JSON Pointers (RFC 6901) of the values that the path selects, later ones first, so that removing one does not move
/// another.
fn places(target: &JsonPath, document: &Value) -> Vec<String> {
    let located = target.query_located(document);
    let mut places: Vec<_> = located.locations().map(NormalizedPath::to_json_pointer).collect();
    places.sort_by(|one, other| by_position(other, one));
    places.dedup();
    places
}

/// Indices by number, names by spelling.
fn by_position(one: &str, other: &str) -> Ordering {
    let key = |token: &str| (token.parse::<usize>().ok(), token.to_owned());
    one.split('/').map(key).cmp(other.split('/').map(key))
}

fn remove(document: &mut Value, places: Vec<String>, action: usize) -> Result<(), OverlayError> {
    for place in places {
        let Some((parent, token)) = place.rsplit_once('/') else {
            return Err(OverlayError::WholeDocument { action });
        };
        match document.pointer_mut(parent) {
            Some(Value::Object(members)) => _ = members.shift_remove(&token.replace("~1", "/").replace("~0", "~")),
            Some(Value::Array(items)) => {
                if let Some(index) = token.parse().ok().filter(|index| *index < items.len()) {
                    items.remove(index);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// An array of 1.1 is joined with an array; 1.1 replaces single values, which 1.0 does not allow.
fn change(
    document: &mut Value,
    place: &str,
    update: &Value,
    version: Version,
    action: usize,
) -> Result<(), OverlayError> {
    let place = || place.to_owned();
    match (document.pointer_mut(&place()), update) {
        (Some(target @ Value::Object(_)), Value::Object(_)) => merge(target, update),
        (Some(Value::Object(_)), _) => return Err(OverlayError::NoObject { action, place: place() }),
        (Some(target @ Value::Array(_)), Value::Array(_)) if version == Version::V1_1 => merge(target, update),
        (Some(Value::Array(items)), _) => items.push(update.clone()),
        (Some(_), Value::Object(_) | Value::Array(_)) if version == Version::V1_1 => {
            return Err(OverlayError::NoSingleValue { action, place: place() });
        }
        (Some(single), _) if version == Version::V1_1 => single.clone_from(update),
        _ => return Err(OverlayError::NoContainer { action, place: place() }),
    }
    Ok(())
}

/// Objects are merged member by member, arrays are joined, anything else is replaced.
fn merge(target: &mut Value, update: &Value) {
    match (target, update) {
        (Value::Object(target), Value::Object(update)) => {
            for (key, value) in update {
                match target.get_mut(key) {
                    Some(known) => merge(known, value),
                    None => _ = target.insert(key.clone(), value.clone()),
                }
            }
        }
        (Value::Array(target), Value::Array(update)) => target.extend_from_slice(update),
        (target, update) => target.clone_from(update),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({
            "info": {"title": "Pets"},
            "paths": {
                "/pets/{id}": {"get": {"operationId": "get", "tags": ["a"]}, "delete": {"operationId": "drop"}},
                "/list": {"get": {"operationId": "list", "parameters": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}},
            },
        })
    }

    fn applied(actions: &Value) -> Result<(Value, Vec<String>), OverlayError> {
        let mut document = document();
        let unused = apply(&mut document, &json!({"overlay": "1.0.0", "info": {}, "actions": actions}))?;
        Ok((document, unused))
    }

    #[test]
    fn an_update_merges_objects_joins_arrays_and_replaces_the_rest() {
        let update = json!({"tags": ["b"], "operationId": "get_pet", "x-cost": 1});
        let (changed, _) = applied(&json!([{"target": "$.paths['/pets/{id}'].get", "update": update}])).unwrap();
        let operation = &changed["paths"]["/pets/{id}"]["get"];
        assert_eq!(*operation, json!({"operationId": "get_pet", "tags": ["a", "b"], "x-cost": 1}));
    }

    #[test]
    fn an_update_of_an_array_appends() {
        let action = json!([{"target": "$.paths['/list'].get.parameters", "update": {"name": "c"}}]);
        assert_eq!(applied(&action).unwrap().0["paths"]["/list"]["get"]["parameters"][3], json!({"name": "c"}));
    }

    #[test]
    fn all_that_is_selected_is_removed_and_nothing_else() {
        let actions = json!([
            {"target": "$.paths['/list'].get.parameters[?@.name == 'a']", "remove": true},
            {"target": "$.paths.*.delete", "remove": true},
        ]);
        let (changed, _) = applied(&actions).unwrap();
        assert_eq!(changed["paths"]["/list"]["get"]["parameters"], json!([{"name": "b"}]));
        assert_eq!(changed["paths"]["/pets/{id}"].get("delete"), None);
        assert!(changed["paths"]["/pets/{id}"].get("get").is_some());
    }

    #[test]
    fn more_than_ten_items_are_removed_in_the_right_order() {
        let mut document = json!({"a": (0..12).collect::<Vec<_>>()});
        let actions = json!([{"target": "$.a[?@ == 2 || @ == 9 || @ == 10]", "remove": true}]);
        apply(&mut document, &json!({"overlay": "1.0.0", "actions": actions})).unwrap();
        assert_eq!(document["a"], json!([0, 1, 3, 4, 5, 6, 7, 8, 11]));
    }

    #[test]
    fn a_target_that_selects_nothing_is_reported() {
        let (unchanged, unused) = applied(&json!([{"target": "$.nothing", "remove": true}])).unwrap();
        assert_eq!((unchanged, unused), (document(), vec!["$.nothing".to_owned()]));
    }

    #[test]
    fn a_fault_names_its_action_and_leaves_the_document_as_it_was() {
        let first = json!({"target": "$.info", "update": {"title": "changed"}});
        for (second, expected) in [
            (json!({"target": "info"}), "`actions[1].target` is not"),
            (json!({"target": "$.info"}), "`actions[1]` has neither"),
            (json!({"target": "$.info.title", "update": {}}), "neither an object nor an array"),
            (json!({"target": "$.info", "update": "text"}), "with a value that is not an object"),
            (json!({"target": "$", "remove": true}), "whole document"),
        ] {
            let mut changed = document();
            let overlay = json!({"overlay": "1.0.0", "actions": [first, second]});
            let error = apply(&mut changed, &overlay).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(changed, document());
        }
    }

    /// Each action doubles the document, and the next selects twice as many targets.
    #[test]
    fn a_document_does_not_grow_without_bound() {
        let mut document = json!({"a": {"x": {}}});
        let text = "x".repeat(10_000);
        let action = json!({"target": "$..x", "update": {"text": text, "y": {"x": {}}, "z": {"x": {}}}});
        let overlay = json!({"overlay": "1.0.0", "actions": vec![action; 40]});
        let error = apply(&mut document, &overlay).unwrap_err();
        assert!(matches!(error, OverlayError::TooLarge { .. }), "{error}");
        assert_eq!(document, json!({"a": {"x": {}}}));
    }

    #[test]
    fn an_overlay_of_1_1_copies_replaces_single_values_and_joins_arrays() {
        let mut changed = document();
        let actions = json!([
            {"target": "$.info.title", "update": "Animals"},
            {"target": "$.paths['/list'].get.parameters", "update": [{"name": "c"}, {"name": "d"}]},
            {"target": "$.paths['/list'].get", "update": {"tags": ["b"]}},
            {"target": "$.paths['/list'].get.tags", "copy": "$.paths['/pets/{id}'].get.tags"},
            {"target": "$.paths['/pets/{id}'].delete", "copy": "$.paths['/pets/{id}'].get"},
        ]);
        apply(&mut changed, &json!({"overlay": "1.1.0", "info": {}, "actions": actions})).unwrap();
        assert_eq!(changed["info"]["title"], "Animals");
        assert_eq!(changed["paths"]["/list"]["get"]["parameters"].as_array().unwrap().len(), 5);
        assert_eq!(changed["paths"]["/list"]["get"]["tags"], json!(["b", "a"]));
        assert_eq!(changed["paths"]["/pets/{id}"]["delete"], json!({"operationId": "get", "tags": ["a"]}));
        for (version, action, expected) in [
            ("1.1.0", json!({"target": "$.info", "copy": "$.paths[*]"}), "selects 2 values"),
            ("1.1.0", json!({"target": "$.info", "copy": "$.nothing"}), "selects 0 values"),
            ("1.1.0", json!({"target": "$.info", "copy": "info"}), "`actions[0].copy` is not a JSONPath"),
            ("1.1.0", json!({"target": "$.info.title", "update": {}}), "a single value, with an object"),
            ("1.0.0", json!({"target": "$.info", "copy": "$.paths"}), "write `overlay: 1.1.0`"),
        ] {
            let mut changed = document();
            let error = apply(&mut changed, &json!({"overlay": version, "actions": [action]})).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(changed, document());
        }
    }

    #[test]
    fn no_action_nests_a_document_without_end() {
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
        let doubling = json!({"target": format!("$.{}", vec!["a"; 60].join(".")), "copy": "$.a"});
        let doubled = apply(&mut deep(60), &json!({"overlay": "1.1.0", "actions": [doubling]}));
        assert_eq!(doubled, Err(OverlayError::TooDeep { action: 0 }));
        let actions = json!([{"target": "$", "update": deep(90)}, {"target": "$..a", "update": deep(90)}]);
        assert_eq!(applied(&actions), Err(OverlayError::TooDeep { action: 1 }));
    }

    #[test]
    fn another_version_or_form_is_refused() {
        let mut document = document();
        assert_eq!(
            apply(&mut document, &json!({"overlay": "2.0.0", "actions": []})),
            Err(OverlayError::Version("2.0.0".into()))
        );
        assert!(matches!(apply(&mut document, &json!({"overlay": "1.0.0"})), Err(OverlayError::Form(_))));
    }
}
