//! Compares our reading of OpenAPI 3.0 with the crate `openapiv3`: operations, parameters, bodies and security of every
//! 3.0 document here are the same.

use std::collections::{BTreeMap, BTreeSet};

use openapiv3::{
    OpenAPI, Operation as TheirOperation, Parameter as TheirParameter, ParameterSchemaOrContent, PathItem, ReferenceOr,
    RequestBody as TheirBody,
};

use super::super::tests::public_document;
use super::*;
use crate::load::document::parse;
use crate::read::operation::{Location, Parameter, ParameterEncoding, SecurityRequirement, Style};

const DOCUMENTS: [&str; 5] = [
    "petstore3.yaml",
    "figma.yaml",
    "twilio-api-v2010.json.gz",
    "stripe-2022-04-12.spec3.json.gz",
    "github-api.min.json.gz",
];

/// The compared values.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    parameters: BTreeSet<ParameterReading>,
    /// Whether it is required, and its media types in their order.
    body: Option<(bool, Vec<String>)>,
    security: Option<Vec<SecurityRequirement>>,
}

/// Place, name, whether it is required, and how it is encoded.
type ParameterReading = (Location, String, bool, String);

/// By method and path.
type Readings = BTreeMap<(String, String), Reading>;

#[test]
fn documents_of_version_3_0_are_read_as_openapiv3_reads_them() {
    let mut compared = 0;
    for name in DOCUMENTS {
        let document = parse(&public_document(name)).unwrap();
        if !document["openapi"].as_str().unwrap().starts_with("3.0") {
            continue;
        }
        let theirs: OpenAPI =
            serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let ours = read(&document, Some(&Url::parse("https://docs.example/spec/api.json").unwrap())).unwrap();
        assert_eq!(ours.security, requirements(theirs.security.as_deref()).unwrap_or_default(), "{name}");
        let (ours, theirs) = (readings_of_ours(&ours), readings_of_theirs(&theirs));
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{name}");
        for (operation, reading) in &theirs {
            assert_eq!(&ours[operation], reading, "{name}: {operation:?}");
            compared += 1;
        }
    }
    assert!(compared > 1_500, "only {compared} operations were compared");
}

fn readings_of_ours(api: &Api) -> Readings {
    let operations = api.operations.iter().map(|operation| {
        let body = operation.body.as_ref();
        let reading = Reading {
            parameters: operation.parameters.iter().map(parameter_of_ours).collect(),
            body: body.map(|body| (body.required, body.content.iter().map(|content| content.name.clone()).collect())),
            security: operation.security.clone(),
        };
        ((operation.method.to_string(), operation.path.clone()), reading)
    });
    operations.collect()
}

fn parameter_of_ours(parameter: &Parameter) -> ParameterReading {
    let encoding = match &parameter.encoding {
        ParameterEncoding::Content(media_type) => media_type.clone(),
        ParameterEncoding::Styled { style, explode, allow_reserved, allow_empty } => {
            described(*style, *explode, *allow_reserved, *allow_empty)
        }
    };
    (parameter.location, parameter.name.clone(), parameter.required, encoding)
}

fn described(style: Style, explode: bool, allow_reserved: bool, allow_empty: bool) -> String {
    format!("{style:?} explode={explode} reserved={allow_reserved} empty={allow_empty}")
}

fn readings_of_theirs(document: &OpenAPI) -> Readings {
    let mut readings = Readings::new();
    for (path, item) in &document.paths.paths {
        let ReferenceOr::Item(item) = item else { panic!("{path} is a reference") };
        for (method, operation) in item.iter() {
            readings.insert((method.to_uppercase(), path.clone()), reading_of_theirs(document, item, operation));
        }
    }
    readings
}

fn reading_of_theirs(document: &OpenAPI, item: &PathItem, operation: &TheirOperation) -> Reading {
    // The operation's parameters replace the path's with the same place and name.
    let mut parameters = BTreeMap::new();
    for parameter in item.parameters.iter().chain(&operation.parameters) {
        let (location, name, required, encoding) = parameter_of_theirs(parameter_in(document, parameter));
        parameters.insert((location, name), (required, encoding));
    }
    let body = operation.request_body.as_ref().map(|body| {
        let body = body_in(document, body);
        (body.required, body.content.keys().cloned().collect())
    });
    let parameters = parameters.into_iter();
    Reading {
        parameters: parameters
            .map(|((location, name), (required, encoding))| (location, name, required, encoding))
            .collect(),
        body,
        security: requirements(operation.security.as_deref()),
    }
}

fn parameter_of_theirs(parameter: &TheirParameter) -> ParameterReading {
    let data = parameter.parameter_data_ref();
    let (location, style, reserved, empty) = match parameter {
        TheirParameter::Query { style, allow_reserved, allow_empty_value, .. } => {
            let style = format!("{style:?}");
            (Location::Query, style, *allow_reserved, allow_empty_value.unwrap_or(false))
        }
        TheirParameter::Path { style, .. } => (Location::Path, format!("{style:?}"), false, false),
        TheirParameter::Header { style, .. } => (Location::Header, format!("{style:?}"), false, false),
        TheirParameter::Cookie { style, .. } => (Location::Cookie, format!("{style:?}"), false, false),
    };
    let encoding = match &data.format {
        ParameterSchemaOrContent::Content(content) => content.keys().next().unwrap().clone(),
        ParameterSchemaOrContent::Schema(_) => {
            // Section 4.7.12.1: `explode` is true by default only for the style `form`; for `deepObject` nothing else
            // is defined.
            let explode = data.explode.unwrap_or(style == "Form" || style == "DeepObject");
            format!("{style} explode={explode} reserved={reserved} empty={empty}")
        }
    };
    (location, data.name.clone(), data.required, encoding)
}

fn requirements(written: Option<&[openapiv3::SecurityRequirement]>) -> Option<Vec<SecurityRequirement>> {
    written.map(|all| all.iter().map(|one| one.clone().into_iter().collect()).collect())
}

fn parameter_in<'d>(document: &'d OpenAPI, written: &'d ReferenceOr<TheirParameter>) -> &'d TheirParameter {
    match written {
        ReferenceOr::Item(parameter) => parameter,
        ReferenceOr::Reference { reference } => {
            let name = reference.strip_prefix("#/components/parameters/").unwrap();
            parameter_in(document, &document.components.as_ref().unwrap().parameters[name])
        }
    }
}

fn body_in<'d>(document: &'d OpenAPI, written: &'d ReferenceOr<TheirBody>) -> &'d TheirBody {
    match written {
        ReferenceOr::Item(body) => body,
        ReferenceOr::Reference { reference } => {
            let name = reference.strip_prefix("#/components/requestBodies/").unwrap();
            body_in(document, &document.components.as_ref().unwrap().request_bodies[name])
        }
    }
}
