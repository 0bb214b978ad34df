//! Journals of runs, and the runs that are resumed from them.

mod recorded;
mod replicas;
mod resumed;
mod sealed;
mod settled;
mod written;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use sekisho_core::call::{Caller, Via};
use sekisho_store::replica::LOST_AFTER;
use sekisho_store::test_support::{end_leases, test_store};
use sekisho_store::{ReplicaIdentity, Store};

struct Fixture {
    store: Store,
    journals: Arc<Journals>,
    config: Config,
    _state: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let state = TempDir::new().unwrap();
        let config = Config { state_directory: Some(state.path().to_owned()), ..Config::default() };
        let store = test_store().await;
        let journals = Arc::new(Journals::new(&config, store.program_runs()));
        Self { store, journals, config, _state: state }
    }

    /// Another process on the same store.
    fn restarted(&self) -> Arc<Journals> {
        Arc::new(Journals::new(&self.config, self.store.program_runs()))
    }

    /// A replica that lives.
    async fn replica(&self, id: &str) -> Arc<Journals> {
        let journals = self.restarted();
        journals.set_replica(&id.into());
        let (host, version, configuration, policies, degraded) = ("h", "1", "c", "p", "[]");
        let replica = ReplicaIdentity { id, host, version, configuration, policies, address: None, degraded };
        self.store.replicas().beat(replica, LOST_AFTER).await.unwrap();
        journals
    }

    /// As a kill leaves a run, once its lease has ended: unwritten entries are lost.
    async fn kill(&self, journal: RunJournal) {
        std::mem::forget(journal);
        end_leases(&self.store).await;
    }

    fn begin(&self, call: &CallContext) -> RunJournal {
        self.journals.begin(call, &arguments(1), Some(vec![7])).unwrap()
    }
}

fn call() -> CallContext {
    CallContext::new("python_executor", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest)
}

fn arguments(n: u64) -> Arguments {
    json!({"code": "x", "n": n}).as_object().unwrap().clone()
}

fn question(ordinal: u32) -> JournalQuestion {
    JournalQuestion::Call { ordinal, tool: "pay".to_owned(), arguments: [ordinal.to_be_bytes()[3]; 32] }
}

fn ask(journal: &RunJournal, number: u32, may_repeat: bool) -> Found {
    journal.find(number, &question(number), may_repeat, (Vec::new(), false))
}

const NEW: Found = Found::New { approval: None };

fn answered(json: &str) -> Found {
    Found::Answered(JournalAnswer { is_ok: true, json: json.to_owned() })
}
