//! Events of the index: sign-ins, registrations, approvals, changes of keys, reloads.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::call_query::moment;
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::list::{Page, PageQuery};
use crate::parameters::Parameters;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_core::record::EventRecord;
use sekisho_gateway::Gateway;
use sekisho_store::EventFilter;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventQuery {
    /// A kind, such as `key_created`.
    event: Option<String>,
    /// The id of a caller.
    caller: Option<String>,
    tenant: Option<String>,
    /// The first moment, as RFC 3339, or so long ago: `15m`, `24h`, `7d`.
    since: Option<String>,
    /// The moment after the last one, in the same forms.
    until: Option<String>,
}

/// An event.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventBody {
    /// RFC 3339, UTC.
    pub time: String,
    /// Its kind, such as `key_created`.
    pub event: String,
    /// Whether it was done.
    pub success: bool,
    pub tenant: Option<String>,
    pub caller: Option<String>,
    /// The managed key that the caller sent.
    pub key: Option<String>,
    /// The server, collection or file that it is about.
    pub subject: Option<String>,
    /// The change, or the reason of the refusal.
    pub detail: Option<String>,
    /// The address of the client.
    #[schema(value_type = Option<String>)]
    pub client: Option<IpAddr>,
    pub request_id: Option<String>,
    /// Equal events that are one entry.
    pub count: u64,
}

impl Listed for EventBody {
    const NAME: &'static str = "events";
    const ROUTE: &'static str = "/admin/events";
    const COLUMNS: &'static [Column] = &[
        Column::new("time", Form::Moment).titled("call-time"),
        Column::new("event", Form::Name).titled("event-kind"),
        Column::new("success", Form::Text).titled("event-success"),
        Column::new("subject", Form::Name).titled("event-subject"),
        Column::new("detail", Form::Line).titled("event-detail"),
        Column::new("tenant", Form::Name),
        Column::new("caller", Form::Name).titled("call-caller"),
        Column::new("key", Form::Name),
        Column::new("client", Form::Text).titled("event-client"),
        Column::new("request_id", Form::Name),
        Column::new("count", Form::Count),
    ];
}

/// Lists sign-ins, registrations, approvals, changes of keys and reloads, the latest first: all of the tenant; for administrators of
/// the tenant `default`, all. Needs a role of `console`.
#[utoipa::path(get, path = "/admin/events", operation_id = "listEvents", tag = "operation", params(EventQuery, PageQuery),
    responses((status = 200, body = Page<EventBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(EventQuery { event, caller, tenant, since, until }): Parameters<EventQuery>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let (limit, after, now) = (query.limit()?, query.after()?, Timestamp::now());
    let (since, until) = (moment("since", &since, now)?, moment("until", &until, now)?);
    let set = |text: Option<String>| text.filter(|text| !text.is_empty());
    let filter = EventFilter { tenant: set(tenant), caller: set(caller), event: set(event), since, until };
    let (events, next) = gateway.history().events(&meta.caller, filter, after.as_ref(), limit).await?;
    let items: Vec<_> = events.into_iter().map(EventBody::from).collect();
    Ok(reply::json(StatusCode::OK, &Page { items, next: next.map(|next| next.to_string()) }))
}

impl From<EventRecord> for EventBody {
    fn from(event: EventRecord) -> Self {
        let EventRecord { time, event, success, tenant, caller, key, subject, detail, client, request_id, count } =
            event;
        let time = Timestamp::try_from(time).map(|time| time.to_string()).unwrap_or_default();
        let client = client.and_then(|client| client.parse().ok());
        Self { time, event, success, tenant, caller, key, subject, detail, client, request_id, count }
    }
}
