//! The resources of agents: models, skills and tenants. List, one of them, and for administrators a form made from its
//! schema.

mod pages;
mod skills;

use std::sync::{Arc, LazyLock};

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};

use self::pages::{rows, show_list, show_one};
use super::acts::Act;
use super::address::encoded;
use super::export::Format;
use super::figures::{self, Ranged};
use super::frame::Section;
use super::schema_form;
use super::submitted::Submitted;
use super::visit::{Address, Visit};
use super::{Console, costs, error_page, redirect};
use sekisho_agent::skills::Skill;
use sekisho_api::ModelUsageOfDay;
use sekisho_api::list::Page;
use sekisho_config::{ModelConfig, TenantConfig};
use sekisho_core::error::{CallError, Detail, ErrorCode};
use sekisho_gateway::FiguresOf;

static MODEL_SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(ModelConfig).to_value());
static SKILL_SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(Skill).to_value());
static TENANT_SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(TenantConfig).to_value());

/// The kind of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Models,
    Skills,
    Tenants,
}

/// The ids of the texts about a kind.
struct Words {
    title: &'static str,
    state: &'static str,
    none: &'static str,
    add: &'static str,
    /// The settings that the list shows.
    columns: [(&'static str, &'static str); 2],
    has_status: bool,
}

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    after: String,
    format: Format,
}

/// A resource, as its route gives it.
#[derive(Debug, Deserialize)]
struct Resource {
    name: String,
    /// Defined by the configuration.
    configured: bool,
    /// The one tenant that has it.
    tenant: Option<String>,
    /// For a skill: the tenants with settings that have it.
    #[serde(skip)]
    tenants: Vec<String>,
    #[serde(flatten)]
    value: Map<String, Value>,
}

/// A form that was refused.
#[derive(Debug, Default)]
struct Attempt {
    name: String,
    filled: Vec<(String, String)>,
    problems: Vec<Detail>,
    error: Option<CallError>,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::Skills => "skills",
            Self::Tenants => "tenants",
        }
    }

    fn section(self) -> Section {
        match self {
            Self::Models => Section::Models,
            Self::Skills => Section::Skills,
            Self::Tenants => Section::Tenants,
        }
    }

    fn words(self) -> Words {
        match self {
            Self::Models => Words {
                title: "nav-models",
                state: "models-state",
                none: "models-none",
                add: "models-add",
                columns: [("profile", "models-profile"), ("model", "models-model")],
                has_status: true,
            },
            Self::Skills => Words {
                title: "nav-skills",
                state: "skills-state",
                none: "skills-none",
                add: "skills-add",
                columns: [("description", "tool-description"), ("files", "skill-files")],
                has_status: false,
            },
            Self::Tenants => Words {
                title: "nav-tenants",
                state: "tenants-state",
                none: "tenants-none",
                add: "tenants-add",
                columns: [("models", "tenants-models"), ("max_cost_per_day", "tenants-money")],
                has_status: true,
            },
        }
    }

    fn change(self) -> Act {
        match self {
            Self::Models | Self::Skills => Act::ChangeAgents,
            Self::Tenants => Act::ChangeTenants,
        }
    }

    fn schema(self) -> &'static Value {
        match self {
            Self::Models => &MODEL_SCHEMA,
            Self::Skills => &SKILL_SCHEMA,
            Self::Tenants => &TENANT_SCHEMA,
        }
    }

    /// Entries of a page. A skill comes with all its files.
    fn page(self) -> u32 {
        match self {
            Self::Models | Self::Tenants => 100,
            Self::Skills => 20,
        }
    }

    fn path(self) -> String {
        format!("/console/{}", self.word())
    }

    fn path_of(self, name: &str) -> String {
        format!("/console/{}/{}", self.word(), encoded(name))
    }

    fn route_of(self, name: &str) -> String {
        format!("/api/{}/{}", self.word(), encoded(name))
    }
}

/// The pages of one kind.
pub(super) fn routes(kind: Kind) -> Router<Arc<Console>> {
    Router::new()
        .route(&kind.path(), get(page).post(create))
        .route(&format!("{}/{{name}}", kind.path()), get(one).post(change))
        .layer(Extension(kind))
}

/// `GET` of the list.
async fn page(
    State(console): State<Arc<Console>>,
    Extension(kind): Extension<Kind>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    match list(&console, &visit, kind, &wanted.after).await {
        Ok(found) if wanted.format == Format::Html => {
            visit.answer(Ok(show_list(&visit, kind, &found, &wanted, &Attempt::default())))
        }
        Ok(found) => rows(kind, &found).respond(wanted.format),
        Err(error) => error_page::of_visit(&visit, &error),
    }
}

/// `GET` of one of them.
async fn one(
    State(console): State<Arc<Console>>,
    Extension(kind): Extension<Kind>,
    visit: Visit,
    Path(name): Path<String>,
    Address(ranged): Address<Ranged>,
) -> Response {
    visit.answer(one_with_figures(&console, &visit, kind, &name, &ranged).await)
}

async fn one_with_figures(
    console: &Console,
    visit: &Visit,
    kind: Kind,
    name: &str,
    ranged: &Ranged,
) -> Result<Markup, CallError> {
    let found = find(console, visit, kind, name).await?;
    let figures = match kind {
        Kind::Tenants => {
            let of = FiguresOf::All { tenant: Some(found.name.clone()) };
            figures::section(console, visit, &of, &kind.path_of(name), ranged).await?
        }
        Kind::Models => {
            let text = |name: &str| found.value.get(name).and_then(Value::as_str);
            // A model without an id has the one of its profile, by whose name agents are called.
            let (model, profile) = (text("model"), text("profile"));
            let is_used = |used: &ModelUsageOfDay| {
                model.map_or_else(|| Some(used.agent.as_str()) == profile, |model| used.model == model)
            };
            costs::of_models(console, visit, is_used).await?
        }
        Kind::Skills => html! {},
    };
    Ok(show_one(visit, kind, &found, &Attempt::default(), &figures))
}

/// `POST` to the list: adds one.
async fn create(State(console): State<Arc<Console>>, Extension(kind): Extension<Kind>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, kind.change()).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let name = form.text("name").unwrap_or_default().to_owned();
    let route = format!("/api/{}", kind.word());
    match save(&console, &form, kind, (Method::POST, &route), Some(&name)).await {
        Ok(()) => redirect(&kind.path_of(&name)),
        Err(attempt) => match list(&console, &form.visit, kind, "").await {
            Ok(found) => form.visit.answer(Ok(show_list(&form.visit, kind, &found, &Wanted::default(), &attempt))),
            Err(error) => error_page::of_visit(&form.visit, &error),
        },
    }
}

/// `POST` to the address of a resource: replaces or removes it.
async fn change(
    State(console): State<Arc<Console>>,
    Extension(kind): Extension<Kind>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let form = match Submitted::read(&console, request, kind.change()).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    if form.text("act") == Some("remove") {
        return match remove(&console, &form, kind, &name).await {
            Ok(()) => redirect(&kind.path()),
            Err(error) => error_page::of_visit(&form.visit, &error),
        };
    }
    match save(&console, &form, kind, (Method::PUT, &kind.route_of(&name)), None).await {
        Ok(()) => redirect(&kind.path_of(&name)),
        // The page of a resource that the visitor may not change has no form.
        Err(Attempt { error: Some(error), .. }) if error.code() == ErrorCode::Denied => {
            error_page::of_visit(&form.visit, &error)
        }
        Err(attempt) => {
            let found = find(&console, &form.visit, kind, &name).await;
            form.visit.answer(found.map(|found| show_one(&form.visit, kind, &found, &attempt, &html! {})))
        }
    }
}

async fn list(console: &Console, visit: &Visit, kind: Kind, after: &str) -> Result<Page<Resource>, CallError> {
    visit.require(Act::SeeAgents)?;
    let after = if after.is_empty() { String::new() } else { format!("&after={}", encoded(after)) };
    visit.fetch(console, &format!("/api/{}?limit={}{after}", kind.word(), kind.page())).await
}

async fn find(console: &Console, visit: &Visit, kind: Kind, name: &str) -> Result<Resource, CallError> {
    visit.require(Act::SeeAgents)?;
    let mut found: Resource = visit.fetch(console, &kind.route_of(name)).await?;
    found.tenants = match (kind, &found.tenant) {
        (Kind::Skills, Some(tenant)) => vec![tenant.clone()],
        (Kind::Skills, None) => skills::tenants_with(console, visit, name).await?,
        (Kind::Models | Kind::Tenants, _) => Vec::new(),
    };
    Ok(found)
}

async fn remove(console: &Console, form: &Submitted, kind: Kind, name: &str) -> Result<(), CallError> {
    form.require_confirmation(name)?;
    form.visit.change(console, Method::DELETE, &kind.route_of(name), None).await.map(|_| ())
}

/// Sends the filled-in fields. With a name, also that name.
async fn save(
    console: &Console,
    form: &Submitted,
    kind: Kind,
    route: (Method, &str),
    name: Option<&str>,
) -> Result<(), Attempt> {
    let mut filled = form.fields.clone();
    let attempt =
        |filled, problems, error| Attempt { name: name.unwrap_or_default().to_owned(), filled, problems, error };
    if schema_form::grow(kind.schema(), &mut filled) {
        return Err(attempt(filled, Vec::new(), None));
    }
    let mut value = match schema_form::arguments(kind.schema(), &filled) {
        Ok(value) => value,
        Err(problems) => return Err(attempt(filled, problems, None)),
    };
    if let Some(name) = name {
        value.insert("name".to_owned(), name.into());
    }
    let (method, path) = route;
    let sent = form.visit.change(console, method, path, Some(&Value::Object(value))).await;
    sent.map(|_| ()).map_err(|error| attempt(filled, Vec::new(), Some(error)))
}
