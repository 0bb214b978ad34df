//! The replicas that share the database, with the components that do not work at each.

use maud::{Markup, html};

use super::parts::files;
use crate::list::Table;
use crate::text::Texts;
use sekisho_api::ReplicaBody;

/// `own`: the id of the one that answers.
pub(super) fn section(texts: &Texts, own: &str, replicas: &[ReplicaBody]) -> Markup {
    let files_of = |replica: &ReplicaBody| (replica.configuration.clone(), replica.policies.clone());
    let own_files = replicas.iter().find(|replica| replica.id == own).map(files_of);
    let compared = |replica: &ReplicaBody| {
        let is_same = Some(files_of(replica)) == own_files;
        html! { (texts.get(if is_same { "replica-same" } else { "replica-other" })) }
    };
    let table = Table {
        cell: |texts, replica: &ReplicaBody, column| (column.name == "status").then(|| state(texts, replica)),
        action: Some(("replica-files", &compared)),
        ..Table::new(texts, "overview-replicas", ("overview-nothing", "sekisho cluster"))
    };
    html! { (table.show(replicas)) (files(texts, "replicas")) }
}

fn state(texts: &Texts, replica: &ReplicaBody) -> Markup {
    html! { (texts.get(if replica.status == "live" { "replica-live" } else { "replica-lost" })) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::text::Language;
    use sekisho_core::amount::Amount;
    use sekisho_store::StoredReplica;

    fn replica(id: &str, configuration: &str, degraded: &str) -> ReplicaBody {
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
        ReplicaBody::from((replica, Amount::ZERO))
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
