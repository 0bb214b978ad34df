//! The arguments of an approval, and the arguments that an approver put in their place.

use std::borrow::Cow;
use std::collections::HashMap;
use std::iter::repeat;

use serde_json::Value;

use super::sent::{Kept, check_size};
use super::{Approval, Approvals, SentToShow, refusal, sealed_for};
use sekisho_core::call::{Arguments, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;
use sekisho_core::visible_text::{visible, visible_name};

impl Approvals {
    /// The arguments of the call that was asked for.
    /// Errors: `approval_lost`: they cannot be opened.
    pub fn arguments(&self, approval: &Approval) -> Result<Arguments, CallError> {
        Ok(self.kept(approval)?.asked)
    }

    /// The arguments with which the call is made instead, if an approver changed them.
    /// Errors: `approval_lost`: they cannot be opened.
    pub fn changed_arguments(&self, approval: &Approval) -> Result<Option<Arguments>, CallError> {
        Ok(self.kept(approval)?.changed)
    }

    /// The sealed content of an approval.
    pub(super) fn kept(&self, approval: &Approval) -> Result<Kept, CallError> {
        let text = self.opened(approval)?;
        if approval.is_changed() || approval.details.keeps_sent {
            return serde_json::from_slice(&text).map_err(CallError::internal);
        }
        let asked = serde_json::from_slice(&text).map_err(CallError::internal)?;
        Ok(Kept { asked, changed: None, sent: None, questions: Vec::new(), request: None })
    }

    /// The digest of the arguments with which the call is made, if it is approved as it is.
    /// Errors: `approval_lost`: they cannot be opened.
    pub fn arguments_sha256(&self, approval: &Approval) -> Result<String, CallError> {
        let arguments = match self.changed_arguments(approval)? {
            Some(changed) => changed,
            None => self.arguments(approval)?,
        };
        Ok(hex::encode(json::digest(&arguments)))
    }

    /// `sent`: the form in which the changed arguments are sent, where it is another one.
    /// Errors: `too_large`; `approval_lost`: the original arguments cannot be opened; `internal`: nothing can be
    /// sealed.
    pub(super) fn seal_change(
        &self,
        approval: &Approval,
        changed: &Arguments,
        sent: Option<&SentToShow>,
    ) -> Result<String, CallError> {
        check_size(json::canonical(changed).len())?;
        let kept = Kept { changed: Some(changed.clone()), sent: sent.cloned(), ..self.kept(approval)? };
        let text = serde_json::to_vec(&kept).map_err(CallError::internal)?;
        self.sealer.seal(sealed_for(&approval.tenant, &approval.caller_key), &text).map_err(CallError::internal)
    }

    fn opened(&self, approval: &Approval) -> Result<Vec<u8>, CallError> {
        let whose = sealed_for(&approval.tenant, &approval.caller_key);
        self.sealer.open(whose, &approval.sealed).map_err(|problem| refusal::not_opened(&problem))
    }
}

impl Approval {
    /// Arguments that an approver writes. Parts that approvers do not see stay as they were asked. So do texts that are
    /// written as they were shown, with some characters escaped.
    /// Errors: `invalid_arguments` if a part is left out that approvers do not see: nobody may remove an unseen part.
    pub fn with_masked(&self, asked: &Arguments, written: Arguments) -> Result<Arguments, CallError> {
        let asked = Value::Object(asked.clone());
        let mut written = as_asked(&asked, Value::Object(written));
        // In alphabetical order: a pointer to a whole comes before the pointers to its parts.
        for path in &self.details.masks {
            if let Some(kept) = asked.pointer(path) {
                *written.pointer_mut(path).ok_or_else(|| left_out(path))? = kept.clone();
            }
        }
        Ok(match written {
            Value::Object(written) => written,
            // A pointer to the whole leads to the original arguments, which are an object too.
            _ => Arguments::default(),
        })
    }

    /// Only the run of an agent, and of a program that proposes effects, is told with which arguments its call is made: every
    /// other caller would get the answer of a call that it did not send.
    pub(super) fn check_changeable(&self) -> Result<(), CallError> {
        let problem = if self.details.via != Via::Agent.as_str() && !self.is_for_effects() {
            "only the arguments of a call that the run of an agent makes can be changed, and this caller sends its own: deny \
             the call with a reason that says which arguments you would approve"
        } else if !self.decisions.is_empty() {
            "another approver has approved the call with the arguments that it has: approve it without `arguments`, or deny it"
        } else {
            return Ok(());
        };
        Err(CallError::new(ErrorCode::InvalidRequest, problem))
    }
}

fn left_out(path: &str) -> CallError {
    let message = format!(
        "`arguments` leave out {}, which approvers do not see: write anything in its place, such as null, and it stays as it was \
         asked; if the call must not have it, deny the call",
        visible(path)
    );
    CallError::new(ErrorCode::InvalidArguments, message)
}

/// The written value. Each text and name in it that is as it was shown becomes as it was asked.
fn as_asked(asked: &Value, written: Value) -> Value {
    match (asked, written) {
        (Value::String(asked), Value::String(written)) if written == visible(asked) => Value::String(asked.clone()),
        (Value::Array(asked), Value::Array(written)) => {
            let asked = asked.iter().map(Some).chain(repeat(None));
            let elements = written.into_iter().zip(asked).map(|(written, asked)| match asked {
                Some(asked) => as_asked(asked, written),
                None => written,
            });
            elements.collect()
        }
        (Value::Object(asked), Value::Object(written)) => {
            // No two names are shown as one.
            let shown: HashMap<Cow<'_, str>, &String> = asked.keys().map(|name| (visible_name(name), name)).collect();
            let members = written.into_iter().map(|(name, written)| {
                let name = shown.get(name.as_str()).map_or(name, |shown| (*shown).clone());
                let written = match asked.get(&name) {
                    Some(asked) => as_asked(asked, written),
                    None => written,
                };
                (name, written)
            });
            Value::Object(members.collect())
        }
        (_, written) => written,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_as_it_was_shown_stays_as_it_was_asked() {
        let asked = json!({"text": "a\nb", "k\u{200f}": ["x\u{0}", "y\n"], "n": 1});
        let written =
            json!({"text": "a\\u000ab", "k\\u200f": ["x\\u0000", "z", "\\u000a"], "n": 2, "new": "a\\u000ab"});
        let expected = json!({"text": "a\nb", "k\u{200f}": ["x\u{0}", "z", "\\u000a"], "n": 2, "new": "a\\u000ab"});
        assert_eq!(as_asked(&asked, written), expected);
        let alike = json!({"k\u{200f}": "hidden", "k\\u200f": "plain"});
        for (written, expected) in [
            (json!({"k\\u200f": "other"}), json!({"k\u{200f}": "other"})),
            (json!({"k\\\\u200f": "other"}), json!({"k\\u200f": "other"})),
            (json!({"k\\u200f": "hidden", "k\\\\u200f": "plain"}), alike.clone()),
        ] {
            assert_eq!(as_asked(&alike, written), expected);
        }
    }
}
