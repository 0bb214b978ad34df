//! A job whose code is a module of functions that are tools, instead of a program.

use serde::{Deserialize, Serialize};

/// What is done with the module. The interpreter gets it as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModuleTask {
    /// Finds the functions that are tools; nothing of it is executed.
    Read { file: String },
    /// Executes it without calling any function. The result has those of the names that are no functions afterwards.
    Try { file: String, functions: Vec<String>, settings: String },
    /// Executes it, and then calls one of its functions.
    Call(FunctionCall),
}

/// A call of a function of a module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The module's name in tracebacks.
    pub file: String,
    pub function: String,
    /// JSON of an object.
    pub arguments: String,
    /// JSON of an object: `host.settings`.
    pub settings: String,
    /// Names of the tools that it may call.
    pub needs: Vec<String>,
    /// Whether arguments have to become values of types that JSON does not have.
    pub converts: bool,
}
