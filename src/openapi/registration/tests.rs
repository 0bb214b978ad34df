use serde_json::{Value, json};

use super::*;

fn settings(auth_config: &Value) -> Result<CollectionSettings, RegistrationError> {
    let secrets = [("PETS".to_owned(), Secret::new("hunter2"))].into();
    let body = json!({"name": "pets", "spec_url": "https://pets.example/api.json", "auth_config": auth_config});
    serde_json::from_value::<Registration>(body).unwrap().settings(&Ownership::Shared, &secrets)
}

#[test]
fn missing_settings_have_the_defaults_of_the_configuration() {
    let settings = settings(&Value::Null).unwrap();
    let spec_url = Some(Url::parse("https://pets.example/api.json").unwrap());
    assert_eq!(settings, CollectionSettings { spec_url, ..CollectionSettings::default() });
}

#[test]
fn a_reference_resolves_to_the_secret_of_that_name() {
    let auth = settings(&json!({"token": "${PETS}", "extra_headers": {"X-Key": "${PETS}"}})).unwrap().auth_config;
    assert_eq!(auth.token.unwrap().expose(), "hunter2");
    assert_eq!(auth.extra_headers["X-Key"].expose(), "hunter2");
}

#[test]
fn credentials_of_a_scheme_are_references_too() {
    let of = |key: &str| {
        let secrets = [("PETS".to_owned(), Secret::new("s"))].into();
        let body = json!({"name": "pets", "spec_inline": "{}", "credentials": {"app": {"api_key": key}}});
        serde_json::from_value::<Registration>(body).unwrap().settings(&Ownership::Shared, &secrets)
    };
    assert_eq!(of("${PETS}").unwrap().credentials["app"].api_key.as_ref().unwrap().expose(), "s");
    assert_eq!(of("hunter2").unwrap_err(), RegistrationError::Literal("credentials.app.api_key".into()));
    let file = json!({"name": "pets", "spec_inline": "{}", "credentials": {"app": {"certificate_file": "/a"}}});
    assert!(serde_json::from_value::<Registration>(file).is_err());
}

#[test]
fn a_collection_of_a_tenant_has_its_owner_and_no_secret_of_the_configuration() {
    let secrets = [("PETS".to_owned(), Secret::new("hunter2"))].into();
    let acme = Ownership::Tenant("acme".into());
    let read = |more: Value| {
        let mut body = json!({"name": "pets", "spec_inline": "{}"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value::<Registration>(body).unwrap().settings(&acme, &secrets)
    };
    assert_eq!(read(json!({})).unwrap().owner, acme);
    let template = json!({"auth_config": {"headers_template": {"X-User": "${user_token}"}}});
    assert!(read(template).is_ok(), "the tokens of its callers are its own");
    for (more, setting) in [
        (json!({"auth_config": {"token": "${PETS}"}}), "auth_config.token"),
        (json!({"auth_config": {"extra_headers": {"X-Key": "${PETS}"}}}), "auth_config.extra_headers.X-Key"),
        (json!({"auth_config": {"vendor": "pets"}}), "auth_config.vendor"),
        (json!({"credentials": {"app": {"api_key": "${PETS}"}}}), "credentials.app.api_key"),
    ] {
        assert_eq!(read(more).unwrap_err(), RegistrationError::SharedSecret(setting.into()));
    }
}

#[test]
fn a_credential_written_out_is_refused_and_not_repeated() {
    for (auth, setting) in [
        (json!({"api_key": "hunter2"}), "api_key"),
        (json!({"token": "Bearer ${PETS}"}), "token"),
        (json!({"password": "${PETS}hunter2}"}), "password"),
        (json!({"client_secret": "${PETS"}), "client_secret"),
        (json!({"extra_headers": {"X-Key": "hunter2"}}), "extra_headers.X-Key"),
    ] {
        let error = settings(&auth).unwrap_err();
        assert_eq!(error, RegistrationError::Literal(format!("auth_config.{setting}")), "{auth}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn what_cannot_be_filled_in_or_makes_no_sense_is_refused() {
    let name = |name: &str| RegistrationError::UnknownSecret { setting: "auth_config.token".into(), name: name.into() };
    assert_eq!(settings(&json!({"token": "${HOME}"})).unwrap_err(), name("HOME"));
    assert_eq!(settings(&json!({"token": "${}"})).unwrap_err(), name(""));
    let constant = settings(&json!({"headers_template": {"X-Key": "hunter2"}})).unwrap_err();
    assert_eq!(constant, RegistrationError::ConstantTemplate("X-Key".into()));
    for (change, expected) in [
        (json!({"name": "two words"}), "is not a valid collection name"),
        (json!({"rate_limit": 0}), "rate_limit"),
        (json!({"timeout_seconds": -1}), "timeout_seconds"),
        (json!({"base_url": "ftp://pets.example"}), "base_url"),
        (json!({"auth_type": "bearer"}), "auth_config.token"),
        (json!({"spec_inline": "{}"}), "needs one of"),
    ] {
        let mut body = json!({"name": "pets", "spec_url": "https://pets.example/"});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let error = serde_json::from_value::<Registration>(body)
            .unwrap()
            .settings(&Ownership::Shared, &BTreeMap::new())
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{change}: {error}");
    }
}

#[test]
fn a_caller_names_no_file_and_no_overlay() {
    for key in ["spec_file", "overlays", "vendor_adapter"] {
        let body = json!({"name": "pets", "spec_inline": "{}", key: "/etc/passwd"});
        assert!(serde_json::from_value::<Registration>(body).is_err(), "{key}");
    }
}

#[test]
fn it_is_read_as_it_was_written() {
    let body = json!({"name": "pets", "spec_inline": "{}", "auth_config": {"token": "${PETS}"}, "tags": ["a"],
        "base_cost_per_use": 0.25, "timeout_seconds": 2.5});
    let registration: Registration = serde_json::from_value(body).unwrap();
    let written = serde_json::to_string(&registration).unwrap();
    assert_eq!(serde_json::from_str::<Registration>(&written).unwrap(), registration);
}
