//! Responses that are read as they arrive: event streams, which may stay open as long as a session.

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderMap, StatusCode};

use super::client::{Body, Response};
use super::failure::{Failure, host_of};
use super::slots::Slot;
use super::{Outbound, OutboundRequest, Trust, origin_of};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};

/// Open answers to requests of no call. They are apart from the answers to calls: slow calls of a server must not delay
/// the liveness check.
pub(super) const MAX_STREAMS: usize = 1_024;

/// The part of them for one origin.
pub(super) const MAX_STREAMS_PER_ORIGIN: usize = 256;

/// For streams to addresses of the configuration, in places of their own and to one origin or many: a model's provider
/// answers all agents at once, and the number of running agents is bounded where they begin.
pub(super) const MAX_STREAMS_OF_OPERATOR: usize = 2_048;

/// An answer whose body is still to come.
pub struct OutboundStream {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Body,
    limit: usize,
    place: Slot,
}

sekisho_core::debug_fields!(OutboundStream { status });

impl Outbound {
    /// Sends the request and gives the answer as soon as its head is there. No redirect is followed. The deadline is
    /// for the head, from when the request is sent; the body ends when the answer is dropped, or with
    /// `max_response_bytes` where it is read [whole](OutboundStream::whole).
    /// Errors: as [`Outbound::send`], and `overloaded` when too many such requests are under way.
    pub async fn open(&self, mut request: OutboundRequest<'_>) -> Result<OutboundStream, CallError> {
        self.check(&request)?;
        let place = self.place_for(&mut request).await?;
        self.look_up(&mut request).await?;
        let headers = std::mem::take(&mut request.headers);
        let head = self.client(&request).send(&request, headers);
        let deadline = |_| Failure::Deadline { host: host_of(&request.url) };
        let Response { status, headers, body, .. } =
            tokio::time::timeout_at(request.deadline.0, head).await.map_err(deadline)??;
        Ok(OutboundStream { status, headers, body, limit: request.max_response_bytes, place })
    }
}

impl Outbound {
    /// The request of a call counts among all requests of calls, for as long as its answer takes (E69, E70).
    async fn place_for(&self, request: &mut OutboundRequest<'_>) -> Result<Slot, CallError> {
        if request.on_behalf.is_some() {
            return Ok(self.slot(request).await?);
        }
        let origin = origin_of(&request.url);
        let places = match request.trust {
            Trust::Caller => &self.streams,
            Trust::Operator => &self.streams_of_operator,
        };
        places.try_acquire(Owner::gateway(), origin).ok_or_else(|| {
            let problem = "too many answers of other services are awaited; call again when some have come";
            CallError::new(ErrorCode::Overloaded, problem)
        })
    }
}

impl OutboundStream {
    /// The whole body.
    /// Errors: `output_too_large` for a body that exceeds the limit, `upstream_error` when it is interrupted.
    pub async fn whole(mut self) -> Result<Bytes, CallError> {
        let too_large = || CallError::from(Failure::TooLarge { limit: self.limit });
        if self.body.announced().is_some_and(|announced| announced > self.limit as u64) {
            return Err(too_large());
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = self.body.chunk().await? {
            if body.len() + chunk.len() > self.limit {
                return Err(too_large());
            }
            // Most bodies come in one piece.
            if body.is_empty() {
                body = BytesMut::from(chunk);
            } else {
                body.extend_from_slice(&chunk);
            }
        }
        Ok(body.freeze())
    }

    /// The body as it arrives, without a limit: the reader limits the stored bytes.
    pub fn pieces(self) -> impl Stream<Item = Result<Bytes, CallError>> + Send + 'static {
        let Self { mut body, place, .. } = self;
        async_stream::stream! {
            let _place = place;
            loop {
                match body.chunk().await {
                    Ok(Some(chunk)) => yield Ok(chunk),
                    Ok(None) => break,
                    Err(failure) => {
                        yield Err(CallError::from(failure));
                        break;
                    }
                }
            }
        }
    }
}
