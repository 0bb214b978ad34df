//! The search for the interpreter, and the workers that run it. The worker's files are on this machine, and another
//! process may be making them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Sandbox;
use crate::pool::{COMPONENT, Pool, Start};
use crate::warming_up;
use crate::worker_handle::fingerprints;
use crate::worker_setup::{self, ReadyProfile, Setup};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::EngineFingerprints;

/// The result of searching for the interpreter.
#[derive(Debug)]
pub(crate) enum Found {
    Prepared(Available),
    Missing,
}

/// The parts that can run programs.
#[derive(Debug)]
pub(crate) struct Available {
    pub(crate) pool: Pool,
    /// The workers of the second class ([`classes`](crate::classes)), which start with the first run in them.
    pub(crate) background: Pool,
    /// The profiles that are compiled, from the lightest on.
    pub(crate) profiles: Vec<ReadyProfile>,
    /// Whether these are all profiles.
    pub(crate) is_complete: bool,
    /// Identifies the packages that modules can import.
    pub(crate) packages: String,
}

/// In `/readyz`: the profiles that are still being compiled.
const PROFILES: &str = "sandbox_profiles";

/// Interval of the search for an interpreter that is not set up yet.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

impl Sandbox {
    /// Searches until the interpreter is set up with all its profiles; readiness reports while it is not.
    pub async fn look_for_interpreter(&self, closing: CancellationToken) {
        loop {
            if self.locate().await.is_complete() {
                return;
            }
            if closing.run_until_cancelled(tokio::time::sleep(LOOK_AGAIN)).await.is_none() {
                return;
            }
        }
    }

    pub(crate) async fn locate(&self) -> Arc<Found> {
        let _nobody_else = self.looking.lock().await;
        let (before, packages) = (self.found.load_full(), self.packages.load_full());
        let sum = packages.sum();
        if let Some(found) = before.as_ref().filter(|found| found.is_complete() && found.has_packages(&sum)) {
            return Arc::clone(found);
        }
        let (config, interpreter) = (self.config.clone(), self.interpreter.clone());
        let fingerprints = match &self.unread_module {
            Some(reason) => Err(format!(
                "sandbox.wasm_path: {reason}; correct the path (PYTHON_WASI_WASM_PATH sets it too) or add the file, and restart"
            )),
            None => self.fingerprints().await,
        };
        let looked = match fingerprints {
            Ok(fingerprints) => {
                let look = move || worker_setup::locate(&config, &interpreter, &packages, &fingerprints.interpreter);
                let looked = tokio::task::spawn_blocking(look).await;
                looked.unwrap_or_else(|panic| Err(format!("the search for the interpreter failed: {panic}").into()))
            }
            Err(reason) => Err(reason.into()),
        };
        let lacking = looked.as_ref().map_or_else(Some, |setup| setup.incomplete.as_ref());
        self.is_being_set_up.store(lacking.is_some_and(|lacking| lacking.is_being_set_up), Ordering::Relaxed);
        let found = match looked {
            Ok(setup) => {
                match &setup.incomplete {
                    Some(lacking) => self.readiness.degrade(PROFILES, lacking.reason.clone()),
                    None => self.readiness.restore(PROFILES),
                }
                let is_enough =
                    |found: &Found| found.profiles().len() >= setup.profiles.len() && found.has_packages(&sum);
                if let Some(before) = before.filter(|found| is_enough(found)) {
                    return before;
                }
                self.readiness.restore(COMPONENT);
                Found::Prepared(self.available(setup))
            }
            Err(missing) => {
                // Workers that run are kept: a search that fails later says nothing about them.
                if let Some(before) = before.filter(|found| matches!(**found, Found::Prepared(_))) {
                    return before;
                }
                self.readiness.degrade(COMPONENT, missing.reason);
                Found::Missing
            }
        };
        let found = Arc::new(found);
        if let Some(Found::Prepared(before)) = self.found.swap(Some(Arc::clone(&found))).as_deref() {
            before.pool.retire();
            before.background.retire();
        }
        found
    }

    /// The program of workers is asked once.
    pub(crate) async fn fingerprints(&self) -> Result<EngineFingerprints, String> {
        let ask = async || fingerprints(&worker_setup::program(&self.config)?).await;
        self.fingerprints.get_or_try_init(ask).await.cloned()
    }

    fn available(&self, Setup { program, load, profiles, incomplete, packages }: Setup) -> Available {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let pool = |is_background: bool| {
            let mut program = program.clone();
            program.arguments.extend(is_background.then(|| "--background".into()));
            Pool::new(Start {
                program,
                load: load.clone(),
                workers: self.config.workers.map_or_else(cores, |workers| workers as usize),
                component: COMPONENT,
                is_counted: !is_background,
                metrics: self.metrics.clone(),
                readiness: Arc::clone(&self.readiness),
            })
        };
        let (pool, background) = (pool(false), pool(true));
        Available { pool, background, profiles, is_complete: incomplete.is_none(), packages }
    }

    /// The workers; `packages`: for a module that was read with these. While they cannot run this profile: `warming_up` if it
    /// is being set up, else `internal`. The first call searches itself if no search has run yet.
    pub(crate) async fn pool(
        &self,
        profile: &str,
        packages: Option<&str>,
        is_background: bool,
    ) -> Result<Pool, CallError> {
        let found = match self.found.load_full() {
            Some(found) => found,
            None => self.locate().await,
        };
        match &*found {
            Found::Prepared(available) if packages.is_some_and(|packages| packages != available.packages) => {
                Err(warming_up("the packages of tools have changed, and this tool is read anew"))
            }
            Found::Prepared(available) if available.profiles.iter().any(|ready| ready.name == profile) => {
                Ok(if is_background { available.background.clone() } else { available.pool.clone() })
            }
            Found::Prepared(_) => Err(self.lacks(&format!("the profile `{profile}` of the Python interpreter"))),
            Found::Missing => Err(self.lacks("the Python interpreter")),
        }
    }

    /// A sum of the initial state of a profile's instances; `None` where its sessions cannot be stored, or it cannot
    /// run yet.
    pub(crate) fn snapshot_of(&self, profile: &str) -> Option<String> {
        self.found.load().as_ref()?.profile(profile)?.snapshot.clone()
    }

    /// The same for modules, which see packages and data files while they are executed.
    pub(crate) fn module_base_of(&self, profile: &str) -> Option<String> {
        self.found.load().as_ref()?.profile(profile)?.module_base.clone()
    }

    fn lacks(&self, what: &str) -> CallError {
        if self.is_being_set_up.load(Ordering::Relaxed) {
            return warming_up(&format!("{what} is being set up, which takes some minutes"));
        }
        if self.unread_module.is_none() && self.fingerprints.get().is_none() {
            return warming_up("the workers of the sandbox cannot be started; /readyz tells the operator why");
        }
        let message = format!("{what} is not set up here: its operator runs `sekisho sandbox prepare`");
        CallError::new(ErrorCode::Internal, message)
    }
}

impl Found {
    fn profiles(&self) -> &[ReadyProfile] {
        match self {
            Self::Prepared(available) => &available.profiles,
            Self::Missing => &[],
        }
    }

    fn profile(&self, name: &str) -> Option<&ReadyProfile> {
        self.profiles().iter().find(|ready| ready.name == name)
    }

    fn is_complete(&self) -> bool {
        matches!(self, Self::Prepared(available) if available.is_complete)
    }

    fn has_packages(&self, sum: &str) -> bool {
        matches!(self, Self::Prepared(available) if available.packages == sum)
    }

    /// Whether its workers have other packages than the packages with this sum.
    pub(crate) fn has_other_packages(&self, sum: &str) -> bool {
        matches!(self, Self::Prepared(available) if available.packages != sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::SandboxConfig;
    use sekisho_observe::metrics::SandboxMetrics;
    use sekisho_observe::readiness::Readiness;

    #[tokio::test]
    async fn without_the_module_of_the_configuration_there_is_no_python_and_readiness_says_so() {
        let config = SandboxConfig { wasm_path: Some("/nowhere/python.wasm".into()), ..SandboxConfig::default() };
        let readiness = Arc::new(Readiness::default());
        let sandbox = Sandbox::new(&config, SandboxMetrics::for_tests(), Arc::clone(&readiness)).unwrap();
        let error = sandbox.pool("base", None, false).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal, "waiting does not help: {error:?}");
        let degraded = readiness.degraded();
        let reason = &degraded[COMPONENT];
        assert!(reason.contains("/nowhere/python.wasm cannot be read") && reason.contains("restart"), "{reason}");
    }
}
