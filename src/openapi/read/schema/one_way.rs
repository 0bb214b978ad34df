//! Properties that go one way only: `readOnly` ones are not in requests, `writeOnly` ones not in responses.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::{Direction, Lowering, Site};
use crate::read::reference::reference;

/// Most parts of one composition that are looked into.
const MAX_PARTS: usize = 500;

/// Removes the properties that are not sent in this direction, and the `required` entries for them, in all parts of a
/// composition.
pub(super) fn drop_one_way<'d>(
    lowering: &mut Lowering<'d>,
    lowered: &mut Map<String, Value>,
    members: &Map<String, Value>,
    site: Site<'_, 'd>,
) {
    let mut own = BTreeSet::new();
    collect_own(members, site, &mut own);
    for name in &own {
        if let Some(Value::Object(kept)) = lowered.get_mut("properties") {
            kept.shift_remove(name);
        }
    }
    let mut all = own;
    if let Some(Value::Array(parts)) = members.get("allOf") {
        let mut seen = HashSet::new();
        parts.iter().for_each(|part| collect(part, site, &mut seen, &mut all));
        if let (false, Some(Value::Array(lowered))) = (all.is_empty(), lowered.get_mut("allOf")) {
            for (part, lowered) in parts.iter().zip(lowered) {
                if let Some(target) = requiring(part, site, &all)
                    && let Some(inline) = lowering.lower_inline(target, site)
                {
                    // The definition is shared: elsewhere the property may be required.
                    *lowered = inline;
                }
                forget(lowered, &all);
            }
        }
    }
    if !all.is_empty() {
        retain_required(lowered, &all);
    }
}

/// The target of a part that is a reference and requires a property that another part marks.
fn requiring<'d>(part: &Value, site: Site<'_, 'd>, dropped: &BTreeSet<String>) -> Option<&'d Value> {
    let target = site.references.at(reference(part)?).and_then(|target| site.references.follow(target)).ok()?;
    let members = target.as_object()?;
    let mut own = BTreeSet::new();
    collect_own(members, site, &mut own);
    let required = members.get("required")?.as_array()?;
    let is_dropped = |name: &Value| name.as_str().is_some_and(|name| dropped.contains(name) && !own.contains(name));
    required.iter().any(is_dropped).then_some(target)
}

fn forget(lowered: &mut Value, dropped: &BTreeSet<String>) {
    let Value::Object(lowered) = lowered else { return };
    retain_required(lowered, dropped);
    if let Some(Value::Array(parts)) = lowered.get_mut("allOf") {
        parts.iter_mut().for_each(|part| forget(part, dropped));
    }
}

fn retain_required(lowered: &mut Map<String, Value>, dropped: &BTreeSet<String>) {
    if let Some(Value::Array(required)) = lowered.get_mut("required") {
        required.retain(|name| !name.as_str().is_some_and(|name| dropped.contains(name)));
    }
}

/// The names in a part and the parts of it. One may refer to the same schema many times.
fn collect<'v, 'd: 'v>(
    part: &'v Value,
    site: Site<'_, 'd>,
    seen: &mut HashSet<*const Value>,
    found: &mut BTreeSet<String>,
) {
    let mut pending = vec![part];
    while let Some(part) = pending.pop().filter(|_| seen.len() < MAX_PARTS) {
        let Ok(part) = site.references.target(part) else { continue };
        let Some(members) = part.as_object().filter(|_| seen.insert(std::ptr::from_ref(part))) else { continue };
        collect_own(members, site, found);
        pending.extend(members.get("allOf").and_then(Value::as_array).into_iter().flatten());
    }
}

fn collect_own(members: &Map<String, Value>, site: Site<'_, '_>, found: &mut BTreeSet<String>) {
    let flag = match site.direction {
        Direction::Request | Direction::MergePatch => "readOnly",
        Direction::Response => "writeOnly",
    };
    let is_set = |schema: &Value| schema.get(flag) == Some(&Value::Bool(true));
    let goes_other_way = |schema: &Value| is_set(schema) || site.references.target(schema).is_ok_and(is_set);
    let properties = members.get("properties").and_then(Value::as_object).into_iter().flatten();
    found.extend(properties.filter(|(_, schema)| goes_other_way(schema)).map(|(name, _)| name.clone()));
}
