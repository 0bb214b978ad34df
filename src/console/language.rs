//! The language of a page: the address's, the one that was chosen before, or the browser's.

use axum::extract::Request;
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::middleware::Next;
use axum::response::Response;
use url::form_urlencoded;

use super::text::Language;

/// The cookie with the choice.
const COOKIE_NAME: &str = "sekisho-console-language";

/// The parameter of an address.
const PARAMETER: &str = "lang";

/// The language of a request.
pub(super) fn of(uri: &Uri, headers: &HeaderMap) -> Language {
    chosen(uri).or_else(|| remembered(headers)).unwrap_or_else(|| Language::accepted(headers))
}

/// The same address in this language.
pub(super) fn address_in(uri: &Uri, language: Language) -> String {
    let others = parameters(uri).filter(|(name, _)| name != PARAMETER);
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(others).append_pair(PARAMETER, language.tag());
    format!("{}?{}", uri.path(), query.finish())
}

/// Remembers the language that an address says.
pub(super) async fn remember(request: Request, next: Next) -> Response {
    let language = chosen(request.uri());
    let mut response = next.run(request).await;
    if let Some(language) = language {
        let cookie =
            format!("{COOKIE_NAME}={}; Path=/console; HttpOnly; SameSite=Lax; Max-Age=31536000", language.tag());
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
    }
    response
}

fn chosen(uri: &Uri) -> Option<Language> {
    parameters(uri).find(|(name, _)| name == PARAMETER).and_then(|(_, tag)| Language::of_tag(&tag))
}

fn parameters(uri: &Uri) -> impl Iterator<Item = (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)> {
    form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
}

fn remembered(headers: &HeaderMap) -> Option<Language> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE_NAME).and_then(|(_, tag)| Language::of_tag(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_comes_before_the_choice_and_the_choice_before_the_browser() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
        };
        let japanese = ("accept-language", "ja");
        for (uri, pairs, language) in [
            ("/console", &[][..], Language::English),
            ("/console", &[japanese], Language::Japanese),
            ("/console", &[japanese, ("cookie", "a=b; sekisho-console-language=en")], Language::English),
            ("/console?q=1&lang=ja", &[("cookie", "sekisho-console-language=en")], Language::Japanese),
            ("/console?lang=xx", &[japanese], Language::Japanese),
        ] {
            assert_eq!(of(&uri.parse().unwrap(), &headers(pairs)), language, "{uri} {pairs:?}");
        }
        let uri = "/console/tools?q=a%26b&lang=en&page=2".parse().unwrap();
        assert_eq!(address_in(&uri, Language::Japanese), "/console/tools?q=a%26b&page=2&lang=ja");
    }
}
