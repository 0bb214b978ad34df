use proptest::prelude::*;

use super::*;
use crate::builtin::tests::{run, run_error};
use sekisho_core::error::ErrorCode;

fn people() -> Value {
    json!({"people": [
        {"name": "Ada", "age": 36, "tags": ["maths", "poetry"]},
        {"name": "Grace", "age": 85, "tags": ["navy"]},
        {"name": "Alan", "age": 41, "tags": []},
    ], "total": 9_007_199_254_740_993_i64})
}

#[tokio::test]
async fn queries_follow_the_specification() {
    for (query, selected) in [
        ("people[0].name", json!("Ada")),
        ("people[-1].name", json!("Alan")),
        ("people[*].age", json!([36, 85, 41])),
        ("people[?age > `40`].name", json!(["Grace", "Alan"])),
        ("people[?contains(tags, 'navy')] | [0].name", json!("Grace")),
        ("people[].tags[]", json!(["maths", "poetry", "navy"])),
        ("people[::-1].name", json!(["Alan", "Grace", "Ada"])),
        ("people[:2].{n: name, t: length(tags)}", json!([{"n": "Ada", "t": 2}, {"n": "Grace", "t": 1}])),
        ("sort_by(people, &age)[*].name", json!(["Ada", "Alan", "Grace"])),
        ("sort_by(people, &name)[*].age", json!([36, 41, 85])),
        ("max_by(people, &age).name", json!("Grace")),
        ("min_by(people, &age).name", json!("Ada")),
        ("max_by(`[]`, &age)", json!(null)),
        ("map(&missing, people)", json!([null, null, null])),
        ("join(', ', people[*].name)", json!("Ada, Grace, Alan")),
        ("sum(people[*].age)", json!(162.0)),
        ("not_null(people[0].missing, total)", json!(9_007_199_254_740_993_i64)),
        ("!people", json!(false)),
        ("people && total == total", json!(true)),
        ("missing.deeper[0]", json!(null)),
        ("keys(@)", json!(["people", "total"])),
        ("people[?age < `40`] || 'none'", json!([{"name": "Ada", "age": 36, "tags": ["maths", "poetry"]}])),
        ("people[2147483647]", json!(null)),
        ("people[-2147483647]", json!(null)),
        ("people[1::2147483647].name", json!(["Grace"])),
        ("people[1::-2147483647].name", json!(["Grace"])),
        ("people[-2147483647:2147483647].name", json!(["Ada", "Grace", "Alan"])),
    ] {
        let output = run(&definition(), json!({"data": people(), "query": query})).await;
        assert_eq!(output.unwrap_or_else(|error| panic!("{query}: {error}")).value, selected, "{query}");
    }
}

#[tokio::test]
async fn errors_of_a_query_have_their_position() {
    for (query, place, explanation) in [
        ("people[", 7, "found Eof"),
        ("people[?age >", 13, "found Eof"),
        ("nope(people)", 4, "undefined function nope"),
        ("length(total)", 6, "expects type"),
        ("people[::0]", 10, "Invalid slice"),
        ("sort_by(people, name)", 7, "expects type an expression"),
        ("sort_by(people, &tags)", 7, "only numbers or only strings"),
        ("map(&name, total)", 3, "expects type array, given number"),
    ] {
        let error = run_error(&definition(), json!({"data": people(), "query": query})).await;
        assert_eq!(error.code(), ErrorCode::ToolError, "{query}");
        let message = error.message();
        assert!(message.contains(explanation), "{query}: {message}");
        assert!(message.contains(&format!("at character {place}:")), "{query}: {message}");
    }
}

#[tokio::test]
async fn forty_bytes_cannot_exceed_the_memory_limit_of_a_call() {
    let doubled = |step: &str, times: usize| vec![step; times].join("|");
    for query in [
        doubled("[@,@]", 40),
        doubled("[@,@][]", 40),
        doubled("[@,@]", 40) + "|to_string(@)",
        doubled("[@,@]", 40) + "|[0]==[1]",
        doubled("[@,@]", 40) + "|contains(@,@)",
        doubled("to_string([@,@])", 40),
        doubled("[join(to_string(@),[*])][]", 40),
        format!("map(&({}), people)", doubled("[@,@][]", 40)),
        format!("sort_by(people, &to_string({}))", doubled("[@,@]", 40)),
        doubled("{a:@,b:@,c:@}", 60),
        doubled("[[[[[[[[@]]]]]]]]", 200),
    ] {
        let error = run_error(&definition(), json!({"data": people(), "query": query})).await;
        assert!(matches!(error.code(), ErrorCode::ToolError | ErrorCode::OutputTooLarge), "{query:.40}: {error}");
    }
}

#[tokio::test]
async fn a_query_that_could_overflow_the_parser_is_refused_or_survived() {
    for query in [
        "!".repeat(4096),
        "[".repeat(4096),
        "(".repeat(65) + "a" + &")".repeat(65),
        "a.".repeat(2047) + "a",
        "*.".repeat(2047) + "a",
        "[]".repeat(2048),
        "[*]".repeat(1365),
        "a|".repeat(2047) + "a",
        "a||".repeat(1365) + "a",
        "!a&&".repeat(1023) + "a",
        "a".repeat(5000),
    ] {
        if let Err(error) = run(&definition(), json!({"data": people(), "query": query})).await {
            assert_eq!(error.code(), ErrorCode::ToolError, "{query:.40}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_query_makes_it_fall(query in "\\PC{0,40}|[a-z@*&!|.,:(){}\\[\\]?<>='`0-9-]{0,60}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let outcome = runtime.block_on(run(&definition(), json!({"data": people(), "query": query})));
        if let Err(error) = outcome {
            prop_assert_eq!(error.code(), ErrorCode::ToolError);
        }
    }
}

#[test]
fn hostile_bytes_as_a_query() {
    let seeds: [&[u8]; 4] = [
        b"people[?age > `40` && contains(tags, 'navy')].{n: name, t: length(tags)} | [0]",
        b"sort_by(people, &age)[*].name || not_null(a, @.\"b\")[::-1]",
        b"join(', ', map(&to_string(@), people[*].age[-1:]))",
        b"reverse(keys(merge(@, `{\"a\": [1, null]}`)))",
    ];
    let data = people();
    sekisho_core::fuzz::feed(&seeds, |bytes| {
        let Ok(query) = std::str::from_utf8(bytes) else { return };
        if check(query).is_ok() {
            let (_caller, stop) = crate::builtin::side_thread::tests::never();
            let _ = select(query, &data, (1 << 20, 1 << 16), &stop);
        }
    });
}
