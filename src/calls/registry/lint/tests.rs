use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::rules::{RULES, Rule};
use super::{Described, LintReport};

/// A case of `cases.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    tools: Vec<CaseTool>,
    /// The rules by the names of the tools that have findings.
    #[serde(default)]
    finds: BTreeMap<String, BTreeSet<Rule>>,
    /// The members of `tools.overrides` that the findings propose.
    #[serde(default)]
    fixes: BTreeMap<String, Map<String, Value>>,
    /// Parts of the problems.
    #[serde(default)]
    says: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseTool {
    name: String,
    #[serde(default = "own_source")]
    source: String,
    #[serde(default = "good_description")]
    description: String,
    #[serde(default)]
    properties: Map<String, Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    destructive: Option<bool>,
    #[serde(default)]
    has_sink: bool,
}

fn own_source() -> String {
    "mcp:s".to_owned()
}

fn good_description() -> String {
    "Gives the state of a lamp in a room.".to_owned()
}

fn report(tools: &[CaseTool], prefix: &str) -> LintReport {
    let schemas: Vec<_> = tools.iter().map(|tool| json!({"type": "object", "properties": tool.properties})).collect();
    let described: Vec<_> = tools
        .iter()
        .zip(&schemas)
        .map(|(tool, parameters)| Described {
            name: &tool.name,
            source: &tool.source,
            description: &tool.description,
            parameters,
            http_method: tool.method.clone(),
            read_only: tool.read_only || tool.method.as_deref() == Some("GET"),
            destructive: tool.destructive,
            has_sink: tool.has_sink,
        })
        .collect();
    LintReport::of(&described, prefix)
}

fn tool(name: &str, description: &str, properties: &Value) -> CaseTool {
    serde_json::from_value(json!({"name": name, "description": description, "properties": properties})).unwrap()
}

#[test]
fn each_case_has_the_findings_and_fixes_that_it_names() {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("cases.yaml")).unwrap();
    let mut found = BTreeSet::new();
    for Case { case, tools, finds, fixes, says } in cases {
        let report = report(&tools, "");
        let (mut rules, mut fixed, mut problems) = (BTreeMap::new(), BTreeMap::new(), String::new());
        for tool in report.tools.iter().filter(|tool| !tool.findings.is_empty()) {
            rules.insert(tool.name.clone(), tool.findings.iter().map(|finding| finding.rule).collect::<BTreeSet<_>>());
            let members = tool.findings.iter().flat_map(|finding| finding.fix.clone());
            fixed.insert(tool.name.clone(), members.collect::<Map<_, _>>());
            problems.extend(tool.findings.iter().map(|finding| finding.problem.clone() + "\n"));
        }
        fixed.retain(|_, members| !members.is_empty());
        found.extend(rules.values().flatten().copied());
        assert_eq!(rules, finds, "{case}: {problems}");
        assert_eq!(fixed, fixes, "{case}");
        for part in says {
            assert!(problems.contains(&part), "{case}: {problems}");
        }
    }
    // These have tests of their own.
    found.extend([Rule::LargeSchema, Rule::LongDescription]);
    assert_eq!(found, <Rule as strum::VariantArray>::VARIANTS.iter().copied().collect());
}

#[test]
fn a_schema_of_more_than_200_lines_is_large() {
    let properties = |count: usize| {
        let property = |number| (format!("p{number}"), json!({"type": "string", "description": "A part."}));
        Value::Object((0..count).map(property).collect())
    };
    let is_large = |count| {
        let report = report(&[tool("light__report", "Gives all lamps of a house.", &properties(count))], "");
        report.tools[0].findings.iter().any(|finding| finding.rule == Rule::LargeSchema)
    };
    // Four lines a property, and five around them.
    assert!(!is_large(48) && is_large(49));
}

#[test]
fn a_long_description_is_cut_after_a_sentence() {
    let text = format!("Gives the lamps of a house. {}", "Each lamp has a name and a room. ".repeat(40));
    let report = report(&[tool("light__list", &text, &json!({}))], "");
    let finding = &report.tools[0].findings[0];
    assert_eq!(finding.rule, Rule::LongDescription);
    let description = finding.fix["description"].as_str().unwrap();
    assert!(text.starts_with(description) && description.ends_with("room."), "{description}");
    assert!((900..=RULES.max_description_characters).contains(&description.chars().count()));
}

#[test]
fn the_score_is_the_mean_of_the_tools_with_the_prefix() {
    let tools = || [tool("light__lamp", &good_description(), &json!({})), tool("mail__inbox", "", &json!({}))];
    let scores = |prefix: &str| {
        let report = report(&tools(), prefix);
        (report.score, report.tools.iter().map(|tool| tool.score).collect::<Vec<_>>())
    };
    assert_eq!(scores(""), (80, vec![100, 60]));
    assert_eq!(scores("mail__"), (60, vec![60]));
    assert_eq!(scores("none"), (100, vec![]));
}

#[test]
fn each_rule_has_a_weight_and_advice() {
    for rule in <Rule as strum::VariantArray>::VARIANTS {
        let text = rule.text();
        assert!((1..=100).contains(&text.weight) && !text.advice.is_empty(), "{rule:?}");
    }
}
