//! The settings of a profile in a file: those that the loop reads, and no key, header or script.

use serde_json::{Value, json};

use crate::context;
use sekisho_config::{AgentProfile, Wire};

/// As in the configuration.
pub(super) fn settings_of(profile: &AgentProfile) -> Value {
    json!({
        "provider": profile.provider().as_str(),
        "model": profile.model(),
        "base_url": profile.base_url,
        "wire": match profile.wire() {
            Wire::Chat => "chat",
            Wire::Responses => "responses",
        },
        "temperature": profile.temperature(),
        "max_tokens": profile.max_tokens(),
        "thinking": profile.thinking,
        "max_tools": profile.max_tools,
        "max_turns": profile.max_turns,
        "max_tool_calls": profile.max_tool_calls,
        "max_run_seconds": profile.max_run_seconds,
        "same_answer_seconds": profile.same_answer_seconds,
        "context_tokens": context::window_of(profile),
        "run_tokens": profile.run_tokens,
        "parallel_tool_calls": profile.parallel_tool_calls,
        "max_result_bytes": profile.max_result_bytes,
        "end_words": profile.end_words,
    })
}

/// Errors: they are no settings of a profile.
pub(super) fn profile_of(settings: &Value) -> Result<AgentProfile, serde_json::Error> {
    serde_json::from_value(settings.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::{Effort, Thinking};

    #[test]
    fn a_profile_comes_back_with_all_that_the_loop_reads() {
        let profile = AgentProfile {
            model: Some("own".into()),
            base_url: "http://127.0.0.1:1/v1".parse().ok(),
            temperature: Some(None),
            thinking: Some(Thinking::Effort(Effort::Low)),
            max_turns: 3,
            end_words: vec!["DONE".into()],
            max_run_seconds: 1.5,
            ..AgentProfile::default()
        };
        let written = settings_of(&profile);
        let read = profile_of(&written).unwrap();
        assert_eq!(settings_of(&read), written);
        assert_eq!((read.temperature, read.thinking, read.max_turns), (Some(None), profile.thinking, 3));
        assert!(profile_of(&json!({"provider": "nobody"})).is_err());
    }
}
