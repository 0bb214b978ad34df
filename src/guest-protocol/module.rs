//! A job whose code is a module of functions that are tools, instead of a program.

use serde::{Deserialize, Serialize};

use super::whole_bytes;

/// The use of the module. The interpreter gets it as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModuleTask {
    /// Finds the functions that are tools; nothing of it is executed. `shared`: the sources of all modules that it may
    /// import, as JSON of an object, by path.
    Read { file: String, shared: String },
    /// Executes it without calling any function. The result is a [`Tried`]. `shared`: the sources of the modules that it
    /// imports.
    Try { file: String, functions: Vec<String>, settings: String, shared: String },
    /// Executes it, and then calls one of its functions.
    Call(FunctionCall),
}

/// The result of a [`ModuleTask::Try`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The names that are no functions.
    pub missing: Vec<String>,
    /// Whether it did not touch the interpreter's random numbers.
    pub is_repeatable: bool,
}

/// Identifies the image of a module: by its code, and by all that it is executed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModuleImageId(pub [u8; 32]);

/// A message to a worker about images of modules. It has no answer: a job whose image is missing executes its module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModuleImageMessage {
    /// The next part of an image, of an instance of this profile.
    Add {
        id: ModuleImageId,
        profile: String,
        #[serde(with = "whole_bytes")]
        part: Vec<u8>,
    },
    /// All parts are there.
    Complete(ModuleImageId),
    /// No further job has it.
    Forget(ModuleImageId),
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
    /// JSON of an object: the sources of the modules that it imports, by path.
    pub shared: String,
    /// Names of the tools that it may call.
    pub needs: Vec<String>,
    /// Whether arguments have to become values of types that JSON does not have.
    pub converts: bool,
}
