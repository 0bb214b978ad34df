//! The tool `Skill`: an agent knows the names and descriptions of skills, and loads the instructions of one when a task needs
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::conversation_prompt::folder_of;
use super::skills::Skill;
use super::toolbox::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_config::SKILL;
use sekisho_core::call::Arguments;
use sekisho_tools::builtin::Workspaces;

/// A toolbox with the tool `Skill`.
pub(super) struct WithSkills {
    pub(super) offered: Arc<dyn Toolbox>,
    /// The skills of the caller's tenant, by name.
    pub(super) skills: BTreeMap<String, Skill>,
    /// Where the files of a loaded skill go; without one the tool reads them.
    pub(super) workspace: Option<SkillWorkspace>,
}

/// The workspace of a run.
pub(super) struct SkillWorkspace {
    pub(super) workspaces: Workspaces,
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadSkill {
    skill: String,
    file: Option<String>,
}

impl WithSkills {
    /// The description of `Skill` for the model.
    pub(super) fn description(&self) -> ToolDescription {
        let mut description =
            "Loads a skill: instructions for a kind of task. Load it before you begin such a task, and follow \
                               it. Skills:"
                .to_owned();
        for (name, skill) in &self.skills {
            description.push_str(&format!("\n- {name}: {}", skill.description));
        }
        let parameters = Arc::new(json!({
            "type": "object",
            "properties": {
                "skill": {"type": "string", "enum": self.skills.keys().collect::<Vec<_>>()},
                "file": {"type": "string", "description": "One of the skill's files, to read in place of its instructions."},
            },
            "required": ["skill"],
            "additionalProperties": false,
        }));
        ToolDescription { name: SKILL.to_owned(), description, parameters, is_deferred: false }
    }

    async fn load(&self, arguments: Arguments) -> Result<String, String> {
        let LoadSkill { skill: name, file } = serde_json::from_value(Value::Object(arguments))
            .map_err(|problem| format!("the arguments of `{SKILL}` are invalid: {problem}; correct them"))?;
        let skill = self.skills.get(&name).ok_or_else(|| {
            let names: Vec<_> = self.skills.keys().map(String::as_str).collect();
            format!("there is no skill {:?}, only {}", shown(&name), names.join(", "))
        })?;
        match file {
            Some(file) => skill
                .files
                .get(&file)
                .cloned()
                .ok_or_else(|| format!("the skill {name:?} has no file {:?}, only {}", shown(&file), files(skill))),
            None => Ok(self.instructions(&name, skill).await),
        }
    }

    async fn instructions(&self, name: &str, skill: &Skill) -> String {
        if skill.files.is_empty() {
            return skill.instructions.clone();
        }
        let place = match &self.workspace {
            Some(workspace) => workspace.place(name, skill).await,
            None => None,
        };
        let place = match place {
            Some(folder) => format!("Its files are in the workspace, in the folder `{folder}`"),
            None => format!("Read its files with `{SKILL}` and `file`"),
        };
        format!("{}\n\n{place}: {}", skill.instructions, files(skill))
    }
}

impl SkillWorkspace {
    /// Writes the files of a skill; their folder, or `None` if that fails.
    async fn place(&self, name: &str, skill: &Skill) -> Option<String> {
        let folder = folder_of(name);
        let files = skill.files.iter().map(|(path, text)| (format!("{folder}/{path}"), text.clone())).collect();
        match self.workspaces.write_files(&self.name, files).await {
            Ok(()) => Some(folder),
            Err(error) => {
                tracing::warn!(%error, skill = name, "the files of a skill are not in the workspace");
                None
            }
        }
    }
}

impl Toolbox for WithSkills {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async {
            let mut tools = self.offered.list().await?;
            tools.retain(|tool| tool.name != SKILL);
            tools.insert(0, self.description());
            Ok(tools)
        })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        if call.tool != SKILL {
            return self.offered.call(call);
        }
        Box::pin(async move {
            let loaded = self.load(call.arguments).await;
            let success = loaded.is_ok();
            let (Ok(text) | Err(text)) = loaded;
            ToolAnswer { success, text, error_info: None, images: Vec::new() }
        })
    }
}

/// The names of a skill's files, quoted.
fn files(skill: &Skill) -> String {
    let names: Vec<_> = skill.files.keys().map(|file| Value::from(file.as_str()).to_string()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn shown(name: &str) -> String {
    name.chars().take(100).collect()
}

impl fmt::Debug for WithSkills {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WithSkills").field("skills", &self.skills.keys()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::WorkspaceConfig;

    /// Has no tools of its own.
    struct NoTools;

    impl Toolbox for NoTools {
        fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
            let text = format!("no tool {}", call.tool);
            Box::pin(async { ToolAnswer { success: false, text, error_info: None, images: Vec::new() } })
        }
    }

    fn toolbox(workspace: Option<SkillWorkspace>) -> WithSkills {
        let skill = |files: &[(&str, &str)]| Skill {
            description: "Reads PDFs.".into(),
            instructions: "Run the script.".into(),
            files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect(),
        };
        let skills = [("pdf", skill(&[("scripts/read.py", "print(1)")])), ("plain", skill(&[]))];
        let skills = skills.into_iter().map(|(name, skill)| (name.to_owned(), skill)).collect();
        WithSkills { offered: Arc::new(NoTools), skills, workspace }
    }

    async fn call(toolbox: &WithSkills, arguments: Value) -> (bool, String) {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        let call = ToolboxCall::new("1", SKILL, arguments);
        let answer = toolbox.call(call).await;
        (answer.success, answer.text)
    }

    #[tokio::test]
    async fn the_model_knows_the_skills_and_loads_one() {
        let toolbox = toolbox(None);
        let tools = toolbox.list().await.unwrap();
        assert!(tools[0].description.ends_with("\n- pdf: Reads PDFs.\n- plain: Reads PDFs."), "{tools:?}");
        assert!(!tools[0].description.contains("Run the script"), "the instructions are loaded with a call");
        assert_eq!(call(&toolbox, json!({"skill": "plain"})).await, (true, "Run the script.".into()));
        let (success, text) = call(&toolbox, json!({"skill": "pdf"})).await;
        assert!(
            success && text.starts_with("Run the script.") && text.ends_with("`file`: \"scripts/read.py\""),
            "{text}"
        );
        let file = json!({"skill": "pdf", "file": "scripts/read.py"});
        assert_eq!(call(&toolbox, file).await, (true, "print(1)".into()));
    }

    #[tokio::test]
    async fn a_wrong_call_is_answered_with_what_there_is() {
        let toolbox = toolbox(None);
        for (arguments, problem) in [
            (json!({"skill": "pdg"}), "only pdf, plain"),
            (json!({"skill": "pdf", "file": "../../etc/passwd"}), "only \"scripts/read.py\""),
            (json!({"skill": "plain", "file": "x"}), "only none"),
            (json!({"name": "pdf"}), "unknown field `name`"),
            (json!({}), "missing field `skill`"),
        ] {
            let (success, text) = call(&toolbox, arguments.clone()).await;
            assert!(!success && text.contains(problem), "{arguments}: {text}");
        }
        let other = ToolboxCall::new("1", "x", Arguments::new());
        assert_eq!(toolbox.call(other).await.text, "no tool x");
    }

    #[tokio::test]
    async fn the_files_of_a_loaded_skill_are_in_the_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::new(folder.path().to_owned(), &WorkspaceConfig::default());
        let name = "a".repeat(64);
        let workspace = SkillWorkspace { workspaces: workspaces.clone(), name: name.clone() };
        let (success, text) = call(&toolbox(Some(workspace)), json!({"skill": "pdf"})).await;
        assert!(success && text.contains("in the folder `skills/pdf`: \"scripts/read.py\""), "{text}");
        assert_eq!(workspaces.files(&name, 10).await.unwrap(), ["skills/pdf/scripts/read.py"]);
    }
}
