//! The signature of one request.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use http::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::models::ModelError;

/// The scope for which a signature is valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    pub(super) time: SystemTime,
}

/// Adds the headers of the signature, of which all others are a part.
/// Errors: a header is not text, or the address has no host.
pub(super) fn add(
    method: &str,
    url: &Url,
    headers: &mut HeaderMap,
    body: &[u8],
    (credentials, scope): (&Credentials, &Scope<'_>),
) -> Result<(), ModelError> {
    let identity = credentials.clone().into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(scope.region)
        .name(scope.service)
        .time(scope.time)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| cannot(&error))?
        .into();
    let texts = headers.iter().map(|(name, value)| Ok((name.as_str(), value.to_str()?)));
    let texts = texts.collect::<Result<Vec<_>, http::header::ToStrError>>().map_err(|error| cannot(&error))?;
    let request = SignableRequest::new(method, url.as_str(), texts.into_iter(), SignableBody::Bytes(body));
    let request = request.map_err(|error| cannot(&error))?;
    let (instructions, _) = sign(request, &parameters).map_err(|error| cannot(&error))?.into_parts();
    let (added, _) = instructions.into_parts();
    for header in added {
        let name = HeaderName::from_static(header.name());
        let mut value = HeaderValue::from_str(header.value()).map_err(|error| cannot(&error))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(())
}

fn cannot(error: &dyn std::error::Error) -> ModelError {
    ModelError::Refused(format!("the request cannot be signed: {error}"))
}
