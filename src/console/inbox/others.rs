//! What waits besides approvals: paused runs, what does not work, quarantined tools, sessions that end soon.

use maud::{Markup, html};
use serde_json::Value;

use crate::acts::Act;
use crate::address::encoded;
use crate::interpreter_sessions;
use crate::list;
use crate::overview::degraded_parts;
use crate::text::Texts;
use crate::visit::{TOKEN_FIELD, Visit};
use crate::{Console, format, tools};
use sekisho_api::list::Page;
use sekisho_sandbox::{SessionInfo, SessionPlace};

/// The route of the visitor's paused runs.
pub(super) const PAUSED: &str = "/api/runs/paused";

/// A session that ends within so many seconds is listed.
const ENDS_SOON: u64 = 15 * 60;

/// The sections that have something. One whose route does not answer has nothing: the others are shown still.
pub(super) async fn sections(console: &Console, visit: &Visit) -> Markup {
    let texts = visit.texts();
    let runs: Option<Page<Value>> = match visit.may(Act::SeeConversations) {
        true => visit.fetch(console, PAUSED).await.ok(),
        false => None,
    };
    let runs = runs.map(|page| page.items).unwrap_or_default();
    let sessions = list::fetch_all::<SessionInfo>(console, visit, Act::SeeSessions, &[]).await.unwrap_or_default();
    // One that is stored is resumed by the next call.
    let ends_soon =
        |session: &&SessionInfo| session.place == SessionPlace::Memory && session.ends_in_seconds < ENDS_SOON;
    let sessions: Vec<_> = sessions.iter().filter(ends_soon).collect();
    let degraded = console.gateway.status().degraded();
    html! {
        @if !runs.is_empty() { (section(&texts, "paused", "inbox-paused", &paused(visit, &runs))) }
        @if !degraded.is_empty() {
            (section(&texts, "degraded", "overview-degraded", &degraded_parts(&texts, &degraded, visit.may(Act::SeeServers))))
        }
        (quarantined(console, visit))
        @if !sessions.is_empty() { (section(&texts, "sessions", "inbox-sessions", &ending(&texts, &sessions))) }
    }
}

fn section(texts: &Texts, id: &str, heading: &str, content: &Markup) -> Markup {
    html! { section aria-labelledby=(id) { h2 #(id) { (texts.get(heading)) } (content) } }
}

/// The visitor's runs that wait for an approver, each with the button that continues it once that has decided.
fn paused(visit: &Visit, runs: &[Value]) -> Markup {
    let texts = visit.texts();
    let token = visit.form_token().filter(|_| visit.may(Act::TalkToAgents));
    html! {
        ul.plain.stack { @for run in runs {
            @let path = format!("/console/conversations/{}", encoded(run["conversation_id"].as_str().unwrap_or_default()));
            li.panel {
                p { a href=(path) { (format::first_line(run["user_input"].as_str().unwrap_or_default())) } " "
                    span.quiet { (format::moment(&texts, run["created_at"].as_str().unwrap_or_default())) } }
                p.quiet { (format::text(run["error"]["message"].as_str().unwrap_or_default())) }
                @if let Some(token) = &token { (continue_form(&texts, &path, token)) }
            }
        } }
    }
}

/// The button that continues a paused run. `path`: of its conversation.
pub(crate) fn continue_form(texts: &Texts, path: &str, token: &str) -> Markup {
    html! {
        form method="post" action=(path) {
            input type="hidden" name=(TOKEN_FIELD) value=(token);
            button.main name="act" value="continue" { (texts.get("run-continue")) }
        }
    }
}

/// Tools that differ from their approved form, and so are not offered.
fn quarantined(console: &Console, visit: &Visit) -> Markup {
    let texts = visit.texts();
    let snapshot = console.gateway.pipeline.registry.snapshot();
    let held: Vec<_> = snapshot.quarantined().filter(|tool| !tool.is_hidden_from(&visit.caller)).collect();
    let approves = visit.may(Act::ChangeServers) && visit.caller.administers_shared();
    html! {
        @if !held.is_empty() {
            (section(&texts, "quarantined", "inbox-quarantined", &html! {
                ul.plain.notes { @for tool in held.iter().take(20) {
                    li { a href=(tools::path_of(tool.name())) { (format::name(tool.name())) } " " (format::text(&tool.violation.to_string())) }
                } }
                @if held.len() > 20 { p.quiet { (texts.with("list-more", [("n", (held.len() - 20).into())])) } }
                @if approves { p { a.button href="/console/servers/lock" { (texts.get("servers-differences")) } } }
            }))
        }
    }
}

fn ending(texts: &Texts, sessions: &[&SessionInfo]) -> Markup {
    html! {
        ul.lines { @for session in sessions {
            li { a href=(interpreter_sessions::path_of(&session.session)) { (format::name(&session.session)) }
                span { (interpreter_sessions::end(texts, session)) } }
        } }
    }
}
