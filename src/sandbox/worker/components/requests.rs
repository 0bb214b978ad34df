//! Requests of a component over HTTP: the gateway sends them. This process has no sockets.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use tokio::sync::Semaphore;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use crate::sandbox::protocol::{
    FromWorker, HttpFailure, HttpRequest, HttpResponse, MAX_HTTP_BODY_BYTES, ReadSoFar, ToolQuestion, ToolReply,
    ToolRequest,
};
use crate::sandbox::worker::host_call::ToolLink;

/// Requests that a component may have open at once: fewer than a program may ask of tools.
const MAX_OPEN: usize = 16;

/// What goes on beside a response.
type Beside = Box<dyn Future<Output = Result<(), Error>> + Send>;

/// The requests of one call.
pub(super) struct Requests {
    link: ToolLink,
    left: u32,
    next: u32,
    open: Arc<Semaphore>,
}

impl fmt::Debug for Requests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Requests").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Requests {
    pub(super) fn new(link: ToolLink, most: u32) -> Self {
        Self { link, left: most, next: 0, open: Arc::new(Semaphore::new(MAX_OPEN)) }
    }
}

impl WasiHttpHooks for Requests {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        _options: Option<RequestOptions>,
        _read: Beside,
    ) -> Box<dyn Future<Output = Result<(http::Response<WasiBody>, Beside), Error>> + Send> {
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        let number = self.next;
        self.next += 1;
        let (link, open) = (self.link.clone(), Arc::clone(&self.open));
        Box::new(async move {
            if left.is_none() {
                return Err(Error::HttpRequestDenied);
            }
            // Closed never.
            let _open = open.acquire().await;
            let request = whole(request).await?;
            let response = ask(&link, number, request).await.map_err(error_of)?;
            let nothing: Beside = Box::new(async { Ok(()) });
            Ok((response_of(response)?, nothing))
        })
    }
}

/// The request, once the component has written all of it.
async fn whole(request: http::Request<WasiBody>) -> Result<HttpRequest, Error> {
    let (parts, mut body) = request.into_parts();
    let mut content = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if content.len() + data.len() > MAX_HTTP_BODY_BYTES {
            return Err(Error::HttpRequestBodySize(Some(MAX_HTTP_BODY_BYTES as u64)));
        }
        content.extend_from_slice(&data);
    }
    let headers = parts.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
    Ok(HttpRequest {
        method: parts.method.as_str().to_owned(),
        url: parts.uri.to_string(),
        headers: headers.collect(),
        body: content.to_vec(),
    })
}

async fn ask(link: &ToolLink, number: u32, request: HttpRequest) -> Result<HttpResponse, HttpFailure> {
    let question = ToolQuestion::Fetch(Box::new(request));
    let request = ToolRequest { number, question, read: ReadSoFar::default() };
    // Without the gateway the worker ends.
    let _ = link.sleeper.gateway.send(FromWorker::Ask(link.sleeper.job, Box::new(request)));
    let ToolReply { is_ok, json, .. } = link.inbox.next(&[number]).await;
    if !is_ok {
        return Err(HttpFailure::TooLarge);
    }
    let answer: Result<Result<HttpResponse, HttpFailure>, _> = postcard::from_bytes(&json);
    answer.unwrap_or_else(|error| Err(HttpFailure::Failed(error.to_string())))
}

fn response_of(response: HttpResponse) -> Result<http::Response<WasiBody>, Error> {
    let HttpResponse { status, headers, body } = response;
    let builder = headers
        .into_iter()
        .fold(http::Response::builder().status(status), |builder, (name, value)| builder.header(name, value));
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    builder.body(body).map_err(|error| Error::InternalError(Some(error.to_string())))
}

fn error_of(failure: HttpFailure) -> Error {
    match failure {
        HttpFailure::Denied => Error::HttpRequestDenied,
        HttpFailure::Timeout => Error::HttpResponseTimeout,
        HttpFailure::TooLarge => Error::HttpResponseBodySize(Some(MAX_HTTP_BODY_BYTES as u64)),
        HttpFailure::Failed(reason) => Error::InternalError(Some(reason)),
    }
}
