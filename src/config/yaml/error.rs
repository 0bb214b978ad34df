//! Errors of the configuration: the place, the problem, and the remedy. Never a secret.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// One error. Prints as `file:line:column: message`, the line of the file, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigError {
    pub place: ConfigLocation,
    pub message: String,
    /// The line of the file without possible secrets, and a mark under the place.
    pub excerpt: Option<String>,
    /// The next step.
    pub advice: Option<String>,
}

/// The place of an error, ordered for reading: by line in the file first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigLocation {
    /// Line and column (in characters) count from 1.
    At {
        file: PathBuf,
        line: usize,
        column: usize,
    },
    File(PathBuf),
    Variable(String),
    /// A setting in neither the file nor the environment, as `topic.key`.
    Setting(String),
}

impl ConfigError {
    pub fn new(place: ConfigLocation, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), excerpt: None, advice: None }
    }

    pub fn in_file(file: &Path, line: usize, column: usize, message: impl Into<String>) -> Self {
        Self::new(ConfigLocation::At { file: file.to_owned(), line, column }, message)
    }

    pub fn of_file(file: &Path, message: impl Into<String>) -> Self {
        Self::new(ConfigLocation::File(file.to_owned()), message)
    }

    pub fn unreadable(file: &Path, error: &io::Error) -> Self {
        Self::of_file(file, format!("cannot be read: {error}")).advise("check the path and its permissions")
    }

    #[must_use]
    /// There is no home folder from which it would follow.
    pub fn without_state_directory() -> Self {
        Self::new(ConfigLocation::Setting("state_directory".to_owned()), "this user has no home folder")
            .advise("name the folder for all data in SEKISHO_STATE_DIRECTORY")
    }

    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.message)?;
        if let Some(excerpt) = &self.excerpt {
            write!(formatter, "\n{excerpt}")?;
        }
        if let Some(advice) = &self.advice {
            write!(formatter, "\n  {advice}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { file, line, column } => write!(formatter, "{}:{line}:{column}", file.display()),
            Self::File(file) => write!(formatter, "{}", file.display()),
            Self::Variable(name) => write!(formatter, "environment variable {name}"),
            Self::Setting(key) => formatter.write_str(key),
        }
    }
}
