//! The files that the programs of an observed server used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use sekisho_process_sandbox::is_in_every_sandbox;
use sekisho_process_sandbox::network::Files;

/// Paths that are recorded, beside the system's.
const MAX_PATHS: usize = 20_000;

#[derive(Debug, Default)]
pub(crate) struct Observation(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    /// Whether the file was to change.
    paths: BTreeMap<PathBuf, bool>,
    /// Some were left out.
    is_cut: bool,
}

impl Observation {
    /// The paths in their order, each with whether it was to change; and whether there were more.
    pub(crate) fn recorded(&self) -> (Vec<(PathBuf, bool)>, bool) {
        let used = self.0.lock();
        (used.paths.iter().map(|(path, writes)| (path.clone(), *writes)).collect(), used.is_cut)
    }
}

impl Files for Observation {
    fn used(&self, path: &Path, writes: bool) {
        if is_in_every_sandbox(path) {
            return;
        }
        let mut used = self.0.lock();
        let is_full = used.paths.len() >= MAX_PATHS;
        match used.paths.get_mut(path) {
            Some(known) => *known |= writes,
            None if is_full => used.is_cut = true,
            None => _ = used.paths.insert(path.to_owned(), writes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_beside_the_systems_are_recorded_up_to_a_bound() {
        let observation = Observation::default();
        for (path, writes) in [("/srv/a", false), ("/srv/a", true), ("/srv/a", false), ("/usr/lib/x", true)] {
            observation.used(Path::new(path), writes);
        }
        assert_eq!(observation.recorded(), (vec![("/srv/a".into(), true)], false));
        for number in 0..=MAX_PATHS {
            observation.used(Path::new(&format!("/srv/{number}")), false);
        }
        let (used, is_cut) = observation.recorded();
        assert_eq!((used.len(), is_cut), (MAX_PATHS, true));
    }
}
