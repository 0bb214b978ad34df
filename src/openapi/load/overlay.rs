//! OpenAPI Overlay 1.0 (<https://spec.openapis.org/overlay/v1.0.0.html>): a list of changes, each with a
//! JSONPath (RFC 9535), applied to a document before it is read.

use std::cmp::Ordering;

use serde::Deserialize;
use serde_json::Value;
use serde_json_path::{JsonPath, NormalizedPath};
use thiserror::Error;

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
    #[error("`overlay` is {0:?}; only 1.0 overlays are supported")]
    Version(String),
    #[error("the overlay has more than {MAX_ACTIONS} actions")]
    TooManyActions,
    #[error("with `actions[{action}]` the overlay adds more than {} MiB; select fewer targets", MAX_ADDED_BYTES >> 20)]
    TooLarge { action: usize },
    #[error("`actions[{action}].target` is not a JSONPath (RFC 9535): {problem}")]
    Target { action: usize, problem: String },
    #[error("`actions[{action}]` has neither `update` nor `remove: true`; give one of them")]
    NothingToDo { action: usize },
    #[error("`actions[{action}]` would change {place:?}, which is neither an object nor an array")]
    NoContainer { action: usize, place: String },
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
    #[serde(default)]
    remove: bool,
}

/// Applies the actions in order, all or none, and returns the targets that select nothing: valid by the
/// specification, but probably a mistake.
///
/// # Errors
/// [`OverlayError`], naming the action.
pub(crate) fn apply(document: &mut Value, overlay: &Value) -> Result<Vec<String>, OverlayError> {
    let overlay = Overlay::deserialize(overlay).map_err(|error| OverlayError::Form(error.to_string()))?;
    if overlay.overlay != "1.0" && !overlay.overlay.starts_with("1.0.") {
        return Err(OverlayError::Version(overlay.overlay));
    }
    if overlay.actions.len() > MAX_ACTIONS {
        return Err(OverlayError::TooManyActions);
    }
    let mut changed = document.clone();
    let mut selecting_nothing = Vec::new();
    let mut room = MAX_ADDED_BYTES;
    for (index, action) in overlay.actions.into_iter().enumerate() {
        let target = JsonPath::parse(&action.target)
            .map_err(|error| OverlayError::Target { action: index, problem: error.to_string() })?;
        let places = places(&target, &changed);
        if places.is_empty() {
            selecting_nothing.push(action.target);
            continue;
        }
        match action.update {
            // `remove` takes precedence over `update`.
            _ if action.remove => remove(&mut changed, places, index)?,
            Some(update) => {
                let added = json::footprint(&update).saturating_mul(places.len());
                room = room.checked_sub(added).ok_or(OverlayError::TooLarge { action: index })?;
                places.iter().try_for_each(|place| change(&mut changed, place, &update, index))?;
            }
            None => return Err(OverlayError::NothingToDo { action: index }),
        }
    }
    *document = changed;
    Ok(selecting_nothing)
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

fn change(document: &mut Value, place: &str, update: &Value, action: usize) -> Result<(), OverlayError> {
    match document.pointer_mut(place) {
        Some(target @ Value::Object(_)) if update.is_object() => merge(target, update),
        Some(Value::Object(_)) => return Err(OverlayError::NoObject { action, place: place.to_owned() }),
        Some(Value::Array(items)) => items.push(update.clone()),
        _ => return Err(OverlayError::NoContainer { action, place: place.to_owned() }),
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
    fn another_version_or_form_is_refused() {
        let mut document = document();
        assert_eq!(
            apply(&mut document, &json!({"overlay": "2.0.0", "actions": []})),
            Err(OverlayError::Version("2.0.0".into()))
        );
        assert!(matches!(apply(&mut document, &json!({"overlay": "1.0.0"})), Err(OverlayError::Form(_))));
    }
}
