//! The title of a conversation that has none (C32).

use std::time::Duration;

use tokio::time::timeout;

use super::live::LiveRun;

/// How long the end of a run waits for its title.
const TITLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum characters of a title.
const MAX_TITLE_CHARS: usize = 50;

/// The title that a model makes, unless that takes too long or the run is stopped: then the first line of the user's
/// message.
pub(super) async fn in_time(
    made: impl Future<Output = Option<String>>,
    run: &LiveRun,
    user_input: &str,
) -> Option<String> {
    let made = run.stop.run_until_cancelled(timeout(TITLE_TIMEOUT, made)).await;
    made.and_then(Result::ok).flatten().or_else(|| first_line(user_input))
}

/// A title without a model: the first line of the user's message.
pub fn first_line(user_input: &str) -> Option<String> {
    let line = user_input.lines().map(str::trim).find(|line| !line.is_empty())?;
    match line.char_indices().nth(MAX_TITLE_CHARS) {
        None => Some(line.to_owned()),
        Some(_) => Some(line.chars().take(MAX_TITLE_CHARS - 1).chain(['…']).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;
    use crate::conversation::StopCause;

    #[test]
    fn a_title_is_the_first_line_and_has_at_most_fifty_characters() {
        assert_eq!(first_line("\n  Is it warm? \nTell me."), Some("Is it warm?".into()));
        assert_eq!(first_line(" \n"), None);
        let long = first_line(&"関".repeat(51)).unwrap();
        assert!(long.chars().count() == 50 && long.ends_with("関…"), "{long}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_title_that_is_not_made_in_time_is_the_first_line_of_the_user() {
        let (run, begun) = (LiveRun::for_tests(), Instant::now());
        let made = async { Some("Made".to_owned()) };
        assert_eq!(in_time(made, &run, "Said\n").await, Some("Made".to_owned()));
        assert_eq!(in_time(pending(), &run, "Said\n").await, Some("Said".to_owned()));
        assert_eq!(begun.elapsed(), TITLE_TIMEOUT);
        run.stop(StopCause::Request);
        assert_eq!(in_time(pending(), &run, "Said\n").await, Some("Said".to_owned()));
        assert_eq!(begun.elapsed(), TITLE_TIMEOUT, "a run that is stopped does not wait");
    }
}
