//! The folders and files of a configuration, where it names no others.

use std::path::{Path, PathBuf};

use super::{Config, mcp};

/// The file that `sekisho lock` writes.
const LOCK_FILE: &str = "tools.lock";

impl Config {
    /// The folder for all data that outlives the process.
    pub fn state_directory(&self) -> PathBuf {
        self.state_directory.clone().unwrap_or_else(|| "sekisho-state".into())
    }

    pub fn audit_file(&self) -> PathBuf {
        self.audit.file.clone().unwrap_or_else(|| self.state_directory().join("audit.jsonl"))
    }

    /// The SQLite file of a store without `store.url`.
    pub fn store_file(&self) -> PathBuf {
        self.state_directory().join("sekisho.db")
    }

    pub fn workspaces_directory(&self) -> PathBuf {
        self.tools.workspace.directory.clone().unwrap_or_else(|| self.state_directory().join("workspaces"))
    }

    /// The files with MCP servers of `mcp.files`; without any, the one that `sekisho mcp add` writes, and the one in the working
    /// directory.
    pub fn mcp_files(&self) -> Vec<PathBuf> {
        match self.mcp.files.is_empty() {
            true => vec![self.state_directory().join("mcp.json"), mcp::FOUND_FILE.into()],
            false => self.mcp.files.clone(),
        }
    }

    /// The path of the `sekisho lock` file, whether it exists or not: a start in another working directory has the same lock.
    pub fn lock_file(&self) -> PathBuf {
        let beside_the_file = || Some(self.file.as_deref()?.with_file_name(LOCK_FILE));
        let named = self.tools.lock.clone().or_else(beside_the_file);
        named.unwrap_or_else(|| self.state_directory().join(LOCK_FILE))
    }

    /// Whether no lock applies, and the working directory has one: versions before read it there, and its pins would be gone.
    pub fn leaves_a_lock(&self) -> bool {
        self.tools.lock.is_none() && !self.lock_file().exists() && Path::new(LOCK_FILE).exists()
    }

    /// For an operator, while that file does not exist.
    pub fn unpinned(&self) -> String {
        let file = self.lock_file();
        let advice = match self.leaves_a_lock() {
            true => {
                "move the one of the working directory there, which does not count, or name it in `tools.lock` of the \
                 configuration"
            }
            false => "create it with `sekisho lock`",
        };
        format!("tools are not pinned: {} does not exist; {advice}", file.display())
    }
}
