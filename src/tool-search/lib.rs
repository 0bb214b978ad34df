//! The search for tools, without any service: by words, by the steps of a task, by earlier use, and by meaning where there
//! is a table of embeddings.

mod document;
mod embeddings;
mod file_types;
mod index;
mod meaning;
mod steps;
mod stop_words;
mod synonyms;
#[cfg(test)]
mod tests;
mod usage;
mod vocabulary;
mod word_index;
mod words;

pub use self::document::Searchable;
pub use self::embeddings::{Embeddings, InvalidEmbeddings, MAX_EMBEDDINGS_BYTES};
pub use self::index::{Part, Search, SearchIndex};
pub use self::usage::{Usage, UsedTool};
pub use self::words::stems;
