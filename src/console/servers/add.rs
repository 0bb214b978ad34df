//! Adds an MCP server or an OpenAPI document, after a test that offers nothing.

mod program;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::detail::fidelity;
use crate::acts::Act;
use crate::frame::{self, Head, Section};
use crate::submitted::Submitted;
use crate::visit::{TOKEN_FIELD, Visit};
use crate::{Console, format, redirect};
use sekisho_api::{not_added, not_registered, record_change};
use sekisho_audit::EventKind;
use sekisho_core::administration::Administrator;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_mcp_client::{McpRegistration, ObservedRun};
use sekisho_openapi::Registration;
use sekisho_openapi::read::report::Report;

/// A field of a form.
struct Field {
    name: &'static str,
    label: &'static str,
    placeholder: &'static str,
    control: Control,
}

#[derive(PartialEq, Eq)]
enum Control {
    Required,
    Line,
    Text,
}

const SERVER: [Field; 4] = [
    Field { name: "name", label: "server-name", placeholder: "weather", control: Control::Required },
    Field { name: "url", label: "add-url", placeholder: "https://mcp.example.com/mcp", control: Control::Required },
    Field { name: "category", label: "tool-category", placeholder: "mcp", control: Control::Line },
    Field { name: "headers", label: "add-headers", placeholder: "Authorization: ${NAME}", control: Control::Text },
];

const DOCUMENT: [Field; 5] = [
    Field { name: "name", label: "server-name", placeholder: "pets", control: Control::Required },
    Field {
        name: "spec_url",
        label: "add-document-url",
        placeholder: "https://example.com/openapi.json",
        control: Control::Line,
    },
    Field { name: "spec_inline", label: "add-document", placeholder: "openapi: 3.1.0", control: Control::Text },
    Field { name: "base_url", label: "add-base-url", placeholder: "https://api.example.com", control: Control::Line },
    Field { name: "category", label: "tool-category", placeholder: "api", control: Control::Line },
];

/// The result of a form.
enum Outcome {
    None,
    Refused(CallError),
    ServerWorks,
    DocumentRead(Box<Report>),
    Observed(Box<ObservedRun>),
}

/// `GET /console/servers/add`.
pub(crate) async fn page(State(console): State<Arc<Console>>, visit: Visit) -> Response {
    visit.answer(visit.require(Act::ChangeServers).map(|()| show(&console, &visit, None, &Outcome::None)))
}

/// `POST /console/servers/add`.
pub(crate) async fn submit(State(console): State<Arc<Console>>, request: Request) -> Response {
    let submitted = match Submitted::read(&console, request, Act::ChangeServers).await {
        Ok(submitted) => submitted,
        Err(response) => return response,
    };
    // The test is the default: a test changes nothing.
    let adds = submitted.field("mode") == "add";
    let outcome = match (submitted.administrator(), submitted.field("kind")) {
        (Err(error), _) => Err(error),
        (Ok(by), "openapi") => document(by, &console, &submitted, adds).await,
        (Ok(_), program::KIND) => program::submit(&console, &submitted, adds).await,
        (Ok(by), _) => server(by, &console, &submitted, adds).await,
    };
    let outcome = match outcome {
        Ok(Ok(path)) => return redirect(&path),
        Ok(Err(outcome)) => outcome,
        Err(error) => Outcome::Refused(error),
    };
    submitted.visit.answer(Ok(show(&console, &submitted.visit, Some(&submitted), &outcome)))
}

/// The page of the added source, or the result of a test.
type Added = Result<String, Outcome>;

async fn server(by: Administrator, console: &Console, submitted: &Submitted, adds: bool) -> Result<Added, CallError> {
    let (registration, gateway) = (read_server(submitted)?, &console.gateway);
    if !adds {
        gateway.mcp_registrations().try_out(&by, &registration).await.map_err(|error| not_added(&error))?;
        return Ok(Err(Outcome::ServerWorks));
    }
    let (service, name) = (Arc::clone(gateway), registration.name.clone());
    // Boxed, because it is large.
    let change = Box::pin(async move {
        service.mcp_registrations().register(by, registration).await.map_err(|error| not_added(&error))
    });
    record_change(gateway, submitted.event(EventKind::McpServerRegistered, &name), change).await?;
    Ok(Ok(format!("/console/servers/mcp/{name}")))
}

async fn document(by: Administrator, console: &Console, submitted: &Submitted, adds: bool) -> Result<Added, CallError> {
    let (registration, gateway) = (read_document(submitted)?, &console.gateway);
    if !adds {
        let read = gateway.collections().try_out(&by, &registration).await.map_err(|error| not_registered(&error))?;
        return Ok(Err(Outcome::DocumentRead(Box::new(read.report))));
    }
    let (service, name) = (Arc::clone(gateway), registration.name.clone());
    // Boxed, because it is large.
    let change = Box::pin(async move {
        service.collections().register(by, registration).await.map_err(|error| not_registered(&error))
    });
    record_change(gateway, submitted.event(EventKind::CollectionRegistered, &name), change).await?;
    Ok(Ok(format!("/console/servers/openapi/{name}")))
}

fn read_server(submitted: &Submitted) -> Result<McpRegistration, CallError> {
    let mut headers = BTreeMap::new();
    for line in submitted.field("headers").lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| {
            CallError::new(ErrorCode::InvalidRequest, format!("a header is written `Name: ${{SECRET}}`, not {line:?}"))
        })?;
        headers.insert(name.trim(), value.trim());
    }
    let mut body = filled(submitted, &["name", "url", "category"]);
    body.insert("headers".to_owned(), json!(headers));
    serde_json::from_value(body.into()).map_err(|error| unreadable(&error))
}

fn read_document(submitted: &Submitted) -> Result<Registration, CallError> {
    let body = filled(submitted, &["name", "spec_url", "spec_inline", "base_url", "category"]);
    serde_json::from_value(body.into()).map_err(|error| unreadable(&error))
}

/// The filled fields, as a body of the API has them.
fn filled(submitted: &Submitted, names: &[&str]) -> Map<String, Value> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), submitted.text(name)?.into()))).collect()
}

fn unreadable(error: &serde_json::Error) -> CallError {
    CallError::new(ErrorCode::InvalidRequest, format!("the form cannot be read: {error}"))
}

fn show(console: &Console, visit: &Visit, submitted: Option<&Submitted>, outcome: &Outcome) -> Markup {
    let texts = visit.texts();
    let title = texts.get("servers-add");
    let head = Head { state: Some(html! { (texts.get("add-state")) }), ..Head::new(&title) };
    let sent = submitted.map_or("", |submitted| submitted.field("kind"));
    let of = |kind: &str| submitted.filter(|_| sent == kind);
    frame::page(
        visit,
        Some(Section::Servers),
        &head,
        &html! {
            (result(visit, submitted, outcome))
            div.columns {
                section aria-labelledby="add-mcp" {
                    h2 #add-mcp { (texts.get("server-mcp")) }
                    (form(visit, "mcp", &SERVER, of("mcp")))
                }
                section aria-labelledby="add-program" {
                    h2 #add-program { (texts.get("add-program")) }
                    @if visit.is_local_user(console) {
                        (program::form(visit, of(program::KIND)))
                    } @else {
                        p.help { (texts.get("add-program-elsewhere")) }
                        p { code { "sekisho mcp add NAME --observe -- COMMAND" } }
                    }
                }
                section aria-labelledby="add-openapi" {
                    h2 #add-openapi { (texts.get("server-openapi")) }
                    (form(visit, "openapi", &DOCUMENT, of("openapi")))
                }
            }
        },
    )
}

fn result(visit: &Visit, submitted: Option<&Submitted>, outcome: &Outcome) -> Markup {
    let texts = visit.texts();
    html! {
        @match outcome {
            Outcome::None => {},
            Outcome::Refused(error) => {
                div.notice.bad #problems tabindex="-1" role="alert" { p { "✕ " (format::text(error.message())) } }
            },
            Outcome::ServerWorks => { p.notice role="status" { "✓ " (texts.get("add-server-works")) } },
            Outcome::DocumentRead(report) => {
                p.notice role="status" { "✓ " (texts.get("add-document-read")) }
                (fidelity(&texts, report))
            },
            Outcome::Observed(run) => { (program::result(visit, submitted, run)) },
        }
    }
}

fn form(visit: &Visit, kind: &str, fields: &[Field], sent: Option<&Submitted>) -> Markup {
    let texts = visit.texts();
    html! {
        form.stack method="post" action="/console/servers/add" {
            (inputs(visit, kind, fields, sent))
            p.help { (texts.get(if kind == "mcp" { "add-headers-help" } else { "add-document-help" })) }
            div.buttons {
                // The first button is the button of the Enter key.
                button.main name="mode" value="test" { (texts.get("add-test")) }
                button name="mode" value="add" { (texts.get("add-add")) }
            }
        }
    }
}

/// The inputs of a form, with their former contents.
fn inputs(visit: &Visit, kind: &str, fields: &[Field], sent: Option<&Submitted>) -> Markup {
    let texts = visit.texts();
    html! {
        input type="hidden" name=(TOKEN_FIELD) value=(visit.form_token().unwrap_or_default());
        input type="hidden" name="kind" value=(kind);
        @for Field { name, label, placeholder, control } in fields {
            @let id = format!("{kind}-{name}");
            @let value = sent.map_or("", |sent| sent.field(name));
            div.field {
                label for=(id) { (texts.get(label))
                    @if *control == Control::Required { span.tag { (texts.get("schema-required")) } } }
                @if *control == Control::Text {
                    textarea #(id) name=(name) rows="4" spellcheck="false" placeholder=(placeholder) { "\n" (value) }
                } @else {
                    input #(id) name=(name) value=(value) placeholder=(placeholder) required[*control == Control::Required]
                        autocomplete="off" spellcheck="false";
                }
            }
        }
    }
}
