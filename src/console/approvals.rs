//! Calls that a person must approve: the queue of those that wait, and by its filters those that were decided.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use super::acts::Act;
use super::address::with_query;
use super::conversations::encoded;
use super::export::{self, Format, Rows};
use super::frame::{self, Head, Section};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, error_page, format, list};
use sekisho_core::approval::{ApprovalScope, ApprovalState};
use sekisho_core::error::CallError;

const PATH: &str = "/console/approvals";

/// The filter for approvals in all states.
const ANY: &str = "any";

/// What the address says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    status: String,
    tool: String,
    caller: String,
    before: String,
    format: Format,
}

/// An approval, as its route gives it.
#[derive(Debug, Deserialize)]
pub(super) struct Approval {
    pub id: String,
    pub status: ApprovalState,
    pub tool: String,
    pub kind: String,
    pub target: Option<String>,
    pub caller: ApprovalCaller,
    pub reasons: Vec<String>,
    /// For approvers, where they can be opened; without them in a list.
    pub arguments: Option<Value>,
    /// What is sent; with `arguments` where they differ.
    pub sent: Option<Value>,
    /// Those that an approver put in their place.
    pub changed_arguments: Option<Value>,
    /// Says which arguments the page shows.
    pub arguments_sha256: Option<String>,
    pub session_id: Option<String>,
    pub via: String,
    pub call_id: String,
    pub created_at: String,
    pub expires_at: String,
    pub approvals_needed: u8,
    pub decisions: Vec<Decision>,
    pub scope: Option<ApprovalScope>,
    pub uses: u64,
    pub schema_hash: String,
    pub policy_version: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ApprovalCaller {
    pub id: String,
    pub tenant: String,
    pub person: String,
}

/// What one approver decided.
#[derive(Debug, Deserialize)]
pub(super) struct Decision {
    pub approver: String,
    pub person: String,
    pub approved: bool,
    pub reason: String,
    pub scope: ApprovalScope,
    pub minutes: Option<u32>,
    pub at: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ApprovalList {
    pub approvals: Vec<Approval>,
    next: Option<String>,
}

/// `GET /console/approvals`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    match fetch(&console, &visit, &wanted).await {
        Ok(found) if wanted.format == Format::Html => visit.answer(Ok(show(&visit, &wanted, &found))),
        Ok(found) => rows(&found.approvals).respond(wanted.format),
        Err(error) => error_page::of_visit(&visit, &error),
    }
}

/// The address of an approval's page.
pub(super) fn path_of(id: &str) -> String {
    format!("{PATH}/{}", encoded(id))
}

/// The state in a word with a sign.
pub(super) fn status(texts: &Texts, state: ApprovalState) -> Markup {
    let (class, sign) = match state {
        ApprovalState::Pending => ("tag warn", "◷"),
        ApprovalState::Approved | ApprovalState::Done => ("tag good", "✓"),
        ApprovalState::Executing => ("tag info", "…"),
        ApprovalState::Unknown => ("tag bad", "?"),
        ApprovalState::Denied => ("tag bad", "✕"),
        ApprovalState::Expired => ("tag", "–"),
    };
    html! { span class=(class) { (sign) " " (texts.get(state_text(state))) } }
}

/// The id of the text for a state.
fn state_text(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Pending => "approval-pending",
        ApprovalState::Approved => "approval-approved",
        ApprovalState::Executing => "approval-executing",
        ApprovalState::Done => "approval-done",
        ApprovalState::Unknown => "approval-unknown",
        ApprovalState::Denied => "approval-denied",
        ApprovalState::Expired => "approval-expired",
    }
}

async fn fetch(console: &Console, visit: &Visit, wanted: &Wanted) -> Result<ApprovalList, CallError> {
    visit.require(Act::SeeApprovals)?;
    let path = with_query(
        "/approvals",
        [
            ("status", wanted.state().map_or("", ApprovalState::as_str)),
            ("tool", wanted.tool.trim()),
            ("caller", wanted.caller.trim()),
            ("limit", &*list::PAGE.to_string()),
            ("before", &*wanted.before),
        ],
    );
    visit.fetch(console, &path).await
}

impl Wanted {
    /// The wanted state: without a filter those that wait, `None` for all.
    fn state(&self) -> Option<ApprovalState> {
        match self.status.as_str() {
            ANY => None,
            status => Some(ApprovalState::parse(status).unwrap_or(ApprovalState::Pending)),
        }
    }

    /// The same filters at another place in the list.
    fn address(&self, before: &str) -> String {
        let fields = [("status", &*self.status), ("tool", &*self.tool), ("caller", &*self.caller), ("before", before)];
        with_query(PATH, fields)
    }
}

fn rows(approvals: &[Approval]) -> Rows<'static, 9> {
    let row = |approval: &Approval| {
        let Approval { id, status, tool, caller, reasons, created_at, expires_at, uses, .. } = approval;
        [
            json!(id),
            json!(status.as_str()),
            json!(tool),
            json!(caller.id),
            json!(caller.tenant),
            json!(reasons),
            json!(created_at),
            json!(expires_at),
            json!(uses),
        ]
    };
    let columns = ["id", "status", "tool", "caller", "tenant", "reasons", "created_at", "expires_at", "uses"];
    Rows { name: "approvals", columns, rows: approvals.iter().map(row).collect() }
}

fn show(visit: &Visit, wanted: &Wanted, found: &ApprovalList) -> Markup {
    let texts = visit.texts();
    let waiting = found.approvals.iter().filter(|approval| approval.status == ApprovalState::Pending).count();
    let state = texts.with("approvals-state", [("waiting", waiting.into())]);
    let title = texts.get("nav-approvals");
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    frame::page(
        visit,
        Some(Section::Approvals),
        &head,
        &html! {
            (filters(&texts, wanted))
            @if found.approvals.is_empty() {
                div.empty { p { (texts.get("approvals-none")) } p { code { "sekisho approvals" } } }
            } @else {
                (table(&texts, &found.approvals))
                p.help { (texts.get("approvals-keys")) }
                (export::links(&texts, &wanted.address(&wanted.before)))
            }
            @if let Some(next) = &found.next {
                (list::older(&texts, &wanted.address(next)))
            }
        },
    )
}

fn filters(texts: &Texts, wanted: &Wanted) -> Markup {
    let field = |name: &str, label: &str, value: &str| list::filter_field(texts, name, label, value, "text");
    let chosen = wanted.state();
    html! {
        form.filters method="get" action=(PATH) role="search" {
            div.field {
                label for="status" { (texts.get("tool-state")) }
                select #status name="status" {
                    @for state in ApprovalState::ALL.iter().copied() {
                        option value=(state.as_str()) selected[chosen == Some(state)] { (texts.get(state_text(state))) }
                    }
                    option value=(ANY) selected[chosen.is_none()] { (texts.get("filter-any")) }
                }
            }
            (field("tool", "tool-name", &wanted.tool))
            (field("caller", "call-caller", &wanted.caller))
            button { (texts.get("filter-apply")) }
        }
    }
}

fn table(texts: &Texts, approvals: &[Approval]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-approvals")) {
            table.list.cards data-rows {
                thead { tr {
                    th scope="col" { (texts.get("tool-name")) }
                    th scope="col" { (texts.get("tool-state")) }
                    th scope="col" { (texts.get("call-caller")) }
                    th scope="col" { (texts.get("policies-reason")) }
                    th scope="col" { (texts.get("approval-asked")) }
                    th scope="col" { (texts.get("approval-expires")) }
                } }
                tbody { @for approval in approvals {
                    tr {
                        th scope="row" { a href=(path_of(&approval.id)) { (format::name(&approval.tool)) } }
                        td { (status(texts, approval.status)) }
                        td { (format::name(&approval.caller.id)) " " span.quiet { (format::text(&approval.caller.tenant)) } }
                        td.text { (format::first_line(&approval.reasons.join("; "))) }
                        td data-label=(texts.get("approval-asked")) { (format::moment(texts, &approval.created_at)) }
                        td data-label=(texts.get("approval-expires")) { (format::moment(texts, &approval.expires_at)) }
                    }
                } }
            }
        }
    }
}
