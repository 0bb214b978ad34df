//! The search for tools: the searched texts of a tool, and the table of embeddings that the configuration names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sekisho_config::ToolsConfig;
use sekisho_tool_search::{Embeddings, MAX_EMBEDDINGS_BYTES, Searchable};

use crate::tool::Tool;

impl<'a> From<&'a Tool> for Searchable<'a> {
    fn from(tool: &'a Tool) -> Self {
        let metadata = &tool.metadata;
        Self {
            name: &metadata.name,
            description: &metadata.description,
            category: &metadata.category,
            source: &metadata.source,
            parameters: tool.input.document(),
        }
    }
}

/// The table of embeddings, and the file that it was read from.
#[derive(Debug, Clone, Default)]
pub(super) struct EmbeddingTable {
    file: Option<PathBuf>,
    embeddings: Option<Arc<Embeddings>>,
}

impl EmbeddingTable {
    /// The table of `tools.embeddings`, from `before` if it has the same file. Without a file that can be read there is none: a
    /// search is by words then, which is logged.
    pub(super) fn of(config: &ToolsConfig, before: &Self) -> Self {
        let Some(file) = &config.embeddings else { return Self::default() };
        if before.file.as_ref() == Some(file) {
            return before.clone();
        }
        match read(file) {
            Ok(embeddings) => Self { file: Some(file.clone()), embeddings: Some(Arc::new(embeddings)) },
            Err(problem) => {
                tracing::warn!(
                    file = %file.display(),
                    problem,
                    "`tools.embeddings` cannot be used, and tools are searched by words only; make the file with \
                     scripts/tool-embeddings"
                );
                Self::default()
            }
        }
    }

    pub(super) fn embeddings(&self) -> Option<Arc<Embeddings>> {
        self.embeddings.clone()
    }
}

fn read(file: &Path) -> Result<Embeddings, String> {
    let length = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if length > MAX_EMBEDDINGS_BYTES {
        return Err(format!("it has {length} bytes, of at most {MAX_EMBEDDINGS_BYTES}"));
    }
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    Embeddings::read(&bytes).map_err(|problem| format!("it {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_leaves_the_search_by_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("table");
        let config = ToolsConfig { embeddings: Some(file.clone()), ..ToolsConfig::default() };
        assert!(EmbeddingTable::of(&config, &EmbeddingTable::default()).embeddings().is_none());
        std::fs::write(&file, "no table").unwrap();
        assert!(EmbeddingTable::of(&config, &EmbeddingTable::default()).embeddings().is_none());
        assert!(read(&file).unwrap_err().contains("does not begin with"));
        std::fs::write(&file, b"sekisho embeddings 1\n\0\0\0\0\x01\0\0\0").unwrap();
        let table = EmbeddingTable::of(&config, &EmbeddingTable::default());
        std::fs::remove_file(&file).unwrap();
        let again = EmbeddingTable::of(&config, &table);
        assert!(Arc::ptr_eq(&again.embeddings().unwrap(), &table.embeddings().unwrap()), "it is read once");
    }
}
