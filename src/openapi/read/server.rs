//! Servers: variables filled in, relative addresses made absolute.

use serde_json::Value;
use url::Url;

use super::{Reader, text};
use crate::load::document::Version;
use crate::read::operation::Server;
use crate::read::swagger2;

impl<'d> Reader<'d> {
    /// The document's servers; without any, where the document itself came from.
    pub(super) fn document_servers(&mut self) -> Vec<Server> {
        if self.version == Version::Swagger2 {
            let servers = swagger2::servers(self.document, self.base);
            return self.servers(&servers);
        }
        match self.document.get("servers") {
            Some(Value::Array(written)) if !written.is_empty() => self.servers(written),
            _ => {
                let root = self.base.and_then(|base| base.join("/").ok());
                root.map(|url| Server { url, description: String::new() }).into_iter().collect()
            }
        }
    }

    /// An operation's own servers, or its path's.
    pub(super) fn operation_servers(&mut self, written: Option<&Value>) -> Vec<Server> {
        written.and_then(Value::as_array).map_or_else(Vec::new, |written| self.servers(written))
    }

    fn servers(&mut self, written: &[Value]) -> Vec<Server> {
        let mut servers = Vec::new();
        for server in written {
            match self.address(server) {
                Ok(url) => servers.push(Server { url, description: text(server.get("description")) }),
                Err(reason) => self.approximated(reason),
            }
        }
        servers
    }

    fn address(&self, server: &Value) -> Result<Url, String> {
        let written = server.get("url").and_then(Value::as_str).ok_or("a server without `url` was left out")?;
        let filled = fill_in(written.trim(), server.get("variables"))?;
        // `//host/path` where the document itself has no address.
        let filled = match self.base {
            None if filled.starts_with("//") => format!("https:{filled}"),
            _ => filled,
        };
        let url = match (Url::parse(&filled), self.base) {
            (Ok(url), _) => url,
            (Err(url::ParseError::RelativeUrlWithoutBase), Some(base)) => {
                base.join(&filled).map_err(|error| format!("the server {filled:?} was left out: {error}"))?
            }
            (Err(url::ParseError::RelativeUrlWithoutBase), None) => {
                return Err(format!(
                    "the server {filled:?} is relative, and the document has no address; set `base_url`"
                ));
            }
            (Err(error), _) => return Err(format!("the server {filled:?} was left out: {error}")),
        };
        if matches!(url.scheme(), "http" | "https") {
            Ok(url)
        } else {
            Err(format!("the server {filled:?} was left out: only http and https can be called"))
        }
    }
}

/// Each `{variable}` by its default, or the first of its values.
fn fill_in(written: &str, variables: Option<&Value>) -> Result<String, String> {
    let mut filled = String::with_capacity(written.len());
    let mut rest = written;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { break };
        let variable = variables.and_then(|variables| variables.get(name));
        let value = variable.and_then(|variable| variable.get("default").or_else(|| variable.get("enum")?.get(0)));
        let value = value.ok_or_else(|| format!("the server {written:?} was left out: {{{name}}} has no default"))?;
        filled.push_str(before);
        filled.push_str(&text(Some(value)));
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}
