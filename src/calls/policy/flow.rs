//! Where the values of a call come from, as rules read it, and what follows from it: where it is enforced, a destination in
//! question needs an approval, and a secret that may not leave is refused. No rule permits such a call.

use regorus::Value;
use serde_json::json;

use super::{Decision, input};
use crate::tool::{JudgedCall, ValidArguments};
use sekisho_config::FlowMode;
use sekisho_flow::{DestinationKind, ForbiddenSecret, Question};

/// Characters of a destination's hash in a reason: reasons about two destinations differ.
const HASH_CHARACTERS: usize = 16;

/// Adds `argument_labels` and `flow` to the input of rules. Without a judgement they are as where it is off.
/// Errors: labels that cannot be read as JSON.
pub(super) fn add_to(input: &mut Value, judged: Option<&JudgedCall>) -> Result<(), String> {
    let (labels, flow) = match judged {
        None => {
            let off =
                json!({"mode": FlowMode::Off, "sink": null, "untrusted": false, "questions": [], "forbidden": []});
            (json!({}), off)
        }
        Some(judged) => {
            let labels = serde_json::to_value(&judged.judgement.argument_labels).map_err(|error| error.to_string())?;
            (labels, serde_json::to_value(judged.notes()).map_err(|error| error.to_string())?)
        }
    };
    let (labels, flow) = (input::converted(&labels, 1)?, input::converted(&flow, 1)?);
    if let Ok(fields) = input.as_object_mut() {
        fields.insert("argument_labels".into(), labels);
        fields.insert("flow".into(), flow);
    }
    Ok(())
}

impl Decision {
    /// The same with the reasons that follow from where the arguments come from.
    pub(super) fn with_flow(mut self, tool: &str, arguments: &ValidArguments) -> Self {
        let Some(judged) = arguments.judgement().filter(|judged| judged.mode == FlowMode::Enforce) else { return self };
        let denials = judged.judgement.forbidden.iter().map(denial);
        let approvals = judged.judgement.questions.iter().map(|question| reason(tool, question));
        add_new(&mut self.denials, denials);
        add_new(&mut self.approvals, approvals);
        let is_disputed = judged.is_disputed();
        Self { allowed: self.allowed && !is_disputed, cached: self.cached && !is_disputed, ..self }
    }
}

fn add_new(reasons: &mut Vec<String>, new: impl Iterator<Item = String>) {
    for reason in new {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
}

/// Why a person is asked, without the value, which is logged nowhere. Equal for an equal call, also of a run whose messages were
/// read again, and different for another destination: an approval stands for its reasons.
fn reason(tool: &str, question: &Question) -> String {
    let Question { pointer, destination, .. } = question;
    let hash = destination.hash(tool);
    let hash = hash.as_str().get(..HASH_CHARACTERS).unwrap_or(hash.as_str());
    if pointer.is_empty() {
        return format!(
            "text that strangers can write was read, the user said nothing of {tool}, and no call of it was made before \
             (destination {hash}): ask the user"
        );
    }
    format!(
        "`{pointer}`: neither the user nor a trusted tool has named the {}, and no call has gone there before (destination \
         {hash}): use one that the user names, or ask the user",
        described(destination.kind)
    )
}

fn denial(secret: &ForbiddenSecret) -> String {
    let ForbiddenSecret { pointer, secrecy, origin } = secret;
    let names: Vec<_> = secrecy.iter().map(String::as_str).collect();
    let (names, from) = (names.join(", "), &origin.tool);
    format!(
        "`{pointer}`: it has a secret ({names}) from a result of {from}, which may not leave by this tool: leave it out"
    )
}

fn described(kind: DestinationKind) -> &'static str {
    match kind {
        DestinationKind::Mail => "mail address",
        DestinationKind::Host => "host",
        DestinationKind::Account => "account",
        DestinationKind::Phone => "phone number",
        DestinationKind::Path => "path",
        DestinationKind::Key => "key",
        DestinationKind::Number => "number",
        DestinationKind::Name => "name",
    }
}
