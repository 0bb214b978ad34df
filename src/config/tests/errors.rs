//! Errors are reported with their place and without secrets.

use std::fs;
use std::time::{Duration, Instant};

use proptest::strategy::Strategy;

use super::*;
use sekisho_core::slack::slack;

#[test]
fn a_configured_file_must_exist() {
    let errors = Config::load(Some(Path::new("/nowhere/sekisho.yaml")), &Environment::default()).unwrap_err();
    insta::assert_snapshot!(errors[0], @r#"
    /nowhere/sekisho.yaml: cannot be read: No such file or directory (os error 2)
      check the path and its permissions
    "#);
}

#[test]
fn a_key_beside_its_topic_is_refused_with_the_topic() {
    insta::assert_snapshot!(errors("api_keys: []\n"), @r#"
    sekisho.yaml:1:1: unknown key `api_keys` at the top level
      1 | api_keys: …
        | ^
      write it in `auth`, as `auth: {api_keys: …}`
    "#);
}

#[test]
fn an_unknown_key_is_refused_with_its_place_and_a_suggestion() {
    insta::assert_snapshot!(errors("
serve:
  listen: 127.0.0.1:80
tools:
  overrides:
    calculator:
      rate_limt: 5
      zzz: 1
"), @r#"
    sekisho.yaml:2:1: unknown key `serve` at the top level
      2 | serve:
        | ^
      did you mean `server`?
    sekisho.yaml:7:7: unknown key `rate_limt` in `tools.overrides.calculator`
      7 |       rate_limt: …
        |       ^
      did you mean `rate_limit`?
    sekisho.yaml:8:7: unknown key `zzz` in `tools.overrides.calculator`
      8 |       zzz: …
        |       ^
      valid keys: rename, description, hidden, cost_per_use, rate_limit, timeout_seconds, memory_limit_mb, max_concurrent, max_concurrent_global, max_text_tokens, max_output_bytes, output_schema, roles, labels, sink, dangerous, requires_auth, audit_arguments, approval, approvals_needed, found_by, fix, defaults, enumerate, project, summarise, cases
    "#);
}

#[test]
fn a_wrong_type_is_refused_with_its_place() {
    insta::assert_snapshot!(errors(r#"
server: [1]
limits:
  max_concurrent: "many"
  parallelism: -1
  max_queued: 2.5
breaker: {error_threshold: high}
budget:
  max_cost_per_request: lots
auth:
  anonymous: alway
  api_keys:
    - id: 42
      roles: admin
audit:
  durability: true
telemetry:
  log:
tools:
  coerce_arguments: yes
  web_search:
    base_url: searx.example.com
"#), @r#"
    sekisho.yaml:2:9: `server`: expected keys with values, not a list
      2 | server: …
        |         ^
    sekisho.yaml:4:19: `limits.max_concurrent`: expected a whole number from 0 to 4294967295, not a string
      4 |   max_concurrent: "many"
        |                   ^
    sekisho.yaml:5:16: `limits.parallelism`: expected a whole number from 0 to 4294967295
      5 |   parallelism: -1
        |                ^
    sekisho.yaml:6:15: `limits.max_queued`: expected a whole number from 0 to 4294967295, not a number with a fraction
      6 |   max_queued: 2.5
        |               ^
    sekisho.yaml:7:28: `breaker.error_threshold`: expected a number, not a string
      7 | breaker: …
        |           ^
    sekisho.yaml:9:25: `budget.max_cost_per_request`: expected an amount, such as 0.50
      9 |   max_cost_per_request: lots
        |                         ^
    sekisho.yaml:11:14: `auth.anonymous`: expected one of loopback, always, never
      11 |   anonymous: alway
         |              ^
      did you mean `always`?
    sekisho.yaml:13:11: `auth.api_keys[0].id`: expected a string
      13 |     - id: 42
         |           ^
      put the value in quotes
    sekisho.yaml:14:14: `auth.api_keys[0].roles`: expected a list, not a string
      14 |       roles: …
         |              ^
    sekisho.yaml:16:15: `audit.durability`: expected one of relaxed, strict
      16 |   durability: true
         |               ^
    sekisho.yaml:18:6: `telemetry.log`: expected a string, not nothing
      18 |   log:
         |      ^
    sekisho.yaml:20:21: `tools.coerce_arguments`: expected true or false, not a string
      20 |   coerce_arguments: yes
         |                     ^
    sekisho.yaml:22:15: `tools.web_search.base_url`: expected an absolute URL, such as https://example.com
      22 |     base_url: searx.example.com
         |               ^
    "#);
}

#[test]
fn a_missing_field_is_named() {
    insta::assert_snapshot!(errors("
auth:
  api_keys:
    - key: secret
"), @r#"
    sekisho.yaml:4:7: `auth.api_keys[0]`: `id` is missing
      4 |     - key: …
        |       ^
      add `id:` here
    "#);
}

#[test]
fn invalid_yaml_is_refused_with_its_place() {
    insta::assert_snapshot!(errors("server:\n  listen: \"127.0.0.1\n"), @r#"
    sekisho.yaml:3:1: invalid indentation in multiline quoted scalar
      correct the YAML here; the rest of the file was not checked
    "#);
    insta::assert_snapshot!(errors("server: {}\naudit: {}\nserver: {}\n"), @r#"
    sekisho.yaml:3:1: duplicate mapping key: server not allowed here
      3 | server: …
        | ^
      correct the YAML here; the rest of the file was not checked
    "#);
    insta::assert_snapshot!(errors("a: 1\n---\nb: 2\n"), @r#"
    sekisho.yaml:3:1: a second YAML document starts here; only one is accepted
      3 | b: …
        | ^
      correct the YAML here; the rest of the file was not checked
    "#);
    insta::assert_snapshot!(errors("- 1\n- 2\n"), @r#"
    sekisho.yaml:1:1: expected keys with values, not a list
      1 | - …
        | ^
    "#);
    insta::assert_snapshot!(errors("audit: *nothing\n"), @r#"
    sekisho.yaml:1:8: reference to unknown value
      1 | audit: …
        |        ^
      correct the YAML here; the rest of the file was not checked
    "#);
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sekisho.yaml");
    let error_of = |content: &[u8]| {
        fs::write(&file, content).unwrap();
        Config::load(Some(&file), &Environment::default()).unwrap_err()[0].to_string()
    };
    assert!(error_of(b"server: {}\n\xff\n").contains("sekisho.yaml:2:1: this line is not UTF-8"));
    assert!(error_of(&vec![b'#'; 2 << 20]).contains("is larger than"));
    assert!(Config::load(Some(folder.path()), &Environment::default()).is_err(), "a folder");
}

#[test]
fn bombs_are_refused_quickly() {
    // An expansion takes minutes and gigabytes; a busy machine takes seconds instead of milliseconds.
    const MAX_DURATION: Duration = Duration::from_secs(20);
    let laughs = |first: &str, link: &str| {
        let mut bomb = format!("a0: &a0 {first}\n");
        for level in 1..=9 {
            let previous = level - 1;
            let links = vec![format!("*a{previous}"); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} {}\n", link.replace("LINKS", &links)));
        }
        bomb
    };
    for bomb in [
        laughs("[lol,lol]", "[LINKS]"),
        laughs("{type: object}", "{allOf: [LINKS]}"),
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        format!("a: {}", "*a ".repeat(1_000)),
        (0..90_000).map(|index| format!("k{index}: 1\n")).collect(),
        format!("tools: [{}]\naudit:\n", "1,".repeat(20_000))
            + &(0..20_000).map(|index| format!("  k{index}: 1\n")).collect::<String>(),
    ] {
        let started = Instant::now();
        assert!(load(&bomb).is_err());
        assert!(started.elapsed() < slack(MAX_DURATION), "{:?}: {}", started.elapsed(), &bomb[..40]);
    }
}

#[test]
fn an_unset_variable_is_refused_with_its_place() {
    insta::assert_snapshot!(errors("
auth:
  api_keys:
    - id: alice
      key: abc${ALICE_KEY}
limits:
  parallelism: ${UNCLOSED
"), @r#"
    sekisho.yaml:5:12: the environment variable ALICE_KEY is not set
      5 |       key: …
        |            ^
      set it, also in a `.env` file beside this one, or add a default: `${ALICE_KEY:-default}`
    sekisho.yaml:7:16: `${` without its `}`
      7 |   parallelism: …
        |                ^
      close it, or write `$${` for a literal `${`
    "#);
}

#[test]
fn no_error_shows_a_secret() {
    let hidden = "hunter2";
    for text in [
        "limits: {parallelism: '${SECRET}'}",
        "server:\n  listen: ${SECRET}",
        "budget:\n  max_cost_per_request: ${SECRET}",
        "audit:\n  durability: ${SECRET}",
        "tools:\n  web_search:\n    base_url: ${SECRET}",
        "tools:\n  web_search:\n    base_url: http://${SECRET}:port",
        "tools:\n  web_search:\n    api_key: [hunter2]",
        "tools:\n  web_search:\n    api_key: {hunter2: hunter2}",
        "tools:\n  web_search:\n    api_keyy: hunter2",
        "tools:\n  web_search: api_key:hunter2",
        "auth:\n  api_keys:\n    - key:hunter2",
        "auth:\n  api_keys:\n    key:hunter2\n",
        "auth: {api_keys: [{id: a, key:hunter2}, [hunter2]]}",
        "auth: {api_keys: [{id: 5, key: hunter2, roles: 7}]}",
        "auth:\n  api_keys:\n    - {key: hunter2}",
        "auth:\n  api_keys:\n    - key: hunter2\n      id: [hunter2]",
        "telemetry:\n  log: ${SECRET}=a=b",
        "auth:\n  api_keys:\n    - {key: hunter2,\n       id: 5, key_sha256: hunter2}",
        "auth:\n  api_keys:\n    - id: a\n      key: hunter2\n      key_sha256: hunter2",
        "auth:\n  api_keys:\n    - id: a\n      key_sha256: hunter2",
        "auth:\n  api_keys:\n    - id: a\n      key: hunter2 hunter2",
        "auth:\n  api_keys:\n    - id: a\n      key: \"hunter2",
        "auth:\n  api_keys:\n    - id: a\n      key: ${UNSET:-hunter2}${UNSET}",
        "auth:\n  api_keys:\n    - id: a\n      key:\n        - hunter2",
    ] {
        let errors = errors_with(text, &[("SECRET", hidden)]);
        assert!(errors.starts_with("sekisho.yaml:"), "{errors}");
        assert!(!errors.contains(hidden), "{errors}");
    }
    for variable in ["MAX_COST_PER_REQUEST", "SEKISHO_LISTEN", "RUST_LOG"] {
        let errors = errors_with("", &[(variable, "hunter2=hunter2=hunter2")]);
        assert!(errors.contains(variable) && !errors.contains(hidden), "{errors}");
    }
}

#[test]
fn a_malformed_variable_is_named() {
    insta::assert_snapshot!(errors_with(
        "",
        &[
            ("MCP_CB_FAILURES", "five"),
            ("SEKISHO_LISTEN", "localhost"),
            ("MAX_COST_PER_REQUEST", "$1"),
            ("ENFORCE_CB_ERROR_THRESHOLD", "half"),
        ],
    ), @r#"
    environment variable ENFORCE_CB_ERROR_THRESHOLD: its value is not a number, such as 0.5
      correct or unset it; it overrides `breaker.error_threshold`
    environment variable MAX_COST_PER_REQUEST: its value is not an amount, such as 0.50
      correct or unset it; it overrides `budget.max_cost_per_request`
    environment variable MCP_CB_FAILURES: its value is not a whole number, zero or more
      correct or unset it; it overrides `breaker.consecutive_failures`
    environment variable SEKISHO_LISTEN: its value is not an address and a port, such as 127.0.0.1:8080
      correct or unset it; it overrides `server.listen`
    "#);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(
        parts in proptest::collection::vec(
            proptest::prop_oneof![
                "[a-zé本\u{1f600}\t ]{0,4}",
                proptest::sample::select(vec![
                    "\n", "  ", "- ", ": ", "server", "auth", "api_keys", "key", "${", "}", "$$", "${A:-", "{", "[", "]",
                    ",", "\"", "'", "|", ">", "&a ", "*a", "? ", "# ", "---", "<<", "1e999", "-0", "~", "!!str ", "\r\n",
                ])
                .prop_map(str::to_owned),
            ],
            0..40,
        ),
    ) {
        let text = parts.concat();
        if let Err(errors) = load_with(&text, &[("A", "b")]) {
            proptest::prop_assert!(!errors.is_empty() && errors.iter().all(|error| !error.to_string().is_empty()));
        }
    }
}
