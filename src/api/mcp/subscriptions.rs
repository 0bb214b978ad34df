//! Notifies clients of changes: to lists of tools, resources and prompts, and to resources that they subscribed to.

mod of_session;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    CustomNotification, GetMeta, Implementation, PromptListChangedNotification, RequestId,
    ResourceListChangedNotification, ResourceUpdatedNotification, ResourceUpdatedNotificationParam,
    ServerJsonRpcMessage, ServerNotification, ServerResult, SubscriptionFilter, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenResult, ToolListChangedNotification,
};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

pub(super) use self::of_session::Subscriptions;
use super::McpServer;
use super::client::{Client, log_notification};
use super::headers::Era;
use super::methods::run_operation;
use super::running_request::Outcome;
use super::session::McpSession;
use super::tasks::TaskState;
use sekisho_core::call::{CallContext, Caller, Undo};
use sekisho_core::error::CallError;
use sekisho_core::peer::ClientSession;
use sekisho_gateway::Gateway;
use sekisho_mcp_client::{Change, ResourceOwner};

/// Maximum number of resources that one client may watch.
const MAX_SUBSCRIPTIONS: usize = 256;

/// Subscribes to a resource at its server, through the session whose owner is returned. Limits and policies treat it
/// as a read of the resource. If this is dropped or fails, no subscription is left.
async fn subscribe(gateway: &Gateway, call: &CallContext, uri: &str) -> Result<ResourceOwner, CallError> {
    let (servers, undo) = (gateway.mcp_servers(), Arc::new(Undo::default()));
    let mut subscribing = call.repeated();
    subscribing.client.undo = Some(Arc::clone(&undo));
    run_operation(gateway, subscribing, servers.subscribe(&call.caller, uri)).await?;
    let owner = servers.subscriber(&call.repeated(), uri).await?;
    undo.keep();
    Ok(owner)
}

/// Changes to a client's lists: the registry and the policies for tools, and the MCP servers.
struct ListWatch {
    server: Arc<McpServer>,
    caller: Arc<Caller>,
    tools: watch::Receiver<()>,
    policies: watch::Receiver<()>,
    servers: Receiver<Change>,
    /// Digest of the tools that were last listed to the caller, if known.
    listed: Option<u64>,
    /// Whether the tools may have changed since they were compared: `next` may be dropped while it compares them.
    is_unchecked: bool,
}

impl ListWatch {
    async fn new(server: &Arc<McpServer>, caller: &Arc<Caller>) -> Self {
        let gateway = &server.gateway;
        let (tools, policies) = (gateway.pipeline.registry.changes(), gateway.pipeline.policy.changes());
        let servers = gateway.mcp_servers().changes();
        let (server, caller) = (Arc::clone(server), Arc::clone(caller));
        let mut watch = Self { server, caller, tools, policies, servers, listed: None, is_unchecked: false };
        watch.has_changed().await;
        if watch.tools.has_changed().unwrap_or(true) || watch.policies.has_changed().unwrap_or(true) {
            // The client may have read its list before this change, and the digest was made after it.
            watch.listed = None;
        }
        watch
    }

    /// Whether the caller's list of tools has changed.
    async fn has_changed(&mut self) -> bool {
        let (server, caller) = (Arc::clone(&self.server), Arc::clone(&self.caller));
        // Describing thousands of tools and evaluating the policies takes a while.
        let digest = move || server.catalogues.present(&server.gateway).digest_for(&caller, &server.gateway);
        match tokio::task::spawn_blocking(digest).await {
            Ok(listed) => self.listed.replace(listed) != Some(listed),
            Err(error) => {
                tracing::error!(%error, "a client's list of tools could not be compared");
                true
            }
        }
    }

    fn may_see(&self, change: &Change) -> bool {
        self.server.gateway.mcp_servers().may_see(&self.caller, change)
    }

    /// `None` when no further change is possible. May be dropped at any time: the next call then reports the change.
    async fn next(&mut self) -> Option<Change> {
        loop {
            if self.is_unchecked {
                let has_changed = self.has_changed().await;
                self.is_unchecked = false;
                if has_changed {
                    return Some(Change::Tools);
                }
            }
            let change = tokio::select! {
                changed = self.tools.changed() => changed.map(|()| Change::Tools).map_err(|_| RecvError::Closed),
                changed = self.policies.changed() => changed.map(|()| Change::Tools).map_err(|_| RecvError::Closed),
                change = self.servers.recv() => match change {
                    // The registry notifies after the change is visible.
                    Ok(Change::Tools) => continue,
                    change => change,
                },
            };
            match change {
                Ok(Change::Tools) => self.is_unchecked = true,
                Ok(change) if !self.may_see(&change) => {}
                Ok(change) => return Some(change),
                // A client that reads its lists again has missed nothing.
                Err(RecvError::Lagged(_)) => return Some(Change::Resources(None)),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Notifies the client of a session, which is ready, until the session ends.
pub(super) async fn notify_session(server: Arc<McpServer>, caller: Arc<Caller>, session: Arc<McpSession>) {
    let Some(mut logs) = session.is_ready() else { return };
    let notifying = async {
        let mut watch = ListWatch::new(&server, &caller).await;
        loop {
            let notification = tokio::select! {
                change = watch.next() => match change {
                    Some(Change::Resource { uri, owner }) if !session.subscriptions.hold(&uri, &owner) => continue,
                    Some(change) => Some(notification_of(change)),
                    None => return,
                },
                Some(message) = logs.recv() => log_notification(message),
            };
            if let Some(notification) = notification {
                session.outside.send(&ServerJsonRpcMessage::notification(notification));
            }
        }
    };
    session.ended().run_until_cancelled(notifying).await;
    session.subscriptions.end(server.gateway.mcp_servers()).await;
}

/// Serves `subscriptions/listen` of 2026-07-28: notifies its client until it disconnects, its key is revoked or
/// has expired, or the service stops.
pub(super) async fn listen(
    server: Arc<McpServer>,
    call: CallContext,
    client: Arc<Client>,
    id: RequestId,
    filter: SubscriptionFilter,
    tasks: Option<Vec<Arc<TaskState>>>,
) -> Outcome {
    let notify = async |mut notification: ServerNotification| {
        notification.get_meta_mut().set_subscription_id(id.clone());
        client.notify(notification).await;
    };
    notify(acknowledgement(&filter, tasks.as_deref())).await;
    let mut resources =
        ListenedResources { server: Arc::clone(&server), caller: Arc::clone(&call.caller), all: vec![] };
    let uris: BTreeSet<_> = filter.resource_subscriptions.clone().unwrap_or_default().into_iter().collect();
    for uri in uris.into_iter().take(MAX_SUBSCRIPTIONS) {
        // A resource that cannot be watched does not prevent notifications of the others.
        match subscribe(&server.gateway, &call, &uri).await {
            Ok(owner) => resources.all.push((uri, owner)),
            Err(error) => tracing::debug!(%error, uri, "a resource cannot be watched"),
        }
    }
    let mut watch = ListWatch::new(&server, &call.caller).await;
    let mut states: FuturesUnordered<_> =
        tasks.into_iter().flatten().map(FollowedTask::new).map(FollowedTask::next).collect();
    let mut key_ended = pin!(server.gateway.keys().ended(&call.caller));
    loop {
        let next = async {
            tokio::select! {
                change = watch.next() => change.map(News::Change),
                Some(followed) = states.next() => Some(News::Task(followed)),
                () = &mut key_ended => None,
            }
        };
        let change = match server.draining.run_until_cancelled(next).await.flatten() {
            Some(News::Change(change)) => change,
            Some(News::Task((state, followed))) => {
                notify(task_notification(state)).await;
                states.extend(followed.map(FollowedTask::next));
                continue;
            }
            None => break,
        };
        let is_wanted = match &change {
            Change::Tools => filter.tools_list_changed == Some(true),
            Change::Resources(_) => filter.resources_list_changed == Some(true),
            Change::Prompts(_) => filter.prompts_list_changed == Some(true),
            Change::Resource { uri, owner } => resources.all.iter().any(|(own, by)| own == uri && by == owner),
        };
        if is_wanted {
            notify(notification_of(change)).await;
        }
    }
    let mut result = SubscriptionsListenResult::complete(id);
    result.meta.set_server_info(Implementation::new("sekisho", env!("CARGO_PKG_VERSION")));
    Ok(ServerResult::SubscriptionsListenResult(result))
}

/// The news of a `subscriptions/listen` for its client.
enum News {
    Change(Change),
    /// The state of a task, and the task if it can change again.
    Task((Value, Option<FollowedTask>)),
}

/// A task whose states a `subscriptions/listen` reports: the present one, and each after it.
struct FollowedTask {
    state: Arc<TaskState>,
    changes: watch::Receiver<()>,
}

impl FollowedTask {
    fn new(state: Arc<TaskState>) -> Self {
        let mut changes = state.changes();
        changes.mark_changed();
        Self { state, changes }
    }

    async fn next(mut self) -> (Value, Option<Self>) {
        // Cannot fail: `state` has the sender.
        let _ = self.changes.changed().await;
        let has_ended = self.state.has_ended();
        (self.state.polled(Era::Stateless), (!has_ended).then_some(self))
    }
}

/// The honoured part of a filter. The model of the protocol lacks the tasks, which are an extension.
fn acknowledgement(filter: &SubscriptionFilter, tasks: Option<&[Arc<TaskState>]>) -> ServerNotification {
    let Some(tasks) = tasks else {
        let params = SubscriptionsAcknowledgedNotificationParams::new(filter.clone());
        let acknowledgement = SubscriptionsAcknowledgedNotification::new(params);
        return ServerNotification::SubscriptionsAcknowledgedNotification(acknowledgement);
    };
    let mut honoured = json!(filter);
    honoured["taskIds"] = tasks.iter().map(|state| state.id.as_str()).collect();
    let params = json!({"notifications": honoured});
    let method = "notifications/subscriptions/acknowledged";
    ServerNotification::CustomNotification(CustomNotification::new(method, Some(params)))
}

fn task_notification(state: Value) -> ServerNotification {
    ServerNotification::CustomNotification(CustomNotification::new("notifications/tasks", Some(state)))
}

/// The resources that a `subscriptions/listen` watches, until it is dropped.
struct ListenedResources {
    server: Arc<McpServer>,
    caller: Arc<Caller>,
    all: Vec<(String, ResourceOwner)>,
}

impl Drop for ListenedResources {
    fn drop(&mut self) {
        let (server, caller, all) = (Arc::clone(&self.server), Arc::clone(&self.caller), std::mem::take(&mut self.all));
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !all.is_empty()
        {
            runtime.spawn(async move {
                for (uri, owner) in all {
                    _ = server.gateway.mcp_servers().unsubscribe(&caller, &uri, &owner).await;
                }
            });
        }
    }
}

fn notification_of(change: Change) -> ServerNotification {
    match change {
        Change::Tools => ServerNotification::ToolListChangedNotification(ToolListChangedNotification::default()),
        Change::Resources(_) => {
            ServerNotification::ResourceListChangedNotification(ResourceListChangedNotification::default())
        }
        Change::Prompts(_) => {
            ServerNotification::PromptListChangedNotification(PromptListChangedNotification::default())
        }
        Change::Resource { uri, .. } => {
            let params = ResourceUpdatedNotificationParam::new(uri);
            ServerNotification::ResourceUpdatedNotification(ResourceUpdatedNotification::new(params))
        }
    }
}
