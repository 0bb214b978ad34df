//! Other forms in which a model may write the arguments of a tool: their names at their source, and a body around them.

use std::collections::BTreeMap;

use serde_json::Value;

use sekisho_core::call::Arguments;
use sekisho_core::coercion::Coercion;

/// The other forms of one tool's arguments.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Aliases {
    /// The offered names, by the names at the source.
    pub names: BTreeMap<String, String>,
    /// The name under which the arguments of `members` may be nested.
    pub wrapper: Option<String>,
    /// The arguments that may be nested.
    pub members: Vec<String>,
}

impl Aliases {
    /// Rewrites the arguments in the form that the tool offers, and returns the changes. An argument that is there in both forms stays in
    /// both, and is refused or not by the schema.
    pub(super) fn apply(&self, arguments: &mut Arguments) -> Vec<Coercion> {
        let mut changes = Vec::from_iter(self.unnest(arguments));
        for (source, offered) in &self.names {
            if !arguments.contains_key(offered)
                && let Some(value) = arguments.shift_remove(source)
            {
                arguments.insert(offered.clone(), value);
                let pointer = |name: &str| format!("/{}", name.replace('~', "~0").replace('/', "~1"));
                let (from, path) = (pointer(source).into(), pointer(offered));
                changes.push(Coercion { to: path.as_str().into(), path, rule: "renamed", from });
            }
        }
        changes
    }

    fn unnest(&self, arguments: &mut Arguments) -> Option<Coercion> {
        let wrapper = self.wrapper.as_ref()?;
        let Some(Value::Object(nested)) = arguments.get(wrapper) else { return None };
        let is_free = nested.keys().all(|name| name != wrapper && !arguments.contains_key(name));
        let is_known = |name: &String| self.members.contains(name) || self.names.contains_key(name);
        if !is_free || !nested.keys().any(is_known) {
            return None;
        }
        let Some(Value::Object(nested)) = arguments.shift_remove(wrapper) else { return None };
        arguments.extend(nested);
        Some(Coercion { path: String::new(), rule: "unwrapped", from: format!("/{wrapper}").into(), to: "".into() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::schema::{ArgumentSchema, InputSchema, Parameters};

    fn input(coerce: bool) -> InputSchema {
        let schema = json!({"properties": {"filter_id": {"type": "integer"}, "name": {"type": "string"}}});
        let aliases = Aliases {
            names: BTreeMap::from([("filter[id]".to_owned(), "filter_id".to_owned())]),
            wrapper: Some("body".into()),
            members: vec!["name".into()],
        };
        let compiled = ArgumentSchema::compile(schema).unwrap().with_aliases(aliases);
        InputSchema::compile("tool", Parameters::Compiled(compiled.into()), coerce).unwrap()
    }

    #[test]
    fn arguments_by_the_names_of_the_source_become_those_of_the_tool() {
        for (given, expected, changes) in [
            (json!({"filter[id]": "3"}), json!({"filter_id": 3}), &["renamed", "string_to_integer"][..]),
            (json!({"body": {"name": "n", "more": 1}}), json!({"name": "n", "more": 1}), &["unwrapped"]),
            (json!({"body": {"filter[id]": 1}}), json!({"filter_id": 1}), &["unwrapped", "renamed"]),
            // Neither is clearly another form.
            (json!({"filter[id]": 1, "filter_id": 2}), json!({"filter[id]": 1, "filter_id": 2}), &[]),
            (json!({"body": {"more": 1}}), json!({"body": {"more": 1}}), &[]),
            (json!({"body": {"name": "n"}, "name": "m"}), json!({"body": {"name": "n"}, "name": "m"}), &[]),
            (json!({"body": "text"}), json!({"body": "text"}), &[]),
        ] {
            let valid = input(true).validate(given.as_object().cloned().unwrap()).unwrap();
            assert_eq!(Value::Object(valid.as_map().clone()), expected, "{given}");
            assert_eq!(valid.coercions().iter().map(|change| change.rule).collect::<Vec<_>>(), changes, "{given}");
            let unchanged = input(false).validate(given.as_object().cloned().unwrap()).unwrap();
            assert_eq!(Value::Object(unchanged.as_map().clone()), given);
        }
    }
}
