//! Describes the violations of a schema so that a model can correct them: the path, the rule, and advice.

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonTypeSet, ValidationError, Validator};
use serde_json::{Map, Value};

use super::bounds::local;
use sekisho_core::error::Detail;

/// Maximum number of violations reported for one value.
pub(super) const MAX_VIOLATIONS: usize = 20;
/// Maximum characters of a value in a message.
const MAX_VALUE: usize = 100;
/// Maximum characters of a path; a caller can send names of any length.
const MAX_PATH: usize = 400;
/// Maximum number of allowed names or values in a message.
const MAX_LISTED: usize = 12;
/// Jaro–Winkler similarity from which a name or value is suggested as the intended one.
const LIKELY_MEANT: f64 = 0.8;
/// Maximum number of nodes of a value for which all violations are collected.
const MAX_NODES: u64 = 5_000;
/// Maximum of nodes × (alternatives of the schema)^depth.
const MAX_EFFORT: u64 = 100_000;

/// One violation of a schema.
#[derive(Debug)]
pub(super) struct SchemaViolation {
    path: String,
    rule: String,
    /// The requirement, without the given value, so that it can be logged.
    pub(super) demand: String,
    /// The given value, or a suggestion.
    remark: String,
}

impl SchemaViolation {
    pub(super) fn into_detail(self) -> Detail {
        Detail { path: self.path, rule: self.rule, message: self.demand + &self.remark }
    }
}

/// How many violations are collected. `jsonschema` collects every error of every alternative, level by
/// level, before it returns the first, which can take gigabytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    All,
    First,
    None,
}

pub(super) fn effort(value: &Value, fan_out: u64) -> Effort {
    let (nodes, depth) = extent(value);
    let branching = fan_out.saturating_pow(depth);
    if nodes <= MAX_NODES && nodes.saturating_mul(branching) <= MAX_EFFORT {
        Effort::All
    } else if fan_out == 1 {
        Effort::First
    } else {
        Effort::None
    }
}

fn extent(value: &Value) -> (u64, u32) {
    let over = |(nodes, depth): (u64, u32), inner: &Value| {
        let (more, below) = extent(inner);
        (nodes + more, depth.max(below + 1))
    };
    match value {
        Value::Array(items) => items.iter().fold((1, 0), over),
        Value::Object(members) => members.values().fold((1, 0), over),
        _ => (1, 0),
    }
}

/// Describes at most [`MAX_VIOLATIONS`] violations of an invalid value. `subject` names the value in the messages.
pub(super) fn explain(
    validator: &Validator,
    document: &Value,
    value: &Value,
    subject: &'static str,
    effort: Effort,
) -> Vec<SchemaViolation> {
    let formatter = ViolationFormatter { document, subject };
    let mut violations = Vec::new();
    match effort {
        Effort::All => validator
            .iter_errors(value)
            .take(MAX_VIOLATIONS)
            .for_each(|error| formatter.explain(&error, &mut violations)),
        Effort::First => {
            validator.validate(value).err().iter().for_each(|error| formatter.explain(error, &mut violations));
        }
        Effort::None => {}
    }
    if violations.is_empty() {
        let demand = format!(
            "{subject} must match the schema; the value is too large to locate the violation, send a smaller one"
        );
        violations.push(SchemaViolation { path: String::new(), rule: "schema".into(), demand, remark: String::new() });
    }
    violations.truncate(MAX_VIOLATIONS);
    violations
}

struct ViolationFormatter<'s> {
    document: &'s Value,
    subject: &'static str,
}

impl ViolationFormatter<'_> {
    fn explain(&self, error: &ValidationError<'_>, violations: &mut Vec<SchemaViolation>) {
        let path = error.instance_path().as_str();
        match error.kind() {
            Kind::Required { property } => violations.push(self.missing(error, property.as_str().unwrap_or_default())),
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                let known = self.declared_beside(error);
                let each = unexpected.iter().take(MAX_VIOLATIONS);
                violations.extend(each.map(|name| {
                    let holder = self.holder_of(error, name);
                    self.unexpected(path, error.kind().keyword(), name, &known, holder)
                }));
            }
            kind => {
                let (demand, remark) = self.sentence(error);
                let rule = kind.keyword().to_owned();
                violations.push(SchemaViolation { path: shorten(path, MAX_PATH), rule, demand, remark });
            }
        }
    }

    fn missing(&self, error: &ValidationError<'_>, name: &str) -> SchemaViolation {
        let path = join(error.instance_path().as_str(), name);
        let expected = self
            .schema_around(error)
            .and_then(|schema| schema.get("properties")?.get(name))
            .and_then(|schema| self.describe(schema))
            .map_or_else(String::new, |what| format!(" ({what})"));
        let demand = format!("{} is missing: add it{expected}", self.place(&path));
        SchemaViolation { path: shorten(&path, MAX_PATH), rule: "required".into(), demand, remark: String::new() }
    }

    /// `holder`: the member that may have the name among its own.
    fn unexpected(
        &self,
        parent: &str,
        rule: &str,
        name: &str,
        known: &[&str],
        holder: Option<&str>,
    ) -> SchemaViolation {
        let place = self.place(parent);
        let demand = match known {
            [] => format!("{place} must not have other names"),
            names => {
                let names = list(names.iter().map(|name| format!("`{}`", shorten(name, 60))));
                format!("{place} may have only the names {names}")
            }
        };
        // The given name comes from the caller, so it is part of the remark, which is not logged.
        let given = shorten(name, 60);
        let remark = match (holder, nearest(name, known.iter().copied())) {
            (Some(holder), _) => format!("; put `{given}` into `{}`", shorten(holder, 60)),
            (None, Some(meant)) => format!("; `{given}` is not allowed, did you mean `{meant}`?"),
            (None, None) => format!("; remove `{given}`"),
        };
        SchemaViolation { path: shorten(&join(parent, name), MAX_PATH), rule: rule.to_owned(), demand, remark }
    }

    /// The requirement, and the given value.
    fn sentence(&self, error: &ValidationError<'_>) -> (String, String) {
        let place = self.place(error.instance_path().as_str());
        let got = || format!(", got {}", brief(error.instance()));
        match error.kind() {
            Kind::Type { kind } => (format!("{place} must be {}", types(kind)), got()),
            Kind::Constant { expected_value } => (format!("{place} must be {}", brief(expected_value)), got()),
            Kind::Enum { options } => {
                one_of(&place, error.instance(), &options.as_array().into_iter().flatten().collect::<Vec<_>>())
            }
            Kind::Pattern { pattern } => (format!("{place} must match the pattern `{}`", shorten(pattern, 200)), got()),
            Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => (
                format!("matching {place} against its pattern took too many steps; send a shorter or simpler text"),
                String::new(),
            ),
            Kind::Format { format } => (format!("{place} must be a valid {format}"), got()),
            Kind::MultipleOf { multiple_of } => (format!("{place} must be a multiple of {multiple_of}"), got()),
            Kind::UniqueItems => (format!("{place} must not have duplicate items"), String::new()),
            Kind::Contains => (format!("{place} must have more (or fewer) items that match `contains`"), String::new()),
            Kind::FalseSchema => (format!("{place} is not allowed: remove it"), String::new()),
            Kind::Not { .. } => (format!("{place} must not match the schema of `not`"), got()),
            Kind::PropertyNames { error: inner } => {
                (format!("{place} has a name that is not allowed"), format!(": {}", brief(inner.instance())))
            }
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => self.no_form_fits(&place, error, context),
            Kind::OneOfMultipleValid { .. } => (
                format!(
                    "{place} matches several alternatives, but must match exactly one: remove the members of the others"
                ),
                String::new(),
            ),
            kind => match bound(kind, error.instance()) {
                Some((demand, Some(count))) => (format!("{place} must {demand}"), format!(", has {count}")),
                Some((demand, None)) => (format!("{place} must {demand}"), got()),
                None => (format!("{place} violates `{}`", kind.keyword()), String::new()),
            },
        }
    }

    /// For a value that matches no alternative: describes the first violation of the nearest one.
    fn no_form_fits(
        &self,
        place: &str,
        error: &ValidationError<'_>,
        forms: &[Vec<ValidationError<'static>>],
    ) -> (String, String) {
        let here = error.instance_path().as_str();
        let demands: Vec<_> = forms.iter().map(|form| FormDemand::of(form, here)).collect();
        if !demands.iter().any(|demand| matches!(demand, FormDemand::Other)) {
            return Self::one_of_these(place, error.instance(), &demands);
        }
        let demand = format!("{place} must match one of {} alternatives", forms.len());
        let fitting = forms.iter().zip(&demands).filter(|(_, demand)| !matches!(demand, FormDemand::Type(_)));
        let nearest = fitting.map(|(form, _)| form).min_by_key(|form| form.len());
        let mut violations = Vec::new();
        if let Some(first) = nearest.and_then(|form| form.first()) {
            self.explain(first, &mut violations);
        }
        let remark = violations
            .into_iter()
            .next()
            .map_or_else(String::new, |first| format!("; the nearest: {}{}", first.demand, first.remark));
        (demand, shorten(&remark, 600))
    }

    /// For alternatives that are values and types.
    fn one_of_these(place: &str, given: &Value, demands: &[FormDemand<'_>]) -> (String, String) {
        let (mut values, mut kinds) = (Vec::new(), Vec::new());
        for demand in demands {
            match demand {
                FormDemand::Values(options) => values.extend_from_slice(options),
                FormDemand::Type(kind) => {
                    let kind = types(kind);
                    if !kinds.contains(&kind) {
                        kinds.push(kind);
                    }
                }
                FormDemand::Other => {}
            }
        }
        if values.is_empty() {
            return (format!("{place} must be {}", kinds.join(" or ")), format!(", got {}", brief(given)));
        }
        let (demand, remark) = one_of(place, given, &values);
        (std::iter::once(demand).chain(kinds).collect::<Vec<_>>().join(" or "), remark)
    }

    /// The schema whose keyword failed.
    fn schema_around(&self, error: &ValidationError<'_>) -> Option<&Map<String, Value>> {
        let (parent, _) = error.schema_path().as_str().rsplit_once('/')?;
        self.document.pointer(parent)?.as_object()
    }

    fn declared_beside(&self, error: &ValidationError<'_>) -> Vec<&str> {
        let declared = self.schema_around(error).and_then(|schema| schema.get("properties")?.as_object());
        declared.into_iter().flat_map(Map::keys).map(String::as_str).collect()
    }

    /// The declared member with a member of this name, such as the optional body of an operation.
    fn holder_of(&self, error: &ValidationError<'_>, name: &str) -> Option<&str> {
        let declared = self.schema_around(error)?.get("properties")?.as_object()?;
        let has = |schema: &Value| {
            let members = self.resolved(schema).get("properties");
            members.is_some_and(|members| members.get(name).is_some())
        };
        declared.iter().find(|(_, schema)| has(schema)).map(|(holder, _)| holder.as_str())
    }

    /// The schema, or that to which it refers.
    fn resolved<'v>(&'v self, schema: &'v Value) -> &'v Value {
        let referred = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        referred.and_then(|fragment| local(self.document, fragment)).unwrap_or(schema)
    }

    /// A short description of the values that a schema allows.
    fn describe(&self, schema: &Value) -> Option<String> {
        let schema = self.resolved(schema);
        if let Some(Value::Array(options)) = schema.get("enum") {
            return Some(format!("one of {}", list(options.iter().map(brief))));
        }
        match schema.get("type")? {
            Value::String(name) => Some(with_article(name)),
            Value::Array(names) => {
                Some(names.iter().filter_map(Value::as_str).map(with_article).collect::<Vec<_>>().join(" or "))
            }
            _ => None,
        }
    }

    /// A path in readable form: `` `items[0].name` ``.
    fn place(&self, path: &str) -> String {
        if path.is_empty() {
            return self.subject.to_owned();
        }
        let mut readable = String::new();
        for step in path.split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
            if !readable.is_empty() && !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()) {
                readable.push_str(&format!("[{step}]"));
            } else {
                readable.push_str(if readable.is_empty() { "" } else { "." });
                readable.push_str(&step);
            }
        }
        format!("`{}`", shorten(&readable, MAX_VALUE))
    }
}

/// What an alternative demands of a value that does not match it.
enum FormDemand<'e> {
    Values(Vec<&'e Value>),
    Type(&'e TypeKind),
    /// Something of a part of the value, or another keyword.
    Other,
}

impl<'e> FormDemand<'e> {
    /// `here`: the path of the value.
    fn of(form: &'e [ValidationError<'static>], here: &str) -> Self {
        let mut found = Self::Other;
        for error in form.iter().filter(|error| error.instance_path().as_str() == here) {
            match error.kind() {
                Kind::Enum { options } => return Self::Values(options.as_array().into_iter().flatten().collect()),
                Kind::Constant { expected_value } => return Self::Values(vec![expected_value]),
                Kind::Type { kind } => found = Self::Type(kind),
                _ => {}
            }
        }
        found
    }
}

/// The values that are allowed, and the given one.
fn one_of(place: &str, given: &Value, options: &[&Value]) -> (String, String) {
    let demand = format!("{place} must be one of {}", list(options.iter().map(|option| brief(option))));
    let meant = given.as_str().and_then(|given| nearest(given, options.iter().filter_map(|option| option.as_str())));
    let remark = match meant {
        Some(meant) => format!("; did you mean {}?", brief(&meant.into())),
        None => format!(", got {}", brief(given)),
    };
    (demand, remark)
}

/// Bounds on numbers and sizes: the requirement, and the actual size if the bound is on a size.
fn bound(kind: &Kind, value: &Value) -> Option<(String, Option<usize>)> {
    let characters = || value.as_str().map(|text| text.chars().count());
    let items = || value.as_array().map(Vec::len);
    let members = || value.as_object().map(Map::len);
    Some(match kind {
        Kind::Minimum { limit } => (format!("be at least {limit}"), None),
        Kind::Maximum { limit } => (format!("be at most {limit}"), None),
        Kind::ExclusiveMinimum { limit } => (format!("be more than {limit}"), None),
        Kind::ExclusiveMaximum { limit } => (format!("be less than {limit}"), None),
        Kind::MinLength { limit } => (format!("have at least {limit} characters"), characters()),
        Kind::MaxLength { limit } => (format!("have at most {limit} characters"), characters()),
        Kind::MinItems { limit } => (format!("have at least {limit} items"), items()),
        Kind::MaxItems { limit } => (format!("have at most {limit} items"), items()),
        Kind::AdditionalItems { limit } => (format!("have at most {limit} items"), items()),
        Kind::MinProperties { limit } => (format!("have at least {limit} members"), members()),
        Kind::MaxProperties { limit } => (format!("have at most {limit} members"), members()),
        Kind::UnevaluatedItems { unexpected } => ("have no further items".into(), Some(unexpected.len())),
        _ => return None,
    })
}

fn types(kind: &TypeKind) -> String {
    let set = match kind {
        TypeKind::Single(only) => JsonTypeSet::from(*only),
        TypeKind::Multiple(set) => *set,
    };
    set.iter().map(|kind| with_article(kind.as_str())).collect::<Vec<_>>().join(" or ")
}

fn with_article(kind: &str) -> String {
    match kind {
        "null" => "null".into(),
        "boolean" => "true or false".into(),
        "integer" | "array" | "object" => format!("an {kind}"),
        other => format!("a {other}"),
    }
}

/// A value in a few characters: truncates long texts, and shows only the size of arrays and objects.
pub(super) fn brief(value: &Value) -> String {
    match value {
        Value::String(text) => Value::String(shorten(text, MAX_VALUE)).to_string(),
        Value::Array(items) => format!("an array of {} items", items.len()),
        Value::Object(members) => format!("an object of {} members", members.len()),
        other => other.to_string(),
    }
}

pub(super) fn shorten(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    let further = items.len().saturating_sub(MAX_LISTED);
    let mut listed = items.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    if further > 0 {
        listed.push_str(&format!(" and {further} more"));
    }
    listed
}

/// The name most similar to the given one, if it is similar enough.
fn nearest<'n>(given: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let given = shorten(given, MAX_VALUE).to_lowercase();
    names
        .map(|name| (strsim::jaro_winkler(&name.to_lowercase(), &given), name))
        .filter(|(likeness, _)| *likeness >= LIKELY_MEANT)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

fn join(parent: &str, name: &str) -> String {
    format!("{parent}/{}", name.replace('~', "~0").replace('/', "~1"))
}
