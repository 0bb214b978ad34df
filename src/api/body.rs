//! Bodies of requests: read within limits of size, time and memory, and parsed as strict JSON.
//!
//! All bodies together have a bounded memory, divided fairly between callers: first for the bytes that are being read,
//! then for the values, whose number is known before any is built. A body waits for both. A body that waits for the
//! second holds the first, and no call that holds the second waits for the first, so that they never block each other.

mod upload;

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

pub(super) use self::upload::FileBody;
use self::upload::UPLOAD_BYTES;
use super::request::RequestMeta;
use super::request_guard::Connection;
use crate::reply::ErrorReply;
use sekisho_config::ServerConfig;
use sekisho_core::administration::{Administrator, AdministratorProof, SharedAdministrator};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, Detail, ErrorCode};
use sekisho_core::headers::content_type;
use sekisho_core::json::{CheckedJson, InvalidJson, InvalidJsonKind, MAX_VALUES};
use sekisho_core::share::{Lease, Share};
use sekisho_gateway::Gateway;
use sekisho_openapi::load::document::MAX_DOCUMENT_BYTES;

/// Minimum body limit for administrators: the largest OpenAPI document that is read, with its quotes escaped.
const MAX_OF_ADMINISTRATORS: usize = MAX_DOCUMENT_BYTES + (MAX_DOCUMENT_BYTES >> 1);

/// Bytes of all bodies that are being read.
const READING_BYTES: usize = 64 << 20;

/// Bytes of the values of all bodies whose calls run. A body that needs more takes all of it.
const VALUE_BYTES: usize = 128 << 20;

/// Bodies up to this size, and values up to this memory, are not counted: the number of the connections bounds their
/// number.
const UNCOUNTED_BYTES: usize = 64 << 10;

/// Maximum bodies that wait, for each of the two.
const MAX_WAITING: usize = 1_000;

/// The memory of all bodies, and the disk space of bodies that are files.
#[derive(Debug)]
pub(super) struct BodyMemory {
    reading: Arc<Share>,
    values: Arc<Share>,
    /// Bytes on disk.
    uploads: Arc<Share>,
}

/// The memory of a body's values, until this is dropped; `None` for few values.
pub(super) type HeldMemory = Option<Arc<Lease>>;

/// A request of an administrator, with the proof for its additions; the body is read as JSON only after the role is
/// checked. Other resources that it names must belong to a tenant that the caller administers.
#[derive(Debug)]
pub struct FromAdministrator<T, P = Administrator> {
    pub by: P,
    pub meta: RequestMeta,
    pub body: T,
    _memory: HeldMemory,
}

/// The same about resources that all tenants share.
pub(super) type FromSharedAdministrator<T> = FromAdministrator<T, SharedAdministrator>;

/// A request's body as JSON: declared as JSON, within the limits, without duplicate keys.
/// Handlers take their [`RequestMeta`] first.
#[derive(Debug)]
pub struct JsonBody<T>(pub T, pub HeldMemory);

/// As [`JsonBody`], with the SHA-256 of its bytes in hex.
#[derive(Debug)]
pub struct DigestedBody<T>(pub T, pub HeldMemory, pub String);

/// The limits of one body.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyLimits {
    bytes: usize,
    values: usize,
    /// When it must have been read.
    deadline: Instant,
}

impl BodyLimits {
    /// The size that a body declares, or else its maximum.
    /// Errors: `too_large`.
    fn expected(&self, body: &Body) -> Result<u64, CallError> {
        let size = body.size_hint();
        if size.lower() > self.bytes as u64 {
            return Err(self.too_large());
        }
        Ok(size.exact().unwrap_or(self.bytes as u64))
    }

    async fn in_time<T>(&self, reading: impl Future<Output = Result<T, BoxError>>) -> Result<T, CallError> {
        let mut reading = pin!(reading);
        let read = match within_two_polls(reading.as_mut()).await {
            Some(read) => Ok(read),
            None => timeout_at(self.deadline, reading).await,
        };
        match read {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(self.too_large()),
            Ok(Err(error)) => Err(CallError::invalid("the body is incomplete: the connection ended").caused_by(error)),
            Err(_) => Err(CallError::invalid("the body did not arrive in time (`server.read_timeout_seconds`)")),
        }
    }

    fn too_large(&self) -> CallError {
        CallError::new(ErrorCode::TooLarge, format!("the body is larger than {} bytes", self.bytes))
    }
}

impl BodyMemory {
    pub(super) fn new(config: &ServerConfig) -> Self {
        let largest = config.max_body_bytes.max(MAX_OF_ADMINISTRATORS);
        Self {
            reading: Share::new(READING_BYTES.max(largest) as u64),
            values: Share::new(VALUE_BYTES as u64),
            uploads: Share::new(UPLOAD_BYTES),
        }
    }

    /// Reads a whole body.
    /// Errors: `too_large`, `invalid_request`; `overloaded` if there is no memory for it in time.
    pub(super) async fn read(&self, body: Body, owner: &Owner, limits: BodyLimits) -> Result<Bytes, CallError> {
        let expected = limits.expected(&body)?;
        let _reading = hold(&self.reading, owner, expected, limits.deadline).await?;
        limits.in_time(async { Ok(Limited::new(body, limits.bytes).collect().await?.to_bytes()) }).await
    }

    /// Reads a whole body that is sent on as it is, and holds its memory.
    /// Errors: the errors of [`read`](Self::read).
    pub(super) async fn read_held(
        &self,
        body: Body,
        owner: &Owner,
        limits: BodyLimits,
    ) -> Result<(Bytes, HeldMemory), CallError> {
        let bytes = self.read(body, owner, limits).await?;
        let lease = hold(&self.values, owner, bytes.len() as u64, limits.deadline).await?;
        Ok((bytes, lease.map(Arc::new)))
    }

    /// Holds the memory of the values of a body.
    /// Errors: `overloaded` if there is no memory for them in time.
    pub(super) async fn hold(
        &self,
        checked: CheckedJson<'_>,
        owner: &Owner,
        limits: BodyLimits,
    ) -> Result<HeldMemory, CallError> {
        let lease = hold(&self.values, owner, checked.memory() as u64, limits.deadline).await?;
        Ok(lease.map(Arc::new))
    }

    async fn json<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: Body,
        owner: &Owner,
        limits: BodyLimits,
    ) -> Result<(T, HeldMemory, Bytes), CallError> {
        if !declares_json(headers) {
            let message = "the body must be JSON; send `content-type: application/json`";
            return Err(CallError::new(ErrorCode::UnsupportedMediaType, message));
        }
        let bytes = self.read(body, owner, limits).await?;
        let checked = limits.check(&bytes).map_err(unacceptable)?;
        let memory = self.hold(checked, owner, limits).await?;
        let value = checked.read().map_err(wrong_form)?;
        Ok((value, memory, bytes))
    }
}

impl BodyLimits {
    /// From now on.
    pub(super) fn of(config: &ServerConfig) -> Self {
        let within = Duration::from_secs(config.read_timeout_seconds);
        Self { bytes: config.max_body_bytes, values: config.max_json_values, deadline: Instant::now() + within }
    }

    /// Errors: the text is not JSON, or has too many values or an integer beyond 64 bits.
    pub(super) fn check(self, text: &[u8]) -> Result<CheckedJson<'_>, InvalidJson> {
        CheckedJson::new(text, self.values)?.without_large_integers()
    }
}

impl<T: DeserializeOwned, P: AdministratorProof> FromRequest<Arc<Gateway>> for FromAdministrator<T, P> {
    type Rejection = ErrorReply;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, ErrorReply> {
        let (mut parts, body) = request.into_parts();
        let meta = RequestMeta::from_request_parts(&mut parts, gateway).await?;
        let by = P::of(&meta.caller)?;
        let limits = BodyLimits::of(&gateway.configuration().current().server);
        let (bytes, values) = (limits.bytes.max(MAX_OF_ADMINISTRATORS), limits.values.max(MAX_VALUES));
        let limits = BodyLimits { bytes, values, ..limits };
        let connection = Connection::of(&parts)?;
        let (body, memory, _) = connection.memory().json(&parts.headers, body, &meta.caller.owner, limits).await?;
        Ok(Self { by, meta, body, _memory: memory })
    }
}

impl<T: DeserializeOwned> FromRequest<Arc<Gateway>> for JsonBody<T> {
    type Rejection = ErrorReply;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, ErrorReply> {
        let (value, memory, _) = read_json(request, gateway).await?;
        Ok(Self(value, memory))
    }
}

impl<T: DeserializeOwned> FromRequest<Arc<Gateway>> for DigestedBody<T> {
    type Rejection = ErrorReply;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, ErrorReply> {
        let (value, memory, bytes) = read_json(request, gateway).await?;
        Ok(Self(value, memory, hex::encode(Sha256::digest(&bytes))))
    }
}

async fn read_json<T: DeserializeOwned>(
    request: Request,
    gateway: &Gateway,
) -> Result<(T, HeldMemory, Bytes), CallError> {
    let (parts, body) = request.into_parts();
    let connection = Connection::of(&parts)?;
    let caller = connection.caller()?;
    let limits = BodyLimits::of(&gateway.configuration().current().server);
    if body.size_hint().lower() > UNCOUNTED_BYTES as u64 {
        gateway.pipeline.limits.check(caller)?;
    }
    connection.memory().json(&parts.headers, body, &caller.owner, limits).await
}

/// The output of a future that has it when it is polled twice in a row. hyper hands a body over after it was asked for it, so that
/// nearly every body is read so, without a timer for its deadline.
async fn within_two_polls<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut is_first = true;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if is_first => {
            is_first = false;
            context.waker().wake_by_ref();
            Poll::Pending
        }
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn hold(share: &Arc<Share>, owner: &Owner, bytes: u64, deadline: Instant) -> Result<Option<Lease>, CallError> {
    if bytes <= UNCOUNTED_BYTES as u64 {
        // An owner that sends small bodies keeps a reserve for a large one.
        share.see(owner);
        return Ok(None);
    }
    share.acquire(owner, bytes.min(share.capacity()), MAX_WAITING, deadline).await.map(Some).map_err(|_| {
        let message = "there is no memory for a body of this size now; call again in 1 s";
        CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
    })
}

/// Why a body is not acceptable JSON.
pub(super) fn unacceptable(problem: InvalidJson) -> CallError {
    let error = format!("the body is not acceptable JSON: {problem}");
    let path = match problem.kind {
        InvalidJsonKind::Malformed => return CallError::invalid(error),
        InvalidJsonKind::TooManyValues => {
            let message = format!("{error} (`server.max_json_values`)");
            return CallError::new(ErrorCode::TooLarge, message);
        }
        InvalidJsonKind::LargeInteger { path } => path,
    };
    // Locations of other errors in a call begin at its arguments too.
    let code = match path.contains("/arguments/") {
        true => ErrorCode::InvalidArguments,
        false => ErrorCode::InvalidRequest,
    };
    let path = match path.strip_prefix("/arguments") {
        Some(below) if below.starts_with('/') => below.to_owned(),
        _ => path,
    };
    CallError::new(code, error).with_detail(Detail { path, rule: "integer".into(), message: problem.message })
}

/// RFC 6839 suffixes included. A form or plain text, which a web page could send without a preflight, is not JSON.
pub(super) fn declares_json(headers: &HeaderMap) -> bool {
    let essence = content_type(headers);
    essence.eq_ignore_ascii_case("application/json")
        || essence.get(essence.len().saturating_sub(5)..).is_some_and(|end| end.eq_ignore_ascii_case("+json"))
}

/// It is JSON, of another form than expected.
pub(super) fn wrong_form(problem: impl fmt::Display) -> CallError {
    // The message quotes the body, however long it is.
    let shown: String = problem.to_string().chars().take(300).collect();
    CallError::invalid(format!("the body has the wrong form: {shown}"))
}

#[cfg(test)]
mod tests;
