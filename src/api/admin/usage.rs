//! `/admin/usage`: the spending of callers and tenants on each day.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan, tz};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::list::{LatestFirst, Page, PageQuery};
use crate::parameters::Parameters;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_core::call::{Caller, ModelTurns, UsedModel};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{Gateway, Reach};
use sekisho_store::{DailyModelUsage, DailyScope, DailyUsage};

/// Days that are kept.
const MAX_DAYS: u32 = 90;

/// Days, if the request names no number.
const DAYS: u32 = 30;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageQuery {
    /// The last days (UTC), today included; 30 by default.
    #[param(minimum = 1, maximum = 90)]
    days: Option<u32>,
}

/// Money and tokens, the latest day first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UsageList {
    #[serde(flatten)]
    page: Page<UsageOfDay>,
    /// Deprecated name of `items`, to be dropped in 0.3. All of them where no page is asked for.
    #[schema(deprecated)]
    usage: Vec<UsageOfDay>,
}

/// Of one caller or one tenant on one day.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UsageOfDay {
    #[schema(value_type = String, format = Date)]
    pub day: String,
    pub tenant: String,
    /// The id of the caller, which is that of its key; null for the sum of the tenant.
    pub caller: Option<String>,
    /// USD.
    #[schema(value_type = String)]
    pub cost_usd: Decimal,
    /// Of the text of tools, and of models.
    pub tokens: u64,
    /// The part of models, by agent, provider and model.
    #[serde(default)]
    pub models: Vec<ModelUsageOfDay>,
}

/// What an agent used of a model on one day.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ModelUsageOfDay {
    /// The agent, which has the name of its profile, or the type of a sub-agent; empty for `POST /tools/select`.
    pub agent: String,
    /// As in profiles.
    pub provider: String,
    /// The provider's id.
    pub model: String,
    pub turns: u64,
    /// With the next two.
    pub input_tokens: u64,
    /// Read from the provider's cache.
    pub cached_tokens: u64,
    /// Written to the provider's cache.
    pub cache_write_tokens: u64,
    /// With the reasoning.
    pub output_tokens: u64,
    /// Where the provider counts them.
    pub reasoning_tokens: u64,
    /// USD.
    #[schema(value_type = String)]
    pub cost_usd: Decimal,
}

impl Listed for UsageOfDay {
    const NAME: &'static str = "costs";
    const ROUTE: &'static str = "/admin/usage";
    const COLUMNS: &'static [Column] = &[
        Column::new("day", Form::Text),
        Column::new("tenant", Form::Name),
        Column::new("caller", Form::Name),
        Column::new("cost_usd", Form::Text),
        Column::new("tokens", Form::Count),
    ];
}

/// What was spent on each day, some seconds behind: by the caller itself; with a role of `console`, by the callers of its
/// tenant and by the tenant.
#[utoipa::path(get, path = "/admin/usage", operation_id = "listUsage", tag = "operation", params(UsageQuery, PageQuery),
    responses((status = 200, body = UsageList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(days): Parameters<UsageQuery>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let FirstDay { first, today, .. } = first_day(&days)?;
    let found = gateway.store().usage().between(first, today).await.map_err(CallError::from)?;
    let reach = gateway.configuration().reach(&meta.caller);
    let all = found.into_iter().filter(|usage| is_visible(usage, reach, &meta.caller)).collect();
    let (page, usage) = Page::from_all_with_old_name(all, &query, place)?;
    // Only of the days that are shown: the list is read page by page.
    let days = usage.iter().map(|usage| usage.day);
    let models = match days.clone().min().zip(days.max()) {
        Some((first, last)) => gateway.store().model_usage().between(first, last).await.map_err(CallError::from)?,
        None => Vec::new(),
    };
    let models = ModelsOfDays::of(&models);
    let usage = usage.iter().map(|usage| UsageOfDay::of(usage, &models)).collect();
    Ok(reply::json(StatusCode::OK, &UsageList { page: page.map(|usage| UsageOfDay::of(&usage, &models)), usage }))
}

/// The days that a query names.
pub(super) struct FirstDay {
    pub(super) first: Date,
    /// Where the first one begins.
    pub(super) midnight: Timestamp,
    pub(super) today: Date,
}

/// # Errors
/// `invalid_request`: so many days are not kept.
pub(super) fn first_day(UsageQuery { days }: &UsageQuery) -> Result<FirstDay, CallError> {
    let days = days.unwrap_or(DAYS);
    if !(1..=MAX_DAYS).contains(&days) {
        let message = format!("`days` must be between 1 and {MAX_DAYS}");
        return Err(CallError::new(ErrorCode::InvalidRequest, message));
    }
    let today = Timestamp::now().to_zoned(tz::TimeZone::UTC).date();
    let first = today.saturating_sub(i64::from(days - 1).days());
    let midnight = first.to_zoned(tz::TimeZone::UTC).map_err(CallError::internal)?.timestamp();
    Ok(FirstDay { first, midnight, today })
}

/// The place of usage in its list: the latest day first, callers before tenants.
fn place(usage: &DailyUsage) -> LatestFirst {
    let day = usage.day.to_zoned(tz::TimeZone::UTC).map(|midnight| midnight.timestamp()).unwrap_or_default();
    LatestFirst::new(day, hex::encode(format!("{} {}", usage.scope.as_str(), usage.key)))
}

fn is_visible(usage: &DailyUsage, reach: Reach, caller: &Caller) -> bool {
    let tenant = match usage.scope {
        DailyScope::Tenant => &*usage.key,
        DailyScope::Caller => Caller::parts_of_key(&usage.key).0,
    };
    match reach {
        Reach::AllTenants => true,
        Reach::Tenant => *caller.tenant == *tenant,
        Reach::Own => usage.scope == DailyScope::Caller && usage.key == caller.key,
    }
}

/// The use of models by each caller and tenant on each day.
#[derive(Debug, Default)]
struct ModelsOfDays<'a>(HashMap<(Date, DailyScope, &'a str), BTreeMap<&'a UsedModel, ModelTurns>>);

impl<'a> ModelsOfDays<'a> {
    fn of(usage: &'a [DailyModelUsage]) -> Self {
        let mut all = Self::default();
        for DailyModelUsage { day, caller_key, model, used } in usage {
            let tenant = Caller::parts_of_key(caller_key).0;
            for (scope, key) in [(DailyScope::Caller, &**caller_key), (DailyScope::Tenant, tenant)] {
                let sum = all.0.entry((*day, scope, key)).or_default().entry(model).or_default();
                *sum = sum.plus(*used);
            }
        }
        all
    }

    fn with(&self, usage: &DailyUsage) -> Vec<ModelUsageOfDay> {
        let models = self.0.get(&(usage.day, usage.scope, &*usage.key));
        models.into_iter().flatten().map(|(model, used)| ModelUsageOfDay::of(model, used)).collect()
    }
}

impl ModelUsageOfDay {
    fn of(model: &UsedModel, used: &ModelTurns) -> Self {
        Self {
            agent: model.agent.to_string(),
            provider: model.provider.to_string(),
            model: model.model.to_string(),
            turns: used.turns,
            input_tokens: used.prompt_tokens,
            cached_tokens: used.cached_tokens,
            cache_write_tokens: used.cache_write_tokens,
            output_tokens: used.completion_tokens,
            reasoning_tokens: used.reasoning_tokens,
            cost_usd: used.cost_usd.normalize(),
        }
    }
}

impl UsageOfDay {
    fn of(usage: &DailyUsage, models: &ModelsOfDays<'_>) -> Self {
        let (tenant, caller) = match usage.scope {
            DailyScope::Tenant => (usage.key.to_string(), None),
            DailyScope::Caller => {
                let (tenant, caller) = Caller::parts_of_key(&usage.key);
                (tenant.to_owned(), Some(caller.to_owned()))
            }
        };
        Self {
            day: usage.day.to_string(),
            tenant,
            caller,
            cost_usd: usage.cost_usd.normalize(),
            tokens: usage.tokens,
            models: models.with(usage),
        }
    }
}
