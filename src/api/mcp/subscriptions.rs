//! Telling clients what has changed: lists of tools, resources and prompts, and resources they subscribed to.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam};
use rmcp::service::{Peer, ServiceError, SubscriptionContext, SubscriptionSendError};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::McpServer;
use super::handler::{error_data, run_operation};
use super::running_request::log;
use super::sessions::SessionState;
use crate::core::call::{CallContext, Caller};
use crate::core::error::CallError;
use crate::core::peer::ClientSession;
use crate::gateway::Gateway;
use crate::sources::mcp::{Change, McpServers, ResourceOwner};

/// Resources that one client may watch.
const MAX_SUBSCRIPTIONS: usize = 256;

/// The resources a client is told about.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    by_uri: Mutex<HashMap<String, Subscribed>>,
}

/// One of them: who subscribed to it, and whose session with its server tells of it.
#[derive(Debug)]
struct Subscribed {
    caller: Arc<Caller>,
    owner: ResourceOwner,
}

impl Subscriptions {
    /// # Errors
    /// Where there is no such resource, the caller may not read it, its server refuses, or the client watches too many.
    pub(super) async fn add(&self, gateway: &Gateway, call: CallContext, uri: String) -> Result<(), ErrorData> {
        {
            let by_uri = self.by_uri.lock().unwrap_or_else(PoisonError::into_inner);
            if by_uri.contains_key(&uri) {
                return Ok(());
            }
            if by_uri.len() >= MAX_SUBSCRIPTIONS {
                let message = format!("{MAX_SUBSCRIPTIONS} resources are watched already; unsubscribe from one first");
                return Err(ErrorData::invalid_request(message, None));
            }
        }
        let owner = subscribe(gateway, &call, &uri).await.map_err(|error| error_data(&error))?;
        let subscribed = Subscribed { caller: call.caller, owner };
        let before = self.by_uri.lock().unwrap_or_else(PoisonError::into_inner).insert(uri.clone(), subscribed);
        // Two requests at once: one subscription too many.
        if let Some(before) = before {
            before.unsubscribe(gateway.mcp_servers(), &uri).await.map_err(|error| error_data(&error))?;
        }
        Ok(())
    }

    pub(super) async fn remove(&self, servers: &McpServers, uri: &str) -> Result<(), ErrorData> {
        let subscribed = self.by_uri.lock().unwrap_or_else(PoisonError::into_inner).remove(uri);
        match subscribed {
            Some(subscribed) => subscribed.unsubscribe(servers, uri).await.map_err(|error| error_data(&error)),
            None => Ok(()),
        }
    }

    /// Whether the client subscribed to the resource, over the session that tells of it.
    fn hold(&self, uri: &str, owner: &ResourceOwner) -> bool {
        let by_uri = self.by_uri.lock().unwrap_or_else(PoisonError::into_inner);
        by_uri.get(uri).is_some_and(|subscribed| subscribed.owner == *owner)
    }

    async fn end(&self, servers: &McpServers) {
        let all = std::mem::take(&mut *self.by_uri.lock().unwrap_or_else(PoisonError::into_inner));
        for (uri, subscribed) in all {
            if let Err(error) = subscribed.unsubscribe(servers, &uri).await {
                tracing::debug!(%error, uri, "a subscription of a client that has gone stays with its server");
            }
        }
    }
}

impl Subscribed {
    async fn unsubscribe(&self, servers: &McpServers, uri: &str) -> Result<(), CallError> {
        servers.unsubscribe(&self.caller, uri, &self.owner).await
    }
}

/// Has a resource's server tell of its changes, over the session whose owner it gives: for limits and policies a read of
/// the resource.
async fn subscribe(gateway: &Gateway, call: &CallContext, uri: &str) -> Result<ResourceOwner, CallError> {
    let servers = gateway.mcp_servers();
    run_operation(gateway, call.repeated(), servers.subscribe(&call.caller, uri)).await?;
    servers.subscriber(&call.repeated(), uri).await
}

/// What changes a client's lists: the registry and the policies for tools, whatever changed them, and the MCP servers.
struct Watch {
    shared: Arc<McpServer>,
    caller: Arc<Caller>,
    tools: watch::Receiver<()>,
    policies: watch::Receiver<()>,
    servers: Receiver<Change>,
    /// Digest of the tools that the caller was listed last, where it is known.
    listed: Option<u64>,
}

impl Watch {
    async fn new(shared: &Arc<McpServer>, caller: &Arc<Caller>) -> Self {
        let gateway = &shared.gateway;
        let (tools, policies) = (gateway.pipeline.registry.changes(), gateway.pipeline.policy.changes());
        let servers = gateway.mcp_servers().changes();
        let mut watch =
            Self { shared: Arc::clone(shared), caller: Arc::clone(caller), tools, policies, servers, listed: None };
        watch.has_changed().await;
        if watch.tools.has_changed().unwrap_or(true) || watch.policies.has_changed().unwrap_or(true) {
            // The client may have read its list before this change, the digest was made after it.
            watch.listed = None;
        }
        watch
    }

    /// Whether the caller is listed other tools than before.
    async fn has_changed(&mut self) -> bool {
        let (shared, caller) = (Arc::clone(&self.shared), Arc::clone(&self.caller));
        // Describing thousands of tools and asking the policies about them takes a while.
        let digest = move || shared.catalogues.present(&shared.gateway).digest_for(&caller, &shared.gateway);
        match tokio::task::spawn_blocking(digest).await {
            Ok(listed) => self.listed.replace(listed) != Some(listed),
            Err(error) => {
                tracing::error!(%error, "whether a client's list of tools has changed is not known");
                true
            }
        }
    }

    /// `None` when nothing more can change.
    async fn next(&mut self) -> Option<Change> {
        loop {
            let change = tokio::select! {
                changed = self.tools.changed() => changed.map(|()| Change::Tools).map_err(|_| RecvError::Closed),
                changed = self.policies.changed() => changed.map(|()| Change::Tools).map_err(|_| RecvError::Closed),
                change = self.servers.recv() => match change {
                    // The registry tells this itself, once the change can be seen there.
                    Ok(Change::Tools) => continue,
                    change => change,
                },
            };
            match change {
                Ok(Change::Tools) if !self.has_changed().await => {}
                Ok(change) => return Some(change),
                // Whoever reads the lists anew has missed nothing.
                Err(RecvError::Lagged(_)) => return Some(Change::Resources),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Tells the client of a session, until it ends.
pub(super) async fn notify_session(
    shared: Arc<McpServer>,
    caller: Arc<Caller>,
    peer: Peer<RoleServer>,
    subscriptions: Arc<Subscriptions>,
    session: Arc<SessionState>,
) {
    let Some(mut logs) = session.client.connect(&peer) else { return };
    let telling = async {
        let mut watch = Watch::new(&shared, &caller).await;
        loop {
            let told = tokio::select! {
                change = watch.next() => match change {
                    Some(change) => notify(&peer, change, &subscriptions).await,
                    None => return,
                },
                Some(message) = logs.recv() => log(&peer, message).await,
            };
            if told.is_err() {
                return;
            }
        }
    };
    session.ended().run_until_cancelled(telling).await;
    subscriptions.end(shared.gateway.mcp_servers()).await;
}

async fn notify(peer: &Peer<RoleServer>, change: Change, subscriptions: &Subscriptions) -> Result<(), ServiceError> {
    match change {
        Change::Tools => peer.notify_tool_list_changed().await,
        Change::Resources => peer.notify_resource_list_changed().await,
        Change::Prompts => peer.notify_prompt_list_changed().await,
        Change::Resource { uri, owner } if subscriptions.hold(&uri, &owner) => {
            peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await
        }
        Change::Resource { .. } => Ok(()),
    }
}

/// Tells a client of 2026-07-28 on the stream of its `subscriptions/listen`, until it leaves or the service ends.
pub(super) async fn notify_listener(
    shared: &Arc<McpServer>,
    subscription: SubscriptionContext,
    call: CallContext,
) -> Result<(), ErrorData> {
    let (servers, draining) = (shared.gateway.mcp_servers(), &shared.draining);
    let sink = subscription.sink().clone();
    let uris: BTreeSet<_> = sink.accepted().resource_subscriptions.clone().unwrap_or_default().into_iter().collect();
    let mut subscribed = Vec::new();
    for uri in uris.into_iter().take(MAX_SUBSCRIPTIONS) {
        // What cannot be watched now is not a reason to tell nothing of the rest.
        match subscribe(&shared.gateway, &call, &uri).await {
            Ok(owner) => subscribed.push((uri, owner)),
            Err(error) => tracing::debug!(%error, uri, "a resource cannot be watched"),
        }
    }
    let mut watch = Watch::new(shared, &call.caller).await;
    loop {
        let change = tokio::select! {
            () = subscription.cancelled() => break,
            () = draining.cancelled() => break,
            change = watch.next() => change,
        };
        let told = match change {
            None => break,
            Some(Change::Tools) => sink.notify_tool_list_changed().await,
            Some(Change::Resources) => sink.notify_resource_list_changed().await,
            Some(Change::Prompts) => sink.notify_prompt_list_changed().await,
            Some(Change::Resource { uri, owner }) => {
                let change = (uri, owner);
                match subscribed.contains(&change) {
                    true => sink.notify_resource_updated(change.0).await,
                    false => Ok(()),
                }
            }
        };
        match told {
            Ok(()) | Err(SubscriptionSendError::NotificationNotAccepted(_)) => {}
            Err(_) => break,
        }
    }
    for (uri, owner) in subscribed {
        _ = servers.unsubscribe(&call.caller, &uri, &owner).await;
    }
    Ok(())
}
