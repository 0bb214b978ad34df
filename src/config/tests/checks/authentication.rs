//! Who may call: issuers, keys, and servers that others reach.

use super::*;
use sekisho_core::spiffe_id::SpiffeId;

#[test]
fn a_reachable_server_requires_authentication() {
    let elsewhere = [("SEKISHO_LISTEN", "0.0.0.0:8080")];
    insta::assert_snapshot!(errors_with("", &elsewhere), @r#"
    environment variable SEKISHO_LISTEN: `server.listen`: 0.0.0.0:8080 can be reached from other machines without authentication
      add `auth.api_keys` or `auth.jwt`, listen on 127.0.0.1, accept managed keys alone with `auth.anonymous: never`, or all callers with `always`
    "#);
    for text in ["server: {listen: '[::]:8080'}", "server: {listen: '192.168.1.5:80'}"] {
        assert!(load(text).is_err(), "{text}");
    }
    for text in [
        "auth: {anonymous: always}",
        "auth: {anonymous: never}",
        "auth: {api_keys: [{id: a, key: k}]}",
        "auth: {jwt: {issuer: i, audience: a, jwks_file: f}}",
    ] {
        assert!(load_with(text, &elsewhere).is_ok(), "{text}");
    }
    for listen in ["127.0.0.2:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert!(load_with("", &[("SEKISHO_LISTEN", listen)]).is_ok(), "{listen}");
    }
}

#[test]
fn keys_that_can_be_guessed_are_named_by_their_id() {
    for (key, is_named) in [
        ("key: hunter2", true),
        ("key: aaaaaaaaaaaaaaaaaaaaaaaa", true),
        ("key: 0123456789abcde", true),
        ("key: 0123456789abcdef", false),
        (&format!("key_sha256: {A_HASH}"), false),
    ] {
        let notes = load(&format!("auth: {{api_keys: [{{id: ann, {key}}}]}}")).unwrap().notes();
        let note = notes.get("auth.api_keys[0].key");
        assert_eq!(note.is_some(), is_named, "{key}");
        assert!(note.is_none_or(|note| note.contains("\"ann\"") && !note.contains("hunter")), "{note:?}");
    }
}

#[test]
fn an_authorization_server_has_addresses_and_lifetimes_within_bounds() {
    let with = |broker: &str, mcp: &str| {
        let broker = format!("{{provider: google, client_id: c, client_secret: s, {broker}}}");
        load(&format!("auth: {{broker: {broker}}}\nserver: {{mcp: {{{mcp}}}}}"))
    };
    let (issuer, own) = ("issuer: 'https://accounts.google.com'", "public_url: 'https://gateway.example'");
    let config = with(issuer, own).unwrap();
    assert!(config.notes().contains_key("auth.broker.roles"), "anybody has an account there");
    let redirects = "redirects: ['https://app.example/*', 'myapp:/cb']";
    let more = format!("{issuer}, roles: {{a.example: [staff]}}, tokens: {{access: 5m}}, {redirects}");
    let config = with(&more, own).unwrap();
    assert!(!config.notes().contains_key("auth.broker.roles"));
    let tokens = config.auth.broker.unwrap().tokens;
    let seconds = [tokens.access, tokens.refresh].map(|lifetime| lifetime.duration().as_secs());
    assert_eq!(seconds, [300, 30 * 24 * 3_600]);
    for (broker, mcp) in [
        (issuer, ""),
        (issuer, "public_url: 'http://gateway.example'"),
        (issuer, "public_url: 'https://gateway.example/base'"),
        ("issuer: accounts.google.com", own),
        ("issuer: 'http://accounts.google.com'", own),
        ("issuer: 'https://accounts.google.com', tokens: {access: 2h}", own),
        ("issuer: 'https://accounts.google.com', tokens: {access: 0s}", own),
        ("issuer: 'https://accounts.google.com', tokens: {refresh: 400d}", own),
        ("issuer: 'https://accounts.google.com', tokens: {access: ten}", own),
        ("issuer: 'https://accounts.google.com', default_roles: ['']", own),
        ("issuer: 'https://accounts.google.com', redirects: ['https://*']", own),
        ("issuer: 'https://accounts.google.com', redirects: ['https://*.app.example/*']", own),
        ("issuer: 'https://accounts.google.com', redirects: ['app.example/callback']", own),
        ("issuer: 'https://accounts.google.com', assertion_clients: {app: short}", own),
        ("issuer: 'https://accounts.google.com', assertion_clients: {'': 0123456789abcdef0123456789abcdef}", own),
    ] {
        assert!(with(broker, mcp).is_err(), "{broker} {mcp}");
    }
}

#[test]
fn workloads_are_of_one_trust_domain_whose_authorities_are_known() {
    let with = |workloads: &str, tls: &str| {
        load(&format!("auth: {{workloads: [{workloads}]}}\nserver: {{tls: {{certificate: /c, key: /k{tls}}}}}"))
    };
    let known = ", client_ca: /a";
    let config =
        with("{id: 'spiffe://a.example/x', roles: [y]}, {id: 'spiffe://a.example/z/*', tenant: t}", known).unwrap();
    assert!(config.auth.has_credentials());
    let fits = |text: &str| {
        let workload = SpiffeId::parse(text).unwrap();
        config.auth.workloads.iter().position(|entry| entry.fits(&workload))
    };
    for (workload, entry) in [
        ("spiffe://a.example/x", Some(0)),
        ("spiffe://a.example/x/y", None),
        ("spiffe://a.example/xy", None),
        ("spiffe://a.example/z/1", Some(1)),
        ("spiffe://a.example/z/1/2", Some(1)),
        ("spiffe://a.example/z", None),
        ("spiffe://a.example/zz/1", None),
        ("spiffe://b.example/z/1", None),
    ] {
        assert_eq!(fits(workload), entry, "{workload}");
    }
    for (workloads, tls) in [
        ("{id: 'spiffe://a.example/x'}", ""),
        ("{id: 'spiffe://a.example/x'}, {id: 'spiffe://b.example/x'}", known),
        ("{id: 'spiffe://a.example'}", known),
        ("{id: 'spiffe://*/x'}", known),
        ("{id: 'spiffe://a.example/x*'}", known),
        ("{id: 'spiffe://a.example/*/x'}", known),
        ("{id: '*'}", known),
        ("{id: 'spiffe://a.example/x', roles: ['']}", known),
        ("{id: 'spiffe://a.example/x', tenant: ''}", known),
    ] {
        assert!(with(workloads, tls).is_err(), "{workloads} {tls}");
    }
}

#[test]
fn issuers_are_one_or_a_list() {
    let issuers = |text: &str| load(text).map(|config| config.auth.jwt);
    let one = issuers("auth: {jwt: {issuer: 'https://a.example', audience: a}}").unwrap();
    assert_eq!((one.len(), &*one[0].issuer, &one[0].audience[..]), (1, "https://a.example", &["a".to_owned()][..]));
    assert_eq!(issuers("auth: {jwt: [{issuer: 'https://a.example', audience: [a]}]}").unwrap(), one);
    let both = issuers(
        "auth: {jwt: [{issuer: 'https://a.example', audience: [a, b]}, {issuer: 'https://b.example', audience: c}]}",
    );
    assert_eq!(both.unwrap().iter().map(|jwt| jwt.audience.len()).collect::<Vec<_>>(), [2, 1]);
    for none in ["auth: {}", "auth: {jwt: }", "auth: {jwt: []}"] {
        assert!(issuers(none).unwrap().is_empty(), "{none}");
    }
    insta::assert_snapshot!(errors("
auth:
  jwt:
    issuer: https://a.example
    audience: 7
    jwks_uri: https://a.example/keys
"), @r#"
    sekisho.yaml:5:15: `auth.jwt.audience`: expected a string
      5 |     audience: 7
        |               ^
      put the value in quotes
    sekisho.yaml:6:5: unknown key `jwks_uri` in `auth.jwt`
      6 |     jwks_uri: …
        |     ^
      did you mean `jwks_url`?
    "#);
    insta::assert_snapshot!(errors("
auth:
  jwt:
    - issuer: https://a.example
      audience: a
    - audience: b
"), @r#"
    sekisho.yaml:6:7: `auth.jwt[1]`: `issuer` is missing
      6 |     - audience: …
        |       ^
      add `issuer:` here
    "#);
}

#[test]
fn one_id_may_exist_in_two_tenants() {
    let text = "auth: {api_keys: [{id: a, tenant: x, key: k}, {id: a, tenant: y, key: l}]}";
    assert_eq!(load(text).unwrap().auth.api_keys.len(), 2);
}
