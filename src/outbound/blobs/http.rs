//! Requests of object storage over the gateway's own HTTP client: its TLS, proxy and limits. Where they go is the operator's
//! setting, so private addresses are permitted. A redirect is not followed, but an error, since it would carry a
//! signature elsewhere.

use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use url::Url;

use super::MAX_OBJECT_BYTES;
use crate::{Outbound, OutboundRequest, Trust};
use sekisho_core::call::Deadline;
use sekisho_core::error::{CallError, ErrorCode};

/// How long one request may take, to the last byte of its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Connector(pub(super) Outbound);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        Ok(HttpClient::new(Client { outbound: self.0.clone(), allow_http }))
    }
}

#[derive(Debug)]
struct Client {
    outbound: Outbound,
    /// Otherwise a request without encryption is an error.
    allow_http: bool,
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let url: Url = head
            .uri
            .to_string()
            .parse()
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, Failure::from(error)))?;
        if url.scheme() != "https" && !self.allow_http {
            return Err(HttpError::new(HttpErrorKind::Unknown, Failure::NotEncrypted));
        }
        let deadline = Deadline::after(REQUEST_TIMEOUT);
        let request = OutboundRequest {
            method: head.method,
            headers: head.headers,
            body: Some(body.collect().await?.to_bytes()),
            max_response_bytes: MAX_OBJECT_BYTES,
            trust: Trust::Operator,
            ..OutboundRequest::get(url, deadline)
        };
        // Its whole answer, since the deadline and the limit are for the whole.
        let exchange = async {
            let answer = self.outbound.open(request).await?;
            let mut response = HttpResponse::new(HttpResponseBody::from(bytes::Bytes::new()));
            *response.status_mut() = answer.status;
            *response.headers_mut() = answer.headers.clone();
            *response.body_mut() = answer.whole().await?.into();
            Ok(response)
        };
        match tokio::time::timeout_at(deadline.0, exchange).await {
            Ok(answered) => answered.map_err(|error: CallError| HttpError::new(kind_of(&error), error)),
            Err(_) => Err(HttpError::new(HttpErrorKind::Timeout, Failure::Timeout)),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the address of the storage is no URL: {0}")]
    Url(#[from] url::ParseError),
    #[error("the address of the storage is http:, which is used only where `cluster.blobs.endpoint` says so")]
    NotEncrypted,
    #[error("the storage did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout,
}

/// The kinds that are tried again: writing an object twice gives the same object.
fn kind_of(error: &CallError) -> HttpErrorKind {
    match error.code() {
        ErrorCode::Timeout => HttpErrorKind::Timeout,
        ErrorCode::UpstreamError | ErrorCode::Overloaded => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    }
}
