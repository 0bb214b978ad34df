//! `/admin/configuration`: the settings in force, where they were set, and the effects of a changed configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::body::FromSharedAdministrator;
use crate::documentation::ReplyBody;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_config::{Opening, Setting};
use sekisho_gateway::{ConfigurationCheck, Gateway};

/// The settings in force, sorted by key.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ConfigurationBody {
    settings: Vec<Setting>,
    /// What opens something in a changed configuration that waits for SIGHUP; empty where none waits.
    waiting: Vec<Opening>,
}

/// What to check.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckRequest {
    /// A configuration, as YAML; without it, the file as it is now. Of a text, the values of variables, files and programs that it
    /// names are not read, and what depends on them is not checked.
    text: Option<String>,
}

/// What it would do.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CheckBody {
    /// Whether it would be taken over.
    valid: bool,
    /// Why not.
    problems: Vec<String>,
    changes: Vec<ChangeBody>,
    /// What it would open: found in its file, it would wait for SIGHUP.
    opens: Vec<Opening>,
    /// Topics of which a change takes effect at the next start.
    restart_required: Vec<&'static str>,
    /// Setting → advice.
    notes: BTreeMap<String, String>,
}

/// A setting that would change. Whether a secret does is not shown.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChangeBody {
    before: Option<Setting>,
    after: Option<Setting>,
}

/// Each setting in force, with its source; secrets have no value. For administrators of the tenant `default`.
#[utoipa::path(get, path = "/admin/configuration", operation_id = "getConfiguration", tag = "operation",
    responses((status = 200, body = ConfigurationBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn show(meta: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Result<Response, ErrorReply> {
    let settings = gateway.configuration().settings(&meta.caller)?;
    Ok(reply::json(
        StatusCode::OK,
        &ConfigurationBody { settings, waiting: gateway.configuration().waiting_openings() },
    ))
}

/// Checks a configuration, and takes nothing over. For administrators of the tenant `default`.
#[utoipa::path(post, path = "/admin/configuration/check", operation_id = "checkConfiguration", tag = "operation",
    request_body = CheckRequest,
    responses((status = 200, body = CheckBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn check(
    State(gateway): State<Arc<Gateway>>,
    FromSharedAdministrator { meta, body, .. }: FromSharedAdministrator<CheckRequest>,
) -> Result<Response, ErrorReply> {
    let check = gateway.configuration_notes().check(&meta.caller, body.text).await?;
    Ok(reply::json(StatusCode::OK, &CheckBody::from(check)))
}

impl From<ConfigurationCheck> for CheckBody {
    fn from(check: ConfigurationCheck) -> Self {
        let ConfigurationCheck { problems, changes, opens, restart_required, notes } = check;
        let changes = changes.into_iter().map(|(before, after)| ChangeBody { before, after }).collect();
        Self { valid: problems.is_empty(), problems, changes, opens, restart_required, notes }
    }
}
