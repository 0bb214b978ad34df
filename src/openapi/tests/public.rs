//! Public documents become tools, every operation of them, in lists that a client can hold.

use std::collections::HashSet;

use super::*;
use sekisho_calls::tool::{Parameters, ToolName};

const DOCUMENTS: [(&str, usize); 6] = [
    ("petstore3.yaml", 19),
    ("figma.yaml", 47),
    ("httpbin-swagger2.json", 78),
    ("twilio-api-v2010.json.gz", 197),
    ("stripe-2022-04-12.spec3.json.gz", 417),
    ("github-api.min.json.gz", 1223),
];

/// "Stripe's whole tool list < 2 MB", where a peer's has 161 MB; GitHub has three times the operations.
const MAX_LIST: usize = 2_000_000;

#[tokio::test]
async fn every_operation_of_a_public_document_becomes_a_tool() {
    for (name, operations) in DOCUMENTS {
        let text = String::from_utf8(public_document(name)).unwrap();
        let collection = load(text).await.unwrap();
        let report = &collection.report;
        assert_eq!((report.operations, report.tools), (operations, operations), "{name}: {:?}", report.lost);

        let mut names = HashSet::new();
        let mut listed = 0;
        for tool in &collection.tools {
            assert!(ToolName::parse(&tool.metadata.name).is_ok() && names.insert(&tool.metadata.name), "{name}");
            assert_eq!(tool.parameters.document()["type"], "object");
            assert!(matches!(tool.parameters, Parameters::Compiled(_)), "the registry has nothing to compile");
            let output = tool.output_schema.as_ref().map_or(0, |schema| schema.to_string().len());
            assert!(output <= 5_000, "{}: {output} bytes of output schema", tool.metadata.name);
            listed += tool.metadata.description.len() + tool.parameters.document().to_string().len() + output;
        }
        let most = if operations > 1_000 { 3 * MAX_LIST } else { MAX_LIST };
        assert!(listed < most, "{name}: the list has {listed} bytes");
    }
}

/// An object of Stripe's reaches all others: put together one by one they took gigabytes.
#[tokio::test]
async fn a_whole_output_schema_is_put_together_from_what_it_reaches() {
    let text = String::from_utf8(public_document("stripe-2022-04-12.spec3.json.gz")).unwrap();
    let collection = load(text).await.unwrap();
    let tool = collection.tools.iter().find(|tool| tool.metadata.name == "a__GetAccount").unwrap();
    let (whole, _) = tool.executor.output_schema().unwrap().alone(1 << 20);
    let bytes = whole.to_string().len();
    assert!(bytes > 10_000 && bytes <= 1 << 20, "{bytes}");
    assert!(whole["$defs"].as_object().unwrap().len() > 10);
}
