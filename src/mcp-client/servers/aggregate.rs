//! Resources, prompts and completion of all servers together.
//!
//! Results are JSON as in the protocol (2025-11-25 and later), with the prefix of the server in names and URIs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::McpServers;
use crate::changes::{Change, ResourceOwner};
use crate::server::Server;
use crate::server::catalogue::source;
use crate::server::operations::{SUBSCRIBE, is_prompt, text};
use sekisho_calls::registry::unknown_target;
use sekisho_core::call::{Arguments, CallContext, CallKind, Caller, Target};
use sekisho_core::error::CallError;

/// Whether a rule of `tools.guards` blocks a text, or an object with texts, by which a source describes itself.
pub type IsBlocked<'a> = &'a dyn Fn(&str, &Value) -> bool;

/// A request for a resource, prompt or completion, which is run as a call.
#[derive(Debug)]
pub struct OperationRequest {
    /// The method of the protocol.
    pub method: &'static str,
    pub target: Target,
    /// Its parameters, with the target's name or URI in this gateway.
    pub arguments: Arguments,
}

impl OperationRequest {
    /// The call and its arguments, for the caller of `call`.
    pub fn into_call(self, call: CallContext) -> (CallContext, Arguments) {
        let Self { method, target, arguments } = self;
        (CallContext { tool: method.to_owned(), target: Some(Box::new(target)), ..call }, arguments)
    }
}

fn shown(server: &Server, items: &[Value], is_blocked: IsBlocked<'_>) -> Vec<Value> {
    let name = source(server.name());
    items.iter().filter(|item| !is_blocked(&name, item)).cloned().collect()
}

impl McpServers {
    /// The call for a request of the protocol, by its method; `None` for other methods.
    pub fn request(&self, caller: &Caller, method: &str, params: &Map<String, Value>) -> Option<OperationRequest> {
        Some(match method {
            "resources/read" => self.read_resource(caller, text(params, "uri")),
            "resources/subscribe" => self.subscribe(caller, text(params, "uri")),
            "prompts/get" => {
                let arguments = params.get("arguments").and_then(Value::as_object).cloned();
                self.get_prompt(caller, text(params, "name"), arguments)
            }
            "completion/complete" => self.complete(caller, params.clone()),
            _ => return None,
        })
    }

    /// `Resource` objects of the servers that `caller` may use, as last listed, in a fixed order.
    pub fn resources(&self, caller: &Caller, is_blocked: IsBlocked<'_>) -> Vec<Value> {
        self.each_for(caller, |server| shown(server, &server.catalogue.load().resources, is_blocked))
    }

    /// `ResourceTemplate` objects, as [`resources`](Self::resources).
    pub fn resource_templates(&self, caller: &Caller, is_blocked: IsBlocked<'_>) -> Vec<Value> {
        self.each_for(caller, |server| shown(server, &server.catalogue.load().templates, is_blocked))
    }

    /// `Prompt` objects, as [`resources`](Self::resources). If two have the same name, the first server's is used.
    pub fn prompts(&self, caller: &Caller, is_blocked: IsBlocked<'_>) -> Vec<Value> {
        let mut names = std::collections::HashSet::new();
        let mut prompts = self.each_for(caller, |server| match server.lock_violation() {
            None => shown(server, &server.catalogue.load().prompts, is_blocked),
            Some(_) => Vec::new(),
        });
        prompts.retain(|prompt| names.insert(prompt["name"].to_string()));
        prompts
    }

    /// The instructions of the servers that `caller` may use.
    pub fn instructions(&self, caller: &Caller, is_blocked: IsBlocked<'_>) -> Option<String> {
        let instructions = self.each_for(caller, |server| {
            let text = server.catalogue.load().instructions.clone().filter(|_| server.lock_violation().is_none());
            let text = text.filter(|text| !is_blocked(&source(server.name()), &Value::from(text.as_str())));
            text.map(|text| format!("{}: {text}", server.name())).into_iter().collect()
        });
        (!instructions.is_empty()).then(|| instructions.join("\n\n"))
    }

    /// The server that has a tool of this name in the session of a call's client, and not in a new one.
    pub async fn of_tool_in_session(&self, call: &CallContext, name: &str) -> Option<String> {
        let may_have = |server: &&Arc<Server>| {
            let begins = server.names().prefix().is_none_or(|prefix| name.starts_with(prefix));
            begins && server.admits(&call.caller) && call.caller.tools.admits(name)
        };
        let servers: Vec<_> = self.running.load().values().filter(may_have).cloned().collect();
        for server in servers {
            if server.has_in_session(call, name).await {
                return Some(server.name().to_owned());
            }
        }
        None
    }

    /// The call that reads a resource, for its `ReadResourceResult`.
    pub fn read_resource(&self, caller: &Caller, uri: &str) -> OperationRequest {
        let target = self.resource(CallKind::Resource, caller, uri);
        let arguments = Map::from_iter([("uri".to_owned(), target.name.clone().into())]);
        OperationRequest { method: "resources/read", target, arguments }
    }

    /// The call that subscribes to a resource, after which clients are notified of its changes
    /// ([`Change::Resource`]). It is authorized like reading the resource. Each subscription needs one
    /// [`unsubscribe`](Self::unsubscribe).
    pub fn subscribe(&self, caller: &Caller, uri: &str) -> OperationRequest {
        let mut request = OperationRequest { method: "resources/subscribe", ..self.read_resource(caller, uri) };
        request.arguments.insert(SUBSCRIBE.to_owned(), true.into());
        request
    }

    /// The owner of the session that receives changes of the resource to which the call subscribed.
    /// Errors: `unknown_tool` if the resource no longer exists, or the reason why its server is unreachable.
    pub async fn subscriber(&self, call: &CallContext, uri: &str) -> Result<ResourceOwner, CallError> {
        let found = self.of_resource(&call.caller, uri);
        let (server, _) = found.ok_or_else(|| unknown_target(CallKind::Resource, uri))?;
        server.resource_owner(call).await
    }

    /// Whether a client of the caller is told of a change: of servers that the caller may use now. Its lists of tools are compared
    /// for each caller.
    pub fn may_see(&self, caller: &Caller, change: &Change) -> bool {
        match change {
            Change::Resources(Some(server)) | Change::Prompts(Some(server)) => {
                self.running.load().get(server).is_some_and(|server| server.may_use(caller))
            }
            // Its server may have been switched off for the caller since the client subscribed.
            Change::Resource { uri, .. } => self.of_resource(caller, uri).is_some(),
            Change::Tools | Change::Resources(None) | Change::Prompts(None) => true,
        }
    }

    /// Tells clients that lists of these servers have changed, where a server was removed, or has other callers or names now. All
    /// clients are told: who could use it before is not known any more.
    pub(super) fn announce_others_than(&self, before: &BTreeMap<String, Arc<Server>>) {
        let running = self.running.load();
        let is_other = |name: &String, server: &Arc<Server>| {
            let (now, then) = (running.get(name).map(|server| server.settings()), server.settings());
            now.is_none_or(|now| {
                (&now.owner, &now.roles, now.on_request) != (&then.owner, &then.roles, then.on_request)
                    || (&now.alias, &now.prefix) != (&then.alias, &then.prefix)
            })
        };
        let others = before.iter().filter(|(name, server)| is_other(name, server));
        let lists: Vec<_> = others.map(|(_, server)| server.listing.load_full()).collect();
        if lists.iter().any(|list| !list.resources.is_empty() || !list.templates.is_empty()) {
            self.announce(Change::Resources(None));
        }
        if lists.iter().any(|list| !list.prompts.is_empty()) {
            self.announce(Change::Prompts(None));
        }
    }

    /// Ends one subscription, also at a server that was switched off for its caller meanwhile.
    /// Errors: `unknown_tool` if the resource no longer exists, the server's error, or the reason why it is
    /// unreachable.
    pub async fn unsubscribe(&self, caller: &Caller, uri: &str, owner: &ResourceOwner) -> Result<(), CallError> {
        let found = self.of_resource_among(uri, |server| server.may_use_when_on(caller));
        let (server, own) = found.ok_or_else(|| unknown_target(CallKind::Resource, uri))?;
        server.unsubscribe(&own, owner).await
    }

    /// The call that gets a listed prompt, for its `GetPromptResult`. Servers may tell no arguments from an empty object.
    pub fn get_prompt(&self, caller: &Caller, name: &str, arguments: Option<Arguments>) -> OperationRequest {
        let mut params = Map::from_iter([("name".to_owned(), name.into())]);
        params.extend(arguments.map(|arguments| ("arguments".to_owned(), Value::Object(arguments))));
        OperationRequest {
            method: "prompts/get",
            target: self.prompt(CallKind::Prompt, caller, name),
            arguments: params,
        }
    }

    /// The call for the `CompleteResult` of the `params` of `completion/complete`: `ref`, `argument`, `context`.
    pub fn complete(&self, caller: &Caller, mut params: Map<String, Value>) -> OperationRequest {
        let mut nothing = Map::new();
        let reference = params.get_mut("ref").and_then(Value::as_object_mut).unwrap_or(&mut nothing);
        let target = if is_prompt(reference) {
            self.prompt(CallKind::Completion, caller, text(reference, "name"))
        } else {
            let target = self.resource(CallKind::Completion, caller, text(reference, "uri"));
            reference.insert("uri".to_owned(), target.name.clone().into());
            target
        };
        OperationRequest { method: "completion/complete", target, arguments: params }
    }

    fn each_for<T>(&self, caller: &Caller, of: impl Fn(&Server) -> Vec<T>) -> Vec<T> {
        self.running.load().values().filter(|server| server.may_use(caller)).flat_map(|server| of(server)).collect()
    }

    /// A resource by its listed URI; the scheme is case-insensitive.
    fn resource(&self, kind: CallKind, caller: &Caller, uri: &str) -> Target {
        match self.of_resource(caller, uri) {
            Some((server, own)) => Target { kind, source: Some(source(server.name())), name: server.names().uri(&own) },
            None => Target { kind, source: None, name: uri.to_owned() },
        }
    }

    fn prompt(&self, kind: CallKind, caller: &Caller, name: &str) -> Target {
        let running = self.running.load();
        let mut usable = running.values().filter(|server| server.may_use(caller));
        let server = usable.find(|server| server.catalogue.load().prompt_names.contains_key(name));
        Target { kind, source: server.map(|server| source(server.name())), name: name.to_owned() }
    }

    /// The server of a URI, and the server's own URI. Among several servers without a prefix, the one that lists it.
    fn of_resource(&self, caller: &Caller, uri: &str) -> Option<(Arc<Server>, String)> {
        self.of_resource_among(uri, |server| server.may_use(caller))
    }

    fn of_resource_among(&self, uri: &str, is_one: impl Fn(&Server) -> bool) -> Option<(Arc<Server>, String)> {
        let running = self.running.load();
        let mut candidates = running.values().filter(|server| is_one(server)).filter_map(|server| {
            let own = server.names().own_uri(uri)?;
            Some((Arc::clone(server), own.into_owned(), server.lists(uri), server.names().is_prefixed()))
        });
        let mut best = None;
        for (server, own, lists, prefixed) in &mut candidates {
            let rank = (prefixed, lists);
            if best.as_ref().is_none_or(|(_, _, before)| rank > *before) {
                best = Some((server, own, rank));
            }
        }
        best.map(|(server, own, _)| (server, own))
    }
}
