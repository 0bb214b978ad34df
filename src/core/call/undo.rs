//! The changes of a call elsewhere, and how to undo them if its caller leaves before it knows of them.

use std::fmt;

use parking_lot::Mutex;

/// Undoes changes when it is dropped, unless they were [kept](Self::keep). A caller that leaves while its call runs, or before it
/// has the result, knows of no change that it could undo itself.
#[derive(Default)]
pub struct Undo(Mutex<Vec<UndoOne>>);

type UndoOne = Box<dyn FnOnce() + Send>;

impl Undo {
    /// A change was made, which `undo` undoes. It must not wait: it runs where the call is dropped.
    pub fn add(&self, undo: impl FnOnce() + Send + 'static) {
        self.0.lock().push(Box::new(undo));
    }

    /// The caller knows of all changes until now, and undoes them itself.
    pub fn keep(&self) {
        let kept = std::mem::take(&mut *self.0.lock());
        drop(kept);
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for undo in self.0.get_mut().drain(..) {
            undo();
        }
    }
}

impl fmt::Debug for Undo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Undo").field("changes", &self.0.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn what_was_not_kept_is_undone_once() {
        for (kept, expected) in [(false, 2), (true, 1)] {
            let undone = Arc::new(AtomicUsize::new(0));
            let one = || {
                let undone = Arc::clone(&undone);
                move || _ = undone.fetch_add(1, Ordering::Relaxed)
            };
            let undo = Undo::default();
            undo.add(one());
            if kept {
                undo.keep();
            }
            undo.add(one());
            assert_eq!(undone.load(Ordering::Relaxed), 0, "not before it is dropped");
            drop(undo);
            assert_eq!(undone.load(Ordering::Relaxed), expected);
        }
    }
}
