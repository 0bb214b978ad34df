//! The rules that are in force, their decisions, and the stage that would stop a call. All of a question is in the
//! address.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::acts::Act;
use super::address::with_query;
use super::call_path::CallPath;
use super::export::{self, Format};
use super::frame::{self, Head, Section};
use super::list::Table;
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, format};
use sekisho_calls::pipeline::StageVerdict;
use sekisho_calls::policy::{PolicyRule, PolicySummary};
use sekisho_core::call::Arguments;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;
use sekisho_gateway::{DecisionCount, Explained};

const PATH: &str = "/console/policies";

/// The fields of the address: the call to explain, and the part of the lists.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Question {
    /// The page of the rules.
    page: usize,
    /// The page of the decisions.
    decisions: usize,
    /// Which table is wanted as a file.
    table: File,
    format: Format,
    tool: String,
    arguments: String,
    caller: String,
    tenant: String,
    roles: String,
    /// An example of the tool's answer.
    result: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum File {
    #[default]
    Rules,
    Decisions,
}

/// `GET /console/policies`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(question): Address<Question>,
) -> Response {
    let verdicts = question.ask(&console, &visit).await;
    let decisions = match console.gateway.history().decisions(&visit.caller).await {
        Ok(decisions) => decisions,
        Err(error) => return visit.answer(Err(error)),
    };
    match (visit.require(Act::SeePolicies), question.format, question.table) {
        (Ok(()), format @ (Format::Csv | Format::Json), File::Rules) => {
            export::listed(&console.gateway.pipeline.policy.summary().rules, format)
        }
        (Ok(()), format @ (Format::Csv | Format::Json), File::Decisions) => export::listed(&decisions, format),
        (allowed, ..) => {
            visit.answer(allowed.map(|()| show(&console, &visit, &question, verdicts.as_ref(), &decisions)))
        }
    }
}

fn show(
    console: &Console,
    visit: &Visit,
    question: &Question,
    verdicts: Option<&Result<Vec<StageVerdict>, CallError>>,
    decisions: &[DecisionCount],
) -> Markup {
    let texts = visit.texts();
    let summary = console.gateway.pipeline.policy.summary();
    let title = texts.get("nav-policies");
    let version: String = summary.version.chars().take(8).collect();
    let state = texts.with("policies-state", [("rules", summary.rules.len().into()), ("version", version.into())]);
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    frame::page(
        visit,
        Some(Section::Policies),
        &head,
        &html! {
            @if visit.may(Act::ExplainCall) {
                section aria-labelledby="explain" {
                    h2 #explain { (texts.get("explain-title")) }
                    (form(visit, question))
                    @match verdicts {
                        None => {},
                        Some(Err(error)) => {
                            div.notice.bad #problems tabindex="-1" role="alert" { p { (format::text(error.message())) } }
                        },
                        Some(Ok(verdicts)) => { (answer(&texts, verdicts)) },
                    }
                }
            }
            div.columns {
                section { h2 { (texts.get("policies-rules")) } (rules(&texts, &summary, question)) }
                section {
                    h2 { (texts.get("policies-decisions")) }
                    (decided(&texts, decisions, question))
                }
            }
        },
    )
}

impl Question {
    /// The verdicts; `None` while nothing is asked.
    async fn ask(&self, console: &Console, visit: &Visit) -> Option<Result<Vec<StageVerdict>, CallError>> {
        let tool = self.tool.trim();
        if tool.is_empty() || !visit.may(Act::ExplainCall) {
            return None;
        }
        let (arguments, result) = match self.arguments().and_then(|arguments| Ok((arguments, self.result()?))) {
            Ok(given) => given,
            Err(problem) => return Some(Err(problem)),
        };
        let explained = Explained { tool: tool.to_owned(), arguments, caller: self.caller(visit), result };
        Some(console.gateway.history().explain(&visit.caller, explained).await)
    }

    /// The same question with other parts of the lists.
    fn address(&self, rules: usize, decisions: usize) -> String {
        let (rules, decisions) = (rules.to_string(), decisions.to_string());
        let fields = [
            ("tool", &*self.tool),
            ("arguments", &*self.arguments),
            ("caller", &*self.caller),
            ("tenant", &*self.tenant),
            ("roles", &*self.roles),
            ("result", &*self.result),
            ("page", &*rules),
            ("decisions", &*decisions),
        ];
        with_query(PATH, fields)
    }

    fn arguments(&self) -> Result<Arguments, CallError> {
        let wrong = |problem: String| {
            CallError::new(ErrorCode::InvalidRequest, format!("the arguments must be a JSON object: {problem}"))
        };
        match self.arguments.trim() {
            "" => Ok(Arguments::new()),
            text => match json::parse(text.as_bytes()).map_err(|error| wrong(error.to_string()))? {
                Value::Object(arguments) => Ok(arguments),
                _ => Err(wrong("it is none".to_owned())),
            },
        }
    }

    fn result(&self) -> Result<Option<Value>, CallError> {
        let text = Some(self.result.trim()).filter(|text| !text.is_empty());
        let parsed = text.map(|text| json::parse(text.as_bytes())).transpose();
        parsed.map_err(|problem| {
            CallError::new(ErrorCode::InvalidRequest, format!("the example of a result must be JSON: {problem}"))
        })
    }

    fn caller(&self, visit: &Visit) -> Option<(String, String, Vec<String>)> {
        let id = Some(self.caller.trim()).filter(|id| !id.is_empty())?;
        let tenant = Some(self.tenant.trim()).filter(|tenant| !tenant.is_empty()).unwrap_or(&visit.caller.tenant);
        let roles = self.roles.split(',').map(str::trim).filter(|role| !role.is_empty());
        Some((id.to_owned(), tenant.to_owned(), roles.map(str::to_owned).collect()))
    }
}

fn form(visit: &Visit, question: &Question) -> Markup {
    let texts = visit.texts();
    let own_tenant = &*visit.caller.tenant;
    let tenant = if question.tenant.is_empty() { own_tenant } else { &question.tenant };
    let field = |name: &str, label: &str, value: &str, help: Option<&str>| {
        html! {
            div.field {
                label for=(name) { (texts.get(label)) }
                input #(name) name=(name) value=(value) autocomplete="off" spellcheck="false" data-search[name == "tool"]
                    aria-describedby=[help.map(|_| format!("{name}-help"))];
                @if let Some(help) = help { p.help #{ (name) "-help" } { (texts.get(help)) } }
            }
        }
    };
    html! {
        form.stack method="get" action=(PATH) {
            div.filters.top {
                (field("tool", "tool-name", &question.tool, None))
                (field("caller", "explain-caller", &question.caller, Some("explain-caller-help")))
                (field("tenant", "call-tenant", tenant, None))
                (field("roles", "explain-roles", &question.roles, Some("explain-roles-help")))
            }
            div.field {
                label for="arguments" { (texts.get("explain-arguments")) span.kind { "JSON" } }
                textarea #arguments name="arguments" rows="3" spellcheck="false" placeholder="{}" { "\n" (question.arguments) }
            }
            div.field {
                label for="result" { (texts.get("explain-result")) span.kind { "JSON" } }
                textarea #result name="result" rows="3" spellcheck="false" aria-describedby="result-help" { "\n" (question.result) }
                p.help #result-help { (texts.get("explain-result-help")) }
            }
            div.buttons { button.main { (texts.get("explain-button")) } }
            p.help { (texts.get("explain-help")) }
        }
    }
}

fn answer(texts: &Texts, verdicts: &[StageVerdict]) -> Markup {
    let stopping = verdicts.iter().find(|verdict| verdict.passes == Some(false));
    html! {
        div role="status" { h3 {
            @match stopping {
                Some(verdict) => {
                    span.bad-text { "✕ " (texts.with("explain-stops", [("stage", verdict.stage.as_str().into())])) }
                },
                None => { span.good-text { "✓ " (texts.get("explain-passes")) } },
            }
        } }
        (CallPath::draw_verdicts(texts, verdicts))
    }
}

fn rules(texts: &Texts, summary: &PolicySummary, question: &Question) -> Markup {
    let table = Table {
        cell: |_, rule: &PolicyRule, column| {
            (column.name == "file").then(|| html! { code { (format::text(&rule.file)) ":" (rule.line) } })
        },
        ..Table::new(texts, "policies-rules", ("policies-none", "policy.directory"))
    };
    let address = |page| question.address(page, question.decisions);
    html! {
        (table.show_part(&summary.rules, question.page, address, &with_query(PATH, [("table", "rules")])))
        dl.facts { div { dt { (texts.get("policies-roles")) } dd { (summary.dangerous_roles.join(", ")) } } }
    }
}

fn decided(texts: &Texts, decisions: &[DecisionCount], question: &Question) -> Markup {
    let table = Table {
        cell: |texts, decision: &DecisionCount, column| (column.name == "code").then(|| code(texts, decision.code)),
        ..Table::new(texts, "policies-decisions", ("policies-undecided", "sekisho call TOOL"))
    };
    let address = |page| question.address(question.page, page);
    html! {
        p.quiet { (texts.get("policies-memory")) }
        (table.show_part(decisions, question.decisions, address, &with_query(PATH, [("table", "decisions")])))
    }
}

fn code(texts: &Texts, code: Option<ErrorCode>) -> Markup {
    html! { @match code {
        None => { span.tag.good { "✓ " (texts.get("policies-allowed")) } },
        Some(code) => { a href=(with_query("/console/calls", [("code", code.as_str())])) { code { (code.as_str()) } } },
    } }
}
