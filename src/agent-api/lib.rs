//! The routes of agents, which the router of the API takes in.

mod anthropic;
mod background;
mod chat;
mod connected_client;
mod conversations;
mod keyed_turn;
mod model_api;
mod openai;
mod plans;
mod requested_run;
mod resources;
mod responses;
mod run_events;
mod select;

use std::sync::Arc;

use axum::Extension;
use tokio::time::Instant;
use utoipa_axum::routes;

use sekisho_agent::AgentService;
use sekisho_agent::conversation::ConversationRuns;
use sekisho_api::Routes;

use self::background::BackgroundRuns;

pub use self::conversations::timeline::TimelineBody;
pub use self::conversations::{
    BackgroundRunBody, ConversationBody, MessageBody, RunBody, Status as ConversationStatus,
};
pub use self::openai::Models;
pub use self::plans::{PlanReply, PlanSummary};

/// The routes of agents, with their descriptions. They have the state of the API's router.
pub fn routes(agents: &Arc<AgentService>) -> Routes {
    let kept = Arc::<responses::KeptResponses>::default();
    agents.gateway().background().each_minute(&kept, |kept| kept.remove_expired(Instant::now()));
    let runs = ConversationRuns::new(agents);
    Routes::default()
        .routes(routes!(select::select))
        .routes(routes!(resources::tenants::list, resources::tenants::create))
        .routes(routes!(resources::tenants::read, resources::tenants::change, resources::tenants::remove))
        .routes(routes!(resources::models::list, resources::models::create))
        .routes(routes!(resources::models::read, resources::models::change, resources::models::remove))
        .routes(routes!(resources::skills::list, resources::skills::create))
        .routes(routes!(resources::skills::read, resources::skills::change, resources::skills::remove))
        .routes(routes!(openai::models))
        .routes(routes!(openai::model))
        .routes(routes!(openai::complete))
        .routes(routes!(responses::create))
        .routes(routes!(responses::show))
        .routes(routes!(responses::background::cancel))
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
        .routes(routes!(conversations::branch::branch))
        .routes(routes!(conversations::execute::execute))
        .routes(routes!(conversations::background::create, conversations::background::list))
        .routes(routes!(conversations::paused))
        .routes(routes!(conversations::show_run))
        .routes(routes!(conversations::execute::events))
        .routes(routes!(conversations::timeline::show))
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
        .layer(Extension(kept))
        .layer(Extension(BackgroundRuns::new(&runs)))
        .layer(Extension(runs))
        .layer(Extension(Arc::clone(agents)))
}
