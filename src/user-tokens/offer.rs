//! The refusal of a caller without a token, with the data that the caller needs to sign in.

use serde::{Deserialize, Serialize};

use super::{Begun, SIGN_IN_KIND, User, UserSource, UserTokens};
use sekisho_core::error::{Blame, CallError, ErrorCode, NeededSignIn};
use sekisho_store::{StoredSignIn, TokenOwner};

/// Characters of a one-time code: no vowels, so that no word appears, and none that look alike (RFC 8628 §6.1).
const CODE_CHARACTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// The sealed part of a sign-in that has not ended. No `Debug`: it holds secrets.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct OpenSignIn {
    pub(super) code: String,
    /// Scopes that a call needed.
    pub(super) scopes: Vec<String>,
    /// Once a browser was sent to the authorization server.
    pub(super) begun: Option<Begun>,
    /// The address of the upstream that its tokens are for.
    pub(super) upstream: String,
}

impl UserSource {
    /// The refusal of a call whose caller has no token with these scopes.
    pub(super) async fn sign_in_required(&self, user: &User, scopes: &[String]) -> CallError {
        let needed = match self.offer(user, scopes).await {
            Ok(needed) => needed,
            Err(error) => return error,
        };
        let why = match scopes {
            [] if self.credential_header().is_some() => {
                format!("{} is called with a credential of its caller, and none is stored that it accepts", self.name)
            }
            [] => format!("{} is called as its caller, who has not signed in to it", self.name),
            _ => format!("{} requires the scopes {:?}, which its caller has not granted", self.name, scopes.join(" ")),
        };
        let (url, what) = (&needed.url, if self.credential_header().is_some() { "store one" } else { "sign in" });
        let message = format!(
            "{why}: {what} at {url} in a browser, with the console session of this caller or the one-time code \
             `error_info.sign_in.code`; then send the call again"
        );
        CallError::new(ErrorCode::SignInRequired, message).blaming(Blame::Call).signing_in_at(needed)
    }

    /// Where the caller can sign in.
    /// Errors: `overloaded` when the store cannot be written, or nothing can be sealed.
    pub async fn offer(&self, user: &User, scopes: &[String]) -> Result<NeededSignIn, CallError> {
        let (stored, open) = self.offer_once(user, scopes, true).await?;
        let (stored, open) = match scopes.iter().all(|scope| open.scopes.contains(scope)) {
            true => (stored, open),
            false => self.offer_once(user, scopes, false).await?,
        };
        Ok(NeededSignIn {
            url: self.tokens.page_of(&stored.id),
            code: open.code,
            expires_at: stored.expires.to_string(),
            source: self.name.to_string(),
        })
    }

    async fn offer_once(
        &self,
        user: &User,
        scopes: &[String],
        may_reuse: bool,
    ) -> Result<(StoredSignIn, OpenSignIn), CallError> {
        let (owner, tokens) = (self.owner(user), &self.tokens);
        let upstream = self.upstream.clone();
        let new = OpenSignIn { code: new_code(), scopes: scopes.to_vec(), begun: None, upstream };
        let sealed = tokens.seal(SIGN_IN_KIND, owner, &new)?;
        let id = hex::encode(rand::random::<[u8; 32]>());
        let stored = tokens.store.offer_sign_in(owner, &id, &sealed, may_reuse).await?;
        let open = if stored.id == id { new } else { tokens.opened(&stored)? };
        Ok((stored, open))
    }
}

impl UserTokens {
    fn page_of(&self, id: &str) -> String {
        format!("{}{id}", self.page)
    }

    /// The sealed part of a stored sign-in.
    pub(super) fn opened(&self, stored: &StoredSignIn) -> Result<OpenSignIn, CallError> {
        self.open(SIGN_IN_KIND, owner_of_sign_in(stored), &stored.sealed)
    }
}

pub(super) fn owner_of_sign_in(stored: &StoredSignIn) -> TokenOwner<'_> {
    let StoredSignIn { tenant, caller_key, caller_id, source, .. } = stored;
    TokenOwner { tenant, caller_key, caller_id, source }
}

/// Such as `BCDF-GHJK`: 34 bits, of which few guesses are allowed.
fn new_code() -> String {
    let mut code: String =
        (0..8).map(|_| char::from(CODE_CHARACTERS[rand::random_range(0..CODE_CHARACTERS.len())])).collect();
    code.insert(4, '-');
    code
}

/// As a person may write it.
pub(super) fn plain_code(written: &str) -> String {
    written.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_uppercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_people_write_it() {
        let code = new_code();
        assert_eq!(code.len(), 9);
        for written in [code.clone(), code.to_lowercase(), code.replace('-', " "), format!(" {code}\n")] {
            assert_eq!(plain_code(&written), code.replace('-', ""), "{written:?}");
        }
        assert_ne!(new_code(), code);
    }
}
