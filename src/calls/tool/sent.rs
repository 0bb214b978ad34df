//! The call that is sent: where it goes, in which form, and with which arguments. Policies, approvers, idempotency and the
//! audit trail see it before it is sent, and an executor sends nothing else that a caller wrote. Credentials are added to it
//! by name.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Tool;
use sekisho_core::call::{Arguments, CallContext};
use sekisho_core::json;

/// The method of a call that leaves the gateway for no server.
pub(crate) const LOCAL: &str = "call";

/// Where a call is sent, and in which form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Destination<'a> {
    /// An HTTP method, or a method of MCP.
    pub method: Cow<'a, str>,
    /// Without credentials: the server of an HTTP API and the path with its `{templates}`, or an MCP server and its own
    /// name of the tool.
    pub address: Cow<'a, str>,
    /// The media type of the body; `None` without one.
    pub coding: Option<Cow<'a, str>>,
    /// The members that the caller adds beside the arguments: `_meta` of MCP.
    pub meta: Option<&'a Map<String, Value>>,
    /// Whether an MCP server is asked to run it as a task.
    pub as_task: bool,
}

/// A call as it is sent. Part of the policy input contract.
#[derive(Debug, Clone, PartialEq)]
pub struct SentCall<'a> {
    pub destination: Destination<'a>,
    /// By the names of who gets them.
    pub arguments: &'a Arguments,
}

/// The form in which an executor sends the arguments of its calls, where that is another than the tool's own.
pub trait SentForm: Send + Sync {
    /// Adds the values of the configuration and of `prompt_params` to valid arguments, under the tool's own names.
    fn fill_in(&self, arguments: &mut Arguments, prompt_params: &Map<String, Value>) -> FilledIn;

    /// Complete arguments by the names of their receivers, with the `further` ones for which the tool has no name.
    fn sent(&self, arguments: &Arguments, further: &Arguments) -> Arguments;
}

/// The result of [`SentForm::fill_in`].
#[derive(Debug, Default)]
pub struct FilledIn {
    /// Whether the arguments are others now.
    pub changed: bool,
    /// Values for which the tool has no argument, by the names of their receivers.
    pub further: Arguments,
}

impl SentCall<'_> {
    /// SHA-256 (hex) of the canonical JSON (RFC 8785) of the call and of the definition of its tool: calls with equal
    /// digests have the same effect.
    pub fn digest(&self, tool: &Tool) -> String {
        let Self { destination: Destination { method, address, coding, meta, as_task }, arguments } = self;
        let sha256 = |members: &Map<String, Value>| Value::from(hex::encode(json::digest(members)));
        let parts = [
            ("tool", tool.definition_digest().into()),
            ("method", (&**method).into()),
            ("address", (&**address).into()),
            ("coding", coding.as_deref().into()),
            ("arguments", sha256(arguments)),
            ("meta", meta.map_or(Value::Null, sha256)),
            ("as_task", (*as_task).into()),
        ];
        digest_of(parts)
    }
}

impl Tool {
    /// The call with these arguments, which are in their sent form.
    pub fn sent_call<'a>(&'a self, call: &'a CallContext, arguments: &'a Arguments) -> SentCall<'a> {
        SentCall { destination: self.destination(call, arguments), arguments }
    }

    fn destination<'a>(&'a self, call: &'a CallContext, arguments: &'a Arguments) -> Destination<'a> {
        let declared = self.executor.destination(call, arguments);
        declared.unwrap_or_else(|| Destination::local(&self.metadata.source))
    }

    /// SHA-256 (hex) of the tool's definition: the parts that `tools.lock` pins (origin, method, address, description,
    /// schemas), its version, and the address of its calls.
    pub fn definition_digest(&self) -> &str {
        self.definition_digest.get_or_init(|| {
            let metadata = &self.metadata;
            digest_of([
                ("name", metadata.name.as_str().into()),
                ("kind", metadata.kind.as_str().into()),
                ("source", metadata.source.as_str().into()),
                ("version", metadata.version.as_str().into()),
                ("reaches", self.executor.reaches().into()),
                ("identity", self.executor.identity().into()),
                ("description", metadata.description.as_str().into()),
                ("own_description", self.own_description.as_deref().into()),
                ("annotations", hex::encode(json::digest(&metadata.mcp_annotations)).into()),
                ("parameters", self.complete_input().hash().into()),
                ("output_schema", self.source_output().map_or(Value::Null, |output| output.document().clone())),
            ])
        })
    }
}

impl<'a> Destination<'a> {
    /// The destination of a tool that runs in the gateway, or in its sandbox.
    pub fn local(source: &'a str) -> Self {
        Self { method: LOCAL.into(), address: source.into(), ..Self::default() }
    }
}

fn digest_of<const N: usize>(parts: [(&str, Value); N]) -> String {
    let parts: Map<_, _> = parts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    hex::encode(json::digest(&parts))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::tool::tests::{tool_run_by, tool_with};
    use crate::tool::{Attempt, Execution, Executor, Metadata};
    use sekisho_core::call::{CallClient, Caller, Via};

    /// Sends its calls to a server.
    struct Remote {
        address: &'static str,
        identity: &'static str,
    }

    impl Executor for Remote {
        fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
            unreachable!("nothing is run")
        }

        fn reaches(&self) -> Option<String> {
            Some(self.address.to_owned())
        }

        fn identity(&self) -> Option<String> {
            Some(self.identity.to_owned())
        }

        fn destination<'a>(&'a self, call: &'a CallContext, _arguments: &'a Arguments) -> Option<Destination<'a>> {
            let (method, address) = ("POST".into(), self.address.into());
            let meta = Some(&call.client.meta);
            Some(Destination { method, address, coding: None, meta, as_task: call.client.as_task })
        }
    }

    fn call() -> CallContext {
        CallContext::new("pay", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest)
    }

    fn amount(amount: u32) -> Arguments {
        Arguments::from_iter([("amount".to_owned(), json!(amount))])
    }

    fn remote(address: &'static str, identity: &'static str, metadata: Metadata) -> Tool {
        tool_run_by(Arc::new(Remote { address, identity }), Metadata { name: "pay".into(), ..metadata })
    }

    #[test]
    fn the_digest_is_another_for_each_part_of_a_call() {
        let digest = |tool: &Tool, call: &CallContext, amount: &Arguments| tool.sent_call(call, amount).digest(tool);
        let plain = || remote("POST https://a.example/pay", "https://a.example", Metadata::default());
        let first = digest(&plain(), &call(), &amount(1));
        assert_eq!(digest(&plain(), &call(), &amount(1)), first, "another tool of the same definition");
        let meta = CallContext { client: CallClient { meta: amount(1), ..CallClient::default() }, ..call() };
        let as_task = CallContext { client: CallClient { as_task: true, ..CallClient::default() }, ..call() };
        let described = Metadata { description: "Pays twice".into(), ..Metadata::default() };
        let newer = Metadata { version: "2.0.0".into(), ..Metadata::default() };
        let moved = Metadata { source: "openapi:other".into(), ..Metadata::default() };
        let annotated = Metadata { mcp_annotations: amount(1), ..Metadata::default() };
        let at = |metadata| remote("POST https://a.example/pay", "https://a.example", metadata);
        let overridden = at(Metadata::default()).with_own_description(Some("what its server says".to_owned()));
        let mut found = vec![
            first,
            digest(&plain(), &call(), &amount(2)),
            digest(&plain(), &meta, &amount(1)),
            digest(&plain(), &as_task, &amount(1)),
            digest(
                &remote("POST https://a.example/delete", "https://a.example", Metadata::default()),
                &call(),
                &amount(1),
            ),
            digest(
                &remote("POST https://a.example/pay", "https://a.example?x", Metadata::default()),
                &call(),
                &amount(1),
            ),
            digest(&overridden, &call(), &amount(1)),
        ];
        found.extend([described, newer, moved, annotated].map(|metadata| digest(&at(metadata), &call(), &amount(1))));
        let count = found.len();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), count);
    }

    #[test]
    fn other_schemas_are_another_definition() {
        let tool =
            |parameters, output| tool_with(Metadata { name: "pay".into(), ..Metadata::default() }, parameters, output);
        let plain = tool(json!({}), None);
        assert_eq!(plain.definition_digest(), tool(json!({"type": "object"}), None).definition_digest());
        for other in [
            tool(json!({"properties": {"amount": {"description": "in cents"}}}), None),
            tool(json!({}), Some(json!({"type": "string"}))),
        ] {
            assert_ne!(other.definition_digest(), plain.definition_digest());
        }
    }

    #[test]
    fn a_call_that_leaves_for_no_server_has_the_source_of_its_tool() {
        let tool = tool_with(Metadata { source: "builtin".into(), ..Metadata::default() }, json!({}), None);
        let (call, arguments) = (call(), amount(1));
        let sent = tool.sent_call(&call, &arguments);
        assert_eq!((&*sent.destination.method, &*sent.destination.address), ("call", "builtin"));
        assert_eq!((sent.destination.coding, sent.destination.meta), (None, None));
    }
}
