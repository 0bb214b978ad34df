//! The Unix socket of the state directory: the same routes as over TCP for this user, whose requests may name any
//! caller, and routes of its own for commands.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connections::Connections;
use crate::reply::ErrorReply;
use sekisho_auth::named_caller;
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;
use sekisho_outbound::local_socket::LocalSocket;

/// Names the caller of a request over the socket, as JSON: [`NamedCaller`]. Ignored over TCP.
const CALLER: HeaderName = HeaderName::from_static("x-sekisho-caller");

/// How long an on-demand gateway runs without a connection.
const ON_DEMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// How often an on-demand gateway looks for connections.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The id of a caller that has roles and no name.
const UNNAMED: &str = "operator";

/// A socket, and the gateway's reports about itself to commands.
#[derive(Debug)]
pub struct LocalListener {
    pub socket: LocalSocket,
    pub config_file: Option<PathBuf>,
    /// Started by a command, only for the connections of this socket.
    pub on_demand: bool,
}

/// `GET /gateway`: the process that serves the socket.
#[derive(Debug, Serialize, Deserialize)]
pub struct GatewayStatus {
    pub version: String,
    pub process_id: u32,
    pub on_demand: bool,
    pub config_file: Option<PathBuf>,
    /// Topic → digest of its settings.
    pub configuration: BTreeMap<String, String>,
    /// How many tools the caller of the request may not use, and advice to change that.
    pub left_out: Option<String>,
}

/// The caller that a command names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCaller {
    pub user: Option<String>,
    pub roles: Vec<String>,
}

impl NamedCaller {
    /// The caller in whose name a command administers the gateway.
    pub fn administrator() -> Self {
        Self { user: Some("local".to_owned()), roles: vec!["admin".to_owned()] }
    }

    /// The caller in whose name a command decides about calls of others.
    pub fn approver() -> Self {
        let Self { user, mut roles } = Self::administrator();
        roles.push("approver".to_owned());
        Self { user, roles }
    }

    /// The header of its requests.
    pub fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let text = serde_json::to_vec(self).ok()?;
        Some((CALLER, HeaderValue::from_bytes(&text).ok()?))
    }

    /// Without a name or role, the caller without credentials.
    /// Errors: `unauthenticated`: a name or role that no caller may have.
    pub fn caller(&self) -> Result<Arc<Caller>, CallError> {
        match &self.user {
            None if self.roles.is_empty() => Ok(Arc::new(Caller::anonymous())),
            user => named_caller(user.as_deref().unwrap_or(UNNAMED), self.roles.clone()),
        }
    }
}

/// The caller of a request over the socket.
/// Errors: `invalid_request` for a header of another form, `unauthenticated` for a name that no caller may have.
pub(super) fn caller_of(headers: &HeaderMap) -> Result<Arc<Caller>, CallError> {
    let named = headers.get(CALLER).map(|value| serde_json::from_slice::<NamedCaller>(value.as_bytes()));
    let named = named.transpose().map_err(|error| {
        CallError::new(ErrorCode::InvalidRequest, format!("the header {CALLER} does not name a caller: {error}"))
    })?;
    named.unwrap_or_default().caller()
}

#[derive(Debug, Clone)]
pub struct LocalRoutes {
    gateway: Arc<Gateway>,
    on_demand: bool,
    config_file: Option<PathBuf>,
    stop: CancellationToken,
}

/// The routes that only the socket has. Cancels `stop` when a command asks an on-demand gateway to end.
pub(super) fn routes(gateway: &Arc<Gateway>, listener: &LocalListener, stop: &CancellationToken) -> Router {
    let state = LocalRoutes {
        gateway: Arc::clone(gateway),
        on_demand: listener.on_demand,
        config_file: listener.config_file.clone(),
        stop: stop.clone(),
    };
    Router::new().route("/gateway", get(status)).route("/gateway/stop", post(stop_on_demand)).with_state(state)
}

impl LocalRoutes {
    fn status(self, caller: &Arc<Caller>) -> GatewayStatus {
        GatewayStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process_id: std::process::id(),
            on_demand: self.on_demand,
            config_file: self.config_file,
            configuration: self.gateway.configuration().current().fingerprint(),
            left_out: left_out(&self.gateway, caller),
        }
    }
}

/// The advice to a user who chooses the caller: how many tools the caller may not use, if any.
pub(super) fn left_out(gateway: &Gateway, caller: &Arc<Caller>) -> Option<String> {
    let left_out = gateway.pipeline.tools_for(caller).left_out();
    left_out.map(|left_out| format!("{left_out}. Set the caller with `--as USER --role ROLE`."))
}

pub async fn status(State(routes): State<LocalRoutes>, headers: HeaderMap) -> Result<Json<GatewayStatus>, ErrorReply> {
    let caller = caller_of(&headers)?;
    Ok(Json(routes.status(&caller)))
}

/// A gateway that was started by hand takes the place of one that a command started.
async fn stop_on_demand(
    State(routes): State<LocalRoutes>,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<GatewayStatus>), ErrorReply> {
    let caller = caller_of(&headers)?;
    if !routes.on_demand {
        return Err(
            CallError::new(ErrorCode::Denied, "this gateway was not started on demand; stop its process").into()
        );
    }
    tracing::info!("another gateway takes the place of this one");
    routes.stop.cancel();
    Ok((StatusCode::ACCEPTED, Json(routes.status(&caller))))
}

/// Returns when an on-demand gateway has had no connection for [`ON_DEMAND_TIMEOUT`], or when its socket was removed:
/// then no command finds it any more.
pub(super) async fn abandoned(listener: &LocalListener, connections: &Connections) {
    if !listener.on_demand {
        return std::future::pending().await;
    }
    let mut last_used = Instant::now();
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        if !listener.socket.path().exists() {
            tracing::info!("the socket was removed: this on-demand gateway ends");
            return;
        }
        if connections.count() > 0 {
            last_used = Instant::now();
        } else if last_used.elapsed() >= ON_DEMAND_TIMEOUT {
            tracing::info!("no client is left: this on-demand gateway ends");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::body::BodyMemory;
    use super::super::request_guard::RequestGuard;
    use super::*;
    use sekisho_config::ServerConfig;

    #[tokio::test(start_paused = true)]
    async fn a_gateway_on_demand_ends_a_minute_after_its_last_connection() {
        let directory = tempfile::tempdir().unwrap();
        let socket = LocalSocket::bind(directory.path().join("gateway.sock")).unwrap();
        let listener = LocalListener { socket, config_file: None, on_demand: true };
        let connections = Connections::new(4, Duration::from_secs(600), CancellationToken::new());
        let guard = RequestGuard::of_socket(Router::new(), Arc::new(BodyMemory::new(&ServerConfig::default())));
        let (client, server) = tokio::io::duplex(64);
        connections.serve(std::future::ready(Ok(server)), SocketAddr::from(([127, 0, 0, 1], 0)), &guard);
        let ending = abandoned(&listener, &connections);
        tokio::pin!(ending);
        // Less than the time after which a connection without a request is closed.
        let longer = ON_DEMAND_TIMEOUT + Duration::from_secs(10);
        tokio::time::timeout(longer, &mut ending).await.expect_err("a client is connected");
        drop(client);
        let last_used = Instant::now();
        ending.await;
        let unused = last_used.elapsed();
        assert!((ON_DEMAND_TIMEOUT..ON_DEMAND_TIMEOUT + 3 * LOOK_INTERVAL).contains(&unused), "{unused:?}");

        let socket = LocalSocket::bind(directory.path().join("other.sock")).unwrap();
        let by_hand = LocalListener { socket, config_file: None, on_demand: false };
        tokio::time::timeout(longer, abandoned(&by_hand, &connections)).await.expect_err("it stays");
    }

    #[test]
    fn a_request_has_the_named_caller_or_none() {
        let caller = |named: &NamedCaller| {
            let headers: HeaderMap = named.header().into_iter().collect();
            caller_of(&headers)
        };
        assert!(caller_of(&HeaderMap::new()).unwrap().anonymous);
        assert!(caller(&NamedCaller::default()).unwrap().anonymous);
        let ann = NamedCaller { user: Some("Änn".to_owned()), roles: vec!["operator".to_owned()] };
        let named = caller(&ann).unwrap();
        assert_eq!((&*named.id, &*named.tenant, named.has_role("operator")), ("Änn", "default", true));
        assert_eq!(&*caller(&NamedCaller { user: None, ..ann }).unwrap().id, UNNAMED);
        let control = NamedCaller { user: Some("a\u{1f}b".to_owned()), roles: Vec::new() };
        assert_eq!(caller(&control).unwrap_err().code(), ErrorCode::Unauthenticated);
        let wrong = HeaderMap::from_iter([(CALLER, HeaderValue::from_static("ann"))]);
        assert_eq!(caller_of(&wrong).unwrap_err().code(), ErrorCode::InvalidRequest);
    }
}
