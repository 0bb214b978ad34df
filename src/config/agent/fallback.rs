//! Other profiles for a model that fails.

use schemars::JsonSchema;
use serde::Deserialize;

/// Another profile, whose model is asked where a profile's failed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FallbackConfig {
    /// Its name. Its own fallbacks do not count.
    pub profile: String,
    /// The failures after which it is asked. Empty: after all that another provider may not have, which are all but `refused`.
    #[serde(default)]
    pub after: Vec<FailureClass>,
}

/// A class of failures of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The provider is overloaded.
    Overloaded,
    /// It limits the rate.
    Rate,
    /// The account's quota is used up.
    Quota,
    /// It refused the request.
    Refused,
    /// The conversation is longer than the model can read.
    TooLong,
    /// Its answer did not begin in time.
    Timeout,
    /// It failed, or could not be reached.
    Unavailable,
}

impl FallbackConfig {
    /// Whether it is asked after failures of this class.
    pub fn is_for(&self, class: FailureClass) -> bool {
        match self.after.is_empty() {
            true => class != FailureClass::Refused,
            false => self.after.contains(&class),
        }
    }
}
