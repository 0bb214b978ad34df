//! Calls that a person must approve: a client that opens pages for its user (URL elicitation) gets the approver's page,
//! and its call waits. Other clients get the refusal. The same call, sent again after the approval, runs.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::mcp::client::{Client, is_answered_by};
use sekisho_calls::approval::MAX_WAIT;
use sekisho_core::error::NeededApproval;
use sekisho_core::peer::{ClientPeer, Question, QuestionMethod, Questions};

/// The key of the question.
const KEY: &str = "approval";

/// Shows where the approver goes; how long the call waits then.
pub(super) async fn ask(client: Arc<Client>, needed: NeededApproval) -> Duration {
    let question = Question {
        method: QuestionMethod::Elicitation,
        params: json!({
            "mode": "url",
            "message": "A person must approve this call. The call goes on as soon as an approver has decided on this page.",
            "url": needed.url,
            "elicitationId": needed.id,
        }),
    };
    if !is_answered_by(client.capabilities(), &question) {
        return Duration::ZERO;
    }
    match client.ask(Questions::from([(KEY.to_owned(), question)])).await {
        Ok(answers) if answers.get(KEY).is_some_and(|answer| answer["action"] == "accept") => MAX_WAIT,
        // Its user does not want to wait, or did not answer.
        _ => Duration::ZERO,
    }
}
