//! Static files. The hash of their content is in their names, so that browsers keep them for ever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

/// A file of the console.
pub(super) struct Asset {
    name: String,
    media_type: &'static str,
    content: &'static str,
}

pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("console", "css", "text/css; charset=utf-8", include_str!("assets/console.css")));
pub(super) static PAGE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("page", "js", "text/javascript; charset=utf-8", include_str!("assets/page.js")));
pub(super) static LIVE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("live", "js", "text/javascript; charset=utf-8", include_str!("assets/live.js")));
pub(super) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("assets/icon.svg")));

impl Asset {
    fn new(name: &str, extension: &str, media_type: &'static str, content: &'static str) -> Self {
        let hash = hex::encode(&Sha256::digest(content)[..8]);
        Self { name: format!("{name}-{hash}.{extension}"), media_type, content }
    }

    /// Its address.
    pub(super) fn path(&self) -> String {
        format!("/console/static/{}", self.name)
    }
}

/// `GET /console/static/{name}`.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    let files = [&STYLE, &PAGE, &LIVE, &ICON];
    match files.into_iter().find(|file| file.name == name) {
        Some(file) => {
            let headers = [(CONTENT_TYPE, file.media_type), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
            (headers, file.content).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
