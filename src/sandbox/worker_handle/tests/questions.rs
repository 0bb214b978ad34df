//! The requests of programs to tools, and requests about sessions.

use futures_util::future::BoxFuture;

use super::*;
use sekisho_guest_protocol::ToolReply;

/// Answers the question with its number, once all questions of `expected` have been asked.
struct Tools {
    expected: tokio::sync::Barrier,
    answered: u32,
}

impl ToolHost for Tools {
    fn answer(&self, request: ToolRequest) -> BoxFuture<'_, Option<ToolReply>> {
        Box::pin(async move {
            self.expected.wait().await;
            match request.number == self.answered {
                true => Some(ToolReply { number: request.number, is_ok: true, json: b"\"answered\"".to_vec() }),
                false => std::future::pending().await,
            }
        })
    }
}

#[tokio::test]
async fn questions_of_a_program_are_answered_at_the_same_time() {
    let (worker, admission) = (worker().await, admission());
    let tools = Tools { expected: tokio::sync::Barrier::new(3), answered: 1 };
    let sent = SentFlag::default();
    let ended = worker.run(job("ask 3"), room(&admission).await, &sent, Some(&tools)).await.unwrap();
    assert_eq!(ended.result.unwrap(), "\"answered\"");
    assert_eq!(admission.in_use(), (0, 0));
}

#[tokio::test]
async fn what_is_asked_about_sessions_is_answered_until_the_worker_exits() {
    let worker = worker().await;
    let read = || SessionRequest::Read { session: 7, profile: "base".into(), from: ImageCursor::State };
    let finish = |session| SessionRequest::Restored { session, profile: "base".into(), is_copy: false };
    let (none, restored) = tokio::join!(worker.ask(read()), worker.ask(finish(7)));
    assert_eq!((none, restored), (Some(SessionReply::Failed("none".into())), Some(SessionReply::Rests(10))));
    assert!(matches!(worker.ask(read()).await, Some(SessionReply::Part { next: Some(_), .. })));
    worker.stop();
    timeout(Duration::from_secs(10), worker.gone()).await.expect("it is gone");
    assert_eq!(worker.ask(read()).await, None);
}

#[tokio::test]
async fn a_worker_that_asks_more_than_programs_may_is_ended() {
    let (worker, admission) = (worker().await, admission());
    let tools = Tools { expected: tokio::sync::Barrier::new(1_000), answered: 0 };
    let sent = SentFlag::default();
    let ended = worker.run(job("ask 200"), room(&admission).await, &sent, Some(&tools)).await;
    assert_eq!(ended.unwrap_err().code(), ErrorCode::SandboxTrap);
    timeout(Duration::from_secs(10), worker.gone()).await.expect("it is ended");
}
