//! The differences from `tools.lock`, side by side, and their approval.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::acts::Act;
use crate::address::with_query;
use crate::export::{self, Format, Rows};
use crate::frame::{self, Head, Section};
use crate::list::Page;
use crate::submitted::Submitted;
use crate::text::Texts;
use crate::visit::{Address, TOKEN_FIELD, Visit};
use crate::{Console, error_page, format, redirect};
use sekisho_api::record_change;
use sekisho_audit::EventKind;
use sekisho_calls::registry::lock::{Change, Difference, Pin, escape_hidden};
use sekisho_core::administration::{AdministratorProof, SharedAdministrator};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{Approval, LockReview};

const PATH: &str = "/console/servers/lock";

/// The field with the name of a tool and the hash of its seen state.
const APPROVED: &str = "approved";

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Done {
    done: String,
    page: usize,
    format: Format,
}

/// `GET /console/servers/lock`.
pub async fn page(State(console): State<Arc<Console>>, visit: Visit, Address(done): Address<Done>) -> Response {
    let allowed = visit.require(Act::ChangeServers).and_then(|()| SharedAdministrator::of(&visit.caller));
    let review = match allowed {
        Ok(_) => console.gateway.tool_offer().review_lock().await,
        Err(error) => Err(error),
    };
    match (review, done.format) {
        (Ok(Some(review)), format) if format != Format::Html => rows(&review).respond(format),
        (review, _) => visit.answer(review.map(|review| show(&visit, review.as_ref(), &done))),
    }
}

/// A row for each changed place of a tool, and one for a tool that was added or removed.
fn rows(review: &LockReview) -> Rows<'static, 6> {
    let mut rows = Vec::new();
    for difference in &review.differences {
        let row = |place: &str, before: Option<&Value>, after: Option<&Value>| {
            let Difference { tool, change, quarantined, .. } = difference;
            let change = json!(change)["change"].take();
            [json!(tool), change, json!(quarantined), json!(place), json!(before), json!(after)]
        };
        match difference.edits.as_slice() {
            [] => rows.push(row("", None, None)),
            edits => rows.extend(edits.iter().map(|edit| row(&edit.path, edit.before.as_ref(), edit.after.as_ref()))),
        }
    }
    Rows { name: "lock", columns: ["tool", "change", "quarantined", "place", "before", "after"], rows }
}

/// `POST /console/servers/lock`.
pub(crate) async fn approve(State(console): State<Arc<Console>>, request: Request) -> Response {
    let submitted = match Submitted::read(&console, request, Act::ChangeServers).await {
        Ok(submitted) => submitted,
        Err(response) => return response,
    };
    match apply(&console, &submitted).await {
        Ok(response) => response,
        Err(error) => error_page::of_visit(&submitted.visit, &error),
    }
}

async fn apply(console: &Console, submitted: &Submitted) -> Result<Response, CallError> {
    let by = submitted.shared_administrator()?;
    let approvals: Vec<_> = submitted.all(APPROVED).map(read_approval).collect();
    if approvals.is_empty() {
        return Err(CallError::new(
            ErrorCode::InvalidRequest,
            "no tool was chosen; go back and choose those to approve",
        ));
    }
    let subject = approvals.iter().map(|approval| &*approval.tool).collect::<Vec<_>>().join(", ");
    let service = Arc::clone(&console.gateway);
    let change = Box::pin(async move { service.tool_offer().approve(by, &approvals).await });
    record_change(&console.gateway, submitted.event(EventKind::LockApproved, &subject), change).await?;
    Ok(redirect(&format!("{PATH}?done=approved")))
}

/// `HASH NAME`; a tool that was removed has no hash.
fn read_approval(field: &str) -> Approval {
    let (hash, tool) = field.split_once(' ').unwrap_or(("", field));
    Approval { tool: tool.to_owned(), hash: hash.to_owned() }
}

fn show(visit: &Visit, review: Option<&LockReview>, done: &Done) -> Markup {
    let texts = visit.texts();
    let title = texts.get("servers-differences");
    let count = review.map_or(0, |review| review.differences.len());
    let state = html! { (texts.with("lock-state", [("count", count.into())])) };
    let head = Head { state: review.is_some().then_some(state), ..Head::new(&title) };
    frame::page(
        visit,
        Some(Section::Servers),
        &head,
        &html! {
            @if done.done == "approved" { p.notice role="status" { "✓ " (texts.get("lock-approved")) } }
            @match review {
                None => { div.empty { p { (texts.get("lock-none")) } p { code { "sekisho lock" } } } },
                Some(review) => { (differences(visit, review, done.page)) },
            }
        },
    )
}

fn differences(visit: &Visit, review: &LockReview, page: usize) -> Markup {
    let texts = visit.texts();
    let shown = Page::of(&review.differences, page);
    let address = |page: usize| with_query(PATH, [("page", &*page.to_string())]);
    html! {
        @for (source, reason) in &review.out_of_reach {
            p.notice.warn { "▲ " (texts.get("lock-not-compared")) " " strong { (format::text(source)) } ": " (format::text(reason)) }
        }
        @if review.differences.is_empty() {
            div.empty { p { "✓ " (texts.get("lock-same")) } }
        } @else {
            form.stack method="post" action=(PATH) {
                input type="hidden" name=(TOKEN_FIELD) value=(visit.form_token().unwrap_or_default());
                @for difference in shown.entries { (one(&texts, review, difference)) }
                div.buttons { button.main { (texts.get("lock-approve")) } }
                p.help { (texts.get("lock-help")) }
            }
            (shown.links(&texts, address))
            (export::links(&texts, &address(shown.at)))
        }
    }
}

fn one(texts: &Texts, review: &LockReview, difference: &Difference) -> Markup {
    let tool = &difference.tool;
    let change = match &difference.change {
        Change::Added => "lock-added",
        Change::Removed => "lock-removed",
        Change::Changed => "lock-changed",
        Change::Renamed { .. } => "lock-renamed",
    };
    let flags = review.pins.get(tool).map(Pin::flags).unwrap_or_default();
    let is_new = difference.change == Change::Added;
    html! {
        fieldset.difference {
            legend {
                label { input type="checkbox" name=(APPROVED) value={ (review.hash_of(difference)) " " (tool) }; " " (format::name(tool)) }
                " " span.tag { (texts.get(change)) }
                @if let Change::Renamed { from } = &difference.change { " " (format::name(from)) }
                @if difference.quarantined { " " span.tag.warn { "⊘ " (texts.get("lock-quarantined")) } }
            }
            p.quiet { code { (hidden(&difference.origin)) } }
            @if !flags.is_empty() {
                div.notice.warn { p { (texts.get("tool-flags")) }
                    ul { @for flag in &flags { li { code { (hidden(&flag.path)) } " " (hidden(&flag.message)) } } } }
            }
            @if let (true, Some(pin)) = (is_new, review.pins.get(tool)) { p.description { (hidden(pin.description())) } }
            @if !difference.edits.is_empty() {
                div.scroll tabindex="0" role="region" aria-label=(format::text(tool)) {
                    table.compare {
                        thead { tr {
                            th scope="col" { (texts.get("lock-place")) }
                            th scope="col" { (texts.get("lock-before")) }
                            th scope="col" { (texts.get("lock-after")) }
                        } }
                        tbody { @for edit in &difference.edits { tr {
                            th scope="row" { code { (hidden(&edit.path)) } }
                            td.before { (value(edit.before.as_ref())) }
                            td.after { (value(edit.after.as_ref())) }
                        } } }
                    }
                }
            }
        }
    }
}

/// A text as it is, anything else as JSON.
fn value(value: Option<&Value>) -> Markup {
    html! {
        @match value {
            None => { "–" },
            Some(Value::String(text)) => { span.value { (hidden(text)) } },
            Some(other) => { code.value { (hidden(&serde_json::to_string_pretty(other).unwrap_or_default())) } },
        }
    }
}

/// Text from a tool, so that nothing in it is hidden. Line breaks stay.
fn hidden(text: &str) -> String {
    text.split('\n').map(escape_hidden).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_in_a_text_is_shown() {
        let shown = hidden("a\u{200b}b\nc\u{202e}d");
        assert!(shown.contains('\n') && !shown.contains(['\u{200b}', '\u{202e}']), "{shown}");
    }

    #[test]
    fn an_approval_names_what_was_seen() {
        let read = read_approval("sha256:00 api__search");
        assert_eq!(read, Approval { tool: "api__search".into(), hash: "sha256:00".into() });
        assert_eq!(read_approval(" gone").hash, "");
    }
}
