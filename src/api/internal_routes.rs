//! The routes of the API for the console: called within the process, as a caller who has signed in. So a page shows the
//! answer of a route, and a change passes the same checks as over the network.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Request};
use axum::response::Response;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt;

use super::page_request::PageRequest;
use super::request::KnownCaller;
use super::request_guard::Connection;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, Detail, ErrorCode};

/// Every route of the service.
#[derive(Clone)]
pub struct InternalRoutes(Router);

/// The part of a reply about an error.
#[derive(Deserialize)]
struct Refusal {
    error_info: RefusalInfo,
}

#[derive(Deserialize)]
struct RefusalInfo {
    code: ErrorCode,
    message: String,
    #[serde(default)]
    details: Vec<Detail>,
    #[serde(default)]
    alternatives: Vec<String>,
}

impl InternalRoutes {
    pub fn new(router: Router) -> Self {
        Self(router)
    }

    /// Sends a request, and gives the response of the route, also one that is a stream.
    /// Errors: the error of the route.
    pub async fn send(
        &self,
        page: &PageRequest,
        caller: &Arc<Caller>,
        (method, path): (Method, &str),
        body: Option<&Value>,
    ) -> Result<Response, CallError> {
        let content = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let mut request = Request::builder().method(method).uri(path).body(content).map_err(CallError::internal)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut connection: Connection = page.connection.clone();
        connection.caller = Some(Arc::clone(caller));
        let extensions = request.extensions_mut();
        extensions.insert(connection);
        extensions.insert(KnownCaller(Arc::clone(caller)));
        let Ok(response) = self.0.clone().oneshot(request).await;
        if response.status().is_success() {
            return Ok(response);
        }
        let body = read(response).await?;
        let Refusal { error_info } = serde_json::from_slice(&body).map_err(CallError::internal)?;
        let RefusalInfo { code, message, details, alternatives } = error_info;
        Err(CallError::new(code, message).with_details(details).with_alternatives(alternatives))
    }

    /// The answer of a route, in JSON; null for nothing.
    /// Errors: the error of the route.
    pub async fn json<T: DeserializeOwned>(
        &self,
        page: &PageRequest,
        caller: &Arc<Caller>,
        route: (Method, &str),
        body: Option<&Value>,
    ) -> Result<T, CallError> {
        let body = read(self.send(page, caller, route, body).await?).await?;
        let text = if body.is_empty() { &b"null"[..] } else { &body };
        serde_json::from_slice(text).map_err(CallError::internal)
    }
}

async fn read(response: Response) -> Result<axum::body::Bytes, CallError> {
    Ok(response.into_body().collect().await.map_err(CallError::internal)?.to_bytes())
}

impl fmt::Debug for InternalRoutes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("InternalRoutes")
    }
}
