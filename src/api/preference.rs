//! `Prefer` (RFC 7240): the wishes of a request. A response says which of them were fulfilled.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;

use crate::reply::answered_reply;
use sekisho_calls::approval::MAX_WAIT;
use sekisho_calls::pipeline::Answered;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The preferences of a call. Other preferences, and unreadable ones, are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Preferences {
    /// `wait=SECONDS`: how long it is waited for an approval, at most [`MAX_WAIT`].
    pub wait: Option<Duration>,
    /// `handle`: a large result is to be stored, and answered by a preview with its handle.
    pub handle: bool,
}

impl Preferences {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut preferences = Self::default();
        let values = headers.get_all(&PREFER).into_iter().filter_map(|value| value.to_str().ok());
        for preference in values.flat_map(|value| value.split(',')) {
            let text = preference.split(';').next().unwrap_or_default().trim();
            match text.split_once('=') {
                None => preferences.handle |= text.eq_ignore_ascii_case("handle"),
                Some((name, value)) if name.trim().eq_ignore_ascii_case("wait") => {
                    let seconds = value.trim().trim_matches('"').parse::<u64>().ok();
                    let wait = seconds.map(|seconds| Duration::from_secs(seconds).min(MAX_WAIT));
                    preferences.wait = preferences.wait.or(wait);
                }
                Some(_) => {}
            }
        }
        preferences
    }

    /// The response to a call, which names the fulfilled preferences.
    pub(super) fn respond(self, answered: &Answered) -> Response {
        let has_preview = answered.reply.outcome.as_ref().is_ok_and(|answer| answer.preview.is_some());
        if self.wait.is_none() && !has_preview {
            return answered_reply(answered);
        }
        let wait = self.wait.map(|wait| format!("wait={}", wait.as_secs()));
        let applied: Vec<_> = wait.into_iter().chain(has_preview.then(|| "handle".to_owned())).collect();
        let mut response = answered_reply(answered);
        if let Ok(applied) = HeaderValue::try_from(applied.join(", ")) {
            response.headers_mut().insert(PREFERENCE_APPLIED, applied);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferences_are_read_among_others() {
        for (header, seconds, handle) in [
            ("wait=10", Some(10), false),
            ("respond-async, wait=10", Some(10), false),
            ("Wait = \"7\"; foo=bar", Some(7), false),
            ("wait=0", Some(0), false),
            ("wait=86400", Some(MAX_WAIT.as_secs()), false),
            ("wait=-1", None, false),
            ("wait", None, false),
            ("wait=soon", None, false),
            ("handling=lenient", None, false),
            ("handle", None, true),
            ("wait=5, Handle ; x", Some(5), true),
            ("handle=no", None, false),
        ] {
            let headers = HeaderMap::from_iter([(PREFER, HeaderValue::from_static(header))]);
            let Preferences { wait, handle: read } = Preferences::of(&headers);
            assert_eq!((wait.map(|wait| wait.as_secs()), read), (seconds, handle), "{header}");
        }
        assert_eq!(Preferences::of(&HeaderMap::new()), Preferences::default());
    }
}
