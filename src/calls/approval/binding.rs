//! The digests that tie an approval to its call. Two calls with the same digest are the same call.

use sha2::{Digest, Sha256};

use crate::tool::{Tool, ValidArguments};
use sekisho_core::call::CallContext;
use sekisho_core::json;

/// The digests (hex) by which approvals are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Digest of the caller, the tool, its definition, and the call as it is sent: of everything that determines its
    /// effect.
    pub(super) call: String,
    /// Digest of the caller, the tool and its definition, which includes the address of its calls.
    pub(super) tool: String,
    /// Digest of these and the session, for a call in a session.
    pub(super) session: Option<String>,
}

impl Binding {
    /// Arguments in another notation that are sent alike have the same digest.
    pub fn of(call: &CallContext, tool: &Tool, arguments: &ValidArguments) -> Self {
        let target = call.target.as_deref().map_or("", |target| &target.name);
        let metadata = &tool.metadata;
        // A virtual MCP server, or a key with a part of the tools, is another place to call from.
        let scope = call.caller.tools.lists().map(|list| digest_of(list.iter().map(String::as_str)));
        let scope: Vec<_> = scope.collect();
        let scope = digest_of(scope.iter().map(String::as_str));
        let sent = tool.sent_call(call, arguments.sent()).digest(tool);
        // Tenant and identity come first.
        let tool = [&*call.caller.key, &scope, metadata.kind.as_str(), &metadata.name, tool.definition_digest()];
        let session = call.origin.session.as_ref().map(|session| &*session.id);
        let effect = [
            &digest_of([target, call.origin.claimed_user.as_deref().unwrap_or_default()]),
            &sent,
            &hex::encode(json::digest(&call.origin.prompt_params)),
            &hex::encode(json::digest(&call.origin.tool_parameters)),
            // Files belong to a session; other tools do not know of it.
            session.filter(|_| metadata.session_aware).unwrap_or_default(),
        ];
        Self {
            call: digest_of(tool.into_iter().chain(effect)),
            tool: digest_of(tool),
            session: session.map(|session| digest_of(tool.into_iter().chain(["session", session]))),
        }
    }

    /// Digest of the call and the reasons: equal requests are one.
    pub(super) fn with_reasons(&self, reasons: &[String]) -> String {
        digest_of([&*self.call].into_iter().chain(reasons.iter().map(String::as_str)))
    }

    /// For the record of its reply.
    pub fn call_digest(&self) -> &str {
        &self.call
    }
}

/// Digest of the run, conversation or session of a call, or else of its batch: its calls that wait are one item, about which a
/// person decides at once.
pub(super) fn group_digest(call: &CallContext) -> Option<String> {
    // An empty one names none: its calls have nothing in common.
    let group = call.origin.session_of_values().filter(|group| !group.is_empty());
    let (kind, group) = match (group, &call.origin.batch) {
        (Some(group), _) => ("group", group),
        (None, batch) => ("batch", batch.as_ref()?),
    };
    Some(digest_of([kind, &*call.caller.key, &**group]))
}

/// The length of each part precedes it, so that no two lists have the same bytes.
fn digest_of<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::tool::Metadata;
    use crate::tool::tests::tool_with;
    use sekisho_core::call::{Arguments, CallOrigin, Caller, Via};
    use sekisho_core::client_request::ClientRequest;

    fn tool(metadata: Metadata, parameters: Value) -> Tool {
        tool_with(Metadata { name: "pay".into(), ..metadata }, parameters, None)
    }

    fn call() -> CallContext {
        CallContext::new("pay", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest)
    }

    fn some() -> Arguments {
        Arguments::from_iter([("n".to_owned(), json!(1))])
    }

    fn binding(call: &CallContext, tool: &Tool, arguments: Arguments) -> Binding {
        Binding::of(call, tool, &tool.valid_arguments(arguments, &call.origin.prompt_params).unwrap())
    }

    #[test]
    fn all_that_determines_what_a_call_does_is_bound() {
        let plain = tool(Metadata::default(), json!({}));
        let bound = binding(&call(), &plain, some());
        assert_eq!(binding(&call(), &plain, some()), bound);
        let stranger = Arc::new(Caller::new("ann", "globex", Vec::new()));
        for other in [
            CallContext { caller: stranger, ..call() },
            CallContext {
                origin: CallOrigin { claimed_user: Some("eve".to_owned()), ..CallOrigin::default() },
                ..call()
            },
            CallContext { origin: CallOrigin { prompt_params: some(), ..CallOrigin::default() }, ..call() },
            CallContext { origin: CallOrigin { tool_parameters: some(), ..CallOrigin::default() }, ..call() },
        ] {
            assert_ne!(binding(&other, &plain, some()).call, bound.call, "{other:?}");
        }
        assert_ne!(binding(&call(), &plain, Arguments::new()).call, bound.call);
        let version = Metadata { version: "2.0.0".into(), ..Metadata::default() };
        let source = Metadata { source: "elsewhere".into(), ..Metadata::default() };
        let description = Metadata { description: "Pays twice".into(), ..Metadata::default() };
        for changed in [
            tool(version, json!({})),
            tool(source, json!({})),
            tool(description, json!({})),
            tool(Metadata::default(), json!({"properties": {"n": {"description": "something else"}}})),
        ] {
            let other = binding(&call(), &changed, some());
            assert!(other.call != bound.call && other.tool != bound.tool, "{:?}", changed.metadata);
        }
    }

    #[test]
    fn calls_of_another_caller_or_tenant_are_of_another_group() {
        let group = |tenant: &str, id: &str, session: Option<&str>| {
            let origin = CallOrigin { values_of: session.map(Into::into), ..CallOrigin::default() };
            let caller = Arc::new(Caller::new(id, tenant, Vec::new()));
            group_digest(&CallContext { origin, caller, ..call() })
        };
        let of_ann = group("acme", "ann", Some("s"));
        assert!(of_ann.is_some() && of_ann == group("acme", "ann", Some("s")));
        for (tenant, id, session) in [("globex", "ann", "s"), ("acme", "bob", "s"), ("acme", "ann", "t")] {
            assert_ne!(group(tenant, id, Some(session)), of_ann, "{tenant} {id} {session}");
        }
        assert_eq!([group("acme", "ann", None), group("acme", "ann", Some(""))], [None, None]);
        let of_batch = |id: &str| {
            let batch = Some(id.into());
            group_digest(&CallContext { origin: CallOrigin { batch, ..CallOrigin::default() }, ..call() })
        };
        assert!(of_batch("s").is_some() && of_batch("s") != of_ann && of_batch("s") != of_batch("t"));
        // Many requests may have one id of their client.
        let request = Some(Arc::new(ClientRequest { address: None, id: "s".into() }));
        let origin = CallOrigin { request, ..CallOrigin::default() };
        assert_eq!(group_digest(&CallContext { origin, ..call() }), None);
    }
}
