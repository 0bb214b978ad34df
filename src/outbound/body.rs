//! Reads the body of a response, up to its limit.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::Instant;

use super::client::{Body, Response};
use super::failure::Failure;
use super::{OutboundRequest, OutboundResponse, SentCredentials, TooLong};
use sekisho_core::call::Deadline;
use sekisho_core::headers;

/// Time before the deadline in which the part of a stream that came is handed over.
const STREAM_MARGIN: Duration = Duration::from_secs(1);

/// Errors: the connection breaks off, or the body is longer than allowed.
pub(super) async fn read(response: Response, request: &OutboundRequest<'_>) -> Result<OutboundResponse, Failure> {
    let limit = request.max_response_bytes;
    let Response { status, headers, remote_addr, body: mut answer } = response;
    let stream_end = (request.partial_streams && is_stream(&headers)).then(|| stream_end(request.deadline));
    let refuse = request.too_long == TooLong::Refuse && stream_end.is_none();
    // The announced length is used only to refuse early.
    if refuse && answer.announced().is_some_and(|length| length > limit as u64) {
        return Err(Failure::TooLarge { limit });
    }
    let mut body = Vec::new();
    let mut cut = false;
    while !cut {
        let chunk = match stream_end {
            None => answer.chunk().await?,
            Some(end) => match next_of_stream(&mut answer, end, !body.is_empty()).await? {
                Some(chunk) => chunk,
                None => {
                    cut = true;
                    None
                }
            },
        };
        let Some(chunk) = chunk else { break };
        let remaining = limit - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
        if chunk.len() > remaining {
            if refuse {
                return Err(Failure::TooLarge { limit });
            }
            cut = true;
        }
    }
    let (url, sent) = (request.url.clone(), SentCredentials::default());
    Ok(OutboundResponse { status, remote_addr, url, headers, body: body.into(), cut, sent })
}

/// The next bytes of a stream, or its end; `None` when the time is up, or when it breaks off after some have come.
async fn next_of_stream(answer: &mut Body, end: Instant, begun: bool) -> Result<Option<Option<Bytes>>, Failure> {
    match tokio::time::timeout_at(end, answer.chunk()).await {
        Ok(Ok(chunk)) => Ok(Some(chunk)),
        Ok(Err(failure)) if !begun => Err(failure),
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

fn stream_end(deadline: Deadline) -> Instant {
    deadline.0 - STREAM_MARGIN.min(deadline.remaining() / 10)
}

/// Media types of events or values that may come for as long as the connection is open.
fn is_stream(headers: &HeaderMap) -> bool {
    let media_type = headers::content_type(headers);
    media_type.eq_ignore_ascii_case("text/event-stream") || headers::is_json_lines(media_type)
}
