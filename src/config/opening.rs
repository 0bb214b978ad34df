//! The parts that a changed configuration opens and that the one in force keeps closed.
//!
//! Each topic takes every struct apart without `..`, so that a further field does not compile before it is said here
//! whether a change of it opens. A field that is `_` opens nothing: it is a text, a time, a secret, or takes effect at
//! the next start. A new entry under a name of its own is no change of something that is in force; an unclear change
//! counts as opening.

mod agents;
mod callers;
mod limits;
mod shown;
mod sources;
#[cfg(test)]
mod tests;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

use self::shown::{Shown, cut};
use super::{Config, ReloadConfig, ReloadMode};

/// In place of a value that a variable, a file or a program gave.
const HIDDEN: &str = "***";

/// One setting by which a configuration opens something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Opening {
    /// `topic.key`, with the name of an entry of a list in place of its index.
    pub setting: String,
    /// In force. No secret is in it.
    pub before: String,
    pub after: String,
}

impl Opening {
    pub fn new(setting: impl Into<String>, before: impl fmt::Display, after: impl fmt::Display) -> Self {
        Self { setting: setting.into(), before: cut(&before.to_string()), after: cut(&after.to_string()) }
    }
}

impl fmt::Display for Opening {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} → {}", self.setting, self.before, self.after)
    }
}

impl Config {
    /// The parts that this configuration opens and that `before`, which is in force, keeps closed. Empty: it may be
    /// applied by itself.
    pub fn opens(&self, before: &Self) -> Vec<Opening> {
        let Self {
            file: _,
            set: _,
            references: _,
            // These take effect at the next start.
            state_directory: _,
            server: _,
            sandbox: _,
            store: _,
            audit: _,
            telemetry: _,
            // Keys that are changed in turns, and how long something is kept or tried.
            secrets: _,
            cluster: _,
            session: _,
            results: _,
            recording: _,
            breaker: _,
            execution: _,
            config: ReloadConfig { reload, changes },
            auth,
            console,
            tools,
            openapi,
            mcp,
            catalogue,
            python_tools,
            components,
            agent,
            tenants,
            limits,
            policy,
            flow,
            approvals,
            budget,
            outbound,
        } = before;
        let mut found = Vec::new();
        let mut all = Comparison { at: String::new(), found: &mut found };
        all.below("config").rises("reload", reload, &self.config.reload, |mode| *mode == ReloadMode::Immediate);
        all.below("config").higher("changes", changes, &self.config.changes);
        callers::auth(&mut all.below("auth"), auth, &self.auth);
        callers::console(&mut all.below("console.roles"), console, &self.console);
        tools::tools(&mut all.below("tools"), tools, &self.tools);
        sources::openapi(&mut all.below("openapi"), openapi, &self.openapi);
        sources::mcp(&mut all.below("mcp"), mcp, &self.mcp);
        sources::catalogue(&mut all.below("catalogue"), catalogue, &self.catalogue);
        tools::python_tools(&mut all.below("python_tools"), python_tools, &self.python_tools);
        tools::components(&mut all.below("components"), components, &self.components);
        agents::agent(&mut all.below("agent"), agent, &self.agent);
        let (budget_before, budget_after) = ((tenants, budget), (&self.tenants, &self.budget));
        callers::tenants(&mut all.below("tenants"), budget_before, budget_after);
        limits::limits(&mut all.below("limits"), limits, &self.limits);
        limits::policy(&mut all.below("policy"), policy, &self.policy);
        limits::flow(&mut all.below("flow"), flow, &self.flow);
        limits::approvals(&mut all.below("approvals"), approvals, &self.approvals);
        limits::budget(&mut all.below("budget"), budget, &self.budget);
        limits::outbound(&mut all.below("outbound"), outbound, &self.outbound);
        for Opening { setting, before: shown_before, after: shown_after } in &mut found {
            for (config, shown) in [(before, shown_before), (self, shown_after)] {
                if !config.set.may_show(setting, shown) {
                    HIDDEN.clone_into(shown);
                }
            }
        }
        found
    }
}

/// Compares the settings below one key. `was` is in force, `is` would be. No `Debug`: it holds the values that it
/// compares.
struct Comparison<'a> {
    at: String,
    found: &'a mut Vec<Opening>,
}

impl Comparison<'_> {
    /// The settings below a further key.
    fn below(&mut self, key: &str) -> Comparison<'_> {
        Comparison { at: self.path(key), found: &mut *self.found }
    }

    fn path(&self, key: &str) -> String {
        let dot = if self.at.is_empty() || key.is_empty() { "" } else { "." };
        format!("{}{dot}{key}", self.at)
    }

    /// Without a key: about all of them.
    fn add(&mut self, key: &str, before: impl fmt::Display, after: impl fmt::Display) {
        self.found.push(Opening::new(self.path(key), before, after));
    }

    fn add_if<T: Shown>(&mut self, opens: bool, key: &str, was: &T, is: &T) {
        if opens {
            self.add(key, was.shown(), is.shown());
        }
    }

    /// Any change opens.
    fn changed<T: Shown + PartialEq>(&mut self, key: &str, was: &T, is: &T) {
        self.add_if(was != is, key, was, is);
    }

    /// Any change of a set value opens.
    fn replaced<T: Shown + PartialEq>(&mut self, key: &str, was: &Option<T>, is: &Option<T>) {
        self.add_if(was.is_some() && was != is, key, was, is);
    }

    /// Another value in place of the one that was set opens.
    fn moved<T: Shown + PartialEq>(&mut self, key: &str, was: &Option<T>, is: &Option<T>) {
        self.add_if(was.is_some() && is.is_some() && was != is, key, was, is);
    }

    /// Any change opens; the values are not shown.
    fn altered(&mut self, key: &str, is_changed: bool) {
        if is_changed {
            self.add(key, "as it is", "changed");
        }
    }

    /// A higher rank opens.
    fn rises<T: Shown, R: PartialOrd>(&mut self, key: &str, was: &T, is: &T, rank: impl Fn(&T) -> R) {
        self.add_if(rank(is) > rank(was), key, was, is);
    }

    fn higher<T: Shown + PartialOrd>(&mut self, key: &str, was: &T, is: &T) {
        self.add_if(is > was, key, was, is);
    }

    fn lower<T: Shown + PartialOrd>(&mut self, key: &str, was: &T, is: &T) {
        self.add_if(is < was, key, was, is);
    }

    /// A limit that is gone, or higher.
    fn higher_or_gone<T: Shown + PartialOrd>(&mut self, key: &str, was: &Option<T>, is: &Option<T>) {
        let opens = was.as_ref().is_some_and(|was| is.as_ref().is_none_or(|is| is > was));
        self.add_if(opens, key, was, is);
    }

    /// A price that is gone, or lower.
    fn lower_or_gone<T: Shown + PartialOrd>(&mut self, key: &str, was: &Option<T>, is: &Option<T>) {
        let opens = was.as_ref().is_some_and(|was| is.as_ref().is_none_or(|is| is < was));
        self.add_if(opens, key, was, is);
    }

    /// A further entry of a list of permissions.
    fn wider<T: Shown + PartialEq>(&mut self, key: &str, was: &Vec<T>, is: &Vec<T>) {
        self.add_if(has_more(was, is), key, was, is);
    }

    /// The same of a list that permits all while it is empty.
    fn wider_choice<T: Shown + PartialEq>(&mut self, key: &str, was: &Vec<T>, is: &Vec<T>) {
        self.add_if(!was.is_empty() && (is.is_empty() || has_more(was, is)), key, was, is);
    }

    /// The same of a list without which all is permitted.
    fn wider_or_gone<T: Shown + PartialEq>(&mut self, key: &str, was: &Option<Vec<T>>, is: &Option<Vec<T>>) {
        let opens = was.as_ref().is_some_and(|was| is.as_ref().is_none_or(|is| has_more(was, is)));
        self.add_if(opens, key, was, is);
    }

    /// An entry that is gone from a list of exclusions or marks.
    fn fewer<T: Shown + PartialEq>(&mut self, key: &str, was: &Vec<T>, is: &Vec<T>) {
        self.add_if(has_more(is, was), key, was, is);
    }

    /// A mark that is taken away.
    fn unset(&mut self, key: &str, was: bool, is: bool) {
        self.add_if(was && !is, key, &was, &is);
    }

    /// A permission that is given.
    fn set(&mut self, key: &str, was: bool, is: bool) {
        self.add_if(!was && is, key, &was, &is);
    }

    /// Entries of both by name. A new entry opens nothing, and neither does a removed one.
    fn in_both<V>(
        &mut self,
        was: &BTreeMap<String, V>,
        is: &BTreeMap<String, V>,
        mut compare: impl FnMut(&mut Comparison<'_>, &V, &V),
    ) {
        for (name, was) in was {
            if let Some(is) = is.get(name) {
                compare(&mut self.below(name), was, is);
            }
        }
    }

    /// The same, where an entry that is missing is one with defaults.
    fn in_either<V: Default>(
        &mut self,
        was: &BTreeMap<String, V>,
        is: &BTreeMap<String, V>,
        mut compare: impl FnMut(&mut Comparison<'_>, &V, &V),
    ) {
        let default = V::default();
        let names: BTreeSet<_> = was.keys().chain(is.keys()).collect();
        for name in names {
            compare(&mut self.below(name), was.get(name).unwrap_or(&default), is.get(name).unwrap_or(&default));
        }
    }
}

fn has_more<T: PartialEq>(was: &[T], is: &[T]) -> bool {
    is.iter().any(|entry| !was.contains(entry))
}
