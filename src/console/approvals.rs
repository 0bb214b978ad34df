//! Calls that a person must approve: the queue of waiting calls, and by its filters decided ones.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::export::Format;
use super::frame::{self, Head, Section};
use super::list::Table;
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, format, list};
use sekisho_api::ApprovalBody;
use sekisho_api::column::Column;
use sekisho_api::list::Page;
use sekisho_core::approval::ApprovalState;
use sekisho_core::error::CallError;

const PATH: &str = "/console/approvals";

/// The filter for approvals in all states.
const ANY: &str = "any";

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    status: String,
    tool: String,
    caller: String,
    /// `next` of the page before.
    after: String,
    format: Format,
}

/// `GET /console/approvals`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    let found = fetch(&console, &visit, &wanted).await;
    list::respond(&visit, wanted.format, found, |found| &found.items, |found| show(&visit, &wanted, found))
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

async fn fetch(console: &Console, visit: &Visit, wanted: &Wanted) -> Result<Page<ApprovalBody>, CallError> {
    let fields = [
        ("status", wanted.state().map_or("", ApprovalState::as_str)),
        ("tool", wanted.tool.trim()),
        ("caller", wanted.caller.trim()),
        ("after", &*wanted.after),
    ];
    list::fetch(console, visit, Act::SeeApprovals, &fields).await
}

impl Wanted {
    /// The wanted state: without a filter the waiting approvals, `None` for all.
    fn state(&self) -> Option<ApprovalState> {
        match self.status.as_str() {
            ANY => None,
            status => Some(ApprovalState::parse(status).unwrap_or(ApprovalState::Pending)),
        }
    }

    /// The same filters at another place in the list.
    fn address(&self, after: &str) -> String {
        let fields = [("status", &*self.status), ("tool", &*self.tool), ("caller", &*self.caller), ("after", after)];
        with_query(PATH, fields)
    }
}

fn show(visit: &Visit, wanted: &Wanted, found: &Page<ApprovalBody>) -> Markup {
    let texts = visit.texts();
    let pending = found.items.iter().filter(|approval| approval.status == ApprovalState::Pending);
    let waiting: u64 = pending.map(|approval| approval.calls).sum();
    let state = texts.with("approvals-state", [("waiting", waiting.into())]);
    let title = texts.get("nav-approvals");
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    let table = Table {
        help: Some("approvals-keys"),
        has_row_keys: true,
        link: Some(|approval: &ApprovalBody| path_of(&approval.id)),
        cell,
        ..Table::new(&texts, "nav-approvals", ("approvals-none", "sekisho approvals"))
    };
    let content = table.show_page(found, &wanted.after, |after| wanted.address(after), list::older);
    frame::page(visit, Some(Section::Inbox), &head, &html! { (filters(&texts, wanted)) (content) })
}

fn cell(texts: &Texts, approval: &ApprovalBody, column: &Column) -> Option<Markup> {
    let ApprovalBody { caller, reasons, .. } = approval;
    match column.name {
        "status" => Some(status(texts, approval.status)),
        "caller" => Some(html! { (format::name(&caller.id)) " " span.quiet { (format::text(&caller.tenant)) } }),
        "reasons" => Some(html! { (format::first_line(&reasons.join("; "))) }),
        _ => None,
    }
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
