//! Which changes open something: pairs of configurations, each in both directions.

use super::*;
use crate::Environment;

fn config(yaml: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sekisho.yaml");
    std::fs::write(&file, yaml).unwrap();
    let home = folder.path().display().to_string();
    let environment = Environment::from_iter([("HOME", home.as_str())]);
    let errors = |errors: Vec<crate::ConfigError>| {
        panic!("{yaml}: {}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    };
    Config::load(Some(&file), &environment).unwrap_or_else(errors)
}

fn opened(before: &str, after: &str) -> Vec<String> {
    config(after).opens(&config(before)).iter().map(|opening| opening.setting.clone()).collect()
}

/// Narrow, wide, and the settings that the change from the one to the other opens. The way back opens nothing.
const OPENING: &[(&str, &str, &[&str])] = &[
    ("", "config: {reload: immediate}", &["config.reload"]),
    ("config: {changes: read_only}", "config: {changes: four_eyes}", &["config.changes"]),
    ("config: {changes: four_eyes}", "", &["config.changes"]),
    // Who may call.
    ("auth: {anonymous: never}", "", &["auth.anonymous"]),
    ("", "auth: {anonymous: always}", &["auth.anonymous"]),
    ("auth: {anonymous: never, api_keys: [{id: a, key: k}]}", "", &["auth.anonymous", "auth"]),
    ("auth: {api_keys: [{id: a, key: k}]}", "", &["auth"]),
    (
        "auth: {api_keys: [{id: a, key: k, roles: [one]}]}",
        "auth: {api_keys: [{id: a, key: k, roles: [one, admin]}]}",
        &["auth.api_keys.a.roles"],
    ),
    (
        "auth: {api_keys: [{id: a, key: k, roles: [one]}]}",
        "auth: {api_keys: [{id: a, key: rotated, roles: [one, admin]}]}",
        &["auth.api_keys.a.roles"],
    ),
    (
        "auth: {jwt: {issuer: 'https://a.example', audience: x}}",
        "auth: {jwt: [{issuer: 'https://a.example', audience: x}, {issuer: 'https://b.example', audience: x}]}",
        &["auth.jwt"],
    ),
    (
        "auth: {jwt: {issuer: 'https://a.example', audience: x}}",
        "auth: {jwt: {issuer: 'https://a.example', audience: [x, y], leeway_seconds: 60}}",
        &["auth.jwt.https://a.example.audience", "auth.jwt.https://a.example.leeway_seconds"],
    ),
    (
        "auth: {jwt: {issuer: 'https://a.example', audience: x}, scopes: {write: ['crm__*', calculator]}}",
        "auth: {jwt: {issuer: 'https://a.example', audience: x}, scopes: {write: ['crm__*']}}",
        &["auth.scopes.write"],
    ),
    (
        "auth: {jwt: {issuer: 'https://a.example', audience: x}}",
        "auth: {jwt: {issuer: 'https://a.example', audience: x}, oidc: {client_id: c}}",
        &["auth.oidc"],
    ),
    (
        "auth: {api_keys: [{id: a, key: k}]}\nserver: {mcp: {public_url: 'https://g.example'}}",
        "auth: {api_keys: [{id: a, key: k}], broker: {provider: oidc, issuer: 'https://a.example', client_id: c, client_secret: s}}\n\
         server: {mcp: {public_url: 'https://g.example'}}",
        &["auth.broker"],
    ),
    (
        "auth: {broker: {provider: oidc, issuer: 'https://a.example', client_id: c, client_secret: s, roles: {x: [y]}}}\n\
         server: {mcp: {public_url: 'https://g.example'}}",
        "auth: {broker: {provider: oidc, issuer: 'https://a.example', client_id: c, client_secret: s, roles: {x: [y, admin]}}}\n\
         server: {mcp: {public_url: 'https://g.example'}}",
        &["auth.broker.roles.x"],
    ),
    (
        "auth: {broker: {provider: oidc, issuer: 'https://a.example', client_id: c, client_secret: s}}\n\
         server: {mcp: {public_url: 'https://g.example'}}",
        "auth: {broker: {provider: oidc, issuer: 'https://a.example', client_id: c, client_secret: s, \
         assertion_clients: {app: 0123456789abcdef0123456789abcdef}}}\nserver: {mcp: {public_url: 'https://g.example'}}",
        &["auth.broker.assertion_clients"],
    ),
    (
        "auth: {api_keys: [{id: a, key: k}]}\nserver: {tls: {certificate: /c, key: /k, client_ca: /a}}",
        "auth: {api_keys: [{id: a, key: k}], workloads: [{id: 'spiffe://a.example/*'}]}\nserver: {tls: {certificate: /c, key: /k, client_ca: /a}}",
        &["auth.workloads"],
    ),
    ("", "console: {roles: {viewer: [staff]}}", &["console.roles.viewer"]),
    ("", "console: {roles: {admin: [admin, operator]}}", &["console.roles.admin"]),
    (
        "{mcp: {servers: {a: {command: x}}}, catalogue: {sources: {'mcp:a': text}}}",
        "mcp: {servers: {a: {command: x}}}",
        &["catalogue.sources"],
    ),
    (
        "mcp: {servers: {a: {command: x, overlay: github}}}",
        "mcp: {servers: {a: {command: x}}}",
        &["mcp.servers.a.overlay"],
    ),
    // The conditions of a call.
    ("policy: {directory: /p}", "", &["policy.directory"]),
    ("", "policy: {dangerous_roles: [operator, staff]}", &["policy.dangerous_roles"]),
    ("policy: {external: {url: 'http://127.0.0.1:1/a'}}", "", &["policy.external.url"]),
    (
        "policy: {external: {url: 'http://127.0.0.1:1/a'}}",
        "policy: {external: {url: 'http://127.0.0.1:1/a', send_arguments: true}}",
        &["policy.external.send_arguments"],
    ),
    ("", "approvals: {self: true}", &["approvals.self"]),
    ("tools: {overrides: {t: {approval: always}}}", "", &["tools.overrides.t.approval"]),
    (
        "tools: {overrides: {t: {approval: always}}}",
        "tools: {overrides: {t: {approval: first_use}}}",
        &["tools.overrides.t.approval"],
    ),
    ("tools: {overrides: {t: {approvals_needed: 2}}}", "", &["tools.overrides.t.approvals_needed"]),
    ("tools: {overrides: {t: {fix: {a: 1}}}}", "", &["tools.overrides.t.fix"]),
    ("", "tools: {overrides: {t: {enumerate: {a: {tool: u, path: x}}}}}", &["tools.overrides.t.enumerate"]),
    (
        "tools: {overrides: {t: {fix: {a: 1, b: 2}}}}",
        "tools: {overrides: {t: {fix: {a: 1}}}}",
        &["tools.overrides.t.fix"],
    ),
    ("tools: {overrides: {t: {project: a}}}", "", &["tools.overrides.t.project"]),
    ("tools: {overrides: {t: {dangerous: true}}}", "", &["tools.overrides.t.dangerous"]),
    ("", "tools: {overrides: {t: {dangerous: false}}}", &["tools.overrides.t.dangerous"]),
    ("tools: {overrides: {t: {requires_auth: true}}}", "", &["tools.overrides.t.requires_auth"]),
    ("tools: {overrides: {t: {roles: [a]}}}", "", &["tools.overrides.t.roles"]),
    ("", "tools: {overrides: {t: {roles: []}}}", &["tools.overrides.t.roles"]),
    ("tools: {overrides: {t: {roles: [a]}}}", "tools: {overrides: {t: {roles: [a, b]}}}", &["tools.overrides.t.roles"]),
    (
        "tools: {overrides: {t: {labels: [a, b]}}}",
        "tools: {overrides: {t: {labels: [a]}}}",
        &["tools.overrides.t.labels"],
    ),
    (
        "tools: {overrides: {t: {labels: {trust: untrusted}}}}",
        "tools: {overrides: {t: {labels: {trust: trusted}}}}",
        &["tools.overrides.t.labels"],
    ),
    ("", "tools: {overrides: {t: {sink: {kind: none}}}}", &["tools.overrides.t.sink"]),
    ("tools: {overrides: {t: {sink: {kind: pay}}}}", "", &["tools.overrides.t.sink"]),
    ("policy: {flow: enforce}", "policy: {flow: observe}", &["policy.flow"]),
    ("", "flow: {history: {days: 91}}", &["flow.history.days"]),
    ("flow: {history: {scope: caller}}", "", &["flow.history.scope"]),
    ("tools: {overrides: {t: {hidden: true}}}", "", &["tools.overrides.t.hidden"]),
    ("", "tools: {overrides: {t: {output_schema: off}}}", &["tools.overrides.t.output_schema"]),
    ("tools: {lock: a.lock}", "", &["tools.lock"]),
    ("tools: {transform: {results: [{name: a, detect: [emails]}]}}", "", &["tools.transform.results.a"]),
    ("tools: {guards: {rules: [{name: a, on_match: block, detect: [emails]}]}}", "", &["tools.guards.rules.a"]),
    // How much.
    (
        "tools: {overrides: {t: {rate_limit: 5}}}",
        "tools: {overrides: {t: {rate_limit: 6}}}",
        &["tools.overrides.t.rate_limit"],
    ),
    (
        "tools: {overrides: {t: {cost_per_use: 5}}}",
        "tools: {overrides: {t: {cost_per_use: 1}}}",
        &["tools.overrides.t.cost_per_use"],
    ),
    ("limits: {caller_rate_limit: 5}", "", &["limits.caller_rate_limit"]),
    ("", "limits: {max_concurrent: 2000}", &["limits.max_concurrent"]),
    ("limits: {rules: [{name: crm, per: caller, rate: 5}]}", "", &["limits.rules.crm"]),
    (
        "limits: {rules: [{name: crm, per: caller, rate: 5, cost_per_day: 1}]}",
        "limits: {rules: [{name: crm, per: caller, rate: 6}]}",
        &["limits.rules.crm.rate", "limits.rules.crm.cost_per_day"],
    ),
    (
        "limits: {rules: [{name: crm, per: caller, rate: 5}]}",
        "limits: {rules: [{name: crm, per: caller, rate: 5, match: {callers: [ann]}}]}",
        &["limits.rules.crm.match.callers"],
    ),
    ("", "budget: {max_cost_per_request: 1}", &["budget.max_cost_per_request"]),
    ("budget: {max_tokens_per_run: 10}", "", &["budget.max_tokens_per_run"]),
    ("budget: {max_cost_per_caller_per_day: 1}", "", &["budget.max_cost_per_caller_per_day"]),
    ("tenants: {acme: {max_tokens_per_day: 1}}", "", &["tenants.acme.max_tokens_per_day"]),
    ("tenants: {acme: {mcp_servers: [a]}}", "", &["tenants.acme.mcp_servers"]),
    ("tenants: {acme: {status: inactive}}", "", &["tenants.acme.status"]),
    // Where calls go.
    ("", "outbound: {mcp_allowed_domains: [a.example]}", &["outbound.mcp_allowed_domains"]),
    ("", "outbound: {openapi_allowed_domains: ['*']}", &["outbound.openapi_allowed_domains"]),
    ("", "outbound: {allow_networks: [10.0.0.0/8]}", &["outbound.allow_networks"]),
    (
        "mcp: {servers: {s: {command: run, env: {TOKEN: a}}}}",
        "mcp: {servers: {s: {command: run, env: {TOKEN: a, DB: 'postgres://localhost/db'}}}}",
        &["mcp.servers.s.env"],
    ),
    (
        "mcp: {servers: {s: {command: run}}}",
        "mcp: {servers: {s: {command: run, env: {PROXY: '10.0.0.1:3128'}}}}",
        &["mcp.servers.s.env"],
    ),
    (
        "mcp: {servers: {s: {command: run, env: {API_KEY: a}}}}",
        "mcp: {servers: {s: {command: run, env: {API_KEY: ' localhost:5432 '}}}}",
        &["mcp.servers.s.env"],
    ),
    (
        "mcp: {servers: {s: {command: run}}}",
        "mcp: {servers: {s: {command: run, allow_networks: [10.2.0.0/16]}}}",
        &["mcp.servers.s.allow_networks"],
    ),
    ("tools: {web_fetch: {allowed_domains: [a.example]}}", "", &["tools.web_fetch.allowed_domains"]),
    ("", "tools: {web_fetch: {allow_ports: [8080]}}", &["tools.web_fetch.allow_ports"]),
    (
        "components: {directory: c}",
        "components: {directory: c, grants: {w: {http: [a.example], folders: {/data: d}}}}",
        &["components.grants.w.folders", "components.grants.w.http"],
    ),
    // The offered tools.
    (
        "mcp: {servers: {s: {command: run, exclude: [a, b], roles: [x], labels: [l]}}}",
        "mcp: {servers: {s: {command: run, exclude: [a], trusted: true}}}",
        &["mcp.servers.s.exclude", "mcp.servers.s.trusted", "mcp.servers.s.labels", "mcp.servers.s.roles"],
    ),
    (
        "mcp: {sandbox: required, servers: {s: {command: run, sandbox: {network: none}}}}",
        "mcp: {servers: {s: {command: run, sandbox: {folders: [{path: /srv}]}}}}",
        &["mcp.servers.s.sandbox", "mcp.sandbox"],
    ),
    (
        "mcp: {servers: {s: {command: run}}}",
        "mcp: {servers: {s: {command: run, sandbox: off}}}",
        &["mcp.servers.s.sandbox"],
    ),
    (
        "mcp: {servers: {s: {command: run, disabled: true}}}",
        "mcp: {servers: {s: {command: run}}}",
        &["mcp.servers.s.disabled"],
    ),
    (
        "mcp: {servers: {s: {command: run, include: [a]}}}",
        "mcp: {servers: {s: {command: run}}}",
        &["mcp.servers.s.include"],
    ),
    (
        "mcp: {endpoints: {f: {tools: [a], roles: [x]}}}",
        "mcp: {endpoints: {f: {}}}",
        &["mcp.endpoints.f.tools", "mcp.endpoints.f.roles"],
    ),
    (
        "openapi: {collections: {p: {spec_file: a, methods: [get], dangerous: {methods: [DELETE, POST], words: true}, rate_limit: 1}}}",
        "openapi: {collections: {p: {spec_file: a}}}",
        &[
            "openapi.collections.p.methods",
            "openapi.collections.p.dangerous.methods",
            "openapi.collections.p.dangerous.words",
            "openapi.collections.p.rate_limit",
        ],
    ),
    (
        "agent: {profiles: {anthropic: {tools: {include: [a]}, max_turns: 5}}}",
        "",
        &["agent.profiles.anthropic.tools.include", "agent.profiles.anthropic.max_turns"],
    ),
    (
        "",
        "agent: {background: {max_running_per_tenant: 9, max_waiting_per_tenant: 201}}",
        &["agent.background.max_running_per_tenant", "agent.background.max_waiting_per_tenant"],
    ),
    ("agent: {models: {haiku: {status: inactive}}}", "agent: {models: {haiku: {}}}", &["agent.models.haiku.status"]),
];

/// A change in either direction opens: it is another one, and nobody can say that it is less.
const EITHER_WAY: &[(&str, &str, &str)] = &[
    ("policy: {directory: /p}", "policy: {directory: /q}", "policy.directory"),
    (
        "auth: {workloads: [{id: 'spiffe://a.example/x'}]}\nserver: {tls: {certificate: /c, key: /k, client_ca: /a}}",
        "auth: {workloads: [{id: 'spiffe://a.example/*'}]}\nserver: {tls: {certificate: /c, key: /k, client_ca: /a}}",
        "auth.workloads",
    ),
    ("tools: {overrides: {t: {fix: {a: 1}}}}", "tools: {overrides: {t: {fix: {a: 2}}}}", "tools.overrides.t.fix"),
    (
        "policy: {external: {url: 'http://127.0.0.1:1/a'}}",
        "policy: {external: {url: 'http://127.0.0.1:1/b'}}",
        "policy.external.url",
    ),
    (
        "auth: {jwt: {issuer: 'https://a.example', audience: x}}",
        "auth: {jwt: {issuer: 'https://a.example', audience: x, jwks_url: 'https://keys.example/'}}",
        "auth.jwt.https://a.example.jwks_url",
    ),
    (
        "auth: {api_keys: [{id: a, key: k, tenant: acme}]}",
        "auth: {api_keys: [{id: a, key: k}]}",
        "auth.api_keys.a.tenant",
    ),
    (
        "auth: {api_keys: [{id: a, key: k, person: Ann}]}",
        "auth: {api_keys: [{id: a, key: k}]}",
        "auth.api_keys.a.person",
    ),
    (
        "mcp: {servers: {s: {url: 'https://a.example'}}}",
        "mcp: {servers: {s: {url: 'https://b.example'}}}",
        "mcp.servers.s.url",
    ),
    ("mcp: {servers: {s: {command: a}}}", "mcp: {servers: {s: {command: b}}}", "mcp.servers.s.command"),
    ("mcp: {servers: {s: {command: a}}}", "mcp: {servers: {s: {command: a, alias: t}}}", "mcp.servers.s.alias"),
    (
        "mcp: {servers: {s: {command: a, env: {DATA: /srv/a}}}}",
        "mcp: {servers: {s: {command: a, env: {DATA: /srv/b}}}}",
        "mcp.servers.s.env",
    ),
    (
        "openapi: {collections: {p: {spec_file: a}}}",
        "openapi: {collections: {p: {spec_file: b}}}",
        "openapi.collections.p.spec_file",
    ),
    (
        "openapi: {collections: {p: {spec_file: a}}}",
        "openapi: {collections: {p: {spec_file: a, base_url: 'https://b.example'}}}",
        "openapi.collections.p.base_url",
    ),
    ("openapi: {adapters: {v: {inject: {a: b}}}}", "openapi: {adapters: {v: {}}}", "openapi.adapters.v"),
    ("", "tools: {overrides: {t: {rename: u}}}", "tools.overrides.t.rename"),
    (
        "agent: {profiles: {openai: {base_url: 'https://a.example/v1/'}}}",
        "agent: {profiles: {openai: {}}}",
        "agent.profiles.openai.base_url",
    ),
    (
        "agent: {profiles: {openai: {proxy: {url: 'http://a.example'}}}}",
        "agent: {profiles: {openai: {}}}",
        "agent.profiles.openai.proxy",
    ),
    ("tools: {web_search: {provider: brave}}", "tools: {web_search: {provider: tavily}}", "tools.web_search.provider"),
    ("python_tools: {directory: a}", "python_tools: {directory: b}", "python_tools.directory"),
    (
        "",
        "tools: {guards: {services: {s: {kind: lakera, url: 'http://b'}}, rules: [{name: a, on_match: block, service: s}]}}",
        "tools.guards.rules.a",
    ),
    (
        "tools: {guards: {rules: [{name: a, on_match: block, detect: [emails]}]}}",
        "tools: {guards: {rules: [{name: a, on_match: label, detect: [emails]}]}}",
        "tools.guards.rules.a",
    ),
    (
        "tools: {guards: {rules: [{name: a, on_match: block, detect: [emails]}]}}",
        "tools: {guards: {rules: [{name: a, on_match: block, detect: [emails]}], rules_file: b}}",
        "tools.guards.rules_file",
    ),
    (
        "tools: {transform: {results: [{name: a, detect: [emails]}, {name: b, detect: [secrets]}]}}",
        "tools: {transform: {results: [{name: b, detect: [secrets]}, {name: a, detect: [emails]}]}}",
        "tools.transform.results",
    ),
];

/// Everyday changes, which are applied at once in both directions.
const NEUTRAL: &[(&str, &str)] = &[
    ("", "telemetry: {log: debug}"),
    ("", "server: {max_body_bytes: 1000}"),
    ("", "mcp: {servers: {s: {command: run}}}"),
    (
        "outbound: {mcp_allowed_domains: [a.example]}",
        "outbound: {mcp_allowed_domains: [a.example]}\nmcp: {servers: {s: {url: 'https://a.example'}}}",
    ),
    ("", "openapi: {collections: {p: {spec_file: a}}}"),
    ("", "python_tools: {directory: a}"),
    ("", "mcp: {endpoints: {f: {tools: [a]}}}"),
    ("", "agent: {models: {haiku: {model: x}}}"),
    ("auth: {api_keys: [{id: a, key: k}]}", "auth: {api_keys: [{id: a, key: rotated}]}"),
    ("auth: {api_keys: [{id: a, key: k}]}", "auth: {api_keys: [{id: b, key: l}, {id: a, key: k}]}"),
    (
        "mcp: {servers: {s: {command: run, env: {TOKEN: /a, DB: 'postgres://u:a@localhost/d'}}}}",
        "mcp: {servers: {s: {command: run, env: {TOKEN: /b, DB: 'postgres://u:b@localhost/d'}}}}",
    ),
    (
        "openapi: {collections: {p: {spec_file: a, descriptions: {x: old}, timeout_seconds: 1}}}",
        "openapi: {collections: {p: {spec_file: a, descriptions: {x: new}, timeout_seconds: 60}}}",
    ),
    ("", "tools: {overrides: {t: {description: Does it., timeout_seconds: 5}}}"),
    ("", "tools: {overrides: {t: {summarise: head, defaults: {a: 1}}}}"),
    ("", "execution: {max_attempts: 2}"),
];

#[test]
fn what_a_change_opens_is_named_and_the_way_back_opens_nothing() {
    for (narrow, wide, expected) in OPENING {
        assert_eq!(opened(narrow, wide), *expected, "{narrow} → {wide}");
        assert!(opened(wide, narrow).is_empty(), "{wide} → {narrow}: {:?}", opened(wide, narrow));
        assert!(opened(narrow, narrow).is_empty() && opened(wide, wide).is_empty(), "{narrow} {wide}");
    }
}

#[test]
fn what_cannot_be_compared_counts_as_opening() {
    for (one, other, expected) in EITHER_WAY {
        for (before, after) in [(one, other), (other, one)] {
            assert_eq!(opened(before, after), [*expected], "{before} → {after}");
        }
    }
}

#[test]
fn everyday_changes_open_nothing() {
    for (one, other) in NEUTRAL {
        for (before, after) in [(one, other), (other, one)] {
            assert!(opened(before, after).is_empty(), "{before} → {after}: {:?}", opened(before, after));
        }
    }
}

#[test]
fn a_change_is_shown_before_and_after_and_no_secret_is() {
    let before = "auth: {anonymous: never, api_keys: [{id: a, key: hunter2, roles: [x]}]}\n\
        mcp: {servers: {s: {command: run, args: [--token, hunter2], headers_template: {}}}}\n\
        outbound: {proxy: {url: 'http://u:hunter2@proxy.example'}}\n\
        openapi: {collections: {p: {spec_url: 'https://u:hunter2@a.example/x?key=hunter2'}}}\n";
    let after = "auth: {api_keys: [{id: a, key: hunter2, roles: [x, admin]}]}\n\
        mcp: {servers: {s: {command: run, args: [--token, hunter3]}}}\n\
        openapi: {collections: {p: {spec_url: 'https://u:hunter3@b.example/x?key=hunter3'}}}\n";
    let shown: Vec<_> = config(after).opens(&config(before)).iter().map(ToString::to_string).collect();
    let expected = [
        "auth.anonymous: never → loopback",
        "auth.api_keys.a.roles: [x] → [x, admin]",
        "openapi.collections.p.spec_url: https://a.example/x → https://b.example/x",
        "mcp.servers.s.args: as it is → changed",
        "outbound.proxy.url: as it is → changed",
    ];
    assert_eq!(shown, expected);
    let long = Opening::new("a", "x".repeat(1_000), "é".repeat(1_000));
    assert_eq!((long.before.chars().count(), long.after.chars().count()), (201, 201));
}

#[test]
fn what_a_variable_gives_is_not_shown() {
    let yaml = |name: &str, key: &str| {
        let text = format!(
            "auth:\n  api_keys: [{{id: a, key: '${{KEY}}', roles: {key}}}]\n  \
             jwt: {{issuer: 'https://a.example', audience: x, jwks_url: 'https://a.example/${{{name}}}/keys?a=b'}}\n\
             mcp: {{servers: {{s: {{url: 'https://a.example/${{{name}}}/mcp'}}}}}}\n\
             outbound: {{mcp_allowed_domains: ['${{{name}}}.example', plain.example]}}\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sekisho.yaml");
        std::fs::write(&file, text).unwrap();
        let variables = [("HOME", "/home/ann"), ("KEY", "hunter1"), ("ONE", "hunter2"), ("OTHER", "hunter3")];
        Config::load(Some(&file), &Environment::from_iter(variables)).unwrap()
    };
    let opens = yaml("OTHER", "[x, admin]").opens(&yaml("ONE", "[x]"));
    let shown: Vec<_> = opens.iter().map(ToString::to_string).collect();
    let expected = [
        "auth.api_keys.a.roles: [x] → [x, admin]",
        "auth.jwt.https://a.example.jwks_url: *** → ***",
        "mcp.servers.s.url: *** → ***",
        "outbound.mcp_allowed_domains: *** → ***",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_server_of_a_file_is_compared_like_one_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("servers.json");
    let of = |command: &str| {
        std::fs::write(&file, format!(r#"{{"mcpServers": {{"s": {{"command": "{command}"}}}}}}"#)).unwrap();
        config(&format!("mcp: {{files: ['{}']}}", file.display()))
    };
    let (one, other) = (of("one"), of("other"));
    assert_eq!(other.opens(&one), [Opening::new("mcp.servers.s.command", HIDDEN, HIDDEN)]);
}

/// Whatever is in force: a file that lost everything is applied by nobody but a person.
#[test]
fn defaults_in_place_of_guards_open_each_of_them() {
    let guarded = "auth: {anonymous: never, api_keys: [{id: a, key: k}]}\n\
        policy: {directory: /p, external: {url: 'http://127.0.0.1:1/a'}}\n\
        tools: {lock: t.lock, overrides: {a: {approval: always}, b: {hidden: true}}, web_fetch: {allowed_domains: [a.example]}}\n\
        limits: {caller_rate_limit: 1, rules: [{name: r, per: caller, rate: 1}]}\n\
        budget: {max_cost_per_tenant_per_day: 1}\n\
        tenants: {acme: {collections: []}}\n";
    let expected = [
        "auth.anonymous",
        "auth",
        "tools.lock",
        "tools.overrides.a.approval",
        "tools.overrides.b.hidden",
        "tools.web_fetch.allowed_domains",
        "tenants.acme.collections",
        "tenants.acme.max_cost_per_day",
        "limits.caller_rate_limit",
        "limits.rules.r",
        "policy.directory",
        "policy.external.url",
        "budget.max_cost_per_tenant_per_day",
    ];
    assert_eq!(opened(guarded, ""), expected);
    assert!(opened("", guarded).is_empty());
}
