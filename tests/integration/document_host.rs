//! A server of documents on loopback, which counts the requests for each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

#[derive(Clone, Default)]
pub(crate) struct DocumentHost {
    pub(crate) url: String,
    state: Arc<Mutex<Documents>>,
}

#[derive(Default)]
struct Documents {
    /// Path → text; one that begins with `->` is a redirect to what follows.
    texts: BTreeMap<String, String>,
    /// Path and status of each answer.
    answers: Vec<(String, u16)>,
}

impl DocumentHost {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let host = Self { url, ..Self::default() };
        let router = Router::new().fallback(answer).with_state(host.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        host
    }

    #[expect(clippy::needless_pass_by_value, reason = "documents are made where they are put")]
    pub(crate) fn put(&self, path: &str, text: impl ToString) -> String {
        self.state.lock().unwrap().texts.insert(path.to_owned(), text.to_string());
        format!("{}{path}", self.url)
    }

    /// The status of each answer for a path.
    pub(crate) fn answers(&self, path: &str) -> Vec<u16> {
        let state = self.state.lock().unwrap();
        state.answers.iter().filter(|(requested, _)| requested == path).map(|(_, status)| *status).collect()
    }

    fn reply(&self, path: &str, headers: &HeaderMap) -> Response {
        let state = self.state.lock().unwrap();
        let Some(text) = state.texts.get(path) else { return StatusCode::NOT_FOUND.into_response() };
        if let Some(target) = text.strip_prefix("->") {
            return (StatusCode::FOUND, [(header::LOCATION, target.to_owned())]).into_response();
        }
        let etag = format!("\"{:x}\"", text.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte)));
        if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == etag.as_str()) {
            return StatusCode::NOT_MODIFIED.into_response();
        }
        ([(header::ETAG, etag)], text.clone()).into_response()
    }
}

async fn answer(State(host): State<DocumentHost>, uri: Uri, headers: HeaderMap) -> Response {
    let response = host.reply(uri.path(), &headers);
    host.state.lock().unwrap().answers.push((uri.path().to_owned(), response.status().as_u16()));
    response
}
