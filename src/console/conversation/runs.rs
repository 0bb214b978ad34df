//! The runs of a conversation: ended runs, the run that is on, and the call about which that run waits for a decision.

use maud::{Markup, html};

use crate::Console;
use crate::address::encoded;
use crate::chat::pretty;
use crate::export;
use crate::format;
use crate::list::{self, Table};
use crate::run;
use crate::text::Texts;
use crate::visit::{TOKEN_FIELD, Visit};
use sekisho_agent::conversation::UnknownCall;
use sekisho_agent_api::RunBody;
use sekisho_api::list::Page;
use sekisho_core::error::CallError;

/// Runs that are listed.
const PAGE: u32 = 20;

/// Runs of a conversation, before the one with this number.
/// Errors: the error of the route.
pub(super) async fn fetch(
    console: &Console,
    visit: &Visit,
    route: &str,
    before: Option<i64>,
) -> Result<Page<RunBody>, CallError> {
    let after = before.map(|before| format!("&after={before}")).unwrap_or_default();
    visit.fetch(console, &format!("{route}/runs?limit={PAGE}{after}")).await
}

/// The call about which a run waits for a decision.
/// Errors: the error of the route.
pub(super) async fn waits_for(console: &Console, visit: &Visit, run: &str) -> Result<Option<UnknownCall>, CallError> {
    let run: RunBody = visit.fetch(console, &format!("/api/runs/{}", encoded(run))).await?;
    Ok(run.waits_for)
}

/// A run that is on, and grows with the script.
pub(super) fn running(
    texts: &Texts,
    path: &str,
    run: &str,
    asked: Option<&UnknownCall>,
    token: Option<&str>,
) -> Markup {
    html! {
        live-run.message.assistant src={ "/console/runs/" (run) "/events" } data-page=(path) aria-live="polite" {
            p.who-says { (texts.get("chat-agent")) " · " (texts.get("run-running")) }
            noscript { p { a href={ (path) "?run=" (run) "#end" } { (texts.get("chat-reload")) } } }
        }
        div #decision { @if let Some(call) = asked { (decision(texts, path, run, call, token)) } }
        @if let Some(token) = token {
            form method="post" action=(path) {
                input type="hidden" name=(TOKEN_FIELD) value=(token);
                input type="hidden" name="run" value=(run);
                button name="act" value="cancel" { (texts.get("run-cancel")) }
            }
        }
    }
}

/// The call that may have happened, and whether it is sent again.
fn decision(texts: &Texts, path: &str, run: &str, call: &UnknownCall, token: Option<&str>) -> Markup {
    html! {
        section.notice.warn.stack role="alert" aria-labelledby="decision-title" {
            h2 #decision-title { "◷ " (texts.get("decision-title")) }
            p { (format::name(&call.tool_name)) ": " (format::text(&call.reason)) }
            p.who-says { (texts.get("schema-title")) }
            pre tabindex="0" { code { (pretty(&call.tool_input)) } }
            @if let Some(token) = token {
                form.stack method="post" action=(path) {
                    input type="hidden" name=(TOKEN_FIELD) value=(token);
                    input type="hidden" name="run" value=(run);
                    input type="hidden" name="call_id" value=(call.call_id);
                    div.buttons {
                        button name="act" value="skip" { (texts.get("decision-skip")) }
                        button.danger name="act" value="repeat" { (texts.get("decision-repeat")) }
                    }
                    p.help { (texts.get("decision-help")) }
                }
            }
        }
    }
}

/// The runs before the one with this number. `path` is the conversation's.
pub(super) fn table(texts: &Texts, path: &str, before: Option<i64>, page: &Page<RunBody>) -> Markup {
    let address = |before: Option<&str>| match before {
        Some(before) => format!("{path}?runs_before={before}"),
        None => path.to_owned(),
    };
    let steps = |run: &RunBody| html! { a href=(run::path_of(&run.id)) { (texts.get("run-steps")) } };
    let shown = Table {
        cell: |texts, run: &RunBody, column| {
            let error = run.error.as_ref().map(|error| (&*error.code, &*error.message));
            (column.name == "status").then(|| outcome(texts, &run.status, error))
        },
        action: Some(("timeline-title", &steps)),
        ..Table::new(texts, "runs-title", ("overview-nothing", "POST /api/conversations/{id}/execute"))
    };
    html! {
        @if !page.items.is_empty() {
            section aria-labelledby="runs" {
                h2 #runs { (texts.get("runs-title")) }
                (shown.table(&page.items))
                (export::links(texts, &address(before.map(|before| before.to_string()).as_deref())))
                @if let Some(next) = &page.next { (list::older(texts, &format!("{}#runs", address(Some(next))))) }
            }
        }
    }
}

/// The status of a run, and the code and the message of its error.
pub(crate) fn outcome(texts: &Texts, status: &str, error: Option<(&str, &str)>) -> Markup {
    let (class, sign, text) = match status {
        "queued" => ("tag", "…", "run-queued"),
        "running" => ("tag", "…", "run-running"),
        "succeeded" => ("tag good", "✓", "status-success"),
        "cancelled" => ("tag", "–", "status-cancelled"),
        "timed_out" => ("tag bad", "✕", "run-timed-out"),
        "paused" => ("tag warn", "◷", "plan-paused"),
        "interrupted" => ("tag warn", "▲", "run-interrupted"),
        _ => ("tag bad", "✕", "status-error"),
    };
    html! {
        span class=(class) { (sign) " " (texts.get(text)) }
        @if let Some((code, message)) = error { " " code.quiet title=(format::text(message)) { (code) } }
    }
}
