//! The replicas that share the database, with the components that do not work at each.

use maud::{Markup, html};

use super::parts::files;
use crate::format;
use crate::text::Texts;
use sekisho_core::amount::Amount;
use sekisho_store::StoredReplica;
use sekisho_store::replica::degraded_of;

const COLUMNS: [&str; 7] = [
    "replica-id",
    "replica-host",
    "replica-state",
    "replica-version",
    "replica-heartbeat",
    "replica-files",
    "replica-degraded",
];

/// `own`: the id of the one that answers.
pub(super) fn section(texts: &Texts, own: &str, replicas: &[(StoredReplica, Amount)]) -> Markup {
    let files_of = |replica: &StoredReplica| (replica.configuration.clone(), replica.policies.clone());
    let own_files = replicas.iter().find(|(replica, _)| replica.id == own).map(|(replica, _)| files_of(replica));
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("overview-replicas")) { table {
            thead { tr { @for column in COLUMNS { th scope="col" { (texts.get(column)) } } } }
            tbody { @for (replica, _) in replicas { tr {
                td { code { (format::text(&replica.id)) } }
                td { (format::text(&replica.host)) }
                td { (texts.get(if replica.is_live { "replica-live" } else { "replica-lost" })) }
                td { (format::text(&replica.version)) }
                td { (format::time(texts, replica.heartbeat.into())) }
                td { (texts.get(if Some(files_of(replica)) == own_files { "replica-same" } else { "replica-other" })) }
                td { (format::text(&degraded_of(replica).join(", "))) }
            } } }
        } }
        (files(texts, "replicas"))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::text::Language;

    fn replica(id: &str, configuration: &str, degraded: &str) -> (StoredReplica, Amount) {
        let replica = StoredReplica {
            id: id.to_owned(),
            host: "host".to_owned(),
            version: "1".to_owned(),
            configuration: configuration.to_owned(),
            policies: "p".to_owned(),
            address: None,
            degraded: degraded.to_owned(),
            started: Timestamp::UNIX_EPOCH,
            heartbeat: Timestamp::UNIX_EPOCH,
            is_live: id == "own",
        };
        (replica, Amount::ZERO)
    }

    #[test]
    fn each_replica_has_a_row_with_its_files_and_what_does_not_work_there() {
        let replicas = [
            replica("own", "a", "[]"),
            replica("other", "b", r#"["circuit:https://x","mcp:<b>"]"#),
            replica("c", "a", ""),
        ];
        let shown = section(&Texts::new(Language::English), "own", &replicas).into_string();
        let rows: Vec<_> = shown.split("<tr>").skip(2).collect();
        assert_eq!(rows.len(), 3, "{shown}");
        assert!(rows[0].contains("live") && rows[0].contains("as here"), "{shown}");
        assert!(rows[1].contains("lost") && rows[1].contains("others"), "{shown}");
        assert!(rows[1].contains("circuit:https://x, mcp:&lt;b&gt;"), "{shown}");
        assert!(rows[2].contains("as here"), "{shown}");
    }
}
