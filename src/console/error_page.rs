//! The page for an error: the failure, and the id by which the log has it.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use super::frame::{self, Head};
use super::visit::{Guest, Visit};
use super::{format, headers};
use sekisho_api::reply::status as status_of;
use sekisho_core::error::{CallError, ErrorCode};

/// Within the frame of the console.
pub(super) fn of_visit(visit: &Visit, error: &CallError) -> Response {
    let title = title(&visit.guest, error);
    respond(error, frame::page(visit, None, &Head::new(&title), &body(&visit.guest, error)))
}

/// For a guest, who has no navigation.
pub(super) fn of_guest(guest: &Guest, error: &CallError) -> Response {
    let title = title(guest, error);
    let page = frame::narrow(guest, &title, &html! { h1 { (title) } (body(guest, error)) });
    respond(error, page)
}

/// Nothing is at this address.
pub(super) async fn no_page(visit: Visit) -> Response {
    of_visit(&visit, &CallError::new(ErrorCode::NotFound, "there is no such page in the console"))
}

fn respond(error: &CallError, page: Markup) -> Response {
    let status = match status_of(error.code()) {
        // The codes of a tool's own failures, none of which is a page's.
        StatusCode::OK => StatusCode::INTERNAL_SERVER_ERROR,
        status => status,
    };
    if let Some(cause) = error.cause() {
        tracing::error!(code = error.code().as_str(), cause, "a page of the console failed");
    }
    (status, [(CONTENT_TYPE, headers::HTML)], page.into_string()).into_response()
}

fn title(guest: &Guest, error: &CallError) -> String {
    let id = match error.code() {
        ErrorCode::NotFound | ErrorCode::UnknownTool => "error-not-found",
        ErrorCode::Denied | ErrorCode::ToolChanged => "error-denied",
        _ => "error-failed",
    };
    guest.texts.get(id).into_owned()
}

fn body(guest: &Guest, error: &CallError) -> Markup {
    html! {
        div.notice.bad role="alert" {
            p { (format::text(error.message())) }
        }
        @if !error.alternatives().is_empty() {
            p { (guest.texts.get("error-alternatives")) " "
                @for name in error.alternatives() { (format::name(name)) " " }
            }
        }
        p.quiet { (guest.texts.get("error-request")) " " code { (guest.request_id()) } " · " code { (error.code().as_str()) } }
        p { a href="/console" { (guest.texts.get("error-back")) } }
    }
}
