//! The table of <https://spec.openapis.org/oas/v3.1.1.html#style-examples>, row by row.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn values() -> [Value; 3] {
    [json!("blue"), json!(["blue", "black", "brown"]), json!({"R": 100, "G": 200, "B": 150})]
}

#[test]
fn paths_follow_the_table() {
    for (style, explode, expected) in [
        (Style::Matrix, false, [";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"]),
        (Style::Matrix, true, [";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"]),
        (Style::Label, false, [".blue", ".blue,black,brown", ".R,100,G,200,B,150"]),
        (Style::Label, true, [".blue", ".blue.black.brown", ".R=100.G=200.B=150"]),
        (Style::Simple, false, ["blue", "blue,black,brown", "R,100,G,200,B,150"]),
        (Style::Simple, true, ["blue", "blue,black,brown", "R=100,G=200,B=150"]),
    ] {
        let written = values().map(|value| path("color", &value, style, explode, Escaping::Percent));
        assert_eq!(written, expected, "{style:?} {explode}");
    }
    assert_eq!(path("color", &json!(""), Style::Matrix, false, Escaping::Percent), ";color");
}

fn query(value: &Value, style: Style, explode: bool, escaping: Escaping) -> String {
    let pairs = pairs("color", value, style, explode, escaping);
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&")
}

#[test]
fn queries_follow_the_table() {
    for (style, explode, expected) in [
        (Style::Form, false, ["color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"]),
        (Style::Form, true, ["color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"]),
        (
            Style::SpaceDelimited,
            false,
            ["color=blue", "color=blue%20black%20brown", "color=R%20100%20G%20200%20B%20150"],
        ),
        (
            Style::PipeDelimited,
            false,
            ["color=blue", "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200%7CB%7C150"],
        ),
        (
            Style::DeepObject,
            true,
            ["color=blue", "color[0]=blue&color[1]=black&color[2]=brown", "color[R]=100&color[G]=200&color[B]=150"],
        ),
    ] {
        let written = values().map(|value| query(&value, style, explode, Escaping::Percent));
        assert_eq!(written, expected, "{style:?} {explode}");
    }
}

#[test]
fn what_is_empty_or_nested_or_reserved_has_one_form() {
    for empty in [json!([]), json!({})] {
        for style in [Style::Form, Style::PipeDelimited, Style::DeepObject] {
            assert_eq!(query(&empty, style, false, Escaping::Percent), "", "{style:?}");
        }
    }
    let nested = json!({"a": {"b": [1, true]}});
    assert_eq!(query(&nested, Style::DeepObject, true, Escaping::Percent), "color[a][b][0]=1&color[a][b][1]=true");
    assert_eq!(query(&json!("a/b&c=d#e"), Style::Form, true, Escaping::Percent), "color=a%2Fb%26c%3Dd%23e");
    assert_eq!(query(&json!("a/b&c=d#e"), Style::Form, true, Escaping::Reserved), "color=a/b%26c%3Dd%23e");
    assert_eq!(header(&json!(["a b", 2]), Style::Simple, false), "a b,2");
    assert_eq!(header(&json!({"R": 100, "G": 200}), Style::Simple, true), "R=100,G=200");
}

/// Swagger 2.0 has them in every place.
#[test]
fn collection_formats_separate_in_paths_and_headers_too() {
    for (style, in_path, in_header) in [
        (Style::SpaceDelimited, "a%20b", "a b"),
        (Style::PipeDelimited, "a%7Cb", "a|b"),
        (Style::TabDelimited, "a%09b", "a\tb"),
        (Style::Simple, "a,b", "a,b"),
    ] {
        let list = json!(["a", "b"]);
        assert_eq!(path("color", &list, style, false, Escaping::Percent), in_path, "{style:?}");
        assert_eq!(header(&list, style, false), in_header, "{style:?}");
    }
    let nested = with_joined_items(&json!([[1, 2], [3], 4]), '|');
    assert_eq!(query(&nested, Style::Form, false, Escaping::Percent), "color=1%7C2,3,4");
}

fn split(text: &str, separator: &str) -> Vec<String> {
    let decoded = |part: &str| percent_encoding::percent_decode_str(part).decode_utf8().unwrap().into_owned();
    text.split(separator).map(decoded).collect()
}

proptest! {
    #[test]
    fn an_exploded_array_is_read_back_as_it_was(items in prop::collection::vec(".{0,12}", 0..6)) {
        let written = query(&json!(items), Style::Form, true, Escaping::Percent);
        let read: Vec<_> = url::form_urlencoded::parse(written.as_bytes()).map(|(_, value)| value.into_owned()).collect();
        prop_assert_eq!(read, items);
    }

    /// A parser that splits as the table defines recovers any value.
    #[test]
    fn a_list_is_read_back_in_every_style_of_the_table(items in prop::collection::vec("[a-z&=/%é.;,#]{1,8}", 1..5)) {
        for (style, separator) in [
            (Style::Form, ","),
            (Style::SpaceDelimited, "%20"),
            (Style::PipeDelimited, "%7C"),
            (Style::TabDelimited, "%09"),
        ] {
            let written = query(&json!(items), style, false, Escaping::Percent);
            prop_assert_eq!(split(written.strip_prefix("color=").unwrap(), separator), items.clone(), "{:?}", style);
        }
        let written = path("color", &json!(items), Style::Simple, false, Escaping::Percent);
        prop_assert_eq!(split(&written, ","), &items[..]);
        let written = path("color", &json!(items), Style::Matrix, true, Escaping::Percent);
        prop_assert_eq!(split(written.strip_prefix(";color=").unwrap(), ";color="), items);
    }

    #[test]
    fn an_object_is_read_back_in_every_style_of_the_table(
        members in prop::collection::btree_map("[a-z&=/é]{1,6}", "[a-z&=/%é;,#]{1,8}", 1..5)
    ) {
        let value = json!(members);
        let read = |text: &str| -> BTreeMap<_, _> {
            url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
        };
        prop_assert_eq!(&read(&query(&value, Style::Form, true, Escaping::Percent)), &members);
        let deep = read(&query(&value, Style::DeepObject, true, Escaping::Percent));
        let expected: BTreeMap<_, _> =
            members.iter().map(|(name, value)| (format!("color[{name}]"), value.clone())).collect();
        prop_assert_eq!(deep, expected);
        let flat = split(query(&value, Style::Form, false, Escaping::Percent).strip_prefix("color=").unwrap(), ",");
        let pairs: BTreeMap<_, _> =
            flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        prop_assert_eq!(pairs, members);
    }

    #[test]
    fn a_value_never_leaves_its_path_segment(text in ".{0,20}") {
        let written = path("id", &json!(text), Style::Simple, false, Escaping::Percent);
        prop_assert!(!written.contains(['/', '?', '#', ' ', '\\']));
    }
}
