//! `sekisho approvals`: calls that a person must approve, at a running gateway.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::Duration;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::call::parse_arguments;
use super::client::{Remote, Unanswered};
use super::local_gateway::with_remote_as;
use super::present::text;
use super::{Common, Exit, present};
use sekisho_api::{ApprovalBody, NamedCaller};

/// How often `watch` looks for new ones.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub(super) enum ApprovalsCommand {
    /// List approvals, the latest first.
    List(ListOptions),
    /// Show one with the arguments of its call.
    Show {
        /// The id of an approval, as `sekisho approvals` lists it.
        id: String,
    },
    /// Approve a call: once, unless an option says otherwise.
    Approve {
        /// The id of an approval, as `sekisho approvals` lists it.
        id: String,
        /// Why, for the record.
        #[arg(long, default_value = "")]
        reason: String,
        /// Approve each call that is exactly like this one for so many minutes.
        #[arg(long, conflicts_with = "session")]
        minutes: Option<u32>,
        /// Approve each call of this tool in its session.
        #[arg(long)]
        session: bool,
        /// Let the run of an agent make its call with these arguments instead: a JSON object.
        #[arg(long, value_name = "JSON", conflicts_with_all = ["minutes", "session"])]
        arguments: Option<String>,
        /// What `show` printed as the SHA-256 of the arguments: other arguments are not approved. Required once an approver has
        /// changed them.
        #[arg(long, value_name = "SHA256")]
        arguments_sha256: Option<String>,
        /// Have an effect that a program proposes not made: its number, as `show` lists it. May be repeated.
        #[arg(long, value_name = "CALL", conflicts_with_all = ["minutes", "session", "arguments"])]
        strike: Vec<u32>,
        /// Approve another call that waits with it, as `show` lists them, too. May be repeated.
        #[arg(long, value_name = "ID")]
        with: Vec<String>,
        /// Deny another call that waits with it in the same decision. May be repeated.
        #[arg(long, value_name = "ID")]
        deny: Vec<String>,
    },
    /// Deny a call, or take back an approval that is not used up.
    Deny {
        /// The id of an approval, as `sekisho approvals` lists it.
        id: String,
        /// Why: the caller reads it.
        #[arg(long, default_value = "")]
        reason: String,
        /// Deny another call that waits with it, as `show` lists them, too. May be repeated.
        #[arg(long, value_name = "ID")]
        with: Vec<String>,
    },
    /// Print calls that wait for approval, as they come, until it is interrupted.
    Watch,
}

#[derive(Debug, Default, Args)]
pub(super) struct ListOptions {
    /// pending, approved, executing, done, unknown, denied or expired.
    #[arg(long)]
    status: Option<String>,
    /// The name of a tool.
    #[arg(long)]
    tool: Option<String>,
    /// The id of a caller.
    #[arg(long)]
    caller: Option<String>,
}

pub(super) fn run(common: &Common, command: Option<ApprovalsCommand>) -> Exit {
    let arguments = match &command {
        Some(ApprovalsCommand::Approve { arguments: Some(text), .. }) => match parse_arguments(text) {
            Ok(arguments) => Some(arguments),
            Err(problem) => {
                present::problem(&problem);
                return Exit::WrongCommandLine;
            }
        },
        _ => None,
    };
    with_remote_as(common, &NamedCaller::approver(), |remote| match command {
        Some(ApprovalsCommand::Watch) => watch(remote, common.json),
        Some(ApprovalsCommand::Show { id }) => Ok(show(&remote.get(&["approvals", &id], &[])?, common.json)),
        Some(ApprovalsCommand::Approve {
            id, reason, minutes, session, strike, arguments_sha256, with, deny, ..
        }) => {
            let mut body = json!({"reason": reason, "arguments_sha256": arguments_sha256});
            if !strike.is_empty() {
                body["strike"] = json!(strike);
            }
            name_others(&mut body, "with", &with);
            name_others(&mut body, "deny", &deny);
            if let Some(arguments) = arguments {
                body["arguments"] = Value::Object(arguments);
            }
            match (minutes, session) {
                (Some(minutes), _) => {
                    body["scope"] = json!("minutes");
                    body["minutes"] = json!(minutes);
                }
                (None, true) => body["scope"] = json!("session"),
                (None, false) => {}
            }
            Ok(decided(&remote.send(Method::POST, &["approvals", &id, "approve"], Some(&body))?, common.json))
        }
        Some(ApprovalsCommand::Deny { id, reason, with }) => {
            let mut body = json!({"reason": reason});
            name_others(&mut body, "with", &with);
            Ok(decided(&remote.send(Method::POST, &["approvals", &id, "deny"], Some(&body))?, common.json))
        }
        Some(ApprovalsCommand::List(options)) => list(remote, &options, common.json),
        None => list(remote, &ListOptions::default(), common.json),
    })
}

/// Adds the others that are decided too.
fn name_others(body: &mut Value, member: &str, ids: &[String]) {
    if !ids.is_empty() {
        body[member] = json!(ids);
    }
}

fn list(remote: &Remote, options: &ListOptions, as_json: bool) -> Result<Exit, Unanswered> {
    let ListOptions { status, tool, caller } = options;
    let named = [("status", status), ("tool", tool), ("caller", caller)];
    let query: Vec<_> = named.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect();
    let found = remote.get_all(&["approvals"], &query)?;
    Ok(present::listed::<ApprovalBody>(&found, as_json))
}

fn watch(remote: &Remote, as_json: bool) -> Result<Exit, Unanswered> {
    let mut seen = HashSet::new();
    loop {
        let mut pending = remote.get_all(&["approvals"], &[("status", "pending")])?;
        pending.reverse();
        for approval in pending {
            if seen.insert(text(&approval, "id")) {
                match as_json {
                    true => present::json_line(&approval),
                    false => present::line(&present::cells::<ApprovalBody>(&approval).join("  ")),
                }
            }
        }
        sleep(WATCH_INTERVAL);
    }
}

fn show(approval: &Value, as_json: bool) -> Exit {
    if as_json {
        return present::json(approval);
    }
    let caller = &approval["caller"];
    let fields = [
        ("id", text(approval, "id")),
        ("status", text(approval, "status")),
        ("tool", text(approval, "tool")),
        ("target", text(approval, "target")),
        ("caller", format!("{} ({}), used by {}", text(caller, "id"), text(caller, "tenant"), text(caller, "person"))),
        ("session", text(approval, "session_id")),
        ("via", text(approval, "via")),
        ("reasons", texts(&approval["reasons"]).join("; ")),
        ("asked", text(approval, "created_at")),
        ("expires", text(approval, "expires_at")),
        ("persons needed", approval["approvals_needed"].to_string()),
        ("calls made", approval["uses"].to_string()),
        ("arguments SHA-256", text(approval, "arguments_sha256")),
        ("page", text(approval, "url")),
    ];
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    present::lines(fields.map(|(name, value)| vec![name.to_owned(), value]).collect());
    for decision in approval["decisions"].as_array().into_iter().flatten() {
        let what = if decision["approved"] == true { "approved" } else { "denied" };
        let (approver, at, reason) = (text(decision, "approver"), text(decision, "at"), text(decision, "reason"));
        present::line(&format!("{what} by {approver} at {at}: {reason}"));
    }
    for question in approval["questions"].as_array().into_iter().flatten() {
        present::line(&question_line(question));
    }
    show_others(approval);
    show_effects(approval);
    present::line("arguments:");
    let mut shown = present::json(&approval["arguments"]);
    for (title, member) in [("arguments that the approver wrote:", "changed_arguments"), ("sent:", "sent")] {
        if !approval[member].is_null() {
            present::line(title);
            shown = present::json(&approval[member]);
        }
    }
    shown
}

/// The effects that a program proposes, in their order, with the numbers by which they are struck out.
fn show_effects(approval: &Value) {
    if approval["kind"] != "effects" {
        return;
    }
    let list = [&approval["changed_arguments"], &approval["arguments"]].into_iter().find(|list| !list.is_null());
    for effect in list.and_then(|list| list["effects"].as_array()).into_iter().flatten() {
        let note = if effect["struck"] == true { " (struck out)" } else { "" };
        let arguments = present::harmless(&effect["arguments"].to_string()).into_owned();
        present::line(&format!("effect {}: {} {arguments}{note}", effect["call"], text(effect, "tool")));
        for reason in texts(&effect["reasons"]) {
            present::line(&format!("  {reason}"));
        }
    }
}

/// The other calls that wait with it, each with all that a person decides by.
fn show_others(approval: &Value) {
    let others = approval["with"].as_array().map(Vec::as_slice).unwrap_or_default();
    for other in others {
        present::line(&format!("waits with it: {} {}", text(other, "id"), text(other, "tool")));
        for reason in texts(&other["reasons"]) {
            present::line(&format!("  {reason}"));
        }
        for question in other["questions"].as_array().into_iter().flatten() {
            present::line(&format!("  {}", question_line(question)));
        }
        for (title, member) in [
            ("arguments", "arguments"),
            ("arguments that the approver wrote", "changed_arguments"),
            ("arguments SHA-256", "arguments_sha256"),
            ("sent", "sent"),
        ] {
            if !other[member].is_null() {
                present::line(&format!("  {title}: {}", present::harmless(&other[member].to_string())));
            }
        }
    }
    if approval["status"] == "pending" && !others.is_empty() {
        let options: Vec<_> = others.iter().map(|other| format!("--with {}", text(other, "id"))).collect();
        let (id, options) = (text(approval, "id"), options.join(" "));
        present::line(&format!(
            "all of them: sekisho approvals approve {id} {options} (`--deny ID` in place of `--with ID` denies one)"
        ));
    }
}

/// The value, and where it comes from.
fn question_line(question: &Value) -> String {
    let (argument, value, state) = (text(question, "argument"), text(question, "value"), text(question, "state"));
    let (origin, sentence) = (&question["origin"], text(question, "sentence"));
    let from = match text(origin, "tool") {
        tool if tool.is_empty() => String::new(),
        tool => format!(", from call {} of {tool}", text(origin, "call")),
    };
    let quoted = if sentence.is_empty() { String::new() } else { format!(": \"{sentence}\"") };
    format!("{argument} = {value} is {state}{from}{quoted}")
}

fn decided(approval: &Value, as_json: bool) -> Exit {
    if as_json {
        return present::json(approval);
    }
    for one in std::iter::once(approval).chain(approval["with"].as_array().into_iter().flatten()) {
        let (id, status, tool) = (text(one, "id"), text(one, "status"), text(one, "tool"));
        let next = if status == "pending" { ": a second person must approve it" } else { "" };
        present::line(&format!("{tool} {id} is {status}{next}"));
    }
    Exit::Done
}

fn texts(values: &Value) -> Vec<String> {
    let texts = values.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(|text| present::harmless(text).into_owned()).collect()
}
