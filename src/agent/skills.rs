//! Skills: instructions for a kind of task, with files, in the open Agent Skills form.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::front_matter::{self, UnusableFile};

/// The file with a skill's front matter and instructions.
const FILE: &str = "SKILL.md";

const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1_024;
const MAX_INSTRUCTIONS_BYTES: usize = 64 << 10;

/// Maximum files of one skill, and their bytes together.
const MAX_FILES: usize = 100;
const MAX_FILES_BYTES: usize = 1 << 20;

/// Maximum folders within each other.
const MAX_DEPTH: usize = 8;

/// One skill.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    /// What it does, and when to use it.
    pub description: String,
    /// Markdown.
    pub instructions: String,
    /// Text by path, such as `scripts/extract.py`.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct FrontMatter {
    name: String,
    description: String,
}

impl Skill {
    /// Its problems, as sentences.
    pub fn problems(&self, name: &str) -> Vec<String> {
        let is_name = (1..=MAX_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-');
        let bytes: usize = self.files.values().map(String::len).sum();
        let invalid = self.files.keys().find(|path| !is_path(path));
        let checks = [
            (!is_name, "the name of a skill must be 1 to 64 lower-case letters, digits and `-` within it".to_owned()),
            (
                self.description.trim().is_empty(),
                "`description` is empty; say what it does and when to use it".to_owned(),
            ),
            (
                self.description.chars().count() > MAX_DESCRIPTION,
                format!("`description` is longer than {MAX_DESCRIPTION} characters"),
            ),
            (self.instructions.trim().is_empty(), "`instructions` are empty".to_owned()),
            (
                self.instructions.len() > MAX_INSTRUCTIONS_BYTES,
                format!("`instructions` are longer than {MAX_INSTRUCTIONS_BYTES} bytes; move parts to files"),
            ),
            (self.files.len() > MAX_FILES, format!("it has more than {MAX_FILES} files")),
            (bytes > MAX_FILES_BYTES, format!("its files have more than {MAX_FILES_BYTES} bytes together")),
            (
                invalid.is_some(),
                format!("{:?} is not a path within the skill", invalid.map(String::as_str).unwrap_or_default()),
            ),
        ];
        checks.into_iter().filter(|(wrong, _)| *wrong).map(|(_, problem)| problem).collect()
    }
}

/// The skills of a folder: each folder in it that has a `SKILL.md`.
/// Errors: the folder cannot be read, or one of its skills cannot be used.
pub fn load(folder: &Path) -> Result<BTreeMap<String, Skill>, UnusableFile> {
    let mut skills = BTreeMap::new();
    for folder in front_matter::entries(folder)? {
        let file = folder.join(FILE);
        if !file.is_file() {
            continue;
        }
        let (matter, instructions) = front_matter::read::<FrontMatter>(&file)?;
        if folder.file_name().is_none_or(|name| name != matter.name.as_str()) {
            let problem = format!("its name is {:?}, which must be that of its folder", matter.name);
            return Err(UnusableFile::new(&file, problem));
        }
        let mut skill = Skill { description: matter.description, instructions, files: BTreeMap::new() };
        add_files(&mut skill, &folder, "", MAX_DEPTH)?;
        let problems = skill.problems(&matter.name);
        if !problems.is_empty() {
            return Err(UnusableFile::new(&file, problems.join("; ")));
        }
        skills.insert(matter.name, skill);
    }
    Ok(skills)
}

/// Links are left out, since they may lead out of the folder, and files that are no text.
fn add_files(skill: &mut Skill, folder: &Path, prefix: &str, depth: usize) -> Result<(), UnusableFile> {
    for path in front_matter::entries(folder)? {
        let kind = path.symlink_metadata().map_err(|error| UnusableFile::new(&path, error))?;
        let name = path.file_name().map(|name| format!("{prefix}{}", name.to_string_lossy())).unwrap_or_default();
        if kind.is_dir() && depth > 0 {
            add_files(skill, &path, &format!("{name}/"), depth - 1)?;
        } else if kind.is_file() && name != FILE {
            match front_matter::read_text(&path) {
                Ok(text) => drop(skill.files.insert(name, text)),
                Err(problem) => tracing::warn!(file = %path.display(), %problem, "a file of a skill is left out"),
            }
            if skill.files.len() > MAX_FILES {
                return Err(UnusableFile::new(folder, format!("a skill has more than {MAX_FILES} files")));
            }
        }
    }
    Ok(())
}

/// Relative, below the skill's folder, and without control characters.
fn is_path(path: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\\');
    path != FILE && path.len() <= 255 && path.split('/').all(is_part) && !path.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn skill() -> Skill {
        Skill { description: "Reads PDFs.".into(), instructions: "Use it.".into(), files: BTreeMap::new() }
    }

    #[test]
    fn a_folder_of_skills_is_read_with_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let pdf = folder.path().join("pdf");
        fs::create_dir_all(pdf.join("scripts")).unwrap();
        fs::create_dir(folder.path().join("no-skill")).unwrap();
        let text = "---\nname: pdf\ndescription: Reads PDFs.\nlicense: MIT\n---\n# PDF\n\nRun the script.\n";
        fs::write(pdf.join("SKILL.md"), text).unwrap();
        fs::write(pdf.join("scripts/read.py"), "print(1)").unwrap();
        fs::write(pdf.join("font.bin"), [0xff, 0xfe]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", pdf.join("link")).unwrap();
        let skills = load(folder.path()).unwrap();
        assert_eq!(skills.keys().collect::<Vec<_>>(), ["pdf"]);
        assert_eq!(skills["pdf"].instructions, "# PDF\n\nRun the script.");
        assert_eq!(skills["pdf"].files, BTreeMap::from([("scripts/read.py".to_owned(), "print(1)".to_owned())]));
        for (text, problem) in [
            ("---\nname: other\ndescription: d\n---\nx", "must be that of its folder"),
            ("---\nname: pdf\n---\nx", "missing field `description`"),
            ("---\nname: pdf\ndescription: d\n---\n", "`instructions` are empty"),
            ("# PDF", "front matter"),
        ] {
            fs::write(pdf.join("SKILL.md"), text).unwrap();
            let error = load(folder.path()).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("pdf/SKILL.md"), "{error}");
        }
        assert!(load(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn a_skill_stays_within_its_bounds_and_its_folder() {
        assert_eq!(skill().problems("pdf-2"), Vec::<String>::new());
        for name in ["", "PDF", "-pdf", "pdf-", "a/b", &"a".repeat(65)] {
            assert_eq!(skill().problems(name).len(), 1, "{name}");
        }
        for path in ["../x", "/etc/passwd", "a//b", "a\\b", "SKILL.md", "a\nb", "./a", ""] {
            let files = BTreeMap::from([(path.to_owned(), String::new())]);
            assert_eq!(Skill { files, ..skill() }.problems("pdf").len(), 1, "{path:?}");
        }
        let files = BTreeMap::from([("a/b.txt".to_owned(), "x".repeat(MAX_FILES_BYTES + 1))]);
        assert_eq!(Skill { files, ..skill() }.problems("pdf").len(), 1);
        let long = Skill { instructions: "x".repeat(MAX_INSTRUCTIONS_BYTES + 1), ..skill() };
        assert_eq!(long.problems("pdf").len(), 1);
    }
}
