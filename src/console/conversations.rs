//! The caller's conversations with agents: list, and a new one with its first message.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::json;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::frame::{self, Head, Section};
use super::list::{ListAddress, Table};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, conversation, error_page, format, list, redirect};
use sekisho_agent_api::{BackgroundRunBody, ConversationBody, ConversationStatus, Models};
use sekisho_api::list::Page;
use sekisho_core::error::CallError;

/// Runs in the background that are shown, the last ones.
const LAST_RUNS: &str = "20";

/// The agents that there are, and the one that answers where none is chosen.
#[derive(Debug)]
pub(super) struct Agents {
    names: Vec<String>,
    default: String,
}

/// `GET /console/conversations`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(ListAddress { after, format }): Address<ListAddress>,
) -> Response {
    let found = fetch(&console, &visit, &after).await;
    list::respond(
        &visit,
        format,
        found,
        |(found, ..)| &found.items,
        |(found, background, agents)| show(&visit, &after, found, (&background[..], agents)),
    )
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

/// The agents that the caller may use. For a caller who may not talk to agents they are not asked for.
pub(super) async fn agents(console: &Console, visit: &Visit, act: Act) -> Result<Agents, CallError> {
    let Models { data, .. } = match visit.may(act) {
        true => visit.fetch(console, "/v1/models").await?,
        false => Models::default(),
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

type Found = (Page<ConversationBody>, Vec<BackgroundRunBody>, Agents);

async fn fetch(console: &Console, visit: &Visit, after: &str) -> Result<Found, CallError> {
    let found = list::fetch(console, visit, Act::SeeConversations, &[("after", after)]).await?;
    let background: Page<_> = list::fetch(console, visit, Act::SeeConversations, &[("limit", LAST_RUNS)]).await?;
    Ok((found, background.items, agents(console, visit, Act::TalkToAgents).await?))
}

async fn begin(console: &Console, form: &Submitted) -> Result<String, CallError> {
    let (text, is_set) = (|name: &str| form.text(name), |name: &str| form.text(name).is_some());
    let new = json!({"title": text("title"), "agent": text("agent"), "workspace": is_set("workspace")});
    let created = form.visit.change(console, Method::POST, "/api/conversations", Some(&new)).await?;
    let id = created["id"].as_str().unwrap_or_default();
    match text("user_input") {
        input @ Some(_) => conversation::send_message(console, &form.visit, id, input).await,
        None => Ok(path_of(id)),
    }
}

/// The address of a conversation's page.
pub(super) fn path_of(id: &str) -> String {
    format!("/console/conversations/{}", encoded(id))
}

fn show(
    visit: &Visit,
    after: &str,
    found: &Page<ConversationBody>,
    (background, agents): (&[BackgroundRunBody], &Agents),
) -> Markup {
    let texts = visit.texts();
    let title = texts.get("nav-conversations");
    let head = Head { state: Some(html! { (texts.get("conversations-state")) }), ..Head::new(&title) };
    let table = Table {
        link: Some(|conversation: &ConversationBody| path_of(&conversation.id)),
        cell: |texts, conversation, column| match column.name {
            "title" => Some(html! { (format::text(&title_of(texts, conversation))) }),
            "status" => Some(status(texts, conversation)),
            _ => None,
        },
        ..Table::new(&texts, "nav-conversations", ("conversations-none", "sekisho conversations create"))
    };
    let address = |after: &str| with_query("/console/conversations", [("after", after)]);
    frame::page(
        visit,
        Some(Section::Conversations),
        &head,
        &html! {
            @if let (Some(token), true) = (visit.form_token(), visit.may(Act::TalkToAgents)) {
                (new_form(&texts, &token, agents))
            }
            (table.show_page(found, after, address, list::older))
            @if !background.is_empty() {
                section aria-labelledby="background" {
                    h2 #background { (texts.get("runs-background")) }
                    (in_background(&texts, background))
                }
            }
        },
    )
}

/// Runs that go on without a client, each with a link to its conversation.
fn in_background(texts: &Texts, runs: &[BackgroundRunBody]) -> Markup {
    let table = Table {
        link: Some(|run: &BackgroundRunBody| path_of(&run.conversation_id)),
        cell: |texts, run: &BackgroundRunBody, column| {
            let error = run.error.as_ref().map(|error| (&*error.code, &*error.message));
            (column.name == "status").then(|| conversation::outcome(texts, &run.status, error))
        },
        ..Table::new(texts, "runs-background", ("overview-nothing", "POST /api/runs"))
    };
    table.table(runs)
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

/// Its title, or that it has none.
pub(super) fn title_of(texts: &Texts, conversation: &ConversationBody) -> String {
    conversation.title.clone().unwrap_or_else(|| texts.get("conversation-untitled").into_owned())
}

/// In a word: whether runs begin.
pub(super) fn status(texts: &Texts, conversation: &ConversationBody) -> Markup {
    match conversation.status {
        ConversationStatus::Active => html! { span.tag.good { "✓ " (texts.get("status-active")) } },
        ConversationStatus::Inactive => html! { span.tag { "– " (texts.get("status-inactive")) } },
    }
}
