//! The result of a file and an environment; errors, checks and published files have a file each.

mod checks;
mod errors;
mod published;
mod specification;

use rust_decimal::Decimal;

use super::*;

fn load(text: &str) -> Result<Config, Vec<ConfigError>> {
    load_with(text, &[])
}

fn load_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, Vec<ConfigError>> {
    let environment = Environment::from_iter(variables.iter().copied());
    let mut document = Document::parse(Path::new("sekisho.yaml"), text.to_owned()).map_err(|error| vec![error])?;
    document.is_operators = true;
    Config::from_document(Some(document), &environment, None)
}

/// As a text that came over an API.
fn load_text(text: &str, variables: &[(&str, &str)]) -> Result<Config, Vec<ConfigError>> {
    let environment = Environment::from_iter(variables.iter().copied());
    Config::load_text(Path::new("sekisho.yaml"), text.to_owned(), &environment, &[])
}

fn errors(text: &str) -> String {
    errors_with(text, &[])
}

fn errors_with(text: &str, variables: &[(&str, &str)]) -> String {
    match load_with(text, variables) {
        Ok(_) => format!("no error found in:\n{text}"),
        Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    }
}

#[test]
fn without_a_file_and_without_variables_the_defaults_apply() {
    let config = Config::load(None, &Environment::default()).unwrap();
    assert_eq!(config, Config::default());
    assert!(config.check().is_empty());
    assert_eq!(load("").unwrap(), Config::default());
    assert_eq!(load("# only a comment\n").unwrap(), Config::default());
    assert_eq!(
        load("server:\nauth:\n  api_keys:\n").unwrap(),
        Config::default(),
        "keys whose values are commented out"
    );
}

#[test]
fn the_variables_of_a_program_with_a_value_from_elsewhere_are_known() {
    let env = "{A: plain, B: '${KEY}', C: 'with ${KEY}', D: '$${KEY}'}";
    let config = load_with(&format!("mcp: {{servers: {{s: {{command: run, env: {env}}}}}}}"), &[("KEY", "k")]).unwrap();
    assert_eq!(config.mcp.servers["s"].env_references, ["B", "C"].map(str::to_owned).into());
}

/// Configurations appear in logs and in test failures.
#[test]
fn debug_shows_no_secret() {
    let config = load(
        "
auth: {api_keys: [{id: ada, key: hunter2}]}
agent: {profiles: {a: {provider: anthropic, model: m, api_key: hunter2}}}
tools: {web_search: {provider: brave, api_key: hunter2}}
outbound: {mcp_allowed_domains: [b.example], proxy: {url: 'http://user:hunter2@proxy.example:3128'}}
mcp:
  secrets: {A: hunter2}
  servers:
    a: {command: a, env: {B: hunter2}}
    b: {url: 'https://b.example', headers: {C: hunter2}, token: hunter2}
    c: {url: 'https://b.example', oauth: {token_url: 'https://b.example', client_id: d, client_secret: hunter2}}
openapi:
  secrets: {E: hunter2}
  collections:
    f:
      spec_file: f.yaml
      auth_config: {api_key: hunter2, token: hunter2, password: hunter2, client_secret: hunter2, extra_headers: {G: hunter2}}
  adapters: {h: {headers: {I: hunter2}}}
store: {url: 'postgres://sekisho:hunter2@db.example/sekisho'}
cluster: {enabled: true, blobs: {url: 's3://b', access_key_id: a, secret_access_key: hunter2}}
",
    )
    .unwrap();
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(shown.matches("***").count(), 18, "{shown}");
}

#[test]
fn variables_are_filled_in_also_for_numbers_and_booleans() {
    let text = "
state_directory: ${HOME_OF_STATE}/sekisho
limits: {parallelism: '${PARALLELISM}', caller_rate_limit: '${RATE:-}'}
budget:
  max_cost_per_request: ${COST}
breaker:
  error_threshold: ${SHARE:-0.25}
tools:
  coerce_arguments: ${COERCE}
  web_search:
    api_key: ${KEY:-}
audit:
  durability: ${DURABILITY}
telemetry:
  log: info
";
    let variables = [
        ("HOME_OF_STATE", "/srv"),
        ("PARALLELISM", "7"),
        ("COST", "0.10"),
        ("COERCE", "false"),
        ("DURABILITY", "strict"),
    ];
    let config = load_with(text, &variables).unwrap();
    assert_eq!(config.state_directory(), Path::new("/srv/sekisho"));
    assert_eq!(config.limits.parallelism, 7);
    assert_eq!(config.limits.caller_rate_limit, None);
    assert_eq!(config.budget.max_cost_per_request, Decimal::new(10, 2));
    assert_eq!(config.breaker.error_threshold, 0.25);
    assert!(!config.tools.coerce_arguments);
    assert_eq!(config.tools.web_search.api_key, None, "an empty variable is no key, not an empty one");
    assert_eq!(config.audit.durability, Durability::Strict);
}

#[test]
fn a_variable_cannot_inject_yaml() {
    let hostile = "/srv\nserver: {max_body_bytes: 1}";
    let config = load_with("state_directory: ${STATE}\n", &[("STATE", hostile)]).unwrap();
    assert_eq!(config, Config { state_directory: Some(hostile.into()), ..Config::default() });
}

#[test]
fn every_variable_of_the_specification_overrides_the_file() {
    let variables = [
        ("MCP_RATE_LIMIT_DEFAULT", "61"),
        ("WEB_SEARCH_RATE_LIMIT", "121"),
        ("CALCULATOR_RATE_LIMIT", "2001"),
        ("PYTHON_EXECUTOR_RATE_LIMIT", "62"),
        ("MCP_CB_FAILURES", "6"),
        ("MCP_CB_RECOVERY_SECONDS", "63"),
        ("ENFORCE_CB_ERROR_THRESHOLD", "0.6"),
        ("ENFORCE_CB_WINDOW_SECONDS", "31"),
        ("ENFORCE_CB_MIN_REQUESTS", "21"),
        ("MAX_COST_PER_REQUEST", "0.60"),
        ("MAX_TOKENS_PER_REQUEST", "10001"),
        ("TOKEN_BUDGET_PER_AGENT", "5001"),
        ("TOKEN_BUDGET_PER_TASK", "20001"),
        ("TOOL_PARALLELISM", " 8 "),
        ("MCP_ALLOWED_DOMAINS", "a.example, b.example,"),
        ("OPENAPI_ALLOWED_DOMAINS", "*"),
        ("SEKISHO_ALLOW_NETWORKS", "127.0.0.1,10.0.0.0/8"),
        ("SEKISHO_LISTEN", "[::1]:9000"),
        ("SEKISHO_STATE_DIRECTORY", "/srv/state"),
        ("PYTHON_WASI_WASM_PATH", "/opt/python.wasm"),
        ("WASI_MEMORY_LIMIT_MB", "256"),
        ("WASI_TIMEOUT_SECONDS", "30"),
        ("RUST_LOG", "debug"),
    ];
    let config = load_with("limits: {parallelism: 3}\nbreaker: {min_requests: 3}\n", &variables).unwrap();
    assert_eq!(config.limits.mcp_tool_rate_limit, 61);
    let rate = |tool: &str| config.tools.overrides[tool].rate_limit.unwrap();
    assert_eq!([rate("web_search"), rate("calculator"), rate("python_executor")], [121, 2001, 62]);
    assert_eq!(
        config.breaker,
        BreakerConfig {
            consecutive_failures: 6,
            recovery_seconds: 63,
            error_threshold: 0.6,
            window_seconds: 31,
            min_requests: 21
        }
    );
    assert_eq!(config.budget.max_cost_per_request, Decimal::new(60, 2));
    assert_eq!(config.budget.max_tokens_per_request, 10_001);
    assert_eq!(config.budget.token_budget_per_agent, 5_001);
    assert_eq!(config.budget.token_budget_per_task, 20_001);
    assert_eq!(config.limits.parallelism, 8);
    assert_eq!(config.sandbox.wasm_path.as_deref(), Some(Path::new("/opt/python.wasm")));
    assert_eq!((config.sandbox.memory_limit_mb, config.sandbox.timeout_seconds), (256, 30));
    assert_eq!(config.outbound.mcp_allowed_domains, ["a.example", "b.example"]);
    assert_eq!(config.outbound.openapi_allowed_domains, ["*"]);
    assert_eq!(config.outbound.allow_networks, ["127.0.0.1", "10.0.0.0/8"]);
    assert_eq!(config.server.listen.to_string(), "[::1]:9000");
    assert_eq!(config.state_directory(), Path::new("/srv/state"));
    assert_eq!(config.telemetry.log, "debug");
}

#[test]
fn the_standard_variables_of_aws_set_the_credentials_of_bedrock_profiles() {
    let variables = [
        ("HOME", "/home/me"),
        ("AWS_DEFAULT_REGION", "us-west-2"),
        ("AWS_REGION", "eu-west-1"),
        ("AWS_ACCESS_KEY_ID", "ID"),
        ("AWS_SECRET_ACCESS_KEY", "KEY"),
        ("AWS_SESSION_TOKEN", "TOKEN"),
        ("AWS_CONFIG_FILE", "/etc/aws"),
    ];
    let aws = |own: &str| {
        let text = format!("agent: {{profiles: {{b: {{provider: bedrock, model: m, aws: {own}}}}}}}");
        load_with(&text, &variables).unwrap().agent.profiles["b"].aws.clone()
    };
    let expected = AwsConfig {
        region: Some("eu-west-1".into()),
        access_key_id: Some("ID".into()),
        secret_access_key: Some(Secret::new("KEY")),
        session_token: Some(Secret::new("TOKEN")),
        credentials_file: Some("/home/me/.aws/credentials".into()),
        config_file: Some("/etc/aws".into()),
        ..AwsConfig::default()
    };
    assert_eq!(aws("{}"), expected);
    let own = aws("{profile: mine}");
    assert_eq!((own.profile.as_deref(), own.access_key_id), (Some("mine"), None), "the file's own credentials count");
    let other = load_with("", &variables).unwrap();
    assert_eq!(other.agent.profiles["openai"].aws, AwsConfig::default());
}

/// D23.
#[test]
fn claude_is_another_name_of_the_provider_anthropic() {
    let config = load("agent: {profiles: {c: {provider: claude, api_key: k}}}").unwrap();
    let profile = &config.agent.profiles["c"];
    assert_eq!((profile.provider(), profile.model()), (Provider::Anthropic, "claude-sonnet-4-5"));
    let errors = errors("agent: {profiles: {c: {provider: sonnet}}}");
    assert!(errors.contains("agent.profiles.c.provider"), "{errors}");
}

#[test]
fn a_variable_leaves_the_files_other_settings_unchanged() {
    let text = "tools:\n  overrides:\n    calculator: {dangerous: true, rate_limit: 1}\n";
    let config = load_with(text, &[("CALCULATOR_RATE_LIMIT", "5"), ("WEB_SEARCH_RATE_LIMIT", "")]).unwrap();
    let calculator = &config.tools.overrides["calculator"];
    assert_eq!((calculator.dangerous, calculator.rate_limit), (Some(true), Some(5)));
    assert!(!config.tools.overrides.contains_key("web_search"));
}

#[test]
fn the_state_directory_follows_the_base_directory_specification() {
    for (variables, expected) in [
        (&[("XDG_STATE_HOME", "/x"), ("HOME", "/h")][..], "/x/sekisho"),
        (&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")], "/h/.local/state/sekisho"),
        (&[("HOME", "/h")], "/h/.local/state/sekisho"),
        (&[], "sekisho-state"),
    ] {
        let config = load_with("", variables).unwrap();
        assert_eq!(config.state_directory(), Path::new(expected));
        assert_eq!(config.audit_file(), Path::new(expected).join("audit.jsonl"));
        assert_eq!(config.store_file(), Path::new(expected).join("sekisho.db"));
        assert_eq!(config.workspaces_directory(), Path::new(expected).join("workspaces"));
    }
}

#[test]
fn the_lock_is_beside_the_configuration_whatever_the_working_directory_is() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("sekisho.yaml");
    let environment = Environment::from_iter([("SEKISHO_STATE_DIRECTORY", "/s")]);
    let named = folder.path().join("named.lock");
    for (text, expected) in [
        (Some("server: {}".to_owned()), folder.path().join("tools.lock")),
        (Some(format!("tools: {{lock: '{}'}}", named.display())), named),
        (None, "/s/tools.lock".into()),
    ] {
        let file = text.map(|text| std::fs::write(&file, text).map(|()| &*file).unwrap());
        let config = Config::load(file, &environment).unwrap();
        assert_eq!(config.lock_file(), expected);
        assert!(config.unpinned().contains(&*expected.to_string_lossy()), "{}", config.unpinned());
    }
}

#[test]
fn a_relative_folder_of_policies_is_beside_the_configuration() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("sekisho.yaml");
    for (written, expected) in [("rules", folder.path().join("rules")), ("/etc/rules", "/etc/rules".into())] {
        let text = format!("policy: {{directory: {written}}}\n");
        std::fs::write(&file, &text).unwrap();
        let config = Config::load(Some(&file), &Environment::default()).unwrap();
        assert_eq!(config.policy.directory, Some(expected));
        // As two processes compare theirs, and as a text is compared with the configuration in force.
        let checked = Config::load_text(&file, text, &Environment::default(), &[]).unwrap();
        assert_eq!(checked.fingerprint(), config.fingerprint());
    }
}

#[test]
fn hostile_bytes_as_a_configuration() {
    let whole = include_bytes!("../../config/sekisho.yaml");
    let short = b"server: {listen: 127.0.0.1:0}\ntools: {overrides: {a: {rate_limit: 3, roles: [b]}}}\nmcp:\n  servers:\n    c: {url: 'https://d.example', headers: {e: \"${F:-g}\"}}\n";
    sekisho_core::fuzz::feed(&[short, short, short, whole], |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes)
            && let Err(errors) = load_text(text, &[("F", "a")])
        {
            assert!(!errors.is_empty() && errors.iter().all(|error| !error.to_string().is_empty()));
        }
    });
}

#[test]
fn hostile_bytes_as_an_mcp_servers_file() {
    let seeds: [&[u8]; 2] = [
        br#"{"mcpServers": {"a b": {"command": "c", "args": ["d"], "env": {"E": "${F}"}, "type": "stdio"}}}"#,
        br#"{"httpStreamableServers": {"g": {"url": "https://h.example/i", "requiresAuth": true, "headers": {"j": "k"}}}}"#,
    ];
    sekisho_core::fuzz::feed(&seeds, |bytes| {
        if let Err(problem) = mcp::file::parse(bytes, &Environment::default()) {
            assert!(!problem.is_empty());
        }
    });
}

#[test]
fn references_count_in_the_file_and_not_in_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let (file, secret) = (folder.path().join("sekisho.yaml"), folder.path().join("secret"));
    std::fs::write(&secret, "from a file\n").unwrap();
    let written = format!(
        "mcp:\n  secrets:\n    FILE: ${{file:{}}}\n    PROGRAM: '${{exec: [\"/bin/echo\", \"from a program\"] ttl=60}}'\n",
        secret.display()
    );
    std::fs::write(&file, &written).unwrap();
    let config = Config::load(Some(&file), &Environment::default()).unwrap();
    let values = |config: &Config| ["FILE", "PROGRAM"].map(|name| config.mcp.secrets[name].expose().to_owned());
    assert_eq!(values(&config), ["from a file", "from a program"]);
    assert_eq!(config.references.files, std::slice::from_ref(&secret));
    assert_eq!(config.references.renew_after, Some(std::time::Duration::from_secs(60)));
    assert!(!format!("{:?}", config.mcp).contains("from a"));
    let over_an_api = Config::load_text(&file, written, &Environment::default(), &[]).unwrap();
    assert!(values(&over_an_api).iter().all(|value| value.starts_with("${")), "they are literal");
    assert_eq!(over_an_api.references, References::default());
    std::fs::remove_file(&secret).unwrap();
    let errors = Config::load(Some(&file), &Environment::default()).unwrap_err();
    assert!(errors[0].to_string().contains("secret cannot be used"), "{}", errors[0]);
}

#[test]
fn a_text_that_came_over_an_api_is_checked_without_the_values_of_variables() {
    const HIDDEN: &str = "hunter2";
    let variables = [("SECRET", HIDDEN), ("PORT", "8080"), ("OTHER", "b")];
    let text = "
server: {listen: '127.0.0.1:${PORT}'}
auth: {api_keys: [{id: '${SECRET}', key: '${SECRET}'}, {id: '${OTHER}', key_sha256: '${OTHER}'}]}
secrets: {key: '${SECRET}'}
limits: {parallelism: '${PORT}', max_queued: 7}
audit: {durability: '${OTHER}'}
policy: {timeout_ms: '${UNSET:-20}'}
mcp:
  files: [/nowhere/servers.json]
  servers: {crm: {url: '${SECRET}', token: '${env:SECRET}'}}
openapi: {collections: {api: {spec_url: '${SECRET}'}}}
telemetry: {metrics_namespace: '${SECRET}'}
";
    let config = load_text(text, &variables).unwrap();
    let read = |config: &Config| (config.limits.parallelism, config.audit.durability, config.server.listen);
    assert_eq!(read(&config), read(&Config::default()), "as if they were not set");
    assert_eq!((config.limits.max_queued, config.policy.timeout_ms), (7, 20));
    assert_eq!(config.auth.api_keys[0].id, "${SECRET}");
    assert_eq!(config.secrets.key.as_ref().map(Secret::expose), Some("${SECRET}"));
    assert!(config.set.has_unread("secrets") && !config.set.has_unread("policy") && !config.set.has_unread("store"));
    let shown = format!("{:?}{:?}", config.set.with_defaults(), config);
    assert!(!shown.contains(HIDDEN), "{shown}");
    // The known values are checked all the same.
    for (wrong, says) in [
        ("limits: {max_queued: many, parallelism: '${PORT}'}", "limits.max_queued"),
        ("limits: {parallelism: '${UNSET}'}", "UNSET is not set"),
        ("server: {listen: '0.0.0.0:8080', max_body_bytes: '${PORT}'}", "without authentication"),
        ("mcp: {servers: {crm: {url: '${SECRET}'}, 'a b': {url: 'https://b.example'}}}", "not a valid server name"),
        ("'${SECRET}'", "expected"),
    ] {
        let errors = load_text(wrong, &variables).unwrap_err();
        let errors = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(errors.contains(says) && !errors.contains(HIDDEN), "{wrong}: {errors}");
    }
}
