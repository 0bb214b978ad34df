use serde_json::json;

use super::*;

fn file(name: &str) -> Location {
    Location::File(format!("/docs/{name}").into())
}

/// Bundles documents of one folder; the first is the root.
fn bundled(documents: &[(&str, Value)]) -> (Value, Vec<Note>) {
    let (root, others) = documents.split_first().unwrap();
    let mut bundle = Bundle::new(root.1.clone(), Some(file(root.0)), Budget::default());
    loop {
        let missing = bundle.missing();
        if missing.is_empty() {
            return bundle.finish();
        }
        let fetch = |location: Location| {
            let found = others.iter().find(|(name, _)| file(name) == location);
            let text = found.map(|(_, document)| SpecText { bytes: document.to_string().into(), from: None });
            let text = text.ok_or_else(|| FetchError::NotAllowed { host: "elsewhere".into() });
            (location, text)
        };
        bundle = bundle.with(missing.into_iter().map(fetch).collect());
    }
}

#[test]
fn references_point_to_the_bundled_documents() {
    let (one, notes) = bundled(&[
        ("api.yaml", json!({"a": {"$ref": "pet.yaml#/Pet"}, "b": {"$ref": "#/a"}, "c": {"$ref": "owner.json"}})),
        ("pet.yaml", json!({"Pet": {"properties": {"owner": {"$ref": "owner.json"}, "next": {"$ref": "#/Pet"}}}})),
        (
            "owner.json",
            json!({"properties": {"pets": {"items": {"$ref": "./pet.yaml#/Pet"}}, "api": {"$ref": "api.yaml#/b"}}}),
        ),
    ]);
    assert_eq!(notes, []);
    assert_eq!(one["a"]["$ref"], "#/x-sekisho-documents/pet/Pet");
    assert_eq!(one["b"]["$ref"], "#/a");
    assert_eq!(one["c"]["$ref"], "#/x-sekisho-documents/owner");
    let brought = &one["x-sekisho-documents"];
    let pet = &brought["pet"]["Pet"]["properties"];
    assert_eq!(pet["owner"]["$ref"], "#/x-sekisho-documents/owner");
    assert_eq!(pet["next"]["$ref"], "#/x-sekisho-documents/pet/Pet");
    let owner = &brought["owner"]["properties"];
    assert_eq!(owner["pets"]["items"]["$ref"], "#/x-sekisho-documents/pet/Pet");
    assert_eq!(owner["api"]["$ref"], "#/b", "the root is not brought into itself");
}

#[test]
fn two_documents_of_one_name_get_different_keys() {
    let (one, _) = bundled(&[
        ("api.yaml", json!({"a": {"$ref": "pet.yaml"}, "b": {"$ref": "v2/pet.yaml"}})),
        ("pet.yaml", json!({"title": "one"})),
        ("v2/pet.yaml", json!({"title": "two"})),
    ]);
    for (key, title) in [("a", "one"), ("b", "two")] {
        let reference = one[key]["$ref"].as_str().unwrap();
        assert_eq!(one.pointer(&reference[1..]).unwrap()["title"], title);
    }
}

#[test]
fn missing_documents_are_reported_and_their_references_stay_as_written() {
    let (one, notes) =
        bundled(&[("api.yaml", json!({"a": {"$ref": "gone.yaml#/Pet"}, "c": {"$ref": "ftp://a.example/x"}}))]);
    assert_eq!(one["a"]["$ref"], "gone.yaml#/Pet");
    let reported: Vec<_> = notes.iter().map(|note| note.operation.as_str()).collect();
    assert_eq!(reported, ["ftp://a.example/x", "/docs/gone.yaml"], "{notes:?}");
}

#[test]
fn names_examples_and_identifiers_are_no_references() {
    let schema = json!({
        "$id": "https://schemas.example/pet", "example": {"$ref": "data.yaml"},
        "x-ms-examples": {"one": {"$ref": "examples/one.json"}},
        "properties": {"$ref": {"type": "string"}, "default": {"$ref": "https://schemas.example/pet#"}},
    });
    let (one, notes) = bundled(&[("api.yaml", schema.clone())]);
    assert_eq!((one, notes), (schema, vec![]));
    // `default` is a keyword of a schema and a name among responses.
    let (one, _) =
        bundled(&[("api.yaml", json!({"responses": {"default": {"$ref": "r.yaml"}}})), ("r.yaml", json!({}))]);
    assert_eq!(one["responses"]["default"]["$ref"], "#/x-sekisho-documents/r");
    // A map of named members may itself be a reference.
    let (one, _) = bundled(&[("api.yaml", json!({"content": {"$ref": "c.yaml"}})), ("c.yaml", json!({}))]);
    assert_eq!(one["content"]["$ref"], "#/x-sekisho-documents/c");
}

#[test]
fn a_chain_of_documents_ends_somewhere() {
    let chain: Vec<_> =
        (0..200).map(|at| (format!("{at}.json"), json!({"$ref": format!("{}.json", at + 1)}))).collect();
    let chain: Vec<_> = chain.iter().map(|(name, document)| (name.as_str(), document.clone())).collect();
    let (one, notes) = bundled(&chain);
    assert_eq!(one["x-sekisho-documents"].as_object().unwrap().len(), MAX_STEPS);
    assert!(notes[0].reason.contains("64 references apart"), "{notes:?}");
}
