//! The results of cases: a table, or JSON.

use std::path::Path;

use rust_decimal::Decimal;
use serde::Serialize;

use super::junit;
use crate::cli::{Exit, present};
use sekisho_agent::RunUsage;
use sekisho_agent::evaluation::Score;

/// A case that an agent was asked.
#[derive(Debug, Serialize)]
pub(super) struct CaseResult {
    pub(super) case: String,
    pub(super) profile: String,
    #[serde(flatten)]
    pub(super) score: Score,
}

/// The sums of a profile.
#[derive(Debug, Default, Serialize)]
struct Sum {
    profile: String,
    cases: usize,
    passed_cases: usize,
    checks: usize,
    passed_checks: usize,
    usage: RunUsage,
    /// Of the judge.
    #[serde(with = "rust_decimal::serde::float")]
    judge_cost_usd: Decimal,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    profiles: Vec<Sum>,
    results: Vec<CaseResult>,
}

impl Report {
    pub(super) fn new(results: Vec<CaseResult>) -> Self {
        let mut profiles: Vec<Sum> = Vec::new();
        for result in &results {
            let place = profiles.iter().position(|sum| sum.profile == result.profile).unwrap_or(profiles.len());
            if place == profiles.len() {
                profiles.push(Sum { profile: result.profile.clone(), ..Sum::default() });
            }
            profiles[place].add(&result.score);
        }
        Self { profiles, results }
    }

    /// Shows the results, and writes them to a file; fails where a check failed.
    pub(super) fn show(&self, as_json: bool, file: Option<&Path>) -> Exit {
        match as_json {
            true => {
                present::json(self);
            }
            false => self.print(),
        }
        if let Some(file) = file
            && let Err(problem) = std::fs::write(file, junit::document(&self.results))
        {
            present::problem(&format!("{} cannot be written: {problem}", file.display()));
            return Exit::Failed;
        }
        match self.results.iter().all(|result| result.score.is_passed()) {
            true => Exit::Done,
            false => Exit::Failed,
        }
    }

    fn print(&self) {
        let header = ["case", "profile", "checks", "turns", "tokens", "USD", "seconds", "failed"];
        let results = self.results.iter().map(|result| {
            let failed = result.score.checks.iter().filter_map(|check| check.problem.clone());
            let mut row = row(&result.case, &result.profile, counts(&result.score), &result.score.usage);
            row.push(failed.collect::<Vec<_>>().join("; "));
            row
        });
        let sums = self.profiles.iter().map(|sum| {
            let mut row = row("all", &sum.profile, (sum.passed_checks, sum.checks), &sum.usage);
            row.push(format!("{} of {} cases passed", sum.passed_cases, sum.cases));
            row
        });
        present::table(&header, results.chain(sums).collect());
    }
}

impl Sum {
    fn add(&mut self, score: &Score) {
        let (passed, all) = counts(score);
        self.cases += 1;
        self.passed_cases += usize::from(score.is_passed());
        self.checks += all;
        self.passed_checks += passed;
        self.usage.add(&score.usage);
        let judge = score.judge_usage.as_ref().map(|usage| usage.cost_usd);
        self.judge_cost_usd = self.judge_cost_usd.saturating_add(judge.unwrap_or_default());
    }
}

/// How many checks passed, of how many.
fn counts(score: &Score) -> (usize, usize) {
    (score.checks.iter().filter(|check| check.passed).count(), score.checks.len())
}

fn row(case: &str, profile: &str, (passed, all): (usize, usize), usage: &RunUsage) -> Vec<String> {
    let tokens = usage.prompt_tokens.saturating_add(usage.completion_tokens);
    let seconds = junit::seconds(usage.duration_ms);
    let cells = [case.to_owned(), profile.to_owned(), format!("{passed}/{all}"), usage.turns.to_string()];
    cells.into_iter().chain([tokens.to_string(), usage.cost_usd.normalize().to_string(), seconds]).collect()
}
