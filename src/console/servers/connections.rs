//! The connections of a server's program, by host, with the setting that allows a refused one.

use maud::{Markup, html};

use crate::format;
use crate::text::Texts;
use sekisho_mcp_client::HostConnections;

/// A section, where there were some.
pub(super) fn section(texts: &Texts, connections: &[HostConnections]) -> Markup {
    if connections.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 #connections { (texts.get("connections-title")) }
            div.scroll tabindex="0" role="region" aria-labelledby="connections" {
                table.list.cards {
                    thead { tr {
                        th scope="col" { (texts.get("connection-host")) }
                        th.number scope="col" { (texts.get("connection-allowed")) }
                        th.number scope="col" { (texts.get("connection-refused")) }
                        th.number scope="col" { (texts.get("connection-datagrams")) }
                        th scope="col" { (texts.get("server-reason")) }
                    } }
                    tbody { @for connections in connections { (row(texts, connections)) } }
                }
            }
        }
    }
}

fn row(texts: &Texts, connections: &HostConnections) -> Markup {
    let HostConnections { host, allowed, refused, datagrams, reason } = connections;
    html! {
        tr {
            th scope="row" { code { (format::text(host)) } }
            td.number data-label=(texts.get("connection-allowed")) { (format::count(*allowed)) }
            td.number data-label=(texts.get("connection-refused")) { (format::count(*refused)) }
            td.number data-label=(texts.get("connection-datagrams")) { (format::count(*datagrams)) }
            td data-label=(texts.get("server-reason")) { (format::text(reason.as_deref().unwrap_or("–"))) }
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
        assert!(shown.contains("<code>10.0.0.1</code>") && shown.contains("outbound.allow_networks"), "{shown}");
        assert_eq!(section(&texts, &[]).into_string(), "");
    }
}
