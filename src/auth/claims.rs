//! The claims of a verified token: its caller, its end, and its rights.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::issuer_client::IssuerClient;
use sekisho_core::identity_assertion::SignInSession;

pub(super) type Claims = Map<String, Value>;

/// `None` for anything but a list of strings or one string; no roles without the claim.
pub(super) fn roles(claim: Option<&Value>) -> Option<Vec<String>> {
    match claim {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::String(roles)) => Some(roles.split_ascii_whitespace().map(str::to_owned).collect()),
        Some(Value::Array(roles)) => roles.iter().map(|role| role.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    }
}

/// The scopes (RFC 9068 §2.2.3, RFC 7662 §2.2); some issuers name the claim `scp`, or write a list. None of another form.
pub(super) fn scopes(claims: &Claims) -> Vec<&str> {
    match claims.get("scope").or_else(|| claims.get("scp")) {
        Some(Value::String(scopes)) => scopes.split_ascii_whitespace().collect(),
        Some(Value::Array(scopes)) => scopes.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// `aud` (RFC 7519 §4.1.3): one text, or a list.
pub(super) fn audiences(claims: &Claims) -> Vec<&str> {
    match claims.get("aud") {
        Some(Value::Array(audiences)) => audiences.iter().filter_map(Value::as_str).collect(),
        audience => audience.and_then(Value::as_str).into_iter().collect(),
    }
}

/// A moment in seconds since 1970, whole or with a fraction; `None` for anything else.
pub(super) fn seconds(claim: Option<&Value>) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, which is meant")]
    let whole = |number: f64| number as u64;
    claim.and_then(|claim| claim.as_u64().or_else(|| claim.as_f64().map(whole)))
}

/// The session that a token of the gateway is of. `sessions`: where it is looked up.
pub(super) fn session(claims: &Claims, sessions: Option<&Arc<dyn IssuerClient>>) -> Option<SignInSession> {
    let source = Arc::clone(sessions?).assertions()?;
    Some(SignInSession { id: claims.get("sid")?.as_str()?.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Claims {
        match value {
            Value::Object(claims) => claims,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn claims_are_read_in_the_forms_of_different_issuers() {
        for (value, expected) in [
            (json!({"scope": "read  write"}), &["read", "write"][..]),
            (json!({"scp": "read"}), &["read"]),
            (json!({"scp": ["read", "write"]}), &["read", "write"]),
            (json!({"scope": "read", "scp": "write"}), &["read"]),
            (json!({"scope": {"read": true}}), &[]),
            (json!({"scope": ["read", 7]}), &["read"]),
            (json!({}), &[]),
        ] {
            assert_eq!(scopes(&claims(value.clone())), expected, "{value}");
        }
        assert_eq!(audiences(&claims(json!({"aud": "a"}))), ["a"]);
        assert_eq!(audiences(&claims(json!({"aud": ["a", 7, "b"]}))), ["a", "b"]);
        assert_eq!(audiences(&claims(json!({"aud": {"a": true}}))), [""; 0]);
        assert_eq!(seconds(Some(&json!(7.9))), Some(7));
        assert_eq!([seconds(Some(&json!("7"))), seconds(None)], [None, None]);
    }

    proptest! {
        #[test]
        fn scopes_in_one_text_are_those_of_a_list(scopes_held in prop::collection::vec("[!#-\\[\\]-~]{1,12}", 0..8)) {
            let text = claims(json!({"scope": scopes_held.join(" ")}));
            let list = claims(json!({"scp": scopes_held}));
            prop_assert_eq!(scopes(&text), scopes(&list));
        }
    }
}
