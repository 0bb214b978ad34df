//! BM25 search over the registry.
use super::Tool;
use std::sync::Arc;
#[derive(Debug, Default)]
pub struct SearchIndex;
impl SearchIndex {
    pub fn build(_tools: &[Arc<Tool>]) -> Self {
        Self
    }
    /// Positions in `tools` with their scores, best first.
    pub fn search(&self, _query: &str, _at_most: usize) -> Vec<(usize, f64)> {
        Vec::new()
    }
}
