//! How large results are handled in a call whose result goes to a model.

use std::sync::Arc;

/// The built-in tool that reads stored results.
pub const READ_RESULT: &str = "read_result";

/// The tool that made a stored result, in the metadata of what `read_result` answers.
pub const RESULT_TOOL: &str = "tool";

/// A result that is too large for the model is stored, and answered by a preview with its handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultHandles {
    /// Bytes of a result that the model still gets whole.
    pub max_inline_bytes: usize,
    /// Only this session can read the stored results.
    pub session: Option<Arc<str>>,
}
