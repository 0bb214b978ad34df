//! How clients of the gateway are set up: a ready configuration for each, with the means to sign in.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::acts::Act;
use super::frame::{self, Head, Section};
use super::text::Texts;
use super::visit::Visit;
use super::{Console, snippets};
use sekisho_config::{AnonymousAccess, Config};
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
    /// The address by which the editor opens and asks whether it adds the gateway.
    deep_link: Option<String>,
}

/// `GET /console/connect`.
pub(super) async fn page(State(console): State<Arc<Console>>, visit: Visit) -> Response {
    visit.answer(show(&console, &visit))
}

fn show(console: &Console, visit: &Visit) -> Result<Markup, CallError> {
    visit.require(Act::SeeConnect)?;
    let texts = visit.texts();
    let url = &visit.guest.request.server_url;
    let config = console.gateway.configuration().current();
    let has_sign_in = config.auth.has_tokens();
    let needs_key = needs_key(&config);
    let title = texts.get("nav-connect");
    let head = Head { state: Some(html! { (texts.get("connect-state")) " " code { (url) } }), ..Head::new(&title) };
    Ok(frame::page(
        visit,
        Some(Section::Connect),
        &head,
        &html! {
            (access(&texts, has_sign_in, needs_key))
            @for client in clients(url, &config.agent.default_profile, needs_key) {
                section.panel aria-labelledby=(client.name.replace(' ', "-")) {
                    h2 id=(client.name.replace(' ', "-")) { (client.name) }
                    @if let Some(link) = &client.deep_link {
                        p { a.button.main href=(link) { (texts.with("connect-deep-link", [("client", client.name.into())])) } }
                    }
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

/// Whether a client on this machine is refused without credentials, or is somebody else with them.
pub(super) fn needs_key(config: &Config) -> bool {
    let is_open = match config.auth.anonymous {
        AnonymousAccess::Always => true,
        AnonymousAccess::Loopback => config.server.is_loopback(),
        AnonymousAccess::Never => false,
    };
    config.auth.has_credentials() || !is_open
}

/// The needed credentials besides the address.
fn access(texts: &Texts, has_sign_in: bool, needs_key: bool) -> Markup {
    html! {
        div.notice {
            p { (texts.get("connect-command")) " " code { "sekisho connect" } }
            @if needs_key { p { (texts.get("connect-key")) " " code { (KEY) } } }
            @if has_sign_in { p { (texts.get("connect-has-sign-in")) } }
            @if !needs_key { p { (texts.get("connect-open")) } }
        }
    }
}

fn clients(url: &str, agent: &str, needs_key: bool) -> Vec<Client> {
    let key = if needs_key { format!("${KEY}") } else { "none".to_owned() };
    let header = if needs_key { format!(" -H \"Authorization: Bearer ${KEY}\"") } else { String::new() };
    let mut clients = editors(url, needs_key);
    if cfg!(feature = "agent") {
        clients.push(Client {
            name: "Open WebUI",
            place: "connect-open-webui",
            text: format!(
                "OPENAI_API_BASE_URL={url}/v1\nOPENAI_API_KEY={key}\nENABLE_FORWARD_USER_INFO_HEADERS=true\nDEFAULT_MODELS={agent}"
            ),
            signs_in: None,
            deep_link: None,
        });
    }
    clients.push(Client {
        name: "curl",
        place: "connect-shell",
        text: format!("curl -sS '{url}/tools/list'{header}"),
        signs_in: None,
        deep_link: None,
    });
    clients
}

fn editors(url: &str, needs_key: bool) -> Vec<Client> {
    let mcp = format!("{url}/mcp");
    let client = |name, place, text: &dyn Fn(bool) -> String, sign_in: Option<&str>| Client {
        name,
        place,
        text: text(needs_key),
        signs_in: sign_in.map(|note| text(false) + note),
        deep_link: deep_link(name, &mcp, needs_key),
    };
    let claude_code = |has_key| {
        let shell = format!("'{}'", mcp.replace('\'', r"'\''"));
        let header = if has_key { format!(" --header \"Authorization: Bearer ${KEY}\"") } else { String::new() };
        format!("claude mcp add --transport http sekisho {shell}{header}")
    };
    // It has programs in its file only: this one forwards to the address.
    let claude_desktop = |has_key| {
        let mut entry = json!({"command": "sekisho", "args": ["--server", url, "mcp", "serve"]});
        if has_key {
            entry["env"] = json!({KEY: "your key"});
        }
        pretty(&json!({"mcpServers": {"sekisho": entry}}))
    };
    let cursor = |has_key| pretty(&json!({"mcpServers": {"sekisho": of_cursor(&mcp, has_key)}}));
    let vs_code = |has_key| {
        let (entry, input) = of_vs_code(&mcp, has_key);
        let mut file = json!({"servers": {"sekisho": entry}});
        if let Some(input) = input {
            file["inputs"] = json!([input]);
        }
        pretty(&file)
    };
    let codex = |has_key| {
        let key = if has_key { format!("\nbearer_token_env_var = \"{KEY}\"") } else { String::new() };
        format!("[mcp_servers.sekisho]\nurl = {}{key}", json!(mcp))
    };
    vec![
        client("Claude Code", "connect-shell", &claude_code, Some("\n# then, in Claude Code: /mcp")),
        client("Claude Desktop", "connect-claude-desktop", &claude_desktop, None),
        client("Cursor", "connect-cursor", &cursor, Some("")),
        client("VS Code", "connect-vscode", &vs_code, Some("")),
        client("Codex", "connect-codex", &codex, Some("\n\n# then: codex mcp login sekisho")),
    ]
}

/// The gateway in the file of Cursor.
fn of_cursor(mcp: &str, has_key: bool) -> Value {
    match has_key {
        true => json!({"url": mcp, "headers": {"Authorization": format!("Bearer ${{env:{KEY}}}")}}),
        false => json!({"url": mcp}),
    }
}

/// The gateway in the file of VS Code, and the question for the key.
fn of_vs_code(mcp: &str, has_key: bool) -> (Value, Option<Value>) {
    if !has_key {
        return (json!({"type": "http", "url": mcp}), None);
    }
    let input =
        json!({"type": "promptString", "id": "sekisho-key", "description": "API key of sekisho", "password": true});
    let headers = json!({"Authorization": "Bearer ${input:sekisho-key}"});
    (json!({"type": "http", "url": mcp, "headers": headers}), Some(input))
}

/// The address that opens the editor; none for clients without one.
fn deep_link(client: &str, mcp: &str, needs_key: bool) -> Option<String> {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    match client {
        "Cursor" => {
            let entry = STANDARD.encode(of_cursor(mcp, needs_key).to_string());
            Some(format!("cursor://anysphere.cursor-deeplink/mcp/install?name=sekisho&config={}", encoded(&entry)))
        }
        "VS Code" => {
            let (mut entry, input) = of_vs_code(mcp, needs_key);
            entry["name"] = "sekisho".into();
            if let Some(input) = input {
                entry["inputs"] = json!([input]);
            }
            Some(format!("vscode:mcp/install?{}", encoded(&entry.to_string())))
        }
        _ => None,
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_of_the_form_that_its_client_reads() {
        let with_key = clients("http://localhost:8080", "default", true);
        let text = |name: &str| with_key.iter().find(|client| client.name == name).unwrap().text.clone();
        let json = |name: &str| serde_json::from_str::<Value>(&text(name)).unwrap();
        assert_eq!(
            json("Cursor")["mcpServers"]["sekisho"]["headers"]["Authorization"],
            "Bearer ${env:SEKISHO_API_KEY}"
        );
        assert_eq!(json("Claude Desktop")["mcpServers"]["sekisho"]["args"][1], "http://localhost:8080");
        assert_eq!(json("VS Code")["servers"]["sekisho"]["url"], "http://localhost:8080/mcp");
        assert!(text("Codex").contains("url = \"http://localhost:8080/mcp\"\nbearer_token_env_var"));
        assert!(text("Open WebUI").starts_with("OPENAI_API_BASE_URL=http://localhost:8080/v1\n"));
        let has_key = |text: &str| text.contains("Authorization") || text.contains(KEY);
        for client in &with_key {
            assert!(has_key(&client.text), "{}", client.name);
            assert!(!client.signs_in.as_deref().is_some_and(has_key), "{}", client.name);
        }
        for client in clients("http://localhost:8080", "default", false) {
            assert!(!has_key(&client.text), "{}: {}", client.name, client.text);
        }
    }

    #[test]
    fn a_deep_link_has_the_entry_of_its_editor() {
        let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
        for needs_key in [true, false] {
            let link = |client| deep_link(client, "http://localhost:8080/mcp", needs_key);
            let cursor = link("Cursor").unwrap();
            let (start, config) = cursor.split_once("&config=").unwrap();
            assert_eq!(start, "cursor://anysphere.cursor-deeplink/mcp/install?name=sekisho");
            let entry: Value = serde_json::from_slice(&STANDARD.decode(decoded(config)).unwrap()).unwrap();
            assert_eq!((&entry["url"], entry["headers"].is_object()), (&json!("http://localhost:8080/mcp"), needs_key));
            let vs_code = link("VS Code").unwrap();
            let entry: Value =
                serde_json::from_str(&decoded(vs_code.strip_prefix("vscode:mcp/install?").unwrap())).unwrap();
            assert_eq!(
                (&entry["name"], &entry["type"], &entry["url"]),
                (&json!("sekisho"), &json!("http"), &json!("http://localhost:8080/mcp"))
            );
            assert_eq!((entry["inputs"].is_array(), entry["headers"].is_object()), (needs_key, needs_key), "{entry}");
            assert_eq!(link("curl"), None);
        }
    }

    #[test]
    fn a_key_is_in_the_texts_where_the_gateway_wants_one() {
        let mut config = Config::default();
        assert!(!needs_key(&config));
        config.server.listen = ([0, 0, 0, 0], 8080).into();
        assert!(needs_key(&config));
        config.auth.anonymous = AnonymousAccess::Always;
        assert!(!needs_key(&config));
    }
}
