//! The values that an adapter fills in before arguments are validated and judged: defaults, and values of the caller's
//! session, under the tool's names for them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::Adapter;
use crate::call::arguments::{ArgumentList, Place, whole_definition};
use sekisho_calls::tool::FilledIn;
use sekisho_core::call::Arguments;

/// Where the fields that an adapter fills in stand among the arguments of one operation.
#[derive(Debug, Default)]
pub(crate) struct FilledFields {
    places: BTreeMap<String, FieldPlace>,
    /// The argument that is a body with members, which are fields too.
    body: Option<String>,
    /// The operation's own arguments: a member of the body with such a name is no field.
    arguments: BTreeSet<String>,
}

/// The place of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldPlace {
    Argument(String),
    /// A member of the argument that is the body.
    BodyMember(String),
    /// The tool has no name for it.
    Further,
}

impl Adapter {
    /// The places of all fields that are filled in. `list` has the schema that is [offered](Self::widen), and `has_members` says
    /// whether a body that is one argument has members.
    pub(crate) fn filled_fields(&self, list: &ArgumentList, has_members: bool) -> FilledFields {
        let body = list.arguments.iter().find(|argument| argument.place == Place::Body && has_members);
        let body = body.map(|argument| argument.name.clone());
        let fields = self.config.defaults.keys().chain(self.config.inject.keys());
        let places = fields.map(|field| (field.clone(), self.place_of(field, &list.schema, body.as_deref())));
        let arguments = list.arguments.iter().map(|argument| argument.name.clone()).collect();
        FilledFields { places: places.collect(), body, arguments }
    }

    fn place_of(&self, field: &str, schema: &Value, body: Option<&str>) -> FieldPlace {
        if let Some(name) = self.own_name(field, schema) {
            return FieldPlace::Argument(name);
        }
        let body = body.and_then(|body| schema.get("properties")?.get(body));
        let member = body.and_then(|body| self.own_name(field, resolved(body, schema)));
        member.map_or(FieldPlace::Further, FieldPlace::BodyMember)
    }

    /// The schema's name for a field of the vendor: one of its properties, or a further one that it takes.
    fn own_name(&self, field: &str, schema: &Value) -> Option<String> {
        let is_property = |name: &&String| schema.get("properties").is_some_and(|all| all.get(name.as_str()).is_some());
        let is_open = schema.get("additionalProperties") != Some(&Value::Bool(false));
        let spellings = self.spellings(field);
        let own = spellings.iter().find(is_property).or_else(|| spellings.first().filter(|_| is_open));
        own.cloned()
    }

    /// The names by which arguments mean a field of the vendor: its own, unless that means another field, and its aliases.
    fn spellings(&self, field: &str) -> Vec<String> {
        let own = (!self.config.keys.contains_key(field)).then(|| field.to_owned());
        let aliases = self.config.keys.iter().filter(|(_, vendors)| *vendors == field).map(|(name, _)| name.clone());
        own.into_iter().chain(aliases).collect()
    }

    /// Adds the defaults of fields that are not given, and replaces the model's values by the values of the session.
    pub(crate) fn fill_in(
        &self,
        fields: &FilledFields,
        arguments: &mut Arguments,
        prompt_params: &Map<String, Value>,
    ) -> FilledIn {
        let mut filled = FilledIn::default();
        for (field, value) in &self.config.defaults {
            let spellings = self.spellings(field);
            if !spellings.iter().any(|name| fields.has(arguments, name)) {
                fields.set(field, value, arguments, &mut filled);
            }
        }
        for (field, parameter) in &self.config.inject {
            let Some(value) = prompt_params.get(parameter) else { continue };
            for name in self.spellings(field) {
                filled.changed |= fields.remove_unless_set(arguments, field, &name);
            }
            fields.set(field, value, arguments, &mut filled);
        }
        filled
    }
}

impl FilledFields {
    /// Whether there is an argument, or a member of the body, that an adapter knows by this name.
    fn has(&self, arguments: &Arguments, name: &str) -> bool {
        let member = || self.members(arguments).is_some_and(|members| members.contains_key(name));
        arguments.contains_key(name) || (!self.arguments.contains(name) && member())
    }

    /// Removes a value under this name for the field, unless it is where its value is set.
    fn remove_unless_set(&self, arguments: &mut Arguments, field: &str, name: &str) -> bool {
        let place = self.places.get(field);
        let mut removed = false;
        if !matches!(place, Some(FieldPlace::Argument(own)) if own == name) {
            removed |= arguments.shift_remove(name).is_some();
        }
        let is_own = matches!(place, Some(FieldPlace::BodyMember(own)) if own == name);
        if !is_own
            && !self.arguments.contains(name)
            && let Some(members) = self.members_mut(arguments)
        {
            removed |= members.shift_remove(name).is_some();
        }
        removed
    }

    fn set(&self, field: &str, value: &Value, arguments: &mut Arguments, filled: &mut FilledIn) {
        let target = match self.places.get(field) {
            Some(FieldPlace::Argument(name)) => Some((&mut *arguments, name)),
            Some(FieldPlace::BodyMember(name)) => self.members_mut(arguments).map(|members| (members, name)),
            _ => None,
        };
        match target {
            Some((members, name)) => {
                let before = members.insert(name.clone(), value.clone());
                filled.changed |= before.as_ref() != Some(value);
            }
            None => {
                filled.further.insert(field.to_owned(), value.clone());
            }
        }
    }

    fn members<'a>(&self, arguments: &'a Arguments) -> Option<&'a Map<String, Value>> {
        arguments.get(self.body.as_ref()?)?.as_object()
    }

    fn members_mut<'a>(&self, arguments: &'a mut Arguments) -> Option<&'a mut Map<String, Value>> {
        arguments.get_mut(self.body.as_ref()?)?.as_object_mut()
    }
}

/// The target of a schema that refers to a definition of the whole.
fn resolved<'a>(schema: &'a Value, whole: &'a Value) -> &'a Value {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(whole_definition);
    let definition = name.and_then(|name| whole.get("$defs")?.get(&name));
    definition.unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::arguments::Argument;
    use sekisho_calls::tool::Aliases;

    /// An operation whose arguments have this schema; one called `body` is its body.
    fn filled(declared: Value, schema: Value, mut arguments: Value, prompt_params: &Value) -> (Value, Value) {
        let adapter = Adapter::compile(serde_json::from_value(declared).unwrap()).unwrap();
        let names: Vec<_> =
            schema["properties"].as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default();
        let place = |name: &str| if name == "body" { Place::Body } else { Place::Member(name.to_owned()) };
        let of_list = names.into_iter().map(|name| Argument { place: place(&name), name }).collect();
        let mut list = ArgumentList { arguments: of_list, schema, aliases: Aliases::default() };
        adapter.widen("query", &mut list.schema);
        let fields = adapter.filled_fields(&list, true);
        let given = arguments.as_object_mut().unwrap();
        let before = given.clone();
        let first = adapter.fill_in(&fields, given, prompt_params.as_object().unwrap());
        assert_eq!(first.changed, *given != before);
        let mut again = given.clone();
        let second = adapter.fill_in(&fields, &mut again, prompt_params.as_object().unwrap());
        assert!(!second.changed && second.further == first.further && again == *given, "it is filled in once");
        (arguments, first.further.into())
    }

    #[test]
    fn a_value_of_the_session_stands_where_the_tool_has_it() {
        let closed = |properties: Value| json!({"properties": properties, "additionalProperties": false});
        let inject = json!({"inject": {"account_id": "account"}});
        let renamed = json!({"inject": {"account_id": "account"}, "keys": {"acct": "account_id"}});
        let of_body = |body: Value| json!({"properties": {"body": body}, "additionalProperties": false});
        for (declared, schema, given, expected, further) in [
            // An argument, whatever the model wrote.
            (&inject, closed(json!({"account_id": {}})), json!({}), json!({"account_id": 7}), json!({})),
            (
                &inject,
                closed(json!({"account_id": {}})),
                json!({"account_id": "x"}),
                json!({"account_id": 7}),
                json!({}),
            ),
            // Under the name that the adapter offers, and under no other.
            (&renamed, closed(json!({"account_id": {}})), json!({"acct": "x"}), json!({"acct": 7}), json!({})),
            (
                &renamed,
                json!({"properties": {"account_id": {}}}),
                json!({"acct": "x", "account_id": "y"}),
                json!({"acct": 7}),
                json!({}),
            ),
            // A member that the document does not name.
            (&inject, json!({"properties": {}}), json!({"n": 1}), json!({"n": 1, "account_id": 7}), json!({})),
            // A field that the tool does not take.
            (&inject, closed(json!({"n": {}})), json!({"n": 1}), json!({"n": 1}), json!({"account_id": 7})),
            // A member of the body.
            (
                &inject,
                of_body(json!({"properties": {"account_id": {}}})),
                json!({"body": {"account_id": "x", "n": 1}}),
                json!({"body": {"account_id": 7, "n": 1}}),
                json!({}),
            ),
            (
                &inject,
                of_body(json!({"anyOf": [{}]})),
                json!({"body": {}}),
                json!({"body": {"account_id": 7}}),
                json!({}),
            ),
            (
                &inject,
                of_body(closed(json!({"n": {}}))),
                json!({"body": {"n": 1}}),
                json!({"body": {"n": 1}}),
                json!({"account_id": 7}),
            ),
            // A body that has no members, or is not given.
            (&inject, of_body(json!({})), json!({"body": [1]}), json!({"body": [1]}), json!({"account_id": 7})),
            (&inject, of_body(json!({})), json!({}), json!({}), json!({"account_id": 7})),
        ] {
            let found = filled(declared.clone(), schema.clone(), given.clone(), &json!({"account": 7}));
            assert_eq!(found, (expected, further), "{declared} {schema} {given}");
        }
        let nothing = filled(inject, closed(json!({"account_id": {}})), json!({"account_id": "x"}), &json!({}));
        assert_eq!(nothing, (json!({"account_id": "x"}), json!({})), "no value in the session");
    }

    #[test]
    fn a_default_is_for_what_is_not_given_under_any_name() {
        let declared = json!({"defaults": {"startTime": "today"}, "keys": {"from": "startTime"}});
        let schema = json!({"properties": {"startTime": {}}});
        for (given, expected) in [
            (json!({}), json!({"from": "today"})),
            (json!({"from": "yesterday"}), json!({"from": "yesterday"})),
            (json!({"startTime": "yesterday"}), json!({"startTime": "yesterday"})),
            (json!({"from": null}), json!({"from": null})),
        ] {
            assert_eq!(filled(declared.clone(), schema.clone(), given, &json!({})), (expected, json!({})));
        }
        let body = json!({"properties": {"body": {"properties": {"startTime": {}}}}, "additionalProperties": false});
        let found = filled(declared, body, json!({"body": {"from": "yesterday"}}), &json!({}));
        assert_eq!(found, (json!({"body": {"from": "yesterday"}}), json!({})));
    }
}
