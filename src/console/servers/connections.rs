//! The connections of a server's program, by host, with the setting that allows a refused one.

use maud::{Markup, html};

use crate::list::Table;
use crate::text::Texts;
use sekisho_api::HostConnections;

/// A section, where there were some.
pub(super) fn section(texts: &Texts, connections: &[HostConnections]) -> Markup {
    let table = Table::new(texts, "connections-title", ("overview-nothing", "sekisho mcp inspect NAME"));
    html! {
        @if !connections.is_empty() {
            section {
                h2 #connections { (texts.get("connections-title")) }
                (table.table(connections))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn a_refused_connection_has_the_setting_that_allows_it() {
        let texts = Texts::new(Language::English);
        let reason = Some("`outbound.allow_networks: [\"10.0.0.1\"]` allows it".to_owned());
        let refused = HostConnections { host: "10.0.0.1".into(), refused: 3, reason, ..HostConnections::default() };
        let shown = section(&texts, &[refused]).into_string();
        assert!(shown.contains(">10.0.0.1</code>") && shown.contains("outbound.allow_networks"), "{shown}");
        assert_eq!(section(&texts, &[]).into_string(), "");
    }
}
