//! Results as JUnit XML, which CI systems show: a suite for each profile, a test case for each case.

use super::report::CaseResult;

/// The document.
pub(super) fn document(results: &[CaseResult]) -> String {
    let mut profiles: Vec<&str> = results.iter().map(|result| result.profile.as_str()).collect();
    profiles.sort_unstable();
    profiles.dedup();
    let suites: String = profiles.into_iter().map(|profile| suite(profile, results)).collect();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{suites}</testsuites>\n")
}

fn suite(profile: &str, results: &[CaseResult]) -> String {
    let own: Vec<_> = results.iter().filter(|result| result.profile == profile).collect();
    let failures = own.iter().filter(|result| !result.score.is_passed()).count();
    let time = seconds(own.iter().map(|result| result.score.usage.duration_ms).sum());
    let cases: String = own.iter().copied().map(case).collect();
    let (name, tests) = (escaped(profile), own.len());
    format!(
        "<testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" time=\"{time}\">\n{cases}</testsuite>\n"
    )
}

fn case(result: &CaseResult) -> String {
    let failed = result.score.checks.iter().filter(|check| !check.passed);
    let failures: String = failed
        .map(|check| {
            let problem = escaped(check.problem.as_deref().unwrap_or_default());
            format!("<failure type=\"{}\" message=\"{problem}\"/>\n", check.name)
        })
        .collect();
    let (name, profile) = (escaped(&result.case), escaped(&result.profile));
    let time = seconds(result.score.usage.duration_ms);
    format!("<testcase classname=\"{profile}\" name=\"{name}\" time=\"{time}\">\n{failures}</testcase>\n")
}

pub(super) fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1_000, milliseconds % 1_000)
}

/// For an attribute; without the characters that XML cannot have.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_agent::evaluation::{Check, Score};

    #[test]
    fn texts_of_models_cannot_break_the_document() {
        let problem = Some("<a href=\"x\">\u{1}&\n]]>".to_owned());
        let check = Check { name: "json", passed: false, problem };
        let score = Score { checks: vec![check], ..Score::default() };
        let results = [CaseResult { case: "a&b.yaml".into(), profile: "fast".into(), score }];
        let document = document(&results);
        assert!(document.contains("<testsuite name=\"fast\" tests=\"1\" failures=\"1\" time=\"0.000\">"), "{document}");
        assert!(document.contains("name=\"a&amp;b.yaml\""), "{document}");
        assert!(document.contains("message=\"&lt;a href=&quot;x&quot;&gt;&amp; ]]&gt;\""), "{document}");
    }
}
