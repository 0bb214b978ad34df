//! The same call for a shell, for Python, for `sekisho` and over MCP. Without the key: each reads it from the environment.

use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::text::Texts;
use sekisho_core::call::Arguments;

/// The texts, each with a button that copies it.
pub(super) fn show(texts: &Texts, url: &str, needs_key: bool, tool: &str, arguments: &Arguments) -> Markup {
    let snippets = [
        ("curl", curl(url, needs_key, tool, arguments)),
        ("Python", python(url, needs_key, tool, arguments)),
        ("sekisho", sekisho(url, tool, arguments)),
        ("MCP", mcp(tool, arguments)),
    ];
    html! {
        @for (name, text) in snippets {
            details.snippet {
                summary { (name) }
                (self::text(texts, &text))
            }
        }
    }
}

/// A text with a button that copies it.
pub(super) fn text(texts: &Texts, text: &str) -> Markup {
    html! {
        copy-text data-label=(texts.get("copy")) data-done=(texts.get("copied")) {
            pre tabindex="0" { code { (text) } }
        }
    }
}

fn address(url: &str, tool: &str) -> String {
    format!(
        "{url}/tools/{}/execute",
        utf8_percent_encode(tool, NON_ALPHANUMERIC).to_string().replace("%5F", "_").replace("%2D", "-")
    )
}

fn body(arguments: &Arguments) -> String {
    json!({ "arguments": arguments }).to_string()
}

fn curl(url: &str, needs_key: bool, tool: &str, arguments: &Arguments) -> String {
    let key = if needs_key { "-H \"Authorization: Bearer $SEKISHO_API_KEY\" \\\n  " } else { "" };
    format!(
        "curl -sS {} \\\n  {key}-H 'Content-Type: application/json' \\\n  -d {}",
        quoted(&address(url, tool)),
        quoted(&body(arguments)),
    )
}

/// In single quotes, of a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn python(url: &str, needs_key: bool, tool: &str, arguments: &Arguments) -> String {
    let (os, key) = match needs_key {
        true => (", os", "        \"Authorization\": f\"Bearer {os.environ['SEKISHO_API_KEY']}\",\n"),
        false => ("", ""),
    };
    // A string of JSON, without `/` escaped, is a string of Python.
    let text = |text: &str| Value::from(text).to_string();
    format!(
        "import json{os}, urllib.request\n\n\
         request = urllib.request.Request(\n    {},\n    data={}.encode(),\n    headers={{\n{key}        \
         \"Content-Type\": \"application/json\",\n    }},\n)\nprint(json.load(urllib.request.urlopen(request)))",
        text(&address(url, tool)),
        text(&body(arguments)),
    )
}

fn sekisho(url: &str, tool: &str, arguments: &Arguments) -> String {
    let arguments = Value::from(arguments.clone()).to_string();
    format!("sekisho --server {} call {} {}", quoted(url), quoted(tool), quoted(&arguments))
}

fn mcp(tool: &str, arguments: &Arguments) -> String {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments},
    });
    serde_json::to_string_pretty(&call).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_the_texts_as_they_are() {
        let mut arguments = Arguments::new();
        arguments.insert("text".into(), "it's $HOME `id` \"q\" \\ \n".into());
        let text = curl("http://localhost:8080", true, "a_b-c'd", &arguments);
        let shown = Command::new("sh").arg("-c").arg(text.replacen("curl -sS", "printf '%s\\n'", 1)).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "http://localhost:8080/tools/a_b-c%27d/execute");
        assert_eq!(serde_json::from_str::<Value>(lines.last().unwrap()).unwrap(), json!({"arguments": arguments}));
        // Where no key is needed there is no header: an empty one is refused.
        for (needs_key, keys) in [(true, 1), (false, 0)] {
            let texts = [curl("http://a", needs_key, "t", &arguments), python("http://a", needs_key, "t", &arguments)];
            for text in texts {
                assert_eq!(text.matches("SEKISHO_API_KEY").count(), keys, "{text}");
                assert_eq!(text.contains("Authorization"), needs_key, "{text}");
            }
        }
    }
}
