//! The navigation: the entries in their groups, each with the key that opens it after `g`.

use maud::{Markup, html};

use super::acts::Act;
use super::inbox;
use super::map;
use super::visit::Visit;

/// An entry of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Map,
    Inbox,
    Calls,
    Tools,
    Servers,
    PythonTools,
    Catalogue,
    SignIns,
    Connect,
    Conversations,
    Plans,
    Results,
    Sessions,
    ProgramRuns,
    Models,
    Skills,
    Policies,
    Flow,
    Limits,
    Costs,
    Tenants,
    Keys,
    Configuration,
}

/// The ids of the headings, and the entries below them.
const GROUPS: [(&str, &[Section]); 5] = [
    ("nav-group-activity", &[Section::Overview, Section::Map, Section::Inbox, Section::Calls]),
    (
        "nav-group-tools",
        &[
            Section::Tools,
            Section::Servers,
            Section::PythonTools,
            Section::Catalogue,
            Section::SignIns,
            Section::Connect,
        ],
    ),
    (
        "nav-group-agents",
        &[
            Section::Conversations,
            Section::Plans,
            Section::Results,
            Section::Sessions,
            Section::ProgramRuns,
            Section::Models,
            Section::Skills,
        ],
    ),
    ("nav-group-rules", &[Section::Policies, Section::Flow, Section::Limits, Section::Costs]),
    ("nav-group-administration", &[Section::Tenants, Section::Keys, Section::Configuration]),
];

/// An entry as the visitor gets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub path: &'static str,
    /// The id of its name.
    pub text: &'static str,
    /// Opens it after `g`.
    pub key: char,
    act: Act,
}

impl Section {
    /// Whether the program has its pages.
    fn is_there(self) -> bool {
        let is_of_agents =
            matches!(self, Self::Conversations | Self::Plans | Self::Models | Self::Skills | Self::Tenants);
        cfg!(feature = "agent") || !is_of_agents
    }

    fn entry(self) -> Entry {
        let (path, text, key, act) = match self {
            Self::Overview => ("/console", "nav-overview", 'o', Act::SeeOverview),
            Self::Map => (map::PATH, "nav-map", 'b', Act::SeeServers),
            Self::Inbox => (inbox::PATH, "nav-inbox", 'i', Act::SeeApprovals),
            Self::Calls => ("/console/calls", "nav-calls", 'c', Act::SeeCalls),
            Self::Tools => ("/console/tools", "nav-tools", 't', Act::SeeTools),
            Self::Servers => ("/console/servers", "nav-servers", 's', Act::SeeServers),
            Self::PythonTools => ("/console/python-tools", "nav-python-tools", 'f', Act::SeeSources),
            Self::Catalogue => ("/console/catalogue", "nav-catalogue", 'a', Act::AskForSources),
            Self::SignIns => ("/console/sign-ins", "nav-sign-ins", 'u', Act::ManageSignIns),
            Self::Connect => ("/console/connect", "nav-connect", 'e', Act::SeeConnect),
            Self::Conversations => ("/console/conversations", "nav-conversations", 'v', Act::SeeConversations),
            Self::Plans => ("/console/plans", "nav-plans", 'n', Act::SeePlans),
            Self::Results => ("/console/results", "nav-results", 'r', Act::SeeResults),
            Self::Sessions => ("/console/sessions", "nav-sessions", 'y', Act::SeeSessions),
            Self::ProgramRuns => ("/console/program-runs", "nav-program-runs", 'g', Act::SeeRuns),
            Self::Models => ("/console/models", "nav-models", 'm', Act::SeeAgents),
            Self::Skills => ("/console/skills", "nav-skills", 'h', Act::SeeAgents),
            Self::Policies => ("/console/policies", "nav-policies", 'p', Act::SeePolicies),
            Self::Flow => ("/console/flow", "nav-flow", 'w', Act::SeeFlow),
            Self::Limits => ("/console/limits", "nav-limits", 'l', Act::SeeLimits),
            Self::Costs => ("/console/costs", "nav-costs", 'd', Act::SeeCosts),
            Self::Tenants => ("/console/tenants", "nav-tenants", 'x', Act::SeeAgents),
            Self::Keys => ("/console/keys", "nav-keys", 'k', Act::ManageKeys),
            Self::Configuration => ("/console/configuration", "nav-configuration", ',', Act::SeeConfiguration),
        };
        Entry { path, text, key, act }
    }
}

/// The entries that the visitor may open.
pub(super) fn entries(visit: &Visit) -> impl Iterator<Item = Entry> {
    GROUPS.into_iter().flat_map(move |(_, entries)| of_group(visit, entries)).map(|(_, entry)| entry)
}

fn of_group(visit: &Visit, entries: &'static [Section]) -> impl Iterator<Item = (Section, Entry)> {
    let there = entries.iter().copied().filter(|section| section.is_there());
    there.map(|section| (section, section.entry())).filter(move |(_, entry)| visit.may(entry.act))
}

/// The groups that have an entry for the visitor. `current`: the entry of the page.
pub(super) fn draw(visit: &Visit, current: Option<Section>) -> Markup {
    let texts = visit.texts();
    html! {
        nav aria-label=(texts.get("frame-navigation")) {
            @for (title, entries) in GROUPS {
                @let mut shown = of_group(visit, entries).peekable();
                @if shown.peek().is_some() {
                    div.group role="group" aria-labelledby=(title) {
                        p #(title) { (texts.get(title)) }
                        @for (section, Entry { path, text, key, .. }) in shown {
                            a href=(path) data-go=(key) aria-current=[(current == Some(section)).then_some("page")] {
                                (texts.get(text)) @if section == Section::Inbox { (inbox::count_of(visit)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_entry_is_once_in_a_group_and_has_a_key_of_its_own() {
        let entries: Vec<_> = GROUPS.iter().flat_map(|(_, entries)| *entries).map(|section| section.entry()).collect();
        let keys: BTreeSet<_> = entries.iter().map(|entry| entry.key).collect();
        let paths: BTreeSet<_> = entries.iter().map(|entry| entry.path).collect();
        assert_eq!((keys.len(), paths.len(), entries.len()), (24, 24, 24), "{keys:?}");
    }
}
