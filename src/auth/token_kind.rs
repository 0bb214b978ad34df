//! Which JSON Web Tokens are access tokens. An issuer signs others with the same keys, for an audience that may be the same: ID
//! tokens, logout tokens, proofs of possession (RFC 8725 §3.11 and §3.12, RFC 9068 §4).

use jsonwebtoken::Header;
use serde_json::Value;

use super::Refusal;
use super::claims::Claims;

/// The type of access tokens (RFC 9068 §2.1).
const ACCESS_TOKEN: &str = "at+jwt";

/// The type of identity assertions (draft-ietf-oauth-identity-assertion-authz-grant-04 §3.1).
const IDENTITY_ASSERTION: &str = "oauth-id-jag+jwt";

/// Claims that only ID tokens have (OpenID Connect Core 1.0 §2 and §3.3.2.11).
const OF_ID_TOKENS: [&str; 3] = ["nonce", "at_hash", "c_hash"];

/// The values that Keycloak writes as the claim `typ` of tokens that are no access tokens.
const OTHER_KINDS: [&str; 4] = ["ID", "Refresh", "Offline", "Logout"];

/// Whether the header of a token says the kind that is accepted.
pub(super) type TypeCheck = fn(&Header) -> Result<(), Refusal>;

/// Errors: the header says that the token is of another kind. Many issuers say nothing, or `JWT`.
pub(super) fn check_type(header: &Header) -> Result<(), Refusal> {
    match media_type(header).as_deref() {
        None | Some("jwt" | ACCESS_TOKEN) => Ok(()),
        Some(_) => Err(Refusal("the token is no access token: its type (`typ`) is neither `JWT` nor `at+jwt`")),
    }
}

/// Errors: the header does not say that the token is an identity assertion, which it must (RFC 8725 §3.11).
pub(super) fn check_assertion_type(header: &Header) -> Result<(), Refusal> {
    match media_type(header).as_deref() {
        Some(IDENTITY_ASSERTION) => Ok(()),
        _ => Err(Refusal("the token is no identity assertion: its type (`typ`) is not `oauth-id-jag+jwt`")),
    }
}

/// Errors: the claims belong to a token of another kind.
pub(super) fn check_claims(header: &Header, claims: &Claims) -> Result<(), Refusal> {
    let kind = claims.get("typ").and_then(Value::as_str).unwrap_or_default();
    // Security event tokens (RFC 8417), of which logout tokens are one.
    if claims.contains_key("events") {
        return Err(Refusal("the token is no access token, but reports an event (`events`)"));
    }
    if OTHER_KINDS.contains(&kind) {
        return Err(Refusal("the token is no access token: its claim `typ` says that it is of another kind"));
    }
    // Keycloak before version 24 put the nonce into access tokens too, and states their kind.
    let is_stated = media_type(header).as_deref() == Some(ACCESS_TOKEN) || kind == "Bearer";
    if !is_stated && OF_ID_TOKENS.iter().any(|claim| claims.contains_key(*claim)) {
        return Err(Refusal(
            "the token is an ID token (it has `nonce`, `at_hash` or `c_hash`), which is for the client alone; \
             send an access token",
        ));
    }
    Ok(())
}

/// In lower case, without the `application/` that may be left out (RFC 7515 §4.1.9).
fn media_type(header: &Header) -> Option<String> {
    let text = header.typ.as_ref()?.to_ascii_lowercase();
    Some(text.strip_prefix("application/").map_or_else(|| text.clone(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::Algorithm;
    use serde_json::json;

    use super::*;

    fn header(typ: Option<&str>) -> Header {
        Header { typ: typ.map(str::to_owned), ..Header::new(Algorithm::RS256) }
    }

    #[test]
    fn the_type_of_an_access_token_is_left_out_or_says_so() {
        for (typ, is_accepted) in [
            (None, true),
            (Some("JWT"), true),
            (Some("jwt"), true),
            (Some("at+jwt"), true),
            (Some("AT+JWT"), true),
            (Some("application/at+jwt"), true),
            (Some("Application/JWT"), true),
            (Some(""), false),
            (Some("logout+jwt"), false),
            (Some("dpop+jwt"), false),
            (Some("id+jwt"), false),
            (Some("secevent+jwt"), false),
            (Some("token-introspection+jwt"), false),
            (Some("application/application/jwt"), false),
            (Some("at+jwt "), false),
            (Some("JOSE"), false),
        ] {
            assert_eq!(check_type(&header(typ)).is_ok(), is_accepted, "{typ:?}");
        }
    }

    #[test]
    fn the_type_of_an_identity_assertion_says_so_and_is_no_other_one() {
        for (typ, is_assertion) in [
            (Some("oauth-id-jag+jwt"), true),
            (Some("application/OAuth-ID-JAG+jwt"), true),
            (Some("JWT"), false),
            (Some("at+jwt"), false),
            (Some("oauth-id-jag"), false),
            (None, false),
        ] {
            assert_eq!(check_assertion_type(&header(typ)).is_ok(), is_assertion, "{typ:?}");
            assert!(!is_assertion || check_type(&header(typ)).is_err(), "{typ:?} is an access token, too");
        }
    }

    #[test]
    fn claims_of_other_tokens_are_refused() {
        let logout = json!({"http://schemas.openid.net/event/backchannel-logout": {}});
        for (typ, claims, is_accepted) in [
            (None, json!({}), true),
            (None, json!({"typ": "Bearer", "azp": "app"}), true),
            (None, json!({"nonce": "n"}), false),
            (Some("JWT"), json!({"nonce": ""}), false),
            (Some("JWT"), json!({"nonce": null}), false),
            (Some("JWT"), json!({"at_hash": "h"}), false),
            (Some("JWT"), json!({"c_hash": "h"}), false),
            (Some("JWT"), json!({"typ": "ID"}), false),
            (Some("JWT"), json!({"typ": "Refresh"}), false),
            (Some("JWT"), json!({"typ": "Logout"}), false),
            (Some("JWT"), json!({"events": logout}), false),
            (Some("at+jwt"), json!({"events": logout}), false),
            // A token that is declared as an access token is one.
            (Some("at+jwt"), json!({"nonce": "n"}), true),
            (Some("JWT"), json!({"typ": "Bearer", "nonce": "n"}), true),
            (Some("JWT"), json!({"typ": "ID", "nonce": "n"}), false),
            (Some("JWT"), json!({"typ": 7, "nonce": "n"}), false),
        ] {
            let Value::Object(all) = claims.clone() else { panic!("claims are an object") };
            assert_eq!(check_claims(&header(typ), &all).is_ok(), is_accepted, "{typ:?} {claims}");
        }
    }
}
