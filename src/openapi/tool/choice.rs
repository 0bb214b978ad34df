//! Which operations of a document are offered, and the names of their tools.

use std::collections::BTreeMap;

use crate::read::operation::Operation;
use sekisho_calls::tool::qualified_name;
use sekisho_config::CollectionSettings;

/// The first character after the blocks of Latin letters.
const END_OF_LATIN: char = '\u{250}';

/// An empty filter selects everything.
pub(super) fn is_chosen(operation: &Operation, settings: &CollectionSettings) -> bool {
    let CollectionSettings { operations, tags, paths, methods, .. } = settings;
    (operations.is_empty() || operation.id.as_ref().is_some_and(|id| operations.contains(id)))
        && (tags.is_empty() || operation.tags.iter().any(|tag| tags.contains(tag)))
        && (paths.is_empty() || paths.iter().any(|pattern| fits_path(pattern, &operation.path)))
        && (methods.is_empty() || methods.iter().any(|method| operation.method.as_str().eq_ignore_ascii_case(method)))
}

/// `/pets/*` matches `/pets/` and every path below it; a path without `*` matches exactly.
fn fits_path(pattern: &str, path: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == path, |beginning| path.starts_with(beginning))
}

/// The setting for an operation, by its id or its method and path.
pub(super) fn configured<'s>(settings: &'s BTreeMap<String, String>, operation: &Operation) -> Option<&'s str> {
    let by_id = operation.id.as_ref().and_then(|id| settings.get(id));
    by_id.or_else(|| settings.get(&format!("{} {}", operation.method, operation.path))).map(String::as_str)
}

/// Each operation with its tool's name.
pub(super) fn named<'a>(
    collection: &str,
    operations: &[&'a Operation],
    settings: &CollectionSettings,
) -> Vec<(&'a Operation, String)> {
    let short = |operation: &Operation| {
        let renamed = configured(&settings.renames, operation);
        // Of an id in another script only a digest would be left, and of a part of it a name that says too little.
        let is_latin = |id: &&str| id.chars().all(|character| character < END_OF_LATIN);
        let own_id = operation.id.as_deref().filter(is_latin);
        let own_id = own_id.filter(|id| id.contains(|character: char| character.is_ascii_alphanumeric()));
        let own = renamed.or(own_id).map(str::trim).filter(|id| !id.is_empty());
        let name = own.map_or_else(|| slug(operation), str::to_owned);
        qualified_name(collection, &name).to_string()
    };
    let mut uses = BTreeMap::<String, usize>::new();
    for operation in operations {
        *uses.entry(short(operation)).or_default() += 1;
    }
    let name = |operation: &'a Operation| match short(operation) {
        name if uses.get(&name) == Some(&1) => name,
        // Duplicate ids: all of them get names of method and path, regardless of their order in the document.
        _ => qualified_name(collection, &format!("{}{}", operation.method, operation.path)).to_string(),
    };
    operations.iter().map(|operation| (*operation, name(operation))).collect()
}

/// `GET /users/{id}` as `get_users_id`.
fn slug(operation: &Operation) -> String {
    let mut slug = operation.method.as_str().to_ascii_lowercase();
    for part in operation.path.split(|character: char| !character.is_ascii_alphanumeric()) {
        if !part.is_empty() {
            slug.push('_');
            slug.push_str(part);
        }
    }
    slug
}
