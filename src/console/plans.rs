//! The caller's plans: list, and a new one with its goal.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::json;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::conversations::{Agents, agent_field, agents};
use super::frame::{self, Head, Section};
use super::list::{ListAddress, Table};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, error_page, list, redirect};
use sekisho_agent::plan::PlanStatus;
use sekisho_agent_api::PlanSummary;
use sekisho_api::list::Page;
use sekisho_core::error::CallError;

/// `GET /console/plans`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(ListAddress { after, format }): Address<ListAddress>,
) -> Response {
    let found = fetch(&console, &visit, &after).await;
    list::respond(
        &visit,
        format,
        found,
        |(found, _)| &found.items,
        |(found, agents)| show(&visit, &after, found, agents),
    )
}

/// `POST /console/plans`: begins one.
pub(super) async fn create(State(console): State<Arc<Console>>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::RunPlans).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let body = json!({
        "goal": form.text("goal").unwrap_or_default(),
        "profile": form.text("agent"),
        "approve_plan": form.text("approve").is_some(),
    });
    match form.visit.change(&console, Method::POST, "/api/plans", Some(&body)).await {
        Ok(plan) => redirect(&path_of(plan["id"].as_str().unwrap_or_default())),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

/// The address of a plan's page.
pub(super) fn path_of(id: &str) -> String {
    format!("/console/plans/{}", encoded(id))
}

/// Whether it is on, in a word with a sign.
pub(super) fn status(texts: &Texts, status: PlanStatus) -> Markup {
    let (class, sign, text) = match status {
        PlanStatus::WaitingForApproval => ("tag warn", "◷", "plan-waiting"),
        PlanStatus::Running => ("tag info", "…", "plan-running"),
        PlanStatus::Paused => ("tag", "‖", "plan-paused"),
        PlanStatus::Finished => ("tag good", "✓", "plan-finished"),
        PlanStatus::Impossible => ("tag bad", "✕", "plan-impossible"),
        PlanStatus::Cancelled => ("tag", "–", "plan-cancelled"),
        PlanStatus::Failed => ("tag bad", "✕", "plan-failed"),
    };
    html! { span class=(class) { (sign) " " (texts.get(text)) } }
}

async fn fetch(console: &Console, visit: &Visit, after: &str) -> Result<(Page<PlanSummary>, Agents), CallError> {
    let found = list::fetch(console, visit, Act::SeePlans, &[("after", after)]).await?;
    Ok((found, agents(console, visit, Act::RunPlans).await?))
}

fn show(visit: &Visit, after: &str, found: &Page<PlanSummary>, agents: &Agents) -> Markup {
    let texts = visit.texts();
    let count = |status: PlanStatus| found.items.iter().filter(|plan| plan.status == status).count();
    let (waiting, running) = (count(PlanStatus::WaitingForApproval), count(PlanStatus::Running));
    let state = texts.with("plans-state", [("running", running.into()), ("waiting", waiting.into())]);
    let title = texts.get("nav-plans");
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    let table = Table {
        link: Some(|plan: &PlanSummary| path_of(&plan.id)),
        cell: |texts, plan, column| (column.name == "status").then(|| status(texts, plan.status)),
        ..Table::new(&texts, "nav-plans", ("plans-none", "POST /api/plans"))
    };
    let address = |after: &str| with_query("/console/plans", [("after", after)]);
    frame::page(
        visit,
        Some(Section::Plans),
        &head,
        &html! {
            @if let (Some(token), true) = (visit.form_token(), visit.may(Act::RunPlans)) {
                (new_form(&texts, &token, agents))
            }
            (table.show_page(found, after, address, list::older))
        },
    )
}

fn new_form(texts: &Texts, token: &str, agents: &Agents) -> Markup {
    html! {
        section.panel aria-labelledby="new" {
            h2 #new { (texts.get("plan-new")) }
            form.stack method="post" action="/console/plans" {
                input type="hidden" name=(TOKEN_FIELD) value=(token);
                div.field {
                    label for="goal" { (texts.get("plan-goal")) }
                    textarea.prose #goal name="goal" rows="3" required data-search {}
                }
                (agent_field(texts, agents))
                label.choice { input type="checkbox" name="approve" value="true" checked; (texts.get("plan-approve-first")) }
                div.buttons { button.main { (texts.get("plan-begin")) } }
            }
        }
    }
}
