//! Services that judge texts, and their verdicts about texts that were the same.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::forms::{self, Asked};
use sekisho_config::{GuardService, GuardsConfig};
use sekisho_core::bounded::BoundedCache;
use sekisho_core::call::{CallContext, Deadline, OnBehalf, SentFlag};
use sekisho_observe::telemetry;
use sekisho_outbound::{Outbound, OutboundRequest, Trust, check_status};

/// Maximum bytes of an answer.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Verdicts that are kept.
const MAX_VERDICTS: usize = 10_000;
/// How long a verdict counts.
const VERDICT_TTL: Duration = Duration::from_secs(600);

/// The services of `tools.guards.services`.
#[derive(Debug)]
pub struct GuardServices {
    services: ArcSwap<BTreeMap<String, GuardService>>,
    outbound: OnceLock<Outbound>,
    verdicts: BoundedCache<[u8; 32], Verdict>,
}

/// The categories that a service named; empty for a text that is fine.
pub(crate) type Judged = Arc<[String]>;

#[derive(Debug)]
struct Verdict {
    categories: Judged,
    until: Instant,
}

impl GuardServices {
    pub fn new(config: &GuardsConfig) -> Self {
        Self {
            services: ArcSwap::from_pointee(config.services.clone()),
            outbound: OnceLock::new(),
            verdicts: BoundedCache::new(MAX_VERDICTS),
        }
    }

    pub fn reconfigure(&self, config: &GuardsConfig) {
        if **self.services.load() != config.services {
            self.services.store(Arc::new(config.services.clone()));
            self.verdicts.retain(|_, _| false);
        }
    }

    /// Sets the client by which services are asked.
    pub fn set_outbound(&self, outbound: &Outbound) {
        self.outbound.get_or_init(|| outbound.clone());
    }

    /// Errors: why there is no verdict.
    pub(crate) async fn judge(
        &self,
        name: &str,
        call: &CallContext,
        deadline: Deadline,
        (direction, text): (&'static str, &str),
    ) -> Result<Judged, String> {
        let services = self.services.load_full();
        let service = services.get(name).ok_or_else(|| format!("there is no service {name:?}"))?;
        if text.len() > service.max_bytes {
            return Err(format!("the text has {} bytes, of at most {} (max_bytes)", text.len(), service.max_bytes));
        }
        let asked = Asked { text, direction, tool: &call.tool, tenant: &call.caller.tenant };
        let body = forms::request(service, asked).to_string();
        let key = key_of(asked.tenant, name, service, &body);
        let known = self
            .verdicts
            .get(&key, |verdict| (verdict.until > Instant::now()).then(|| Arc::clone(&verdict.categories)));
        if let Some(categories) = known {
            return Ok(categories);
        }
        let request = request(service, call, body, deadline.at_most(service.timeout()))?;
        let outbound = self.outbound.get().ok_or("the gateway has no client for it")?;
        let answer = outbound.send(request).await.map_err(|error| error.to_string())?;
        check_status(&answer).map_err(|error| error.to_string())?;
        let categories: Judged = forms::categories(service, &answer.body)?.into();
        let now = Instant::now();
        let verdict = Verdict { categories: Arc::clone(&categories), until: now + VERDICT_TTL };
        self.verdicts.insert(key, verdict, |verdict| verdict.until <= now);
        Ok(categories)
    }
}

fn request(
    service: &GuardService,
    call: &CallContext,
    body: String,
    deadline: Deadline,
) -> Result<OutboundRequest<'static>, String> {
    // Not the call's own flag: it says whether its tool was asked.
    let on_behalf = OnBehalf { owner: call.caller.owner.clone(), sent: SentFlag::default(), queueing: Arc::default() };
    let mut request = OutboundRequest {
        method: Method::POST,
        body: Some(body.into()),
        max_response_bytes: MAX_ANSWER_BYTES,
        trust: Trust::Operator,
        trace: telemetry::outgoing(call),
        on_behalf: Some(on_behalf),
        ..OutboundRequest::get(service.url.clone(), deadline)
    };
    request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = &service.api_key {
        let value = HeaderValue::from_str(&format!("Bearer {}", key.expose()));
        let mut value = value.map_err(|_| "its `api_key` has characters that no header may have".to_owned())?;
        value.set_sensitive(true);
        request.headers.insert(AUTHORIZATION, value);
    }
    Ok(request)
}

/// Of one tenant: how fast a verdict comes says nothing about the texts of others. Of the service as it is configured: a verdict that
/// comes after a change is none of the new one. A verdict is of no rule; the rule says what follows from it.
pub(super) fn key_of(tenant: &str, name: &str, service: &GuardService, body: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in [tenant, name, service.kind.into(), service.url.as_str()] {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    digest.update(body);
    digest.finalize().into()
}
