//! What a run adds to its profile: the system prompt's parts (C10), and the title of a conversation without one (C32).

use std::sync::Arc;

use super::request::RunRequest;
use crate::config::AgentProfile;

/// The longest run of a conversation (C40), in seconds; a profile may have a shorter one.
const MAX_RUN_SECONDS: f64 = 300.0;

/// Maximum characters of a title (C32).
const MAX_TITLE_CHARS: usize = 50;

/// The profile of a run: with the additions to its prompt, and the time limit of conversations.
pub(super) fn profile(request: &RunRequest) -> Arc<AgentProfile> {
    let mut profile = AgentProfile::clone(&request.profile);
    profile.max_run_seconds = profile.max_run_seconds.min(MAX_RUN_SECONDS);
    let additions: Vec<_> = profile.prompt.append.take().into_iter().chain(preferred_skills(request)).collect();
    profile.prompt.append = (!additions.is_empty()).then(|| additions.join("\n\n"));
    Arc::new(profile)
}

fn preferred_skills(request: &RunRequest) -> Option<String> {
    let names = request.preferred_skills.join(", ");
    (!names.is_empty()).then(|| format!("Prefer these skills where they fit: {names}."))
}

/// A title: the first line of what the user said.
pub(super) fn title(user_input: &str) -> Option<String> {
    let line = user_input.lines().map(str::trim).find(|line| !line.is_empty())?;
    match line.char_indices().nth(MAX_TITLE_CHARS) {
        None => Some(line.to_owned()),
        Some(_) => Some(line.chars().take(MAX_TITLE_CHARS - 1).chain(['…']).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_line_and_has_at_most_fifty_characters() {
        assert_eq!(title("\n  Is it warm? \nTell me."), Some("Is it warm?".into()));
        assert_eq!(title(" \n"), None);
        let long = title(&"関".repeat(51)).unwrap();
        assert!(long.chars().count() == 50 && long.ends_with("関…"), "{long}");
    }
}
