//! The HTTP face: every route in one list; what is true of every request in `edge`.

mod chat;
mod documentation;
mod edge;
mod event_stream;
mod health;
mod listen;
pub mod mcp;
mod openai;
mod openapi;
mod patience;
mod promptly;
mod register_mcp;
mod reply;
mod request;
mod select;
mod sign_in;
mod tools;
mod v1;

use std::sync::Arc;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::gateway::Gateway;

pub use self::listen::{Listening, serve};

/// Every route of the service.
pub fn router(gateway: &Arc<Gateway>) -> Router {
    let (router, document) = OpenApiRouter::with_openapi(documentation::document())
        .routes(routes!(tools::list))
        .routes(routes!(tools::categories))
        .routes(routes!(tools::schemas))
        .routes(routes!(tools::search))
        .routes(routes!(tools::schema))
        .routes(routes!(tools::metadata))
        .routes(routes!(tools::execute))
        .routes(routes!(tools::execute_named))
        .routes(routes!(tools::batch_execute))
        .routes(routes!(select::select))
        .routes(routes!(register_mcp::register))
        .routes(routes!(sign_in::start))
        .routes(routes!(sign_in::finish))
        .routes(routes!(sign_in::client_metadata))
        .routes(routes!(openapi::validate))
        .routes(routes!(openapi::register))
        .routes(routes!(openapi::unregister))
        .routes(routes!(openai::models))
        .routes(routes!(openai::model))
        .routes(routes!(openai::complete))
        .routes(routes!(chat::chat))
        .routes(routes!(chat::stream))
        .routes(routes!(chat::tool_settings))
        .routes(routes!(v1::list))
        .routes(routes!(v1::show))
        .routes(routes!(v1::execute))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .split_for_parts();
    let router = router
        .merge(mcp::routes(gateway))
        .route("/openapi.json", documentation::route(&document))
        .fallback(reply::no_such_route)
        .method_not_allowed_fallback(reply::no_such_method);
    router.with_state(Arc::clone(gateway))
}
