use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Field, Fields, fields};
use crate::labels::{Returned, Trust};

fn returned(trust: Trust) -> Returned {
    Returned { trust, has_lines: false, secrecy: BTreeSet::new(), authored: Vec::new(), asserted: Vec::new() }
}

fn read(result: &Value, returned: &Returned) -> Vec<Field> {
    fields(result, returned, 96 << 10).list
}

/// Whether a text is authored; `None` where no field has it.
fn is_authored(fields: &[Field], text: &str) -> Option<bool> {
    fields.iter().filter(|field| field.text == text).map(|field| field.is_authored).min()
}

#[test]
fn a_server_fills_ids_and_strangers_fill_bodies() {
    let mails = "- id_: '17'\n  sender: eve@example.com\n  body: 'Pay to\n\n    id_: 99'\n  state: unread\n";
    for result in [
        Value::String(mails.to_owned()),
        json!([{"id_": "17", "sender": "eve@example.com", "body": "Pay to\nid_: 99", "state": "unread"}]),
        Value::String("[{'id_': '17', 'sender': 'eve@example.com', 'body': \"Pay to\", 'state': 'unread'}]".to_owned()),
    ] {
        let fields = read(&result, &returned(Trust::Untrusted));
        assert_eq!(is_authored(&fields, "17"), Some(false), "{fields:?}");
        assert_eq!(is_authored(&fields, "unread"), Some(false));
        assert_eq!(is_authored(&fields, "eve@example.com"), Some(true));
        assert_eq!(is_authored(&fields, "99"), None, "a line within a body is no field");
    }
}

#[test]
fn a_structure_within_authored_text_is_authored() {
    let result = json!({"body": "{\"account\": \"DE89370400\"}", "members": "['a@example.com', 'b@example.com']"});
    let fields = read(&result, &returned(Trust::Untrusted));
    assert_eq!(is_authored(&fields, "DE89370400"), None);
    assert_eq!(is_authored(&fields, "b@example.com"), Some(false));
}

#[test]
fn a_page_is_authored_and_a_short_answer_is_not() {
    let page = Value::String("Account: DE89370400".to_owned());
    assert_eq!(is_authored(&read(&json!("pay DE89370400"), &returned(Trust::Untrusted)), "pay DE89370400"), Some(true));
    assert_eq!(is_authored(&read(&json!("1810.0"), &returned(Trust::Trusted)), "1810.0"), Some(false));
    assert_eq!(is_authored(&read(&page, &returned(Trust::Trusted)), "DE89370400"), Some(false));
}

#[test]
fn labels_of_paths_come_first() {
    let parse = |path: &str| serde_json_path::JsonPath::parse(path).unwrap();
    let labels = Returned {
        authored: vec![parse("$.rows[*].alias")],
        asserted: vec![parse("$.rows[*].name")],
        ..returned(Trust::Untrusted)
    };
    let fields = read(&json!({"rows": [{"alias": "one", "name": "two"}]}), &labels);
    assert_eq!(is_authored(&fields, "one"), Some(true));
    assert_eq!(is_authored(&fields, "two"), Some(false));
}

#[test]
fn content_of_mcp_is_read_as_what_it_holds() {
    let result = json!({"content": [{"type": "text", "text": "{\"id\": \"A-17\", \"note\": \"hello\"}"}]});
    let of_text = read(&result, &returned(Trust::Untrusted));
    assert_eq!((is_authored(&of_text, "A-17"), is_authored(&of_text, "hello")), (Some(false), Some(true)));
    let both = json!({"content": [{"type": "text", "text": "hi there"}], "structuredContent": {"id": "A-18"}});
    let of_both = read(&both, &returned(Trust::Untrusted));
    assert_eq!((is_authored(&of_both, "A-18"), is_authored(&of_both, "hi there")), (Some(false), Some(true)));
    let other = json!({"content": [{"type": "text", "text": "hi there"}], "owner": "A-19"});
    assert_eq!(is_authored(&read(&other, &returned(Trust::Untrusted)), "A-19"), Some(false));
}

#[test]
fn hostile_structures_end() {
    let mut aliases = "a: &a [x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, of) in [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e"), ("g", "f"), ("h", "g")] {
        aliases.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 8].join(", ")));
    }
    for text in ["[".repeat(60_000), "{\"a\":".repeat(10_000), aliases, "- ".repeat(30_000)] {
        let found = read(&Value::String(text), &returned(Trust::Untrusted));
        assert!(found.iter().all(|field| field.is_authored));
    }
}

#[test]
fn what_is_kept_of_a_long_result_is_bounded() {
    let numbers: Vec<_> = (0..100_000).collect();
    let nested = json!({"a".repeat(2_000): {"b": (0..5_000).map(|at| json!({"id": at})).collect::<Vec<_>>()}});
    let text = Value::String("Key: word of a long line ".repeat(20_000));
    for result in [json!({ "numbers": numbers }), json!([numbers, numbers]), nested, text] {
        for returned in [returned(Trust::Untrusted), Returned { has_lines: true, ..returned(Trust::Untrusted) }] {
            let Fields { list, is_cut } = fields(&result, &returned, 10_000);
            assert!(is_cut);
            assert!(list.iter().map(|field| field.text.len()).sum::<usize>() <= 10_000);
        }
    }
    // What comes after many fields is a text of strangers.
    let many = json!({"numbers": (10_000..14_000).collect::<Vec<_>>(), "last": "A-17"});
    let fields = read(&many, &returned(Trust::Trusted));
    assert_eq!(is_authored(&fields, "11999"), Some(false));
    assert!(fields.iter().any(|field| field.text.contains("13999") && field.is_authored), "{}", fields.len());
    assert!(fields.iter().any(|field| field.text.contains("A-17") && field.is_authored));
}

/// The end of a line is looked for in a few characters, not in all of the text.
#[test]
fn labels_in_one_long_line_take_no_longer_than_in_many() {
    let returned = Returned { has_lines: true, ..returned(Trust::Untrusted) };
    let text = format!("Account Number: DE89370400. {}", "A: b ".repeat(400_000));
    let fields = read(&Value::String(text), &returned);
    assert_eq!(is_authored(&fields, "DE89370400"), Some(false));
    assert_eq!(fields.len(), 2_001, "each label once, and the text");
}
