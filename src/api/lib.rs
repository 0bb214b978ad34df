//! The HTTP API, with all routes in one list. `request_guard` holds the checks of every request.

mod admin;
mod approval_wait;
mod approvals;
mod body;
mod broker;
mod catalogue;
mod client_address;
mod client_request;
pub mod column;
mod connections;
mod credentials;
pub mod csv;
mod documentation;
mod effects;
pub mod event_stream;
mod forwarded_request;
mod head_timeout;
mod internal_routes;
pub mod list;
mod listener;
mod local;
pub mod mcp;
mod page_request;
mod parameters;
mod poll_inline;
mod preference;
mod recorded_runs;
pub mod reply;
mod request;
mod request_guard;
mod rest;
mod results;
mod runs;
mod session_file;
mod sessions;
mod sign_ins;
mod tls;

use std::sync::Arc;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use sekisho_gateway::Gateway;

pub use self::admin::call_export::{CallFile, call_file};
pub use self::admin::call_query::CallQuery;
pub use self::admin::calls::CallBody;
pub use self::admin::changes::ConfigurationChangeBody;
pub use self::admin::cluster::{ReleasedLeaseBody, ReplicaBody};
pub use self::admin::events::EventBody;
pub use self::admin::failures::{FailureBody, FailureList};
pub use self::admin::flow::{FlowDestinationBody, FlowQuestionBody, FlowReportBody};
pub use self::admin::keys::{KeyBody, KeyWithToken};
pub use self::admin::limits::{LevelBody, RuleBody};
pub use self::admin::mcp::not_added;
pub use self::admin::openapi::not_registered;
pub use self::admin::overview::BudgetBody;
pub use self::admin::servers::ServerBody;
pub use self::admin::sign_in::begin as begin_sign_in;
pub use self::admin::sign_in::user_addresses;
pub use self::admin::tool_usage::ToolUseOfDay;
pub use self::admin::usage::{ModelUsageOfDay, UsageOfDay};
pub use self::admin::{record_change, recorded};
pub use self::approvals::{ApprovalBody, DecisionBody};
pub use self::body::{DigestedBody, FromAdministrator, JsonBody};
pub use self::broker::sessions::OauthSessionBody;
pub use self::catalogue::{CatalogueSourceBody, ProfileToolBody, SourceProfileBody, SourceRequestBody};
pub use self::credentials::{CredentialBody, CredentialRequest};
pub use self::documentation::{ErrorInfoBody, ReplyBody};
pub use self::effects::EffectBody;
pub use self::internal_routes::InternalRoutes;
pub use self::listener::BoundListeners;
pub use self::listener::serve;
pub use self::local::{GatewayStatus, LocalListener, NamedCaller};
pub use self::page_request::{PageRequest, UploadedFile, administrator_on_socket, read_form, read_form_with_files};
pub use self::parameters::{Name, Parameters};
pub use self::recorded_runs::{RecordedRunBody, RecordedRunFile};
pub use self::request::{RequestMeta, forbid_other_sites};
pub use self::results::ResultBody;
pub use self::runs::{ProgramRunBody, UnsettledRunBody};
pub use self::session_file::SessionFile;
pub use self::sign_ins::{SignInBody, SignInList};
pub use self::tls::check_tls;
pub use sekisho_mcp_client::HostConnections;
pub use sekisho_sandbox::{SessionInfo, Variable};

/// Routes of a crate above this one, with their descriptions.
pub type Routes = OpenApiRouter<Arc<Gateway>>;

/// Every route of the service: the own ones, and `further`.
pub fn router(gateway: &Arc<Gateway>, further: Routes) -> Router {
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
        .routes(routes!(results::list))
        .routes(routes!(results::read))
        .routes(routes!(recorded_runs::list))
        .routes(routes!(recorded_runs::export))
        .routes(routes!(recorded_runs::open))
        .routes(routes!(recorded_runs::replay))
        .routes(routes!(runs::list))
        .routes(routes!(runs::show))
        .routes(routes!(runs::resume))
        .routes(routes!(runs::settle))
        .routes(routes!(effects::list))
        .routes(routes!(effects::resolve))
        .routes(routes!(admin::overview::show))
        .routes(routes!(admin::calls::list))
        .routes(routes!(admin::calls::facets))
        .routes(routes!(admin::calls::history))
        .routes(routes!(admin::calls::show))
        .routes(routes!(admin::call_content::show))
        .routes(routes!(rest::receipts::show))
        .routes(routes!(admin::changes::list, admin::changes::propose))
        .routes(routes!(admin::changes::export))
        .routes(routes!(admin::changes::show))
        .routes(routes!(admin::changes::apply))
        .routes(routes!(admin::changes::undo))
        .routes(routes!(admin::cluster::show))
        .routes(routes!(admin::cluster::release))
        .routes(routes!(admin::configuration::show))
        .routes(routes!(admin::configuration::check))
        .routes(routes!(admin::events::list))
        .routes(routes!(admin::failures::list))
        .routes(routes!(admin::flow::report))
        .routes(routes!(admin::flow::tools))
        .routes(routes!(admin::flow::destinations))
        .routes(routes!(admin::flow::forget))
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
        .routes(routes!(admin::tool_usage::list))
        .routes(routes!(admin::mcp::register))
        .routes(routes!(admin::sign_in::start))
        .routes(routes!(admin::sign_in::finish))
        .routes(routes!(admin::sign_in::client_metadata))
        .routes(routes!(broker::keys))
        .routes(routes!(broker::register))
        .routes(routes!(broker::browser::authorize))
        .routes(routes!(broker::browser::consent))
        .routes(routes!(broker::token))
        .routes(routes!(broker::revoke))
        .routes(routes!(broker::introspect))
        .routes(routes!(broker::sessions::list))
        .routes(routes!(broker::sessions::end))
        .routes(routes!(admin::openapi::validate))
        .routes(routes!(admin::openapi::register))
        .routes(routes!(admin::openapi::unregister))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::show))
        .routes(routes!(approvals::approve))
        .routes(routes!(approvals::deny))
        .routes(routes!(catalogue::list))
        .routes(routes!(catalogue::ask))
        .routes(routes!(catalogue::profile))
        .routes(routes!(catalogue::requests))
        .routes(routes!(catalogue::decide))
        .routes(routes!(credentials::list))
        .routes(routes!(credentials::store, credentials::remove))
        .routes(routes!(sign_ins::list))
        .routes(routes!(sign_ins::begin, sign_ins::revoke))
        .routes(routes!(rest::v1::list))
        .routes(routes!(rest::v1::show))
        .routes(routes!(rest::v1::execute))
        .routes(routes!(rest::health::healthz))
        .routes(routes!(rest::health::readyz))
        .routes(routes!(rest::health::metrics))
        .merge(further)
        .split_for_parts();
    router
        .merge(mcp::routes(gateway))
        .merge(broker::routes())
        .route("/openapi.json", documentation::route(&document))
        .fallback(reply::no_such_route)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(Arc::clone(gateway))
}
