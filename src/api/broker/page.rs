//! The two pages: the question whether a client may act for the user, and an error that no client is told of.

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_FRAME_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use html_escape::{encode_double_quoted_attribute, encode_text};
use url::Url;

use super::{not_stored, status, with_retry};
use sekisho_broker::{AskedConsentPage, OAuthError};
use sekisho_core::visible_text::{visible, visible_name};

const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:3rem auto;padding:0 1rem}\
                     code{overflow-wrap:anywhere}dt{font-weight:600}dd{margin:0 0 1rem}button{font:inherit;padding:.5rem 1.25rem}";

/// Each text of the client is escaped, and its hidden characters are shown.
pub(super) fn consent(asked: &AskedConsentPage) -> Response {
    let text = |text: &str| encode_text(&visible(text)).into_owned();
    let name = if asked.client_name.is_empty() { "A client without a name" } else { asked.client_name.as_str() };
    let scopes = match asked.scopes.is_empty() {
        true => String::new(),
        false => format!("<dt>with these scopes</dt><dd><code>{}</code></dd>", text(&asked.scopes.join(" "))),
    };
    page(
        StatusCode::OK,
        "Allow access?",
        &format!(
            "<p><strong>{name}</strong> asks to use the tools of this gateway as you.</p>\
             <p>Anybody can write this name. Go on only if you have just begun this yourself, in that program.</p>\
             <dl><dt>the client</dt><dd><code>{client}</code></dd>\
             <dt>the answer goes to {destination}</dt><dd><code>{redirect}</code></dd>{scopes}</dl>\
             <form method=\"post\" action=\"/oauth/consent\">\
             <input type=\"hidden\" name=\"request\" value=\"{form}\">\
             <button name=\"decision\" value=\"allow\">Allow, and sign in</button> \
             <button name=\"decision\" value=\"deny\">Deny</button></form>",
            name = encode_text(&visible_name(name)),
            client = text(&asked.client),
            destination = text(&destination(&asked.redirect)),
            redirect = text(&asked.redirect),
            form = encode_double_quoted_attribute(&asked.form),
        ),
    )
}

/// Who gets the answer.
fn destination(redirect: &str) -> String {
    let Ok(url) = Url::parse(redirect) else { return "an unknown address".to_owned() };
    match (url.scheme(), url.host_str()) {
        ("http", _) => "a program on your machine".to_owned(),
        ("https", Some(host)) => host.to_owned(),
        (scheme, _) => format!("the program for {scheme}: on your machine"),
    }
}

pub(super) fn error(error: &OAuthError) -> Response {
    let (code, text) = (error.code.as_str(), encode_text(&*visible(&error.description)).into_owned());
    let page = page(status(error), "This does not go on", &format!("<p>{text}</p><p><code>{code}</code></p>"));
    with_retry(page, error)
}

fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let nonce = hex::encode(rand::random::<[u8; 16]>());
    let text = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style nonce=\"{nonce}\">{STYLE}</style></head><body><main><h1>{title}</h1>{body}</main></body></html>"
    );
    // Without `form-action`: browsers apply it to the redirects after a form, which lead to the provider and to the client.
    let policy = format!("default-src 'none'; base-uri 'none'; frame-ancestors 'none'; style-src 'nonce-{nonce}'");
    let mut response = not_stored((status, text).into_response());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    if let Ok(policy) = HeaderValue::try_from(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // `no-referrer` would make browsers send `Origin: null` with the form.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use sekisho_broker::BrowserCookie;

    use super::*;

    #[tokio::test]
    async fn a_client_writes_no_html_and_the_page_is_in_no_frame() {
        let asked = AskedConsentPage {
            // The first letter of the editor's name is a Cyrillic one.
            client_name: "<script>alert(1)</script>\u{202e} \u{421}ursor".into(),
            client: "\"><img src=x>".into(),
            redirect: "https://evil.example/<b>".into(),
            scopes: vec!["crm:write".into()],
            form: "\"><b>".into(),
            cookie: BrowserCookie { id: "1".into(), text: "secret".into() },
        };
        let response = consent(&asked);
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        for hostile in ["<script>", "<img", "<b>", "\u{202e}", "\u{421}ursor", "secret"] {
            assert!(!text.contains(hostile), "{hostile}: {text}");
        }
        for shown in ["evil.example", "crm:write", "\\u202e", "\\u0421ursor", "name=\"request\""] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
    }
}
