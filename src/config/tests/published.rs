//! The files that operators read: `config/sekisho.yaml` and its schema.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::*;
use crate::yaml::document::{Content, Node};
use sekisho_core::checkout::checkout;

const FILE: &str = include_str!("../../../config/sekisho.yaml");

/// The file with every setting enabled that is off by default.
fn switched_on() -> String {
    let switch_on = |line: &str| match line.trim_start().strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => line.replacen('#', "", 1),
        _ => line.to_owned(),
    };
    FILE.lines().map(switch_on).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_default_file_has_the_defaults_of_the_code() {
    assert_eq!(load(FILE).unwrap(), Config::default());
}

#[test]
fn the_settings_that_are_off_are_valid_too() {
    // One of the two is enough, and the file shows both.
    let text = switched_on().replace("    jwks_file: /etc/sekisho/jwks.json", "");
    // The file names it from the root of the checkout.
    let branches = "src/config/planner/steps.json";
    let text =
        text.replace(&format!("branches: {branches}"), &format!("branches: {}", checkout().join(branches).display()));
    let table = checkout().join("src/config/model_table.yaml");
    let text = text.replace("/etc/sekisho/models.yaml", &table.display().to_string());
    // As well one of these.
    let text = text.replace("        service_account_file: /etc/sekisho/service-account.json", "");
    let token = "client_assertion_file: /var/run/secrets/azure/tokens/azure-identity-token";
    let text = text.replace(&format!("        {token}"), "");
    // Object storage is for replicas.
    let text = text.replace("at each.\n  enabled: false", "at each.\n  enabled: true");
    let of_cluster = "0123456789abcdef0123456789abcdef";
    let of_secrets = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let set = [
        ("ALICE_KEY", "k"),
        ("GUARD_KEY", "k"),
        ("SEKISHO_OIDC_SECRET", "s"),
        ("SEKISHO_BROKER_SECRET", "s"),
        ("SEKISHO_APP_SECRET", of_cluster),
        ("SEKISHO_INTROSPECTION_SECRET", "s"),
        ("SEKISHO_CLUSTER_SECRET", of_cluster),
        ("SEKISHO_ACCEPTED_CLUSTER_SECRET", of_cluster),
        ("SEKISHO_SECRETS_KEY", of_secrets),
        ("SEKISHO_WEBHOOK_SECRET", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"),
        ("SEKISHO_PREVIOUS_SECRETS_KEY", of_secrets),
        ("S3_SECRET_ACCESS_KEY", "s"),
    ];
    let config = load_with(&text, &set).unwrap();
    assert_eq!(config.auth.api_keys.len(), 2);
}

#[test]
fn the_default_file_has_every_key_of_the_schema() {
    let schema = json_schema();
    let mut expected = BTreeSet::new();
    keys_of_schema(&schema, &schema, "", &mut expected);
    let document = Document::parse(Path::new("sekisho.yaml"), switched_on()).unwrap();
    let mut present = BTreeSet::new();
    keys_of_file(&document.root, "", &mut present);
    let missing: Vec<_> = expected.difference(&present).collect();
    assert!(expected.len() > 70 && missing.is_empty(), "not in config/sekisho.yaml: {missing:#?}");
}

#[test]
fn the_schema_is_up_to_date_and_accepts_the_default_file() {
    let file = checkout().join("config/sekisho.schema.json");
    let expected = format!("{:#}\n", json_schema());
    assert!(
        fs::read_to_string(&file).is_ok_and(|found| found == expected),
        "regenerate it: cargo run -- check --print-schema > config/sekisho.schema.json"
    );
    let validator = jsonschema::validator_for(&json_schema()).unwrap();
    for text in [FILE.to_owned(), switched_on()] {
        let instance: Value = serde_saphyr::from_str(&text).unwrap();
        let violations: Vec<_> = validator.iter_errors(&instance).map(|error| error.to_string()).collect();
        assert!(violations.is_empty(), "{violations:#?}");
    }
    assert!(!validator.is_valid(&serde_json::json!({"serve": {}})));
    assert!(!validator.is_valid(&serde_json::json!({"limits": {"parallelism": "five"}})));
    assert!(validator.is_valid(&serde_json::json!({"limits": {"parallelism": "${PARALLELISM}"}})));
}

/// `.key` for a property, `.*` for any key of a map or any item of a list.
fn keys_of_schema(root: &Value, schema: &Value, path: &str, keys: &mut BTreeSet<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        return keys_of_schema(root, target, path, keys);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        keys.insert(format!("{path}.{name}"));
        keys_of_schema(root, property, &format!("{path}.{name}"), keys);
    }
    for inner in ["items", "additionalProperties"].iter().map(|key| &schema[key]).filter(|inner| inner.is_object()) {
        keys_of_schema(root, inner, &format!("{path}.*"), keys);
    }
    let alternatives = schema["anyOf"].as_array().into_iter().flatten();
    // Of one value or a list of them, the file shows one.
    let is_list_of_another =
        |inner: &Value| schema["anyOf"].as_array().is_some_and(|all| all.contains(&inner["items"]));
    for inner in alternatives.filter(|inner| !is_list_of_another(inner)) {
        keys_of_schema(root, inner, path, keys);
    }
}

fn keys_of_file(node: &Node, path: &str, keys: &mut BTreeSet<String>) {
    match &node.content {
        Content::Mapping(entries) => {
            for (key, value) in entries {
                for name in [key.name.as_str(), "*"] {
                    keys.insert(format!("{path}.{name}"));
                    keys_of_file(value, &format!("{path}.{name}"), keys);
                }
            }
        }
        Content::List(items) => items.iter().for_each(|item| keys_of_file(item, &format!("{path}.*"), keys)),
        _ => {}
    }
}
