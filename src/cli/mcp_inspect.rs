//! `sekisho mcp inspect`: an MCP server of a running gateway, and the connections of its program.

use serde_json::Value;

use super::local_gateway::with_remote;
use super::{Common, Exit, present};
use sekisho_api::HostConnections;

pub(super) fn run(common: &Common, name: &str) -> Exit {
    with_remote(common, |remote| {
        let server = remote.get(&["admin", "servers", "mcp", name], &[])?;
        if common.json {
            return Ok(present::json(&server));
        }
        present::lines(facts(&server));
        let connections = present::entries(&server["connections"]);
        if !connections.is_empty() {
            present::list::<HostConnections>(connections);
        }
        Ok(Exit::Done)
    })
}

/// What there is to say of it, with its heading.
fn facts(server: &Value) -> Vec<Vec<String>> {
    let texts = ["name", "address", "state", "since", "reason"].map(|name| (name, text(&server[name])));
    let names = |list: &Value| list.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
    let lists = ["tools", "quarantined", "layers"].map(|name| (name, names(&server[name])));
    let facts = texts.into_iter().chain(lists).filter(|(_, value)| !value.is_empty());
    facts.map(|(name, value)| vec![name.to_owned(), value]).collect()
}

/// Foreign text without control characters; nothing for null.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => present::harmless(text).into_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_host_has_a_row_with_the_setting_that_allows_it() {
        let refused = json!({"host": "10.0.0.1", "allowed": 0, "refused": 2, "datagrams": 0, "reason": "it is \u{1b}[31mnot public"});
        let server = json!({"name": "a", "reason": null, "tools": ["a__x", "a__y"], "layers": ["seccomp"], "connections": [refused]});
        assert_eq!(facts(&server), [["name", "a"], ["tools", "a__x, a__y"], ["layers", "seccomp"]]);
        let connections = present::entries(&server["connections"]);
        let cells: Vec<_> = connections.iter().map(present::cells::<HostConnections>).collect();
        assert_eq!(cells, [["10.0.0.1", "0", "2", "0", "it is not public"]]);
        assert!(present::entries(&json!({})["connections"]).is_empty(), "a gateway of an earlier version");
    }
}
