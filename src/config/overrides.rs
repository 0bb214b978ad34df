//! Environment variables that override settings of the file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use rust_decimal::Decimal;

use super::Secret;
use super::environment::Environment;
use super::yaml::error::{ConfigError, ConfigLocation};

/// Handed from topic to topic; each takes the variables that are its own.
#[derive(Debug)]
pub(super) struct Overrides<'a> {
    environment: &'a Environment,
    /// Setting → the variable that decided it.
    pub(super) origins: BTreeMap<String, &'static str>,
    pub(super) faults: Vec<ConfigError>,
}

impl<'a> Overrides<'a> {
    pub(super) fn new(environment: &'a Environment) -> Self {
        Self { environment, origins: BTreeMap::new(), faults: Vec::new() }
    }

    pub(super) fn is_set(&self, variable: &str) -> bool {
        self.environment.get(variable).is_some()
    }

    /// As the XDG base directory specification has it; a path that is not absolute is ignored there.
    pub(super) fn default_state_directory(&self) -> Option<PathBuf> {
        let folder = |variable| self.environment.get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        folder("XDG_STATE_HOME")
            .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
            .map(|state| state.join("sekisho"))
    }

    /// Sets `field`, which the file calls `setting`, when the variable is set.
    pub(super) fn apply<T: FromVariable>(&mut self, variable: &'static str, setting: &str, field: &mut T) {
        let Some(text) = self.environment.get(variable) else { return };
        match T::from_variable(text.trim()) {
            Some(value) => {
                *field = value;
                self.origins.insert(setting.to_owned(), variable);
            }
            None => self.faults.push(
                ConfigError::new(
                    ConfigLocation::Variable(variable.into()),
                    format!("its value is not {}", T::EXPECTED),
                )
                .advise(format!("correct or unset it; it overrides `{setting}`")),
            ),
        }
    }
}

/// A type that a variable's text can be read as.
pub(super) trait FromVariable: Sized {
    const EXPECTED: &'static str;

    fn from_variable(text: &str) -> Option<Self>;
}

macro_rules! from_str {
    ($($type:ty: $expected:literal),* $(,)?) => {
        $(impl FromVariable for $type {
            const EXPECTED: &'static str = $expected;

            fn from_variable(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        })*
    };
}

from_str! {
    u32: "a whole number, zero or more",
    u64: "a whole number, zero or more",
    f64: "a number, such as 0.5",
    Decimal: "an amount, such as 0.50",
    String: "a text",
    PathBuf: "a path",
    SocketAddr: "an address and a port, such as 127.0.0.1:8080",
}

impl FromVariable for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_variable(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        }
    }
}

impl FromVariable for Secret {
    const EXPECTED: &'static str = "a text";

    fn from_variable(text: &str) -> Option<Self> {
        Some(Self::new(text))
    }
}

impl<T: FromVariable> FromVariable for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_variable(text: &str) -> Option<Self> {
        T::from_variable(text).map(Some)
    }
}

/// Separated by commas.
impl FromVariable for Vec<String> {
    const EXPECTED: &'static str = "a list separated by commas";

    fn from_variable(text: &str) -> Option<Self> {
        Some(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
    }
}
