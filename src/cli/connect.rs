//! `sekisho connect`: moves the MCP servers of an editor behind the gateway, and writes the gateway into the editor's
//! file.

mod change;
mod document;
mod editors;
mod entry;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value};
use url::Url;

use self::change::{Change, ChangeKind, EditorFile};
use self::editors::{EDITORS, Editor, Folders};
use self::entry::GatewayEntry;
use super::call::Identity;
use super::client::Unanswered;
use super::failure::Failure;
use super::gateway_servers::GatewayServers;
use super::{Common, Exit, local_gateway, overview, present};
use sekisho_api::NamedCaller;
use sekisho_config::{AnonymousAccess, Config, Environment};

/// The caller of an editor where neither `--as` nor the environment names the user.
const USER: &str = "me";

const STATE_DIRECTORY: &str = "SEKISHO_STATE_DIRECTORY";

/// The hosts of MCP servers.
const HOSTS: &str = "MCP_ALLOWED_DOMAINS";

#[derive(Debug, Args)]
pub(super) struct ConnectCommand {
    /// The editors; without a name, those that are found on this machine.
    #[arg(value_parser = editors::names(), value_name = "EDITOR")]
    editors: Vec<String>,
    /// Have the editor send requests to the gateway's address, in place of starting a program: the address of the
    /// configuration, or the given one.
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, conflicts_with_all = ["undo", "user", "roles"])]
    http: Option<Option<Url>>,
    /// Give the editor its own servers back, and remove the gateway.
    #[arg(long, conflicts_with_all = ["user", "roles"])]
    undo: bool,
    /// Change the files without a question.
    #[arg(long, short)]
    yes: bool,
    /// Show the changes only.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    #[command(flatten)]
    identity: Identity,
}

pub(super) fn run(common: &Common, command: &ConnectCommand) -> Exit {
    let done = if command.undo { undo(common, command) } else { connect(common, command) };
    done.map_or_else(Failure::report, |()| Exit::Done)
}

fn connect(common: &Common, command: &ConnectCommand) -> Result<(), Failure> {
    let environment = environment(common)?;
    let config = local_gateway::configuration(common)?;
    let (editors, folders) = choose(command, &environment)?;
    let caller = caller(&command.identity, &environment);
    let gateway = match &command.http {
        None => {
            // Before a file is changed: a gateway with another configuration would not serve the editor.
            local_gateway::find(&config, &caller)?;
            program(common, &caller, &environment, &config)?
        }
        Some(address) => gateway_at(address.as_ref(), &config)?,
    };
    let mut servers = GatewayServers::read(config, environment)?;
    let changes = editors.into_iter().map(|editor| {
        let file = EditorFile::read(&editor.file(&folders))?;
        Change::connect(editor, file, &mut servers, &gateway)
    });
    let changes = changes.collect::<Result<Vec<_>, _>>()?;
    if !agree(common, command, &changes)? {
        return Ok(());
    }
    // First, so that a server is never in neither of the files.
    servers.write()?;
    make(&changes)?;
    for change in changes.iter().filter(|change| change.changes_file()) {
        let (title, name) = (change.editor.title, change.editor.name);
        let copy = change.file.backup_path();
        present::info(&format!(
            "{title} is connected: restart it, or reload its MCP servers. The file without the gateway is kept as {}; \
             `sekisho connect {name} --undo` restores it.",
            copy.display()
        ));
    }
    match gateway {
        GatewayEntry::Program { .. } => start(common, &caller),
        GatewayEntry::Address { url, .. } => {
            present::info(&format!("The gateway must run at {url}: `sekisho serve` starts it."));
            Ok(())
        }
    }
}

fn undo(common: &Common, command: &ConnectCommand) -> Result<(), Failure> {
    let environment = environment(common)?;
    let (editors, folders) = choose(command, &environment)?;
    let mut changes = Vec::new();
    for editor in editors {
        let file = EditorFile::read(&editor.file(&folders))?;
        match Change::undo(editor, file)? {
            Some(change) => changes.push(change),
            None => present::info(&format!("{} is not connected", editor.title)),
        }
    }
    if agree(common, command, &changes)? {
        make(&changes)?;
        present::info(
            "The gateway keeps its servers: `sekisho mcp list` shows them, `sekisho mcp remove` removes one.",
        );
    }
    Ok(())
}

fn environment(common: &Common) -> Result<Environment, Failure> {
    Environment::of_process(common.config.as_deref()).map_err(|error| {
        present::problem(&error.to_string());
        Failure::Shown(Exit::Misconfigured)
    })
}

/// The caller in whose name the editor calls: by default the user of this machine.
fn caller(identity: &Identity, environment: &Environment) -> NamedCaller {
    let NamedCaller { user, roles } = identity.caller();
    let user = user.unwrap_or_else(|| environment.get("USER").unwrap_or(USER).to_owned());
    NamedCaller { user: Some(user), roles }
}

/// The named editors, or those that are found.
fn choose(command: &ConnectCommand, environment: &Environment) -> Result<(Vec<&'static Editor>, Folders), String> {
    let folders = Folders::of(environment)?;
    let is_wanted = |editor: &&Editor| match command.editors.is_empty() {
        true => editor.is_found(&folders) && (command.http.is_none() || editor.url.is_some()),
        false => command.editors.iter().any(|name| name == editor.name),
    };
    let editors: Vec<_> = EDITORS.iter().filter(is_wanted).collect();
    if editors.is_empty() {
        let names: Vec<_> = EDITORS.iter().map(|editor| editor.name).collect();
        return Err(format!("no editor is found; name one: {}", names.join(", ")));
    }
    Ok((editors, folders))
}

/// The gateway of this state directory and configuration, as a program that the editor starts.
fn program(
    common: &Common,
    caller: &NamedCaller,
    environment: &Environment,
    config: &Config,
) -> Result<GatewayEntry, String> {
    let own = std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let mut arguments = Vec::new();
    if let Some(file) = &common.config {
        let file = std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()))?;
        arguments.extend(["--config".to_owned(), file.display().to_string()]);
    }
    arguments.extend(["mcp", "serve"].map(str::to_owned));
    let user = caller.user.iter().flat_map(|user| ["--as", user.as_str()]);
    let roles = caller.roles.iter().flat_map(|role| ["--role", role.as_str()]);
    arguments.extend(user.chain(roles).map(str::to_owned));
    let mut variables = Map::new();
    if environment.get(STATE_DIRECTORY).is_some() {
        let directory = config.state_directory();
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        variables.insert(STATE_DIRECTORY.to_owned(), directory.display().to_string().into());
    }
    if let Some(hosts) = environment.get(HOSTS) {
        // Without it the gateway that the editor starts would not reach the servers that move.
        variables.insert(HOSTS.to_owned(), hosts.into());
    }
    let command = stable_path(&own, environment.get("PATH").unwrap_or_default());
    Ok(GatewayEntry::Program { command: command.display().to_string(), arguments, environment: variables })
}

/// The path of the program in `PATH`, if that is this program: it stays where an update replaces the program.
fn stable_path(own: &Path, path: &str) -> PathBuf {
    let real = std::fs::canonicalize(own).unwrap_or_else(|_| own.to_owned());
    let found = std::env::split_paths(path).map(|folder| folder.join("sekisho")).find(|candidate| {
        candidate.is_absolute() && std::fs::canonicalize(candidate).is_ok_and(|candidate| candidate == real)
    });
    found.unwrap_or_else(|| own.to_owned())
}

/// The gateway at the given or the configured address.
fn gateway_at(given: Option<&Url>, config: &Config) -> Result<GatewayEntry, String> {
    let (mut url, needs_key) = match given {
        Some(url) => {
            let is_loopback = match url.host() {
                Some(url::Host::Domain(name)) => name == "localhost",
                Some(url::Host::Ipv4(address)) => address.is_loopback(),
                Some(url::Host::Ipv6(address)) => address.is_loopback(),
                None => return Err(format!("{url} has no host; write it like https://gateway.example.com")),
            };
            (url.clone(), !is_loopback)
        }
        None => {
            let listen = config.server.listen;
            let scheme = if config.server.tls.is_some() { "https" } else { "http" };
            let host = match listen.ip().is_unspecified() {
                true => format!("localhost:{}", listen.port()),
                false => listen.to_string(),
            };
            let url = Url::parse(&format!("{scheme}://{host}/")).map_err(|error| error.to_string())?;
            let is_open = match config.auth.anonymous {
                AnonymousAccess::Always => true,
                AnonymousAccess::Loopback => config.server.is_loopback(),
                AnonymousAccess::Never => false,
            };
            (url, !is_open)
        }
    };
    if url.path() == "/" {
        url.set_path("mcp");
    }
    Ok(GatewayEntry::Address { url: url.to_string(), needs_key })
}

/// Shows the changes, and asks whether to make them.
fn agree(common: &Common, command: &ConnectCommand, changes: &[Change]) -> Result<bool, Failure> {
    if common.json {
        present::json(&changes.iter().map(change::as_json).collect::<Vec<Value>>());
    } else {
        changes.iter().for_each(show);
    }
    if command.dry_run || !changes.iter().any(Change::changes_file) {
        return Ok(false);
    }
    if command.yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        present::problem("nothing was changed: standard input is not a terminal. Add --yes to make these changes");
        return Err(Exit::WrongCommandLine.into());
    }
    let _gone = write!(io::stderr(), "Make these changes? [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|error| format!("the answer cannot be read: {error}"))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn show(change: &Change) {
    present::line(&format!("{}  {}", change.editor.title, change.file.path().display()));
    for server in &change.servers {
        let name = present::harmless(&server.name);
        let note = server.note.as_deref().map(present::harmless).unwrap_or_default();
        present::line(&match server.change {
            ChangeKind::Added => format!("  + {name}: the gateway"),
            ChangeKind::Moved if note.is_empty() => format!("  > {name} moves behind the gateway"),
            ChangeKind::Moved => format!("  > {name} moves behind the gateway, as {note}"),
            ChangeKind::Stays => format!("  = {name} stays: {note}"),
            ChangeKind::Removed => format!("  - {name}: the gateway"),
            ChangeKind::Restored => format!("  + {name}"),
        });
    }
    if !change.changes_file() {
        present::line("  no change");
    }
}

fn make(changes: &[Change]) -> Result<(), String> {
    changes.iter().filter(|change| change.changes_file()).try_for_each(Change::make)
}

/// Starts the gateway as the editor will, and shows its tools and problems in short.
fn start(common: &Common, caller: &NamedCaller) -> Result<(), Failure> {
    // With the servers that were added.
    let config = local_gateway::configuration(common)?;
    let progress = present::progress("starting the gateway and its servers");
    let found = local_gateway::find_or_start(common, &config, caller);
    progress.finish_and_clear();
    let gateway = found?;
    let lines = overview::state(&gateway).map_err(Unanswered::report)?;
    lines.iter().for_each(|line| present::info(line));
    if let Some(left_out) = local_gateway::left_out(&gateway).map_err(Unanswered::report)? {
        present::info(&left_out);
    }
    #[cfg(feature = "console")]
    super::console::offer(&config);
    Ok(())
}
