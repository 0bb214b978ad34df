//! `sekisho lock`: pins every tool, shows differences from the pins, and approves them.

mod present;
mod record;

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Common, Exit, McpOptions, ServeOptions, describe, load_config, present as terminal};
use sekisho_calls::registry::lock::{Change, Difference, Lock, Pin, differences};
use sekisho_config::Config;
use sekisho_gateway::{Inventory, take_inventory};

#[derive(Debug, Args)]
pub(super) struct LockCommand {
    #[command(subcommand)]
    command: Option<LockAction>,
    #[command(flatten)]
    mcp: McpOptions,
}

#[derive(Debug, Subcommand)]
enum LockAction {
    /// Show differences from the lock. Exit code 1 if there are any, or if a source cannot be reached.
    Diff,
    /// Pin tools in their current form: the named ones, or all that differ.
    Approve {
        /// The names of tools; without any, all that differ.
        #[arg(value_name = "TOOL")]
        tools: Vec<String>,
    },
}

pub(super) fn run(common: &Common, command: LockCommand) -> Exit {
    let options = ServeOptions { mcp: command.mcp, ..ServeOptions::default() };
    let config = match load_config(common.config.as_deref(), &options) {
        Ok(config) => config,
        Err(errors) => return misconfigured(&describe(&errors)),
    };
    let file = config.lock_file();
    // Before anything is started: without a readable lock the rest is of no use.
    let lock = match Lock::read(&file) {
        Ok(lock) => lock,
        Err(problem) => return misconfigured(&format!("{}: {problem}", file.display())),
    };
    let Some(inventory) = take_inventory_of(&config) else { return Exit::Misconfigured };
    let review = LockReview { common, config: &config, file, inventory };
    match (command.command, lock) {
        (None, None) => review.pin_all(),
        (None, Some(lock)) => review.compare(&lock),
        (Some(_), None) => {
            misconfigured(&format!("{} does not exist; create it with `sekisho lock`", review.file.display()))
        }
        (Some(LockAction::Diff), Some(lock)) => review.diff(&lock),
        (Some(LockAction::Approve { tools }), Some(lock)) => review.approve(lock, &tools),
    }
}

fn take_inventory_of(config: &Config) -> Option<Inventory> {
    let runtime = super::serve::runtime()?;
    let progress = terminal::progress("asking MCP servers and reading documents");
    let inventory = runtime.block_on(take_inventory(config));
    progress.finish_and_clear();
    inventory.inspect_err(|problem| terminal::problem(&problem.to_string())).ok()
}

fn misconfigured(problem: &str) -> Exit {
    terminal::problem(problem);
    Exit::Misconfigured
}

/// The inputs of the command: the lock file, and the current tools.
struct LockReview<'a> {
    common: &'a Common,
    config: &'a Config,
    file: PathBuf,
    inventory: Inventory,
}

impl LockReview<'_> {
    fn pin_all(&self) -> Exit {
        let lock: Lock = self.inventory.pins.clone().into_iter().collect();
        if !self.write(&lock) {
            return Exit::Failed;
        }
        record::approval(self.config, &self.file, lock.pins().keys().map(String::as_str));
        let flags =
            self.inventory.pins.iter().map(|(name, pin)| (name, pin.flags())).filter(|(_, flags)| !flags.is_empty());
        let flags: Vec<_> = flags.collect();
        if self.common.json {
            let flags: serde_json::Map<_, _> =
                flags.iter().map(|(name, flags)| ((*name).clone(), json!(flags))).collect();
            let report = json!({"file": self.file, "pinned": lock.pins().len(), "flags": flags});
            terminal::json(&report);
        } else {
            terminal::line(&format!("{} are pinned in {}", lock.count(), self.file.display()));
            for (name, flags) in &flags {
                terminal::line(&format!("review {name}:\n{}", present::flags(flags)));
            }
        }
        self.report_unreachable("its tools are not pinned")
    }

    /// An existing lock is never rewritten as a whole: that would approve changes unseen.
    fn compare(&self, lock: &Lock) -> Exit {
        let found = self.differences(lock);
        if found.is_empty() {
            return self.diff(lock);
        }
        let (file, count) = (self.file.display(), found.len());
        terminal::problem(&format!(
            "{file} exists, and {count} tools differ from it: review them with `sekisho lock diff`, approve them with \
             `sekisho lock approve`"
        ));
        Exit::Failed
    }

    fn diff(&self, lock: &Lock) -> Exit {
        let found = self.differences(lock);
        self.show(&found);
        let reached = self.report_unreachable("its tools were not compared");
        if found.is_empty() { reached } else { Exit::Failed }
    }

    fn approve(&self, mut lock: Lock, tools: &[String]) -> Exit {
        let mut found = self.differences(&lock);
        let named: BTreeSet<&str> = tools.iter().map(String::as_str).collect();
        if !named.is_empty() {
            let names = |difference: &Difference| named.iter().any(|name| present::concerns(difference, name));
            let missing = named.iter().find(|name| !found.iter().any(|difference| present::concerns(difference, name)));
            if let Some(missing) = missing {
                let what = if lock.get(missing).is_some() { "is as it was approved" } else { "was not found" };
                terminal::problem(&format!("{missing:?} {what}; nothing was approved"));
                return Exit::Failed;
            }
            found.retain(names);
        }
        for difference in &found {
            if let Change::Renamed { from } = &difference.change {
                lock.approve(from, None);
            }
            lock.approve(&difference.tool, self.inventory.pins.get(&difference.tool).cloned());
        }
        if !found.is_empty() {
            if !self.write(&lock) {
                return Exit::Failed;
            }
            record::approval(self.config, &self.file, found.iter().map(|difference| &*difference.tool));
        }
        self.show(&found);
        if !self.common.json && !found.is_empty() {
            terminal::line(&format!("approved in {}", self.file.display()));
        }
        self.report_unreachable("its pins are unchanged")
    }

    fn differences(&self, lock: &Lock) -> Vec<Difference> {
        differences(lock, &self.inventory.pins, |source| self.inventory.out_of_reach.contains_key(source))
    }

    fn show(&self, found: &[Difference]) {
        let flags =
            |difference: &Difference| self.inventory.pins.get(&difference.tool).map(Pin::flags).unwrap_or_default();
        if self.common.json {
            let report: Vec<_> =
                found.iter().map(|difference| present::as_json(difference, &flags(difference))).collect();
            terminal::json(&report);
        } else if found.is_empty() {
            terminal::line(&format!("all tools match {}", self.file.display()));
        } else {
            for difference in found {
                let pin = self.inventory.pins.get(&difference.tool);
                terminal::line(&present::as_text(difference, pin, &flags(difference)));
            }
        }
    }

    fn write(&self, lock: &Lock) -> bool {
        let written = lock.write(&self.file);
        if let Err(error) = &written {
            terminal::problem(&format!("cannot write {}: {error}", self.file.display()));
        }
        written.is_ok()
    }

    /// Scripts must see that not all sources were compared.
    fn report_unreachable(&self, consequence: &str) -> Exit {
        for (source, reason) in &self.inventory.out_of_reach {
            terminal::problem(&format!("{source} cannot be reached or used, and {consequence}: {reason}"));
        }
        if self.inventory.out_of_reach.is_empty() { Exit::Done } else { Exit::Failed }
    }
}
