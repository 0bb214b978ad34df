//! Sets that must not load, each with the position and the message of the error.

use super::*;

/// Loads these files and returns each error as `file:line: message`, without the folder.
fn errors(files: &[(&str, &str)]) -> Vec<String> {
    let folder = folder(files);
    let prefix = format!("{}/", folder.path().display());
    let errors = Policy::load(&config_of(&folder)).map_or_else(|errors| errors, |_| Vec::new());
    errors.iter().map(|error| error.to_string().replace(&prefix, "")).collect()
}

fn one(rules: &str) -> String {
    errors(&[("tools.rego", rules)]).join("\n")
}

const DENY: (&str, &str) = ("tools.rego", "package tools\ndeny[\"no\"] { false }");

#[test]
fn an_invalid_set_is_refused_with_the_position() {
    let cases = [
        ("package tools\nallow { true }", "no file has a rule `deny[msg]`"),
        ("package tool\ndeny[\"no\"] { true }", "no file has a rule `deny[msg]`"),
        ("package tools.sub\ndeny[\"no\"] { true }", "no file has a rule `deny[msg]`"),
        ("package tools\n\ndeny[\"no\"] { is_admn(input.user) }", "tools.rego:3: there is no function `is_admn`"),
        ("package tools\ndeny[\"no\"] { strings.no_such(\"x\") }", "tools.rego:2: there is no function"),
        ("package tools\ndeny[\"no\"] { io.jwt.decode(\"x\") }", "tools.rego:2: there is no function"),
        (
            "package tools\ndeny[\"no\"] { a with input.tool as \"x\" }\na { lib.f(1) }",
            "tools.rego:3: there is no function `lib.f`",
        ),
        ("package tools\ndeny[\"no\"] { data.tools.missing(1) }", "tools.rego:2: there is no"),
        (
            "package tools\nnot_called(x) { gone(x) }\ndeny[\"no\"] { not (false) }",
            "tools.rego:2: there is no function `gone`",
        ),
        ("package tools\ndeny[msg] { msg := nowhere }", "tools.rego:2:"),
        ("package tools\ndeny[msg] { true }", "tools.rego:2:"),
        ("package tools\ndeny[\"no\"] {\n  input.tool ==\n}", "tools.rego:2: expecting }"),
        ("deny[\"no\"] { true }", "tools.rego:1:"),
        ("", "tools.rego:"),
        ("package tools\ndeny = true { input.tool }", "tools.rego:2: `deny` must be a set of reasons"),
        ("package tools\ndefault deny = false", "tools.rego:2: `deny` must be a set of reasons"),
        ("package tools\ndeny(x) { x }", "tools.rego:2: `deny` must be a set of reasons"),
        ("package tools\ndeny[x] = y { x := 1; y := 2 }", "tools.rego:2: `deny` must be a set of reasons"),
        ("package tools\ndeny.why[msg] { msg := \"x\" }", "tools.rego:2: `deny` must be a set of reasons"),
        (
            "package tools\nimport rego.v1\ndeny := {\"no\"} if input.tool",
            "tools.rego:3: `deny` must be a set of reasons",
        ),
        ("package tools\ndeny[\"no\"] { false }\nrequire_approval = true", "tools.rego:3: `require_approval` must be"),
        ("package tools\ndeny[\"no\"] { false }\nmask = \"/a\"", "tools.rego:3: `mask` must be a set of paths"),
        ("package tools\ndeny[\"no\"] { input.usr.id == \"x\" }", "tools.rego:2: the policy input has no field `usr`"),
        // Older versions documented the field, and nothing ever filled it.
        (
            "package tools\ndeny[\"no\"] { input.session.labels[_] == \"pii\" }",
            "the policy input has no field `session.labels`",
        ),
        ("package tools\ndeny[\"no\"] { input.user.role == \"x\" }", "the policy input has no field `user.role`"),
        ("package tools\ndeny[\"no\"] { data.limits.most < 1 }", "tools.rego:2: there is no `data.limits.most`"),
        ("package tools\nimport data.libb\ndeny[\"no\"] { libb.bad }", "tools.rego:2: there is no `data.libb`"),
        (
            "package tools\ndeny[\"no\"] { false }\nis_admin(user) { user.id == \"x\" }",
            "tools.rego:3: the built-in lib.rego",
        ),
        ("package tools\nimport rego.v1\ndeny[msg] { msg := \"v0\" }", "tools.rego:3:"),
        ("package tools\ndeny[\"no\"] { f(1) }\nf(x) { f(x) }", "tools.rego:3: the function `f` calls itself"),
        (
            "package tools\ndeny[\"no\"] { f(1) }\nf(x) { y := [1 | g(x)]; y }\ng(x) = data.tools.f(x)",
            "tools.rego:4: the function `g`",
        ),
    ];
    for (rules, expected) in cases {
        let errors = one(rules);
        assert!(errors.contains(expected), "{rules}\n→ {errors}");
    }
}

#[test]
fn an_unreachable_file_is_refused() {
    let lost = ("more.rego", "# my rules\npackage tool\ndeny[\"never asked\"] { true }");
    assert_eq!(
        errors(&[DENY, lost]),
        [
            "more.rego:2: nothing imports `package tool`, so its rules would never be evaluated; policies are in `package tools`"
        ]
    );
    // Two files that import only each other are unreachable too.
    let circle = [("a.rego", "package a\nimport data.b\nx = b.x"), ("b.rego", "package b\nimport data.a\nx = 1")];
    assert_eq!(errors(&[DENY, circle[0], circle[1]]).len(), 2);
}

#[test]
fn an_indirectly_imported_file_is_accepted() {
    let folder = folder(&[
        ("tools.rego", "package tools\nimport data.a\ndeny[\"no\"] { a.bad }"),
        ("a.rego", "package a\nbad { data.b[\"c\"].worse }"),
        ("sub/c.rego", "package b.c\nworse { input.tool == \"calculator\" }"),
    ]);
    let policy = Policy::load(&config_of(&folder)).unwrap();
    assert_eq!(decide(&policy, json!({})).denials, ["no"]);
}

#[test]
fn all_errors_of_a_step_are_reported_at_once() {
    let syntax = errors(&[("a.rego", "package tools\n{"), ("b.rego", "package tools\n)")]);
    assert_eq!(syntax.len(), 2, "{syntax:?}");
    let checks = one("package tools\nallow { input.nothing }\nrequire_approval = 1");
    assert_eq!(checks.lines().count(), 3, "{checks}");
}

#[test]
fn a_missing_folder_and_one_without_policies_are_refused() {
    let empty = folder(&[("readme.md", "nothing here"), ("cases/x.rego", "package tools")]);
    assert!(Policy::load(&config_of(&empty)).unwrap_err()[0].message.contains("no .rego file"));
    let missing = PolicyConfig { directory: Some("/no/such/folder".into()), ..PolicyConfig::default() };
    assert!(Policy::load(&missing).unwrap_err()[0].message.contains("cannot be read"));
    let linked = folder(&[DENY]);
    std::os::unix::fs::symlink(empty.path(), linked.path().join("more")).unwrap();
    assert!(Policy::load(&config_of(&linked)).unwrap_err()[0].message.contains("is a link to a folder"));
    let binary = TempDir::new().unwrap();
    fs::write(binary.path().join("tools.rego"), b"package tools\n\xff\xfe").unwrap();
    assert!(Policy::load(&config_of(&binary)).unwrap_err()[0].message.contains("cannot be read"));
}

#[test]
fn hostile_policy_files_are_errors_not_crashes() {
    let deep = |open: &str, close: &str| {
        format!("package tools\ndeny[\"no\"] {{ x := {}1{} }}", open.repeat(10_000), close.repeat(10_000))
    };
    let bracketed =
        |levels: usize| format!("package tools\ndeny[\"no\"] {{ x := {}1{} }}", "{".repeat(levels), "}".repeat(levels));
    for rules in [
        bracketed(12),
        bracketed(25),
        deep("(", ")"),
        deep("[\n", "]"),
        deep("{\n", "}"),
        deep("-\n", ""),
        deep("abs(\n", ")"),
        deep("1 +\n", ""),
        deep("1 ==\n", ""),
        deep("{1} |\n", ""),
        format!("package tools\ndeny[\"no\"] {{ {} }}", "not ".repeat(100_000)),
        format!("package tools\n{}", "# long\n".repeat(200_000)),
        format!("package tools\ndeny[\"{}\"] {{ true }}", "a".repeat(2_000_000)),
        "package tools\ndeny[\"no\"] { \"unterminated }".into(),
        "package tools\ndeny[\"no\"] { 1e999999 > 1 }".into(),
        "package tools\u{0}\ndeny[\"no\"] { true }".into(),
    ] {
        assert!(try_policy(rules.trim_start_matches("package tools")).is_err(), "{}", &rules[..60]);
    }
}

#[test]
fn hidden_files_and_cases_are_not_policies() {
    let files = [DENY, (".tools.rego.swp", "junk"), ("..data/tools.rego", "junk"), ("cases/draft.rego", "junk")];
    assert!(Policy::load(&config_of(&folder(&files))).is_ok());
}

#[test]
fn functions_of_the_same_name_in_other_packages_are_not_recursion() {
    let folder = folder(&[
        ("tools.rego", "package tools\nimport data.lib as l\ndeny[\"no\"] { bad(input.tool) }\nbad(x) { l.bad(x) }"),
        ("deeper.rego", "package lib\nbad(x) { startswith(x, \"calc\") }\nother(bad) { bad > 1 }"),
    ]);
    assert_eq!(decide(&Policy::load(&config_of(&folder)).unwrap(), json!({})).denials, ["no"]);
}

#[test]
fn real_rules_are_within_the_limits() {
    let deepest = format!("deny[\"no\"] {{ x := {}1{}; x }}", "{".repeat(11), "}".repeat(11));
    let longest = format!("deny[\"no\"] {{ {}1 > 0\n1 + 1 == 2 }}", "1 + ".repeat(63));
    let many = format!("deny[\"no\"] {{\n{}}}", "1 + 1 == 2\n".repeat(1_000));
    for rules in [deepest, longest, many] {
        assert_eq!(decide(&policy(&rules), json!({})).denials, ["no"], "{}", &rules[..60]);
    }
}
