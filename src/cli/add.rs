//! `sekisho add`: one verb for each kind of source of tools.

mod prepared;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use url::Url;

use super::failure::Failure;
use super::gateway_servers::GatewayServers;
use super::import::{self, Import};
use super::{Common, Exit, local_gateway, present, tools};
use sekisho_config::{
    Config, Environment, PreparedServer, TOOL_FILE_RULE, is_tool_file, mcp_file, prepared_names, prepared_server,
};
use sekisho_core::nearest_name::misspelled_name;
use sekisho_outbound::{AddressGuard, DomainList};

#[derive(Debug, Args)]
pub(super) struct AddCommand {
    /// A program, the URL of an MCP server, the URL or file of an OpenAPI document, a file of Python functions, or the name of a
    /// prepared server, such as `github`.
    source: String,
    /// The arguments of the program, or further ones of a prepared server. Options of this command come before it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
    /// The prefix of the tools' names; by default from the source.
    #[arg(long)]
    name: Option<String>,
    /// The kind of source, where it cannot be seen.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// The variable with the key: sent to a URL, or a variable of the program.
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A program with MCP over standard input and output.
    Program,
    /// An MCP server over HTTP.
    Mcp,
    /// An API with an OpenAPI document.
    Openapi,
    /// Python functions.
    Python,
}

pub(super) fn run(common: &Common, command: &AddCommand) -> Exit {
    if command.source.contains("://") && as_url(&command.source).is_none() {
        present::problem(&format!("{} is not a URL of http or https, with a host", command.source));
        return Exit::WrongCommandLine;
    }
    // A program of the same name is added with `--kind program`.
    if let Some(prepared) = prepared_server(&command.source).filter(|_| command.kind.is_none()) {
        return prepared::add(common, command, prepared);
    }
    let Some(kind) = command.kind.or_else(|| kind_of(&command.source, &command.arguments)).or_else(ask_kind) else {
        present::problem("the URL is of an MCP server or of an OpenAPI document: add --kind mcp or --kind openapi");
        return Exit::WrongCommandLine;
    };
    if kind != Kind::Program && !command.arguments.is_empty() {
        present::problem("only a program has arguments");
        return Exit::WrongCommandLine;
    }
    if kind == Kind::Python && command.key_env.is_some() {
        present::problem("Python functions have no key: no secret enters the sandbox");
        return Exit::WrongCommandLine;
    }
    let name = command.name.clone().unwrap_or_else(|| name_of(kind, &command.source, &command.arguments));
    let added = match kind {
        Kind::Openapi => {
            let (document, key_variable) = (command.source.clone(), command.key_env.clone());
            return import::add(common, &Import { document, name, base_url: None, key_variable });
        }
        Kind::Program | Kind::Mcp => add_server(common, command, &name, None),
        Kind::Python => add_file(common, command, &name),
    };
    shown(common, added, &name)
}

fn shown(common: &Common, added: Result<Config, Failure>, name: &str) -> Exit {
    match added {
        Ok(config) => tools::show_source(common, &config, name),
        Err(failure) => failure.report(),
    }
}

/// The kind, unless it is a URL that may be of two kinds.
fn kind_of(source: &str, arguments: &[String]) -> Option<Kind> {
    let url = as_url(source);
    let path = url.as_ref().map_or(source, Url::path).trim_end_matches('/').to_ascii_lowercase();
    let ends_with = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
    let is_document = ends_with(&[".json", ".yaml", ".yml"]);
    match &url {
        Some(_) if is_document || ["openapi", "swagger", "api-docs"].iter().any(|part| path.contains(part)) => {
            Some(Kind::Openapi)
        }
        Some(_) => ends_with(&["/mcp", "/sse"]).then_some(Kind::Mcp),
        None if arguments.is_empty() && is_document => Some(Kind::Openapi),
        None if arguments.is_empty() && ends_with(&[".py"]) => Some(Kind::Python),
        None => Some(Kind::Program),
    }
}

fn as_url(source: &str) -> Option<Url> {
    Url::parse(source).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// Asks on a terminal.
fn ask_kind() -> Option<Kind> {
    if !io::stdin().is_terminal() {
        return None;
    }
    let _gone = write!(io::stderr(), "Is it an MCP server or an OpenAPI document? [mcp/openapi] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).ok()?;
    match answer.trim() {
        "mcp" => Some(Kind::Mcp),
        "openapi" => Some(Kind::Openapi),
        _ => None,
    }
}

/// Programs that run the package of their first argument.
const RUNNERS: [&str; 5] = ["npx", "uvx", "bunx", "pnpx", "pipx"];

/// Parts of the names of packages and hosts that say nothing.
const PREFIXES: [&str; 5] = ["mcp-server-", "server-", "mcp-", "mcp_server_", "mcp_"];
const SUFFIXES: [&str; 5] = ["-mcp-server", "-server", "-mcp", "_mcp", "_server"];

/// `filesystem` of `npx -y @modelcontextprotocol/server-filesystem`, `example` of `https://mcp.example.com/mcp`.
fn name_of(kind: Kind, source: &str, arguments: &[String]) -> String {
    let stem = |path: &str| {
        let name = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or(path);
        name.to_owned()
    };
    let url = Url::parse(source).ok();
    let host = url.as_ref().and_then(|url| match url.host() {
        Some(url::Host::Domain(host)) => Some(host.rsplit('.').nth(1).unwrap_or(host).to_owned()),
        _ => None,
    });
    let name = match (kind, host) {
        (Kind::Mcp | Kind::Openapi, Some(host)) => host,
        (Kind::Program, _) if RUNNERS.contains(&&*stem(source)) => {
            let package = arguments.iter().find(|argument| !argument.starts_with('-') && *argument != "run");
            let package = package.map_or(source, String::as_str);
            let package = package.rsplit('/').next().unwrap_or(package);
            package.split(['@', '=']).find(|part| !part.is_empty()).unwrap_or(package).to_owned()
        }
        _ => stem(source),
    };
    let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(&name);
    let short = SUFFIXES.iter().find_map(|suffix| short.strip_suffix(suffix)).unwrap_or(short);
    mcp_file::as_name(if short.is_empty() { &name } else { short })
}

/// Adds an MCP server to the gateway's file. Returns the configuration with it.
fn add_server(
    common: &Common,
    command: &AddCommand,
    name: &str,
    prepared: Option<(&str, &PreparedServer)>,
) -> Result<Config, Failure> {
    let environment = Environment::of_process(common.config.as_deref()).map_err(|error| error.to_string())?;
    let config = local_gateway::configuration(common)?;
    let mut missing = missing(command, &config, &environment);
    let variables = prepared.iter().filter(|(_, prepared)| prepared.command.is_some());
    let variables = variables.flat_map(|(_, prepared)| &prepared.variables);
    missing.extend(variables.filter(|name| environment.get(name).is_none()).map(|name| unset(name)));
    if !missing.is_empty() {
        return Err(format!("{name} needs first:\n  {}\nrun the command again then", missing.join("\n  ")).into());
    }
    let mut servers = GatewayServers::read(config, environment)?;
    let mut entry = entry(command);
    if let Some((overlay, prepared)) = prepared {
        prepared::complete(&mut entry, overlay, prepared);
    }
    servers.add(name, entry)?;
    servers.write()?;
    present::info(&format!("added the MCP server {name}; a running gateway offers its tools within seconds"));
    Ok(local_gateway::configuration(common)?)
}

/// Everything that a server still lacks, at once.
fn missing(command: &AddCommand, config: &Config, environment: &Environment) -> Vec<String> {
    let mut missing = Vec::new();
    if let Some(variable) = command.key_env.as_deref().filter(|variable| environment.get(variable).is_none()) {
        missing.push(unset(variable));
    }
    let Some(url) = as_url(&command.source) else {
        missing.extend(missing_program(&command.source, environment));
        return missing;
    };
    let (outbound, host) = (&config.outbound, url.host_str().unwrap_or_default());
    if !DomainList::parse(&outbound.mcp_allowed_domains).is_ok_and(|allowed| allowed.allows(&url)) {
        missing.push(format!(
            "its host {host} is not in `outbound.mcp_allowed_domains`: add it to the configuration, as in `outbound: \
             {{mcp_allowed_domains: [{}]}}`, or to MCP_ALLOWED_DOMAINS",
            in_yaml(host)
        ));
    }
    let is_permitted = |address| AddressGuard::shared(&outbound.allow_networks).is_ok_and(|it| it.permits(address));
    if let Some(address) = address_of(&url).filter(|address| !is_permitted(*address)) {
        missing.push(format!(
            "its address {address} is not public: add it to the configuration, as in `outbound: {{allow_networks: \
             [{}]}}`, or to SEKISHO_ALLOW_NETWORKS",
            in_yaml(&address.to_string())
        ));
    }
    missing
}

fn unset(variable: &str) -> String {
    format!("{variable} is not set: set it to the key, here and where the gateway is started")
}

/// Why no program can be started by this name. Where no `PATH` is set, names are not looked up.
fn missing_program(program: &str, environment: &Environment) -> Option<String> {
    let is_there = match environment.get("PATH") {
        _ if program.contains('/') => Path::new(program).is_file(),
        Some(path) => std::env::split_paths(path).any(|folder| folder.join(program).is_file()),
        None => true,
    };
    if is_there {
        return None;
    }
    Some(if program.contains(char::is_whitespace) {
        format!("no program has the name {program:?}: leave out the quotes around its arguments")
    } else if Path::new(program).is_dir() {
        format!("{program} is a folder: name a program, a file or a URL")
    } else {
        let meant = misspelled_name(program, prepared_names());
        let meant = meant.map(|name| format!("; did you mean the prepared server `{name}`?")).unwrap_or_default();
        format!("the program {program} does not exist: install it, or write its whole path{meant}")
    })
}

/// IPv6 addresses have characters with a meaning in YAML.
fn in_yaml(host: &str) -> String {
    if host.contains(':') { format!("\"{host}\"") } else { host.to_owned() }
}

/// Where the URL shows it.
fn address_of(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        url::Host::Ipv4(address) => Some(address.into()),
        url::Host::Ipv6(address) => Some(address.into()),
        url::Host::Domain(name) => (name == "localhost").then_some(Ipv4Addr::LOCALHOST.into()),
    }
}

/// The path, where it is relative to the working directory of this command: the gateway has another one.
fn in_working_directory(argument: &str) -> String {
    let is_relative = matches!(argument, "." | "..") || argument.starts_with("./") || argument.starts_with("../");
    let path = is_relative.then(|| std::path::absolute(argument).ok()).flatten();
    path.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_else(|| argument.to_owned())
}

/// The entry of the server. Where the variable of its key is not set, the gateway starts still, and notes it.
fn entry(command: &AddCommand) -> Value {
    let key = command.key_env.as_ref().map(|variable| (variable, format!("${{{variable}:-}}")));
    let mut entry = Map::new();
    if as_url(&command.source).is_some() {
        entry.insert("url".to_owned(), command.source.as_str().into());
        if let Some((_, value)) = key {
            entry.insert("headers".to_owned(), json!({"Authorization": format!("Bearer {value}")}));
        }
    } else {
        let arguments = command.arguments.iter().map(|argument| in_working_directory(argument));
        entry.insert("command".to_owned(), in_working_directory(&command.source).into());
        entry.insert("args".to_owned(), arguments.collect::<Vec<_>>().into());
        if let Some((variable, value)) = key {
            entry.insert("env".to_owned(), json!({variable: value}));
        }
    }
    Value::Object(entry)
}

/// Copies a file of Python functions into their folder.
fn add_file(common: &Common, command: &AddCommand, name: &str) -> Result<Config, Failure> {
    let config = local_gateway::configuration(common)?;
    if !is_tool_file(name) {
        return Err(format!("{name:?} cannot be the name of a file of tools: {TOOL_FILE_RULE}; set --name").into());
    }
    let source = Path::new(&command.source);
    let text = fs::read(source)
        .map_err(|error| format!("{} cannot be read: {error}; check the path and its permissions", source.display()))?;
    let Some(folder) = &config.python_tools.directory else {
        let source = std::path::absolute(source).unwrap_or_else(|_| source.to_owned());
        let folder = source.parent().unwrap_or(&source).display();
        return Err(format!(
            "no folder of Python functions is configured; add this to the configuration, and start the gateway, or send \
             it SIGHUP: python_tools: {{directory: {folder}}}"
        )
        .into());
    };
    let file = folder.join(format!("{name}.py"));
    let is_there =
        fs::canonicalize(&file).is_ok_and(|there| fs::canonicalize(source).is_ok_and(|source| source == there));
    if !is_there {
        let created = fs::OpenOptions::new().write(true).create_new(true).open(&file);
        let written = created.and_then(|mut created| created.write_all(&text));
        written.map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
        present::info(&format!("added {}; a running gateway offers its functions within seconds", file.display()));
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        command: AddCommand,
    }

    fn parsed(line: &str) -> AddCommand {
        Line::try_parse_from(std::iter::once("add").chain(line.split(' '))).unwrap().command
    }

    #[test]
    fn a_source_has_a_kind_and_a_name() {
        for (line, kind, name) in [
            ("npx -y @modelcontextprotocol/server-filesystem /docs", Some(Kind::Program), "filesystem"),
            ("npx -y @upstash/context7-mcp@latest --port 1", Some(Kind::Program), "context7"),
            ("uvx mcp-server-time --local-timezone UTC", Some(Kind::Program), "time"),
            ("/opt/tools/weather-server", Some(Kind::Program), "weather"),
            ("python server.py", Some(Kind::Program), "python"),
            ("./weather.py", Some(Kind::Python), "weather"),
            ("api/petstore.yaml", Some(Kind::Openapi), "petstore"),
            ("https://api.example.com/openapi.json", Some(Kind::Openapi), "example"),
            ("https://api.example.com/v3/api-docs", Some(Kind::Openapi), "example"),
            ("https://mcp.example.com/mcp/", Some(Kind::Mcp), "example"),
            ("http://127.0.0.1:3000/sse", Some(Kind::Mcp), "sse"),
            ("https://example.com/", None, "example"),
        ] {
            let command = parsed(line);
            assert_eq!(kind_of(&command.source, &command.arguments), kind, "{line}");
            let kind = kind.unwrap_or(Kind::Mcp);
            assert_eq!(name_of(kind, &command.source, &command.arguments), name, "{line}");
        }
    }

    #[test]
    fn an_entry_has_a_reference_to_the_key() {
        for (line, expected) in [
            ("npx -y x --key-env A", json!({"command": "npx", "args": ["-y", "x", "--key-env", "A"]})),
            ("--key-env A npx -y x", json!({"command": "npx", "args": ["-y", "x"], "env": {"A": "${A:-}"}})),
            (
                "https://mcp.example.com/mcp --key-env A",
                json!({"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer ${A:-}"}}),
            ),
        ] {
            assert_eq!(entry(&parsed(line)), expected, "{line}");
        }
    }

    #[test]
    fn relative_paths_are_of_the_working_directory_of_the_command() {
        let here = |path: &str| std::path::absolute(path).unwrap().to_str().unwrap().to_owned();
        assert_eq!(
            entry(&parsed("./server ../data . data .hidden --root=./x")),
            json!({"command": here("./server"), "args": [here("../data"), here("."), "data", ".hidden", "--root=./x"]})
        );
    }

    #[test]
    fn a_program_that_does_not_exist_is_missing() {
        let environment = Environment::from_iter([("PATH", "/nowhere:/bin:/usr/bin")]);
        for (program, expected) in [
            ("sh", None),
            ("/bin/sh", None),
            ("no-such-program", Some("install it")),
            ("githb", Some("did you mean the prepared server `github`?")),
            ("/bin/no-such-program", Some("install it")),
            ("sh -c true", Some("leave out the quotes")),
            ("/bin", Some("/bin is a folder")),
        ] {
            let found = missing_program(program, &environment);
            let is_expected = found.as_deref().map(|found| expected.is_some_and(|part| found.contains(part)));
            assert_eq!(is_expected, expected.map(|_| true), "{program}: {found:?}");
        }
        assert_eq!(missing_program("no-such-program", &Environment::default()), None);
    }

    #[test]
    fn all_that_is_missing_is_said_at_once() {
        let config = Config::default();
        let environment = Environment::from_iter([("SET", "k")]);
        for (line, expected) in [
            ("uvx mcp-server-time", &[][..]),
            ("--key-env SET uvx mcp-server-time", &[]),
            ("--key-env A uvx mcp-server-time", &["A is not set"]),
            ("https://mcp.example.com/mcp --key-env SET", &["mcp_allowed_domains: [mcp.example.com]"]),
            (
                "http://127.0.0.1:3000/mcp --key-env A",
                &["A is not set", "mcp_allowed_domains: [127.0.0.1]", "allow_networks: [127.0.0.1]"],
            ),
            ("http://localhost/mcp", &["mcp_allowed_domains: [localhost]", "allow_networks: [127.0.0.1]"]),
            ("http://[::1]/mcp", &["mcp_allowed_domains: [\"[::1]\"]", "allow_networks: [\"::1\"]"]),
        ] {
            let found = missing(&parsed(line), &config, &environment);
            assert_eq!(found.len(), expected.len(), "{line}: {found:?}");
            for (found, part) in found.iter().zip(expected) {
                assert!(found.contains(*part), "{line}: {found}");
            }
        }
    }
}
