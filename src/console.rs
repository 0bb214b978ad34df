//! The console: pages for operators, rendered here and served by the same listener as the API.
//!
//! A page shows what the REST routes give, by the same functions, and adds no right: whoever signs in has the rights of
//! their key. Its cookie is read below `/console` alone. Every change is a POST with a token of the session, from a page of
//! the same origin.

mod acts;
mod assets;
mod call_path;
mod calls;
mod error_page;
mod format;
mod frame;
mod headers;
mod link;
mod overview;
mod schema_form;
mod schema_table;
mod sessions;
mod sign_in;
mod snippets;
mod text;
mod tool;
mod tools;
mod try_it;
mod visit;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::header::{ACCEPT, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use self::link::Links;
use self::sessions::Sessions;
use crate::agent::AgentService;
use crate::api::{BoundListeners, serve_with};
use crate::gateway::Gateway;

/// What the pages share.
struct Console {
    gateway: Arc<Gateway>,
    sessions: Sessions,
    links: Links,
    /// Of the listener; `None` for a gateway on demand.
    address: Option<SocketAddr>,
}

impl fmt::Debug for Console {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Console").finish_non_exhaustive()
    }
}

/// Serves a gateway, its agents and the console until `shutdown` resolves, then lets running calls finish within the
/// grace period.
pub async fn serve(listening: BoundListeners, agents: &Arc<AgentService>, shutdown: impl Future<Output = ()>) {
    let pages = routes(agents.gateway(), listening.address());
    serve_with(listening, agents, pages, shutdown).await;
}

fn routes(gateway: &Arc<Gateway>, address: Option<SocketAddr>) -> Router {
    let gateway = Arc::clone(gateway);
    let console = Console { gateway, sessions: Sessions::default(), links: Links::default(), address };
    Router::new()
        .route("/console", get(overview::page))
        .route("/console/tools", get(tools::page))
        .route("/console/tools/{name}", get(tool::page).post(try_it::run))
        .route("/console/calls", get(calls::page))
        .route("/console/calls/live", get(calls::live))
        .route("/console/calls/{id}", get(calls::one))
        .route("/console/sign-in", get(sign_in::page).post(sign_in::sign_in))
        .route("/console/sign-out", post(sign_in::sign_out))
        .route("/console/open", get(link::open))
        .route("/console/{*path}", get(error_page::no_page))
        .layer(map_response(headers::add))
        .route("/console/link", post(link::create))
        .route("/console/static/{name}", get(assets::file))
        .route("/", get(root))
        .with_state(Arc::new(console))
}

/// A browser is sent to the console; other clients learn where the API is described.
async fn root(headers: HeaderMap) -> Response {
    let asks_for_page = headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.split(',').any(|media_type| media_type.trim().starts_with("text/html")));
    if asks_for_page {
        return redirect("/console");
    }
    (StatusCode::OK, "sekisho: the API is described at /openapi.json, the console is at /console\n").into_response()
}

/// To a path of this server, with a GET.
fn redirect(path: &str) -> Response {
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}
