//! Calls that a person must approve: a client that opens pages for its user (URL elicitation) gets the approver's page,
//! and its call waits. The page has all calls of the session that wait, and its user is asked once for those that come
//! while the question is open. Other clients get the refusal. The same call, sent again after the approval, runs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;

use crate::mcp::client::{Client, is_answered_by};
use sekisho_calls::approval::MAX_WAIT;
use sekisho_core::error::NeededApproval;
use sekisho_core::peer::{ClientPeer, Question, QuestionMethod, Questions, Unanswered};

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
    let ask = || wait_of_user(Arc::clone(&client), question.clone()).boxed();
    match client.session() {
        Some(session) => session.ask_about_approvals(ask).await,
        None => ask().await.unwrap_or_default(),
    }
}

/// How long its user wants the call to wait; `None` if the client is gone.
async fn wait_of_user(client: Arc<Client>, question: Question) -> Option<Duration> {
    match client.ask(Questions::from([(KEY.to_owned(), question)])).await {
        Ok(answers) if answers.get(KEY).is_some_and(|answer| answer["action"] == "accept") => Some(MAX_WAIT),
        Err(Unanswered::Gone) => None,
        // Its user does not want to wait, or did not answer.
        _ => Some(Duration::ZERO),
    }
}
