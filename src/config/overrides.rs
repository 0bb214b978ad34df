//! Environment variables that override settings of the file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use rust_decimal::Decimal;

use super::Secret;
use super::environment::Environment;
use super::yaml::error::{ConfigError, ConfigLocation};

/// Passed from topic to topic; each reads its own variables.
#[derive(Debug)]
pub(super) struct Overrides<'a> {
    environment: &'a Environment,
    /// Setting → the variable that set it.
    pub(super) origins: BTreeMap<String, &'static str>,
    pub(super) errors: Vec<ConfigError>,
}

impl<'a> Overrides<'a> {
    pub(super) fn new(environment: &'a Environment) -> Self {
        Self { environment, origins: BTreeMap::new(), errors: Vec::new() }
    }

    pub(super) fn is_set(&self, variable: &str) -> bool {
        self.environment.get(variable).is_some()
    }

    /// As in the XDG base directory specification, which ignores paths that are not absolute.
    pub(super) fn default_state_directory(&self) -> Option<PathBuf> {
        let folder = |variable| self.environment.get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        folder("XDG_STATE_HOME")
            .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
            .map(|state| state.join("sekisho"))
    }

    /// A file of the user's; `None` without a home folder.
    pub(super) fn in_home(&self, path: &str) -> Option<PathBuf> {
        let home = self.environment.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        home.map(|home| home.join(path))
    }

    /// Sets `field`, named `setting` in the file, when the variable is set.
    pub(super) fn apply<T: FromVariable>(&mut self, variable: &'static str, setting: &str, field: &mut T) {
        let Some(text) = self.environment.get(variable) else { return };
        match T::from_variable(text.trim()) {
            Some(value) => {
                *field = value;
                self.origins.insert(setting.to_owned(), variable);
            }
            None => self.errors.push(
                ConfigError::new(
                    ConfigLocation::Variable(variable.into()),
                    format!("its value is not {}", T::EXPECTED),
                )
                .advise(format!("correct or unset it; it overrides `{setting}`")),
            ),
        }
    }
}

/// A type that can be parsed from a variable.
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
    String: "a string",
    PathBuf: "a path",
    url::Url: "a URL",
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
    const EXPECTED: &'static str = "a string";

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
