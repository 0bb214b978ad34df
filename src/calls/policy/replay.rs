//! Evaluates another set about calls that were decided before, by the input that the audit trail has of them (`recording.decisions`).
//! The fields of a line without it are enough for rules that read no more.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::load::{self, PolicyError};
use super::set::PolicySet;
use super::{Checks, Verdict, input, load_set};
use sekisho_config::PolicyConfig;
use sekisho_core::bounded::BoundedCache;

pub use super::shadow::DecisionKind;

/// Verdicts that are kept: most calls are equal in what rules read.
const MAX_VERDICTS: usize = 65_536;

/// Read by builtins whose results change.
const CHANGING: &str = "the clock, random numbers or the network";

/// The active set, and another one.
#[derive(Debug)]
pub struct PolicyReplay {
    before: PolicySet,
    after: PolicySet,
    /// The paths of the input that rules of the two sets read.
    reads: BTreeSet<Vec<String>>,
    /// By the SHA-256 of the parts of the input that are read.
    judged: BoundedCache<[u8; 32], Judged>,
}

/// The known part of the input about a call.
#[derive(Debug, Clone, PartialEq)]
pub enum KnownInput {
    /// The whole input.
    Whole(Json),
    /// Some of its parts; the ones with these names as a whole.
    Parts(Json, &'static [&'static str]),
}

/// The change of a decision by another set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    Same(DecisionKind),
    Changed {
        before: DecisionKind,
        after: DecisionKind,
        /// Of the set that is stricter.
        reason: String,
    },
    /// Rules read something that is not known: its path in the input.
    Unknown {
        reads: String,
    },
}

impl PolicyReplay {
    /// The configured set, and the one of a folder.
    /// Errors: all errors of a set.
    pub fn load(config: &PolicyConfig, directory: &Path) -> Result<Self, Vec<PolicyError>> {
        let checks = Checks { dangerous_roles: config.dangerous_roles.clone() };
        let after = load::load(Some(directory), Duration::from_millis(config.timeout_ms), checks)?;
        let before = load_set(config)?;
        let reads = before.input_paths.union(&after.input_paths).cloned().collect();
        Ok(Self { before, after, reads, judged: BoundedCache::new(MAX_VERDICTS) })
    }

    /// Judges a call by both sets.
    pub fn judge(&self, known: &KnownInput) -> Judged {
        if self.before.reads.changing_builtin || self.after.reads.changing_builtin {
            return Judged::Unknown { reads: CHANGING.to_owned() };
        }
        let input = match known.of(&self.reads) {
            Ok(input) => input,
            Err(reads) => return Judged::Unknown { reads },
        };
        let key = Sha256::digest(self.read_parts(input).to_string()).into();
        if let Some(judged) = self.judged.get(&key, |judged| Some(judged.clone())) {
            return judged;
        }
        let judged = self.judge_anew(input);
        self.judged.insert(key, judged.clone(), |_| false);
        judged
    }

    /// The decision of the other set, with its reasons.
    /// Errors: as in [`Judged::Unknown`].
    pub fn decide(&self, known: &KnownInput) -> Result<(DecisionKind, String), String> {
        if self.after.reads.changing_builtin {
            return Err(CHANGING.to_owned());
        }
        let Verdict { denials, approvals } = verdict(&self.after, known.of(&self.after.input_paths)?);
        let kind = DecisionKind::of(&denials, &approvals);
        Ok((kind, [denials, approvals].concat().join("; ")))
    }

    fn judge_anew(&self, input: &Json) -> Judged {
        let (before, after) = (verdict(&self.before, input), verdict(&self.after, input));
        let kind_of = |verdict: &Verdict| DecisionKind::of(&verdict.denials, &verdict.approvals);
        let kinds = (kind_of(&before), kind_of(&after));
        if kinds.0 == kinds.1 {
            return Judged::Same(kinds.0);
        }
        let stricter = if kinds.1 > kinds.0 { after } else { before };
        let reasons = if stricter.denials.is_empty() { stricter.approvals } else { stricter.denials };
        Judged::Changed { before: kinds.0, after: kinds.1, reason: reasons.join("; ") }
    }

    /// The parts of an input that rules read: equal ones have equal verdicts.
    fn read_parts(&self, input: &Json) -> Json {
        let mut parts = Map::new();
        for path in &self.reads {
            let Some(field) = path.first() else { return input.clone() };
            let (name, value) = match path.get(1) {
                Some(inner) => (format!("{field}.{inner}"), &input[field][inner]),
                None => (field.clone(), &input[field]),
            };
            parts.insert(name, value.clone());
        }
        parts.into()
    }
}

fn verdict(set: &PolicySet, input: &Json) -> Verdict {
    let evaluated = input::converted(input, 1).and_then(|input| set.evaluate(&input));
    // As for a call.
    evaluated.unwrap_or_else(|failure| Verdict { denials: vec![failure], approvals: Vec::new() })
}

impl KnownInput {
    /// The input, where it has all these paths.
    /// Errors: the first path that it does not have.
    fn of(&self, paths: &BTreeSet<Vec<String>>) -> Result<&Json, String> {
        let (parts, whole) = match self {
            Self::Whole(input) => return Ok(input),
            Self::Parts(parts, whole) => (parts, whole),
        };
        // Of an object that is not there as a whole, a rule that reads all of it reads something that is not known.
        let has = |path: &&Vec<String>| match path.as_slice() {
            [] => false,
            [field, ..] if whole.contains(&field.as_str()) => parts.get(field).is_some(),
            [field] => parts.get(field).is_some_and(|value| !value.is_object()),
            [field, inner, ..] => parts.get(field).is_some_and(|value| value.is_null() || value.get(inner).is_some()),
        };
        match paths.iter().find(|path| !has(path)) {
            None => Ok(parts),
            Some(path) => Err(path.iter().fold("input".to_owned(), |path, name| format!("{path}.{name}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use serde_json::json;
    use tempfile::TempDir;

    const BEFORE: &str = "package tools\nimport rego.v1\ndeny contains \"no\" if input.tool == \"rm\"\n";

    fn replay(after: &str) -> (TempDir, PolicyReplay) {
        let folder = TempDir::new().unwrap();
        for (name, rego) in [("before", BEFORE), ("after", after)] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("tools.rego"), rego).unwrap();
        }
        let config = PolicyConfig { directory: Some(folder.path().join("before")), ..PolicyConfig::default() };
        let replay = PolicyReplay::load(&config, &folder.path().join("after")).unwrap();
        (folder, replay)
    }

    fn whole(tool: &str, role: &str, path: &str) -> KnownInput {
        KnownInput::Whole(json!({
            "tool": tool, "kind": "tool", "target": null, "arguments": {"path": path},
            "user": {"id": "ann", "tenant": "acme", "roles": [role], "anonymous": false},
        }))
    }

    #[test]
    fn a_set_that_is_stricter_and_laxer_is_told_by_call() {
        let (_folder, replay) = replay(
            "package tools\nimport rego.v1\n\
             deny contains \"interns read no payroll\" if {\n\
               \"intern\" in input.user.roles\n  startswith(input.arguments.path, \"payroll/\")\n}\n\
             require_approval contains \"ask\" if input.tool == \"mail\"\n",
        );
        let changed = |before, after, reason: &str| Judged::Changed { before, after, reason: reason.to_owned() };
        let (allow, ask, deny) = (DecisionKind::Allow, DecisionKind::RequireApproval, DecisionKind::Deny);
        for (known, expected) in [
            (whole("read", "intern", "payroll/may"), changed(allow, deny, "interns read no payroll")),
            (whole("read", "intern", "news"), Judged::Same(allow)),
            (whole("read", "chief", "payroll/may"), Judged::Same(allow)),
            (whole("rm", "chief", "x"), changed(deny, allow, "no")),
            (whole("mail", "chief", "x"), changed(allow, ask, "ask")),
        ] {
            assert_eq!(replay.judge(&known), expected, "{known:?}");
            assert_eq!(replay.judge(&known), expected, "the second time");
        }
    }

    #[test]
    fn what_a_line_does_not_say_is_not_guessed() {
        let line =
            json!({"tool": "read", "user": {"id": "ann", "tenant": "acme"}, "call": {"depth": 0}, "session": null});
        for (rule, expected) in [
            ("input.tool == \"read\"", None),
            ("input.user.id == \"ann\"", None),
            ("input.call.depth > 9", None),
            ("input.user.roles[0] == \"a\"", Some("input.user.roles")),
            ("input.arguments.path == \"a\"", Some("input.arguments.path")),
            ("input.user == {}", Some("input.user")),
            ("input.session.calls > 3", None),
            ("count(input) > 3", Some("input")),
            ("time.now_ns() > 5", Some(CHANGING)),
        ] {
            let (_folder, replay) = replay(&format!("package tools\nimport rego.v1\ndeny contains \"x\" if {rule}\n"));
            let judged = replay.judge(&KnownInput::Parts(line.clone(), &["arguments"]));
            let decided = replay.decide(&KnownInput::Parts(line.clone(), &["arguments"]));
            assert_eq!(decided.err().as_deref(), expected, "{rule}");
            match expected {
                None => assert!(!matches!(judged, Judged::Unknown { .. }), "{rule}: {judged:?}"),
                Some(reads) => assert_eq!(judged, Judged::Unknown { reads: reads.to_owned() }, "{rule}"),
            }
        }
    }
}
