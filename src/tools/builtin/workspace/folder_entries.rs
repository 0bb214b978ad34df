//! The state that a process has of folders.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use sekisho_core::bounded::BoundedMap;

/// Maximum folders of which something is known: as many as sessions that may be open, some 20 MB.
const MAX_FOLDERS: usize = 100_000;

/// An entry for each folder, by its name. Whoever works in a folder holds its entry, so that all who do have the same
/// one. An entry that nobody holds goes when there are too many, and is made anew: its state has to be found out again
/// then.
#[derive(Debug)]
pub(super) struct FolderEntries<T>(Mutex<BoundedMap<String, Arc<T>>>);

impl<T: Default> FolderEntries<T> {
    pub(super) fn new() -> Self {
        Self::with_max(MAX_FOLDERS)
    }

    fn with_max(max: usize) -> Self {
        Self(Mutex::new(BoundedMap::new(max)))
    }

    /// The entry of a folder.
    /// Errors: all entries that there may be are held.
    pub(super) fn entry(&self, name: &str) -> io::Result<Arc<T>> {
        let mut entries = self.0.lock();
        if let Some(entry) = entries.get(name) {
            return Ok(Arc::clone(entry));
        }
        let entry = Arc::new(T::default());
        match entries.insert_after(name.to_owned(), Arc::clone(&entry), |_, other| !is_held(other)) {
            Ok(_) => Ok(entry),
            Err(_) => Err(io::Error::other("too many workspaces are in use")),
        }
    }

    /// Runs `remove` and removes the entry of the folder if it returns true, unless somebody holds the entry. Whoever wants to work
    /// in a folder waits meanwhile, so that it must not take long. Returns whether it was removed.
    /// Errors of `remove`.
    pub(super) fn remove_if(&self, name: &str, remove: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        let mut entries = self.0.lock();
        if entries.get(name).is_some_and(is_held) || !remove()? {
            return Ok(false);
        }
        entries.remove(name);
        Ok(true)
    }

    /// Removes an entry that nobody holds. Another one for the same folder beside it would not exclude those who wait for it.
    pub(super) fn remove_unheld(&self, name: &str) {
        let mut entries = self.0.lock();
        if entries.get(name).is_some_and(|entry| !is_held(entry)) {
            entries.remove(name);
        }
    }

    #[cfg(test)]
    pub(super) fn is_held(&self, name: &str) -> bool {
        self.0.lock().get(name).is_some_and(is_held)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// Whether somebody has it beside the map. Nobody else can get it while the map is locked.
fn is_held<T>(entry: &Arc<T>) -> bool {
    Arc::strong_count(entry) > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_nobody_holds_go_for_others() {
        let entries = FolderEntries::<Mutex<u32>>::with_max(3);
        let held = entries.entry("held").unwrap();
        *held.lock() = 7;
        for number in 0..100 {
            entries.entry(&number.to_string()).unwrap();
            assert!(entries.len() <= 3);
        }
        assert_eq!(*entries.entry("held").unwrap().lock(), 7, "the same one");
        entries.remove_unheld("held");
        assert!(entries.is_held("held"));
        let others = ["a", "b"].map(|name| entries.entry(name).unwrap());
        assert!(entries.entry("c").is_err());
        drop(others);
        assert!(entries.entry("c").is_ok() && !entries.is_held("c") && !entries.is_held("d"));
        drop(held);
        entries.remove_unheld("held");
        assert_eq!(*entries.entry("held").unwrap().lock(), 0);
    }

    #[test]
    fn nobody_gets_an_entry_while_its_folder_is_removed() {
        let entries = FolderEntries::<Mutex<u32>>::new();
        *entries.entry("a").unwrap().lock() = 7;
        let held = entries.entry("a").unwrap();
        assert!(!entries.remove_if("a", || panic!("it is held")).unwrap());
        drop(held);
        assert!(!entries.remove_if("a", || Ok(false)).unwrap());
        assert_eq!(*entries.entry("a").unwrap().lock(), 7);
        let is_locked = || Ok(entries.0.try_lock().is_none());
        assert!(entries.remove_if("a", is_locked).unwrap());
        assert_eq!(*entries.entry("a").unwrap().lock(), 0);
    }
}
