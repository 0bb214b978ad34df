//! Reads a document without duplicate keys: JSON, or YAML that becomes JSON, within a budget.

use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

/// The form that a reader accepts.
pub trait Rules: Copy {
    /// Tags are ignored, merge keys (`<<`) are applied, and a number that JSON cannot represent becomes a string.
    const IS_YAML: bool;

    /// Called for each value, with the bytes of its text, and for each key.
    /// Errors: the budget is spent.
    fn spend<E: de::Error>(self, text_bytes: usize) -> Result<(), E>;

    /// Called for a key that an object already has, with the object's place. Its last value counts where that is no
    /// error.
    /// Errors: the key is refused, which is the default.
    fn duplicate<E: de::Error>(self, key: &str, object: &dyn fmt::Display) -> Result<(), E> {
        Err(E::custom(duplicate(key, object)))
    }

    /// Called for an object or a list with its depth. `true`: it is skipped, and null in its place.
    fn skips(self, _depth: usize, _place: &dyn fmt::Display) -> bool {
        false
    }
}

/// Reads one value at its place.
#[derive(Debug, Clone, Copy)]
pub struct ValueReader<'a, R> {
    rules: R,
    place: Place<'a>,
    depth: usize,
}

/// The current position: a list on the stack that costs nothing unless an error is reported.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a> {
    Root,
    Key(&'a Place<'a>, &'a str),
    Index(&'a Place<'a>, usize),
}

/// The position as a JSON Pointer (RFC 6901).
impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(parent, key) => write!(formatter, "{parent}/{}", key.replace('~', "~0").replace('/', "~1")),
            Self::Index(parent, index) => write!(formatter, "{parent}/{index}"),
        }
    }
}

impl<R: Rules> ValueReader<'_, R> {
    pub fn new(rules: R) -> Self {
        Self { rules, place: Place::Root, depth: 0 }
    }
}

impl<'a, R: Rules> ValueReader<'a, R> {
    fn below<'b>(&self, place: Place<'b>) -> ValueReader<'b, R> {
        ValueReader { rules: self.rules, place, depth: self.depth + 1 }
    }
}

impl<'de, R: Rules> DeserializeSeed<'de> for ValueReader<'_, R> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, R: Rules> Visitor<'de> for ValueReader<'_, R> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if R::IS_YAML { "JSON or YAML" } else { "a JSON value" })
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        self.rules.spend(0)?;
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        self.rules.spend(0)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        self.rules.spend(0)?;
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        self.rules.spend(0)?;
        Ok(Value::Number(value.into()))
    }

    /// Beyond 64 bits YAML distinguishes integers from floats, and JSON does not: `maximum: 18446744073709552000`.
    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        #[expect(clippy::cast_precision_loss, reason = "as JSON reads such an integer")]
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        #[expect(clippy::cast_precision_loss, reason = "as JSON reads such an integer")]
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        self.rules.spend(0)?;
        match Number::from_f64(value) {
            Some(number) => Ok(Value::Number(number)),
            // YAML's `.inf`.
            None if R::IS_YAML => Ok(Value::String(value.to_string())),
            None => Err(E::custom("number out of range")),
        }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        self.rules.spend(value.len())?;
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.rules.spend(0)?;
        if self.rules.skips(self.depth, &self.place) {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self.below(Place::Index(&self.place, items.len())))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.rules.spend(0)?;
        if self.rules.skips(self.depth, &self.place) {
            while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut members = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            self.rules.spend(key.len())?;
            match members.entry(key) {
                Entry::Vacant(slot) => {
                    let place = Place::Key(&self.place, slot.key());
                    let value = access.next_value_seed(self.below(place))?;
                    slot.insert(value);
                }
                Entry::Occupied(mut slot) => {
                    self.rules.duplicate(slot.key(), &self.place)?;
                    let key = slot.key().clone();
                    let value = access.next_value_seed(self.below(Place::Key(&self.place, &key)))?;
                    slot.insert(value);
                }
            }
        }
        if R::IS_YAML {
            merge(&mut members);
        }
        Ok(Value::Object(members))
    }

    /// A YAML tag (`!Foo bar`) is ignored; the tagged value is read.
    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
        if !R::IS_YAML {
            return Err(de::Error::invalid_type(Unexpected::Enum, &self));
        }
        let (_tag, content): (String, _) = access.variant()?;
        content.newtype_variant_seed(self)
    }
}

#[cold]
pub(super) fn duplicate(key: &str, object: &dyn fmt::Display) -> String {
    let key: String = key.chars().take(100).collect();
    let object: String = object.to_string().chars().take(300).collect();
    let object = if object.is_empty() { String::new() } else { format!(" in {object:?}") };
    // Ends in our own words: `serde_json` takes an "at line N column N" at the end for its own.
    format!("duplicate key {key:?}{object}; use each key once")
}

/// YAML's merge key: members of another mapping, or of several, that the mapping itself does not have.
/// <https://yaml.org/type/merge.html>
fn merge(members: &mut Map<String, Value>) {
    if !matches!(members.get("<<"), Some(Value::Object(_) | Value::Array(_))) {
        return;
    }
    let others = match members.shift_remove("<<") {
        Some(Value::Array(others)) => others,
        Some(other) => vec![other],
        None => return,
    };
    for other in others {
        let Value::Object(other) = other else { continue };
        for (key, value) in other {
            members.entry(key).or_insert(value);
        }
    }
}
