//! The part of a request's `_meta` that concerns the server behind the gateway.

use std::sync::Arc;

use rmcp::model::RequestMetaObject;
use serde_json::{Map, Value};

use sekisho_core::call::TraceParent;
use sekisho_observe::telemetry::{TRACE_PARENT, TRACE_STATE, incoming};

/// Prefix of the keys that the protocol defines: they describe the connection between client and gateway.
const OF_PROTOCOL: &str = "io.modelcontextprotocol/";

/// Prefix of the gateway's own keys.
const OWN: &str = "sekisho/";

/// The text of the user for whom a call is made, as `session_context.user_text` over REST.
const USER_TEXT: &str = "sekisho/userText";

/// Ends the names of keys that a client writes anew for each call (`claudecode/toolUseId`). Servers do not get them: an approval
/// is for all that is sent, and the call that is sent again with it would be another one.
const OF_ONE_CALL: [&str; 2] = ["/tooluseid", "/toolcallid"];

/// The client's own keys. Progress is reported under a token of the gateway, and the place in the trace is the call's.
pub(super) fn meta(meta: &RequestMetaObject) -> Map<String, Value> {
    let is_own = |name: &str| {
        !name.starts_with(OF_PROTOCOL)
            && !name.starts_with(OWN)
            && !OF_ONE_CALL.iter().any(|id| name.to_ascii_lowercase().ends_with(id))
            && !["progressToken", TRACE_PARENT.as_str(), TRACE_STATE.as_str()].contains(&name)
    };
    let own = meta.0.0.iter().filter(|(name, _)| is_own(name));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The request's place in a trace (SEP-414).
pub(super) fn trace(meta: &RequestMetaObject) -> Option<TraceParent> {
    let text = |name: &str| meta.0.0.get(name).and_then(Value::as_str);
    incoming(text(TRACE_PARENT.as_str())?, text(TRACE_STATE.as_str()))
}

/// The text of the user, as the client declares it.
pub(super) fn user_text(meta: &RequestMetaObject) -> Option<Arc<str>> {
    meta.0.0.get(USER_TEXT).and_then(Value::as_str).map(Into::into)
}

#[cfg(test)]
mod tests {
    use rmcp::model::MetaObject;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_clients_own_keys_are_passed_on() {
        let all = json!({
            "progressToken": 1, "io.modelcontextprotocol/protocolVersion": "2026-07-28", "sekisho/key": "k", "sekisho/userText": "Mail ann.",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "congo=1",
            "example.com/tenant": {"a": 1}, "baggage": "x=1", "claudecode/toolUseId": "toolu_1",
        });
        let all = RequestMetaObject(MetaObject(all.as_object().cloned().unwrap()));
        assert_eq!(Value::Object(meta(&all)), json!({"example.com/tenant": {"a": 1}, "baggage": "x=1"}));
        assert_eq!(user_text(&all).as_deref(), Some("Mail ann."));
        let trace = trace(&all).unwrap();
        assert_eq!((trace.trace_id[0], trace.state.as_deref()), (0x0a, Some("congo=1")));
    }
}
