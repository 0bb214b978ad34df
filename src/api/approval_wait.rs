//! `Prefer: wait=SECONDS`: a call that needs approval is answered after the decision, if that comes in time.

use std::future::ready;

use axum::response::Response;
use futures_util::FutureExt;
use tokio::time::Instant;

use super::request::{Incoming, RequestMeta};
use sekisho_gateway::Gateway;

/// Makes the call of a request, and again when it is approved, if the request prefers to wait.
pub(super) async fn answer(gateway: &Gateway, meta: &RequestMeta, incoming: Incoming) -> Response {
    let Incoming { call, arguments } = incoming;
    let answered = match meta.preferences.wait {
        None => gateway.pipeline.call(call, arguments).await,
        Some(wait) => {
            let deadline = Instant::now() + wait;
            let max_wait = move |_| ready(deadline.saturating_duration_since(Instant::now())).boxed();
            // Boxed, because few requests wait.
            Box::pin(gateway.approvals().call_when_approved(call, arguments, max_wait)).await.answered
        }
    };
    meta.preferences.respond(&answered)
}
