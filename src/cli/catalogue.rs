//! `sekisho catalogue`: sources that callers get on request, at a running gateway.

use clap::{Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};

use super::client::{Remote, Unanswered};
use super::local_gateway::with_remote;
use super::present::text;
use super::{Common, Exit, present};
use sekisho_api::{CatalogueSourceBody, ProfileToolBody, SourceRequestBody};

#[derive(Debug, Default, Subcommand)]
pub(super) enum CatalogueCommand {
    /// List the sources that you can ask for, and those that are switched on for you.
    #[default]
    List,
    /// Ask for a source: `sekisho catalogue ask mcp:NAME`.
    Ask {
        /// `mcp:SERVER` or `openapi:COLLECTION`.
        source: String,
        /// What you need it for.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// List the requests of callers, for administrators.
    Requests {
        /// `asked`, `approved`, `refused` or `withdrawn`.
        #[arg(long)]
        state: Option<String>,
    },
    /// Show the profile of a source: the sandbox of its program, and its tools.
    Show {
        /// `mcp:SERVER` or `openapi:COLLECTION`.
        source: String,
    },
    /// Switch a source on, by a request.
    Approve {
        /// The id of a request, as `sekisho catalogue requests` lists it.
        id: String,
        /// For the user who asked, the managed key by which it was asked, or all of the tenant.
        #[arg(long = "for", value_enum, default_value_t)]
        audience: Audience,
    },
    /// Refuse a request.
    Refuse {
        /// The id of a request.
        id: String,
    },
    /// Switch a source off for whom a request switched it on.
    Withdraw {
        /// The id of a request.
        id: String,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Audience {
    #[default]
    User,
    Key,
    Tenant,
}

pub(super) fn run(common: &Common, command: &CatalogueCommand) -> Exit {
    with_remote(common, |remote| match command {
        CatalogueCommand::List => {
            Ok(present::listed::<CatalogueSourceBody>(&remote.get_all(&["me", "sources"], &[])?, common.json))
        }
        CatalogueCommand::Requests { state } => {
            let query: Vec<_> = state.iter().map(|state| ("state", state.as_str())).collect();
            let found = remote.get_all(&["admin", "source-requests"], &query)?;
            Ok(present::listed::<SourceRequestBody>(&found, common.json))
        }
        CatalogueCommand::Show { source } => {
            let profile = remote.get(&["admin", "sources", source], &[])?;
            Ok(if common.json { present::json(&profile) } else { show(&profile) })
        }
        CatalogueCommand::Ask { source, reason } => {
            let body = json!({"reason": reason});
            let request = remote.send(Method::POST, &["me", "sources", source], Some(&body))?;
            Ok(if common.json { present::json(&request) } else { report(&request) })
        }
        CatalogueCommand::Approve { id, audience } => {
            let audience = match audience {
                Audience::User => "user",
                Audience::Key => "key",
                Audience::Tenant => "tenant",
            };
            decide(common, remote, id, &json!({"decision": "approve", "for": audience}))
        }
        CatalogueCommand::Refuse { id } => decide(common, remote, id, &json!({"decision": "refuse"})),
        CatalogueCommand::Withdraw { id } => decide(common, remote, id, &json!({"decision": "withdraw"})),
    })
}

fn decide(common: &Common, remote: &Remote, id: &str, body: &Value) -> Result<Exit, Unanswered> {
    let request = remote.send(Method::POST, &["admin", "source-requests", id], Some(body))?;
    Ok(if common.json { present::json(&request) } else { report(&request) })
}

fn report(request: &Value) -> Exit {
    let (source, caller, state) = (text(request, "source"), text(request, "caller"), text(request, "state"));
    let audience = request["audience"].as_str().map(|audience| format!(" for the {audience}")).unwrap_or_default();
    present::line(&format!("{source}, asked by {caller}: {state}{audience}"));
    Exit::Done
}

fn show(profile: &Value) -> Exit {
    present::line(&format!("{}: {}", text(profile, "source"), text(profile, "text")));
    let address = text(profile, "address");
    if !address.is_empty() {
        present::line(&format!("it is {address}"));
    }
    if profile["sandbox"].is_string() {
        present::line(&text(profile, "sandbox"));
    }
    if profile["problem"].is_string() {
        present::info(&format!("its tools are not known: {}", text(profile, "problem")));
    } else {
        present::list::<ProfileToolBody>(present::entries(&profile["tools"]));
    }
    Exit::Done
}
