//! Watches the answers of tools for reasons to end a run: repeated answers, and a used-up token budget.

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::Ending;
use crate::message::RequestedCall;
use crate::toolbox::ToolAnswer;
use sekisho_core::error::ErrorCode;

/// The run ends when the same call failed in the same way this often in a row: another attempt will not help. A call that succeeds
/// may ask for the state of a job: from this many on it waits before it is made, and the run ends after a time.
const SAME_ANSWERS: u32 = 3;

/// The first wait before such a call, doubled for each later one.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest of these waits.
const MAX_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct AnswerWatch {
    /// By tool and arguments.
    repeats: HashMap<(String, String), Repeat>,
    repeated: Option<String>,
    /// The message of the current turn.
    out_of_tokens: Option<String>,
    succeeded: bool,
}

/// The last answer of a call.
#[derive(Debug)]
struct Repeat {
    digest: [u8; 32],
    success: bool,
    /// How often in a row it came.
    count: u32,
    /// When it came first.
    since: Instant,
}

impl AnswerWatch {
    /// How long a call waits before it is made.
    pub(super) fn wait_before(&self, call: &RequestedCall) -> Duration {
        let repeat = self.repeats.get(&(call.tool.clone(), call.arguments.clone()));
        match repeat.filter(|repeat| repeat.success).and_then(|repeat| (repeat.count + 1).checked_sub(SAME_ANSWERS)) {
            Some(doubled) => FIRST_WAIT.saturating_mul(2_u32.saturating_pow(doubled)).min(MAX_WAIT),
            None => Duration::ZERO,
        }
    }

    /// `max`: how long the same call may give the same answer.
    pub(super) fn observe(&mut self, call: &RequestedCall, answer: &ToolAnswer, max: Duration) {
        self.succeeded |= answer.success;
        let code = answer.error_info.as_ref().and_then(|info| info["code"].as_str());
        if code == Some(ErrorCode::TokenLimitExceeded.as_str()) {
            self.out_of_tokens = Some(answer.text.clone());
            return;
        }
        let digest = Sha256::digest(&answer.text).into();
        let now = Instant::now();
        let first = || Repeat { digest, success: answer.success, count: 0, since: now };
        let repeat = self.repeats.entry((call.tool.clone(), call.arguments.clone())).or_insert_with(first);
        if repeat.digest != digest || repeat.success != answer.success {
            *repeat = first();
        }
        repeat.count += 1;
        let took = now.duration_since(repeat.since);
        if repeat.count < SAME_ANSWERS || answer.success && took < max {
            return;
        }
        let what = if answer.success {
            format!("gave the same answer for {} s", took.as_secs())
        } else {
            format!("failed {SAME_ANSWERS} times")
        };
        self.repeated = Some(format!("`{}` {what} with the same arguments, and the run was stopped.", call.tool));
    }

    /// At the end of a turn: why the run cannot go on. If some of its calls were answered, the model may go on with
    /// these answers: the other calls were refused because of the tokens that these held.
    pub(super) fn verdict(&mut self) -> Option<Ending> {
        let succeeded = std::mem::take(&mut self.succeeded);
        let out_of_tokens = self.out_of_tokens.take().filter(|_| !succeeded);
        let repeated = self.repeated.take().map(|message| Ending::Limit { status: "repeated_call", message });
        repeated.or(out_of_tokens.map(|message| Ending::Limit { status: "token_limit_exceeded", message }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MAX: Duration = Duration::from_secs(60);

    fn answer(text: &str, code: Option<&str>) -> ToolAnswer {
        let error_info = code.map(|code| json!({"code": code}));
        ToolAnswer { success: code.is_none(), text: text.into(), error_info, images: Vec::new() }
    }

    fn call(arguments: &str) -> RequestedCall {
        RequestedCall::new("id".into(), "tool".into(), arguments.into())
    }

    /// The status after a turn with these answers, to different calls.
    fn status(watch: &mut AnswerWatch, answers: &[ToolAnswer]) -> Option<&'static str> {
        for (index, answer) in answers.iter().enumerate() {
            watch.observe(&call(&index.to_string()), answer, MAX);
        }
        match watch.verdict() {
            None => None,
            Some(Ending::Limit { status, .. }) => Some(status),
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_used_up_token_budget_ends_the_run_once_no_call_of_a_turn_is_answered() {
        let refused = || answer("this request has 0 tokens left", Some("token_limit_exceeded"));
        let mut watch = AnswerWatch::default();
        assert_eq!(status(&mut watch, &[answer("ok", None), refused()]), None);
        assert_eq!(status(&mut watch, &[refused(), refused()]), Some("token_limit_exceeded"));
        assert_eq!(status(&mut AnswerWatch::default(), &[answer("no", Some("denied"))]), None);
    }

    #[test]
    fn the_same_failure_three_times_in_a_row_ends_the_run() {
        let mut watch = AnswerWatch::default();
        let turns = ["a", "a", "b", "b", "b"].map(|text| status(&mut watch, &[answer(text, Some("denied"))]));
        assert_eq!(turns, [None, None, None, None, Some("repeated_call")]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_answer_ends_the_run_after_a_time_and_is_asked_for_less_and_less_often() {
        let (mut watch, begun) = (AnswerWatch::default(), Instant::now());
        let mut waits = Vec::new();
        loop {
            let wait = watch.wait_before(&call("0"));
            waits.push(wait.as_secs());
            tokio::time::sleep(wait).await;
            if status(&mut watch, &[answer("pending", None)]).is_some() {
                break;
            }
        }
        assert_eq!((waits, begun.elapsed().as_secs()), (vec![0, 0, 1, 2, 4, 8, 16, 30], 61));
        let mut watch = AnswerWatch::default();
        for (text, expected) in [("1 %", 0), ("1 %", 0), ("1 %", 1), ("2 %", 2), ("2 %", 0), ("2 %", 1)] {
            assert_eq!(watch.wait_before(&call("0")).as_secs(), expected, "{text}");
            assert_eq!(status(&mut watch, &[answer(text, None)]), None);
        }
        assert_eq!(watch.wait_before(&call("1")), Duration::ZERO, "another call");
    }
}
