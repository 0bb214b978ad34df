//! Messages, event streams and lists that no decent server sends: read or refused.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use rmcp::model::ServerJsonRpcMessage;
use serde_json::Value;

use super::names::Names;
use super::server::catalogue::{Catalogue, ListingPolicy};
use super::server::endpoint::Endpoint;
use super::server::listing::Listing;
use super::server::output;
use super::transport::event_stream::EventStream;
use super::transport::message::{Answer, Message};
use sekisho_calls::tool::{Attempt, Execution, Executor};
use sekisho_config::McpServerSettings;
use sekisho_core::call::Arguments;
use sekisho_core::fuzz::feed;
use sekisho_core::json;

const MESSAGES: [&[u8]; 4] = [
    br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"},{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"resource","resource":{"uri":"a://b","text":"c"}}],"isError":true,"structuredContent":{"a":[1]}}}"#,
    br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":0.5,"total":1,"message":"m"}}"#,
    br#"[{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"no","data":{}}},{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}]"#,
    br#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"n","version":"1"}}}"#,
];

const TOOLS: [&[u8]; 2] = [
    br#"[{"name":"a","description":"d","inputSchema":{"type":"object","properties":{"x":{"type":"string","default":"y"}}},"annotations":{"destructiveHint":true},"_meta":{"k":1}}]"#,
    br#"[{"name":"b b","inputSchema":null,"outputSchema":{"type":"object"},"title":"t","icons":[{"src":"a"}]},{"name":"","inputSchema":{"$ref":"other"}},3]"#,
];

#[test]
fn hostile_bytes_as_messages() {
    feed(&MESSAGES, |bytes| {
        let _ = Message::all(bytes);
        let event = Message::of(bytes);
        if Answer::of(bytes).is_some() {
            assert!(matches!(event, Some(Message::Answer(_))), "however it comes");
        }
        let Ok(message) = serde_json::from_slice::<Value>(bytes) else { return };
        let _ = serde_json::from_value::<ServerJsonRpcMessage>(message.clone());
        if let Some(result) = message.get("result") {
            let _ = output::output(result.clone(), &Names::new(Some("s")));
        }
    });
}

#[test]
fn hostile_bytes_as_event_streams() {
    let events: [&[u8]; 2] =
        [b"event: endpoint\ndata: /messages?id=1\n\n: ping\n\n", b"id: 7\r\nretry: 10\r\ndata: {\r\ndata: }\r\n\r\n"];
    feed(&events, |bytes| {
        let pieces: Vec<_> = bytes.chunks(7).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let mut events = EventStream::new(stream::iter(pieces), 1_000);
        let read = async {
            let mut count = 0;
            while let Ok(Some(_)) = events.next().await {
                count += 1;
            }
            count
        };
        assert!(read.now_or_never().is_some_and(|count| count <= bytes.len()), "it ends");
    });
}

struct Nothing;

impl Executor for Nothing {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async { Ok(Value::Null.into()) })
    }
}

#[test]
fn hostile_bytes_as_lists_of_tools() {
    let (settings, reach) = (McpServerSettings::default(), Endpoint::Program("s".to_owned()));
    feed(&TOOLS, |bytes| {
        let Ok(Value::Array(tools)) = json::parse(bytes) else { return };
        let tools = tools.iter().map(|tool| tool.to_string().into()).collect();
        let listing = Listing { tools, ..Listing::default() };
        let names = Names::new(Some("s"));
        let terms = ListingPolicy { server: "s", settings: &settings, names: &names, reach: &reach, rate_limit: 1 };
        let catalogue = Catalogue::of(&listing, &terms, |_, _, _| Arc::new(Nothing));
        assert_eq!(catalogue.tools.len() + catalogue.unavailable.len(), listing.tools.len());
        for tool in &catalogue.tools {
            let pin = sekisho_calls::registry::lock::Pin::of(&tool.metadata.name, tool);
            let _ = pin.flags();
        }
    });
}
