//! All calls that a query finds, as a file that is sent page by page.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::Response;
use futures_util::Stream;
use serde::Deserialize;

use super::calls::CallBody;
use crate::column::Listed;
use crate::csv;
use sekisho_core::caller::Caller;
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;
use sekisho_store::{CallOrder, IndexFilter, IndexedCall};

/// Calls that are read at once.
const PAGE: usize = 500;

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallFile {
    /// RFC 4180.
    Csv,
    /// A list.
    Json,
    /// An object on each line.
    Jsonl,
}

impl CallFile {
    fn media_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::Json => "application/json",
            Self::Jsonl => "application/jsonl",
        })
    }

    fn disposition(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Csv => "attachment; filename=\"sekisho-calls.csv\"",
            Self::Json => "attachment; filename=\"sekisho-calls.json\"",
            Self::Jsonl => "attachment; filename=\"sekisho-calls.jsonl\"",
        })
    }

    fn beginning(self) -> String {
        match self {
            Self::Csv => csv::table(&names(), std::iter::empty::<&[serde_json::Value]>()),
            Self::Json => "[".to_owned(),
            Self::Jsonl => String::new(),
        }
    }

    fn end(self) -> &'static str {
        if self == Self::Json { "]" } else { "" }
    }

    /// `is_first`: of all calls.
    fn lines(self, calls: &[IndexedCall], mut is_first: bool) -> String {
        let rows: Vec<Vec<serde_json::Value>> = calls.iter().map(row).collect();
        if self == Self::Csv {
            return csv::lines(rows.iter());
        }
        let mut text = String::new();
        for row in rows {
            let members = names().into_iter().map(str::to_owned).zip(row).collect::<serde_json::Map<_, _>>();
            if self == Self::Json && !is_first {
                text.push_str(",\n");
            }
            is_first = false;
            text.push_str(&serde_json::Value::Object(members).to_string());
            if self == Self::Jsonl {
                text.push('\n');
            }
        }
        text
    }
}

fn names() -> Vec<&'static str> {
    CallBody::COLUMNS.iter().map(|column| column.name).collect()
}

fn row(found: &IndexedCall) -> Vec<serde_json::Value> {
    let members = CallBody::of_indexed(found).members();
    CallBody::COLUMNS.iter().map(|column| column.value(&members).into_owned()).collect()
}

/// The file. A failure on the way breaks the connection, so that no part is taken for the whole.
/// Errors: the index cannot be read.
pub async fn call_file(
    gateway: Arc<Gateway>,
    caller: Arc<Caller>,
    filter: IndexFilter,
    order: CallOrder,
    file: CallFile,
) -> Result<Response, CallError> {
    let first = gateway.history().calls(&caller, filter.clone(), order, None, PAGE).await?;
    let pages = pages(gateway, caller, filter, order, file, first);
    let mut response = Response::new(Body::from_stream(pages));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, file.media_type());
    headers.insert(CONTENT_DISPOSITION, file.disposition());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn pages(
    gateway: Arc<Gateway>,
    caller: Arc<Caller>,
    filter: IndexFilter,
    order: CallOrder,
    file: CallFile,
    mut found: sekisho_store::FoundCalls,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    async_stream::stream! {
        let mut is_first = true;
        yield Ok(Bytes::from(file.beginning()));
        loop {
            yield Ok(Bytes::from(file.lines(&found.calls, is_first)));
            is_first &= found.calls.is_empty();
            let Some(after) = found.next else { break };
            match gateway.history().calls(&caller, filter.clone(), order, Some(&after), PAGE).await {
                Ok(next) => found = next,
                Err(error) => {
                    yield Err(io::Error::other(error.message().to_owned()));
                    return;
                }
            }
        }
        yield Ok(Bytes::from_static(file.end().as_bytes()));
    }
}
