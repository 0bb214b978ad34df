//! One conversation: its messages, each tool call with its path, and the form for the next message.

mod runs;

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, Method};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

pub(super) use self::runs::outcome;

use super::acts::Act;
use super::address::encoded;
use super::chat;
use super::conversations::{self, path_of, title_of};
use super::export::Format;
use super::frame::{self, Head, Section};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit, Watcher};
use super::{Console, error_page, format, inbox, list, redirect};
use sekisho_agent::conversation::UnknownCall;
use sekisho_agent_api::{ConversationBody, ConversationStatus, MessageBody, RunBody};
use sekisho_api::list::Page;
use sekisho_core::error::{CallError, ErrorCode};

/// Messages of a page.
const PAGE: u32 = 200;

/// The header with the id of a run that was begun.
const RUN_ID: HeaderName = HeaderName::from_static("x-run-id");

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    /// The first message of the page; the last page without one.
    offset: Option<u32>,
    /// The run that was begun last.
    run: Option<String>,
    /// The number of the run after the listed ones; the last runs without one.
    runs_before: Option<i64>,
    /// The format of the runs.
    format: Format,
}

/// The data of the page.
struct Shown {
    conversation: ConversationBody,
    /// The number of the first message.
    offset: u32,
    page: Page<MessageBody>,
    /// Of the calls of its messages.
    receipts: chat::Receipts,
    runs: Page<RunBody>,
    /// The run to follow.
    live: Option<String>,
    /// The call about which the run waits for a decision.
    asked: Option<UnknownCall>,
}

/// `GET /console/conversations/{id}`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Path(id): Path<String>,
    Address(wanted): Address<Wanted>,
) -> Response {
    let shown = read(&console, &visit, &id, &wanted).await;
    let format = wanted.format;
    list::respond(&visit, format, shown, |shown| &shown.runs.items, |shown| show(&visit, &wanted, shown))
}

/// `POST /console/conversations/{id}`: says something, or changes the conversation.
pub(super) async fn act(State(console): State<Arc<Console>>, Path(id): Path<String>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::TalkToAgents).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    match change(&console, &form, &id).await {
        Ok(address) => redirect(&address),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

/// `GET /console/runs/{id}/events`: the events of a run, as its route sends them.
pub(super) async fn events(
    State(console): State<Arc<Console>>,
    Watcher(visit): Watcher,
    Path(id): Path<String>,
) -> Response {
    let path = format!("/api/runs/{}/events", encoded(&id));
    let events = match visit.require(Act::SeeConversations) {
        Ok(()) => console.api.send(&visit.guest.request, &visit.caller, (Method::GET, &path), None).await,
        Err(error) => Err(error),
    };
    match events {
        Ok(events) => visit.while_open(console, events),
        Err(error) => error_page::of_visit(&visit, &error),
    }
}

/// Begins a run, which goes on without the page; without `input` it goes on where the one before paused for an approver. Gives
/// the address at which it can be followed.
pub(super) async fn send_message(
    console: &Console,
    visit: &Visit,
    id: &str,
    input: Option<&str>,
) -> Result<String, CallError> {
    // The visitor of the page decides about a call that may have happened.
    let body = json!({"user_input": input, "stream": true, "on_disconnect": "continue", "on_unknown": "pause"});
    let route = format!("/api/conversations/{}/execute", encoded(id));
    let response = console.api.send(&visit.guest.request, &visit.caller, (Method::POST, &route), Some(&body)).await?;
    let run = response.headers().get(&RUN_ID).and_then(|run| run.to_str().ok()).unwrap_or_default();
    Ok(format!("{}?run={run}#end", path_of(id)))
}

async fn change(console: &Console, form: &Submitted, id: &str) -> Result<String, CallError> {
    let (visit, route) = (&form.visit, format!("/api/conversations/{}", encoded(id)));
    let patch = match form.text("act").unwrap_or_default() {
        "say" => return send_message(console, visit, id, Some(form.text("user_input").unwrap_or_default())).await,
        "continue" => return send_message(console, visit, id, None).await,
        act @ ("cancel" | "repeat" | "skip") => {
            let run = encoded(form.text("run").unwrap_or_default());
            let decision = (act != "cancel").then(|| json!({"call_id": form.field("call_id"), "decision": act}));
            let route = format!("/api/runs/{run}/{}", if decision.is_some() { "resolve" } else { "cancel" });
            visit.change(console, Method::POST, &route, decision.as_ref()).await?;
            return Ok(path_of(id));
        }
        "fork" => {
            let fork = visit.change(console, Method::POST, &format!("{route}/fork"), Some(&json!({}))).await?;
            return Ok(path_of(fork["id"].as_str().unwrap_or_default()));
        }
        "delete" if form.text("confirmed").is_some() => {
            visit.change(console, Method::DELETE, &route, None).await?;
            return Ok("/console/conversations".to_owned());
        }
        "rename" => json!({"title": form.text("title")}),
        "activate" => json!({"status": "active"}),
        "deactivate" => json!({"status": "inactive"}),
        _ => return Err(CallError::new(ErrorCode::InvalidRequest, "the form says nothing to do; open the page again")),
    };
    visit.change(console, Method::PATCH, &route, Some(&patch)).await?;
    Ok(path_of(id))
}

async fn read(console: &Console, visit: &Visit, id: &str, wanted: &Wanted) -> Result<Shown, CallError> {
    visit.require(Act::SeeConversations)?;
    let route = format!("/api/conversations/{}", encoded(id));
    let conversation: ConversationBody = visit.fetch(console, &route).await?;
    let runs = runs::fetch(console, visit, &route, wanted.runs_before).await?;
    let mut offset = wanted.offset.unwrap_or(0);
    let page = loop {
        let path = format!("{route}/messages?limit={PAGE}&after={offset}");
        let page: Page<MessageBody> = visit.fetch(console, &path).await?;
        match page.next.as_deref().map(str::parse) {
            Some(Ok(next)) if wanted.offset.is_none() => offset = next,
            _ => break page,
        }
    };
    let running = runs.items.iter().find(|run| run.status == "running").map(|run| run.id.clone());
    let asked = match &running {
        Some(run) => runs::waits_for(console, visit, run).await?,
        None => None,
    };
    // A run that waits for another one is not listed yet.
    let begun = wanted.run.clone().filter(|begun| !runs.items.iter().any(|run| run.id == *begun));
    let receipts = chat::receipts(console, visit, &page.items).await?;
    Ok(Shown { conversation, offset, page, receipts, live: running.or(begun), asked, runs })
}

fn show(visit: &Visit, wanted: &Wanted, shown: &Shown) -> Markup {
    let texts = visit.texts();
    let Shown { conversation, offset, page, receipts, runs, live, asked } = shown;
    let title = title_of(&texts, conversation);
    let state = html! {
        (conversations::status(&texts, conversation)) " " code { (conversation.agent) } " · "
        @if conversation.workspace { (texts.get("conversation-has-files")) " · " }
        (format::moment(&texts, &conversation.changed_at))
    };
    let head = Head { state: Some(state), ..Head::new(&title) };
    let token = visit.form_token().filter(|_| visit.may(Act::TalkToAgents));
    let path = path_of(&conversation.id);
    frame::page(
        visit,
        Some(Section::Conversations),
        &head,
        &html! {
            @if *offset > 0 {
                p.small { a href={ (path) "?offset=" (offset.saturating_sub(PAGE)) } { "← " (texts.get("chat-earlier")) } }
            }
            @if page.items.is_empty() && live.is_none() { p.quiet { (texts.get("chat-empty")) } }
            (chat::draw(visit, receipts, &page.items))
            @if let Some(next) = &page.next { p.small { a href={ (path) "?offset=" (next) } { (texts.get("chat-later")) " →" } } }
            @if let Some(run) = live { (runs::running(&texts, &path, run, asked.as_ref(), token.as_deref())) }
            @else if let Some((run, error)) = runs.items.first().filter(|_| wanted.runs_before.is_none()).and_then(|run| Some((run, run.error.as_ref()?))) {
                div class=(if run.status == "paused" { "notice warn" } else { "notice bad" }) role="alert" {
                    p { strong { (error.code) } } p { (format::text(&error.message)) }
                    @if let Some(token) = token.as_ref().filter(|_| run.status == "paused") {
                        p { (texts.get("run-continue-help")) }
                        (inbox::continue_form(&texts, &path, token))
                    }
                }
            }
            span #end {}
            @if let Some(token) = &token {
                @if conversation.status == ConversationStatus::Active { (composer(&texts, &path, token)) }
                (manage(&texts, &path, token, conversation))
            }
            (runs::table(&texts, &path, wanted.runs_before, runs))
        },
    )
}

fn composer(texts: &Texts, path: &str, token: &str) -> Markup {
    html! {
        form.stack.composer method="post" action=(path) {
            input type="hidden" name=(TOKEN_FIELD) value=(token);
            div.field {
                label for="user_input" { (texts.get("chat-message")) }
                textarea.prose #user_input name="user_input" rows="3" required data-search {}
            }
            div.buttons { button.main name="act" value="say" { (texts.get("chat-send")) } }
        }
    }
}

fn manage(texts: &Texts, path: &str, token: &str, conversation: &ConversationBody) -> Markup {
    let is_active = conversation.status == ConversationStatus::Active;
    let (act, label) =
        if is_active { ("deactivate", "conversation-deactivate") } else { ("activate", "conversation-activate") };
    let token = html! { input type="hidden" name=(TOKEN_FIELD) value=(token); };
    html! {
        details.manage {
            summary { (texts.get("conversation-manage")) }
            div.stack {
                form.inline method="post" action=(path) {
                    (token)
                    div.field {
                        label for="title" { (texts.get("conversation-title")) }
                        input #title name="title" maxlength="200" value=(conversation.title.as_deref().unwrap_or_default()) autocomplete="off";
                    }
                    button name="act" value="rename" { (texts.get("conversation-rename")) }
                }
                form.buttons method="post" action=(path) {
                    (token)
                    button name="act" value="fork" { (texts.get("conversation-fork")) }
                    button name="act" value=(act) { (texts.get(label)) }
                }
                form.buttons method="post" action=(path) {
                    (token)
                    label.choice { input type="checkbox" name="confirmed" value="true" required; (texts.get("conversation-delete-confirm")) }
                    button.danger name="act" value="delete" { (texts.get("conversation-delete")) }
                }
            }
        }
    }
}
