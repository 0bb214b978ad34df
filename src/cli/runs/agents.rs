//! `sekisho runs branch` and `sekisho runs save`: runs of agents in conversations that are stored.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use crate::cli::client::{Remote, Unanswered};
use crate::cli::{Common, Exit, present};
use sekisho_agent::evaluation::{SavedMessage, save};
use sekisho_agent::{Message, ToolDescription};

#[derive(Debug, Args)]
pub(super) struct Branching {
    /// The id of a run, as a conversation's reply has it.
    run: String,
    /// The last message of the branch, by its id in `sekisho conversations show --json`; by default the run's last one.
    #[arg(long, value_name = "MESSAGE")]
    at: Option<String>,
    /// The profile of the branch; by default the conversation's.
    #[arg(long)]
    profile: Option<String>,
    /// A file with the system prompt, in place of the profile's.
    #[arg(long, value_name = "FILE")]
    prompt: Option<PathBuf>,
    /// The profile whose model answers, with the prompt, tools and limits of the other one.
    #[arg(long, value_name = "PROFILE")]
    model: Option<String>,
    /// Its title; by default the conversation's.
    #[arg(long)]
    title: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Saving {
    /// The id of a run that ended with an answer.
    run: String,
    /// The file, which must not exist.
    #[arg(long = "as", value_name = "FILE")]
    file: PathBuf,
}

impl Branching {
    pub(super) fn run(&self, common: &Common, remote: &Remote) -> Result<Exit, Unanswered> {
        let prompt = match self.prompt.as_ref().map(std::fs::read_to_string).transpose() {
            Ok(prompt) => prompt.map(|text| json!({"replace": text})),
            Err(problem) => return Ok(unusable(&format!("the prompt cannot be read: {problem}"))),
        };
        let Self { run, at, profile, model, title, prompt: _ } = self;
        let body = json!({"at": at, "profile": profile, "prompt": prompt, "model": model, "title": title});
        let branch = remote.send(Method::POST, &["api", "runs", run, "branch"], Some(&body))?;
        if common.json {
            return Ok(present::json(&branch));
        }
        present::line(branch["id"].as_str().unwrap_or_default());
        Ok(Exit::Done)
    }
}

impl Saving {
    pub(super) fn run(&self, remote: &Remote) -> Result<Exit, Unanswered> {
        let run = remote.get(&["api", "runs", &self.run], &[])?;
        if run["status"] != "succeeded" {
            let status = present::text(&run, "status");
            return Ok(unusable(&format!("the run is `{status}`; save a run that succeeded")));
        }
        let conversation = run["conversation_id"].as_str().unwrap_or_default();
        let messages = remote.get_all(&["api", "conversations", conversation, "messages"], &[])?;
        let tools = remote.get(&["tools", "schemas"], &[("usable", "true")])?;
        Ok(match self.saved(messages, tools) {
            Ok(()) => {
                present::info(&format!("saved as {}: `sekisho eval` plays it", self.file.display()));
                Exit::Done
            }
            Err(problem) => unusable(&problem),
        })
    }

    fn saved(&self, messages: Vec<Value>, tools: Value) -> Result<(), String> {
        let other = "the gateway is of another version; use the `sekisho` of its version";
        let messages = messages.into_iter().map(message).collect::<Option<Vec<_>>>().ok_or(other)?;
        let tools: Vec<ToolDescription> = serde_json::from_value(tools).map_err(|_| other)?;
        let case = save(&self.run, messages, tools).map_err(|problem| format!("the run cannot be saved: {problem}"))?;
        let text = yaml_serde::to_string(&case).map_err(|problem| problem.to_string())?;
        let file = self.file.display();
        let mut created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&self.file)
            .map_err(|problem| format!("{file} cannot be created: {problem}; name a new file"))?;
        created.write_all(text.as_bytes()).map_err(|problem| format!("{file} cannot be written: {problem}"))
    }
}

fn message(mut stored: Value) -> Option<SavedMessage> {
    let message: Message = serde_json::from_value(stored["message"].take()).ok()?;
    Some(SavedMessage { run: stored["run_id"].as_str()?.to_owned(), incomplete: stored["incomplete"] == true, message })
}

fn unusable(problem: &str) -> Exit {
    present::problem(problem);
    Exit::Failed
}
