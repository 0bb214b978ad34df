//! How a server is reached.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::transport::authorized_http::AuthorizedHttp;
use sekisho_outbound::upstream_of;

#[derive(Debug)]
pub(crate) enum Endpoint {
    Program(String),
    Http(Arc<AuthorizedHttp>),
}

/// For `tools.lock`: without local paths, and without the path of a URL, which may contain a secret.
impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(program) => {
                let name = Path::new(program).file_name().unwrap_or(program.as_ref());
                write!(formatter, "program {}", name.display())
            }
            Self::Http(access) => formatter.write_str(&upstream_of(&access.url).name),
        }
    }
}
