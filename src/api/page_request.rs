//! What the console needs to know of a request, beside its own cookie.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::header::ORIGIN;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};

use super::body::BodyLimits;
use super::request::{FETCH_SITE, RequestMeta};
use super::request_guard::Connection;
use crate::core::call::{CallContext, Caller, ClientRequest, Via};
use crate::core::caller::Owner;
use crate::core::error::{CallError, ErrorCode};
use crate::core::headers::content_type;
use crate::gateway::Gateway;

/// A request for a page.
#[derive(Debug, Clone)]
pub(crate) struct PageRequest {
    /// Sent on this machine to loopback, and not through a proxy.
    pub is_local: bool,
    /// Whether the browser's connection is encrypted, up to the gateway or to a trusted proxy.
    pub is_encrypted: bool,
    pub client_owner: Owner,
    pub request: Option<Arc<ClientRequest>>,
    /// The gateway's URL for this client.
    pub server_url: String,
    host: String,
    headers: HeaderMap,
}

impl PageRequest {
    /// # Errors
    /// Internal: no guard is in front of the routes.
    pub(crate) fn of(parts: &Parts) -> Result<Self, CallError> {
        let connection = Connection::of(parts)?;
        let server_url = connection.server_url(parts);
        Ok(Self {
            is_local: connection.client.is_local,
            is_encrypted: server_url.starts_with("https://"),
            client_owner: connection.client_owner.clone(),
            request: parts.extensions.get().cloned(),
            server_url,
            host: connection.host(parts).unwrap_or_default().to_owned(),
            headers: parts.headers.clone(),
        })
    }

    /// A change is accepted from a page of this server alone. Browsers say where a form comes from; what says nothing is
    /// refused.
    ///
    /// # Errors
    /// `denied`.
    pub(crate) fn require_same_origin(&self) -> Result<(), CallError> {
        let text = |name| self.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let is_ours = |origin: &str| origin.split_once("://").is_some_and(|(_, host)| host == self.host);
        let site = text(FETCH_SITE).map(|site| site == "same-origin");
        let origin = text(ORIGIN).map(is_ours);
        // Both are checked where both are sent.
        match (site, origin) {
            (Some(false), _) | (_, Some(false)) | (None, None) => Err(CallError::new(
                ErrorCode::Denied,
                "a form of the console is accepted from a page of the console alone; open the page again",
            )),
            _ => Ok(()),
        }
    }

    /// A call of a tool, as `POST /tools/{name}/execute` makes it.
    pub(crate) fn call(&self, tool: &str, caller: &Arc<Caller>, dry_run: bool) -> CallContext {
        CallContext { dry_run, request: self.request.clone(), ..CallContext::new(tool, Arc::clone(caller), Via::Rest) }
    }
}

/// The fields of a form, read within the limits of bodies.
///
/// # Errors
/// `unsupported_media_type`, `too_large`, `invalid_request`, `overloaded`.
pub(crate) async fn read_form(
    parts: &Parts,
    body: Body,
    owner: &Owner,
    gateway: &Gateway,
) -> Result<Vec<(String, String)>, CallError> {
    const FORM: &str = "application/x-www-form-urlencoded";
    if !content_type(&parts.headers).eq_ignore_ascii_case(FORM) {
        return Err(CallError::new(ErrorCode::UnsupportedMediaType, format!("the body must be a form: {FORM}")));
    }
    let limits = BodyLimits::of(&gateway.config().server);
    let bytes = Connection::of(parts)?.memory.read(body, owner, limits).await?;
    Ok(url::form_urlencoded::parse(&bytes).into_owned().collect())
}

/// The caller of a request of this machine's user, over the Unix socket, as an administrator.
///
/// # Errors
/// `denied`: over the network, or without the role.
pub(crate) async fn administrator_on_socket(
    mut parts: Parts,
    gateway: &Arc<Gateway>,
) -> Result<Arc<Caller>, CallError> {
    let meta = RequestMeta::from_request_parts(&mut parts, gateway).await?;
    if !meta.over_socket {
        return Err(CallError::new(ErrorCode::Denied, "this is for the Unix socket of the state directory alone"));
    }
    meta.require_role("admin")?;
    Ok(meta.caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&'static str, &'static str)]) -> PageRequest {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        PageRequest {
            is_local: true,
            is_encrypted: false,
            client_owner: Owner::gateway().clone(),
            request: None,
            server_url: "http://localhost:8080".into(),
            host: "localhost:8080".into(),
            headers: headers.collect(),
        }
    }

    #[test]
    fn a_form_is_accepted_from_a_page_of_this_server_alone() {
        for (headers, is_accepted) in [
            (&[("origin", "http://localhost:8080")][..], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "same-origin"), ("origin", "http://localhost:8080")], true),
            (&[], false),
            (&[("origin", "null")], false),
            (&[("origin", "http://localhost:8081")], false),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "cross-site"), ("origin", "http://localhost:8080")], false),
            (&[("sec-fetch-site", "same-origin"), ("origin", "http://evil.example")], false),
        ] {
            assert_eq!(request(headers).require_same_origin().is_ok(), is_accepted, "{headers:?}");
        }
    }
}
