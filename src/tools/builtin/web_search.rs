//! `web_search`: results of a search engine, from the provider the operator chose.

mod brave;
mod searxng;
mod serper;
mod tavily;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use rust_decimal::Decimal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use url::Url;

use sekisho_calls::tool::Metadata;
use sekisho_calls::tool::{Attempt, BUILTIN, Destination, Execution, Executor, ToolDefinition, Unavailable};
use sekisho_config::{SearchProvider, Secret, WebSearchConfig};
use sekisho_core::call::{Arguments, CallContext, ToolOutput, Upstream};
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_observe::telemetry;
use sekisho_outbound::{Outbound, OutboundRequest, Trust, check_status, upstream_of};

/// Errors: the missing setting of the configuration, and the line to add.
pub(super) fn definition(config: &WebSearchConfig, outbound: &Outbound) -> Result<ToolDefinition, Unavailable> {
    let engine = Engine::from_config(config).map_err(|reason| Unavailable::new(BUILTIN, "web_search", reason))?;
    Ok(ToolDefinition {
        metadata: Metadata {
            name: "web_search".into(),
            description: DESCRIPTION.into(),
            category: "search".into(),
            rate_limit: 120,                  // E47
            cost_per_use: Decimal::new(1, 3), // E13
            idempotent: true,
            ..Metadata::default()
        },
        parameters: parameters().into(),
        output_schema: Some(output_schema()),
        executor: Arc::new(WebSearch { engine, outbound: outbound.clone() }),
    })
}

const DESCRIPTION: &str = "Searches the web and gives back titles, addresses and short extracts of the best results. \
                           Use web_fetch to read one of them. Only cite addresses that stand in a result.";

fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": 400,
                "pattern": "\\S",
                "description": "The search terms, as typed into a search engine."
            },
            "max_results": {"type": "integer", "minimum": 1, "maximum": 20, "default": DEFAULT_RESULTS}
        },
        "required": ["query"],
        "additionalProperties": false
    })
}

fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "provider": {"type": "string", "enum": ["searxng", "brave", "tavily", "serper"]},
            "results": {
                "type": "array",
                "maxItems": 20,
                "items": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string"},
                        "url": {"type": "string"},
                        "snippet": {"type": "string"},
                        "published": {"type": "string", "description": "As the provider writes it."}
                    },
                    "required": ["title", "url", "snippet"],
                    "additionalProperties": false
                }
            }
        },
        "required": ["query", "provider", "results"],
        "additionalProperties": false
    })
}

const DEFAULT_RESULTS: usize = 5;

/// Twenty results with long extracts are far smaller.
const MAX_ANSWER_BYTES: usize = 2 << 20;

#[derive(Debug, Deserialize)]
struct Query {
    query: String,
    #[serde(default = "default_results")]
    max_results: usize,
}

fn default_results() -> usize {
    DEFAULT_RESULTS
}

/// One result in this tool's format.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Found {
    title: String,
    url: String,
    snippet: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<String>,
}

/// A provider's request.
#[derive(Debug)]
struct Question {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Value>,
}

/// A provider with its validated settings.
#[derive(Debug)]
struct Engine {
    provider: SearchProvider,
    base: Url,
    key: HeaderValue,
}

impl Engine {
    fn from_config(config: &WebSearchConfig) -> Result<Self, &'static str> {
        let provider = config.provider.ok_or(
            "no search provider is configured; add tools.web_search.provider: searxng, brave, tavily or serper",
        )?;
        let public = match provider {
            SearchProvider::Searxng => None,
            SearchProvider::Brave => Some(brave::BASE_URL),
            SearchProvider::Tavily => Some(tavily::BASE_URL),
            SearchProvider::Serper => Some(serper::BASE_URL),
        };
        let base = config
            .base_url
            .clone()
            .or_else(|| public.and_then(|address| Url::parse(address).ok()))
            .ok_or("searxng has no public address; add tools.web_search.base_url: https://your.searxng.host")?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err("tools.web_search.base_url must start with http:// or https://");
        }
        let key = config.api_key.as_ref().map(Secret::expose).unwrap_or_default().trim();
        if key.is_empty() && provider != SearchProvider::Searxng {
            return Err("the search provider needs a key; add tools.web_search.api_key: ${YOUR_VARIABLE}");
        }
        let mut key = match provider {
            SearchProvider::Tavily => HeaderValue::try_from(format!("Bearer {key}")),
            _ => HeaderValue::try_from(key),
        }
        .map_err(|_| "tools.web_search.api_key has characters that a key cannot contain")?;
        key.set_sensitive(true);
        Ok(Self { provider, base, key })
    }

    fn name(&self) -> &'static str {
        self.provider.into()
    }

    fn question(&self, query: &Query) -> Question {
        match self.provider {
            SearchProvider::Searxng => searxng::question(self, query),
            SearchProvider::Brave => brave::question(self, query),
            SearchProvider::Tavily => tavily::question(self, query),
            SearchProvider::Serper => serper::question(self, query),
        }
    }

    fn results(&self, answer: &[u8]) -> Result<Vec<Found>, serde_json::Error> {
        match self.provider {
            SearchProvider::Searxng | SearchProvider::Tavily => tavily::results(answer),
            SearchProvider::Brave => brave::results(answer),
            SearchProvider::Serper => serper::results(answer),
        }
    }

    /// `path` below the base address, whether that ends in a slash or not.
    fn address(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }
}

#[derive(Debug)]
struct WebSearch {
    engine: Engine,
    outbound: Outbound,
}

impl Executor for WebSearch {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(self.search(attempt, arguments))
    }

    fn marks_sent(&self) -> bool {
        true
    }

    fn upstream(&self, _arguments: &Arguments) -> Option<Upstream> {
        Some(upstream_of(&self.engine.base))
    }

    fn destination<'a>(&'a self, _call: &'a CallContext, _arguments: &'a Arguments) -> Option<Destination<'a>> {
        let address = upstream_of(&self.engine.base).name.to_string().into();
        Some(Destination { address, ..Destination::local(BUILTIN) })
    }

    fn identity(&self) -> Option<String> {
        Some(self.engine.base.to_string())
    }
}

impl WebSearch {
    async fn search(&self, attempt: Attempt<'_>, arguments: &Arguments) -> Result<ToolOutput, CallError> {
        let query = Query::deserialize(arguments).map_err(|error| {
            CallError::new(ErrorCode::InvalidArguments, format!("the arguments do not match the schema: {error}"))
        })?;
        let response = self.outbound.send(self.request(&query, &attempt)).await?;
        check_status(&response)?;
        let mut results = self
            .engine
            .results(&response.body)
            .map_err(|error| self.not_understood(&error).redacted(&response.sent.secrets()))?;
        results.retain(|found| !found.url.is_empty());
        results.truncate(query.max_results);
        Ok(self.output(&query, &results))
    }

    fn request(&self, query: &Query, attempt: &Attempt<'_>) -> OutboundRequest<'static> {
        let Question { method, url, mut headers, body } = self.engine.question(query);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        OutboundRequest {
            method,
            headers,
            body: body.map(|body| Bytes::from(body.to_string())),
            max_response_bytes: MAX_ANSWER_BYTES.min(attempt.memory_limit_bytes / 2),
            trust: Trust::Operator,
            trace: telemetry::outgoing(attempt.call),
            on_behalf: Some(attempt.call.on_behalf()),
            ..OutboundRequest::get(url, attempt.deadline)
        }
    }

    fn not_understood(&self, error: &serde_json::Error) -> CallError {
        let provider = self.engine.name();
        CallError::new(
            ErrorCode::UpstreamError,
            format!("the search provider {provider} gave an answer in another form"),
        )
        .blaming(Blame::Upstream)
        .caused_by(error)
    }

    fn output(&self, query: &Query, results: &[Found]) -> ToolOutput {
        let provider = self.engine.name();
        let mut metadata = Map::new();
        metadata.insert("provider".into(), provider.into());
        let value = json!({"query": query.query, "provider": provider, "results": results});
        ToolOutput { value, text: Some(render(results)), metadata, ..ToolOutput::default() }
    }
}

/// The results as numbered entries, for a model to read and cite.
fn render(results: &[Found]) -> String {
    if results.is_empty() {
        return "No results.".into();
    }
    let entries = results.iter().enumerate().map(|(at, Found { title, url, snippet, published })| {
        let date = published.as_ref().map(|date| format!(" ({date})")).unwrap_or_default();
        format!("[{}] {title}{date}\n{url}\n{snippet}\n", at + 1)
    });
    entries.collect::<Vec<_>>().join("\n")
}

/// A provider's response, which is an object (serde would also accept a list of its fields in order).
fn read<A: DeserializeOwned>(answer: &[u8]) -> Result<A, serde_json::Error> {
    serde_json::from_value(Value::Object(serde_json::from_slice(answer)?))
}

/// The list in a provider's response; entries that are not an `R` are left out.
fn entries<R: DeserializeOwned>(list: Vec<Value>) -> impl Iterator<Item = R> {
    list.into_iter().filter_map(|entry| serde_json::from_value(entry).ok())
}
