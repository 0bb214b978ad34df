//! `Prefer: wait=SECONDS` (RFC 7240): a call that needs approval is answered once that is decided, if that is in time.

use std::future::ready;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tokio::time::Instant;

use super::request::{Incoming, RequestMeta};
use crate::approval::MAX_WAIT;
use crate::gateway::Gateway;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Makes the call of a request, and again when it is approved, if the request prefers to wait.
pub(super) async fn answer(gateway: &Gateway, origin: &RequestMeta, incoming: Incoming) -> Response {
    let Incoming { call, arguments } = incoming;
    let Some(wait) = origin.wait else { return gateway.pipeline.call(call, arguments).await.into_response() };
    let deadline = Instant::now() + wait;
    let max_wait = move |_| ready(deadline.saturating_duration_since(Instant::now())).boxed();
    // Boxed, because few requests wait.
    let mut response = Box::pin(gateway.call_when_approved(call, arguments, max_wait)).await.into_response();
    if let Ok(applied) = HeaderValue::try_from(format!("wait={}", wait.as_secs())) {
        response.headers_mut().insert(PREFERENCE_APPLIED, applied);
    }
    response
}

/// How long the request prefers to wait, at most [`MAX_WAIT`]. Other preferences, and what cannot be read, are ignored.
pub(super) fn preferred(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(&PREFER).into_iter().filter_map(|value| value.to_str().ok());
    let seconds = values.flat_map(|value| value.split(',')).find_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("wait").then(|| value.parse::<u64>().ok())?
    })?;
    Some(Duration::from_secs(seconds).min(MAX_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preference_is_read_among_others() {
        for (header, seconds) in [
            ("wait=10", Some(10)),
            ("respond-async, wait=10", Some(10)),
            ("Wait = \"7\"; foo=bar", Some(7)),
            ("wait=0", Some(0)),
            ("wait=86400", Some(MAX_WAIT.as_secs())),
            ("wait=-1", None),
            ("wait", None),
            ("wait=soon", None),
            ("handling=lenient", None),
        ] {
            let headers = HeaderMap::from_iter([(PREFER, HeaderValue::from_static(header))]);
            assert_eq!(preferred(&headers).map(|wait| wait.as_secs()), seconds, "{header}");
        }
        assert_eq!(preferred(&HeaderMap::new()), None);
    }
}
