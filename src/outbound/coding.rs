//! The content coding of an answer (RFC 9110 §8.4), before it is decoded.

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue, Response};

/// Maximum characters of a coding in an error.
const MAX_SHOWN: usize = 40;

/// In the answer's extensions: the coding that nobody decodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnknownCoding(pub(super) String);

/// Writes the coding of an answer as the decoder reads it: one of the codings that were asked for, or none. Any other,
/// and several, are noted in the extensions.
pub(super) fn normalize<B>(mut answer: Response<B>) -> Response<B> {
    if !answer.headers().contains_key(CONTENT_ENCODING) {
        return answer;
    }
    let codings = codings(answer.headers());
    answer.headers_mut().remove(CONTENT_ENCODING);
    let decoded = match codings.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => None,
        // §8.4.1.3: the older name.
        ["gzip" | "x-gzip"] => Some("gzip"),
        ["deflate"] => Some("deflate"),
        ["br"] => Some("br"),
        _ => {
            let shown: String = codings.join(", ").chars().take(MAX_SHOWN).collect();
            answer.extensions_mut().insert(UnknownCoding(shown));
            None
        }
    };
    if let Some(coding) = decoded {
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    answer
}

/// All that were applied, in lower case.
fn codings(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let codings =
        values.flat_map(|value| value.split(',').map(|one| one.trim().to_ascii_lowercase()).collect::<Vec<_>>());
    codings.filter(|coding| !matches!(&**coding, "" | "identity")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_coding_that_was_asked_for_is_left_and_others_are_named() {
        for (values, left, unknown) in [
            (&[][..], None, None),
            (&["gzip"], Some("gzip"), None),
            (&["X-GZIP"], Some("gzip"), None),
            (&["identity, br"], Some("br"), None),
            (&["identity", ""], None, None),
            (&["zstd"], None, Some("zstd")),
            (&["gzip, gzip"], None, Some("gzip, gzip")),
            (&["gzip", "gzip"], None, Some("gzip, gzip")),
        ] {
            let mut answer = Response::new(());
            for value in values {
                answer.headers_mut().append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            let answer = normalize(answer);
            let noted = answer.extensions().get::<UnknownCoding>().map(|UnknownCoding(coding)| coding.as_str());
            let header = answer.headers().get(CONTENT_ENCODING).map(|value| value.to_str().unwrap());
            assert_eq!((header, noted), (left, unknown), "{values:?}");
        }
    }
}
