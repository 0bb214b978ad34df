//! Where objects are.

use std::fmt;

use object_store::path::Path;
use sha2::{Digest, Sha256};

/// The key of an object, or of a folder of them, below the configured prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobKey(Path);

impl BlobKey {
    /// Each part is encoded: none leads out of the one before it. A caller's text is no part; see [`of_tenant`](Self::of_tenant).
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// The folder of a tenant, by a hash of its name, which may be long.
    pub fn of_tenant(kind: &str, tenant: &str) -> Self {
        Self::of([kind, &hex::encode(&Sha256::digest(tenant)[..16])])
    }

    /// A key as [`Display`](fmt::Display) writes it.
    pub fn parse(text: &str) -> Option<Self> {
        Path::parse(text).ok().filter(|path| !path.is_root()).map(Self)
    }

    #[must_use]
    pub fn child(&self, part: &str) -> Self {
        Self(self.0.clone().join(part))
    }

    /// The last part.
    pub fn name(&self) -> &str {
        self.0.filename().unwrap_or_default()
    }

    /// The part before the last.
    pub fn parent_name(&self) -> Option<&str> {
        self.0.as_ref().rsplit('/').nth(1)
    }

    pub(super) fn of_path(path: Path) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for BlobKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_leads_out_of_its_folder() {
        let key = BlobKey::of(["replies", "../other", "a/b", ".."]);
        assert_eq!(key.to_string().split('/').count(), 4, "{key}");
        assert!(!key.to_string().split('/').any(|part| part == ".."), "{key}");
        assert_eq!(BlobKey::parse(&key.to_string()), Some(key));
        for invalid in ["", "/", "a//b", "a/../b"] {
            assert_eq!(BlobKey::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn tenants_have_folders_of_their_own_and_of_one_length() {
        let folders = ["a", "a/b", &"long".repeat(100)].map(|tenant| BlobKey::of_tenant("replies", tenant).to_string());
        assert!(folders.iter().all(|folder| folder.len() == "replies/".len() + 32), "{folders:?}");
        assert!(folders[0] != folders[1] && folders[1] != folders[2]);
    }
}
