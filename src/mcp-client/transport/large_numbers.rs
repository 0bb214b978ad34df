//! Integers of a tool's `structuredContent` that 64 bits do not hold: strings of their digits before anybody parses the
//! message and rounds them. The protocol's library parses many messages, so `_meta` has their places.

use std::borrow::Cow;

use serde_json::{Map, Value};

use sekisho_core::json;
use sekisho_core::json::Exact;

/// The member of `_meta`.
const PATHS: &str = "sekisho/largeNumbers";

const STRUCTURED: &str = "/result/structuredContent";

/// The message with such integers as strings. Nearly every message is as it came.
pub(crate) fn exact(message: &[u8]) -> Cow<'_, [u8]> {
    let below =
        |path: &str| path.strip_prefix(STRUCTURED).is_some_and(|below| below.is_empty() || below.starts_with('/'));
    let Exact { text, paths } = json::exact(message, below);
    if paths.is_empty() {
        return text;
    }
    let Ok(mut parsed) = serde_json::from_slice::<Value>(&text) else { return text };
    let paths: Vec<&str> = paths.iter().filter_map(|path| path.strip_prefix(STRUCTURED)).collect();
    if let Some(Value::Object(result)) = parsed.get_mut("result") {
        let meta = result.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(meta) = meta {
            meta.insert(PATHS.to_owned(), paths.into());
        }
    }
    serde_json::to_vec(&parsed).map_or(text, Cow::Owned)
}

/// Takes the places out of `_meta`.
pub(crate) fn take_paths(meta: &mut Map<String, Value>) -> Option<Value> {
    meta.remove(PATHS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_structured_content_is_touched() {
        let message = br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}],"structuredContent":{"n":[99999999999999999999]},"_meta":{"k":1}}}"#;
        let read: Value = serde_json::from_slice(&exact(message)).unwrap();
        assert_eq!(read["result"]["structuredContent"], json!({"n": ["99999999999999999999"]}));
        let mut meta = read["result"]["_meta"].as_object().cloned().unwrap();
        assert_eq!(take_paths(&mut meta), Some(json!(["/n/0"])));
        assert_eq!(Value::Object(meta), json!({"k": 1}));
        for untouched in [
            &br#"{"result":{"structuredContent":{"n":18446744073709551615}}}"#[..],
            br#"{"result":{"structuredContentX":{"n":99999999999999999999}}}"#,
            br#"{"result":{"content":[{"size":99999999999999999999}]}}"#,
            b"no json 99999999999999999999",
        ] {
            assert!(matches!(exact(untouched), Cow::Borrowed(_)));
        }
    }
}
