//! The questions since the gateway was started: those that persons were asked, and with `policy.flow: observe` those that
//! they would have been asked.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use sekisho_config::FlowMode;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::CallContext;
use sekisho_flow::{ArgumentState, Judgement};

/// Maximum questions that are told apart: by tenant, tool, argument and origin.
const MAX_QUESTIONS: usize = 10_000;

/// Maximum bytes of a name.
const MAX_NAME: usize = 128;

#[derive(Debug)]
pub(super) struct Observed {
    since: Timestamp,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By tenant: the judged calls of tools with effects, and those that were in question.
    calls: BoundedMap<Arc<str>, (u64, u64)>,
    questions: BoundedMap<Question, Count>,
}

/// One kind of question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    tenant: Arc<str>,
    tool: String,
    argument: String,
    /// The state of the argument, or `secret`.
    state: &'static str,
    /// The tool whose result has the value; empty where that is not known.
    from: String,
}

#[derive(Debug, Clone)]
struct Count {
    questions: u64,
    last_call: String,
}

/// The questions since a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowReport {
    pub mode: FlowMode,
    pub since: Timestamp,
    /// Calls of tools with effects that were judged.
    pub calls: u64,
    /// Of these the calls in question. Equal ones of one session are one.
    pub asked: u64,
    /// The most frequent first.
    pub questions: Vec<ReportedQuestion>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedQuestion {
    pub tenant: String,
    pub tool: String,
    /// JSON Pointer of the argument; empty for the call as a whole.
    pub argument: String,
    /// `untrusted`, `unknown` or another state of the argument, or `secret`.
    pub state: String,
    /// The tool whose result has the value.
    pub from: Option<String>,
    pub count: u64,
    /// The id of the last call with it.
    pub last_call: String,
}

impl Default for Observed {
    fn default() -> Self {
        let (calls, questions) = (BoundedMap::new(MAX_QUESTIONS), BoundedMap::new(MAX_QUESTIONS));
        Self { since: Timestamp::now(), state: Mutex::new(State { calls, questions }) }
    }
}

impl Observed {
    /// Counts a judged call; `is_new`: its questions are new in its session.
    pub(super) fn count(&self, call: &CallContext, tool: &str, judgement: &Judgement, is_new: bool) {
        let mut state = self.state.lock();
        let tenant = &call.caller.tenant;
        if let Some((calls, asked)) = state.calls.get_or_try_insert_with(Arc::clone(tenant), Default::default) {
            *calls += 1;
            *asked += u64::from(is_new);
        }
        if !is_new {
            return;
        }
        let question = |argument: &str, state: &'static str, from: &str| Question {
            tenant: Arc::clone(tenant),
            tool: cut(tool),
            argument: cut(argument),
            state,
            from: cut(from),
        };
        let asked = judgement.questions.iter().map(|asked| {
            let from = asked.origin.as_ref().map_or("", |origin| origin.tool.as_str());
            question(&asked.pointer, name_of(asked.state), from)
        });
        let forbidden = judgement.forbidden.iter().map(|secret| {
            let origin = &secret.origin;
            question(&secret.pointer, "secret", &origin.tool)
        });
        for question in asked.chain(forbidden) {
            let none = || Count { questions: 0, last_call: String::new() };
            if let Some(count) = state.questions.get_or_try_insert_with(question, none) {
                count.questions += 1;
                count.last_call = call.id.to_string();
            }
        }
    }

    pub(super) fn report(&self, mode: FlowMode, tenant: Option<&str>) -> FlowReport {
        let state = self.state.lock();
        let is_of = |of: &str| tenant.is_none_or(|tenant| tenant == of);
        let counts = state.calls.iter().filter(|(of, _)| is_of(of)).map(|(_, counts)| *counts);
        let (calls, asked) = counts.fold((0, 0), |(calls, asked), (more, new)| (calls + more, asked + new));
        let of_tenant = state.questions.iter().filter(|(question, _)| is_of(&question.tenant));
        let mut questions: Vec<_> = of_tenant.map(ReportedQuestion::from).collect();
        questions.sort_by(|one, other| {
            other.count.cmp(&one.count).then_with(|| (&one.tool, &one.argument).cmp(&(&other.tool, &other.argument)))
        });
        FlowReport { mode, since: self.since, calls, asked, questions }
    }
}

impl From<(&Question, &Count)> for ReportedQuestion {
    fn from((question, count): (&Question, &Count)) -> Self {
        let Question { tenant, tool, argument, state, from } = question.clone();
        Self {
            tenant: tenant.to_string(),
            tool,
            argument,
            state: state.to_owned(),
            from: (!from.is_empty()).then_some(from),
            count: count.questions,
            last_call: count.last_call.clone(),
        }
    }
}

/// The name of a state.
pub(super) fn name_of(state: ArgumentState) -> &'static str {
    state.into()
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_NAME)].to_owned()
}
