//! How many tokens a request of the run may have.

use crate::context;
use sekisho_config::AgentProfile;

/// The share of the window that stays free, since tokens are estimated: a twentieth.
const MARGIN: u64 = 20;

/// How far the provider's count may differ from the estimate.
const RATIO: std::ops::RangeInclusive<f64> = 0.5..=4.0;

/// The window of the model, and how the estimate compares with the provider's count.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Room {
    window: Option<u64>,
    /// Tokens of a request that the provider refused as too long.
    refused: Option<u64>,
    /// Tokens that the provider counts for an estimated one.
    ratio: f64,
    /// The estimate of the request that was sent last.
    sent: u64,
}

impl Room {
    pub(super) fn of(profile: &AgentProfile) -> Self {
        Self { window: context::window_of(profile), refused: None, ratio: 1.0, sent: 0 }
    }

    /// A request with so many estimated tokens is sent.
    pub(super) fn sent(&mut self, estimated: u64) {
        self.sent = estimated;
    }

    /// The provider counted so many in it; 0 if it does not count.
    pub(super) fn reported(&mut self, prompt_tokens: u64) {
        if prompt_tokens > 0 && self.sent > 0 {
            self.ratio = (as_float(prompt_tokens) / as_float(self.sent)).clamp(*RATIO.start(), *RATIO.end());
        }
    }

    /// The provider refused the request as too long. The tokens that it had.
    pub(super) fn refused(&mut self) -> u64 {
        let tokens = self.calibrated(self.sent);
        self.refused = Some(tokens);
        tokens
    }

    /// An estimate, corrected by the provider's earlier counts.
    #[expect(clippy::cast_possible_truncation, reason = "a number of tokens")]
    pub(super) fn calibrated(&self, estimated: u64) -> u64 {
        (as_float(estimated) * self.ratio).ceil() as u64
    }

    /// Maximum tokens of a prompt, if its answer may have `max_tokens`; `None` if the window is not known.
    pub(super) fn limit(&self, max_tokens: u32) -> Option<u64> {
        let of_window = self.window.map(|window| {
            // At least half is for the prompt, whatever the answer may have.
            window.saturating_sub(u64::from(max_tokens)).saturating_sub(window / MARGIN).max(window / 2)
        });
        let of_refused = self.refused.map(|tokens| tokens - tokens / MARGIN);
        of_window.into_iter().chain(of_refused).min()
    }

    /// Maximum bytes of one result: in a small window less than the profile's, a byte for a token, which is a quarter of
    /// the window in plain text.
    pub(super) fn max_result_bytes(&self, profile: &AgentProfile) -> usize {
        let of_window = self.window.and_then(|window| usize::try_from(window).ok());
        profile.max_result_bytes.min(of_window.unwrap_or(usize::MAX))
    }
}

/// Maximum tokens of a prompt for the profile's model, if its answer is as long as the profile allows; `None` if the window is not
/// known.
pub(crate) fn longest_prompt(profile: &AgentProfile) -> Option<u64> {
    Room::of(profile).limit(profile.max_tokens())
}

/// Exact: numbers of tokens are far below 2^52.
fn as_float(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(window: Option<u64>) -> Room {
        Room::of(&AgentProfile { model: Some("own".into()), context_tokens: window, ..AgentProfile::default() })
    }

    #[test]
    fn the_answer_and_a_margin_are_kept_free() {
        assert_eq!(room(None).limit(1_000), None);
        assert_eq!(room(Some(10_000)).limit(1_000), Some(8_500));
        assert_eq!(room(Some(10_000)).limit(9_000), Some(5_000), "half is for the prompt");
    }

    #[test]
    fn the_provider_calibrates_the_estimate_and_a_refusal_lowers_the_limit() {
        let mut room = room(None);
        room.sent(1_000);
        room.reported(0);
        assert_eq!(room.calibrated(1_000), 1_000);
        room.reported(1_500);
        assert_eq!(room.calibrated(2_000), 3_000);
        room.reported(1_000_000);
        assert_eq!(room.calibrated(1_000), 4_000, "not more than four times");
        room.reported(1_500);
        room.sent(2_000);
        assert_eq!((room.refused(), room.limit(100)), (3_000, Some(2_850)));
    }

    #[test]
    fn a_result_is_shorter_in_a_small_window() {
        let profile = AgentProfile::default();
        assert_eq!(room(Some(8_000)).max_result_bytes(&profile), 8_000);
        assert_eq!(room(Some(200_000)).max_result_bytes(&profile), 65_536);
        assert_eq!(room(None).max_result_bytes(&profile), 65_536);
    }
}
