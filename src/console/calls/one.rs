//! The page of one call: its path, why it failed, the violated rules, and links to related calls.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::content::{Content, OPEN};
use super::why::Why;
use super::{PATH, history, outcome, path_of};
use crate::acts::Act;
use crate::address::with_query;
use crate::call_path::CallPath;
use crate::call_tree::CallTree;
use crate::frame::{self, Head, Section};
use crate::text::Texts;
use crate::visit::{Address, Visit};
use crate::{Console, approvals, failures, format, timeline, tools};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::CallSummary;
use sekisho_store::IndexedCall;

/// The field of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    /// Whether the arguments and the result are to be opened.
    content: String,
}

/// `GET /console/calls/{id}`.
pub(crate) async fn one(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Path(id): Path<String>,
    Address(wanted): Address<Wanted>,
) -> Response {
    let page = match read(&console, &visit, &id, wanted.content == OPEN.1).await {
        Err(error) if error.code() == ErrorCode::NotFound && visit.may(Act::SearchHistory) => {
            console.gateway.history().past_call(&visit.caller, &id).await.map(|call| history::one(&visit, &call))
        }
        page => page,
    };
    visit.answer(page)
}

async fn read(console: &Console, visit: &Visit, id: &str, opens: bool) -> Result<Markup, CallError> {
    visit.require(Act::SeeCalls)?;
    let history = console.gateway.history();
    let found = history.call(&visit.caller, id).await?;
    let words = history.words(&visit.caller, &found.call).await?;
    let uses = history.used_up_by(&visit.caller, &found.call).await?;
    let tree = CallTree::of(console, visit, found.call.id, found.call.nested).await?;
    let why = Why { call: &found.call, words: words.as_deref(), uses: &uses };
    let content = Content::of(console, visit, &found.call, opens).await?.draw(console, visit, &found.call);
    Ok(show(visit, &found, &why, &tree, &content))
}

fn show(visit: &Visit, found: &IndexedCall, why: &Why<'_>, tree: &CallTree, content: &Markup) -> Markup {
    let (texts, call) = (visit.texts(), &*found.call);
    let title = texts.with("call-title", [("tool", call.tool.to_string().into())]);
    let state = html! { (outcome(&texts, call)) " · " (format::time(&texts, call.time)) " · " (format::duration(call.duration)) };
    let head = Head { state: Some(state), ..Head::new(&title) };
    frame::page(
        visit,
        Some(Section::Calls),
        &head,
        &html! {
            (CallPath::of_recent(call).with_words(why.words.is_some()).draw(&texts))
            (why.draw(&texts))
            dl.facts {
                @for (name, value) in facts(found) { div { dt { (texts.get(name)) } dd { code { (format::text(&value)) } } } }
                @if let Some(approval) = &call.approval {
                    div { dt { (texts.get("call-approval")) } dd { a href=(approvals::path_of(approval)) { code { (format::text(approval)) } } } }
                }
                @if let Some(parent) = call.parent {
                    div { dt { (texts.get("call-parent")) } dd { a href=(path_of(parent)) { code { (parent) } } } }
                }
            }
            (tree.draw(&texts, call.id, call.nested))
            @if call.nested > 0 { (timeline::section(&texts, tree.rows(&texts, call))) }
            (content)
            (links(&texts, call))
        },
    )
}

fn facts(found: &IndexedCall) -> Vec<(&'static str, String)> {
    let call = &*found.call;
    let mut facts = vec![
        ("call-caller", call.caller.to_string()),
        ("call-tenant", call.tenant.to_string()),
        ("call-via", call.via.as_str().to_owned()),
        ("call-depth", call.depth.to_string()),
        ("call-attempts", call.attempts.to_string()),
        ("call-cost", format::money(call.cost_usd)),
        ("call-tokens", format::count(call.tokens)),
        ("call-request", if call.request_id.is_empty() { "–" } else { &call.request_id }.to_owned()),
        ("call-id", call.id.to_string()),
    ];
    let upstream = call.breaker.as_ref().map(|(upstream, state)| format!("{upstream}: {}", state.as_str()));
    let further = [
        ("call-key", call.key.as_deref().map(str::to_owned)),
        ("call-session", call.session.as_deref().map(str::to_owned)),
        ("call-run", call.run.as_deref().map(str::to_owned)),
        ("call-program", call.program.as_deref().map(str::to_owned)),
        ("call-upstream", upstream),
        ("call-http-status", call.http_status.map(|status| status.to_string())),
        ("call-client", call.client.map(|client| client.to_string())),
        ("call-trace", call.trace_id.map(hex::encode)),
        ("call-arguments-digest", Some(hex::encode(call.arguments_digest))),
        ("call-guards", (!call.guards.is_empty()).then(|| call.guards.join(", "))),
        ("call-together", (found.calls > 1).then(|| format::count(found.calls))),
    ];
    facts.extend(further.into_iter().filter_map(|(name, value)| Some((name, value?))));
    facts
}

/// The ways to calls that have something in common with it.
fn links(texts: &Texts, call: &CallSummary) -> Markup {
    html! {
        p {
            a href={ (tools::path_of(&call.tool)) } { (texts.get("call-tool")) } " · "
            a href=(with_query(PATH, [("tool", &*call.tool)])) { (texts.get("call-same-tool")) } " · "
            a href=(with_query(PATH, [("caller", &*call.caller)])) { (texts.get("call-same-caller")) }
            @if let Some(run) = &call.run {
                " · " a href=(with_query(PATH, [("run", &**run)])) { (texts.get("call-same-run")) }
            }
            @if let Some(code) = call.code {
                " · " a href=(failures::path_of_tool(&call.tool)) { (texts.get("call-since-when")) }
                " · " a href=(with_query(PATH, [("tool", &*call.tool), ("code", code.as_str())])) { (texts.get("call-same-failure")) }
            }
            @if let Some(session) = &call.session {
                " · " a href=(with_query(PATH, [("session", &**session)])) { (texts.get("call-same-session")) }
            }
        }
    }
}
