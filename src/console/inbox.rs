//! The inbox: what waits for the visitor. Calls to approve, several at once; paused runs; what does not work; quarantined tools;
//! sessions that end soon.

mod approvals;
mod others;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

#[cfg(feature = "agent")]
pub(super) use self::others::continue_form;
use super::acts::Act;
use super::address::encoded;
use super::approval::decides;
use super::frame::{self, Head, Section};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, Visit, Watcher};
use super::{Console, format, redirect};
use sekisho_api::list::Page;
use sekisho_api::reply::status as status_of;
use sekisho_core::error::{CallError, ErrorCode};

pub(super) const PATH: &str = "/console/inbox";

/// The calls that the number in the navigation counts.
const PENDING: &str = "/approvals?status=pending&limit=100";

/// The field of a chosen call: its id, and after a space the digest of the arguments that the page shows.
const CHOSEN_FIELD: &str = "chosen";

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    /// How many calls were decided.
    decided: usize,
}

/// A call about which nothing was decided, and why.
struct Failure {
    id: String,
    error: CallError,
}

/// `GET /console/inbox`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    let page = show(&console, &visit, wanted.decided, &[]).await;
    visit.answer(page)
}

/// `POST /console/inbox`: approves or denies the chosen calls, as the button's value says.
pub(super) async fn decide(State(console): State<Arc<Console>>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::DecideApprovals).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let page = match decide_all(&console, &form).await {
        Ok((decided, failed)) if failed.is_empty() => return redirect(&format!("{PATH}?decided={decided}")),
        Ok((0, failed)) => {
            let page = show(&console, &form.visit, 0, &failed).await;
            let mut response = form.visit.answer(page);
            *response.status_mut() = failed.first().map_or(StatusCode::OK, |first| status_of(first.error.code()));
            return response;
        }
        Ok((decided, failed)) => show(&console, &form.visit, decided, &failed).await,
        Err(error) => Err(error),
    };
    form.visit.answer(page)
}

/// `GET /console/inbox/count`: how many calls and runs wait for the visitor. An open page asks it, and so learns that its session
/// has ended, too: `signed_in` says that it had one.
pub(super) async fn count(
    State(console): State<Arc<Console>>,
    Watcher(visit): Watcher,
    Address(page): Address<Counting>,
) -> Response {
    if page.signed_in && visit.caller.anonymous {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let mut waiting = 0;
    for (counts, route) in [(decides(&visit), PENDING), (visit.may(Act::SeeConversations), others::PAUSED)] {
        if counts && let Ok(page) = visit.fetch::<Page<Value>>(&console, route).await {
            waiting += page.items.len();
        }
    }
    Json(json!({"waiting": waiting})).into_response()
}

/// The fields of the address of the count.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Counting {
    signed_in: bool,
}

/// The number beside the entry of the navigation; the script fills it.
pub(super) fn count_of(visit: &Visit) -> Markup {
    let texts = visit.texts();
    let query = if visit.form_token().is_some() { "?signed_in=true" } else { "" };
    html! {
        inbox-count src={ (PATH) "/count" (query) } data-ended=(texts.get("inbox-ended")) data-sign-in=(texts.get("frame-sign-in")) {}
    }
}

/// Decides about each chosen call by itself: one that cannot be decided does not hold the others up.
async fn decide_all(console: &Console, form: &Submitted) -> Result<(usize, Vec<Failure>), CallError> {
    let act = form.field("act");
    if !["approve", "deny"].contains(&act) {
        let message = "the form says nothing to decide; open the page again";
        return Err(CallError::new(ErrorCode::InvalidRequest, message));
    }
    if form.all(CHOSEN_FIELD).next().is_none() {
        let message = "no call is chosen; go back and choose those that you decide about";
        return Err(CallError::new(ErrorCode::InvalidRequest, message));
    }
    let (mut decided, mut failed) = (0, Vec::new());
    for chosen in form.all(CHOSEN_FIELD).take(approvals::MAX) {
        let (id, seen) = chosen.split_once(' ').unwrap_or((chosen, ""));
        let body = match act {
            "approve" => {
                let seen = Some(seen).filter(|seen| !seen.is_empty());
                json!({"reason": form.field("reason"), "scope": "once", "arguments_sha256": seen})
            }
            _ => json!({"reason": form.field("reason")}),
        };
        let route = format!("/approvals/{}/{act}", encoded(id));
        match form.visit.change(console, Method::POST, &route, Some(&body)).await {
            Ok(_) => decided += 1,
            Err(error) => failed.push(Failure { id: id.to_owned(), error }),
        }
    }
    Ok((decided, failed))
}

async fn show(console: &Console, visit: &Visit, decided: usize, failed: &[Failure]) -> Result<Markup, CallError> {
    visit.require(Act::SeeApprovals)?;
    let texts = visit.texts();
    let approvals = approvals::section(console, visit).await?;
    let others = others::sections(console, visit).await;
    let title = texts.get("nav-inbox");
    let head = Head {
        state: Some(html! { (texts.get("inbox-state")) }),
        action: Some(html! { a.button href="/console/approvals?status=any" { (texts.get("inbox-all-approvals")) } }),
        ..Head::new(&title)
    };
    Ok(frame::page(
        visit,
        Some(Section::Inbox),
        &head,
        &html! {
            (outcome(&texts, decided, failed))
            div #inbox { (approvals) (others) }
        },
    ))
}

fn outcome(texts: &Texts, decided: usize, failed: &[Failure]) -> Markup {
    html! {
        @if decided > 0 {
            p.notice.good role="status" { "✓ " (texts.with("inbox-decided", [("n", decided.into())])) }
        }
        @if !failed.is_empty() {
            div.notice.bad #problems tabindex="-1" role="alert" {
                p { (texts.get("inbox-failed")) }
                ul { @for Failure { id, error } in failed {
                    li { a href=(super::approvals::path_of(id)) { code { (format::text(id)) } } " " (format::text(error.message())) }
                } }
            }
        }
    }
}
