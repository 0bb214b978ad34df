//! The same run over HTTP: the gateway's own API on loopback, with clients on the same cores.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::programs::Program;
use super::{Line, TOOL};
use sekisho::testing::{Outbound, OutboundRequest, Trust};
use sekisho::{AgentService, BoundListeners, Deadline, Gateway, serve};

/// Connections with one call each: enough that both workers always have a call waiting.
const CLIENTS: usize = 8;

/// Timeout of a call.
const MAX_CALL: Duration = Duration::from_secs(60);

/// Serves and calls for `length`. Afterwards the gateway is stopped.
///
/// # Errors
/// It cannot listen, or a call has an unexpected result.
pub(super) async fn measure(gateway: &Arc<Gateway>, program: &Program, length: Duration) -> Result<Line, String> {
    let listening = BoundListeners::bind(&gateway.config()).await.map_err(|error| error.to_string())?;
    let address = listening.address().ok_or("it listens on no address")?;
    let agents = AgentService::new(gateway).map_err(|error| error.to_string())?;
    let done = CancellationToken::new();
    let shutdown = done.clone();
    let serving = tokio::spawn(async move { serve(listening, &agents, shutdown.cancelled()).await });
    let url = Url::parse(&format!("http://{address}/tools/{TOOL}/execute")).map_err(|error| error.to_string())?;
    let begun = Instant::now();
    let calls = (0..CLIENTS).map(|_| call_for(gateway.outbound(), &url, program, length));
    let times = try_join_all(calls).await;
    let took = begun.elapsed();
    done.cancel();
    serving.await.map_err(|error| error.to_string())?;
    let times = times?.concat();
    let runs_a_second = times.len() as f64 / took.as_secs_f64();
    let line = Line::new(format!("{}, over HTTP", program.name), CLIENTS, times, Some("≥ 1 500 a second"));
    Ok(Line { runs_a_second, ..line })
}

async fn call_for(
    outbound: &Outbound,
    url: &Url,
    program: &Program,
    length: Duration,
) -> Result<Vec<Duration>, String> {
    let body = Bytes::from(json!({"arguments": {"code": program.code}}).to_string());
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < length {
        let begun = Instant::now();
        let request = OutboundRequest {
            method: Method::POST,
            headers: headers.clone(),
            body: Some(body.clone()),
            trust: Trust::Operator,
            ..OutboundRequest::get(url.clone(), Deadline::after(MAX_CALL))
        };
        let response = outbound.send(request).await.map_err(|error| error.to_string())?;
        let reply: Value = serde_json::from_slice(&response.body).map_err(|error| error.to_string())?;
        times.push(begun.elapsed());
        if reply["success"] != true {
            return Err(format!("a run over HTTP had an unexpected result: {reply}"));
        }
    }
    Ok(times)
}
