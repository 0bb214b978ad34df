//! Texts of callers, models and tools, as both engines store them.

/// U+0000 becomes U+FFFD: a text of PostgreSQL cannot have it
/// (<https://www.postgresql.org/docs/current/datatype-character.html>). Documents in JSON have it escaped.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}
