//! The authorization server of the gateway (`auth.broker`), for MCP clients whose users sign in at a provider that registers no clients.
//!
//! A client registers, or is described at its address (`client`), and sends a browser with a request (`authorization`). The page of consent
//! is of the gateway, and is shown for each request, before the browser leaves for the provider: with one client of the gateway there, the
//! provider itself would ask its users only once, for whichever client. The browser comes back from the provider in the browser that gave the
//! consent (`sign_in`), the client gets a code and exchanges it for tokens of the gateway's own (`tokens`, `keys`). A refresh asks the
//! provider, so that a user who was removed there has no access any more. Where upstreams take identity assertions, the provider gives them
//! for the ID token of a session (`upstream_assertion`).
//!
//! Codes and sessions are in the store; everything that another party carries meanwhile is sealed, and any replica opens it.

mod authorization;
mod client;
mod error;
mod keys;
mod preset;
mod provider;
mod redirect;
mod server;
mod sign_in;
#[cfg(test)]
mod tests;
mod tokens;
mod upstream_assertion;
mod user;

pub use self::authorization::id_of_state;
pub use self::error::{OAuthError, OAuthErrorCode};
pub use self::keys::{BrokerKeys, JWKS, accepted_issuers};
pub use self::server::{AuthorizationServer, Broker, MAX_METADATA_BYTES};
pub use self::sign_in::{AskedConsentPage, AuthorizeRefusal, BrowserCookie, ProviderReply, SentBrowser};
pub use self::tokens::{SessionEvent, TokenAnswer, TokenRefusal};
