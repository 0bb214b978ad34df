//! Executes one operation: builds the request, adds credentials, sends it, and converts the response. The adapter has
//! changed the arguments before: see [`SentForm`].

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::{Map, Value};
use tokio::time::Instant;
use url::Url;

use super::adapter::{Adapter, FilledFields};
use super::credentials::{Authorization, Token};
use super::large_numbers;
use super::pagination::{self, Page};
use super::request::{Request, RequestPlan};
use super::response;
use crate::user_scheme::UserScheme;
use sekisho_calls::tool::{Attempt, Destination, Execution, Executor, FilledIn, SentForm, SharedSchema};
use sekisho_config::PaginationSettings;
use sekisho_core::call::{Arguments, CallContext, ToolOutput, Upstream};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::redaction::SentSecrets;
use sekisho_observe::telemetry;
use sekisho_outbound::{DomainList, Outbound, OutboundRequest, OutboundResponse, upstream_of};
use sekisho_user_tokens::{TokenExchange, User, UserSource, UserToken};

/// Redirects followed. For methods that do not only read, redirects within the origin only and where the method stays:
/// their body is not sent to an address that is not configured.
const MAX_REDIRECTS: usize = 5;

/// By which an API knows a request that it has had already.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Bytes of memory for each byte of a response: the bytes themselves, the parsed value, its text.
const HELD_FOR_EACH_BYTE: usize = 8;

/// How the tools of one collection reach their API.
#[derive(Debug, Clone)]
pub struct Access {
    pub outbound: Outbound,
    /// `outbound.openapi_allowed_domains`.
    pub allowed: Arc<DomainList>,
    pub adapter: Option<Arc<Adapter>>,
    /// Most bytes of one response, decompressed.
    pub max_response_bytes: usize,
    pub pagination: PaginationSettings,
    /// The scheme whose tokens are the callers' own, with `identity: per_user` or `stored`.
    pub user: Option<UserScheme>,
    /// How a token is made of the caller's, with `identity: exchange` or `forward`.
    pub(crate) exchange: Option<Arc<TokenExchange>>,
}

/// One operation.
pub(crate) struct OperationExecutor {
    /// The operation's name in the adapter's settings.
    pub(crate) id: String,
    pub(crate) plan: RequestPlan,
    pub(crate) authorization: Authorization,
    /// Whether its server may get the collection's credentials, which an adapter's headers may contain.
    pub(crate) trusted: bool,
    pub(crate) access: Arc<Access>,
    /// The settings' headers that tell where requests work.
    pub(crate) headers: String,
    /// The fields that the adapter fills in.
    pub(crate) filled: FilledFields,
    pub(crate) output: Option<Arc<SharedSchema>>,
}

sekisho_core::debug_fields!(OperationExecutor { plan });

impl Executor for OperationExecutor {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(self.run(attempt, arguments))
    }

    fn marks_sent(&self) -> bool {
        true
    }

    fn upstream(&self, _arguments: &Arguments) -> Option<Upstream> {
        Some(upstream_of(self.plan.base()))
    }

    fn reaches(&self) -> Option<String> {
        Some(self.plan.address())
    }

    fn destination<'a>(&'a self, _call: &'a CallContext, arguments: &'a Arguments) -> Option<Destination<'a>> {
        Some(Destination {
            method: self.plan.method().as_str().into(),
            address: self.plan.url_template().into(),
            coding: self.plan.coding(arguments),
            ..Destination::default()
        })
    }

    /// With the server's own query, which may contain a key.
    fn identity(&self) -> Option<String> {
        let of_adapter = self.adapter().map(Adapter::identity).unwrap_or_default();
        Some(format!("{}{}{of_adapter}", self.plan.base(), self.headers))
    }

    fn declares_idempotency_key(&self) -> bool {
        !self.plan.method().is_safe() && self.plan.has_header(&IDEMPOTENCY_KEY)
    }

    fn sent_form(&self) -> Option<&dyn SentForm> {
        self.adapter().map(|_| self as &dyn SentForm)
    }

    fn output_schema(&self) -> Option<Arc<SharedSchema>> {
        self.output.clone()
    }
}

impl SentForm for OperationExecutor {
    fn fill_in(&self, arguments: &mut Arguments, prompt_params: &Map<String, Value>) -> FilledIn {
        let fill_in = |adapter: &Adapter| adapter.fill_in(&self.filled, arguments, prompt_params);
        self.adapter().map(fill_in).unwrap_or_default()
    }

    fn sent(&self, arguments: &Arguments, further: &Arguments) -> Arguments {
        let mut sent = self.plan.spread(arguments);
        if let Some(adapter) = self.adapter() {
            adapter.transform_request(&mut sent, further);
        }
        sent
    }
}

impl OperationExecutor {
    async fn run(&self, attempt: Attempt<'_>, arguments: &Arguments) -> Result<ToolOutput, CallError> {
        let request = self.request(&attempt, arguments)?;
        let answered = self.answer(&attempt, &request).await;
        let secrets = self.secrets(&request);
        match answered {
            Ok(output) => Ok(output.redacted(secrets)),
            Err(error) => Err(error.redacted(&secrets)),
        }
    }

    async fn answer(&self, attempt: &Attempt<'_>, request: &Request) -> Result<ToolOutput, CallError> {
        let mut output = if request.method == Method::GET && self.access.pagination.max_pages > 1 {
            Box::pin(self.pages(attempt, request.clone())).await?
        } else {
            let response = self.exchange(attempt, request, self.max_bytes(attempt)).await?;
            response::output(&response, &request.method)?
        };
        // An expression for JSON selects nothing in a text.
        let is_as_declared = !output.metadata.contains_key(response::NOTE);
        if let Some(adapter) = self.adapter().filter(|_| is_as_declared) {
            let large = large_numbers::of(&output);
            output.value = adapter.shape_response(output.value)?;
            large_numbers::found_again(&mut output, &large);
        }
        response::show_image(&mut output);
        Ok(output)
    }

    /// The credentials sent to the API.
    fn secrets(&self, request: &Request) -> SentSecrets {
        let mut secrets = SentSecrets::default();
        secrets.add_headers(&request.headers);
        self.authorization.secrets.iter().flat_map(|more| more.iter()).for_each(|secret| secrets.add(secret));
        if let Some(tokens) = &self.authorization.tokens {
            tokens.add_secrets(&mut secrets);
        }
        secrets
    }

    /// The requested page and those after it, within the limits of pages, total bytes and time. The metadata have
    /// the number of pages, and whether more would follow.
    async fn pages(&self, attempt: &Attempt<'_>, mut request: Request) -> Result<ToolOutput, CallError> {
        let settings = &self.access.pagination;
        let mut room = self.max_bytes(attempt);
        let mut began = Instant::now();
        let mut response = self.exchange(attempt, &request, room).await?;
        let mut output = response::output(&response, &request.method)?;
        let mut next = pagination::next(settings, &request.url, &Page::of(&response, &output.value));
        let mut pages = 1;
        let mut slowest = began.elapsed();
        while let Some(url) = next.clone() {
            room = room.saturating_sub(response.body.len());
            // A page that misses the deadline would lose the pages already fetched.
            if pages == settings.max_pages || attempt.deadline.remaining() < slowest * 2 {
                break;
            }
            request.url = url;
            self.authorization.apply(&mut request.url, &mut request.headers, &attempt.call.origin.tool_parameters)?;
            began = Instant::now();
            response = match self.exchange(attempt, &request, room).await {
                Err(error) if error.code() == ErrorCode::OutputTooLarge => break,
                outcome => outcome?,
            };
            slowest = slowest.max(began.elapsed());
            let page = response::output(&response, &request.method)?;
            next = pagination::next(settings, &request.url, &Page::of(&response, &page.value));
            large_numbers::of_page(&mut output, settings, &page);
            if !pagination::append(settings, &mut output.value, page.value) {
                next = Some(request.url.clone());
                break;
            }
            pages += 1;
        }
        output.metadata.insert("pages".into(), pages.into());
        output.metadata.insert("more_pages".into(), next.is_some().into());
        Ok(output)
    }

    /// One response; a refused token is replaced once, and a challenge is answered once.
    async fn exchange(
        &self,
        attempt: &Attempt<'_>,
        request: &Request,
        most_bytes: usize,
    ) -> Result<OutboundResponse, CallError> {
        if let Some(source) = &self.authorization.user {
            // Boxed, because few collections have it.
            return Box::pin(self.exchange_as_caller(source, attempt, request, most_bytes)).await;
        }
        if let Some(exchange) = &self.authorization.exchange {
            let token = Box::pin(exchange.token(&attempt.call.caller)).await?;
            return self.send(attempt, request, Some(&token), most_bytes).await;
        }
        let Some(tokens) = &self.authorization.tokens else {
            let response = self.send(attempt, request, None, most_bytes).await?;
            let user = self.authorization.digest.as_ref().filter(|_| response.status == StatusCode::UNAUTHORIZED);
            return match user {
                Some(user) if user.was_challenged(&response.headers) => {
                    self.send(attempt, request, None, most_bytes).await
                }
                _ => Ok(response),
            };
        };
        let access = &self.access;
        let token = tokens.token(&access.outbound, &access.allowed, attempt.deadline).await?;
        let response = self.send(attempt, request, Some(&token), most_bytes).await?;
        if response.status != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        // The token may have been revoked: retry once with a new one.
        tokens.drop_token(&token).await;
        let token = tokens.token(&access.outbound, &access.allowed, attempt.deadline).await?;
        self.send(attempt, request, Some(&token), most_bytes).await
    }

    /// One response, with the caller's own token.
    async fn exchange_as_caller(
        &self,
        source: &Arc<UserSource>,
        attempt: &Attempt<'_>,
        request: &Request,
        most_bytes: usize,
    ) -> Result<OutboundResponse, CallError> {
        let user = User::of(&attempt.call.caller)?;
        let token = source.token_for(attempt.call, &user).await?;
        let caller = UserToken::new(source, &user);
        let response = self.send(attempt, request, Some(&token), most_bytes).await?;
        if response.status != StatusCode::UNAUTHORIZED {
            caller.check(response.status, &response.headers, &token).await?;
            return Ok(response);
        }
        // A new token that is refused, too, is the API's answer.
        let token = caller.another(&token, &response.headers).await?;
        self.send(attempt, request, Some(&token), most_bytes).await
    }

    /// Maximum bytes of all responses of one call, decompressed.
    fn max_bytes(&self, attempt: &Attempt<'_>) -> usize {
        self.access.max_response_bytes.min(attempt.memory_limit_bytes / HELD_FOR_EACH_BYTE)
    }

    /// The adapter, if it is for this operation.
    fn adapter(&self) -> Option<&Adapter> {
        self.access.adapter.as_deref().filter(|adapter| adapter.applies_to(&self.id))
    }

    /// `arguments`: in the form that the adapter makes of them.
    fn request(&self, attempt: &Attempt<'_>, arguments: &Arguments) -> Result<Request, CallError> {
        let mut request = self.plan.request(arguments)?;
        let headers = self.adapter().filter(|_| self.trusted).map(Adapter::headers);
        for (name, value) in headers.into_iter().flatten() {
            request.headers.insert(name, value.clone());
        }
        self.authorization.apply(&mut request.url, &mut request.headers, &attempt.call.origin.tool_parameters)?;
        // A request that only reads may be repeated without a key. A key in the arguments takes precedence.
        let of_call = || self.declares_idempotency_key().then(|| attempt.call.id.to_string().into());
        if !request.method.is_safe()
            && let Some(key) = attempt.call.resumption.upstream_key.clone().or_else(of_call)
            && let Ok(key) = HeaderValue::from_str(&key)
        {
            request.headers.entry(IDEMPOTENCY_KEY).or_insert(key);
        }
        Ok(request)
    }

    async fn send(
        &self,
        attempt: &Attempt<'_>,
        request: &Request,
        token: Option<&Token>,
        most_bytes: usize,
    ) -> Result<OutboundResponse, CallError> {
        let mut url = request.url.clone();
        let mut redirects = 0;
        loop {
            let response = self.send_to(url, attempt, request, token, most_bytes).await?;
            match redirect_within_origin(&response).filter(|_| redirects < MAX_REDIRECTS) {
                Some(target) => url = target,
                None => return Ok(response),
            }
            redirects += 1;
        }
    }

    async fn send_to(
        &self,
        url: Url,
        attempt: &Attempt<'_>,
        request: &Request,
        token: Option<&Token>,
        most_bytes: usize,
    ) -> Result<OutboundResponse, CallError> {
        let (access, certified) = (&self.access, self.authorization.certified.as_ref());
        let mut headers = request.headers.clone();
        if let Some(token) = token {
            headers.insert(token.name.clone(), token.header.clone());
        }
        let digest = self.authorization.digest.as_ref();
        if let Some(value) = digest.and_then(|user| user.authorization(&request.method, &url, request.body.as_deref()))
        {
            headers.insert(header::AUTHORIZATION, value);
        }
        let follows = request.method.is_safe() && certified.is_none() && digest.is_none();
        let outgoing = OutboundRequest {
            method: request.method.clone(),
            headers,
            secrets: self.authorization.secrets.clone(),
            body: request.body.clone(),
            max_response_bytes: most_bytes,
            // Another server must not be shown the certificate, and a digest is valid for one address.
            max_redirects: if follows { MAX_REDIRECTS } else { 0 },
            allowed: &access.allowed,
            trace: telemetry::outgoing(attempt.call),
            on_behalf: Some(attempt.call.on_behalf()),
            partial_streams: true,
            ..OutboundRequest::get(url, attempt.deadline)
        };
        certified.unwrap_or(&access.outbound).send(outgoing).await
    }
}

/// The target of a redirect that keeps the method and the origin, such as a redirect from a path without its final
/// slash.
fn redirect_within_origin(response: &OutboundResponse) -> Option<Url> {
    let keeps_method = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT].contains(&response.status);
    let location = response.headers.get(header::LOCATION).filter(|_| keeps_method)?;
    let target = response.url.join(location.to_str().ok()?).ok()?;
    (target.origin() == response.url.origin()).then_some(target)
}
