//! `sekisho tools new`: writes an example of tools that are Python functions, with its cases.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::cli::{Exit, present};
use sekisho_config::{Config, TOOL_FILE_RULE, is_tool_file};

const EXAMPLE: &str = include_str!("new_file/example.py");
const CASES: &str = include_str!("new_file/example.cases.yaml");
/// The name of the file in both.
const NAME: &str = "NAME";

/// The folder where the configuration has none.
const FOLDER: &str = "tools";

pub(super) fn run(config: &Config, name: &str) -> Exit {
    if !is_tool_file(name) {
        present::problem(&format!("{name:?} cannot be the name of a file of tools: {TOOL_FILE_RULE}"));
        return Exit::WrongCommandLine;
    }
    let configured = config.python_tools.directory.as_deref();
    match write(configured.unwrap_or(Path::new(FOLDER)), name) {
        Ok(files) => {
            files.iter().for_each(|file| present::line(&file.display().to_string()));
            if configured.is_none() {
                present::info(&format!("add this to the configuration: python_tools: {{directory: {FOLDER}}}"));
            }
            Exit::Done
        }
        Err(problem) => {
            present::problem(&problem);
            Exit::Failed
        }
    }
}

/// Writes both files, or none where one of them is there.
fn write(folder: &Path, name: &str) -> Result<[PathBuf; 2], String> {
    let files = [folder.join(format!("{name}.py")), folder.join(format!("{name}.cases.yaml"))];
    if let Some(file) = files.iter().find(|file| file.exists()) {
        return Err(format!("{} is there already; choose another name", file.display()));
    }
    fs::create_dir_all(folder)
        .map_err(|error| format!("the folder {} cannot be created: {error}", folder.display()))?;
    for (file, text) in files.iter().zip([EXAMPLE, CASES]) {
        let created = OpenOptions::new().write(true).create_new(true).open(file);
        let written = created.and_then(|mut created| created.write_all(text.replace(NAME, name).as_bytes()));
        written.map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let files = write(&folder, "weather").unwrap();
        let text = files.each_ref().map(|file| fs::read_to_string(file).unwrap());
        assert!(text[0].contains("weather__convert") && text[1].contains("tools test weather"), "{text:?}");
        assert!(!text.iter().any(|text| text.contains(NAME)));
        fs::remove_file(&files[0]).unwrap();
        assert!(write(&folder, "weather").unwrap_err().contains("weather.cases.yaml is there already"));
        assert!(!files[0].exists());
    }
}
