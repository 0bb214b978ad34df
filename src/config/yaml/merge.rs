//! Changes merged into the tree of a configuration file, as RFC 7396 says, and the difference that they make.

use serde_json::{Map, Value};

use super::document::{Content, Key, Node, Position};

impl Node {
    /// A value that a change sets.
    fn of_change(value: &Value, places: &mut usize) -> Self {
        let position = Position::of_change(places);
        let content = match value {
            Value::Null => Content::Null,
            Value::Bool(value) => Content::Bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => Content::Unsigned(value),
                (None, Some(value)) => Content::Signed(value),
                (None, None) => Content::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(value) => Content::Text { value: value.clone(), interpolated: false },
            Value::Array(items) => Content::List(items.iter().map(|item| Self::of_change(item, places)).collect()),
            Value::Object(members) => Content::Mapping(
                members
                    .iter()
                    .map(|(name, member)| {
                        let node = Self::of_change(member, places);
                        (Key { position: node.position, name: name.clone() }, node)
                    })
                    .collect(),
            ),
        };
        Self { position, content }
    }

    /// Merges a change into it, as RFC 7396 says.
    pub(super) fn merge(&mut self, patch: &Value, places: &mut usize) {
        let Value::Object(members) = patch else {
            *self = Self::of_change(patch, places);
            return;
        };
        if !matches!(self.content, Content::Mapping(_)) {
            *self = Self { position: Position::of_change(places), content: Content::Mapping(Vec::new()) };
        }
        let Content::Mapping(entries) = &mut self.content else { return };
        for (name, member) in members {
            let known = entries.iter().position(|(key, _)| key.name == *name);
            match (member, known) {
                (Value::Null, _) => entries.retain(|(key, _)| key.name != *name),
                (_, Some(at)) => entries[at].1.merge(member, places),
                (_, None) => {
                    let position = Position::of_change(places);
                    let mut node = Self { position, content: Content::Null };
                    node.merge(member, places);
                    entries.push((Key { position: node.position, name: name.clone() }, node));
                }
            }
        }
    }

    /// The merge patch that makes this node, into which changes were merged, of the one before; `None`: they set nothing in it.
    pub(super) fn difference(&self, before: Option<&Self>) -> Option<Value> {
        let was = match before.map(|before| &before.content) {
            Some(Content::Mapping(was)) => was.as_slice(),
            _ => &[],
        };
        let Content::Mapping(is) = &self.content else {
            return self.position.is_of_change().then(|| self.value());
        };
        let of = |name: &str| was.iter().find(|(key, _)| key.name == name).map(|(_, node)| node);
        let set = is.iter().filter_map(|(key, node)| Some((key.name.clone(), node.difference(of(&key.name))?)));
        let gone = was.iter().filter(|(key, _)| self.child(&key.name).is_none());
        let members: Map<_, _> = set.chain(gone.map(|(key, _)| (key.name.clone(), Value::Null))).collect();
        // An empty mapping in the place of another value, or of none, was set too.
        let is_set = !members.is_empty() || (self.position.is_of_change() && was.is_empty());
        is_set.then_some(Value::Object(members))
    }

    /// As JSON.
    fn value(&self) -> Value {
        match &self.content {
            Content::Null | Content::InvalidValue => Value::Null,
            Content::Bool(value) => Value::from(*value),
            Content::Unsigned(value) => Value::from(*value),
            Content::Signed(value) => Value::from(*value),
            Content::Float(value) => Value::from(*value),
            Content::Text { value, .. } | Content::Unread(value) => Value::from(value.as_str()),
            Content::List(items) => items.iter().map(Self::value).collect(),
            Content::Mapping(entries) => {
                Value::Object(entries.iter().map(|(key, node)| (key.name.clone(), node.value())).collect())
            }
        }
    }
}
