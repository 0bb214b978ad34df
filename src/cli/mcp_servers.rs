//! `sekisho mcp add|list|remove|import`: edits the `mcpServers` file that the configuration reads; `sekisho mcp profile`.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::observe::{self, ObservedCall, observed_call};
use super::{Common, Exit, ServeOptions, describe, load_config, present};
use sekisho_config::Config;
use sekisho_config::mcp_file::entries::{read, read_existing, write};

#[derive(Debug, Subcommand)]
pub(super) enum ServersCommand {
    /// Add a server: `sekisho mcp add time -- uvx mcp-server-time`, or `--url` in place of the program.
    ///
    /// A running gateway offers its tools at once.
    Add {
        /// The name of the server, which begins the names of its tools.
        name: String,
        /// The server's URL.
        #[arg(long, conflicts_with = "program")]
        url: Option<String>,
        /// A header of every request, as `Name: value`; a value may be `${VARIABLE}`.
        #[arg(long, requires = "url", value_name = "HEADER")]
        header: Vec<String>,
        /// A variable of the program's environment, as `NAME=value`; a value may be `${VARIABLE}`.
        #[arg(long, requires = "program", value_name = "VARIABLE")]
        env: Vec<String>,
        /// Run the program once before, and print the smallest `sandbox` for its entry that it needed to list its tools, and
        /// for the calls of `--call`. It is added if all of that worked.
        #[arg(long, requires = "program")]
        observe: bool,
        /// A call of one of its tools while it is observed, as `TOOL {"argument": "value"}`; may be repeated.
        #[arg(long, requires = "observe", value_name = "CALL", value_parser = observed_call)]
        call: Vec<ObservedCall>,
        #[command(flatten)]
        file: ServersFile,
        /// The program and its arguments, after `--`.
        #[arg(last = true, required_unless_present = "url")]
        program: Vec<String>,
    },
    /// List the servers of the file.
    List {
        #[command(flatten)]
        file: ServersFile,
    },
    /// Remove a server.
    Remove {
        /// The name of the server, which begins the names of its tools.
        name: String,
        #[command(flatten)]
        file: ServersFile,
    },
    /// Print all grants of the program of a server of the configuration, as the `sandbox` of its entry.
    Profile {
        /// The name of the server.
        name: String,
    },
    /// Add the servers of another program's file, except those that exist already.
    Import {
        /// An `mcpServers` file.
        #[arg(value_name = "FROM")]
        from: PathBuf,
        #[command(flatten)]
        file: ServersFile,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct ServersFile {
    /// The file to change; without it the first of `mcp.files` in the configuration, or else `mcp.json` in the state
    /// directory, which every gateway without `mcp.files` reads.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn run(common: &Common, command: ServersCommand) -> Exit {
    match change(common, command) {
        Ok(()) => Exit::Done,
        Err(failure) => failure.report(),
    }
}

fn change(common: &Common, command: ServersCommand) -> Result<(), Failure> {
    match command {
        ServersCommand::Add { name, url, header, env, observe, call, file, program } => {
            let file = file.find(common)?;
            let mut servers = read(&file)?;
            let entry = entry(url, &header, &env, program)?;
            refuse_known(&servers, &name, &file)?;
            if observe {
                observe::run(common, &name, &entry, call)?;
                // Another command may have changed it in the meantime.
                servers = read(&file)?;
                refuse_known(&servers, &name, &file)?;
            }
            servers.insert(name.clone(), entry);
            write(&file, &servers)?;
            present::line(&format!("added {name} to {}", file.display()));
        }
        ServersCommand::List { file } => {
            let servers = read(&file.find(common)?)?;
            if common.json {
                let _done = present::json(&servers.keys().collect::<Vec<_>>());
                return Ok(());
            }
            let row = |(name, entry): (&String, &Value)| vec![name.clone(), program_or_url(entry)];
            present::table(&["server", "program or URL"], servers.iter().map(row).collect());
        }
        ServersCommand::Remove { name, file } => {
            let file = file.find(common)?;
            let mut servers = read(&file)?;
            servers.shift_remove(&name).ok_or_else(|| {
                format!("{} has no server {name:?}; `sekisho mcp list` shows its servers", file.display())
            })?;
            write(&file, &servers)?;
            present::line(&format!("removed {name} from {}", file.display()));
        }
        ServersCommand::Profile { name } => present::line(&profile(common, &name)?),
        ServersCommand::Import { from, file } => {
            let file = file.find(common)?;
            let mut servers = read(&file)?;
            let before = servers.len();
            for (name, entry) in read_existing(&from)? {
                servers.entry(name).or_insert(entry);
            }
            write(&file, &servers)?;
            present::line(&format!("added {} servers to {}", servers.len() - before, file.display()));
        }
    }
    Ok(())
}

fn refuse_known(servers: &Map<String, Value>, name: &str, file: &Path) -> Result<(), String> {
    match servers.contains_key(name) {
        true => Err(format!("{} already has a server {name:?}; remove it first", file.display())),
        false => Ok(()),
    }
}

/// The grants of a server's program, as YAML.
fn profile(common: &Common, name: &str) -> Result<String, String> {
    let config = load_config(common.config.as_deref(), &ServeOptions::default()).map_err(|errors| describe(&errors))?;
    let settings = config.mcp.servers.get(name);
    let settings = settings.ok_or_else(|| format!("the configuration has no server {name:?}"))?;
    let profile = sekisho_mcp_client::granted_profile(settings, &config);
    let profile = profile.ok_or_else(|| format!("{name} has no sandbox: it is no program, or has `sandbox: off`"))?;
    profile.map(|profile| profile.to_string())
}

impl ServersFile {
    fn find(self, common: &Common) -> Result<PathBuf, String> {
        if let Some(file) = self.file {
            return Ok(file);
        }
        let config =
            load_config(common.config.as_deref(), &ServeOptions::default()).map_err(|errors| describe(&errors))?;
        file_of(&config)
    }
}

/// The file of the configuration that is changed without `--file`.
pub(super) fn file_of(config: &Config) -> Result<PathBuf, String> {
    config.mcp_files().into_iter().next().ok_or_else(|| "no file is configured; set --file".to_owned())
}

fn entry(url: Option<String>, headers: &[String], env: &[String], program: Vec<String>) -> Result<Value, String> {
    let pairs = |texts: &[String], between: char| {
        let pair = |text: &String| {
            let (name, value) = text
                .split_once(between)
                .ok_or_else(|| format!("an option has no {between:?} between name and value"))?;
            Ok((name.trim().to_owned(), Value::String(value.trim().to_owned())))
        };
        texts.iter().map(pair).collect::<Result<Map<_, _>, String>>()
    };
    let mut program = program.into_iter();
    let mut entry = match (url, program.next()) {
        (Some(url), _) => json!({"url": url, "headers": pairs(headers, ':')?}),
        (None, Some(command)) => {
            json!({"command": command, "args": program.collect::<Vec<_>>(), "env": pairs(env, '=')?})
        }
        (None, None) => return Err("add a program after `--`, or set --url".to_owned()),
    };
    if let Some(members) = entry.as_object_mut() {
        members.retain(|_, member| member.as_object().is_none_or(|map| !map.is_empty()));
    }
    Ok(entry)
}

/// Without arguments and headers, which may contain credentials.
fn program_or_url(entry: &Value) -> String {
    let field = |name: &str| entry.get(name).and_then(Value::as_str);
    field("command").or_else(|| field("url")).unwrap_or("neither a program nor a URL").to_owned()
}
