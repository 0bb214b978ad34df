//! The values of one session: texts that were read or declared, and their state in the store.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::stored::Stored;
use super::{RUN, untrusted};
use crate::tool::Tool;
use sekisho_core::call::CallContext;
use sekisho_flow::{CallOrigin, Judgement, NothingKnown, SessionValues};

/// How long a session is not looked up again for a call with effects.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long a session that has is not marked again.
const MARK_INTERVAL: Duration = Duration::from_secs(86_400);

/// Maximum questions of a session that are counted once.
const MAX_COUNTED: usize = 200;

/// The values of one session.
#[derive(Debug, Default)]
pub(super) struct FlowSession {
    pub(super) values: SessionValues,
    /// Hash of the text and the parameters that a call declared last: the next call has the same ones.
    declared: u64,
    /// Hashes of the questions that were counted.
    counted: HashSet<u64>,
    /// It ends with a run, and is not marked.
    is_of_run: bool,
    /// Its values are stored. The values of conversations are in their messages.
    is_stored: bool,
    /// The revision of the stored values, which are among these here.
    revision: i64,
    /// There are values that are not in the store, and that wait to be written.
    is_unsaved: bool,
    /// When it was looked up, and marked.
    checked: Option<Instant>,
    marked: Option<Instant>,
}

impl FlowSession {
    /// `is_lost`: it had values before, which are not known any more.
    pub(super) fn new(id: &str, is_lost: bool) -> Self {
        // The id of a conversation, a run or an interpreter has this character, and no id of a session.
        let is_stored = !id.contains('\u{1f}');
        let mut session = Self { is_of_run: id.starts_with(RUN), is_stored, ..Self::default() };
        if is_lost {
            session.add_lost();
        }
        session
    }

    /// It had values that are not known any more.
    pub(super) fn add_lost(&mut self) {
        let text = "The earlier results of this session are not kept any more.";
        self.values.add_result(&CallOrigin::default(), &untrusted(), &text.into());
    }

    /// Whether to look up its values from elsewhere: before its first call here, and at times before calls with effects.
    pub(super) fn is_to_check(&self, has_effect: bool) -> bool {
        let is_old = self.checked.is_none_or(|checked| checked.elapsed() >= CHECK_INTERVAL);
        match self.is_stored {
            true => self.checked.is_none() || (has_effect && is_old),
            // Only that it has read text of strangers can be looked up.
            false => has_effect && is_old && !self.is_of_run && !self.values.has_untrusted(),
        }
    }

    /// Whether there may be stored values that are not here yet: text of strangers may be among them.
    pub(super) fn may_have_more(&self) -> bool {
        self.is_stored && self.checked.is_none()
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// Adds its stored values.
    pub(super) fn add_stored(&mut self, revision: i64, stored: Stored) {
        self.revision = revision;
        match stored {
            Stored::Nothing => {}
            Stored::Values(values) => {
                // The stored ones are the older ones, and go first.
                let own = mem::replace(&mut self.values, values);
                self.values.merge(&own);
            }
            Stored::Damaged => self.add_lost(),
        }
    }

    /// It has values that are to be stored. False where they wait already, or are not stored.
    pub(super) fn set_unsaved(&mut self) -> bool {
        self.is_stored && !mem::replace(&mut self.is_unsaved, true)
    }

    pub(super) fn is_unsaved(&self) -> bool {
        self.is_unsaved
    }

    /// They do not wait any more.
    pub(super) fn set_not_waiting(&mut self) {
        self.is_unsaved = false;
    }

    /// The values to store in place of a revision, as JSON.
    pub(super) fn begin_save(&mut self) -> (i64, Vec<u8>) {
        self.is_unsaved = false;
        (self.revision, serde_json::to_vec(&self.values).unwrap_or_default())
    }

    pub(super) fn set_saved(&mut self, revision: i64) {
        self.revision = revision;
    }

    /// It was looked up.
    pub(super) fn set_checked(&mut self, has_read_text_of_strangers: bool) {
        self.checked = Some(Instant::now());
        self.join(has_read_text_of_strangers);
    }

    /// It gets values of another session.
    pub(super) fn join(&mut self, has_read_text_of_strangers: bool) {
        if has_read_text_of_strangers && !self.values.has_untrusted() {
            self.add_lost();
        }
    }

    /// Whether to mark that it has read text of strangers.
    pub(super) fn is_to_mark(&mut self) -> bool {
        let is_old = self.marked.is_none_or(|marked| marked.elapsed() >= MARK_INTERVAL);
        let is_to_mark = is_old && !self.is_of_run && self.values.has_untrusted();
        if is_to_mark {
            self.marked = Some(Instant::now());
        }
        is_to_mark
    }

    /// It could not be marked: its next change tries it again.
    pub(super) fn set_not_marked(&mut self) {
        self.marked = None;
    }

    /// Adds a result of the past. As of a call that is made now, what untrusted text may have selected asserts nothing; what a
    /// program read is not known. `was_untrusted`: the session had text of strangers.
    pub(super) fn add_past(
        &mut self,
        origin: CallOrigin,
        tool: Option<&Tool>,
        arguments: Option<&Value>,
        (text, was_untrusted): (&str, bool),
    ) {
        let unknown = untrusted();
        let labels = tool.map_or(&unknown, Tool::labels);
        let is_steered = |tool: &Tool| {
            let judged = arguments.map(|arguments| self.values.judge(tool.name(), labels, arguments, &NothingKnown));
            tool.is_local() || judged.is_none_or(|judged| judged.is_steered())
        };
        let has_untrusted = was_untrusted || self.values.has_untrusted();
        let steered = tool.is_some_and(|tool| tool.makes_calls() || has_untrusted && is_steered(tool));
        self.values.add_result(&CallOrigin { steered, ..origin }, labels, &text.into());
    }

    /// Adds the text and the parameters that the caller of a call declares as its user's; whether they are new.
    pub(super) fn add_declared(&mut self, call: &CallContext) -> bool {
        let (text, parameters) = (call.origin.user_text.as_deref(), &call.origin.prompt_params);
        if text.is_none() && parameters.is_empty() {
            return false;
        }
        let parameters = Value::Object(parameters.clone());
        let mut hasher = DefaultHasher::new();
        (text, parameters.to_string()).hash(&mut hasher);
        let declared = hasher.finish();
        if declared == self.declared {
            return false;
        }
        self.declared = declared;
        if let Some(text) = text {
            self.values.add_user_text(text);
        }
        self.add_texts(&parameters);
        true
    }

    fn add_texts(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.values.add_user_text(text),
            Value::Number(number) => self.values.add_user_text(&number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| self.add_texts(item)),
            Value::Object(members) => members.values().for_each(|member| self.add_texts(member)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Whether the questions about a call are new in the session.
    pub(super) fn is_first(&mut self, tool: &str, judgement: &Judgement) -> bool {
        let hash = |part: &str, value: &str| {
            let mut hasher = DefaultHasher::new();
            (tool, part, value).hash(&mut hasher);
            hasher.finish()
        };
        let asked = judgement.questions.iter().map(|question| hash(&question.pointer, &question.value));
        let forbidden = judgement.forbidden.iter().map(|forbidden| hash(&forbidden.pointer, "forbidden"));
        let hashes: Vec<_> = asked.chain(forbidden).collect();
        let is_first = hashes.iter().any(|hash| !self.counted.contains(hash));
        for hash in hashes {
            if self.counted.len() < MAX_COUNTED {
                self.counted.insert(hash);
            }
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use sekisho_core::call::{CallOrigin as Origin, Caller, Via};

    fn call(origin: Origin) -> CallContext {
        let caller = Arc::new(Caller::new("ann", "acme", Vec::new()));
        CallContext { origin, ..CallContext::new("t", caller, Via::Rest) }
    }

    /// A call that comes while another one looks it up looks it up, too.
    #[test]
    fn a_session_is_looked_up_until_the_answer_is_there() {
        for id in ["s", "conversation\u{1f}c"] {
            let mut session = FlowSession::new(id, false);
            assert!(session.is_to_check(true) && session.is_to_check(true), "{id}");
            assert_eq!(session.is_to_check(false), id == "s", "the results of a read depend on values, too");
            session.set_checked(false);
            assert!(!session.is_to_check(true), "{id}");
            let mut marked = FlowSession::new(id, false);
            marked.set_checked(true);
            assert!(marked.values.has_untrusted() && !marked.is_to_check(true), "{id}");
        }
        assert!(!FlowSession::new(&format!("{RUN}1"), false).is_to_check(true));
    }

    #[test]
    fn declared_text_and_parameters_are_added_once() {
        let mut session = FlowSession::default();
        let parameters = json!({"account": "12345678", "more": ["a", {"b": "long enough"}]});
        let origin = Origin {
            user_text: Some("Mail bob@acme.example.".into()),
            prompt_params: parameters.as_object().cloned().unwrap(),
            ..Origin::default()
        };
        session.add_declared(&call(origin.clone()));
        let size = session.values.size();
        session.add_declared(&call(origin.clone()));
        assert_eq!(session.values.size(), size);
        session.add_declared(&call(Origin { user_text: Some("Mail ann@acme.example.".into()), ..origin }));
        assert!(session.values.size() > size);
    }
}
