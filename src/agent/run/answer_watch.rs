//! Watches the answers of tools for reasons to end a run: repeated answers, and a used-up token budget.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::Ending;
use crate::message::RequestedCall;
use crate::toolbox::ToolAnswer;
use sekisho_core::error::ErrorCode;

/// The run ends when the same call got the same answer this often in a row: another attempt will not help.
const SAME_ANSWERS: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct AnswerWatch {
    /// Tool and arguments → the last answer's digest, and how often in a row it came.
    repeats: HashMap<(String, String), ([u8; 32], u32)>,
    repeated: Option<String>,
    /// The message of the current turn.
    out_of_tokens: Option<String>,
    succeeded: bool,
}

impl AnswerWatch {
    pub(super) fn observe(&mut self, call: &RequestedCall, answer: &ToolAnswer) {
        self.succeeded |= answer.success;
        let code = answer.error_info.as_ref().and_then(|info| info["code"].as_str());
        if code == Some(ErrorCode::TokenLimitExceeded.as_str()) {
            self.out_of_tokens = Some(answer.text.clone());
            return;
        }
        let digest = Sha256::digest(&answer.text).into();
        let (last, count) = self.repeats.entry((call.tool.clone(), call.arguments.clone())).or_insert((digest, 0));
        *count = if *last == digest { *count + 1 } else { 1 };
        *last = digest;
        if *count >= SAME_ANSWERS {
            let what = if answer.success { "gave the same answer" } else { "failed" };
            self.repeated = Some(format!(
                "`{}` {what} {SAME_ANSWERS} times with the same arguments, and the run was stopped.",
                call.tool
            ));
        }
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

    fn answer(text: &str, code: Option<&str>) -> ToolAnswer {
        let error_info = code.map(|code| json!({"code": code}));
        ToolAnswer { success: code.is_none(), text: text.into(), error_info, images: Vec::new() }
    }

    /// The status after a turn with these answers, to different calls.
    fn status(watch: &mut AnswerWatch, answers: &[ToolAnswer]) -> Option<&'static str> {
        for (index, answer) in answers.iter().enumerate() {
            watch.observe(&RequestedCall::new("id".into(), "tool".into(), index.to_string()), answer);
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
    fn the_same_answer_three_times_in_a_row_ends_the_run() {
        let mut watch = AnswerWatch::default();
        let turns = ["a", "a", "b", "b", "b"].map(|text| status(&mut watch, &[answer(text, None)]));
        assert_eq!(turns, [None, None, None, None, Some("repeated_call")]);
    }
}
