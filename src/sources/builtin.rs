//! The built-in tools: one file a tool, one line in the list.

mod calculator;
mod current_time;
mod file_list;
mod file_read;
mod file_write;
mod json_query;
mod side_thread;
mod workspace;

use serde::Deserialize;

pub use self::workspace::Workspaces;

use super::{Offer, Source};
use crate::call::Arguments;
use crate::error::{CallError, ErrorCode};

/// The tools that travel with the binary.
#[derive(Debug, Clone)]
pub struct Builtin {
    workspaces: Workspaces,
}

impl Builtin {
    /// `workspaces` is where the file tools work; shared with whoever deletes those of forgotten sessions.
    pub fn new(workspaces: Workspaces) -> Self {
        Self { workspaces }
    }
}

impl Source for Builtin {
    fn name(&self) -> &str {
        "builtin"
    }

    fn tools(&self) -> Offer {
        let tools = vec![
            calculator::definition(),
            current_time::definition(),
            file_list::definition(&self.workspaces),
            file_read::definition(&self.workspaces),
            file_write::definition(&self.workspaces),
            json_query::definition(),
        ];
        Offer { tools, unavailable: Vec::new() }
    }
}

/// The arguments in a tool's own type. They fit its schema already; what the schema cannot say ends here.
fn read_arguments<'a, T: Deserialize<'a>>(arguments: &'a Arguments) -> Result<T, CallError> {
    T::deserialize(arguments)
        .map_err(|error| CallError::new(ErrorCode::InvalidArguments, format!("the arguments do not fit: {error}")))
}

#[cfg(test)]
mod tests;
