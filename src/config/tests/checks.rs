//! Invalid values are refused too.

mod agent;
mod authentication;
mod programs;

use super::*;

const A_HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

#[test]
fn an_invalid_variable_is_named_instead_of_the_file() {
    insta::assert_snapshot!(errors_with("limits: {parallelism: 3}", &[("TOOL_PARALLELISM", "0")]), @r#"
    environment variable TOOL_PARALLELISM: `limits.parallelism`: must be above zero
      set a number above zero
    "#);
}

#[test]
fn an_invalid_value_is_refused_with_its_place() {
    insta::assert_snapshot!(errors("
breaker:
  error_threshold: 1.5
tools:
  overrides:
    calculator:
      rename: not a name
  web_search: {provider: searxng}
outbound:
  allow_networks: [10.0.0.1/8]
"), @r#"
    sekisho.yaml:3:20: `breaker.error_threshold`: must be above 0 and at most 1
      3 |   error_threshold: 1.5
        |                    ^
      set a fraction, such as 0.5
    sekisho.yaml:7:15: `tools.overrides.calculator.rename`: is not a valid name for a tool
      7 |       rename: not a name
        |               ^
      use 1 to 64 letters, digits, `_` and `-`: model APIs accept no more
    sekisho.yaml:8:15: `tools.web_search.base_url`: is missing, and `searxng` has no public address
      8 |   web_search: …
        |               ^
      set the URL of your instance, such as https://searx.example.com
    sekisho.yaml:10:20: `outbound.allow_networks[0]`: is not an address range
      10 |   allow_networks: …
         |                    ^
      write it like 10.0.0.0/8 or fd00::/8, with no bit set after the prefix, or write a single address
    "#);
}

#[test]
fn every_rule_of_the_check_is_enforced() {
    for (text, setting) in [
        ("server: {allowed_hosts: ['https://a.example']}", "server.allowed_hosts[0]"),
        ("cluster: {blobs: {url: 's3://bucket'}}", "cluster.blobs"),
        ("server: {mcp: {allowed_hosts: [a.example/b]}}", "server.mcp.allowed_hosts[0]"),
        ("server: {trusted_proxies: [localhost]}", "server.trusted_proxies[0]"),
        ("outbound: {proxy: {url: 'proxy.example:3128'}}", "outbound.proxy.url"),
        ("outbound: {proxy: {url: 'socks5://proxy.example:1080'}}", "outbound.proxy.url"),
        ("outbound: {proxy: {no_proxy: ['*.example']}}", "outbound.proxy.no_proxy[0]"),
        ("agent: {profiles: {openai: {proxy: {url: x}}}}", "agent.profiles.openai.proxy.url"),
        ("openapi: {collections: {a b: {spec_inline: x}}}", "openapi.collections.a b"),
        ("openapi: {collections: {a: {}}}", "openapi.collections.a"),
        ("openapi: {collections: {a: {spec_inline: x, spec_file: y}}}", "openapi.collections.a"),
        ("openapi: {collections: {a: {spec_url: 'file:///x'}}}", "openapi.collections.a.spec_url"),
        ("openapi: {collections: {a: {spec_inline: x, base_url: 'ftp://x'}}}", "openapi.collections.a.base_url"),
        ("openapi: {collections: {a: {spec_inline: x, auth_type: bearer}}}", "openapi.collections.a.auth_config.token"),
        (
            "openapi: {collections: {a: {spec_inline: x, auth_type: basic, auth_config: {username: u}}}}",
            "openapi.collections.a.auth_config.password",
        ),
        ("openapi: {collections: {a: {spec_inline: x, category: ''}}}", "openapi.collections.a.category"),
        (
            "openapi: {collections: {a: {spec_inline: x, base_cost_per_use: -1}}}",
            "openapi.collections.a.base_cost_per_use",
        ),
        ("openapi: {collections: {a: {spec_inline: x, operations: ['']}}}", "openapi.collections.a.operations[0]"),
        ("openapi: {collections: {a: {spec_inline: x, rate_limit: 0}}}", "openapi.collections.a.rate_limit"),
        ("openapi: {collections: {a: {spec_inline: x, timeout_seconds: 0}}}", "openapi.collections.a.timeout_seconds"),
        (
            "openapi: {collections: {a: {spec_inline: x, max_response_bytes: 0}}}",
            "openapi.collections.a.max_response_bytes",
        ),
        ("openapi: {adapters: {a: {response: ' '}}}", "openapi.adapters.a.response"),
        ("cluster: {address: '10.0.0.3:8790'}", "cluster.address"),
        ("cluster: {secret: 0123456789abcdef0123456789abcdef}", "cluster.secret"),
        ("cluster: {address: '10.0.0.3:8790', secret: 0123456789abcdef0123456789abcde}", "cluster.secret"),
        (
            "cluster: {address: '10.0.0.3:8790', secret: 0123456789abcdef0123456789abcdef, accepted_secret: short}",
            "cluster.accepted_secret",
        ),
        ("cluster: {accepted_secret: 0123456789abcdef0123456789abcdef}", "cluster.accepted_secret"),
        ("cluster: {address: '10.0.0.3:0', secret: 0123456789abcdef0123456789abcdef}", "cluster.address"),
        ("cluster: {address: '0.0.0.0:8790', secret: 0123456789abcdef0123456789abcdef}", "cluster.address"),
        ("cluster: {address: '[::]:8790', secret: 0123456789abcdef0123456789abcdef}", "cluster.address"),
        ("server: {max_body_bytes: 0}", "server.max_body_bytes"),
        ("server: {max_connections: 0}", "server.max_connections"),
        ("server: {read_timeout_seconds: 0}", "server.read_timeout_seconds"),
        ("server: {shutdown_grace_seconds: 99999999999}", "server.shutdown_grace_seconds"),
        ("server: {metrics_listen: '127.0.0.1:8080'}", "server.metrics_listen"),
        ("auth: {api_keys: [{id: '', key: k}]}", "auth.api_keys[0].id"),
        ("auth: {api_keys: [{id: \"a\\x1fb\", key: k}]}", "auth.api_keys[0].id"),
        ("auth: {api_keys: [{id: anonymous, tenant: public, key: k}]}", "auth.api_keys[0].id"),
        ("auth: {api_keys: [{id: a, tenant: \"\\t\", key: k}]}", "auth.api_keys[0].tenant"),
        ("auth: {api_keys: [{id: a, roles: [x, ''], key: k}]}", "auth.api_keys[0].roles[1]"),
        ("auth: {api_keys: [{id: a}]}", "auth.api_keys[0]"),
        ("auth: {api_keys: [{id: a, key: 'a b'}]}", "auth.api_keys[0].key"),
        ("auth: {api_keys: [{id: a, key: ''}]}", "auth.api_keys[0].key"),
        ("auth: {api_keys: [{id: a, key_sha256: abc}]}", "auth.api_keys[0].key_sha256"),
        ("auth: {api_keys: [{id: a, key: k}, {id: a, key: l}]}", "auth.api_keys[1].id"),
        ("auth: {api_keys: [{id: a, key: test}, {id: b, key_sha256: HASH}]}", "auth.api_keys[1]"),
        ("auth: {api_keys: [{id: a, key: k, key_sha256: HASH}]}", "auth.api_keys[0]"),
        ("auth: {jwt: {issuer: i, audience: a}}", "auth.jwt"),
        ("auth: {jwt: {issuer: i, audience: a, jwks_url: 'https://a', jwks_file: b}}", "auth.jwt"),
        ("auth: {jwt: {issuer: i, audience: a, jwks_url: 'http://a.example'}}", "auth.jwt.jwks_url"),
        ("auth: {jwt: {issuer: '', audience: a, jwks_file: b}}", "auth.jwt.issuer"),
        ("auth: {jwt: {issuer: i, audience: ' ', jwks_file: b}}", "auth.jwt.audience"),
        ("auth: {jwt: {issuer: i, audience: a, jwks_file: b, leeway_seconds: 301}}", "auth.jwt.leeway_seconds"),
        ("auth: {jwt: {issuer: i, audience: [], jwks_file: b}}", "auth.jwt.audience"),
        ("auth: {jwt: {issuer: i, audience: [a, ''], jwks_file: b}}", "auth.jwt.audience"),
        ("auth: {jwt: {issuer: 'http://a.example', audience: a}}", "auth.jwt"),
        ("auth: {jwt: {issuer: 'https://a.example?b', audience: a}}", "auth.jwt"),
        ("auth: {jwt: [{issuer: 'https://a.example', audience: a}, {issuer: b, audience: a}]}", "auth.jwt[1]"),
        (
            "auth: {jwt: [{issuer: 'https://a.example', audience: a}, {issuer: 'https://a.example', audience: b}]}",
            "auth.jwt[1].issuer",
        ),
        (
            "auth: {jwt: [{issuer: 'https://a.example', audience: a}, {issuer: 'b#c', audience: a, jwks_file: d}]}",
            "auth.jwt[1].issuer",
        ),
        (
            "auth: {jwt: {issuer: 'https://a.example', audience: a, introspection: {client_id: '', client_secret: s}}}",
            "auth.jwt.introspection.client_id",
        ),
        (
            "auth: {jwt: {issuer: 'https://a.example', audience: a, introspection: {client_id: c, client_secret: ''}}}",
            "auth.jwt.introspection.client_secret",
        ),
        (
            "auth: {jwt: {issuer: i, audience: a, jwks_file: b, introspection: {client_id: c, client_secret: s}}}",
            "auth.jwt.introspection",
        ),
        (
            "auth: {jwt: {issuer: i, audience: a, jwks_file: b, introspection: {client_id: c, client_secret: s, url: 'http://a.example'}}}",
            "auth.jwt.introspection.url",
        ),
        (
            "auth: {jwt: [{issuer: 'https://a.example', audience: a, introspection: {client_id: c, client_secret: s}}, {issuer: 'https://b.example', audience: a, introspection: {client_id: c, client_secret: s}}]}",
            "auth.jwt",
        ),
        ("auth: {scopes: {read: [a]}}", "auth.scopes"),
        ("auth: {jwt: {issuer: 'https://a.example', audience: a}, scopes: {'a b': [a]}}", "auth.scopes.a b"),
        ("auth: {jwt: {issuer: 'https://a.example', audience: a}, scopes: {'a\"b': [a]}}", "auth.scopes.a\"b"),
        ("auth: {jwt: {issuer: 'https://a.example', audience: a}, scopes: {read: []}}", "auth.scopes.read"),
        ("auth: {jwt: {issuer: 'https://a.example', audience: a}, scopes: {read: ['a*b']}}", "auth.scopes.read"),
        ("auth: {jwt: {issuer: 'https://a.example', audience: a}, scopes: {read: ['']}}", "auth.scopes.read[0]"),
        ("tools: {overrides: {a b: {}}}", "tools.overrides.a b"),
        ("tools: {overrides: {x: {rename: ''}}}", "tools.overrides.x.rename"),
        ("tools: {overrides: {x: {description: ' '}}}", "tools.overrides.x.description"),
        ("tools: {overrides: {x: {cost_per_use: -1}}}", "tools.overrides.x.cost_per_use"),
        ("tools: {overrides: {x: {rate_limit: 0}}}", "tools.overrides.x.rate_limit"),
        ("tools: {overrides: {x: {timeout_seconds: 0}}}", "tools.overrides.x.timeout_seconds"),
        ("tools: {overrides: {x: {timeout_seconds: 4000000000}}}", "tools.overrides.x.timeout_seconds"),
        ("tools: {overrides: {x: {memory_limit_mb: 0}}}", "tools.overrides.x.memory_limit_mb"),
        ("tools: {overrides: {x: {max_concurrent: 0}}}", "tools.overrides.x.max_concurrent"),
        ("tools: {overrides: {x: {max_concurrent_global: true}}}", "tools.overrides.x.max_concurrent_global"),
        (
            "tools: {overrides: {x: {max_concurrent: 1001, max_concurrent_global: true}}}",
            "tools.overrides.x.max_concurrent_global",
        ),
        ("tools: {overrides: {x: {max_text_tokens: 0}}}", "tools.overrides.x.max_text_tokens"),
        ("tools: {overrides: {x: {max_output_bytes: 0}}}", "tools.overrides.x.max_output_bytes"),
        ("tools: {overrides: {x: {roles: ['']}}}", "tools.overrides.x.roles[0]"),
        ("tools: {guards: {rules: [{name: a b, on_match: block, detect: [emails]}]}}", "tools.guards.rules[0].name"),
        ("tools: {guards: {rules: [{name: a, on_match: block}]}}", "tools.guards.rules[0]"),
        ("tools: {guards: {rules: [{name: a, on_match: block, service: b}]}}", "tools.guards.rules[0].service"),
        (
            "tools: {guards: {rules: [{name: a, on_match: mask, detect: [emails], directions: [arguments]}]}}",
            "tools.guards.rules[0].on_match",
        ),
        (
            "tools: {guards: {rules: [{name: a, on_match: block, detect: [emails], directions: [descriptions], tenants: [b]}]}}",
            "tools.guards.rules[0].tenants",
        ),
        (
            "tools: {guards: {rules: [{name: a, on_match: block, detect: [emails], sources: ['*b']}]}}",
            "tools.guards.rules[0].sources",
        ),
        (
            "tools: {guards: {rules: [{name: a, on_match: block, detect: [emails], sources: [github]}]}}",
            "tools.guards.rules[0].sources",
        ),
        (
            "tools: {guards: {rules: [{name: a, on_match: block, detect: [personal_numbers], countries: [US]}]}}",
            "tools.guards.rules[0].countries",
        ),
        ("tools: {guards: {services: {a: {kind: generic, url: 'ftp://b'}}}}", "tools.guards.services.a.url"),
        ("tools: {guards: {services: {a: {kind: llama_guard, url: 'http://b'}}}}", "tools.guards.services.a.model"),
        ("tools: {transform: {arguments: [{name: a b, detect: [emails]}]}}", "tools.transform.arguments[0].name"),
        ("tools: {transform: {results: [{name: a}]}}", "tools.transform.results[0]"),
        ("tools: {transform: {results: [{name: a, paths: [a.b]}]}}", "tools.transform.results[0].paths[0]"),
        ("tools: {transform: {arguments: [{name: a, paths: [$]}]}}", "tools.transform.arguments[0].paths"),
        (
            "tools: {transform: {results: [{name: a, tools: ['*__find'], detect: [emails]}]}}",
            "tools.transform.results[0].tools",
        ),
        (
            "tools: {transform: {results: [{name: a, detect: [emails], replace: 7}]}}",
            "tools.transform.results[0].replace",
        ),
        (
            "tools: {transform: {results: [{name: a, detect: [emails]}, {name: a, detect: [secrets]}]}}",
            "tools.transform.results[1].name",
        ),
        ("tools: {web_fetch: {max_bytes: 0}}", "tools.web_fetch.max_bytes"),
        ("tools: {web_fetch: {allowed_domains: ['*']}}", "tools.web_fetch.allowed_domains[0]"),
        ("tools: {web_search: {provider: searxng}}", "tools.web_search.base_url"),
        ("tools: {web_search: {base_url: 'file:///etc/passwd'}}", "tools.web_search.base_url"),
        ("tools: {workspace: {quota_bytes: 0}}", "tools.workspace.quota_bytes"),
        ("limits: {mcp_tool_rate_limit: 0}", "limits.mcp_tool_rate_limit"),
        (
            "mcp: {servers: {a: {url: 'https://a.example/mcp', sign_in: {client_secret: s}}}}",
            "mcp.servers.a.sign_in.client_secret",
        ),
        (
            "mcp: {servers: {a: {url: 'https://a.example/mcp', sign_in: {client_metadata_url: 'http://a.example/c'}}}}",
            "mcp.servers.a.sign_in.client_metadata_url",
        ),
        ("mcp: {servers: {a: {command: x, identity: per_user}}}", "mcp.servers.a.identity"),
        (
            "mcp: {servers: {a: {url: 'https://a.example/mcp', identity: per_user, share: tenant}}}",
            "mcp.servers.a.share",
        ),
        (
            "mcp: {servers: {a: {url: 'https://a.example/mcp', identity: stored, credential_header: 'X Key'}}}",
            "mcp.servers.a.credential_header",
        ),
        ("mcp: {servers: {a: {url: 'https://a.example/mcp', identity: forward}}}", "mcp.servers.a.exchange.audience"),
        (
            "mcp: {servers: {a: {url: 'https://a.example/mcp', identity: exchange, exchange: {client_id: a}}}}",
            "mcp.servers.a.exchange.token_url",
        ),
        (
            "mcp: {servers: {a: {url: 'https://a.example/mcp', identity: exchange, exchange: {grant: id_jag, client_id: a, \
             token_url: 'https://a.example/token'}}}}",
            "mcp.servers.a.exchange.audience",
        ),
        (
            "mcp: {servers: {a: {url: 'https://a.example/mcp', identity: exchange, exchange: {client_id: a, resource: r, \
             token_url: 'https://a.example/token'}}}}",
            "mcp.servers.a.exchange.resource",
        ),
        (
            "mcp: {servers: {a: {url: 'http://127.0.0.1:1/mcp', client_certificate: {certificate: /c, key: /k}}}}",
            "mcp.servers.a.client_certificate",
        ),
        ("mcp: {servers: {a: {command: x, max_text_tokens: 0}}}", "mcp.servers.a.max_text_tokens"),
        ("mcp: {servers: {a: {command: x, max_output_bytes: 0}}}", "mcp.servers.a.max_output_bytes"),
        (
            "mcp: {servers: {a: {url: 'https://a.example/mcp', transport: sse, revision: 2026-07-28}}}",
            "mcp.servers.a.revision",
        ),
        ("limits: {caller_rate_limit: 0}", "limits.caller_rate_limit"),
        ("limits: {tenant_rate_limit: 0}", "limits.tenant_rate_limit"),
        ("limits: {max_concurrent: 0}", "limits.max_concurrent"),
        ("limits: {max_concurrent_per_tool: 0}", "limits.max_concurrent_per_tool"),
        ("limits: {parallelism: 0}", "limits.parallelism"),
        ("tools: {overrides: {x: {approvals_needed: 3}}}", "tools.overrides.x.approvals_needed"),
        ("tools: {overrides: {x: {labels: {authored: [a.b]}}}}", "tools.overrides.x.labels.authored[0]"),
        ("tools: {overrides: {x: {sink: {kind: send, destination: [to]}}}}", "tools.overrides.x.sink.destination[0]"),
        ("flow: {history: {days: 0}}", "flow.history.days"),
        ("secrets: {key: '00ff'}", "secrets.key"),
        (
            "secrets: {previous_key: '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}",
            "secrets.previous_key",
        ),
        (
            "approvals: {webhook: {url: 'file:///a', secret: whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3}}",
            "approvals.webhook.url",
        ),
        ("approvals: {webhook: {url: 'https://a.example', secret: whsec_MDEy}}", "approvals.webhook.secret"),
        ("policy: {timeout_ms: 0}", "policy.timeout_ms"),
        ("policy: {timeout_ms: 60001}", "policy.timeout_ms"),
        ("policy: {external: {url: 'file:///a'}}", "policy.external.url"),
        ("policy: {external: {url: 'http://a:b@opa.example/v1/data/tools'}}", "policy.external.url"),
        ("policy: {external: {url: 'http://opa.example/v1/data/tools', timeout_ms: 0}}", "policy.external.timeout_ms"),
        ("budget: {max_cost_per_request: -0.01}", "budget.max_cost_per_request"),
        ("budget: {max_tokens_per_request: 0}", "budget.max_tokens_per_request"),
        ("budget: {max_tokens_per_run: 0}", "budget.max_tokens_per_run"),
        ("agent: {profiles: {openai: {context_tokens: 0}}}", "agent.profiles.openai.context_tokens"),
        ("agent: {profiles: {b: {provider: bedrock, model: m, aws: {access_key_id: A}}}}", "agent.profiles.b.aws"),
        ("agent: {profiles: {b: {provider: bedrock, model: m, aws: {role_arn: R}}}}", "agent.profiles.b.aws"),
        ("agent: {background: {max_running_per_tenant: 0}}", "agent.background.max_running_per_tenant"),
        ("agent: {background: {max_waiting_per_tenant: 0}}", "agent.background.max_waiting_per_tenant"),
        ("budget: {max_tokens_per_tenant_per_day: 0}", "budget.max_tokens_per_tenant_per_day"),
        ("budget: {scope_idle_seconds: 18446744073709551615}", "budget.scope_idle_seconds"),
        ("breaker: {consecutive_failures: 0}", "breaker.consecutive_failures"),
        ("breaker: {recovery_seconds: 0}", "breaker.recovery_seconds"),
        ("breaker: {error_threshold: 0}", "breaker.error_threshold"),
        ("breaker: {error_threshold: 1.01}", "breaker.error_threshold"),
        ("breaker: {window_seconds: 0}", "breaker.window_seconds"),
        ("breaker: {min_requests: 0}", "breaker.min_requests"),
        ("execution: {max_attempts: 0}", "execution.max_attempts"),
        ("execution: {attempt_timeout_seconds: 0}", "execution.attempt_timeout_seconds"),
        ("execution: {backoff_base_seconds: 11}", "execution.backoff_max_seconds"),
        ("outbound: {max_connections: 0}", "outbound.max_connections"),
        ("outbound: {connect_timeout_seconds: -1}", "outbound.connect_timeout_seconds"),
        ("outbound: {allow_networks: [10.0.0.0/8, localhost]}", "outbound.allow_networks[1]"),
        ("outbound: {mcp_allowed_domains: ['https://a.example']}", "outbound.mcp_allowed_domains[0]"),
        ("outbound: {openapi_allowed_domains: ['*.example']}", "outbound.openapi_allowed_domains[0]"),
        ("mcp: {servers: {a: {command: x, sandbox: off, allow_networks: [10.2.0.1]}}}", "mcp.servers.a.allow_networks"),
        ("catalogue: {sources: {'mcp:nobody': text}}", "catalogue.sources.mcp:nobody"),
        ("{mcp: {servers: {a: {command: x}}}, catalogue: {sources: {a: text}}}", "catalogue.sources.a"),
        ("{mcp: {servers: {a: {command: x}}}, catalogue: {sources: {'mcp:a': ' '}}}", "catalogue.sources.mcp:a"),
        ("mcp: {servers: {a: {command: x, overlay: githup}}}", "mcp.servers.a.overlay"),
        ("results: {max_inline_bytes: 1000}", "results.max_inline_bytes"),
        ("results: {lifetime_seconds: 0}", "results.lifetime_seconds"),
        ("session: {idle_seconds: 0}", "session.idle_seconds"),
        ("session: {max_per_caller: 0}", "session.max_per_caller"),
        ("session: {max_idempotency_keys: 0}", "session.max_idempotency_keys"),
        ("audit: {max_queued: 0}", "audit.max_queued"),
        ("audit: {retention_days: 0}", "audit.retention_days"),
        ("audit: {index_days: 0}", "audit.index_days"),
        ("audit: {index_max_megabytes: 0}", "audit.index_max_megabytes"),
        ("telemetry: {metrics_namespace: 9lives}", "telemetry.metrics_namespace"),
        ("telemetry: {metrics_namespace: 'a:b'}", "telemetry.metrics_namespace"),
        ("telemetry: {metrics_namespace: ''}", "telemetry.metrics_namespace"),
        ("telemetry: {log: 'a=b=c'}", "telemetry.log"),
    ] {
        let text = text.replace("HASH", A_HASH);
        let found = load(&text).unwrap_err();
        let expected = format!("`{setting}`: ");
        assert!(found.len() == 1 && found[0].message.starts_with(&expected), "{text}: {found:#?}");
        assert!(found[0].advice.is_some() && matches!(found[0].place, ConfigLocation::At { .. }), "{text}: {found:#?}");
    }
}

#[test]
fn a_program_in_a_sandbox_may_reach_further_networks() {
    let config = load("mcp: {servers: {a: {command: x, allow_networks: [10.2.0.0/16]}}}").unwrap();
    assert_eq!(config.mcp.servers["a"].allow_networks, ["10.2.0.0/16"]);
}

#[test]
fn object_storage_is_checked() {
    for (blobs, setting) in [
        ("url: 'ftp://host/folder'", "cluster.blobs.url"),
        ("url: 's3:///prefix'", "cluster.blobs.url"),
        ("url: 's3://user@bucket'", "cluster.blobs.url"),
        ("url: 's3://bucket?region=a'", "cluster.blobs.url"),
        ("url: 'file://folder'", "cluster.blobs.url"),
        ("url: 'file:///'", "cluster.blobs.url"),
        ("url: 'file:///folder', region: a", "cluster.blobs.region"),
        ("url: 's3://bucket', access_key_id: a", "cluster.blobs"),
        ("url: 's3://bucket', endpoint: 'ftp://host'", "cluster.blobs.endpoint"),
    ] {
        let replica = format!("store: {{url: 'postgres://h/d'}}\ncluster: {{enabled: true, blobs: {{{blobs}}}}}\n");
        let found = load(&replica).unwrap_err();
        assert!(found.len() == 1 && found[0].message.starts_with(&format!("`{setting}`: ")), "{blobs}: {found:#?}");
    }
    for blobs in
        ["url: 's3://bucket'", "url: 'gs://bucket/a/b'", "url: 'az://container@account'", "url: 'file:///folder'"]
    {
        let replica = format!("store: {{url: 'postgres://h/d'}}\ncluster: {{enabled: true, blobs: {{{blobs}}}}}\n");
        assert!(load(&replica).is_ok(), "{blobs}");
    }
}
