//! Why a command of several steps ends early.

use super::{Exit, present};

pub(super) enum Failure {
    Problem(String),
    /// The problem was shown.
    Shown(Exit),
}

impl From<String> for Failure {
    fn from(problem: String) -> Self {
        Self::Problem(problem)
    }
}

impl From<Exit> for Failure {
    fn from(exit: Exit) -> Self {
        Self::Shown(exit)
    }
}

impl Failure {
    pub(super) fn report(self) -> Exit {
        match self {
            Self::Shown(exit) => exit,
            Self::Problem(problem) => {
                present::problem(&problem);
                Exit::Failed
            }
        }
    }
}
