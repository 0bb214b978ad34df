//! The rules as data: weights, limits and words.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// A kind of finding.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Rule {
    NoDescription,
    ShortDescription,
    LongDescription,
    UndescribedParameters,
    UndeclaredEnum,
    AmbiguousName,
    SimilarName,
    SimilarDescription,
    LargeSchema,
    WrongAnnotation,
}

/// The rules of `rules.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    rules: BTreeMap<Rule, RuleText>,
    pub(super) min_description_words: usize,
    pub(super) max_description_characters: usize,
    pub(super) max_schema_lines: usize,
    pub(super) generic_words: HashSet<String>,
    pub(super) articles: HashSet<String>,
    pub(super) same_verbs: Vec<Vec<String>>,
    pub(super) changing_verbs: HashSet<String>,
    pub(super) determiners: HashSet<String>,
    /// Patterns of a listing of values, in which `VALUES` and `QUOTED` stand for several values.
    pub(super) enumerations: Vec<String>,
    pub(super) examples: Vec<String>,
    pub(super) max_values: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleText {
    /// Points that a finding costs its tool.
    pub(super) weight: u32,
    pub(super) advice: String,
}

#[expect(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
pub(super) static RULES: LazyLock<Rules> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("rules.yaml")).expect("a test reads the rules"));

/// Of a rule that the file lacks, which a test refuses.
static NO_TEXT: LazyLock<RuleText> = LazyLock::new(RuleText::default);

sekisho_core::as_str!(Rule);

impl Rule {
    pub(super) fn text(self) -> &'static RuleText {
        RULES.rules.get(&self).unwrap_or(&NO_TEXT)
    }
}
