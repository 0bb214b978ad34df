//! Marks of prepared servers, compared with the rules about the names of their tools. A new mark agrees with the rules, or is a wanted
//! difference with its reason.

use std::collections::{BTreeMap, BTreeSet};

use sekisho_config::{SinkKindSetting, prepared_names, prepared_server};
use sekisho_flow::{SinkKind, ToolFacts, ToolLabels, Trust};

const WANTED: &str = include_str!("prepared_differences.yaml");

/// By the difference, the tools.
type Differences = BTreeMap<String, BTreeSet<String>>;

#[test]
fn marks_differ_from_the_rules_only_where_that_is_wanted() {
    let wanted: Differences = serde_saphyr::from_str(WANTED).unwrap();
    let mut found = Differences::new();
    for server in prepared_names() {
        let prepared = prepared_server(server).unwrap();
        for own in prepared.marked() {
            for difference in differences(server, own) {
                found.entry(difference).or_default().insert(format!("{server}__{own}"));
            }
        }
    }
    assert!(found.len() > 10, "{found:?}");
    for difference in found.keys().chain(wanted.keys()) {
        assert_eq!(found.get(difference), wanted.get(difference), "found and wanted: {difference}");
    }
}

fn differences(server: &str, own: &str) -> Vec<String> {
    let name = format!("{server}__{own}");
    let rules = ToolLabels::infer(&ToolFacts { name: &name, ..ToolFacts::default() }, None);
    let marks = prepared_server(server).unwrap().tool(own);
    let rule = rules.sink.map(|sink| word_of(sink.kind));
    let mark = marks.sink.map(|sink| word_of_setting(sink.kind));
    let mut found = Vec::new();
    if rule != mark {
        found.push(format!("{}, marked {}", rule.unwrap_or("reads"), mark.unwrap_or("nothing")));
    }
    if marks.is_untrusted && rules.returns.trust == Trust::Trusted {
        found.push("trusted, marked untrusted".to_owned());
    }
    if matches!(mark.or(rule), Some("delete" | "pay")) && !marks.is_dangerous {
        found.push("deletes or pays, not marked dangerous".to_owned());
    }
    found
}

fn word_of(kind: SinkKind) -> &'static str {
    kind.into()
}

fn word_of_setting(kind: SinkKindSetting) -> &'static str {
    match kind {
        SinkKindSetting::None => "none",
        SinkKindSetting::Send => "send",
        SinkKindSetting::Pay => "pay",
        SinkKindSetting::Delete => "delete",
        SinkKindSetting::Publish => "publish",
        SinkKindSetting::Fetch => "fetch",
        SinkKindSetting::Write => "write",
    }
}
