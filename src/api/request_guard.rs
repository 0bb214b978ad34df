//! Checks of every HTTP request. The checks of a tool call are stages of the pipeline; the deadline is there too, so
//! that every refusal is typed and no stream is cut off.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::Incoming;
use tower::Service;

use super::body::BodyMemory;
use super::client_address::{ClientAddress, PROBES, PublicAddress};
use super::client_request::{self, REQUEST_ID};
use super::forwarded_request::{FORWARDED, ForwardedRequest};
use super::reply;
use crate::reply::ErrorReply;
use sekisho_core::caller::{Caller, Owner};
use sekisho_core::client_request::ClientRequest;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::spiffe_id::SpiffeId;
use sekisho_store::replica::Replica;

/// The routes, behind the checks of every request.
#[derive(Debug, Clone)]
pub(super) struct RequestGuard {
    router: Router,
    memory: Arc<BodyMemory>,
    address: Arc<PublicAddress>,
    /// The peer of the connection.
    peer: IpAddr,
    /// Its owner as long as its client is the peer itself.
    peer_owner: Owner,
    /// The workload that the peer's certificate names.
    workload: Option<SpiffeId>,
    /// The caller without credentials, as the authenticator has it and with the owner of the peer, once there is one: all such
    /// requests of a connection have the same.
    anonymous: OnceLock<(Arc<Caller>, Arc<Caller>)>,
    only_probes: bool,
    /// For the Unix socket.
    over_socket: bool,
    /// This replica, for the listener of other replicas: it answers only requests that they forward.
    replica: Option<Arc<Replica>>,
}

/// The data of a request that are known before its caller, in its extensions.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// The request, for the log and the audit trail.
    pub request: Arc<ClientRequest>,
    pub client: ClientAddress,
    /// The owner of resources that a request holds before its caller is known, and of resources that callers without
    /// credentials hold.
    pub client_owner: Owner,
    /// Once it is known.
    pub caller: Option<Arc<Caller>>,
    /// Over the Unix socket: requests are of this user, and name their caller.
    pub over_socket: bool,
    /// Another replica sent it, for its client.
    pub forwarded: Option<ForwardedRequest>,
    guard: Arc<RequestGuard>,
}

impl Connection {
    /// Errors: internal: no [`RequestGuard`] is in front of the routes.
    pub(super) fn of(parts: &Parts) -> Result<&Self, CallError> {
        parts.extensions.get().ok_or_else(|| CallError::internal("the request has no connection"))
    }

    /// The caller, who is known once [`RequestMeta`](super::request::RequestMeta) was read.
    /// Errors: internal: the handler reads a body before it knows the caller, whose rate and memory that is.
    pub(super) fn caller(&self) -> Result<&Arc<Caller>, CallError> {
        self.caller.as_ref().ok_or_else(|| CallError::internal("the body is read before its caller is known"))
    }

    /// A caller without credentials, who owns its resources by the address of the client.
    pub(super) fn owned_by_client(&self, caller: &Arc<Caller>) -> Arc<Caller> {
        let owned = || Arc::new(caller.owned_by(self.client_owner.clone()));
        // Behind a proxy, the requests of a connection are of several clients.
        if self.client.ip != self.guard.peer {
            return owned();
        }
        let (anonymous, known) = self.guard.anonymous.get_or_init(|| (Arc::clone(caller), owned()));
        // A reload may have made another one.
        if Arc::ptr_eq(anonymous, caller) { Arc::clone(known) } else { owned() }
    }

    /// The workload that sent the request: its connection shows its certificate, here or at the replica that forwards the request. A proxy
    /// sends the requests of its clients, which are of none.
    pub(super) fn workload(&self) -> Option<&SpiffeId> {
        match &self.forwarded {
            Some(forwarded) => forwarded.workload.as_ref(),
            None => self.guard.workload.as_ref().filter(|_| !self.guard.address.trusts(self.guard.peer)),
        }
    }

    /// The memory of all bodies.
    pub(super) fn memory(&self) -> &BodyMemory {
        &self.guard.memory
    }

    /// The server's URL for the client of this request, without a path.
    pub(super) fn server_url(&self, parts: &Parts) -> String {
        self.guard.address.url(self.guard.peer, &parts.uri, &parts.headers)
    }

    /// The host and port that the client asked for.
    pub(super) fn host<'a>(&self, parts: &'a Parts) -> Option<&'a str> {
        self.guard.address.host(self.guard.peer, &parts.uri, &parts.headers)
    }
}

impl RequestGuard {
    pub(super) fn new(router: Router, address: PublicAddress, memory: Arc<BodyMemory>) -> Self {
        let (address, peer) = (Arc::new(address), IpAddr::from([0, 0, 0, 0]));
        Self {
            router,
            memory,
            address,
            peer,
            peer_owner: Owner::of_address(peer),
            workload: None,
            anonymous: OnceLock::new(),
            only_probes: false,
            over_socket: false,
            replica: None,
        }
    }

    /// The owner of a connection of this peer.
    pub(super) fn owner_of_connection(&self, peer: SocketAddr) -> Owner {
        self.address.owner_of_connection(peer)
    }

    /// The checks of requests over the Unix socket.
    pub(super) fn of_socket(router: Router, memory: Arc<BodyMemory>) -> Self {
        Self { over_socket: true, ..Self::new(router, PublicAddress::any(), memory) }
    }

    /// The checks of requests that other replicas forward to this replica.
    pub(super) fn of_replicas(router: Router, memory: Arc<BodyMemory>, replica: Arc<Replica>) -> Self {
        Self { replica: Some(replica), ..Self::new(router, PublicAddress::any(), memory) }
    }

    /// The checks of the requests of one connection.
    pub(super) fn of_connection(&self, peer: SocketAddr) -> Self {
        let (peer, anonymous) = (peer.ip(), OnceLock::new());
        Self { peer, peer_owner: Owner::of_address(peer), anonymous, ..self.clone() }
    }

    /// The same of a peer that is a workload.
    pub(super) fn of_workload(self, workload: Option<SpiffeId>) -> Self {
        Self { workload, ..self }
    }

    /// Answers probes and metrics, and refuses everything else.
    pub(super) fn for_probes(&self) -> Self {
        Self { only_probes: true, ..self.clone() }
    }

    /// Answers a request, even if its handler panics.
    pub(super) async fn answer(self: Arc<Self>, mut request: Request<Incoming>) -> Result<Response, Infallible> {
        let checked = self.check(&request);
        let address = checked.as_ref().map_or(self.peer, |(client, _)| client.ip);
        let address = Some(address).filter(|_| !self.over_socket);
        let (client_request, request_id) = client_request::read(address, request.headers());
        let mut response = match checked {
            Err(refusal) => self.refused(refusal),
            Ok((client, forwarded)) => {
                let connection = self.connection_of(client_request, client, forwarded);
                request.extensions_mut().insert(connection);
                let mut router = self.router.clone();
                match AssertUnwindSafe(router.call(request.map(Body::new))).catch_unwind().await {
                    Ok(answer) => answer?,
                    Err(panic) => reply::panicked(&*panic),
                }
            }
        };
        // No browser may take a tool's result for a page or a script.
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFFING);
        // A forwarded request has the id that the other replica gave it.
        response.headers_mut().entry(REQUEST_ID).or_insert(request_id);
        Ok(response)
    }

    fn refused(&self, refusal: CallError) -> Response {
        let is_of_coding = refusal.code() == ErrorCode::UnsupportedMediaType;
        let mut response = ErrorReply::from(refusal).into_response();
        if is_of_coding {
            // RFC 9110 §12.5.3: the coding that would be accepted.
            response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if self.replica.is_some() {
            response.headers_mut().insert(FORWARDED, REFUSED);
        }
        response
    }

    fn check(&self, request: &Request<Incoming>) -> Result<(ClientAddress, Option<ForwardedRequest>), CallError> {
        // RFC 9112 §3.2: a proxy in front may have used the other one.
        if request.headers().get_all(HOST).iter().nth(1).is_some() {
            return Err(CallError::invalid("duplicate `Host` header"));
        }
        let forwarded = self.replica.as_ref().map(|replica| ForwardedRequest::read(replica, request)).transpose()?;
        let client = match &forwarded {
            // A user of the other replica's machine is no user of this machine.
            Some(forwarded) => ClientAddress { ip: forwarded.client, is_local: false },
            None => self.address.client(self.peer, request.uri(), request.headers())?,
        };
        // RFC 9110 §8.4: decoding a body that is not declared as coded would be wrong, and so is reading a coded one as
        // it is.
        if !request.headers().get_all(CONTENT_ENCODING).iter().all(is_identity) {
            let message = "the body is in a content coding, and none is decoded; send it without `Content-Encoding`";
            return Err(CallError::new(ErrorCode::UnsupportedMediaType, message));
        }
        if self.only_probes && !PROBES.contains(&request.uri().path()) {
            return Err(too_many_connections());
        }
        Ok((client, forwarded))
    }

    fn connection_of(
        self: &Arc<Self>,
        request: Arc<ClientRequest>,
        client: ClientAddress,
        forwarded: Option<ForwardedRequest>,
    ) -> Connection {
        let client_owner = match client.ip == self.peer {
            true => self.peer_owner.clone(),
            false => Owner::of_address(client.ip),
        };
        let client = ClientAddress { is_local: client.is_local || self.over_socket, ..client };
        let (over_socket, guard) = (self.over_socket, Arc::clone(self));
        Connection { request, client, client_owner, caller: None, over_socket, forwarded, guard }
    }
}

const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");

/// The request did not reach its route.
const REFUSED: HeaderValue = HeaderValue::from_static("refused");

fn too_many_connections() -> CallError {
    let message = "there are too many connections (`server.max_connections`); close some, or try again later";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
}

fn is_identity(codings: &HeaderValue) -> bool {
    codings.to_str().is_ok_and(|text| {
        text.split(',').map(str::trim).all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case("identity"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::ServerConfig;

    #[test]
    fn requests_without_credentials_share_a_caller_for_each_client() {
        let memory = Arc::new(BodyMemory::new(&ServerConfig::default()));
        let (peer, other) = ([192, 0, 2, 1], [198, 51, 100, 7]);
        let guard = RequestGuard::new(Router::new(), PublicAddress::any(), memory);
        let guard = Arc::new(guard.of_connection(SocketAddr::from((peer, 5_000))));
        let caller_of = |client: [u8; 4], anonymous: &Arc<Caller>| {
            let client = ClientAddress { ip: client.into(), is_local: false };
            let request = Arc::new(ClientRequest { address: Some(client.ip), id: "r".into() });
            guard.connection_of(request, client, None).owned_by_client(anonymous)
        };
        let anonymous = Arc::new(Caller::anonymous());
        let first = caller_of(peer, &anonymous);
        assert_eq!(first.owner, Owner::of_address(peer.into()));
        assert!(Arc::ptr_eq(&first, &caller_of(peer, &anonymous)));
        assert_eq!(caller_of(other, &anonymous).owner, Owner::of_address(other.into()), "of another client of a proxy");
        let of_a_reload = Arc::new(Caller::anonymous().used_by(Some("Ann")));
        assert_eq!(caller_of(peer, &of_a_reload).person(), "Ann");
        assert!(Arc::ptr_eq(&first, &caller_of(peer, &anonymous)));
    }
}
