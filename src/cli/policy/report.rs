//! The calls of a trail that another set of policies decides otherwise, and the calls for which that is not known.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::super::present;
use sekisho_calls::policy::replay::{DecisionKind, Judged, KnownInput};
use sekisho_core::bounded::BoundedMap;

/// Groups that are told apart; further ones only count in the sums.
const MAX_GROUPS: usize = 10_000;

/// Calls that are named for each group.
const MAX_EXAMPLES: usize = 3;

/// Bytes of a reason: it may have arguments in it.
const MAX_REASON: usize = 200;

/// The fields of a line about a call that policies read.
#[derive(Debug, Deserialize)]
pub(super) struct DecidedLine {
    call_id: Option<String>,
    tool: Option<String>,
    caller: Option<String>,
    tenant: Option<String>,
    anonymous: Option<bool>,
    via: Option<String>,
    depth: Option<u64>,
    parent: Option<String>,
    dry_run: Option<bool>,
    session: Option<String>,
    /// Where a set has decided.
    policy_version: Option<String>,
    arguments: Option<Value>,
    policy_input: Option<Value>,
}

/// Which call it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DecidedCall {
    id: String,
    tool: String,
    caller: String,
}

#[derive(Debug)]
pub(super) struct Report {
    decisions: u64,
    same: u64,
    changed: u64,
    unknown: u64,
    changes: BoundedMap<Change, Group>,
    /// By what rules read.
    unknown_calls: BoundedMap<String, Group>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
struct Change {
    before: DecisionKind,
    after: DecisionKind,
    /// The reason that it gives.
    rule: String,
    tool: String,
    caller: String,
}

#[derive(Debug, Clone, Default, Serialize)]
struct Group {
    calls: u64,
    examples: Vec<String>,
}

impl DecidedLine {
    /// The call of a line, and its known input; `None` if no set has decided about it.
    pub(super) fn read(line: &str) -> Option<(DecidedCall, KnownInput)> {
        let mut line: Self = serde_json::from_str(line).ok()?;
        line.policy_version.as_ref()?;
        let id = line.call_id.clone()?;
        let tenant = line.tenant.clone().unwrap_or_default();
        let caller = format!("{tenant}/{}", line.caller.as_deref().unwrap_or_default());
        let call = DecidedCall { id, tool: line.tool.clone()?, caller };
        let known = match line.policy_input.take() {
            Some(input) => KnownInput::Whole(input),
            None => KnownInput::Parts(line.parts(), &["arguments"]),
        };
        Some((call, known))
    }

    fn parts(self) -> Value {
        let mut parts = Map::new();
        parts.insert("tool".to_owned(), self.tool.into());
        let user = json!({"id": self.caller, "tenant": self.tenant, "anonymous": self.anonymous});
        parts.insert("user".to_owned(), user);
        let call = json!({
            "id": self.call_id, "via": self.via, "depth": self.depth, "parent": self.parent, "dry_run": self.dry_run,
        });
        parts.insert("call".to_owned(), call);
        // Without a session, rules get null.
        parts.insert("session".to_owned(), self.session.map_or(Value::Null, |id| json!({"id": id})));
        if let Some(arguments) = self.arguments {
            parts.insert("arguments".to_owned(), arguments);
        }
        parts.into()
    }
}

impl Default for Report {
    fn default() -> Self {
        let (changes, unknown_calls) = (BoundedMap::new(MAX_GROUPS), BoundedMap::new(MAX_GROUPS));
        Self { decisions: 0, same: 0, changed: 0, unknown: 0, changes, unknown_calls }
    }
}

impl Report {
    pub(super) fn add(&mut self, call: &DecidedCall, judged: Judged) {
        self.decisions += 1;
        let one = Group { calls: 1, examples: vec![call.id.clone()] };
        match judged {
            Judged::Same(_) => self.same += 1,
            Judged::Unknown { reads } => {
                self.unknown += 1;
                add_group(&mut self.unknown_calls, reads, one);
            }
            Judged::Changed { before, after, mut reason } => {
                self.changed += 1;
                reason.truncate(reason.floor_char_boundary(MAX_REASON));
                let (tool, caller) = (call.tool.clone(), call.caller.clone());
                add_group(&mut self.changes, Change { before, after, rule: reason, tool, caller }, one);
            }
        }
    }

    pub(super) fn merge(&mut self, mut other: Self) {
        self.decisions += other.decisions;
        self.same += other.same;
        self.changed += other.changed;
        self.unknown += other.unknown;
        for (change, group) in other.changes.take() {
            add_group(&mut self.changes, change, group);
        }
        for (reads, group) in other.unknown_calls.take() {
            add_group(&mut self.unknown_calls, reads, group);
        }
    }

    /// Whether no decision changes, as far as any is known.
    pub(super) fn fits(&self) -> bool {
        self.changed == 0 && (self.decisions == 0 || self.same > 0)
    }

    pub(super) fn print(&self) {
        let Self { decisions, same, changed, unknown, .. } = self;
        present::line(&format!("{decisions} decisions: {same} as before, {changed} changed, {unknown} not known"));
        let rows = sorted(&self.changes).into_iter().map(|(change, group)| {
            let Change { before, after, rule, tool, caller } = change;
            let kinds = format!("{} → {}", before.as_str(), after.as_str());
            vec![kinds, rule.clone(), tool.clone(), caller.clone(), group.calls.to_string(), group.examples.join(" ")]
        });
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty() {
            present::table(&["change", "rule", "tool", "caller", "calls", "examples"], rows);
        }
        for (reads, group) in sorted(&self.unknown_calls) {
            let (calls, examples) = (group.calls, group.examples.join(" "));
            present::line(&format!("not known of {calls} calls, such as {examples}: rules read {reads}"));
        }
    }
}

/// As one object: the numbers, and the groups with the most calls first.
impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Changed<'a> {
            #[serde(flatten)]
            change: &'a Change,
            #[serde(flatten)]
            group: &'a Group,
        }
        let changes: Vec<_> =
            sorted(&self.changes).into_iter().map(|(change, group)| Changed { change, group }).collect();
        let unknown = sorted(&self.unknown_calls).into_iter();
        let unknown: Vec<_> = unknown
            .map(|(reads, Group { calls, examples })| json!({"reads": reads, "calls": calls, "examples": examples}))
            .collect();
        json!({
            "decisions": self.decisions, "same": self.same, "changed": self.changed, "unknown": self.unknown,
            "changes": changes, "unknown_calls": unknown,
        })
        .serialize(serializer)
    }
}

fn add_group<K: Eq + std::hash::Hash>(groups: &mut BoundedMap<K, Group>, key: K, added: Group) {
    let Some(group) = groups.get_or_try_insert_with(key, Group::default) else { return };
    group.calls += added.calls;
    let room = MAX_EXAMPLES.saturating_sub(group.examples.len());
    group.examples.extend(added.examples.into_iter().take(room));
}

fn sorted<K: Eq + std::hash::Hash + Ord>(groups: &BoundedMap<K, Group>) -> Vec<(&K, &Group)> {
    let mut sorted: Vec<_> = groups.iter().collect();
    sorted.sort_by_key(|(key, group)| (Reverse(group.calls), *key));
    sorted
}
