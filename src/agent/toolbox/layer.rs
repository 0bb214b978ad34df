//! Something that sees every tool call of a run, such as a journal.

use std::fmt;
use std::sync::Arc;

use super::Toolbox;

/// Wraps the toolbox of a run, and the one of each of its sub-agents. Clones share it.
#[derive(Clone)]
pub struct ToolboxLayer(Arc<Wrap>);

type Wrap = dyn Fn(Arc<dyn Toolbox>) -> Arc<dyn Toolbox> + Send + Sync;

impl ToolboxLayer {
    pub fn new(wrap: impl Fn(Arc<dyn Toolbox>) -> Arc<dyn Toolbox> + Send + Sync + 'static) -> Self {
        Self(Arc::new(wrap))
    }

    pub(crate) fn over(&self, toolbox: Arc<dyn Toolbox>) -> Arc<dyn Toolbox> {
        (self.0)(toolbox)
    }
}

impl fmt::Debug for ToolboxLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ToolboxLayer")
    }
}
