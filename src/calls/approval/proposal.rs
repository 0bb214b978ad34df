//! The effects that a program proposes, which one person approves as a list.
//!
//! The list is the arguments of a call of the kind `effects`, so that its approval is bound to all of it: the run, the program, each
//! effect in its order, what each read answered, and the version of the policies.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Approval, Approvals, AskedCall, refusal};
use sekisho_core::call::{Arguments, CallKind, Caller};
use sekisho_core::error::CallError;

/// A program's effects, in their order, and its reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// The run that makes them: another run of an equal program needs an approval of its own.
    pub run: String,
    /// SHA-256 of the program.
    pub program: String,
    pub policy_version: String,
    pub reads: Vec<ProposedRead>,
    pub effects: Vec<ProposedEffect>,
}

/// A call that was made while the program ran, since it changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposedRead {
    /// Its position among the calls of the program, from 1.
    pub call: u32,
    pub tool: String,
    pub arguments_sha256: String,
    pub answer_sha256: String,
}

/// A call that is made once the list is approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposedEffect {
    /// Its position among the calls of the program, from 1.
    pub call: u32,
    pub tool: String,
    /// With a token in place of each value of an earlier effect.
    pub arguments: Arguments,
    /// SHA-256 of the call as it would be sent, and of its tool's definition.
    pub sha256: String,
    pub cost_usd: String,
    pub labels: Vec<String>,
    /// Why a person would have to approve the call by itself.
    pub reasons: Vec<String>,
    /// JSON Pointers into the arguments: the parts that an approver does not see.
    pub masks: Vec<String>,
    pub approvals_needed: u8,
    /// The earlier effects whose values are in its arguments.
    pub refers_to: Vec<u32>,
    /// An approver has struck it out: it is not made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub struck: bool,
}

impl Proposal {
    /// The list as the arguments of its call.
    /// Errors: `internal`: it has no JSON.
    pub fn to_arguments(&self) -> Result<Arguments, CallError> {
        match serde_json::to_value(self).map_err(CallError::internal)? {
            Value::Object(arguments) => Ok(arguments),
            _ => Err(CallError::internal("a proposal is an object")),
        }
    }

    /// Errors: `internal`: another form.
    pub fn from_arguments(arguments: Arguments) -> Result<Self, CallError> {
        serde_json::from_value(Value::Object(arguments)).map_err(CallError::internal)
    }

    /// The effects that are made.
    pub fn effects_to_make(&self) -> impl Iterator<Item = &ProposedEffect> {
        self.effects.iter().filter(|effect| !effect.struck)
    }

    /// The list without these effects, which keep their places in it.
    /// Errors: `invalid_request`: one is not in the list, another one needs its value, or nothing is left.
    pub fn without(&self, struck: &[u32]) -> Result<Self, CallError> {
        let mut rest = self.clone();
        for call in struck {
            let found = rest.effects.iter_mut().find(|effect| effect.call == *call);
            found.ok_or_else(|| CallError::invalid(format!("`strike`: the program has no effect {call}")))?.struck =
                true;
        }
        if let Some((user, used)) = rest.dangling() {
            let message =
                format!("`strike`: effect {user} needs a value of effect {used}: strike out both, or neither");
            return Err(CallError::invalid(message));
        }
        if rest.effects_to_make().next().is_none() {
            return Err(CallError::invalid("`strike` leaves no effect: deny the approval".to_owned()));
        }
        Ok(rest)
    }

    /// An effect that is made, and one that is struck out and whose value it needs.
    fn dangling(&self) -> Option<(u32, u32)> {
        let is_struck = |call: &u32| self.effects.iter().any(|effect| effect.struck && effect.call == *call);
        self.effects_to_make().find_map(|effect| {
            let used = effect.refers_to.iter().copied().find(is_struck)?;
            Some((effect.call, used))
        })
    }

    /// JSON Pointers into the list: the parts that an approver does not see.
    pub(super) fn masks(&self) -> Vec<String> {
        let of_effect = |(at, effect): (usize, &ProposedEffect)| {
            effect.masks.iter().map(|mask| format!("/effects/{at}/arguments{mask}")).collect::<Vec<_>>()
        };
        self.effects.iter().enumerate().flat_map(of_effect).collect()
    }

    /// How many persons must approve it: as many as any of its effects needs.
    pub(super) fn approvals_needed(&self) -> u8 {
        self.effects.iter().map(|effect| effect.approvals_needed).max().unwrap_or(1)
    }
}

impl AskedCall<'_> {
    /// The effects that it asks for, if it is a program's list of them.
    /// Errors: `internal`: the list has another form.
    pub(super) fn proposal(&self) -> Result<Option<Proposal>, CallError> {
        let is_list = self.tool.metadata.kind == CallKind::Effects;
        is_list.then(|| Proposal::from_arguments(self.arguments.as_map().clone())).transpose()
    }

    /// Whether an approver was shown all of these reasons with the effects of the program that makes this call.
    pub(super) fn was_shown(&self, reasons: &[String]) -> bool {
        let shown = self.call.resumption.shown_reasons.as_deref();
        shown.is_some_and(|shown| reasons.iter().all(|reason| shown.contains(reason)))
    }
}

impl Approval {
    /// Whether it is for the effects that a program proposes.
    pub fn is_for_effects(&self) -> bool {
        self.details.kind == CallKind::Effects.as_str()
    }
}

impl Approvals {
    /// The effects that an approval of the caller was asked for, and the list with those that an approver has struck out.
    /// Errors: `not_found` for an approval of another caller, or of another call; `approval_lost`; `overloaded`.
    pub async fn effects_of(&self, id: &str, caller: &Caller) -> Result<(Proposal, Option<Proposal>), CallError> {
        let approval = self.find(id).await?;
        if approval.caller_key != *caller.key || !approval.is_for_effects() {
            return Err(refusal::not_found());
        }
        let asked = Proposal::from_arguments(self.arguments(&approval)?)?;
        let left = self.changed_arguments(&approval)?.map(Proposal::from_arguments).transpose()?;
        Ok((asked, left))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn effect(call: u32, refers_to: &[u32]) -> ProposedEffect {
        ProposedEffect {
            call,
            tool: "pay".into(),
            arguments: json!({"to": "eve", "card": 7}).as_object().cloned().unwrap_or_default(),
            sha256: "d".into(),
            cost_usd: "0".into(),
            labels: Vec::new(),
            reasons: vec!["costly".into()],
            masks: vec!["/card".into()],
            approvals_needed: if call == 2 { 2 } else { 1 },
            refers_to: refers_to.to_vec(),
            struck: false,
        }
    }

    fn proposal() -> Proposal {
        let read =
            ProposedRead { call: 1, tool: "get".into(), arguments_sha256: "a".into(), answer_sha256: "b".into() };
        let effects = vec![effect(2, &[]), effect(4, &[2]), effect(5, &[])];
        Proposal { run: "r".into(), program: "p".into(), policy_version: "v".into(), reads: vec![read], effects }
    }

    #[test]
    fn only_an_effect_that_no_other_one_needs_is_struck_out() {
        for (struck, expected) in [
            (&[5][..], Ok(vec![2, 4])),
            (&[4], Ok(vec![2, 5])),
            (&[2, 4], Ok(vec![5])),
            (&[2], Err("effect 4 needs a value of effect 2")),
            (&[1], Err("no effect 1")),
            (&[2, 4, 5], Err("leaves no effect")),
        ] {
            let left = proposal().without(struck);
            let left = left.map(|left| left.effects_to_make().map(|effect| effect.call).collect::<Vec<_>>());
            match (left, expected) {
                (Ok(left), Ok(expected)) => assert_eq!(left, expected, "{struck:?}"),
                (Err(error), Err(expected)) => assert!(error.message().contains(expected), "{error}"),
                (left, expected) => panic!("{struck:?}: {left:?}, and not {expected:?}"),
            }
        }
    }

    #[test]
    fn a_list_is_read_as_it_was_written_and_says_what_is_masked() {
        let proposal = proposal().without(&[5]).unwrap();
        let arguments = proposal.to_arguments().unwrap();
        assert_eq!(Proposal::from_arguments(arguments.clone()).unwrap(), proposal);
        let masks = proposal.masks();
        assert_eq!(masks, ["/effects/0/arguments/card", "/effects/1/arguments/card", "/effects/2/arguments/card"]);
        let arguments = Value::Object(arguments);
        assert!(masks.iter().all(|mask| arguments.pointer(mask) == Some(&json!(7))));
        assert_eq!(proposal.approvals_needed(), 2);
    }
}
