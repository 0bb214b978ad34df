use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::check::Findings;
use super::yaml::document::Document;
use super::yaml::error::ConfigError;

const SETTINGS: &str = "python_tools.settings";

/// Longest name of a file of tools, in characters: the name of a tool begins with it.
const MAX_NAME: usize = 40;

/// Tools that are written as Python functions.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PythonToolsConfig {
    /// The folder of their files: each public function with annotations in `FILE.py` is the tool `FILE__FUNCTION`. Without it
    /// there are none.
    pub directory: Option<PathBuf>,
    /// By the name of a file without `.py`: what its functions read as `host.settings`. No secrets: none enters the sandbox.
    pub settings: BTreeMap<String, Map<String, Value>>,
}

impl PythonToolsConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        for file in self.settings.keys().filter(|file| !is_tool_file(file)) {
            let setting = format!("{SETTINGS}.{file}");
            findings.add(setting, "is not the name of a file of tools", format!("{TOOL_FILE_RULE}, without `.py`"));
        }
        if self.directory.is_none() && !self.settings.is_empty() {
            findings.add(SETTINGS, "is for files of a folder, and there is none", "set `python_tools.directory`");
        }
    }

    /// Refuses values of variables, files and programs in the settings of tools: they may be secrets.
    pub(super) fn find_reference(document: &Document) -> Option<ConfigError> {
        let (settings, _) = document.find(SETTINGS).filter(|(_, is_exact)| *is_exact)?;
        let value = settings.first_reference()?;
        let message =
            "a tool reads this value in the sandbox, which no secret enters, and what `${…}` stands for may be one";
        let advice = "write the value itself; a tool that needs a secret calls a configured tool that holds it";
        Some(document.error(value.position, false, message).advise(advice))
    }
}

/// The rule of [`is_tool_file`].
pub const TOOL_FILE_RULE: &str =
    "begin with a letter, and use at most 40 letters, digits and single `_`, which is not the last character";

/// Whether a file of tools may have this name, without its `.py`. Then `FILE__FUNCTION` is the name of only one tool.
pub fn is_tool_file(name: &str) -> bool {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    is_word && begins && name.len() <= MAX_NAME && !name.contains("__") && !name.ends_with('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_words_that_end_where_the_function_begins() {
        for name in ["weather", "Weather_2", "a", &"x".repeat(40)] {
            assert!(is_tool_file(name), "{name}");
        }
        for name in ["", "_weather", "2nd", "a__b", "a_", "a-b", "a.b", "wétter", &"x".repeat(41)] {
            assert!(!is_tool_file(name), "{name}");
        }
    }
}
