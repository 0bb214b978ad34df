use serde_json::json;

use super::{DestinationPlaces, LabelsOverlay, SinkKind, ToolFacts, ToolLabels, Trust};

#[test]
fn the_words_of_a_name_say_what_a_tool_does() {
    use SinkKind::{Delete, Fetch, Pay, Publish, Send, Write};
    use Trust::{Trusted, Untrusted};
    for (name, trust, kind) in [
        ("get_balance", Trusted, None),
        ("list_users", Trusted, None),
        ("getUnreadEmails", Untrusted, None),
        ("read_channel_messages", Untrusted, None),
        ("search_issues", Untrusted, None),
        ("view_order_history", Trusted, None),
        ("total_of_orders", Trusted, None),
        ("API-retrieve-a-comment", Untrusted, None),
        ("retrieve_and_forward_email", Untrusted, Some(Send)),
        ("get_webpage", Untrusted, Some(Fetch)),
        ("browse", Untrusted, Some(Fetch)),
        ("send_email", Untrusted, Some(Send)),
        ("post_webpage", Untrusted, Some(Send)),
        ("share_file", Untrusted, Some(Send)),
        ("send_money", Trusted, Some(Send)),
        ("transfer-funds", Trusted, Some(Pay)),
        ("reserve_hotel", Trusted, Some(Pay)),
        ("delete_file", Untrusted, Some(Delete)),
        ("remove_user_from_slack", Untrusted, Some(Delete)),
        ("invite_user", Trusted, Some(Publish)),
        ("create_calendar_event", Untrusted, Some(Write)),
        ("update_password", Trusted, Some(Write)),
        ("frobnicate", Trusted, Some(Write)),
    ] {
        let labels = ToolLabels::infer(&ToolFacts { name, ..ToolFacts::default() }, None);
        assert_eq!(
            (labels.returns.trust, labels.sink.map(|sink| sink.kind)),
            (trust, kind),
            "{name}: {:?}",
            labels.why
        );
    }
}

#[test]
fn annotations_and_methods_say_it_where_a_name_does_not() {
    let facts = ToolFacts { name: "widgets", ..ToolFacts::default() };
    let kind = |facts: ToolFacts<'_>| ToolLabels::infer(&facts, None).sink.map(|sink| sink.kind);
    assert_eq!(kind(facts), Some(SinkKind::Write));
    assert_eq!(kind(ToolFacts { read_only: Some(true), ..facts }), None);
    assert_eq!(kind(ToolFacts { http_method: Some("GET"), ..facts }), None);
    assert_eq!(kind(ToolFacts { http_method: Some("DELETE"), ..facts }), Some(SinkKind::Delete));
    let world = ToolFacts { open_world: Some(true), ..facts };
    assert_eq!(ToolLabels::infer(&world, None).returns.trust, Trust::Untrusted);
    let tags = ["Tickets".to_owned()];
    assert_eq!(ToolLabels::infer(&ToolFacts { tags: &tags, ..facts }, None).returns.trust, Trust::Untrusted);
    let schema = json!({"properties": {"callback_url": {"type": "string"}, "mode": {"enum": ["a", "b"]}}});
    let reads = ToolFacts { name: "get_thing", input_schema: Some(&schema), read_only: Some(true), ..facts };
    assert_eq!(kind(reads), Some(SinkKind::Fetch), "a hint does not hide that it requests a URL");
    let constants = ToolLabels::infer(&reads, None).sink.unwrap().constants;
    assert_eq!(constants, ["/mode".to_owned()].into());
}

#[test]
fn the_configuration_comes_first() {
    let overlay: LabelsOverlay = serde_json::from_value(json!({
        "trust": "trusted", "secrecy": ["crm"], "sink": {"kind": "send", "destination": ["$.who[*].address"]}
    }))
    .unwrap();
    let facts = ToolFacts { name: "read_emails", ..ToolFacts::default() };
    let labels = ToolLabels::infer(&facts, Some(&overlay));
    assert_eq!((labels.returns.trust, labels.returns.secrecy.len()), (Trust::Trusted, 1));
    let sink = labels.sink.unwrap();
    assert_eq!(sink.kind, SinkKind::Send);
    assert!(matches!(sink.destinations, DestinationPlaces::Paths(paths) if paths.len() == 1));
    let none: LabelsOverlay = serde_json::from_value(json!({"sink": false})).unwrap();
    let facts = ToolFacts { name: "send_email", ..ToolFacts::default() };
    assert_eq!(ToolLabels::infer(&facts, Some(&none)).sink, None);
    assert!(serde_json::from_value::<LabelsOverlay>(json!({"trust": "maybe"})).is_err());
    assert!(
        serde_json::from_value::<LabelsOverlay>(json!({"sink": {"kind": "send", "destination": ["who"]}})).is_err()
    );
}
