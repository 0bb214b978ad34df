//! The target of a redirect, and the parts of a request that follow it (RFC 9110 §15.4).

use http::{HeaderName, Method, StatusCode, header};
use url::Url;

use super::client::Response;
use super::failure::{Failure, host_of};
use super::{OutboundRequest, Trust};

/// Headers that describe content and reveal nothing about the caller.
const HARMLESS: [HeaderName; 4] = [header::ACCEPT, header::ACCEPT_LANGUAGE, header::CONTENT_TYPE, header::USER_AGENT];

/// The target of a response's redirect; `None` without one.
/// Errors: a `Location` that is not a URL.
pub(super) fn location(response: &Response, from: &Url) -> Result<Option<Url>, Failure> {
    if !matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers.get(header::LOCATION) else { return Ok(None) };
    let target = std::str::from_utf8(location.as_bytes()).ok().and_then(|location| from.join(location).ok());
    target.map(Some).ok_or_else(|| Failure::BadRedirect { host: host_of(from) })
}

/// Turns `request` into the redirected one. Whether its address may be reached is checked afterwards.
/// Errors: a redirect from `https` to `http` that would carry confidential data.
pub(super) fn follow(request: &mut OutboundRequest<'_>, status: StatusCode, to: Url) -> Result<(), Failure> {
    let keeps_method = matches!(status.as_u16(), 307 | 308);
    let post_becomes_get = status != StatusCode::SEE_OTHER && request.method == Method::POST;
    let see_other = status == StatusCode::SEE_OTHER && request.method != Method::HEAD;
    if !keeps_method && (post_becomes_get || see_other) {
        request.method = Method::GET;
        request.body = None;
        request.headers.remove(header::CONTENT_TYPE);
    }
    if to.origin() != request.url.origin() {
        let carries_more = request.headers.keys().any(|name| !HARMLESS.contains(name)) || request.body.is_some();
        if request.url.scheme() == "https" && to.scheme() == "http" && carries_more {
            return Err(Failure::Downgrade { host: host_of(&request.url) });
        }
        let dropped: Vec<_> = request.headers.keys().filter(|name| !HARMLESS.contains(name)).cloned().collect();
        for name in dropped {
            request.headers.remove(name);
        }
        request.trust = Trust::Caller;
    }
    request.url = to;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue};

    use super::*;
    use sekisho_core::call::Deadline;

    fn request(method: Method, url: &str) -> OutboundRequest<'static> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
        headers.insert("x-api-key", HeaderValue::from_static("secret"));
        headers.insert(header::COOKIE, HeaderValue::from_static("id=1"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/html"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        OutboundRequest {
            method,
            headers,
            body: Some(Bytes::from_static(b"body")),
            trust: Trust::Operator,
            ..OutboundRequest::get(Url::parse(url).unwrap(), Deadline::after(Duration::from_secs(1)))
        }
    }

    fn redirected(method: Method, from: &str, status: u16, to: &str) -> Result<OutboundRequest<'static>, Failure> {
        let mut request = request(method, from);
        follow(&mut request, StatusCode::from_u16(status).unwrap(), Url::parse(to).unwrap())?;
        Ok(request)
    }

    #[test]
    fn the_method_follows_the_rules_of_http() {
        for (method, status, expected) in [
            (Method::POST, 301, Method::GET),
            (Method::POST, 302, Method::GET),
            (Method::POST, 303, Method::GET),
            (Method::POST, 307, Method::POST),
            (Method::POST, 308, Method::POST),
            (Method::PUT, 301, Method::PUT),
            (Method::PUT, 303, Method::GET),
            (Method::DELETE, 307, Method::DELETE),
            (Method::HEAD, 303, Method::HEAD),
            (Method::GET, 302, Method::GET),
        ] {
            let next = redirected(method.clone(), "https://a.example/", status, "https://a.example/b").unwrap();
            assert_eq!(next.method, expected, "{method} {status}");
            let keeps_body = expected == method;
            assert_eq!(next.body.is_some(), keeps_body, "{method} {status}");
            assert_eq!(next.headers.contains_key(header::CONTENT_TYPE), keeps_body, "{method} {status}");
        }
    }

    #[test]
    fn credentials_and_trust_stay_within_the_origin() {
        let same = redirected(Method::GET, "https://a.example/", 302, "https://a.example/next").unwrap();
        assert_eq!((same.headers.len(), same.trust), (5, Trust::Operator));
        for other in ["https://b.example/", "https://sub.a.example/", "https://a.example:8443/", "https://example/"] {
            let next = redirected(Method::GET, "https://a.example/", 307, other).unwrap();
            let mut kept: Vec<_> = next.headers.keys().map(HeaderName::as_str).collect();
            kept.sort_unstable();
            assert_eq!(kept, ["accept", "content-type"], "{other}");
            assert_eq!(next.trust, Trust::Caller, "{other}");
        }
    }

    #[test]
    fn nothing_confidential_steps_down_to_plain_http() {
        assert!(redirected(Method::GET, "https://a.example/", 302, "http://a.example/").is_err());
        let mut plain =
            OutboundRequest::get(Url::parse("https://a.example/").unwrap(), Deadline::after(Duration::from_secs(1)));
        plain.headers.insert(header::ACCEPT, HeaderValue::from_static("text/html"));
        follow(&mut plain, StatusCode::FOUND, Url::parse("http://a.example/").unwrap()).unwrap();
    }
}
