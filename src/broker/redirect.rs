//! Redirect addresses: with which a client may register, and which registered one a request names.

use url::{Host, Url};

use super::error::{OAuthError, OAuthErrorCode};

/// Longest address.
const MAX_BYTES: usize = 512;

/// Schemes of editors, which their programs take at the user's machine. Others have a dot (RFC 8252 §7.1).
const EDITORS: [&str; 10] =
    ["claude", "cursor", "kiro", "raycast", "trae", "vscode", "vscode-insiders", "vscodium", "windsurf", "zed"];

/// Errors: `invalid_redirect_uri`: a browser must not be sent there. `permitted`: the patterns of the configuration;
/// none permits the usual ones.
pub(crate) fn check(text: &str, permitted: &[String]) -> Result<(), OAuthError> {
    let refused = |why: &str| {
        let shown: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
        Err(OAuthError::new(OAuthErrorCode::InvalidRedirectUri, format!("the redirect address {shown:?} {why}")))
    };
    if text.len() > MAX_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return refused("is longer than 512 bytes, or has characters that no address has");
    }
    let Ok(url) = Url::parse(text) else { return refused("is no address") };
    if url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        return refused("has a fragment or a user name; leave them out");
    }
    if !permitted.is_empty() {
        return match permitted.iter().any(|pattern| permits(pattern, &url)) {
            true => Ok(()),
            false => refused("is not among those that the operators of this gateway permit (`auth.broker.redirects`)"),
        };
    }
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_loopback(&url) => Ok(()),
        "http" => refused("must be https, or an address of the user's machine"),
        scheme if scheme.contains('.') || EDITORS.contains(&scheme) => Ok(()),
        _ => refused(
            "has a scheme that is no known editor's; the operators of this gateway can permit it (`auth.broker.redirects`)",
        ),
    }
}

/// Compared as parsed, so that `..` or an upper-case host is no other address. A pattern ends after the host at least.
fn permits(pattern: &str, url: &Url) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => {
            let Ok(beginning) = Url::parse(beginning) else { return false };
            let is_same_host = beginning.scheme() == url.scheme() && beginning.host() == url.host();
            let is_same_port = beginning.port_or_known_default() == url.port_or_known_default()
                || (beginning.port().is_none() && is_loopback(url));
            is_same_host && is_same_port && url.path().starts_with(beginning.path())
        }
        None => Url::parse(pattern).is_ok_and(|pattern| is_same(&pattern, url)),
    }
}

/// Whether a registered address is the requested one: byte for byte, and of the user's machine at any port (RFC 8252 §7.3).
pub(crate) fn is_registered(registered: &str, requested: &str) -> bool {
    if registered == requested {
        return true;
    }
    match (Url::parse(registered), Url::parse(requested)) {
        (Ok(known), Ok(url)) => url.as_str() == requested && is_loopback(&known) && is_same(&known, &url),
        _ => false,
    }
}

fn is_same(known: &Url, url: &Url) -> bool {
    if !is_loopback(known) || known.scheme() != "http" {
        return known == url;
    }
    let without_port = |url: &Url| {
        let mut url = url.clone();
        // An address with a host has a place for a port.
        let _ = url.set_port(None);
        url
    };
    without_port(known) == without_port(url)
}

/// Whether a program on the user's machine gets the answer, and no server of somebody.
pub(crate) fn is_of_this_machine(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| is_loopback(&url))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_registers_with_addresses_that_a_browser_may_be_sent_to() {
        for (text, is_accepted) in [
            ("https://app.example/cb", true),
            ("https://app.example/cb?x=1", true),
            ("http://127.0.0.1/cb", true),
            ("http://127.0.0.1:33418/", true),
            ("http://[::1]:1/cb", true),
            ("http://localhost:6274/oauth/callback", true),
            ("cursor://anysphere.cursor-retrieval/oauth/callback", true),
            ("vscode://x/cb", true),
            ("com.example.app:/cb", true),
            ("http://app.example/cb", false),
            ("http://localhost.evil.example/cb", false),
            ("http://127.0.0.1.evil.example/", false),
            ("http://127.0.0.1@evil.example/", false),
            ("https://user@app.example/", false),
            ("https://app.example/#x", false),
            ("https://app.example\\@evil.example/", false),
            ("javascript:alert(1)", false),
            ("JavaScript://x/%0aalert(1)", false),
            ("data:text/html,x", false),
            ("file:///etc/passwd", false),
            ("vbscript:x", false),
            ("blob:https://x", false),
            ("myapp:/cb", false),
            ("/cb", false),
            ("", false),
            ("https://app.example/\u{e9}", false),
            ("https://app.example/a b", false),
        ] {
            assert_eq!(check(text, &[]).is_ok(), is_accepted, "{text}");
        }
        assert!(check(&format!("https://app.example/{}", "a".repeat(500)), &[]).is_err());
    }

    #[test]
    fn only_permitted_addresses_where_some_are() {
        let permitted = ["https://app.example/*".to_owned(), "http://127.0.0.1/cb".to_owned(), "myapp:/cb".to_owned()];
        for (text, is_accepted) in [
            ("https://app.example/any", true),
            ("https://app.example:444/any", false),
            ("https://app.example.evil.example/any", false),
            ("https://app.example@evil.example/", false),
            ("https://other.example/", false),
            ("http://127.0.0.1:7/cb", true),
            ("http://127.0.0.1:7/other", false),
            ("myapp:/cb", true),
            ("myapp:/cb2", false),
        ] {
            assert_eq!(check(text, &permitted).is_ok(), is_accepted, "{text}");
        }
        assert!(check("https://evil.example/", &["https://*".to_owned()]).is_err(), "a pattern has a host");
    }

    #[test]
    fn a_request_names_a_registered_address_byte_for_byte_or_loopback_at_any_port() {
        let web = "https://app.example/cb";
        for (registered, requested, is_same) in [
            (web, web, true),
            (web, "https://app.example/cb/", false),
            (web, "https://app.example/cb?x=1", false),
            (web, "https://app.example/cb#x", false),
            (web, "https://app.example:443/cb", false),
            (web, "https://APP.example/cb", false),
            (web, "https://app.example/x/../cb", false),
            (web, "https://app.example.evil.example/cb", false),
            (web, "http://app.example/cb", false),
            ("http://127.0.0.1/cb", "http://127.0.0.1:5000/cb", true),
            ("http://127.0.0.1:1/cb", "http://127.0.0.1:5000/cb", true),
            ("http://127.0.0.1:1/cb", "http://127.0.0.1:5000/cb2", false),
            ("http://127.0.0.1:1/cb", "http://localhost:5000/cb", false),
            ("http://127.0.0.1:1/cb", "https://127.0.0.1:5000/cb", false),
            ("http://127.0.0.1:1/cb", "http://127.0.0.1:5000/x/../cb", false),
            ("http://127.0.0.1:1/cb", "http://user@127.0.0.1:5000/cb", false),
            ("http://localhost/cb", "http://localhost.evil.example/cb", false),
            ("cursor://a/cb", "cursor://b/cb", false),
        ] {
            assert_eq!(is_registered(registered, requested), is_same, "{registered} {requested}");
        }
    }
}
