//! The search over the console: any id opens its page; tools, servers and pages are found by a part of their names.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::frame::{self, Head};
use super::visit::{Address, Visit};
use super::{Console, calls, format, interpreter_sessions, list, navigation, redirect, servers, tools};
use sekisho_core::call::CallId;
use sekisho_sandbox::SessionInfo;

pub(super) const PATH: &str = "/console/search";

/// Maximum tools and servers that are listed.
const MAX_NAMES: usize = 20;

/// An id is not longer.
const MAX_ID: usize = 200;

/// Things with an id: the id of the text that names the kind, the route that knows one, its page, and who sees it.
const KINDS: [(&str, &str, &str, Act); 5] = [
    ("search-approval", "/approvals/", "/console/approvals/", Act::SeeApprovals),
    ("search-conversation", "/api/conversations/", "/console/conversations/", Act::SeeConversations),
    ("search-plan", "/api/plans/", "/console/plans/", Act::SeePlans),
    ("search-program-run", "/runs/", "/console/program-runs/", Act::SeeRuns),
    ("search-key", "/admin/keys/", "/console/keys/", Act::ManageKeys),
];

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    q: String,
    /// Whether the only thing found, or the one with exactly this id or name, is opened at once.
    open: String,
}

/// Something found.
#[derive(Debug, PartialEq, Eq)]
struct Hit {
    /// The id of the text that names the kind.
    kind: &'static str,
    name: String,
    path: String,
    /// Whether it has exactly this id or name.
    is_exact: bool,
    /// The key that opens it after `g`.
    key: Option<char>,
}

/// `GET /console/search`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    let query = wanted.q.trim();
    let mut found = by_id(&console, &visit, query).await;
    found.extend(by_name(&console, &visit, query).await);
    match one_of(&found).filter(|_| !wanted.open.is_empty() && !query.is_empty()) {
        Some(hit) => redirect(&hit.path),
        None => visit.answer(Ok(show(&visit, query, &found))),
    }
}

/// The one that is meant: the only exact one, or the only one.
fn one_of(found: &[Hit]) -> Option<&Hit> {
    let mut exact = found.iter().filter(|hit| hit.is_exact);
    match (exact.next(), exact.next(), found) {
        (Some(hit), None, _) | (None, None, [hit]) => Some(hit),
        _ => None,
    }
}

/// The things with this id that the visitor may see. A route that refuses has none for them.
async fn by_id(console: &Console, visit: &Visit, id: &str) -> Vec<Hit> {
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if id.is_empty() || id.len() > MAX_ID || !id.bytes().all(is_id) {
        return Vec::new();
    }
    let hit = |kind: &'static str, path: String| Hit { kind, name: id.to_owned(), path, is_exact: true, key: None };
    let mut found = Vec::new();
    let is_of_call = visit.may(Act::SeeCalls) && serde_json::from_value::<CallId>(id.into()).is_ok();
    if is_of_call && let Ok(call) = console.gateway.history().call(&visit.caller, id).await {
        found.push(hit("search-call", calls::path_of(call.call.id)));
    }
    for (kind, route, page, act) in KINDS {
        let route = format!("{route}{}", encoded(id));
        if visit.may(act) && visit.fetch::<Value>(console, &route).await.is_ok() {
            found.push(hit(kind, format!("{page}{}", encoded(id))));
        }
    }
    // By the list: the route of one session runs our code in it.
    let sessions = list::fetch_all::<SessionInfo>(console, visit, Act::SeeSessions, &[]).await.unwrap_or_default();
    if sessions.iter().any(|session| session.session == *id) {
        found.push(hit("search-session", interpreter_sessions::path_of(id)));
    }
    // A run in the background that has not begun is shown by its conversation.
    if visit.may(Act::SeeConversations)
        && let Ok(run) = visit.fetch::<Value>(console, &format!("/api/runs/{}", encoded(id))).await
        && let Some(conversation) = run["conversation_id"].as_str()
    {
        let page = match run.get("run_id") {
            Some(Value::Null) => format!("/console/conversations/{}", encoded(conversation)),
            _ => format!("/console/runs/{}", encoded(id)),
        };
        found.push(hit("search-run", page));
    }
    found
}

/// The tools, servers and pages with this part in their names.
async fn by_name(console: &Console, visit: &Visit, query: &str) -> Vec<Hit> {
    let (lower, texts) = (query.to_lowercase(), visit.texts());
    let fits = |name: &str| name.to_lowercase().contains(&lower);
    let hit = |kind, name: &str, path| Hit { kind, name: name.to_owned(), path, is_exact: name == query, key: None };
    let mut found = Vec::new();
    if !query.is_empty() && visit.may(Act::SeeTools) {
        let offered = console.gateway.pipeline.tools_for(&visit.caller);
        let names = offered.visible().map(|(tool, _)| tool.name()).filter(|name| fits(name)).take(MAX_NAMES);
        found.extend(names.map(|name| hit("search-tool", name, tools::path_of(name))));
    }
    if !query.is_empty() && visit.may(Act::SeeServers) {
        let sources = console.gateway.sources().list(&visit.caller).await;
        let sources = sources.iter().filter(|source| fits(&source.name)).take(MAX_NAMES);
        found.extend(
            sources.map(|source| hit("search-server", &source.name, servers::path_of(source.kind, &source.name))),
        );
    }
    let pages = navigation::entries(visit).map(|entry| (entry, texts.get(entry.text)));
    found.extend(
        pages
            .filter(|(_, name)| fits(name))
            .map(|(entry, name)| Hit { key: Some(entry.key), ..hit("search-page", &name, entry.path.to_owned()) }),
    );
    found
}

fn show(visit: &Visit, query: &str, found: &[Hit]) -> Markup {
    let texts = visit.texts();
    let title = texts.get("search-title");
    let head = Head { state: Some(html! { (texts.get("search-state")) }), ..Head::new(&title) };
    frame::page(
        visit,
        None,
        &head,
        &html! {
            form.filters method="get" action=(PATH) role="search" aria-labelledby="q-label" data-follows {
                div.field.wide {
                    label #q-label for="q" { (texts.get("filter-search")) }
                    input #q type="search" name="q" value=(query) autocomplete="off" spellcheck="false" data-search;
                }
                button name="open" value="1" { (texts.get("search-open")) }
            }
            div #found {
                @if found.is_empty() { p.quiet role="status" { (texts.get("search-none")) } }
                ul.lines { @for Hit { kind, name, path, key, .. } in found {
                    li {
                        a href=(path) { (format::text(name)) }
                        span.quiet { (texts.get(kind)) @if let Some(key) = key { " " code { "g " (key) } } }
                    }
                } }
                @if !query.is_empty() && visit.may(Act::SeeCalls) {
                    p { a href=(with_query("/console/calls", [("q", query)])) { (texts.get("search-calls")) } }
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_opened_at_once_is_the_one_that_is_meant() {
        let hit =
            |path: &str, is_exact| Hit { kind: "", name: String::new(), path: path.to_owned(), is_exact, key: None };
        for (found, opened) in [
            (vec![], None),
            (vec![hit("a", false)], Some("a")),
            (vec![hit("a", false), hit("b", false)], None),
            (vec![hit("a", false), hit("b", true)], Some("b")),
            (vec![hit("a", true), hit("b", true)], None),
        ] {
            assert_eq!(one_of(&found).map(|hit| &*hit.path), opened, "{found:?}");
        }
    }
}
