//! Runs a program in a sandbox, with its streams passed through: `in_sandbox ENTRY`. The entry is JSON with the members that an MCP
//! server's has: `command`, `args`, `env` and `cwd`, and what its `sandbox` has. The program may connect to the machine's ports that
//! `ports` lists.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use sekisho_process_sandbox::network::{Connections, Refused, Resolved, Supervisor};
use sekisho_process_sandbox::{Folder, Grants, Home, Limits, Network, Profile, Request, Started, run_if_helper, start};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

#[derive(Debug, Deserialize)]
struct Entry {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<(String, String)>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    folders: Vec<NamedFolder>,
    #[serde(default)]
    network: Network,
    /// The folder that is kept as its home.
    home: Option<PathBuf>,
    /// Hidden.
    #[serde(default)]
    private: Vec<PathBuf>,
    #[serde(default)]
    ports: Vec<u16>,
    /// Says which layers there are, and begins with less than all.
    #[serde(default)]
    layers: bool,
}

#[derive(Debug, Deserialize)]
struct NamedFolder {
    path: PathBuf,
    write: bool,
}

/// Allows public addresses of the hosts.
#[derive(Debug)]
struct Policy {
    hosts: Option<Vec<String>>,
    ports: Vec<u16>,
}

#[async_trait]
impl Connections for Policy {
    async fn resolve(&self, host: &str) -> Resolved {
        if self.hosts.as_ref().is_some_and(|hosts| !hosts.iter().any(|listed| listed == host)) {
            return Resolved::NoSuchName;
        }
        match tokio::net::lookup_host((host, 0)).await {
            Ok(addresses) => Resolved::Addresses(addresses.map(|address| address.ip()).collect()),
            Err(_) => Resolved::NoSuchName,
        }
    }

    fn may_connect(&self, address: SocketAddr) -> Result<(), Refused> {
        let is_private = match address.ip().to_canonical() {
            IpAddr::V4(address) => address.is_private() || address.is_link_local() || address.is_loopback(),
            IpAddr::V6(address) => {
                address.is_unique_local() || address.is_unicast_link_local() || address.is_loopback()
            }
        };
        if is_private { Err(Refused) } else { Ok(()) }
    }

    fn is_of_machine(&self, loopback: SocketAddr) -> bool {
        self.ports.contains(&loopback.port())
    }

    fn opened(&self, _: SocketAddr) {}
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    run_if_helper();
    let text = std::env::args().nth(1).ok_or("in_sandbox ENTRY")?;
    let entry = serde_json::from_str(&text)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(run(entry))?;
    // A thread waits for input that may not come.
    runtime.shutdown_background();
    Ok(status)
}

async fn run(entry: Entry) -> Result<ExitCode, Box<dyn Error>> {
    let policy = Policy {
        hosts: match &entry.network {
            Network::Hosts(hosts) => Some(hosts.clone()),
            Network::None | Network::Public => None,
        },
        ports: entry.ports.clone(),
    };
    let says_layers = entry.layers;
    let Started { mut child, applied, handover, guard: _guard } = start(&profile(entry)?, !says_layers).await?;
    if says_layers {
        let layers: Vec<_> = applied.layers.iter().map(|layer| layer.name()).collect();
        let text = format!("layers: {}\nmissing: {}\n", layers.join(", "), applied.missing_text());
        let mut errors = tokio::io::stderr();
        errors.write_all(text.as_bytes()).await?;
        // Written by another thread, for which nobody waits at the end.
        errors.flush().await?;
    }
    let supervisor = handover.map(|handover| Supervisor::start(handover, Arc::new(policy), None)).transpose()?;
    let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("it has no streams".into());
    };
    tokio::spawn(pass_on(tokio::io::stdin(), input));
    let (output, errors) = tokio::join!(pass_on(output, tokio::io::stdout()), pass_on(errors, tokio::io::stderr()));
    output?;
    errors?;
    let status = child.wait().await?;
    drop(supervisor);
    let code = status.code().or_else(|| Some(128 + status.signal()?)).and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// The other end sees the end of the stream.
async fn pass_on(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

/// As the gateway makes it of a server's entry.
fn profile(entry: Entry) -> Result<Profile, Box<dyn Error>> {
    let home = std::env::home_dir().ok_or("there is no home")?;
    let variable = |name: &str| entry.env.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
    let path = variable("PATH").or_else(|| std::env::var("PATH").ok()).unwrap_or_default();
    let request = Request {
        program: &entry.command,
        args: entry.args.iter().map(String::as_str).collect(),
        env: entry.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        cwd: entry.cwd.as_deref(),
        folders: entry.folders.iter().map(|folder| Folder::new(folder.path.clone(), folder.write)).collect(),
        path: &path,
        home: Some(&home),
        private: entry.private.iter().map(PathBuf::as_path).collect(),
        ..Request::default()
    };
    let grants = Grants::of(&request);
    let inherited = [("PATH".to_owned(), path.clone()), ("HOME".to_owned(), home.display().to_string())];
    let inherited = inherited.into_iter().filter(|(name, _)| variable(name).is_none());
    let env = inherited.chain(entry.env.iter().cloned()).collect();
    Ok(Profile {
        program: grants.program.clone().ok_or("there is no such program")?,
        cwd: grants.cwd.clone().unwrap_or_else(|| home.clone()),
        folders: grants.folders(),
        env,
        home: Home { path: home, kept: entry.home },
        packages: None,
        args: entry.args,
        private: entry.private,
        network: entry.network,
        supervised: true,
        limits: Limits::default(),
        observed: false,
        without_namespaces: None,
    })
}
