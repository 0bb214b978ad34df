//! The caller's conversations with agents: list, and a new one with its first message.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::acts::Act;
use super::address::with_query;
use super::export::{self, Format, Rows};
use super::frame::{self, Head, Section};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, conversation, error_page, format, list, redirect};
use sekisho_core::error::CallError;

/// Conversations of a page.
const PAGE: u32 = 50;

/// What the address says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    before: String,
    format: Format,
}

/// A conversation, as its route gives it.
#[derive(Debug, Deserialize)]
pub(super) struct Conversation {
    pub id: String,
    pub title: Option<String>,
    pub status: String,
    pub agent: String,
    pub workspace: bool,
    pub created_at: String,
    pub changed_at: String,
}

#[derive(Debug, Deserialize)]
struct ConversationPage {
    conversations: Vec<Conversation>,
    next: Option<String>,
}

/// The agents that there are, and the one that answers where none is chosen.
#[derive(Debug)]
pub(super) struct Agents {
    names: Vec<String>,
    default: String,
}

#[derive(Debug, Deserialize)]
struct AgentList {
    data: Vec<AgentName>,
}

#[derive(Debug, Deserialize)]
struct AgentName {
    id: String,
}

/// `GET /console/conversations`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    match fetch(&console, &visit, &wanted).await {
        Ok((found, agents)) if wanted.format == Format::Html => {
            visit.answer(Ok(show(&visit, &wanted, &found, &agents)))
        }
        Ok((found, _)) => rows(&found).respond(wanted.format),
        Err(error) => error_page::of_visit(&visit, &error),
    }
}

/// `POST /console/conversations`: begins one with its first message.
pub(super) async fn create(State(console): State<Arc<Console>>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::TalkToAgents).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    match begin(&console, &form).await {
        Ok(address) => redirect(&address),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

/// The agents that the caller may use; those of a caller who may not talk to them are not asked for.
pub(super) async fn agents(console: &Console, visit: &Visit, act: Act) -> Result<Agents, CallError> {
    let AgentList { data } = match visit.may(act) {
        true => visit.fetch(console, "/v1/models").await?,
        false => AgentList { data: Vec::new() },
    };
    let names = data.into_iter().map(|agent| agent.id).collect();
    Ok(Agents { names, default: console.gateway.configuration().current().agent.default_profile.clone() })
}

/// A field in which one of the agents is chosen.
pub(super) fn agent_field(texts: &Texts, agents: &Agents) -> Markup {
    html! {
        div.field {
            label for="agent" { (texts.get("agent-name")) }
            select #agent name="agent" {
                option value="" { (texts.with("agent-default", [("name", agents.default.clone().into())])) }
                @for agent in &agents.names { option value=(agent) { (agent) } }
            }
        }
    }
}

async fn fetch(console: &Console, visit: &Visit, wanted: &Wanted) -> Result<(ConversationPage, Agents), CallError> {
    visit.require(Act::SeeConversations)?;
    let path = with_query("/api/conversations", [("limit", &*PAGE.to_string()), ("before", &*wanted.before)]);
    let found = visit.fetch(console, &path).await?;
    Ok((found, agents(console, visit, Act::TalkToAgents).await?))
}

async fn begin(console: &Console, form: &Submitted) -> Result<String, CallError> {
    let (text, is_set) = (|name: &str| form.text(name), |name: &str| form.text(name).is_some());
    let new = json!({"title": text("title"), "agent": text("agent"), "workspace": is_set("workspace")});
    let created = form.visit.change(console, Method::POST, "/api/conversations", Some(&new)).await?;
    let id = created["id"].as_str().unwrap_or_default();
    match text("user_input") {
        Some(input) => conversation::send_message(console, &form.visit, id, input).await,
        None => Ok(path_of(id)),
    }
}

/// The address of a conversation's page.
pub(super) fn path_of(id: &str) -> String {
    format!("/console/conversations/{}", encoded(id))
}

/// An id in a path.
pub(super) fn encoded(id: &str) -> String {
    utf8_percent_encode(id, NON_ALPHANUMERIC).to_string().replace("%2D", "-")
}

fn rows(found: &ConversationPage) -> Rows<'static, 6> {
    let row = |conversation: &Conversation| {
        let Conversation { id, title, status, agent, created_at, changed_at, .. } = conversation;
        [json!(id), json!(title), json!(status), json!(agent), json!(created_at), json!(changed_at)]
    };
    Rows {
        name: "conversations",
        columns: ["id", "title", "status", "agent", "created_at", "changed_at"],
        rows: found.conversations.iter().map(row).collect::<Vec<[Value; 6]>>(),
    }
}

fn show(visit: &Visit, wanted: &Wanted, found: &ConversationPage, agents: &Agents) -> Markup {
    let texts = visit.texts();
    let title = texts.get("nav-conversations");
    let head = Head { state: Some(html! { (texts.get("conversations-state")) }), ..Head::new(&title) };
    let address = |before: &str| with_query("/console/conversations", [("before", before)]);
    frame::page(
        visit,
        Some(Section::Conversations),
        &head,
        &html! {
            @if let (Some(token), true) = (visit.form_token(), visit.may(Act::TalkToAgents)) {
                (new_form(&texts, &token, agents))
            }
            @if found.conversations.is_empty() {
                div.empty { p { (texts.get("conversations-none")) } p { code { "POST /api/conversations" } } }
            } @else {
                (table(&texts, &found.conversations))
                (export::links(&texts, &address(&wanted.before)))
            }
            @if let Some(next) = &found.next {
                (list::older(&texts, &address(next)))
            }
        },
    )
}

fn new_form(texts: &Texts, token: &str, agents: &Agents) -> Markup {
    html! {
        section.panel aria-labelledby="new" {
            h2 #new { (texts.get("conversation-new")) }
            form.stack method="post" action="/console/conversations" {
                input type="hidden" name=(TOKEN_FIELD) value=(token);
                div.field {
                    label for="user_input" { (texts.get("chat-message")) }
                    textarea.prose #user_input name="user_input" rows="3" required data-search {}
                }
                details {
                    summary { (texts.get("form-more")) }
                    div.pair {
                        (agent_field(texts, agents))
                        div.field {
                            label for="title" { (texts.get("conversation-title")) }
                            input #title name="title" maxlength="200" autocomplete="off" aria-describedby="title-help";
                            p.help #title-help { (texts.get("conversation-title-help")) }
                        }
                        label.choice { input type="checkbox" name="workspace" value="true"; (texts.get("conversation-workspace")) }
                    }
                }
                div.buttons { button.main { (texts.get("chat-send")) } }
            }
        }
    }
}

fn table(texts: &Texts, conversations: &[Conversation]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-conversations")) {
            table.list.cards {
                thead { tr {
                    th scope="col" { (texts.get("conversation-title")) }
                    th scope="col" { (texts.get("agent-name")) }
                    th scope="col" { (texts.get("tool-state")) }
                    th scope="col" { (texts.get("column-changed")) }
                    th scope="col" { (texts.get("column-created")) }
                } }
                tbody { @for conversation in conversations {
                    tr {
                        th.text scope="row" { a href=(path_of(&conversation.id)) { (format::text(&title_of(texts, conversation))) } }
                        td { code { (conversation.agent) } }
                        td { (status(texts, conversation)) }
                        td data-label=(texts.get("column-changed")) { (format::moment(texts, &conversation.changed_at)) }
                        td data-label=(texts.get("column-created")) { (format::moment(texts, &conversation.created_at)) }
                    }
                } }
            }
        }
    }
}

/// Its title, or that it has none.
pub(super) fn title_of(texts: &Texts, conversation: &Conversation) -> String {
    conversation.title.clone().unwrap_or_else(|| texts.get("conversation-untitled").into_owned())
}

/// In a word: whether runs begin.
pub(super) fn status(texts: &Texts, conversation: &Conversation) -> Markup {
    match conversation.status.as_str() {
        "active" => html! { span.tag.good { "✓ " (texts.get("status-active")) } },
        _ => html! { span.tag { "– " (texts.get("status-inactive")) } },
    }
}
