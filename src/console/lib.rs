//! The console: pages for operators, rendered here and served by the same listener as the API.
//!
//! A page shows the answers of the REST routes, by the same functions, and adds no right: a signed-in caller has the
//! rights of its key. Its cookie is read only below `/console`. Every change is a POST with a token of the session,
//! from a page of the same origin.

#![cfg_attr(not(feature = "agent"), allow(dead_code, reason = "the pages of agents use more of these parts"))]

mod acts;
mod address;
mod approval;
mod approvals;
mod assets;
mod call_path;
mod call_tree;
mod calls;
mod catalogue;
mod changes;
mod chart;
#[cfg(feature = "agent")]
mod chat;
mod configuration;
mod connect;
#[cfg(feature = "agent")]
mod conversation;
#[cfg(feature = "agent")]
mod conversations;
mod costs;
mod effects;
mod error_page;
mod events;
mod export;
mod failures;
mod figures;
mod flow;
mod format;
mod frame;
mod headers;
mod inbox;
mod interpreter_session;
mod interpreter_sessions;
mod key;
mod keys;
mod language;
mod limits;
mod link;
mod list;
mod map;
mod navigation;
mod new_tokens;
mod open_id;
mod overview;
#[cfg(feature = "agent")]
mod plan;
#[cfg(feature = "agent")]
mod plans;
mod policies;
mod program_runs;
mod python_tools;
#[cfg(feature = "agent")]
mod resources;
mod result;
mod results;
#[cfg(feature = "agent")]
mod run;
mod schema_form;
mod schema_table;
mod search;
mod servers;
mod sessions;
mod sign_in;
mod snippets;
mod sorting;
mod submitted;
mod text;
mod timeline;
mod tool;
mod tools;
mod try_it;
mod upstream_sign_in;
mod upstream_sign_ins;
mod visit;

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::header::{ACCEPT, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use self::link::Links;
use self::new_tokens::NewTokens;
use self::open_id::OpenIdSignIns;
use self::overview::LiveOverviews;
use self::sessions::Sessions;
use self::text::Texts;
use sekisho_api::{BoundListeners, InternalRoutes};
use sekisho_gateway::Gateway;

/// The shared state of the pages.
struct Console {
    gateway: Arc<Gateway>,
    /// The routes that the pages of agents show and change.
    api: InternalRoutes,
    sessions: Sessions,
    links: Links,
    new_tokens: NewTokens,
    overviews: LiveOverviews,
    open_id: OpenIdSignIns,
    /// The address of the listener; `None` for a gateway on demand.
    address: Option<SocketAddr>,
}

impl fmt::Debug for Console {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Console").finish_non_exhaustive()
    }
}

/// Serves a gateway by the routes of the API and the console until `shutdown` resolves, then lets running calls finish
/// within the grace period.
pub async fn serve(listening: BoundListeners, gateway: &Arc<Gateway>, api: Router, shutdown: impl Future<Output = ()>) {
    let pages = routes(gateway, &api, listening.address());
    sekisho_api::serve(listening, gateway, api.merge(pages), shutdown).await;
}

fn routes(gateway: &Arc<Gateway>, api: &Router, address: Option<SocketAddr>) -> Router {
    let (gateway, api) = (Arc::clone(gateway), InternalRoutes::new(api.clone()));
    let console = Console {
        gateway,
        api,
        sessions: Sessions::default(),
        links: Links::default(),
        new_tokens: NewTokens::default(),
        overviews: LiveOverviews::default(),
        open_id: OpenIdSignIns::default(),
        address,
    };
    Router::new()
        .route("/console", get(overview::page))
        .route("/console/live", get(overview::live))
        .route("/console/figures", get(figures::page))
        .route("/console/map", get(map::page))
        .route("/console/map/live", get(map::live))
        .route("/console/tools", get(tools::page))
        .route("/console/tools/{name}", get(tool::page).post(try_it::run))
        .route("/console/calls", get(calls::page))
        .route("/console/calls/live", get(calls::live))
        .route("/console/calls/history", get(calls::history::page))
        .route("/console/events", get(events::page))
        .route("/console/failures", get(failures::page))
        .route("/console/calls/{id}", get(calls::one))
        .route("/console/search", get(search::page))
        .route("/console/inbox", get(inbox::page).post(inbox::decide))
        .route("/console/inbox/count", get(inbox::count))
        .route("/console/calls/{id}/compare", get(calls::compare::page))
        .route("/console/approvals", get(approvals::page))
        .route("/console/approvals/{id}", get(approval::page).post(approval::act))
        .route("/console/servers", get(servers::page))
        .route("/console/servers/add", get(servers::add::page).post(servers::add::submit))
        .route("/console/servers/lock", get(servers::lock::page).post(servers::lock::approve))
        .route("/console/servers/{kind}/{name}", get(servers::detail::page).post(servers::detail::act))
        .route("/console/configuration", get(configuration::page).post(configuration::check))
        .route("/console/configuration/changes", get(changes::page).post(changes::propose))
        .route("/console/configuration/changes/{id}", get(changes::one).post(changes::act))
        .route("/console/limits", get(limits::page))
        .route("/console/keys", get(keys::page).post(keys::create))
        .route("/console/keys/{id}", get(key::page).post(key::act))
        .route("/console/catalogue", get(catalogue::page).post(catalogue::act))
        .route("/console/catalogue/{source}", get(catalogue::profile))
        .route("/console/sign-ins", get(upstream_sign_ins::page).post(upstream_sign_ins::act))
        .route("/console/policies", get(policies::page))
        .route("/console/flow", get(flow::page))
        .route("/console/python-tools", get(python_tools::page))
        .route("/console/python-tools/{name}", get(python_tools::one))
        .route("/console/results", get(results::page))
        .route("/console/results/{handle}", get(result::page))
        .route("/console/sessions", get(interpreter_sessions::page))
        .route("/console/sessions/{name}", get(interpreter_session::page).post(interpreter_session::end))
        .route("/console/program-runs", get(program_runs::page))
        .route("/console/program-runs/{id}", get(program_runs::one).post(program_runs::settle))
        .merge(routes_of_agents())
        .route("/console/costs", get(costs::page))
        .route("/console/connect", get(connect::page))
        .route("/console/sign-in", get(sign_in::page).post(sign_in::sign_in))
        .route("/console/sign-in/provider", get(open_id::start))
        .route("/console/sign-in/callback", get(open_id::finish))
        .route("/console/sign-out", post(sign_in::sign_out))
        .route("/console/upstream-sign-in/callback", get(upstream_sign_in::finish))
        .route("/console/upstream-sign-in/{id}", get(upstream_sign_in::page).post(upstream_sign_in::begin))
        .route("/console/open", get(link::open))
        .route("/console/{*path}", get(error_page::no_page))
        .layer(from_fn(language::remember))
        .layer(map_response(headers::add))
        .route("/console/link", post(link::create))
        .route("/console/static/{name}", get(assets::file))
        .route("/", get(root))
        .with_state(Arc::new(console))
}

/// The pages of agents, where the program has them.
#[cfg(feature = "agent")]
fn routes_of_agents() -> Router<Arc<Console>> {
    use self::resources::Kind;

    Router::new()
        .route("/console/conversations", get(conversations::page).post(conversations::create))
        .route("/console/conversations/{id}", get(conversation::page).post(conversation::act))
        .route("/console/runs/{id}", get(run::page))
        .route("/console/runs/{id}/compare", get(run::compare::page))
        .route("/console/runs/{id}/events", get(conversation::events))
        .route("/console/plans", get(plans::page).post(plans::create))
        .route("/console/plans/{id}", get(plan::page).post(plan::act))
        .route("/console/plans/{id}/events", get(plan::events))
        .merge(resources::routes(Kind::Models))
        .merge(resources::routes(Kind::Skills))
        .merge(resources::routes(Kind::Tenants))
}

#[cfg(not(feature = "agent"))]
fn routes_of_agents() -> Router<Arc<Console>> {
    Router::new()
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

/// The owner of something: one tenant, or all.
fn owner(texts: &Texts, tenant: Option<&str>) -> Cow<'static, str> {
    match tenant {
        Some(tenant) => texts.with("calls-tenant", [("tenant", tenant.to_owned().into())]),
        None => texts.get("calls-all"),
    }
}

/// To a path of this server, with a GET.
fn redirect(path: &str) -> Response {
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}
