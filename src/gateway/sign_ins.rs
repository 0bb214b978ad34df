//! Sign-ins of callers to upstreams that are called as their callers, for the APIs and the console.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{BackgroundWork, Configuration, Reach, ToolOffer};
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_calls::pipeline::Pipeline;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode, NeededSignIn};
use sekisho_mcp_client::McpServers;
use sekisho_store::{StoredSignIn, StoredUserToken, UserTokenFilter};
use sekisho_user_tokens::{OwnAddresses, ReturnedBrowser, User, UserSource, UserTokens};

/// Sign-ins of one list.
pub(super) const MAX_LISTED: u32 = 1_000;

/// How long a sign-in is kept that nobody uses.
const UNUSED_TTL: Duration = Duration::from_secs(90 * 24 * 3_600);

/// A caller whose sign-in an administrator revokes.
#[derive(Debug, Clone, Copy)]
pub struct SignedInCaller<'a> {
    pub id: &'a str,
    /// `None`: callers with this id in all tenants that the one who revokes may see.
    pub tenant: Option<&'a str>,
}

/// Sign-ins of callers to upstreams that are called as their callers.
#[derive(Debug)]
pub struct SignIns {
    configuration: Arc<Configuration>,
    pub(super) pipeline: Arc<Pipeline>,
    background: BackgroundWork,
    tool_offer: Arc<ToolOffer>,
    pub(super) mcp_servers: Arc<McpServers>,
    pub(super) users: Arc<UserTokens>,
}

impl SignIns {
    pub(super) fn new(tool_offer: &Arc<ToolOffer>, background: &BackgroundWork, users: Arc<UserTokens>) -> Self {
        Self {
            configuration: Arc::clone(&tool_offer.configuration),
            pipeline: Arc::clone(&tool_offer.pipeline),
            background: background.clone(),
            tool_offer: Arc::clone(tool_offer),
            mcp_servers: Arc::clone(&tool_offer.mcp_servers),
            users,
        }
    }

    /// Whether tokens can be sealed.
    pub(super) fn can_keep_tokens(&self) -> bool {
        self.users.can_keep_tokens()
    }

    /// Where the caller signs in to an upstream.
    /// Errors: `not_found`, also for a server that needs a role which the caller lacks; `unauthenticated` for a caller
    /// without credentials; `overloaded` when the store cannot be written.
    pub async fn offer(&self, caller: &Caller, source: &str) -> Result<NeededSignIn, CallError> {
        self.source_for(caller, source)?.offer(&User::of(caller)?, &[]).await
    }

    /// The sign-ins to upstreams: of the caller, and for administrators of their tenant, or of all tenants.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn list(&self, caller: &Caller) -> Result<Vec<StoredUserToken>, CallError> {
        let reach = self.reach_of(caller);
        let filter = UserTokenFilter {
            tenant: (reach != Reach::AllTenants).then_some(&*caller.tenant),
            caller_key: (reach == Reach::Own).then_some(&*caller.key),
            max: MAX_LISTED,
            ..UserTokenFilter::default()
        };
        self.users.list(filter).await
    }

    /// The upstreams with a tool that the caller may see, to which it can sign in and has not.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn missing(&self, caller: &Arc<Caller>) -> Result<Vec<String>, CallError> {
        if caller.anonymous {
            return Ok(Vec::new());
        }
        let filter = UserTokenFilter { caller_key: Some(&*caller.key), max: MAX_LISTED, ..UserTokenFilter::default() };
        let own = self.users.list(filter).await?;
        let tools = self.pipeline.tools_for(caller);
        let seen = tools.visible().map(|(tool, _)| tool.metadata.source.clone());
        let missing: BTreeSet<_> = seen.filter(|source| own.iter().all(|token| token.source != *source)).collect();
        Ok(missing.into_iter().filter(|source| self.user_source(source).is_some()).collect())
    }

    /// Revokes the sign-in of a caller to an upstream, here and at the upstream's authorization server. `of`: another caller,
    /// for administrators.
    /// Errors: `not_found`, `denied`; `invalid_request` for an empty id; `overloaded` when the store cannot be written.
    pub async fn revoke(&self, caller: &Caller, source: &str, of: Option<SignedInCaller<'_>>) -> Result<(), CallError> {
        let reach = self.reach_of(caller);
        let other = of.filter(|of| !of.is(caller));
        let tenant = match other {
            Some(SignedInCaller { tenant: Some(tenant), .. }) => Some(tenant),
            Some(_) if reach == Reach::AllTenants => None,
            _ => Some(&*caller.tenant),
        };
        let is_allowed = match reach {
            Reach::Own => other.is_none(),
            Reach::Tenant => tenant == Some(&*caller.tenant),
            Reach::AllTenants => true,
        };
        if !is_allowed {
            let message =
                "the sign-ins of others are revoked by administrators of their tenant; use a key with the role `admin`";
            return Err(CallError::new(ErrorCode::Denied, message));
        }
        // An empty text in the filter stands for all callers.
        if of.is_some_and(|of| of.id.is_empty()) {
            let message = "`caller` is empty; write the id of a caller, or leave it out for your own sign-in";
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        let filter = UserTokenFilter {
            tenant,
            caller_key: other.is_none().then_some(&*caller.key),
            caller_id: other.map(|other| other.id),
            source: Some(source),
            max: MAX_LISTED,
        };
        let found = self.users.list(filter).await?;
        if found.is_empty() {
            let message = format!("no such caller has signed in to {source}");
            return Err(CallError::new(ErrorCode::NotFound, message));
        }
        for token in found {
            self.forget(token).await?;
        }
        Ok(())
    }

    /// Revokes sign-ins that nobody used for [`UNUSED_TTL`]. Sign-ins to removed upstreams cannot be used.
    pub(super) async fn revoke_unused(&self) {
        let revoked = async {
            for token in self.users.unused_for(UNUSED_TTL, MAX_LISTED).await? {
                let who = format!("{} of the tenant {}: unused for 90 days", token.caller_id, token.tenant);
                let (subject, detail) = (Some(token.source.clone()), Some(who));
                if self.forget(token).await? {
                    let event = AuditEvent { subject, detail, ..AuditEvent::new(EventKind::SignInRevoked) };
                    self.pipeline.settlement.audit.event(event);
                }
            }
            Ok::<_, CallError>(())
        };
        if let Err(error) = revoked.await {
            tracing::warn!(%error, cause = error.cause(), "cannot revoke sign-ins that nobody uses");
        }
    }

    /// Forgets a token, and revokes it at the authorization server of its upstream, if there still is one. False: it was replaced or
    /// forgotten before.
    async fn forget(&self, token: StoredUserToken) -> Result<bool, CallError> {
        let is_forgotten = self.users.forget(&token).await?;
        if let Some(source) = self.user_source(&token.source) {
            // The token is not used any more, whether its server answers or not.
            self.background.spawn_until_closing(async move { source.revoke_upstream(&token).await });
        }
        Ok(is_forgotten)
    }

    /// A sign-in for its page.
    /// Errors: `not_found`; `overloaded` when the store cannot be read.
    pub async fn open(&self, id: &str) -> Result<StoredSignIn, CallError> {
        self.users.sign_in(id).await
    }

    /// Checks the one-time code of a sign-in.
    /// Errors: `denied`; `overloaded` when the store cannot be read.
    pub async fn check_code(&self, sign_in: &StoredSignIn, code: &str) -> Result<(), CallError> {
        self.users.check_code(sign_in, code).await
    }

    /// Begins a sign-in in a browser that has proven to be its caller's; returns the address to send it to.
    /// Errors: `not_found`; `upstream_error` if the authorization server cannot be used.
    pub async fn begin(
        &self,
        sign_in: &StoredSignIn,
        browser: &str,
        own: &OwnAddresses,
    ) -> Result<url::Url, CallError> {
        let source = self.user_source(&sign_in.source).ok_or_else(|| no_source(&sign_in.source))?;
        source.begin(sign_in, browser, own).await
    }

    /// Ends a sign-in whose browser has come back, with a line in the audit trail.
    /// Errors: `not_found`: it belongs to another browser, or was used; `upstream_error` with the reason; `overloaded`
    /// when the trail cannot take the line.
    pub async fn finish(
        &self,
        browser: &str,
        returned: ReturnedBrowser,
        event: AuditEvent,
    ) -> Result<StoredSignIn, CallError> {
        let slot = self.pipeline.settlement.audit.reserve()?;
        let taken = self.users.take(browser, &returned.state).await?;
        let sign_in = taken.stored.clone();
        let finished = match self.user_source(&sign_in.source) {
            Some(source) => source.finish(taken, returned).await,
            None => Err(no_source(&sign_in.source)),
        };
        let who = format!("{} of the tenant {}", sign_in.caller_id, sign_in.tenant);
        let detail = finished.as_ref().err().map_or_else(|| who.clone(), |error| format!("{who}: {}", error.message()));
        _ = slot.write_event(AuditEvent {
            kind: EventKind::SignInFinished,
            subject: Some(sign_in.source.clone()),
            detail: Some(detail),
            success: finished.is_ok(),
            ..event
        });
        finished?;
        tracing::info!(source = sign_in.source, caller = sign_in.caller_id, "a caller has signed in to an upstream");
        if let Some(server) = sign_in.source.strip_prefix("mcp:") {
            self.mcp_servers.caller_signed_in(server);
        }
        Ok(sign_in)
    }

    /// An upstream that is called as its callers, and that this caller may use.
    /// Errors: `not_found`, also for an upstream of another tenant, and for a server that needs a role which the caller
    /// lacks.
    pub(super) fn source_for(&self, caller: &Caller, name: &str) -> Result<Arc<UserSource>, CallError> {
        let may_use = match name.split_once(':') {
            Some(("mcp", server)) => self.mcp_servers.admits(server, caller),
            Some(("openapi", collection)) => {
                let collections = self.tool_offer.collections.load();
                let found = collections.loaded.get(collection);
                found.is_some_and(|found| found.settings.owner.is_visible_to(&caller.tenant))
                    && self.tool_offer.is_on_for(name, caller)
            }
            _ => false,
        };
        self.user_source(name).filter(|_| may_use).ok_or_else(|| no_source(name))
    }

    /// An upstream that is called as its callers: `mcp:SERVER` or `openapi:COLLECTION`.
    pub(super) fn user_source(&self, name: &str) -> Option<Arc<UserSource>> {
        match name.split_once(':')? {
            ("mcp", server) => self.mcp_servers.user_source(server),
            ("openapi", collection) => self.tool_offer.collections.load().loaded.get(collection)?.user_source.clone(),
            _ => None,
        }
    }

    fn reach_of(&self, caller: &Caller) -> Reach {
        if caller.has_role("admin") { self.configuration.reach(caller) } else { Reach::Own }
    }
}

impl SignedInCaller<'_> {
    fn is(&self, caller: &Caller) -> bool {
        self.id == &*caller.id && self.tenant.is_none_or(|tenant| tenant == &*caller.tenant)
    }
}

pub(super) fn no_source(name: &str) -> CallError {
    let message = format!(
        "there is no upstream {name:?} that is called as its callers (`identity`); write `mcp:SERVER` or \
         `openapi:COLLECTION`"
    );
    CallError::new(ErrorCode::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gateway;
    use sekisho_config::Config;
    use sekisho_store::test_support::age_user_tokens;
    use sekisho_store::{NewUserToken, TokenOwner};

    /// The upstream was in an earlier configuration.
    #[tokio::test]
    async fn sign_ins_to_removed_upstreams_are_listed_revoked_and_forgotten_after_some_time() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { state_directory: Some(folder.path().to_owned()), ..Config::default() };
        let gateway = Gateway::start(config).await.unwrap();
        let ada = Caller::new("ada", "acme", vec!["admin".to_owned()]);
        for id in ["ann", "bob"] {
            let caller = Caller::new(id, "acme", Vec::new());
            let owner = TokenOwner {
                tenant: &caller.tenant,
                caller_key: &caller.key,
                caller_id: &caller.id,
                source: "mcp:removed",
            };
            let token = NewUserToken { kind: None, sealed: "sealed", scopes: "", lifetime: None };
            gateway.store.user_tokens().keep(owner, token).await.unwrap();
        }
        let listed = async || {
            let found = gateway.sign_ins.list(&ada).await.unwrap();
            found.into_iter().map(|token| token.caller_id).collect::<Vec<_>>()
        };
        let ann = SignedInCaller { id: "ann", tenant: None };
        gateway.sign_ins.revoke(&ada, "mcp:removed", Some(ann)).await.unwrap();
        assert_eq!(listed().await, ["bob"]);
        age_user_tokens(&gateway.store.user_tokens(), UNUSED_TTL - Duration::from_secs(60)).await;
        gateway.sign_ins.revoke_unused().await;
        assert_eq!(listed().await, ["bob"]);
        age_user_tokens(&gateway.store.user_tokens(), Duration::from_secs(60)).await;
        gateway.sign_ins.revoke_unused().await;
        assert_eq!(listed().await, [""; 0]);
        gateway.pipeline.settlement.audit.close().await;
        let trail = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
        let bob = "bob of the tenant acme: unused for 90 days";
        assert!(trail.contains("sign_in_revoked") && trail.contains(bob), "{trail}");
    }
}
