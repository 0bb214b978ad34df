//! The caller's plans: list, and a new one with its goal.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use super::acts::Act;
use super::address::with_query;
use super::conversations::{Agents, agent_field, agents, encoded};
use super::export::{self, Format, Rows};
use super::frame::{self, Head, Section};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, error_page, format, list, redirect};
use sekisho_core::error::CallError;

/// Plans of a page.
const PAGE: u32 = 50;

/// What the address says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    before: String,
    format: Format,
}

/// A plan in the list, as its route gives it.
#[derive(Debug, Deserialize)]
pub(super) struct PlanSummary {
    pub id: String,
    pub goal: String,
    pub profile: String,
    pub status: String,
    pub created: String,
    pub changed: String,
}

#[derive(Debug, Deserialize)]
struct PlanList {
    plans: Vec<PlanSummary>,
    next: Option<String>,
}

/// `GET /console/plans`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    match fetch(&console, &visit, &wanted).await {
        Ok((found, agents)) if wanted.format == Format::Html => {
            visit.answer(Ok(show(&visit, &wanted, &found, &agents)))
        }
        Ok((found, _)) => rows(&found).respond(wanted.format),
        Err(error) => error_page::of_visit(&visit, &error),
    }
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
pub(super) fn status(texts: &Texts, status: &str) -> Markup {
    let (class, sign, text) = match status {
        "waiting_for_approval" => ("tag warn", "◷", "plan-waiting"),
        "running" => ("tag info", "…", "plan-running"),
        "paused" => ("tag", "‖", "plan-paused"),
        "finished" => ("tag good", "✓", "plan-finished"),
        "impossible" => ("tag bad", "✕", "plan-impossible"),
        "cancelled" => ("tag", "–", "plan-cancelled"),
        _ => ("tag bad", "✕", "plan-failed"),
    };
    html! { span class=(class) { (sign) " " (texts.get(text)) } }
}

async fn fetch(console: &Console, visit: &Visit, wanted: &Wanted) -> Result<(PlanList, Agents), CallError> {
    visit.require(Act::SeePlans)?;
    let path = with_query("/api/plans", [("limit", &*PAGE.to_string()), ("before", &*wanted.before)]);
    Ok((visit.fetch(console, &path).await?, agents(console, visit, Act::RunPlans).await?))
}

fn rows(found: &PlanList) -> Rows<'static, 6> {
    let row = |plan: &PlanSummary| {
        let PlanSummary { id, goal, profile, status, created, changed } = plan;
        [json!(id), json!(goal), json!(status), json!(profile), json!(created), json!(changed)]
    };
    Rows {
        name: "plans",
        columns: ["id", "goal", "status", "agent", "created", "changed"],
        rows: found.plans.iter().map(row).collect(),
    }
}

fn show(visit: &Visit, wanted: &Wanted, found: &PlanList, agents: &Agents) -> Markup {
    let texts = visit.texts();
    let waiting = found.plans.iter().filter(|plan| plan.status == "waiting_for_approval").count();
    let running = found.plans.iter().filter(|plan| plan.status == "running").count();
    let state = texts.with("plans-state", [("running", running.into()), ("waiting", waiting.into())]);
    let title = texts.get("nav-plans");
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    let address = |before: &str| with_query("/console/plans", [("before", before)]);
    frame::page(
        visit,
        Some(Section::Plans),
        &head,
        &html! {
            @if let (Some(token), true) = (visit.form_token(), visit.may(Act::RunPlans)) {
                (new_form(&texts, &token, agents))
            }
            @if found.plans.is_empty() {
                div.empty { p { (texts.get("plans-none")) } p { code { "POST /api/plans" } } }
            } @else {
                (table(&texts, &found.plans))
                (export::links(&texts, &address(&wanted.before)))
            }
            @if let Some(next) = &found.next {
                (list::older(&texts, &address(next)))
            }
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

fn table(texts: &Texts, plans: &[PlanSummary]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-plans")) {
            table.list.cards {
                thead { tr {
                    th scope="col" { (texts.get("plan-goal")) }
                    th scope="col" { (texts.get("tool-state")) }
                    th scope="col" { (texts.get("agent-name")) }
                    th scope="col" { (texts.get("column-changed")) }
                } }
                tbody { @for plan in plans {
                    tr {
                        th.text scope="row" { a href=(path_of(&plan.id)) { (format::first_line(&plan.goal)) } }
                        td { (status(texts, &plan.status)) }
                        td { code { (plan.profile) } }
                        td { (format::moment(texts, &plan.changed)) }
                    }
                } }
            }
        }
    }
}
