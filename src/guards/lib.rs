//! Detectors for texts of tools and callers: injections, hidden text, links that carry data, secrets, addresses and numbers of
//! persons. No input or output, no clock.
//!
//! [`rules`] are data: `rules.yaml` ships with the program, and a file of the operator may take its place. [`scan`] has them look at
//! a text, [`anchors`] says which of them may find something, [`views`] the text once it is normalized and decoded. [`known`] has the forms of secrets, e-mail
//! addresses and card numbers, [`hidden`] the characters that nobody sees, [`numbers`] the check digits.

mod anchors;
mod hidden;
mod known;
mod numbers;
mod rules;
mod scan;
#[cfg(test)]
mod tests;
mod views;

use schemars::JsonSchema;
use serde::Deserialize;

pub use self::hidden::{escape_hidden, hidden_characters};
pub use self::rules::{InvalidRules, MAX_RULES_BYTES, Rules};
pub use self::scan::{Choice, Found};

/// A kind of findings in texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Detector {
    /// Private keys, tokens and keys of known forms, and passwords in URLs and assignments.
    Secrets,
    Emails,
    /// Numbers of payment cards, with a valid check digit (Luhn).
    CardNumbers,
    /// Numbers of bank accounts and persons, by country, with valid check digits where they have some.
    PersonalNumbers,
    /// Sentences that instruct a model, also encoded or in other letters that look the same.
    Injections,
    /// Text that a model reads and a person does not see: tag characters, escapes of terminals, comments, styles.
    HiddenText,
    /// Images and links whose addresses carry data out.
    DataLinks,
}

impl Detector {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The place of a text in the exchange with a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Direction {
    /// Texts of a caller.
    Arguments,
    /// Texts of a tool, also when it fails.
    Answers,
    /// Texts of a source about a tool.
    Descriptions,
}

impl Direction {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
