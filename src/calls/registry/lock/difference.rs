//! The differences between the current tools and the approved ones, for review by an operator.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use serde_json::{Map, Value};

use super::pin::{DESCRIPTION, ORIGIN, PARAMETERS};
use super::{Lock, Pin, is_ours};

/// One tool that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The current name; for a removed tool, the former one.
    pub tool: String,
    #[serde(flatten)]
    pub change: Change,
    /// The current origin; for a removed tool, the former one.
    pub origin: String,
    /// The changes of its pin; empty for a tool that was added or removed.
    pub edits: Vec<Edit>,
    /// Whether calls are refused until the tool is approved.
    pub quarantined: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    Added,
    Removed,
    Changed,
    /// Probably the same tool under another name.
    Renamed {
        from: String,
    },
}

/// A changed member of a pin, with its former and current value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Edit {
    /// JSON Pointer (RFC 6901).
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The differences, sorted by tool name. Tools of sources for which `out_of_reach` is true are not reported as removed,
/// because their state is unknown.
pub fn differences(lock: &Lock, now: &BTreeMap<String, Pin>, out_of_reach: impl Fn(&str) -> bool) -> Vec<Difference> {
    let mut found = Vec::new();
    for (name, pin) in now {
        if let Some(approved) = lock.get(name)
            && approved.hash() != pin.hash()
        {
            found.push(of_edits(name, Change::Changed, approved, pin));
        }
    }
    let added: BTreeMap<_, _> = now.iter().filter(|(name, _)| lock.get(name).is_none()).collect();
    let removed = lock.pins().iter().filter(|(name, pin)| !now.contains_key(*name) && !out_of_reach(pin.source()));
    let removed: BTreeMap<_, _> = removed.collect();
    let renamed = renamed(&removed, &added);
    let gone: HashSet<_> = renamed.values().copied().collect();
    for (name, pin) in removed.iter().filter(|(name, _)| !gone.contains(*name)) {
        found.push(alone(name, Change::Removed, pin));
    }
    for (name, pin) in &added {
        found.push(match renamed.get(name).and_then(|from| Some((from, removed.get(from)?))) {
            Some((from, before)) => of_edits(name, Change::Renamed { from: (*from).clone() }, before, pin),
            None => alone(name, Change::Added, pin),
        });
    }
    found.sort_by(|one, other| one.tool.cmp(&other.tool));
    found
}

fn alone(name: &str, change: Change, pin: &Pin) -> Difference {
    let quarantined = change == Change::Added && !is_ours(pin.source());
    Difference { tool: name.to_owned(), change, origin: pin.origin().to_owned(), edits: Vec::new(), quarantined }
}

fn of_edits(name: &str, change: Change, before: &Pin, after: &Pin) -> Difference {
    let mut edits = Vec::new();
    compare_members(&mut String::new(), before.content(), after.content(), &mut edits);
    let quarantined = !is_ours(after.source());
    Difference { tool: name.to_owned(), change, origin: after.origin().to_owned(), edits, quarantined }
}

/// New name → old name, for a removed and an added tool that are probably the same. Compares the most reliable
/// properties first: the whole pin, the called operation, description and parameters, then either of these.
fn renamed<'a>(
    removed: &BTreeMap<&'a String, &Pin>,
    added: &BTreeMap<&'a String, &Pin>,
) -> BTreeMap<&'a String, &'a String> {
    type Sign = fn(&Pin) -> Option<String>;
    let signs: [Sign; 5] = [
        |pin| Some(Value::Object(pin.content().clone()).to_string()),
        |pin| pin.source().starts_with("openapi:").then(|| text_of(pin, &[ORIGIN])),
        |pin| has_arguments(pin).then(|| text_of(pin, &[DESCRIPTION, PARAMETERS])),
        |pin| (pin.description().len() > 20).then(|| text_of(pin, &[DESCRIPTION])),
        |pin| has_arguments(pin).then(|| text_of(pin, &[PARAMETERS])),
    ];
    let (mut renamed, mut gone) = (BTreeMap::new(), HashSet::new());
    for sign in signs {
        // A property that two tools share does not identify either.
        let mut new: HashMap<(&str, String), Option<&'a String>> = HashMap::new();
        for (name, pin) in added.iter().filter(|(name, _)| !renamed.contains_key(*name)) {
            let Some(sign) = sign(pin) else { continue };
            new.entry((pin.source(), sign)).and_modify(|other| *other = None).or_insert(Some(name));
        }
        for (name, pin) in removed {
            let Some(sign) = sign(pin).filter(|_| !gone.contains(*name)) else { continue };
            if let Some(Some(new)) = new.remove(&(pin.source(), sign)) {
                renamed.insert(new, *name);
                gone.insert(*name);
            }
        }
    }
    renamed
}

fn text_of(pin: &Pin, members: &[&str]) -> String {
    members.iter().map(|member| pin.content().get(*member).unwrap_or(&Value::Null).to_string()).collect()
}

fn has_arguments(pin: &Pin) -> bool {
    let properties = pin.content().get(PARAMETERS).and_then(|schema| schema.get("properties"));
    properties.and_then(Value::as_object).is_some_and(|properties| !properties.is_empty())
}

fn compare(path: &mut String, before: &Value, after: &Value, edits: &mut Vec<Edit>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(before), Value::Object(after)) => compare_members(path, before, after, edits),
        _ => edits.push(Edit { path: path.clone(), before: Some(before.clone()), after: Some(after.clone()) }),
    }
}

fn compare_members(path: &mut String, before: &Map<String, Value>, after: &Map<String, Value>, edits: &mut Vec<Edit>) {
    let length = path.len();
    let mut keys: Vec<_> = before.keys().chain(after.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        match (before.get(key), after.get(key)) {
            (Some(before), Some(after)) => compare(path, before, after, edits),
            (before, after) => {
                edits.push(Edit { path: path.clone(), before: before.cloned(), after: after.cloned() });
            }
        }
        path.truncate(length);
    }
}
