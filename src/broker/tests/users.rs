//! Rules: the claims of a user as tenant and roles.

use super::*;
use crate::preset::scopes;
use crate::user::User;

fn rules(provider: BrokerProvider, roles: &[(&str, &str)], default_roles: &[&str]) -> BrokerConfig {
    BrokerConfig {
        provider,
        issuer: "https://login.example".to_owned(),
        client_id: "sekisho".to_owned(),
        client_secret: Secret::new("s"),
        scopes: None,
        tenant: "acme".to_owned(),
        roles_claim: None,
        roles: roles.iter().map(|(value, role)| ((*value).to_owned(), vec![(*role).to_owned()])).collect(),
        default_roles: default_roles.iter().map(|role| (*role).to_owned()).collect(),
        tokens: BrokerTokens::default(),
        redirects: Vec::new(),
        assertion_clients: BTreeMap::new(),
    }
}

#[test]
fn roles_come_from_rules_alone() {
    let of = |config: &BrokerConfig, claims: Value| {
        let Value::Object(claims) = claims else { panic!("claims are an object") };
        User::of(&claims, config).map(|user| user.roles.join(" ")).ok()
    };
    let entra = rules(BrokerProvider::Entra, &[("App.Write", "developer")], &[]);
    let google = rules(BrokerProvider::Google, &[("acme.example", "employee")], &[]);
    let okta = rules(BrokerProvider::Okta, &[("ops", "operator")], &["user"]);
    let open = rules(BrokerProvider::Oidc, &[], &[]);
    let by_email = BrokerConfig { roles_claim: Some("email".to_owned()), ..google.clone() };
    let nested = BrokerConfig { roles_claim: Some("realm_access.roles".to_owned()), ..entra.clone() };
    for (config, claims, expected) in [
        (&entra, json!({"sub": "a", "roles": ["App.Write", "admin"]}), Some("developer")),
        (&entra, json!({"sub": "a", "roles": ["admin"]}), None),
        (&entra, json!({"sub": "a"}), None),
        (&google, json!({"sub": "a", "hd": "acme.example"}), Some("employee")),
        (&google, json!({"sub": "a", "email": "x@acme.example"}), None),
        (&google, json!({"sub": "a", "hd": "evil.example"}), None),
        (&okta, json!({"sub": "a", "groups": ["ops"]}), Some("operator user")),
        (&okta, json!({"sub": "a", "groups": {"ops": true}}), Some("user")),
        (&open, json!({"sub": "a", "roles": ["admin"], "groups": ["admin"]}), Some("")),
        (&open, json!({"roles": []}), None),
        (&by_email, json!({"sub": "a", "email": "acme.example", "email_verified": true}), Some("employee")),
        (&by_email, json!({"sub": "a", "email": "acme.example", "email_verified": false}), None),
        (&by_email, json!({"sub": "a", "email": "acme.example"}), None),
        (&nested, json!({"sub": "a", "realm_access": {"roles": ["App.Write"]}}), Some("developer")),
        (&nested, json!({"sub": "a", "realm_access.roles": ["App.Write"]}), Some("developer")),
    ] {
        assert_eq!(of(config, claims.clone()).as_deref(), expected, "{claims}");
    }
}

#[test]
fn each_provider_is_asked_in_its_way() {
    let offline = "openid profile email offline_access";
    for (provider, expected) in [
        (BrokerProvider::Entra, offline),
        (BrokerProvider::Google, "openid profile email"),
        (BrokerProvider::Okta, offline),
        (BrokerProvider::Auth0, offline),
        (BrokerProvider::Keycloak, offline),
        (BrokerProvider::Authentik, offline),
        (BrokerProvider::Oidc, offline),
    ] {
        assert_eq!(scopes(&rules(provider, &[], &[])), expected, "{provider:?}");
    }
    let own = BrokerConfig { scopes: Some(vec!["groups".to_owned()]), ..rules(BrokerProvider::Oidc, &[], &[]) };
    assert_eq!(scopes(&own), "openid groups");
}
