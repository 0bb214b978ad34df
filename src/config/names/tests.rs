use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::{Environment, json_schema};

/// Each map by names and each list of texts of the configuration, and the kind of its names: `None` for names that are
/// compared with existing ones, otherwise why they are not.
const MAPS_AND_LISTS: &[(&str, Option<&str>)] = &[
    ("agent.models", DEFINES),
    ("agent.profiles", DEFINES),
    ("agent.profiles.*.end_words", TEXTS),
    ("agent.profiles.*.extra_body", GIVEN),
    ("agent.profiles.*.headers", HEADERS),
    ("agent.profiles.*.proxy.no_proxy", ADDRESSES),
    ("agent.profiles.*.sign_in.scopes", ELSEWHERE),
    ("agent.profiles.*.subagents", SUBAGENTS),
    ("agent.profiles.*.tools.exclude", None),
    ("agent.profiles.*.tools.include", None),
    ("agent.subagents.types", DEFINES),
    ("agent.subagents.types.*.subagents", SUBAGENTS),
    ("agent.subagents.types.*.tools.exclude", None),
    ("agent.subagents.types.*.tools.include", None),
    ("auth.api_keys[].roles", Some("it gives its caller these roles")),
    ("auth.broker.assertion_clients", DEFINES),
    ("auth.broker.default_roles", Some("it gives its users these roles")),
    ("auth.broker.redirects", ADDRESSES),
    ("auth.broker.roles", ELSEWHERE),
    ("auth.broker.roles.*", Some("it gives its users these roles")),
    ("auth.broker.scopes", ELSEWHERE),
    ("auth.jwt.audience", ELSEWHERE),
    ("auth.jwt[].audience", ELSEWHERE),
    ("auth.oidc.scopes", ELSEWHERE),
    ("auth.scopes", Some("tokens of issuers have them")),
    ("auth.scopes.*", None),
    ("auth.workloads[].roles", Some("it gives its callers these roles")),
    ("catalogue.sources", Some("another source than those of `mcp` and `openapi` is refused")),
    ("components.credentials", None),
    ("components.credentials.*", ADDRESSES),
    ("components.credentials.*.*", HEADERS),
    ("components.grants", None),
    ("components.grants.*.allow_networks", ADDRESSES),
    ("components.grants.*.config", GIVEN),
    ("components.grants.*.env", GIVEN),
    ("components.grants.*.folders", GIVEN),
    ("components.grants.*.http", ADDRESSES),
    ("console.roles.admin", None),
    ("console.roles.approver", None),
    ("console.roles.operator", None),
    ("console.roles.viewer", None),
    ("limits.rules[].match.callers", None),
    ("limits.rules[].match.keys", None),
    ("limits.rules[].match.roles", None),
    ("limits.rules[].match.tenants", None),
    ("limits.rules[].match.tools", None),
    ("mcp.endpoints", DEFINES),
    ("mcp.endpoints.*.roles", None),
    ("mcp.endpoints.*.tools", None),
    ("mcp.files", FILES),
    ("mcp.oauth.scopes", ELSEWHERE),
    ("mcp.secrets", DEFINES),
    ("mcp.servers", DEFINES),
    ("mcp.servers.*.allow_networks", ADDRESSES),
    ("mcp.servers.*.args", TEXTS),
    ("mcp.servers.*.env", GIVEN),
    ("mcp.servers.*.exchange.scopes", ELSEWHERE),
    ("mcp.servers.*.exclude", None),
    ("mcp.servers.*.headers", HEADERS),
    ("mcp.servers.*.headers_template", HEADERS),
    ("mcp.servers.*.include", None),
    ("mcp.servers.*.labels", TEXTS),
    ("mcp.servers.*.labels.asserted", TEXTS),
    ("mcp.servers.*.labels.authored", TEXTS),
    ("mcp.servers.*.labels.names", TEXTS),
    ("mcp.servers.*.labels.secrecy", TEXTS),
    ("mcp.servers.*.oauth.scopes", ELSEWHERE),
    ("mcp.servers.*.roles", None),
    ("mcp.servers.*.sandbox.network", ADDRESSES),
    ("mcp.servers.*.sign_in.scopes", ELSEWHERE),
    ("openapi.adapters", DEFINES),
    ("openapi.adapters.*.defaults", VENDOR),
    ("openapi.adapters.*.headers", HEADERS),
    ("openapi.adapters.*.inject", VENDOR),
    ("openapi.adapters.*.keys", VENDOR),
    ("openapi.adapters.*.operations", None),
    ("openapi.adapters.*.time_ranges", VENDOR),
    ("openapi.adapters.*.time_ranges.*", VENDOR),
    ("openapi.adapters.*.values", VENDOR),
    ("openapi.adapters.*.values.*", VENDOR),
    ("openapi.collections", DEFINES),
    ("openapi.collections.*.allow_networks", ADDRESSES),
    ("openapi.collections.*.auth_config.extra_headers", HEADERS),
    ("openapi.collections.*.auth_config.headers_template", HEADERS),
    ("openapi.collections.*.auth_config.hosts", ADDRESSES),
    ("openapi.collections.*.credentials", None),
    ("openapi.collections.*.credentials.*.scopes", ELSEWHERE),
    ("openapi.collections.*.dangerous.methods", None),
    ("openapi.collections.*.dangerous.operations", None),
    ("openapi.collections.*.dangerous.tags", None),
    ("openapi.collections.*.descriptions", None),
    ("openapi.collections.*.exchange.scopes", ELSEWHERE),
    ("openapi.collections.*.labels", TEXTS),
    ("openapi.collections.*.labels.asserted", TEXTS),
    ("openapi.collections.*.labels.authored", TEXTS),
    ("openapi.collections.*.labels.names", TEXTS),
    ("openapi.collections.*.labels.secrecy", TEXTS),
    ("openapi.collections.*.media_types", None),
    ("openapi.collections.*.methods", None),
    ("openapi.collections.*.operations", None),
    ("openapi.collections.*.overlays", FILES),
    ("openapi.collections.*.paths", None),
    ("openapi.collections.*.renames", None),
    ("openapi.collections.*.tags", None),
    ("openapi.secrets", DEFINES),
    ("outbound.allow_networks", ADDRESSES),
    ("outbound.ca_files", FILES),
    ("outbound.mcp_allowed_domains", ADDRESSES),
    ("outbound.openapi_allowed_domains", ADDRESSES),
    ("outbound.proxy.no_proxy", ADDRESSES),
    ("policy.dangerous_roles", None),
    ("python_tools.settings", None),
    ("python_tools.settings.*", GIVEN),
    ("recording.content.tenants", None),
    ("recording.content.tools", None),
    ("sandbox.data_files", FILES),
    ("server.allowed_hosts", ADDRESSES),
    ("server.mcp.allowed_hosts", ADDRESSES),
    ("server.mcp.allowed_origins", ADDRESSES),
    ("server.trusted_proxies", ADDRESSES),
    ("tenants", None),
    ("tenants.*.collections", None),
    ("tenants.*.mcp_servers", None),
    ("tenants.*.models", None),
    ("tenants.*.skills", None),
    ("tools.guards.rules[].countries", TEXTS),
    ("tools.guards.rules[].sources", TEXTS),
    ("tools.guards.rules[].tenants", None),
    ("tools.guards.rules[].tools", None),
    ("tools.guards.services", DEFINES),
    ("tools.overrides", None),
    ("tools.overrides.*.cases[].arguments", ARGUMENTS),
    ("tools.overrides.*.cases[].sent", ARGUMENTS),
    ("tools.overrides.*.defaults", ARGUMENTS),
    ("tools.overrides.*.enumerate", ARGUMENTS),
    ("tools.overrides.*.enumerate.*.arguments", ARGUMENTS),
    ("tools.overrides.*.fix", ARGUMENTS),
    ("tools.overrides.*.labels", TEXTS),
    ("tools.overrides.*.labels.asserted", TEXTS),
    ("tools.overrides.*.labels.authored", TEXTS),
    ("tools.overrides.*.labels.names", TEXTS),
    ("tools.overrides.*.labels.secrecy", TEXTS),
    ("tools.overrides.*.roles", None),
    ("tools.overrides.*.sink.destination", TEXTS),
    ("tools.transform.arguments[].paths", TEXTS),
    ("tools.transform.arguments[].tools", None),
    ("tools.transform.results[].paths", TEXTS),
    ("tools.transform.results[].tools", None),
    ("tools.web_fetch.allow_networks", ADDRESSES),
    ("tools.web_fetch.allowed_domains", ADDRESSES),
];

const ARGUMENTS: Option<&str> = Some("the tool's schema has them, with which they are compared when the tool is built");
const DEFINES: Option<&str> = Some("it defines these names");
const GIVEN: Option<&str> = Some("it is given to code that reads it by names of its own");
const ELSEWHERE: Option<&str> = Some("an authorization server knows them");
const HEADERS: Option<&str> = Some("they are names of headers");
const ADDRESSES: Option<&str> = Some("they are addresses or networks");
const FILES: Option<&str> = Some("they are files, which must exist");
const TEXTS: Option<&str> = Some("they are texts of their own");
const VENDOR: Option<&str> = Some("they are fields of the vendor's API, which no document need list");
const SUBAGENTS: Option<&str> = Some("`agent::catalog::read_folders` refuses a type that nobody defines");

/// A configuration with the name `nobody` in each map and list whose names are compared. The other keys of maps are `k`.
const EVERYWHERE: &str = "
agent:
  profiles: {k: {provider: replay, model: x, tools: {include: [nobody], exclude: [nobody]}}}
  subagents: {types: {k: {description: d, prompt: p, tools: {include: [nobody], exclude: [nobody]}}}}
auth: {jwt: {issuer: 'https://issuer.example', audience: x}, scopes: {k: [nobody]}}
components: {directory: /k, grants: {nobody: {http: [h.example]}}, credentials: {nobody: {h.example: {x: y}}}}
console: {roles: {viewer: [nobody], operator: [nobody], approver: [nobody], admin: [nobody]}}
limits:
  rules:
  - {name: k, per: tool, rate: 1, match: {tools: [nobody], callers: [nobody], tenants: [nobody], roles: [nobody], keys: [nobody]}}
mcp:
  servers: {k: {command: k, include: [nobody], exclude: [nobody], roles: [nobody]}}
  endpoints: {k: {tools: [nobody], roles: [nobody]}}
openapi:
  adapters: {k: {operations: [nobody]}}
  collections:
    k:
      spec_inline: '{}'
      operations: [nobody]
      tags: [nobody]
      paths: [nobody]
      methods: [nobody]
      dangerous: {methods: [nobody], operations: [nobody], tags: [nobody]}
      renames: {nobody: k}
      descriptions: {nobody: k}
      media_types: {nobody: k}
      credentials: {nobody: {token: k}}
policy: {dangerous_roles: [nobody]}
python_tools: {directory: /k, settings: {nobody: {}}}
recording: {content: {tools: [nobody], tenants: [nobody]}}
tenants: {nobody: {models: [nobody], skills: [nobody], mcp_servers: [nobody], collections: [nobody]}}
tools:
  overrides: {nobody: {roles: [nobody]}}
  guards: {rules: [{name: k, on_match: block, detect: [secrets], tools: [nobody], tenants: [nobody]}]}
  transform:
    arguments: [{name: k, tools: [nobody], paths: ['$.k']}]
    results: [{name: k, tools: [nobody], paths: ['$.k']}]
";

fn config(yaml: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sekisho.yaml");
    std::fs::write(&file, yaml).unwrap();
    let state = folder.path().display().to_string();
    Config::load(Some(&file), &Environment::from_iter([("SEKISHO_STATE_DIRECTORY", state)])).unwrap()
}

/// The maps whose keys are no settings, and the lists of texts.
fn maps_and_lists(whole: &Value, schema: &Value, at: &str, refs: &[&str], found: &mut BTreeSet<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        // None is in itself.
        assert!(!refs.contains(&reference), "{at}: {reference} refers to itself");
        let target = whole.pointer(&reference[1..]).unwrap();
        return maps_and_lists(whole, target, at, &[refs, &[reference]].concat(), found);
    }
    let more = &schema["additionalProperties"];
    if more.is_object() || more == true {
        found.insert(at.to_owned());
        maps_and_lists(whole, more, &format!("{at}.*"), refs, found);
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        maps_and_lists(whole, member, &at, refs, found);
    }
    if let Some(items) = schema.get("items") {
        if items["type"] == "string" {
            found.insert(at.to_owned());
        }
        maps_and_lists(whole, items, &format!("{at}[]"), refs, found);
    }
    for kind in ["anyOf", "oneOf", "allOf"] {
        for one in schema[kind].as_array().into_iter().flatten() {
            maps_and_lists(whole, one, at, refs, found);
        }
    }
}

#[test]
fn each_map_and_list_of_the_schema_has_names_that_are_compared_or_says_why_not() {
    let schema = json_schema();
    let mut found = BTreeSet::new();
    maps_and_lists(&schema, &schema, "", &[], &mut found);
    let stated: BTreeSet<_> = MAPS_AND_LISTS.iter().map(|(at, _)| (*at).to_owned()).collect();
    let difference = (found.difference(&stated).collect::<Vec<_>>(), stated.difference(&found).collect::<Vec<_>>());
    assert_eq!(difference, (vec![], vec![]), "in the schema alone, and in the table alone");
    assert!(MAPS_AND_LISTS.is_sorted_by_key(|(at, _)| *at));
}

#[test]
fn the_names_that_are_compared_are_those_of_the_table() {
    let references = config(EVERYWHERE).name_references();
    let compared: BTreeSet<_> = references.iter().filter(|reference| reference.name == "nobody").map(place).collect();
    let stated = MAPS_AND_LISTS.iter().filter(|(_, why_not)| why_not.is_none());
    assert_eq!(compared, stated.map(|(at, _)| (*at).to_owned()).collect());
}

/// The map or list in which a name of [`EVERYWHERE`] is, as the table names it.
fn place(reference: &NameReference) -> String {
    let list = reference.setting.strip_suffix("[0]").or_else(|| reference.setting.strip_suffix(".nobody"));
    let at = list.unwrap().replace("[0]", "[]");
    at.split('.').map(|step| if matches!(step, "k" | "nobody") { "*" } else { step }).collect::<Vec<_>>().join(".")
}

fn existing() -> ExistingNames {
    let mut names = ExistingNames::default();
    names.add(NameKind::SourceTool, "", ["calculator", "crm__find", "step_1"]);
    names.add(NameKind::Tool, "", ["calculator", "crm__find", "crm__find_all"]);
    names.add(NameKind::Role, "", ["operator", "auditor", "approver", "admin"]);
    names.add(NameKind::Path, "pets", ["/pets", "/pets/{id}"]);
    names.add(NameKind::Method, "pets", ["GET", "DELETE"]);
    names.add_pending("files__");
    names
}

#[test]
fn a_name_that_matches_nothing_is_named_with_the_nearest_one() {
    let rule = "limits.rules[0].match.tools[0]";
    let filter = "agent.profiles.a.tools.exclude[0]";
    for (setting, kind, of, name, expected) in [
        ("tools.overrides.calculator", NameKind::SourceTool, "", "calculator", None),
        (
            "tools.overrides.calculater",
            NameKind::SourceTool,
            "",
            "calculater",
            Some(("there is no tool \"calculater\"; did you mean `calculator`?", true)),
        ),
        ("tools.overrides.zzz", NameKind::SourceTool, "", "zzz", Some(("there is no tool \"zzz\"", false))),
        // One of a series need not be there.
        (
            "tools.overrides.step_2",
            NameKind::SourceTool,
            "",
            "step_2",
            Some(("there is no tool \"step_2\"; did you mean `step_1`?", false)),
        ),
        // A tool of a source that is not loaded.
        ("tools.overrides.files__raed", NameKind::SourceTool, "", "files__raed", None),
        (rule, NameKind::Tool, "", "files__*", None),
        (rule, NameKind::Tool, "", "fil*", None),
        (rule, NameKind::Tool, "", "crm__*", None),
        (
            rule,
            NameKind::Tool,
            "",
            "crm__fnid",
            Some(("there is no tool \"crm__fnid\"; did you mean `crm__find`?", true)),
        ),
        (
            rule,
            NameKind::Tool,
            "",
            "crmm__*",
            Some(("no tool has a name like \"crmm__*\"; did you mean `crm__*`?", false)),
        ),
        (rule, NameKind::Tool, "", "crm__delete*", Some(("no tool has a name like \"crm__delete*\"", false))),
        (
            "tools.guards.rules[0].tools[0]",
            NameKind::Tool,
            "",
            "crm__fnid",
            Some(("there is no tool \"crm__fnid\"; did you mean `crm__find`?", true)),
        ),
        // Less depends on a filter.
        (
            filter,
            NameKind::Tool,
            "",
            "crm__fnid",
            Some(("there is no tool \"crm__fnid\"; did you mean `crm__find`?", false)),
        ),
        (
            "limits.rules[0].match.roles[0]",
            NameKind::Role,
            "",
            "auditer",
            Some(("there is no role of any caller \"auditer\"; did you mean `auditor`?", false)),
        ),
        ("limits.rules[0].match.keys[0]", NameKind::Key, "", "any", None),
        ("openapi.collections.pets.paths[0]", NameKind::Path, "pets", "/pets/*", None),
        (
            "openapi.collections.pets.paths[0]",
            NameKind::Path,
            "pets",
            "/cats/*",
            Some(("no path in the document has a name like \"/cats/*\"", false)),
        ),
        ("openapi.collections.other.paths[0]", NameKind::Path, "other", "/cats/*", None),
        ("openapi.collections.pets.methods[0]", NameKind::Method, "pets", "get", None),
        (
            "openapi.collections.pets.methods[0]",
            NameKind::Method,
            "pets",
            "DELTE",
            Some(("there is no method of an operation \"DELTE\"; did you mean `DELETE`?", false)),
        ),
    ] {
        let reference = NameReference { setting: setting.to_owned(), kind, of: of.to_owned(), name: name.to_owned() };
        let found = existing().judge(&reference).map(|unknown| (unknown.sentence(), unknown.is_error));
        let expected = expected.map(|(note, is_error)| (note.to_owned(), is_error));
        assert_eq!(found, expected, "{setting} {name}");
    }
}

#[test]
fn where_any_tool_may_be_missing_none_is_judged() {
    let mut names = existing();
    names.add_pending("");
    let judge = |kind, name: &str| {
        let setting = "tools.overrides.x".to_owned();
        names.judge(&NameReference { setting, kind, of: String::new(), name: name.to_owned() })
    };
    assert_eq!(judge(NameKind::Tool, "calculater"), None);
    assert!(judge(NameKind::Role, "nobody").is_some(), "roles are no tools");
}

#[test]
fn a_misspelled_guard_is_an_error_at_its_line() {
    let config = config("tools:\n  overrides:\n    calculater: {approval: always}\n    zzz: {dangerous: true}\n");
    let unknown = config.unknown_names(&existing());
    assert_eq!(
        unknown.iter().map(|unknown| &*unknown.setting).collect::<Vec<_>>(),
        ["tools.overrides.calculater", "tools.overrides.zzz"]
    );
    let errors: Vec<_> = config.name_errors(&unknown).iter().map(ToString::to_string).collect();
    let [error] = &*errors else { panic!("{errors:?}") };
    assert!(error.contains("sekisho.yaml:3:"), "{error}");
    assert!(
        error.contains("there is no tool \"calculater\"") && error.contains("did you mean `calculator`?"),
        "{error}"
    );
}

#[test]
fn names_that_stand_for_values_which_are_not_read_are_not_judged() {
    let text = "limits: {rules: [{name: k, per: tool, rate: 1, match: {tools: ['${TOOL}', nobody]}}]}\n";
    let environment = Environment::from_iter([("TOOL", "nobody".to_owned())]);
    let config = Config::load_text("sekisho.yaml".as_ref(), text.to_owned(), &environment, &[]).unwrap();
    let unknown = config.unknown_names(&existing());
    assert_eq!(unknown.iter().map(|unknown| &*unknown.setting).collect::<Vec<_>>(), ["limits.rules[0].match.tools[1]"]);
}
