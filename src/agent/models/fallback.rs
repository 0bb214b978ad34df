//! Other models for the failures of a model.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;

use super::{Model, ModelChunk, ModelError, ModelRequest};
use crate::call_ids;
use crate::options::ModelOptions;
use sekisho_config::{AgentProfile, FallbackConfig};

/// Another model, and the failures after which it is asked.
pub struct Fallback {
    pub config: FallbackConfig,
    pub model: Arc<dyn Model>,
    pub profile: Arc<AgentProfile>,
}

impl Fallback {
    /// Whether this model can keep the options of a request. The temperature and `top_p` may be the profile's, and are left out
    /// where a model has its own.
    pub(crate) fn keeps(&self, options: &ModelOptions) -> bool {
        let others = ModelOptions { temperature: None, top_p: None, ..options.clone() };
        others.check(&self.profile).is_ok()
    }

    /// The request as this model takes it: without thoughts of another API, and with its maximum of tokens.
    pub(crate) fn request(&self, request: &ModelRequest) -> Arc<ModelRequest> {
        let maximum = self.profile.row().and_then(|row| row.max_output_tokens).unwrap_or(u32::MAX);
        Arc::new(ModelRequest {
            messages: call_ids::for_provider(request.messages.clone(), &call_ids::api_of(&self.profile)),
            max_tokens: request.max_tokens.min(maximum),
            ..request.clone()
        })
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Fallback").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The longest silence of a model, or of one of those that are asked in its place.
pub(crate) fn longest_silence(model: &dyn Model, profile: &AgentProfile) -> Duration {
    let of_others = model
        .fallbacks()
        .iter()
        .flat_map(|Fallback { profile: other, .. }| [profile.fallback_wait(), other.timeout(), other.fallback_wait()]);
    of_others.fold(profile.timeout(), Duration::max)
}

/// A model with others for its failures. Whoever asks it chooses among them.
pub struct WithFallbacks {
    pub model: Arc<dyn Model>,
    pub fallbacks: Vec<Fallback>,
}

impl Model for WithFallbacks {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        self.model.stream(request)
    }

    fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }
}

impl fmt::Debug for WithFallbacks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WithFallbacks").field("fallbacks", &self.fallbacks).finish_non_exhaustive()
    }
}
