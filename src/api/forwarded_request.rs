//! A request to `/mcp` that another replica forwards, since this replica has the session or task that it names.
//!
//! One header says when and for which replica it was sent, the address of the client and the digest of the body, and
//! has a tag of these and of method and path. It proves who forwarded the request, and nothing about the caller, who is
//! authenticated again.

use std::net::IpAddr;

use axum::http::{HeaderName, HeaderValue, Method, Request, Uri};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::headers::single;
use sekisho_core::spiffe_id::SpiffeId;
use sekisho_store::replica::{Replica, SigningKey};

/// The path of forwarded requests; requests of virtual servers are below it.
pub(super) const PATH: &str = "/mcp";

/// In a request the header that is described above; in a response it says that the request was not accepted as a
/// replica's.
pub(super) const FORWARDED: HeaderName = HeaderName::from_static("x-sekisho-forwarded");

/// How far the time of a request may be from the receiver's, both by the database's clock, in microseconds.
const TOLERANCE: i64 = 30_000_000;

/// The content of the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForwardedRequest {
    /// When it was sent, by the database's clock, in microseconds since 1970.
    pub time: i64,
    /// The id of the replica that has the session, task or call that it names.
    pub to: String,
    /// The address of the client.
    pub client: IpAddr,
    /// SHA-256 of the body.
    pub digest: [u8; 32],
    /// The workload that the client's certificate names. A header without it is as it was before there was this part.
    pub workload: Option<SpiffeId>,
}

impl ForwardedRequest {
    pub(super) fn new(time: i64, to: &str, client: IpAddr, body: &Bytes) -> Self {
        Self { time, to: to.to_owned(), client, digest: Sha256::digest(body).into(), workload: None }
    }

    /// Checks that this is the forwarded body.
    /// Errors: `denied`.
    pub(super) fn check_body(&self, body: &[u8]) -> Result<(), CallError> {
        match Sha256::digest(body)[..] == self.digest {
            true => Ok(()),
            false => Err(CallError::new(ErrorCode::Denied, "the body is not the one that was forwarded")),
        }
    }

    /// The header of a request with this method and address.
    pub(super) fn header(&self, key: &SigningKey, method: &Method, uri: &Uri) -> Option<HeaderValue> {
        let Self { time, to, client, digest, workload } = self;
        let workload = workload.as_ref().map(|workload| format!(" {workload}")).unwrap_or_default();
        let tag = key.tag(&self.fields(&time.to_string(), &client.to_string(), method, uri));
        format!("{time} {to} {client} {} {}{workload}", hex::encode(digest), hex::encode(tag)).parse().ok()
    }

    /// Reads the header of a request that this replica received.
    /// Errors: `denied`: it comes from no replica that has a secret in force here, or not from this time.
    /// `unknown_session`: it is for another replica, which is gone if it had this replica's address.
    pub(super) fn read<B>(replica: &Replica, request: &Request<B>) -> Result<Self, CallError> {
        let keys = replica.keys().ok_or_else(not_forwarded)?;
        let forwarded = keys.in_force().find_map(|keys| Self::signed(&keys.requests, request));
        let forwarded = forwarded.ok_or_else(not_forwarded)?;
        if (forwarded.time - replica.database_time().as_microsecond()).abs() > TOLERANCE {
            return Err(not_forwarded());
        }
        match forwarded.to == **replica.id() {
            true => Ok(forwarded),
            false => Err(CallError::new(ErrorCode::UnknownSession, "no MCP session has this id")),
        }
    }

    fn signed<B>(key: &SigningKey, request: &Request<B>) -> Option<Self> {
        let header = single(request.headers(), &FORWARDED).ok()??;
        let parts: Vec<_> = header.split(' ').collect();
        let (&[time, to, client, digest, tag], workload) = parts.split_first_chunk::<5>()?;
        let workload = match workload {
            [] => None,
            [workload] => Some(SpiffeId::parse(workload)?),
            _ => return None,
        };
        let forwarded = Self {
            time: time.parse().ok()?,
            to: to.to_owned(),
            client: client.parse().ok()?,
            digest: hex::decode(digest).ok()?.try_into().ok()?,
            workload,
        };
        let (method, uri, tag) = (request.method(), request.uri(), hex::decode(tag).ok()?);
        let is_signed = key.has_signed(&forwarded.fields(time, client, method, uri), &tag);
        let below = request.uri().path().strip_prefix(PATH)?;
        (is_signed && (below.is_empty() || below.starts_with('/'))).then_some(forwarded)
    }

    fn fields<'a>(&'a self, time: &'a str, client: &'a str, method: &'a Method, uri: &'a Uri) -> Vec<&'a [u8]> {
        let path = uri.path_and_query().map_or(uri.path(), |path| path.as_str());
        let fields = [
            time.as_bytes(),
            method.as_str().as_bytes(),
            path.as_bytes(),
            self.to.as_bytes(),
            client.as_bytes(),
            &self.digest,
        ];
        fields.into_iter().chain(self.workload.as_ref().map(|workload| workload.as_str().as_bytes())).collect()
    }
}

fn not_forwarded() -> CallError {
    let message = "this address takes only requests that a replica forwards, with the same secret and within 30 s";
    CallError::new(ErrorCode::Denied, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::Secret;
    use sekisho_store::replica::ClusterKeys;

    #[test]
    fn a_header_has_the_workload_of_its_client_and_no_other_is_put_into_it() {
        let keys = ClusterKeys::new(&Secret::new("a secret of the cluster"), None);
        let key = &keys.signing().requests;
        let (one, other) = (SpiffeId::parse("spiffe://a.example/one"), SpiffeId::parse("spiffe://a.example/other"));
        let plain = ForwardedRequest::new(7, "replica", [192, 0, 2, 1].into(), &Bytes::from_static(b"body"));
        let with = |workload: &Option<SpiffeId>| ForwardedRequest { workload: workload.clone(), ..plain.clone() };
        let read = |header: &str| {
            let request = Request::post("http://192.0.2.2/mcp").header(FORWARDED, header).body(()).unwrap();
            ForwardedRequest::signed(key, &request)
        };
        let uri: Uri = "http://192.0.2.2/mcp".parse().unwrap();
        for workload in [&None, &one] {
            let header = with(workload).header(key, &Method::POST, &uri).unwrap();
            let header = header.to_str().unwrap();
            assert_eq!(read(header), Some(with(workload)), "{header}");
            let (bare, name) = match workload {
                Some(name) => (header.strip_suffix(name.as_str()).unwrap().trim_end(), name.as_str()),
                None => (header, ""),
            };
            let other = other.as_ref().unwrap();
            for changed in [format!("{bare} {other}"), format!("{bare} {name} {other}"), format!("{bare} x")] {
                assert_eq!(read(&changed), None, "{changed}");
            }
            assert_eq!(read(bare).is_some(), workload.is_none(), "the name is left out");
        }
    }
}
