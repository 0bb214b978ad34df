//! The form in which a call is sent, for its approver: method and address, and the arguments where they differ from the
//! tool's. The parts that the policies mask are masked in both.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::shown::{escape, masked_arguments};
use super::{Approval, Approvals, AskedCall, MAX_ARGUMENTS, refusal};
use crate::tool::{LOCAL, Tool, ValidArguments};
use sekisho_core::call::Arguments;
use sekisho_core::error::CallError;
use sekisho_core::json;
use sekisho_flow::Question;

/// The parts of a call that are sent otherwise than its arguments say, without the masked parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentToShow {
    /// By the names of who gets them; `None`: as the call has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    /// The members that the caller adds beside the arguments.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    meta: Map<String, Value>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    as_task: bool,
}

/// The sealed content of an approval, unless that is only the arguments.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) asked: Arguments,
    /// The arguments that an approver put in their place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) changed: Option<Arguments>,
    /// The form of the arguments with which the call is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sent: Option<SentToShow>,
    /// The questions about where its values come from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) questions: Vec<Question>,
    /// The request to the agent that makes the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<Arc<str>>,
}

/// Where a call is sent. Nothing of it is secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownDestination {
    pub method: String,
    pub address: String,
    pub coding: Option<String>,
}

impl SentToShow {
    /// `None` where the arguments are sent as they are, and nothing beside them.
    pub(super) fn of_call(asked: &AskedCall<'_>) -> Option<Self> {
        let AskedCall { call, tool, arguments, masks, .. } = *asked;
        let destination = tool.sent_call(call, arguments.sent()).destination;
        let sent = Self {
            meta: destination.meta.cloned().unwrap_or_default(),
            as_task: destination.as_task,
            ..Self::of_arguments(tool, arguments, masks)
        };
        sent.says_more().then_some(sent)
    }

    /// The same of arguments that an approver wrote for the call of an agent, which adds nothing to them.
    pub fn of_change(tool: &Tool, arguments: &ValidArguments, masks: &[String]) -> Option<Self> {
        let sent = Self::of_arguments(tool, arguments, masks);
        sent.says_more().then_some(sent)
    }

    /// Made of the masked arguments, so that a masked text is nowhere in it, under any name.
    fn of_arguments(tool: &Tool, arguments: &ValidArguments, masks: &[String]) -> Self {
        let sent = arguments.further().map(|further| {
            let sent = match masked_arguments(arguments.as_map().clone(), masks) {
                Value::Object(masked) => tool.sent_arguments(&masked, further),
                _ => Arguments::new(),
            };
            masked_arguments(sent, masks)
        });
        Self { arguments: sent, meta: Map::new(), as_task: false }
    }

    fn says_more(&self) -> bool {
        self.arguments.is_some() || !self.meta.is_empty() || self.as_task
    }
}

impl ShownDestination {
    /// `None` where the arguments name the server: they are shown.
    pub(super) fn of(asked: &AskedCall<'_>) -> Option<Self> {
        let AskedCall { call, tool, arguments, .. } = *asked;
        if tool.callers_choose_upstream() {
            return None;
        }
        let destination = tool.sent_call(call, arguments.sent()).destination;
        Some(Self {
            method: destination.method.into_owned(),
            address: destination.address.into_owned(),
            coding: destination.coding.map(std::borrow::Cow::into_owned),
        })
    }
}

impl ShownDestination {
    /// `method`, `address` and `coding`; of a call that leaves the gateway for no server the `source` of its tool.
    fn show(&self, shown: &mut Map<String, Value>) {
        if self.method == LOCAL {
            shown.insert("source".to_owned(), self.address.as_str().into());
            return;
        }
        shown.insert("method".to_owned(), self.method.as_str().into());
        shown.insert("address".to_owned(), self.address.as_str().into());
        shown.insert("coding".to_owned(), self.coding.as_deref().into());
    }
}

impl Approvals {
    /// The sent form as an approver sees it: the destination, and where they differ from the call's, `arguments`, `meta` and
    /// `as_task`.
    /// Errors: `approval_lost`: it cannot be opened.
    pub fn shown_sent(&self, approval: &Approval) -> Result<Option<Value>, CallError> {
        let mut shown = Map::new();
        if let Some(destination) = &approval.details.destination {
            destination.show(&mut shown);
        }
        if let Some(SentToShow { arguments, meta, as_task }) = self.kept(approval)?.sent {
            shown.extend(arguments.map(|arguments| ("arguments".to_owned(), arguments)));
            shown.extend((!meta.is_empty()).then(|| ("meta".to_owned(), meta.into())));
            shown.extend(as_task.then(|| ("as_task".to_owned(), true.into())));
        }
        Ok((!shown.is_empty()).then(|| escape(shown.into())))
    }
}

/// The text of a requested call that is sealed. The questions and the request of the agent are bounded where they are made.
/// Errors: `too_large`.
pub(super) fn kept_text(
    asked: &Arguments,
    sent: Option<&SentToShow>,
    questions: &[Question],
    request: Option<&Arc<str>>,
) -> Result<Vec<u8>, CallError> {
    let text = json::canonical(asked);
    check_size(text.len())?;
    if sent.is_none() && questions.is_empty() && request.is_none() {
        return Ok(text);
    }
    check_size(serde_json::to_vec(&sent).map_err(CallError::internal)?.len())?;
    let (sent, questions) = (sent.cloned(), questions.to_vec());
    let kept = Kept { asked: asked.clone(), changed: None, sent, questions, request: request.cloned() };
    serde_json::to_vec(&kept).map_err(CallError::internal)
}

pub(super) fn check_size(bytes: usize) -> Result<(), CallError> {
    if bytes > MAX_ARGUMENTS { Err(refusal::too_large(bytes, MAX_ARGUMENTS)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::tests::{tool_run_by, tool_with};
    use crate::tool::{Attempt, Destination, Execution, Executor, FilledIn, Metadata, SentForm};
    use sekisho_core::call::{CallClient, CallContext, CallOrigin, Caller, Via};

    /// Sends `token` as `auth`, and the `account` of the session, for which the tool has no name.
    struct Renaming;

    impl Executor for Renaming {
        fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
            unreachable!("nothing is run")
        }

        fn destination<'a>(&'a self, call: &'a CallContext, _arguments: &'a Arguments) -> Option<Destination<'a>> {
            let (method, address, meta) = ("POST".into(), "https://a.example/pay".into(), Some(&call.client.meta));
            Some(Destination {
                method,
                address,
                coding: Some("application/json".into()),
                meta,
                as_task: call.client.as_task,
            })
        }

        fn sent_form(&self) -> Option<&dyn SentForm> {
            Some(self)
        }
    }

    impl SentForm for Renaming {
        fn fill_in(&self, _arguments: &mut Arguments, prompt_params: &Map<String, Value>) -> FilledIn {
            FilledIn { changed: false, further: prompt_params.clone() }
        }

        fn sent(&self, arguments: &Arguments, further: &Arguments) -> Arguments {
            let renamed = |name: &String| if name == "token" { "auth".to_owned() } else { name.clone() };
            arguments.iter().chain(further).map(|(name, value)| (renamed(name), value.clone())).collect()
        }
    }

    fn members(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    fn shown(tool: &Tool, call: &CallContext, arguments: Value, masks: &[&str]) -> (Option<Value>, Option<Value>) {
        let arguments = tool.valid_arguments(members(arguments), &call.origin.prompt_params).unwrap();
        let masks: Vec<_> = masks.iter().map(ToString::to_string).collect();
        let policy_version = Arc::from("v1");
        let asked = AskedCall {
            call,
            tool,
            arguments: &arguments,
            reasons: &[],
            first_use: false,
            masks: &masks,
            policy_version: &policy_version,
        };
        let sent = SentToShow::of_call(&asked).map(|sent| serde_json::to_value(sent).unwrap());
        (sent, ShownDestination::of(&asked).map(|shown| serde_json::to_value(shown).unwrap()))
    }

    fn call() -> CallContext {
        CallContext::new("pay", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest)
    }

    #[test]
    fn an_approver_sees_what_is_sent_where_it_differs_and_nothing_that_is_masked() {
        let tool = tool_run_by(Arc::new(Renaming), Metadata { name: "pay".into(), ..Metadata::default() });
        let destination = json!({"method": "POST", "address": "https://a.example/pay", "coding": "application/json"});
        let plain = shown(&tool, &call(), json!({"amount": 1}), &[]);
        assert_eq!(plain, (None, Some(destination)));
        let call = CallContext {
            origin: CallOrigin { prompt_params: members(json!({"account": "acme"})), ..CallOrigin::default() },
            client: CallClient { meta: members(json!({"example.com/a": 1})), as_task: true, ..CallClient::default() },
            ..call()
        };
        let (sent, _) = shown(&tool, &call, json!({"amount": 1, "token": "hunter2"}), &["/token"]);
        let sent = sent.unwrap();
        assert_eq!(
            (&sent["arguments"]["auth"]["masked"], &sent["arguments"]["account"]),
            (&json!(true), &json!("acme"))
        );
        assert_eq!((&sent["meta"], &sent["as_task"]), (&json!({"example.com/a": 1}), &json!(true)));
        assert!(!sent.to_string().contains("hunter2"), "{sent}");
        let (all_masked, _) = shown(&tool, &call, json!({"token": "hunter2"}), &[""]);
        assert!(!all_masked.unwrap().to_string().contains("acme"));
    }

    #[test]
    fn of_a_local_tool_there_is_its_source() {
        let tool = tool_with(Metadata { source: "builtin".into(), ..Metadata::default() }, json!({}), None);
        let destination = json!({"method": "call", "address": "builtin", "coding": null});
        assert_eq!(shown(&tool, &call(), json!({"amount": 1}), &[]), (None, Some(destination.clone())));
        let of = |destination: Value| {
            let mut shown = Map::new();
            serde_json::from_value::<ShownDestination>(destination).unwrap().show(&mut shown);
            Value::Object(shown)
        };
        assert_eq!(of(destination), json!({"source": "builtin"}));
        let sent = json!({"method": "POST", "address": "https://a.example/pay", "coding": null});
        assert_eq!(of(sent.clone()), sent);
    }

    #[test]
    fn what_is_kept_is_bounded_and_read_again() {
        let asked = members(json!({"amount": 1}));
        assert_eq!(kept_text(&asked, None, &[], None).unwrap(), br#"{"amount":1}"#);
        let sent =
            |size: usize| SentToShow { arguments: Some(json!("x".repeat(size))), meta: Map::new(), as_task: false };
        let kept: Kept = serde_json::from_slice(&kept_text(&asked, Some(&sent(1)), &[], None).unwrap()).unwrap();
        assert_eq!((kept.asked, kept.changed, kept.sent), (asked.clone(), None, Some(sent(1))));
        assert!(kept_text(&asked, Some(&sent(MAX_ARGUMENTS)), &[], None).is_err());
        let request: Arc<str> = "Pay ann".into();
        let kept: Kept = serde_json::from_slice(&kept_text(&asked, None, &[], Some(&request)).unwrap()).unwrap();
        assert_eq!((kept.asked, kept.request), (asked, Some(request)));
        // The text of the version before, once an approver has changed the arguments.
        let kept: Kept = serde_json::from_value(json!({"asked": {"a": 1}, "changed": {"a": 2}})).unwrap();
        assert_eq!((kept.changed, kept.sent), (Some(members(json!({"a": 2}))), None));
    }
}
