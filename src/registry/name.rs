//! Tool names.
use thiserror::Error;
#[derive(Debug, Error)]
#[error("{0}")]
pub struct InvalidToolName(pub String);
/// Matches `^[A-Za-z0-9_-]{1,64}$`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolName(String);
impl ToolName {
    pub fn parse(name: &str) -> Result<Self, InvalidToolName> {
        Ok(Self(name.to_owned()))
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
/// `prefix__name`, characters outside the alphabet replaced, cut with a hash suffix when too long.
pub fn qualified_name(prefix: &str, name: &str) -> ToolName {
    ToolName(format!("{prefix}__{name}"))
}
