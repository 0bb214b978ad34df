//! The gateway's own API on loopback, with clients on the same cores.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::programs::Program;
use super::{Line, TOOL};
use sekisho::testing::{OutboundRequest, Trust};
use sekisho::{AgentService, BoundListeners, Deadline, Gateway, serve};

/// Connections with one call each: enough that both workers always have a call waiting.
const CLIENTS: usize = 8;

/// Timeout of a call.
const MAX_CALL: Duration = Duration::from_secs(60);

/// The API, which listens until it is stopped.
pub(super) struct Served {
    gateway: Arc<Gateway>,
    root: Url,
    done: CancellationToken,
    serving: JoinHandle<()>,
}

impl Served {
    /// # Errors
    /// It cannot listen.
    pub(super) async fn start(gateway: &Arc<Gateway>) -> Result<Self, String> {
        let listening =
            BoundListeners::bind(&gateway.configuration().current()).await.map_err(|error| error.to_string())?;
        let address = listening.address().ok_or("it listens on no address")?;
        let root = Url::parse(&format!("http://{address}/")).map_err(|error| error.to_string())?;
        let agents = AgentService::new(gateway).map_err(|error| error.to_string())?;
        let done = CancellationToken::new();
        let shutdown = done.clone();
        let serving = tokio::spawn(async move { serve(listening, &agents, shutdown.cancelled()).await });
        Ok(Self { gateway: Arc::clone(gateway), root, done, serving })
    }

    pub(super) fn root(&self) -> &Url {
        &self.root
    }

    /// Afterwards the gateway is stopped too.
    pub(super) async fn stop(self) -> Result<(), String> {
        self.done.cancel();
        self.serving.await.map_err(|error| error.to_string())
    }

    /// The answer to a request without error, and how long it took.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(Duration, Value), String> {
        let url = self.root.join(path).map_err(|error| error.to_string())?;
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let begun = Instant::now();
        let request = OutboundRequest {
            method,
            headers,
            body: body.map(|body| Bytes::from(body.to_string())),
            trust: Trust::Operator,
            ..OutboundRequest::get(url, Deadline::after(MAX_CALL))
        };
        let response = self.gateway.outbound().send(request).await.map_err(|error| error.to_string())?;
        if !response.status.is_success() {
            let body = String::from_utf8_lossy(&response.body);
            return Err(format!("{path} answers {}: {body}", response.status));
        }
        // The answer to DELETE has no body.
        let answer = match response.body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&response.body).map_err(|error| error.to_string())?,
        };
        Ok((begun.elapsed(), answer))
    }

    /// Runs Python with these arguments of the tool.
    ///
    /// # Errors
    /// The run has an unexpected result.
    pub(super) async fn run(&self, arguments: &Value) -> Result<(Duration, Value), String> {
        let body = json!({"arguments": arguments});
        let (took, reply) = self.ask(Method::POST, &format!("/tools/{TOOL}/execute"), Some(&body)).await?;
        if reply["success"] == true { Ok((took, reply)) } else { Err(format!("a run over HTTP failed: {reply}")) }
    }
}

/// Calls for `length`.
///
/// # Errors
/// A call has an unexpected result.
pub(super) async fn measure(served: &Served, program: &Program, length: Duration) -> Result<Line, String> {
    let begun = Instant::now();
    let calls = (0..CLIENTS).map(|_| call_for(served, program, length));
    let times = try_join_all(calls).await;
    let took = begun.elapsed();
    let times = times?.concat();
    let runs_a_second = times.len() as f64 / took.as_secs_f64();
    let line = Line::new(format!("{}, over HTTP", program.name), CLIENTS, times, Some("≥ 1 500 a second"));
    Ok(Line { runs_a_second, ..line })
}

async fn call_for(served: &Served, program: &Program, length: Duration) -> Result<Vec<Duration>, String> {
    let arguments = json!({"code": program.code});
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < length {
        times.push(served.run(&arguments).await?.0);
    }
    Ok(times)
}
