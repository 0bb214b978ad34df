//! The arguments of a tool: their schema, as it is described, offered and compiled, and arguments that match it.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::aliases::Aliases;
use super::violation::SchemaViolation;
use super::{InvalidSchema, Schema, coerce, lowering, violation};
use crate::tool::{FilledIn, JudgedCall, SentForm, Shape};
use crate::transform::Transforms;
use sekisho_core::call::Arguments;
use sekisho_core::coercion::Coercion;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;
use sekisho_core::transform_finding::{TransformFinding, names_of};

/// The schema of a tool's arguments as its source describes it.
#[derive(Debug, Clone)]
pub enum Parameters {
    /// Not compiled yet.
    Described(Value),
    /// Compiled by the source, which had to check the schema; not compiled again.
    Compiled(Arc<ArgumentSchema>),
}

/// A compiled schema of arguments.
#[derive(Debug)]
pub struct ArgumentSchema {
    schema: Schema,
    /// As the source describes it, where that is another document.
    described: Option<Box<Value>>,
    /// As it is offered, where that is another document.
    offered: Option<Arc<Value>>,
    hash: String,
    aliases: Aliases,
}

/// Validates and, if enabled, coerces the arguments of a tool.
#[derive(Debug)]
pub struct InputSchema {
    schema: Arc<ArgumentSchema>,
    tool: String,
    coerce: bool,
}

/// Arguments that match the schema of their tool, and the form in which they are sent. Only [`InputSchema::validate`] creates
/// them.
#[derive(Debug)]
pub struct ValidArguments {
    arguments: Arguments,
    /// Where they are sent in another form.
    other_form: Option<Box<OtherForm>>,
    /// Whether values were filled in that did not come with the call.
    is_filled_in: bool,
    coercions: Vec<Coercion>,
    findings: Vec<TransformFinding>,
    /// Where they come from, if that is looked up.
    judged: Option<Arc<JudgedCall>>,
}

/// Arguments in another form than the tool's own.
#[derive(Debug)]
struct OtherForm {
    /// Values for which the tool has no argument.
    further: Arguments,
    sent: Arguments,
}

impl Parameters {
    /// As they are offered.
    pub fn document(&self) -> &Value {
        match self {
            Self::Described(document) => document,
            Self::Compiled(compiled) => compiled.document(),
        }
    }

    /// As the source describes them.
    pub fn described(&self) -> &Value {
        match self {
            Self::Described(document) => document,
            Self::Compiled(compiled) => compiled.described.as_deref().unwrap_or(&compiled.schema.document),
        }
    }

    fn compile(self) -> Result<Arc<ArgumentSchema>, InvalidSchema> {
        match self {
            Self::Described(document) => ArgumentSchema::compile(document).map(Arc::new),
            Self::Compiled(compiled) => Ok(compiled),
        }
    }
}

impl Parameters {
    /// Compiles the schema if possible, so that the registry shares it. The registry reports errors.
    pub fn shared(document: Value) -> Self {
        match ArgumentSchema::compile(document.clone()) {
            Ok(compiled) => Self::Compiled(Arc::new(compiled)),
            Err(_) => Self::Described(document),
        }
    }
}

impl From<Value> for Parameters {
    fn from(document: Value) -> Self {
        Self::Described(document)
    }
}

impl ArgumentSchema {
    /// A root without `type` becomes `type: object`. What models and clients refuse is lowered ([`lowering`]).
    /// Errors: [`InvalidSchema`]: the document is not a JSON Schema, its root does not allow an object, it has an
    /// external reference, or it exceeds a limit.
    pub fn compile(mut document: Value) -> Result<Self, InvalidSchema> {
        let Value::Object(root) = &mut document else {
            return Err(InvalidSchema("the schema of arguments must be an object with `type: object`".into()));
        };
        match root.get("type") {
            None => {
                root.insert("type".into(), "object".into());
            }
            Some(Value::String(kind)) if kind == "object" => {}
            Some(other) => {
                let message =
                    format!("the schema of arguments must have `type: object`, not {}", violation::brief(other));
                return Err(InvalidSchema(message));
            }
        }
        let hash = hex::encode(json::digest(root));
        let described = Box::new(document.clone());
        let described = lowering::lower(&mut document).then_some(described);
        let schema = Schema::compile(document)?;
        let offered = lowering::without_union(&schema.document).map(Arc::new);
        Ok(Self { schema, described, offered, hash, aliases: Aliases::default() })
    }

    /// With other forms in which the arguments may come.
    pub fn with_aliases(self, aliases: Aliases) -> Self {
        Self { aliases, ..self }
    }

    /// As it is offered: in the form that models and clients accept.
    pub fn document(&self) -> &Value {
        self.offered.as_ref().unwrap_or(&self.schema.document)
    }
}

impl InputSchema {
    /// `tool` is the tool's own name, for unwrapping arguments nested under it; `coerce` enables
    /// coercion ([`Coercion`]).
    /// Errors: as [`ArgumentSchema::compile`].
    pub fn compile(tool: &str, parameters: impl Into<Parameters>, coerce: bool) -> Result<Self, InvalidSchema> {
        Ok(Self { schema: parameters.into().compile()?, tool: tool.to_owned(), coerce })
    }

    pub fn document(&self) -> &Value {
        self.schema.document()
    }

    /// The same, shared.
    pub fn shared_document(&self) -> Arc<Value> {
        Arc::clone(self.schema.offered.as_ref().unwrap_or(&self.schema.schema.document))
    }

    /// SHA-256 (hex) of the canonical document as the source describes it.
    pub fn hash(&self) -> &str {
        &self.schema.hash
    }

    /// Validates the arguments. If coercion is enabled, coerces values of the wrong JSON type first.
    /// Errors: `invalid_arguments`, with at most [`violation::MAX_VIOLATIONS`] details: path, rule, and advice.
    pub fn validate(&self, mut arguments: Arguments) -> Result<ValidArguments, CallError> {
        let renamed = if self.coerce { self.schema.aliases.apply(&mut arguments) } else { Vec::new() };
        let mut valid = self.validate_as_offered(Value::Object(arguments))?;
        valid.coercions.splice(0..0, renamed);
        Ok(valid)
    }

    fn validate_as_offered(&self, arguments: Value) -> Result<ValidArguments, CallError> {
        let Schema { document, bounds, .. } = &self.schema.schema;
        let validator = self.schema.schema.validator();
        let fits = validator.is_valid(&arguments);
        if fits && !(self.coerce && bounds.has_integers && coerce::holds_whole_float(&arguments)) {
            return Ok(ValidArguments::new(arguments, Vec::new()));
        }
        let coerced = if self.coerce { coerce::coerce(document, &self.tool, &arguments, fits) } else { None };
        match coerced {
            Some((coerced, coercions)) if validator.is_valid(&coerced) => Ok(ValidArguments::new(coerced, coercions)),
            _ if fits => Ok(ValidArguments::new(arguments, Vec::new())),
            Some((coerced, _)) => Err(self.refusal(&coerced)),
            None => Err(self.refusal(&arguments)),
        }
    }

    /// The same with another document, and with the aliases of this one.
    pub(in crate::tool) fn offered_as(&self, document: Value) -> Result<Self, InvalidSchema> {
        let schema = ArgumentSchema::compile(document)?.with_aliases(self.schema.aliases.clone());
        Ok(Self { schema: Arc::new(schema), tool: self.tool.clone(), coerce: self.coerce })
    }

    /// Adds fixed values and defaults to arguments that match the offered schema, and validates the result.
    /// Errors: as [`validate`](Self::validate).
    pub(in crate::tool) fn complete(&self, valid: ValidArguments, shape: &Shape) -> Result<ValidArguments, CallError> {
        let ValidArguments { mut arguments, coercions, .. } = valid;
        let is_filled_in = shape.complete(&mut arguments);
        let complete = self.validate(arguments)?;
        let coercions = coercions.into_iter().chain(complete.coercions).collect();
        Ok(ValidArguments { coercions, is_filled_in, ..complete })
    }

    /// Adds the values that their form fills in to valid arguments, and validates the result.
    /// Errors: as [`validate`](Self::validate).
    pub(in crate::tool) fn fill_in(
        &self,
        mut valid: ValidArguments,
        form: &dyn SentForm,
        prompt_params: &Map<String, Value>,
    ) -> Result<ValidArguments, CallError> {
        let FilledIn { changed, further } = form.fill_in(&mut valid.arguments, prompt_params);
        let other_form = Some(Box::new(OtherForm { further, sent: Arguments::new() }));
        if !changed {
            return Ok(ValidArguments { other_form, ..valid });
        }
        let filled = self.validate(valid.arguments).map_err(|error| {
            let tool = &self.tool;
            let message = format!(
                "what the vendor adapter fills in, from `session_context.prompt_params` or as a default, does not match the \
                 schema of {tool}"
            );
            CallError::new(ErrorCode::InvalidArguments, message).with_details(error.details().to_vec())
        })?;
        let coercions = valid.coercions.into_iter().chain(filled.coercions).collect();
        Ok(ValidArguments { coercions, other_form, is_filled_in: true, ..filled })
    }

    /// Changes valid arguments by the rules, and validates the result.
    /// Errors: as [`validate`](Self::validate), naming the rules if their result does not match the schema.
    pub(in crate::tool) fn change(
        &self,
        mut valid: ValidArguments,
        rules: &Transforms,
    ) -> Result<ValidArguments, CallError> {
        let findings = rules.change_arguments(&mut valid.arguments);
        if findings.is_empty() {
            return Ok(valid);
        }
        let changed = self.validate(valid.arguments).map_err(|error| {
            let (tool, rules) = (&self.tool, names_of(&findings));
            let message = format!(
                "the rules {rules} of tools.transform.arguments leave arguments that do not match the schema of {tool}"
            );
            CallError::new(ErrorCode::InvalidArguments, message).with_details(error.details().to_vec())
        })?;
        // The values before a rule changed them are kept nowhere.
        let without_values = |coercion: Coercion| Coercion { from: Value::Null, to: Value::Null, ..coercion };
        let coercions = valid.coercions.into_iter().map(without_values).chain(changed.coercions).collect();
        let ValidArguments { other_form, is_filled_in, .. } = valid;
        Ok(ValidArguments { coercions, findings, other_form, is_filled_in, ..changed })
    }

    #[cold]
    fn refusal(&self, arguments: &Value) -> CallError {
        let violations = self.schema.schema.violations(arguments, "the arguments");
        // The details contain the values of the caller. The message does not, because it is logged.
        let first = violations.first().map_or("they do not match its schema", |first| first.demand.as_str());
        let mut message = format!("invalid arguments for {}: {first}", self.tool);
        if violations.len() > 1 {
            let _ = write!(message, " (and {} more in `details`)", violations.len() - 1);
        }
        CallError::new(ErrorCode::InvalidArguments, message)
            .with_details(violations.into_iter().map(SchemaViolation::into_detail).collect())
    }
}

impl ValidArguments {
    fn new(arguments: Value, coercions: Vec<Coercion>) -> Self {
        let arguments = match arguments {
            Value::Object(members) => members,
            _ => Arguments::new(),
        };
        Self { arguments, other_form: None, is_filled_in: false, coercions, findings: Vec::new(), judged: None }
    }

    /// Writes the arguments in their sent form.
    pub(in crate::tool) fn sent_in(self, form: &dyn SentForm) -> Self {
        let further = self.other_form.map(|other| other.further).unwrap_or_default();
        let sent = form.sent(&self.arguments, &further);
        let is_other = sent != self.arguments;
        Self { other_form: is_other.then(|| Box::new(OtherForm { further, sent })), ..self }
    }

    /// The same, judged by where they come from.
    pub(crate) fn judged(self, judged: JudgedCall) -> Self {
        Self { judged: Some(Arc::new(judged)), ..self }
    }

    /// Where they come from, with the questions about them; `None` where that is not looked up.
    pub fn judgement(&self) -> Option<&Arc<JudgedCall>> {
        self.judged.as_ref()
    }

    /// By the names of the tool.
    pub fn as_map(&self) -> &Arguments {
        &self.arguments
    }

    /// As they are sent: by the names of who gets them.
    pub fn sent(&self) -> &Arguments {
        self.other_form.as_ref().map_or(&self.arguments, |other| &other.sent)
    }

    /// The arguments of [`sent`](Self::sent) for which the tool has no name, if they are sent in another form than the
    /// tool's.
    pub fn further(&self) -> Option<&Arguments> {
        self.other_form.as_ref().map(|other| &other.further)
    }

    /// Whether other values or names are sent than came.
    pub fn is_sent_otherwise(&self) -> bool {
        self.other_form.is_some() || self.is_filled_in || !self.coercions.is_empty() || !self.findings.is_empty()
    }

    /// The changes made to the arguments.
    pub fn coercions(&self) -> &[Coercion] {
        &self.coercions
    }

    /// The changes by rules of `tools.transform`.
    pub fn findings(&self) -> &[TransformFinding] {
        &self.findings
    }
}
