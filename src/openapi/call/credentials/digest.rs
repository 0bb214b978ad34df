//! HTTP Digest authentication (RFC 7616): the password is not sent, but a hash that answers the server's challenge.

use http::{HeaderMap, HeaderValue, Method, header};
use http_auth::{PasswordClient, PasswordParams};
use parking_lot::Mutex;
use url::{Position, Url};

use sekisho_config::Secret;

/// A user of one scheme, and the server's last challenge. Shared by the scheme's operations, since a challenge serves
/// for several requests, which are numbered.
pub(crate) struct DigestUser {
    username: String,
    password: Secret,
    challenge: Mutex<Option<PasswordClient>>,
}

sekisho_core::debug_fields!(DigestUser { username });

impl DigestUser {
    pub(super) fn new(username: String, password: Secret) -> Self {
        Self { username, password, challenge: Mutex::new(None) }
    }

    /// Keeps the first challenge of a refused request that can be answered: servers name the one that they prefer first
    /// (RFC 7616 §3.7). False where there is none.
    pub(crate) fn was_challenged(&self, headers: &HeaderMap) -> bool {
        let challenge = PasswordClient::try_from(headers.get_all(header::WWW_AUTHENTICATE)).ok();
        let answers = challenge.is_some();
        if answers {
            *self.challenge.lock() = challenge;
        }
        answers
    }

    /// The `Authorization` header of one request. `None` before the first challenge: the request is sent without it.
    pub fn authorization(&self, method: &Method, url: &Url, body: Option<&[u8]>) -> Option<HeaderValue> {
        let request = PasswordParams {
            username: &self.username,
            password: self.password.expose(),
            uri: &url[Position::BeforePath..Position::AfterQuery],
            method: method.as_str(),
            // The body that `qop=auth-int` covers.
            body: Some(body.unwrap_or_default()),
        };
        let answer = self.challenge.lock().as_mut()?.respond(&request).ok()?;
        let mut value = HeaderValue::try_from(answer).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7616 §3.9.1, without its fixed `cnonce`.
    const CHALLENGES: [&str; 2] = [
        r#"Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm=SHA-256, nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v""#,
        r#"Digest realm="http-auth@example.org", qop="auth", algorithm=MD5, nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v""#,
    ];

    fn user() -> DigestUser {
        DigestUser::new("Mufasa".into(), Secret::new("Circle of Life"))
    }

    fn challenged_with(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (header::WWW_AUTHENTICATE, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn requests_of_one_challenge_are_numbered_and_name_their_path() {
        let (user, url) = (user(), Url::parse("https://api.test/dir/index.html?a=b#part").unwrap());
        assert_eq!(user.authorization(&Method::GET, &url, None), None, "no challenge yet");
        assert!(user.was_challenged(&challenged_with(&CHALLENGES)));
        for number in ["nc=00000001", "nc=00000002"] {
            let value = user.authorization(&Method::GET, &url, None).unwrap();
            let text = value.to_str().unwrap();
            assert!(text.starts_with("Digest "), "{text}");
            for part in [number, "uri=\"/dir/index.html?a=b\"", "username=\"Mufasa\"", "algorithm=SHA-256"] {
                assert!(text.contains(part), "{part} in {text}");
            }
            assert!(value.is_sensitive() && !text.contains("Circle"), "{text}");
        }
    }

    #[test]
    fn a_challenge_that_asks_for_the_password_itself_is_not_answered() {
        for challenges in [
            &["Basic realm=\"x\""][..],
            &["Digest realm=\"x\""],
            &["Digest nonce=\"a\", realm=\"x\", algorithm=ROT13"],
            &["\"\""],
            &[],
        ] {
            let user = user();
            assert!(!user.was_challenged(&challenged_with(challenges)), "{challenges:?}");
            assert_eq!(user.authorization(&Method::GET, &Url::parse("http://a.test/").unwrap(), None), None);
        }
    }
}
