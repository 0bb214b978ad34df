//! The identity of a caller, and the owner of resources that are held for it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use super::identity_assertion::SignInSession;
use super::token_scopes::TokenScopes;
use super::tool_scope::ToolScope;

/// The caller. Only `auth` (and tests) creates one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    pub id: Arc<str>,
    pub tenant: Arc<str>,
    pub roles: Vec<String>,
    pub anonymous: bool,
    /// Tenant and identity in one string: the key of everything a caller owns.
    pub key: Arc<str>,
    /// The owner of shared resources that are held for this caller.
    pub owner: Owner,
    /// The id of the managed key that it sent, if it sent one.
    pub key_id: Option<Arc<str>>,
    /// The tools that its key, and the endpoint of its request, leave to it.
    pub tools: ToolScope,
    /// The tools that its token's scopes leave out.
    pub scopes: TokenScopes,
    /// Who uses the credentials, where that is configured.
    pub person: Option<Arc<str>>,
    /// The token that it sent, for upstreams that are called with one made of it.
    pub token: CallerToken,
    /// The persons who have had a token of its managed key, or of a key that made this one: each may be who sends it.
    pub creators: Vec<String>,
}

/// The token by which a caller was authenticated: in memory only, and no part of who the caller is. Two are always equal.
#[derive(Clone, Default)]
pub struct CallerToken(Option<Arc<SubjectToken>>);

/// A verified token of an issuer.
pub struct SubjectToken {
    pub text: String,
    pub issuer: String,
    pub subject: String,
    pub audiences: Vec<String>,
    /// Seconds since 1970.
    pub expires: u64,
    /// Of a token of the gateway itself.
    pub session: Option<SignInSession>,
}

/// The holder of units of a shared resource: a caller of a tenant. Callers without credentials are told apart by their
/// address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    pub tenant: Arc<str>,
    /// Unique over all tenants.
    pub caller: Arc<str>,
}

/// The tenant of callers whose key or token names none.
pub const DEFAULT_TENANT: &str = "default";

/// The tenant of callers without credentials.
const PUBLIC: &str = "public";

/// Separates the parts of [`Caller::key`]. It is a control character (unit separator), which `auth` refuses in ids,
/// tenants and issuers, so two callers never share a key.
const KEY_SEPARATOR: char = '\u{1f}';

impl Caller {
    /// A caller with an id of ours, such as an API key's. Stored data is found by this key.
    pub fn new(id: &str, tenant: &str, roles: Vec<String>) -> Self {
        Self::with_key(id, tenant, roles, format!("{tenant}{KEY_SEPARATOR}{id}"))
    }

    /// A caller identified by an issuer: different from a caller with the same id of ours. The issuer's length marks
    /// its end, whatever characters it contains.
    pub fn of_issuer(issuer: &str, subject: &str, tenant: &str, roles: Vec<String>) -> Self {
        let length = issuer.len();
        let key = format!("{tenant}{KEY_SEPARATOR}{length}{KEY_SEPARATOR}{issuer}#{subject}");
        Self::with_key(subject, tenant, roles, key)
    }

    /// The same caller with an id that names its issuer too: where there are several, each may have the same subjects.
    #[must_use]
    pub fn named_with_issuer(self) -> Self {
        let id = Self::parts_of_key(&self.key).1.into();
        Self { id, ..self }
    }

    /// The caller without credentials: no roles, tenant `public`.
    pub fn anonymous() -> Self {
        Self { anonymous: true, ..Self::new("anonymous", PUBLIC, Vec::new()) }
    }

    /// The same caller, with another owner.
    #[must_use]
    pub fn owned_by(&self, owner: Owner) -> Self {
        Self { owner, ..self.clone() }
    }

    /// The same caller with a managed key, which may leave it fewer tools.
    #[must_use]
    pub fn with_managed_key(self, id: Arc<str>, tools: ToolScope) -> Self {
        Self { key_id: Some(id), tools, ..self }
    }

    /// The same caller, whose token has these scopes.
    #[must_use]
    pub fn with_scopes(self, scopes: TokenScopes) -> Self {
        Self { scopes, ..self }
    }

    /// The same caller, whose credentials this person uses.
    #[must_use]
    pub fn used_by(&self, person: Option<&str>) -> Self {
        Self { person: person.map(Into::into), ..self.clone() }
    }

    /// The same caller, who sent this token.
    #[must_use]
    pub fn with_token(self, token: SubjectToken) -> Self {
        Self { token: CallerToken(Some(Arc::new(token))), ..self }
    }

    /// The same caller without the token that it sent. Data about a caller that outlives its call need not have the
    /// token.
    #[must_use]
    pub fn without_token(self: &Arc<Self>) -> Arc<Self> {
        match self.token.get() {
            Some(_) => Arc::new(Self { token: CallerToken::default(), ..(**self).clone() }),
            None => Arc::clone(self),
        }
    }

    /// Who this is among approvers: two callers of one person are one approver. Otherwise the id, and for a token its issuer
    /// too.
    pub fn person(&self) -> &str {
        self.person.as_deref().unwrap_or_else(|| Self::parts_of_key(&self.key).1)
    }

    /// The same caller with a managed key of which these persons have had a token.
    #[must_use]
    pub fn created_by(self, creators: Vec<String>) -> Self {
        Self { creators, ..self }
    }

    /// Everybody who this may be among approvers: the [`person`](Self::person), and the creators of its key.
    pub fn persons(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.person()).chain(self.creators.iter().map(String::as_str))
    }

    /// The tenant and the rest of a [`Caller::key`], as a text for people.
    pub fn parts_of_key(key: &str) -> (&str, &str) {
        let (tenant, identity) = key.split_once(KEY_SEPARATOR).unwrap_or((key, ""));
        // Of a token, without the length of its issuer.
        (tenant, identity.split_once(KEY_SEPARATOR).map_or(identity, |(_length, identity)| identity))
    }

    fn with_key(id: &str, tenant: &str, roles: Vec<String>, key: String) -> Self {
        let (tenant, key) = (Arc::<str>::from(tenant), Arc::<str>::from(key));
        let owner = Owner { tenant: Arc::clone(&tenant), caller: Arc::clone(&key) };
        let (key_id, tools) = (None, ToolScope::default());
        Self {
            id: id.into(),
            tenant,
            roles,
            anonymous: false,
            key,
            owner,
            key_id,
            tools,
            scopes: TokenScopes::default(),
            person: None,
            token: CallerToken::default(),
            creators: Vec::new(),
        }
    }

    /// The tenant of a key, and the identity within it.
    pub fn tenant_and_identity(key: &str) -> (&str, &str) {
        key.split_once(KEY_SEPARATOR).unwrap_or((key, key))
    }

    /// The identity within the tenant: the id, and for a token its issuer too.
    pub fn identity(&self) -> &str {
        self.key.get(self.tenant.len() + KEY_SEPARATOR.len_utf8()..).unwrap_or(&self.key)
    }

    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|held| held == role)
    }

    pub fn has_one_of(&self, roles: &[String]) -> bool {
        roles.iter().any(|role| self.has_role(role))
    }
}

impl CallerToken {
    /// The token, if the caller sent one and the caller of a stored run was not made anew.
    pub fn get(&self) -> Option<&SubjectToken> {
        self.0.as_deref()
    }
}

impl PartialEq for CallerToken {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for CallerToken {}

impl Hash for CallerToken {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

crate::debug_fields!(SubjectToken { issuer });

impl fmt::Debug for CallerToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CallerToken")
    }
}

impl Owner {
    /// A peer without credentials. The first 64 bits of an IPv6 address count: its user chooses the rest.
    pub fn of_address(address: IpAddr) -> Self {
        let network = match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => IpAddr::from(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        };
        let caller = format!("{PUBLIC}{KEY_SEPARATOR}anonymous{KEY_SEPARATOR}{network}");
        Self { tenant: PUBLIC.into(), caller: caller.into() }
    }

    /// One connection of a peer that sends the requests of many clients.
    pub fn of_connection(peer: SocketAddr) -> Self {
        let caller = format!("{PUBLIC}{KEY_SEPARATOR}anonymous{KEY_SEPARATOR}{peer}");
        Self { tenant: PUBLIC.into(), caller: caller.into() }
    }

    /// The gateway itself, for its own requests.
    pub fn gateway() -> &'static Self {
        static GATEWAY: LazyLock<Owner> = LazyLock::new(|| Owner { tenant: "".into(), caller: "".into() });
        &GATEWAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_without_credentials_are_told_apart_by_the_network_that_is_theirs() {
        let owner = |address: &str| Owner::of_address(address.parse().unwrap());
        assert_eq!(owner("2001:db8:1:2::1"), owner("2001:db8:1:2:ffff::9"));
        assert_ne!(owner("2001:db8:1:2::1"), owner("2001:db8:1:3::1"));
        assert_ne!(owner("192.0.2.1"), owner("192.0.2.2"));
        assert_eq!(owner("192.0.2.1"), owner("::ffff:192.0.2.1"));
        let ann = Caller::new("ann", "acme", Vec::new());
        assert_eq!(Caller::parts_of_key(&ann.key), ("acme", "ann"));
        let token = Caller::of_issuer("https://issuer.example", "ann", "acme", Vec::new());
        assert_eq!(Caller::parts_of_key(&token.key), ("acme", "https://issuer.example#ann"));
        assert_eq!((ann.person(), token.person()), ("ann", "https://issuer.example#ann"));
        let key = Arc::clone(&token.key);
        let named = token.named_with_issuer();
        assert_eq!((&*named.id, &named.key), ("https://issuer.example#ann", &key), "what it owns is found as before");
        assert_eq!(ann.used_by(Some("Ann")).person(), "Ann");
        assert_eq!((&ann.owner.tenant, &ann.owner.caller), (&ann.tenant, &ann.key));
    }

    #[test]
    fn no_two_callers_share_a_key_and_stored_keys_are_unchanged() {
        let key = |id: &str, tenant: &str| Caller::new(id, tenant, Vec::new());
        let token = |issuer: &str, id: &str, tenant: &str| Caller::of_issuer(issuer, id, tenant, Vec::new());
        // The keys in existing state directories.
        assert_eq!(&*key("ann", "acme").key, "acme\u{1f}ann");
        assert_eq!(&*Caller::anonymous().key, "public\u{1f}anonymous");
        assert!(token("https://i.example", "ann", "acme").key.ends_with("https://i.example#ann"));
        assert_eq!(&*token("https://i.example", "ann", "acme").id, "ann");
        let callers = [
            key("ann", "acme"),
            key("https://i.example#ann", "acme"),
            key("17 https://i.example#ann", "acme"),
            key("anonymous", "acme"),
            Caller::anonymous(),
            token("https://i.example", "ann", "acme"),
            token("https://i.example", "ann", "other"),
            token("https://i.example#a", "b", "acme"),
            token("https://i.example", "a#b", "acme"),
            token("", "https://i.example#ann", "acme"),
        ];
        for (index, caller) in callers.iter().enumerate() {
            assert_eq!(*caller.key, format!("{}\u{1f}{}", caller.tenant, caller.identity()));
            for other in &callers[index + 1..] {
                assert_ne!(caller.key, other.key);
            }
        }
    }
}
