//! Types of sub-agents in files: Markdown with front matter, in the form that Claude Code reads.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::front_matter::{self, UnusableFile};
use sekisho_calls::tool::ToolName;
use sekisho_config::{SubAgentType, ToolFilter};

/// Other fields, such as `color`, are for other programs.
#[derive(Debug, Deserialize)]
struct FrontMatter {
    name: String,
    description: String,
    tools: Option<Tools>,
    model: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Tools {
    /// Separated by commas.
    Text(String),
    List(Vec<String>),
}

/// The types of a folder: each `.md` file in it.
/// Errors: the folder cannot be read, one of its files cannot be used, or two have the same name.
pub fn load(folder: &Path) -> Result<BTreeMap<String, SubAgentType>, UnusableFile> {
    let mut types = BTreeMap::new();
    for file in front_matter::entries(folder)? {
        if file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let (matter, prompt) = front_matter::read::<FrontMatter>(&file)?;
        let unusable = |problem: String| UnusableFile::new(&file, problem);
        ToolName::parse(&matter.name).map_err(|problem| unusable(format!("`name`: {problem}")))?;
        if matter.description.trim().is_empty() || prompt.is_empty() {
            return Err(unusable("it needs a `description`, and its prompt after the front matter".to_owned()));
        }
        let name = matter.name.clone();
        if types.insert(name.clone(), matter.with_prompt(prompt)).is_some() {
            return Err(unusable(format!("another file in this folder has the name {name:?} too")));
        }
    }
    Ok(types)
}

impl FrontMatter {
    fn with_prompt(self, prompt: String) -> SubAgentType {
        let include = match self.tools {
            None => Vec::new(),
            Some(Tools::List(names)) => names,
            Some(Tools::Text(names)) => names.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        let include = include.into_iter().filter(|name| !name.is_empty()).collect();
        SubAgentType {
            description: self.description,
            prompt,
            tools: ToolFilter { include, exclude: Vec::new() },
            model: self.model,
            ..SubAgentType::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn agent_files_are_read_and_a_broken_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "a.md",
            "---\nname: reader\ndescription: Reads.\ntools: fs__read, search\nmodel: haiku\ncolor: red\n---\nRead.",
        );
        write("b.md", "---\nname: writer\ndescription: Writes.\ntools: [fs__*]\n---\nWrite.");
        write("c.md", "---\nname: thinker\ndescription: Thinks.\nmodel: inherit\n---\nThink.");
        write("notes.txt", "no agent");
        let types = load(folder.path()).unwrap();
        let tools = |name: &str| types[name].tools.include.clone();
        assert_eq!(tools("reader"), ["fs__read", "search"]);
        assert_eq!(tools("writer"), ["fs__*"]);
        assert!(tools("thinker").is_empty());
        assert_eq!((types["reader"].model.as_deref(), &*types["reader"].prompt), (Some("haiku"), "Read."));
        for (text, problem) in [
            ("---\nname: reader\ndescription: Again.\n---\nRead.", "has the name \"reader\" too"),
            ("---\nname: a b\ndescription: d\n---\nx", "`name`"),
            ("---\nname: empty\ndescription: d\n---\n", "its prompt after"),
            ("Read.", "front matter"),
        ] {
            write("d.md", text);
            let error = load(folder.path()).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("d.md"), "{error}");
        }
    }
}
