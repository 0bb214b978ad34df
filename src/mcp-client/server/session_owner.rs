//! Whose a session with a server is.

use std::sync::Arc;

use http::HeaderMap;
use sha2::{Digest, Sha256};

use sekisho_config::McpShare;
use sekisho_core::call::{CallContext, Via};
use sekisho_core::caller::Owner;
use sekisho_core::peer::ClientSession;
use sekisho_user_tokens::User;

/// On whose behalf a session is made.
#[derive(Debug)]
pub(crate) struct SessionOwner {
    /// For whom it counts.
    pub(super) caller: Owner,
    /// `None` for the gateway's own, over which the server's lists are read.
    pub(crate) key: Option<OwnerKey>,
    /// The caller's own, sent with every request.
    pub(crate) headers: HeaderMap,
    /// Whose token is sent with every request, with `identity: per_user`.
    pub(crate) user: Option<User>,
    /// The client's session that it belongs to, and ends with.
    pub(crate) client: Option<Arc<dyn ClientSession>>,
}

/// The key that tells owners apart.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct OwnerKey {
    /// Key of the caller; the tenant where its callers share a session.
    pub(super) scope: Arc<str>,
    part: Part,
    /// SHA-256 of the caller's own headers, where there are any.
    headers: Option<[u8; 32]>,
}

/// Which of a caller's clients it is, as far as that is known.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Part {
    /// An MCP client's session.
    McpSession(u64),
    /// All MCP clients whose revision has no sessions.
    SessionlessMcp,
    /// A session that calls name by its id, over REST or by an agent.
    Session(Arc<str>),
    /// Calls that name none.
    Caller,
    /// The tenant's callers together.
    Tenant,
}

/// The gateway's own.
impl Default for SessionOwner {
    fn default() -> Self {
        Self { caller: Owner::gateway().clone(), key: None, headers: HeaderMap::new(), user: None, client: None }
    }
}

impl SessionOwner {
    /// The owner of the session of a call. `headers` are the headers with the caller's own tokens.
    pub(super) fn of(call: &CallContext, share: McpShare, headers: HeaderMap) -> Self {
        let digest = (!headers.is_empty()).then(|| digest(&headers));
        let caller = call.caller.owner.clone();
        if share == McpShare::Tenant {
            let key = OwnerKey { scope: Arc::clone(&call.caller.tenant), part: Part::Tenant, headers: digest };
            return Self { caller, key: Some(key), headers, user: None, client: None };
        }
        let part = match (&call.client.session, &call.origin.session) {
            (Some(client), _) => Part::McpSession(client.id()),
            (None, Some(session)) if call.via != Via::Mcp => Part::Session(Arc::clone(&session.id)),
            (None, _) if call.via == Via::Mcp => Part::SessionlessMcp,
            (None, _) => Part::Caller,
        };
        let key = OwnerKey { scope: Arc::clone(&call.caller.key), part, headers: digest };
        Self { caller, key: Some(key), headers, user: None, client: call.client.session.clone() }
    }

    /// The gateway's own, which lists the tools as this caller.
    pub(super) fn listing_as(user: User) -> Self {
        Self { user: Some(user), ..Self::default() }
    }

    /// Whether its client speaks a revision with sessions, in which a server may ask it something at any time.
    pub(crate) fn has_handshake(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.is_initialized())
    }

    /// Whether only one caller's calls go over the session.
    pub(crate) fn is_one_caller(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.part != Part::Tenant)
    }

    /// Returns when the client's session ends, if ever.
    pub(super) async fn client_ended(&self) {
        match &self.client {
            Some(client) => client.ended().cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl OwnerKey {
    /// Whether it is one client's session.
    pub(super) fn is_of_client(&self) -> bool {
        matches!(self.part, Part::McpSession(_))
    }
}

// It tells of callers and their credentials.
sekisho_core::debug_fields!(OwnerKey {});

fn digest(headers: &HeaderMap) -> [u8; 32] {
    let mut digest = Sha256::new();
    for (name, value) in headers {
        digest = digest.chain_update(name).chain_update([0x1f]).chain_update(value.as_bytes()).chain_update([0x1f]);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_core::call::{CallOrigin, Caller};
    use sekisho_core::session::Session;

    fn call(id: &str, tenant: &str, via: Via) -> CallContext {
        CallContext::new("t", Arc::new(Caller::new(id, tenant, Vec::new())), via)
    }

    #[test]
    fn each_client_of_each_caller_is_an_owner_and_the_same_one_every_time() {
        let in_session = |id: &str, session: &str| {
            let call = call(id, "t", Via::Rest);
            let session = Some(Arc::new(Session::new(&call.caller, session)));
            CallContext { origin: CallOrigin { session, ..CallOrigin::default() }, ..call }
        };
        let user = |name: &'static str| HeaderMap::from_iter([(http::header::FROM, name.parse().unwrap())]);
        let key = |call: &CallContext, headers| SessionOwner::of(call, McpShare::Never, headers).key;
        let keys = || {
            [
                key(&call("a", "t", Via::Rest), HeaderMap::new()),
                key(&call("b", "t", Via::Rest), HeaderMap::new()),
                key(&call("a", "other", Via::Rest), HeaderMap::new()),
                key(&call("a", "t", Via::Mcp), HeaderMap::new()),
                key(&in_session("a", "one"), HeaderMap::new()),
                key(&in_session("a", "two"), HeaderMap::new()),
                key(&in_session("b", "one"), HeaderMap::new()),
                key(&call("a", "t", Via::Rest), user("ada")),
                key(&call("a", "t", Via::Rest), user("bob")),
            ]
        };
        let (all, again) = (keys(), keys());
        for (n, key) in all.iter().enumerate() {
            for (m, other) in again.iter().enumerate() {
                assert_eq!(key == other, n == m, "{n} {m}");
            }
        }
        // An agent goes on where its caller's other calls of that session were.
        let agent = CallContext { via: Via::Agent, ..in_session("a", "one") };
        assert!(key(&agent, HeaderMap::new()) == all[4]);
    }

    #[test]
    fn a_tenant_may_share() {
        let key = |id: &str, tenant: &str| {
            SessionOwner::of(&call(id, tenant, Via::Mcp), McpShare::Tenant, HeaderMap::new()).key
        };
        assert!(key("a", "t") == key("b", "t"));
        assert!(key("a", "t") != key("a", "other"));
    }
}
