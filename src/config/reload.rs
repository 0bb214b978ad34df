use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a changed configuration file is applied while the gateway runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReloadConfig {
    pub reload: ReloadMode,
    /// Who changes the configuration while the gateway runs, beside its file.
    pub changes: ChangesMode,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReloadMode {
    /// A change that opens something, such as access without credentials or a further destination, waits for SIGHUP.
    #[default]
    Guarded,
    /// Every change is applied at once.
    Immediate,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangesMode {
    /// Nobody: the file is the configuration, and changes that were applied before do not count.
    ReadOnly,
    /// Two administrators: who proposes a change does not apply it.
    FourEyes,
    /// An administrator.
    #[default]
    Single,
}
