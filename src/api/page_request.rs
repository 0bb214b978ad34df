//! The data of a request that the console needs, beside its own cookie.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_TYPE, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use futures_util::stream;

use super::body::BodyLimits;
use super::request::{FETCH_SITE, RequestMeta};
use super::request_guard::Connection;
use sekisho_core::call::{CallContext, CallOrigin, Caller, ClientRequest, Via};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::headers::content_type;
use sekisho_gateway::Gateway;

/// A request for a page.
#[derive(Debug, Clone)]
pub struct PageRequest {
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
    pub(super) connection: Connection,
}

impl PageRequest {
    /// Errors: internal: no guard is in front of the routes.
    pub fn of(parts: &Parts) -> Result<Self, CallError> {
        let connection = Connection::of(parts)?;
        let server_url = connection.server_url(parts);
        Ok(Self {
            is_local: connection.client.is_local,
            is_encrypted: server_url.starts_with("https://"),
            client_owner: connection.client_owner.clone(),
            request: Some(Arc::clone(&connection.request)),
            server_url,
            host: connection.host(parts).unwrap_or_default().to_owned(),
            headers: parts.headers.clone(),
            connection: connection.clone(),
        })
    }

    /// A change is accepted only from a page of this server.
    /// Errors: `denied`.
    pub fn require_same_origin(&self) -> Result<(), CallError> {
        if is_same_origin(&self.headers, &self.host) {
            return Ok(());
        }
        let message = "a form of the console is accepted from a page of the console alone; open the page again";
        Err(CallError::new(ErrorCode::Denied, message))
    }

    /// A call of a tool, as `POST /tools/{name}/execute` makes it.
    pub fn call(&self, tool: &str, caller: &Arc<Caller>, dry_run: bool) -> CallContext {
        CallContext {
            dry_run,
            origin: CallOrigin { request: self.request.clone(), ..CallOrigin::default() },
            ..CallContext::new(tool, Arc::clone(caller), Via::Rest)
        }
    }
}

/// Browsers say where a form comes from; a request without that is refused.
fn is_same_origin(headers: &HeaderMap, host: &str) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_ours = |origin: &str| origin.split_once("://").is_some_and(|(_, of)| of == host);
    let site = text(FETCH_SITE).map(|site| site == "same-origin");
    let origin = text(ORIGIN).map(is_ours);
    // Both are checked where both are sent.
    !matches!((site, origin), (Some(false), _) | (_, Some(false)) | (None, None))
}

/// A file of a form.
#[derive(Debug, Clone)]
pub struct UploadedFile {
    /// The name of its field.
    pub field: String,
    pub name: String,
    pub media_type: String,
    pub content: Bytes,
}

/// The fields of a form, read within the limits of bodies.
/// Errors: `unsupported_media_type`, `too_large`, `invalid_request`, `overloaded`.
pub async fn read_form(
    parts: &Parts,
    body: Body,
    owner: &Owner,
    gateway: &Gateway,
) -> Result<Vec<(String, String)>, CallError> {
    const FORM: &str = "application/x-www-form-urlencoded";
    if !content_type(&parts.headers).eq_ignore_ascii_case(FORM) {
        return Err(CallError::new(ErrorCode::UnsupportedMediaType, format!("the body must be a form: {FORM}")));
    }
    let bytes = read_body(parts, body, owner, gateway).await?;
    Ok(url::form_urlencoded::parse(&bytes).into_owned().collect())
}

/// The fields of a form that may have files (RFC 7578), and its files that were chosen.
/// Errors: as [`read_form`].
pub async fn read_form_with_files(
    parts: &Parts,
    body: Body,
    owner: &Owner,
    gateway: &Gateway,
) -> Result<(Vec<(String, String)>, Vec<UploadedFile>), CallError> {
    let boundary = parts.headers.get(CONTENT_TYPE).and_then(|kind| multer::parse_boundary(kind.to_str().ok()?).ok());
    let Some(boundary) = boundary else {
        return Ok((read_form(parts, body, owner, gateway).await?, Vec::new()));
    };
    let bytes = read_body(parts, body, owner, gateway).await?;
    parse_multipart(bytes, &boundary).await.map_err(|error| {
        CallError::new(ErrorCode::InvalidRequest, format!("the body is no form with files (RFC 7578): {error}"))
    })
}

async fn parse_multipart(
    bytes: Bytes,
    boundary: &str,
) -> Result<(Vec<(String, String)>, Vec<UploadedFile>), multer::Error> {
    let body = stream::once(std::future::ready(Ok::<_, Infallible>(bytes)));
    let mut multipart = multer::Multipart::new(body, boundary);
    let (mut fields, mut files) = (Vec::new(), Vec::new());
    while let Some(field) = multipart.next_field().await? {
        let name = field.name().unwrap_or_default().to_owned();
        let Some(file_name) = field.file_name().map(str::to_owned) else {
            fields.push((name, field.text().await?));
            continue;
        };
        let media_type = field.content_type().map(ToString::to_string).unwrap_or_default();
        let content = field.bytes().await?;
        // A field without a chosen file is sent with an empty name.
        if !file_name.is_empty() {
            files.push(UploadedFile { field: name, name: file_name, media_type, content });
        }
    }
    Ok((fields, files))
}

pub(super) async fn read_body(parts: &Parts, body: Body, owner: &Owner, gateway: &Gateway) -> Result<Bytes, CallError> {
    let limits = BodyLimits::of(&gateway.configuration().current().server);
    Connection::of(parts)?.memory().read(body, owner, limits).await
}

/// The caller of a request of this machine's user, over the Unix socket, as an administrator.
/// Errors: `denied`: over the network, or without the role.
pub async fn administrator_on_socket(mut parts: Parts, gateway: &Arc<Gateway>) -> Result<Arc<Caller>, CallError> {
    let meta = RequestMeta::from_request_parts(&mut parts, gateway).await?;
    if !meta.over_socket {
        return Err(CallError::new(ErrorCode::Denied, "this is for the Unix socket of the state directory alone"));
    }
    meta.caller.require_administrator()?;
    Ok(meta.caller)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let given = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
            assert_eq!(is_same_origin(&given.collect(), "localhost:8080"), is_accepted, "{headers:?}");
        }
    }

    #[tokio::test]
    async fn a_form_with_files_has_fields_and_the_files_that_were_chosen() {
        let part =
            |head: &str, content: &str| format!("--x\r\nContent-Disposition: form-data; {head}\r\n\r\n{content}\r\n");
        let body = [
            part("name=\"token\"", "t\r\nu"),
            part("name=\"file.a\"; filename=\"\"\r\nContent-Type: application/octet-stream", ""),
            part("name=\"file.b\"; filename=\"b.png\"\r\nContent-Type: image/png", "\u{1}png"),
            "--x--\r\n".to_owned(),
        ];
        let (fields, files) = parse_multipart(body.concat().into(), "x").await.unwrap();
        assert_eq!(fields, [("token".to_owned(), "t\r\nu".to_owned())]);
        let files: Vec<_> =
            files.iter().map(|file| (&*file.field, &*file.name, &*file.media_type, &*file.content)).collect();
        assert_eq!(files, [("file.b", "b.png", "image/png", &b"\x01png"[..])]);
        assert!(parse_multipart(body[..1].concat().into(), "x").await.is_err(), "it is cut off");
    }
}
