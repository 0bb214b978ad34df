//! How clients of the gateway are set up: a ready configuration for each, with the means to sign in.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::json;

use super::acts::Act;
use super::frame::{self, Head, Section};
use super::text::Texts;
use super::visit::Visit;
use super::{Console, snippets};
use sekisho_core::error::CallError;

/// The variable that clients read the key from: no page has one.
const KEY: &str = "SEKISHO_API_KEY";

/// A client, its configuration, and the place of that.
struct Client {
    name: &'static str,
    /// The id of the text that says where it goes.
    place: &'static str,
    text: String,
    /// The same without a key, for clients that sign in by themselves.
    signs_in: Option<String>,
}

/// `GET /console/connect`.
pub(super) async fn page(State(console): State<Arc<Console>>, visit: Visit) -> Response {
    visit.answer(show(&console, &visit))
}

fn show(console: &Console, visit: &Visit) -> Result<Markup, CallError> {
    visit.require(Act::SeeConnect)?;
    let texts = visit.texts();
    let url = &visit.guest.request.server_url;
    let auth = &console.gateway.configuration().current().auth;
    let has_sign_in = !auth.jwt.is_empty();
    let title = texts.get("nav-connect");
    let head = Head { state: Some(html! { (texts.get("connect-state")) " " code { (url) } }), ..Head::new(&title) };
    Ok(frame::page(
        visit,
        Some(Section::Connect),
        &head,
        &html! {
            (access(&texts, has_sign_in, console))
            @for client in clients(url, &console.gateway.configuration().current().agent.default_profile) {
                section.panel aria-labelledby=(client.name.replace(' ', "-")) {
                    h2 id=(client.name.replace(' ', "-")) { (client.name) }
                    p.quiet { (texts.get(client.place)) }
                    (snippets::text(&texts, &client.text))
                    @if let Some(text) = client.signs_in.as_ref().filter(|_| has_sign_in) {
                        details { summary { (texts.get("connect-sign-in")) } (snippets::text(&texts, text)) }
                    }
                }
            }
        },
    ))
}

/// The needed credentials besides the address.
fn access(texts: &Texts, has_sign_in: bool, console: &Console) -> Markup {
    let keys = console.gateway.configuration().current().auth.api_keys.len();
    html! {
        div.notice {
            @if keys > 0 { p { (texts.get("connect-key")) " " code { (KEY) } } }
            @if has_sign_in { p { (texts.get("connect-has-sign-in")) } }
            @if keys == 0 && !has_sign_in { p { (texts.get("connect-open")) } }
        }
    }
}

fn clients(url: &str, agent: &str) -> Vec<Client> {
    let mcp = format!("{url}/mcp");
    let bearer = |variable: &str| format!("Bearer {variable}");
    let pretty = |value: serde_json::Value| serde_json::to_string_pretty(&value).unwrap_or_default();
    let shell = format!("'{}'", mcp.replace('\'', r"'\''"));
    vec![
        Client {
            name: "Claude Code",
            place: "connect-shell",
            text: format!("claude mcp add --transport http sekisho {shell} --header \"Authorization: Bearer ${KEY}\""),
            signs_in: Some(format!("claude mcp add --transport http sekisho {shell}\n# then, in Claude Code: /mcp")),
        },
        Client {
            name: "Cursor",
            place: "connect-cursor",
            text: pretty(json!({"mcpServers": {"sekisho": {
                "url": mcp, "headers": {"Authorization": bearer(&format!("${{env:{KEY}}}"))}}}})),
            signs_in: Some(pretty(json!({"mcpServers": {"sekisho": {"url": mcp}}}))),
        },
        Client {
            name: "VS Code",
            place: "connect-vscode",
            text: pretty(json!({
                "inputs": [{"type": "promptString", "id": "sekisho-key", "description": "API key of sekisho", "password": true}],
                "servers": {"sekisho": {
                    "type": "http", "url": mcp, "headers": {"Authorization": bearer("${input:sekisho-key}")}}},
            })),
            signs_in: Some(pretty(json!({"servers": {"sekisho": {"type": "http", "url": mcp}}}))),
        },
        Client {
            name: "Codex",
            place: "connect-codex",
            text: format!("[mcp_servers.sekisho]\nurl = {}\nbearer_token_env_var = \"{KEY}\"", json!(mcp)),
            signs_in: Some(format!("[mcp_servers.sekisho]\nurl = {}\n\n# then: codex mcp login sekisho", json!(mcp))),
        },
        Client {
            name: "Open WebUI",
            place: "connect-open-webui",
            text: format!(
                "OPENAI_API_BASE_URL={url}/v1\nOPENAI_API_KEY=${KEY}\nENABLE_FORWARD_USER_INFO_HEADERS=true\nDEFAULT_MODELS={agent}"
            ),
            signs_in: None,
        },
        Client {
            name: "curl",
            place: "connect-shell",
            text: format!("curl -sS '{url}/tools/list' -H \"Authorization: Bearer ${KEY}\""),
            signs_in: None,
        },
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn each_text_is_of_the_form_that_its_client_reads() {
        let clients = clients("http://localhost:8080", "default");
        let text = |name: &str| clients.iter().find(|client| client.name == name).unwrap().text.clone();
        let json = |name: &str| serde_json::from_str::<Value>(&text(name)).unwrap();
        assert_eq!(
            json("Cursor")["mcpServers"]["sekisho"]["headers"]["Authorization"],
            "Bearer ${env:SEKISHO_API_KEY}"
        );
        assert_eq!(json("VS Code")["servers"]["sekisho"]["url"], "http://localhost:8080/mcp");
        assert!(text("Codex").contains("url = \"http://localhost:8080/mcp\"\nbearer_token_env_var"));
        assert!(text("Open WebUI").starts_with("OPENAI_API_BASE_URL=http://localhost:8080/v1\n"));
        for client in &clients {
            let keyless = client.signs_in.as_deref().unwrap_or_default();
            assert!(client.text.contains("KEY") || client.name == "VS Code", "{}", client.name);
            assert!(!keyless.contains("Authorization") && !keyless.contains(KEY), "{}", client.name);
        }
    }
}
