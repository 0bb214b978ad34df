//! The HTTP API, with all routes in one list. `request_guard` holds the checks of every request.

mod admin;
mod anthropic;
mod approval_wait;
mod approvals;
mod body;
mod chat;
mod client_address;
mod client_request;
pub mod column;
mod connected_client;
mod connections;
mod conversations;
mod documentation;
mod event_stream;
mod forwarded_request;
mod head_timeout;
mod internal_routes;
mod keyed_turn;
pub mod list;
mod listener;
mod local;
pub mod mcp;
mod model_api;
mod openai;
mod page_request;
mod parameters;
mod plans;
mod poll_inline;
mod preference;
mod reply;
mod request;
mod request_guard;
mod responses;
mod rest;
mod results;
mod runs;
mod session_file;
mod sessions;
mod sign_ins;
mod tls;

use std::sync::Arc;

use axum::{Extension, Router};
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use sekisho_agent::AgentService;
use sekisho_agent::conversation::ConversationRuns;

pub use self::admin::keys::{KeyBody, KeyWithToken};
pub use self::admin::mcp::not_added;
pub use self::admin::openapi::not_registered;
pub use self::admin::record_change;
pub use self::admin::sign_in::begin as begin_sign_in;
pub use self::admin::sign_in::user_addresses;
pub use self::admin::usage::UsageOfDay;
pub use self::approvals::{ApprovalBody, DecisionBody};
pub use self::conversations::{ConversationBody, MessageBody, RunBody, Status as ConversationStatus};
pub use self::event_stream::{COMMENT as KEEP_ALIVE_COMMENT, NamedEvent, respond_named};
pub use self::internal_routes::InternalRoutes;
pub use self::listener::BoundListeners;
pub use self::listener::serve_with;
pub use self::local::{GatewayStatus, LocalListener, NamedCaller};
pub use self::page_request::{PageRequest, UploadedFile, administrator_on_socket, read_form, read_form_with_files};
pub use self::plans::{PlanReply, PlanSummary};
pub use self::reply::{ErrorReply, status as status_of};
pub use self::results::ResultBody;
pub use self::runs::{ProgramRunBody, UnknownCallBody, UnsettledRunBody};
pub use self::sign_ins::{SignInBody, SignInList};
pub use self::tls::check_tls;
pub use sekisho_sandbox::SessionInfo;

/// Serves a gateway and its agents until `shutdown` resolves, then lets running calls finish within the grace period.
pub async fn serve(listening: BoundListeners, agents: &Arc<AgentService>, shutdown: impl Future<Output = ()>) {
    serve_with(listening, agents, router(agents), shutdown).await;
}

/// Every route of the service.
pub fn router(agents: &Arc<AgentService>) -> Router {
    let gateway = agents.gateway();
    let (router, document) = OpenApiRouter::with_openapi(documentation::document())
        .routes(routes!(rest::tools::list))
        .routes(routes!(rest::tools::list_all))
        .routes(routes!(rest::tools::categories))
        .routes(routes!(rest::tools::schemas))
        .routes(routes!(rest::tools::search))
        .routes(routes!(rest::tools::schema))
        .routes(routes!(rest::tools::metadata))
        .routes(routes!(rest::tools::execute))
        .routes(routes!(rest::tools::execute_named))
        .routes(routes!(rest::tools::batch_execute))
        .routes(routes!(rest::files::upload))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::show, sessions::delete))
        .routes(routes!(sessions::fork))
        .routes(routes!(rest::select::select))
        .routes(routes!(results::list))
        .routes(routes!(results::read))
        .routes(routes!(runs::list))
        .routes(routes!(runs::show))
        .routes(routes!(runs::resume))
        .routes(routes!(runs::settle))
        .routes(routes!(admin::overview::show))
        .routes(routes!(admin::calls::list))
        .routes(routes!(admin::calls::history))
        .routes(routes!(admin::calls::show))
        .routes(routes!(admin::cluster::show))
        .routes(routes!(admin::cluster::release))
        .routes(routes!(admin::configuration::show))
        .routes(routes!(admin::configuration::check))
        .routes(routes!(admin::keys::list, admin::keys::create))
        .routes(routes!(admin::keys::show, admin::keys::revoke))
        .routes(routes!(admin::keys::rotate))
        .routes(routes!(admin::limits::show))
        .routes(routes!(admin::limits::left))
        .routes(routes!(admin::policies::show))
        .routes(routes!(admin::policies::explain))
        .routes(routes!(admin::python_tools::list))
        .routes(routes!(admin::python_tools::show))
        .routes(routes!(admin::servers::list))
        .routes(routes!(admin::servers::show, admin::servers::remove))
        .routes(routes!(admin::servers::test))
        .routes(routes!(admin::servers::reconnect))
        .routes(routes!(admin::lock::review))
        .routes(routes!(admin::lock::approve))
        .routes(routes!(admin::usage::list))
        .routes(routes!(admin::mcp::register))
        .routes(routes!(admin::sign_in::start))
        .routes(routes!(admin::sign_in::finish))
        .routes(routes!(admin::sign_in::client_metadata))
        .routes(routes!(admin::openapi::validate))
        .routes(routes!(admin::openapi::register))
        .routes(routes!(admin::openapi::unregister))
        .routes(routes!(admin::resources::tenants::list, admin::resources::tenants::create))
        .routes(routes!(
            admin::resources::tenants::read,
            admin::resources::tenants::change,
            admin::resources::tenants::remove
        ))
        .routes(routes!(admin::resources::models::list, admin::resources::models::create))
        .routes(routes!(
            admin::resources::models::read,
            admin::resources::models::change,
            admin::resources::models::remove
        ))
        .routes(routes!(admin::resources::skills::list, admin::resources::skills::create))
        .routes(routes!(
            admin::resources::skills::read,
            admin::resources::skills::change,
            admin::resources::skills::remove
        ))
        .routes(routes!(openai::models))
        .routes(routes!(openai::model))
        .routes(routes!(openai::complete))
        .routes(routes!(responses::create))
        .routes(routes!(anthropic::create))
        .routes(routes!(anthropic::count_tokens))
        .routes(routes!(chat::chat))
        .routes(routes!(chat::stream))
        .routes(routes!(chat::tool_settings))
        .routes(routes!(conversations::list))
        .routes(routes!(conversations::create))
        .routes(routes!(conversations::show))
        .routes(routes!(conversations::change))
        .routes(routes!(conversations::delete))
        .routes(routes!(conversations::runs))
        .routes(routes!(conversations::messages))
        .routes(routes!(conversations::fork))
        .routes(routes!(conversations::execute::execute))
        .routes(routes!(conversations::show_run))
        .routes(routes!(conversations::execute::events))
        .routes(routes!(conversations::execute::cancel))
        .routes(routes!(conversations::execute::resolve))
        .routes(routes!(conversations::logs::read))
        .routes(routes!(chat::plan_stream))
        .routes(routes!(plans::create, plans::list))
        .routes(routes!(plans::show, plans::change))
        .routes(routes!(plans::pause))
        .routes(routes!(plans::resume))
        .routes(routes!(plans::cancel))
        .routes(routes!(plans::approve))
        .routes(routes!(plans::events))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::show))
        .routes(routes!(approvals::approve))
        .routes(routes!(approvals::deny))
        .routes(routes!(sign_ins::list))
        .routes(routes!(sign_ins::begin, sign_ins::revoke))
        .routes(routes!(rest::v1::list))
        .routes(routes!(rest::v1::show))
        .routes(routes!(rest::v1::execute))
        .routes(routes!(rest::health::healthz))
        .routes(routes!(rest::health::readyz))
        .routes(routes!(rest::health::metrics))
        .split_for_parts();
    let router = router
        .merge(mcp::routes(gateway))
        .route("/openapi.json", documentation::route(&document))
        .fallback(reply::no_such_route)
        .method_not_allowed_fallback(reply::no_such_method);
    let responses = Arc::<responses::KeptResponses>::default();
    gateway.background().each_minute(&responses, |responses| responses.remove_expired(Instant::now()));
    router
        .layer(Extension(responses))
        .layer(Extension(ConversationRuns::new(agents)))
        .layer(Extension(Arc::clone(agents)))
        .with_state(Arc::clone(gateway))
}
