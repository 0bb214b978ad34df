//! Resolves a document's `$ref`s within that document.
//!
//! Other files are bundled into the document before it is read, so here every reference is a fragment.

use std::cell::OnceCell;
use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;
use thiserror::Error;

/// Longest chain of references that refer to references.
const MAX_STEPS: usize = 64;

/// Why a reference cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BrokenReference {
    #[error("`$ref: {0}` points at nothing")]
    Nowhere(String),
    #[error("`$ref: {0}` points into another document that was not loaded")]
    Elsewhere(String),
    #[error("`$ref: {0}` refers to itself")]
    Circle(String),
}

/// A document's references.
#[derive(Debug)]
pub(crate) struct References<'d> {
    document: &'d Value,
    /// By `$anchor`, `$dynamicAnchor` and `$id`; collected on first use, as most documents have none.
    named: OnceCell<HashMap<&'d str, &'d Value>>,
}

impl<'d> References<'d> {
    pub(crate) fn new(document: &'d Value) -> Self {
        Self { document, named: OnceCell::new() }
    }

    pub(crate) fn document(&self) -> &'d Value {
        self.document
    }

    /// Resolves `value`: itself, or the end of its chain of `$ref`s.
    /// Errors: [`BrokenReference`]: its target is missing, in another document, or itself.
    pub(crate) fn follow(&self, value: &'d Value) -> Result<&'d Value, BrokenReference> {
        let mut value = value;
        for _ in 0..MAX_STEPS {
            match reference(value) {
                None => return Ok(value),
                Some(reference) => value = self.at(reference)?,
            }
        }
        Err(BrokenReference::Circle(shown(reference(value).unwrap_or_default())))
    }

    /// As [`References::follow`], of a value that need not be in the document itself.
    /// Errors: as [`References::follow`].
    pub(crate) fn target<'v>(&self, value: &'v Value) -> Result<&'v Value, BrokenReference>
    where
        'd: 'v,
    {
        match reference(value) {
            None => Ok(value),
            Some(reference) => self.at(reference).and_then(|target| self.follow(target)),
        }
    }

    /// The target of a reference, which may be a reference itself: a JSON Pointer as a URL's fragment (RFC 6901 section
    /// 6), an anchor, or a schema's `$id`.
    /// Errors: [`BrokenReference`]: its target is missing or in another document.
    pub(crate) fn at(&self, reference: &str) -> Result<&'d Value, BrokenReference> {
        let found = match reference.strip_prefix('#') {
            Some("") => Some(self.document),
            Some(pointer) if pointer.starts_with('/') => self.pointed(pointer),
            Some(anchor) => self.named().get(anchor).copied(),
            None => {
                let found = self.named().get(reference.trim_end_matches('#')).copied();
                return found.ok_or_else(|| BrokenReference::Elsewhere(shown(reference)));
            }
        };
        found.ok_or_else(|| BrokenReference::Nowhere(shown(reference)))
    }

    /// First as written: a key may contain an unencoded `%`.
    fn pointed(&self, pointer: &str) -> Option<&'d Value> {
        self.document.pointer(pointer).or_else(|| {
            let decoded = percent_decode_str(pointer).decode_utf8().ok()?;
            self.document.pointer(&decoded)
        })
    }

    fn named(&self) -> &HashMap<&'d str, &'d Value> {
        self.named.get_or_init(|| {
            let mut named = HashMap::new();
            collect_names(self.document, &mut named);
            named
        })
    }
}

/// The `$ref` of a value that is a reference.
pub(crate) fn reference(value: &Value) -> Option<&str> {
    value.get("$ref")?.as_str()
}

fn collect_names<'d>(value: &'d Value, named: &mut HashMap<&'d str, &'d Value>) {
    match value {
        Value::Object(members) => {
            for name in ["$anchor", "$dynamicAnchor", "$id"].iter().filter_map(|key| members.get(*key)?.as_str()) {
                named.entry(name.trim_end_matches('#')).or_insert(value);
            }
            members.values().for_each(|member| collect_names(member, named));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, named)),
        _ => {}
    }
}

fn shown(reference: &str) -> String {
    reference.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_lead_to_what_they_name() {
        let document = json!({
            "a/b": {"~x": 1}, "c d": {"$ref": "#/a~1b"}, "100%": 2,
            "s": {"$anchor": "here", "n": 3}, "t": {"$id": "https://x.example/t", "n": 4},
        });
        let references = References::new(&document);
        for (reference, expected) in [
            ("#/a~1b/~0x", json!(1)),
            ("#/c%20d", json!({"$ref": "#/a~1b"})),
            ("#/100%", json!(2)),
            ("#here", document["s"].clone()),
            ("https://x.example/t#", document["t"].clone()),
            ("#", document.clone()),
        ] {
            assert_eq!(references.at(reference), Ok(&expected), "{reference}");
        }
        assert_eq!(references.follow(&document["c d"]), Ok(&document["a/b"]));
    }

    #[test]
    fn a_reference_to_nothing_elsewhere_or_itself_is_an_error() {
        let document = json!({"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}, "c": {"$ref": "#/missing"},
            "d": {"$ref": "other.yaml#/a"}, "e": {"$ref": "#nobody"}});
        let references = References::new(&document);
        let error = |key: &str| references.follow(&document[key]).unwrap_err();
        assert!(matches!(error("a"), BrokenReference::Circle(_)));
        assert_eq!(error("c"), BrokenReference::Nowhere("#/missing".into()));
        assert_eq!(error("d"), BrokenReference::Elsewhere("other.yaml#/a".into()));
        assert_eq!(error("e"), BrokenReference::Nowhere("#nobody".into()));
    }
}
