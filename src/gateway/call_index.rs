//! Writes the index of calls and events, from the lines of the audit trail. A call does not wait for it: an entry that finds the queue
//! full, or a database that fails, is dropped and counted, and the index is rebuilt from the trail. Whoever reads the index has it written
//! first, so that it has all that ended before.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::StartError;
use super::call_contents::{KeptContents, remove_old_contents};
use super::parts::component_error;
use sekisho_audit::{IndexQueue, Indexed, LineFilter, LineRecord, record_of_line};
use sekisho_calls::pipeline::Settlement;
use sekisho_config::{AuditConfig, Config, ContentConfig};
use sekisho_core::caller::Owner;
use sekisho_core::record::CallSummary;
use sekisho_observe::readiness::Readiness;
use sekisho_store::sealing::{SealedFor, Sealer};
use sekisho_store::{CallIndexStore, IndexWriter, NewIndexedCall, Store, StoreError, StoreLocation};

/// How long entries are collected for one transaction.
const GATHER: Duration = Duration::from_secs(1);

/// How often sums of calls are written: a gateway that is killed loses as much of the figures.
const WRITE_SUMS: Duration = Duration::from_secs(10);

/// How often old entries are removed.
const RETAIN: Duration = Duration::from_secs(600);

/// The name in readiness.
const COMPONENT: &str = "call_index";

/// Entries that a rebuild adds at once.
const REBUILT_AT_ONCE: usize = 1_024;

/// The index of calls and events.
#[derive(Debug)]
pub struct CallIndex {
    pub(super) store: CallIndexStore,
    queue: Arc<IndexQueue>,
    pub(super) sealer: Sealer,
    settings: AuditConfig,
    /// The arguments and results of calls; `None` where they are not kept.
    contents: Option<KeptContents>,
    content_settings: ContentConfig,
    readiness: Arc<Readiness>,
    /// One at a time writes; a reader waits until it has.
    writing: Mutex<IndexWriter>,
    dropped: AtomicU64,
}

impl CallIndex {
    pub(super) async fn open(
        config: &Config,
        store: &Store,
        settlement: &Settlement,
        readiness: &Arc<Readiness>,
    ) -> Result<Self, StartError> {
        let store = CallIndexStore::open(&StoreLocation::of(config), store).await.map_err(component_error("store"))?;
        let sealer = Sealer::new(config);
        let contents = settlement.contents.as_ref().map(|contents| KeptContents::new(contents, &sealer)).transpose()?;
        let queue = settlement.audit.index_queue();
        queue.open();
        Ok(Self {
            store,
            queue: Arc::clone(queue),
            sealer,
            settings: config.audit.clone(),
            contents,
            content_settings: config.recording.content.clone(),
            readiness: Arc::clone(readiness),
            writing: Mutex::default(),
            dropped: AtomicU64::default(),
        })
    }

    /// Writes new entries and removes old ones, until the gateway closes. Entries are written while millions are removed: the queue
    /// would be full within seconds.
    pub(super) async fn run(self: Arc<Self>, closing: CancellationToken) {
        tokio::join!(
            self.write_as_they_come(&closing),
            self.write_sums_at_times(&closing),
            closing.run_until_cancelled(self.remove_old())
        );
    }

    async fn write_as_they_come(&self, closing: &CancellationToken) {
        // Not cancelled while it writes: entries that were taken are nowhere else.
        while closing.run_until_cancelled(self.gather()).await.is_some() {
            drop(self.write_waiting().await);
        }
    }

    async fn write_sums_at_times(&self, closing: &CancellationToken) {
        // Not cancelled while it writes: sums that the database takes at this moment would be written again at the end.
        while closing.run_until_cancelled(tokio::time::sleep(WRITE_SUMS)).await.is_some() {
            let mut writer = self.writing.lock().await;
            self.write_sums(&mut writer).await;
        }
    }

    async fn write_sums(&self, writer: &mut IndexWriter) {
        if let Err(error) = self.store.write_sums(writer).await {
            tracing::warn!(%error, "sums of calls cannot be written; they are tried again");
        }
    }

    async fn gather(&self) {
        self.queue.filled().await;
        _ = timeout(GATHER, self.queue.many()).await;
    }

    /// Writes the entries that wait, before somebody reads. It is done to its end, even if the reader goes: entries that were taken
    /// are nowhere else.
    pub async fn write(self: &Arc<Self>) {
        let index = Arc::clone(self);
        written(tokio::spawn(async move { drop(index.write_waiting().await) })).await;
    }

    /// The same, with the sums of all calls.
    pub async fn write_with_sums(self: &Arc<Self>) {
        let index = Arc::clone(self);
        written(tokio::spawn(async move { index.write_all().await })).await;
    }

    async fn write_all(&self) {
        let mut writer = self.write_waiting().await;
        self.write_sums(&mut writer).await;
    }

    /// Returns the writer, which nobody else uses meanwhile.
    async fn write_waiting(&self) -> MutexGuard<'_, IndexWriter> {
        let mut writer = self.writing.lock().await;
        let (entries, missed) = self.queue.take();
        let taken = entries.len() as u64;
        let (mut calls, mut events) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry {
                Indexed::Call { call, calls: count } => {
                    calls.push(NewIndexedCall { words: self.sealed(&call), call, calls: count });
                }
                Indexed::Event(event) => events.push(event.record()),
            }
        }
        let written = match self.store.add_calls(&mut writer, &calls).await {
            Ok(()) => self.store.add_events(&events).await,
            failed => failed,
        };
        let problem = written.err().map(|error| error.to_string());
        if let Some(contents) = &self.contents {
            contents.write(&self.store, &self.sealer).await;
        }
        let dropped = missed + if problem.is_some() { taken } else { 0 };
        if dropped > 0 {
            self.report(dropped, problem.as_deref().unwrap_or("more calls end than the index can take"));
        }
        writer
    }

    fn report(&self, dropped: u64, problem: &str) {
        let dropped = self.dropped.fetch_add(dropped, Ordering::Relaxed) + dropped;
        let advice = "`sekisho audit index` adds them from the audit trail, which has them";
        self.readiness.degrade(COMPONENT, format!("the index lacks {dropped} calls and events: {problem}; {advice}"));
    }

    /// The words of a failure, for roles that may see them; nothing without a key.
    fn sealed(&self, call: &CallSummary) -> Option<String> {
        let words = call.words.as_deref()?;
        self.sealer.seal(sealed_for(&call.owner), words.as_bytes()).ok()
    }

    /// Why a call failed, in the words of its tool.
    pub async fn words(&self, call: &CallSummary) -> Result<Option<String>, StoreError> {
        let sealed = self.store.words_of(call).await?;
        // Of a key that is not in force any more.
        let opened = sealed.and_then(|sealed| self.sealer.open(sealed_for(&call.owner), &sealed).ok());
        Ok(opened.and_then(|words| String::from_utf8(words).ok()))
    }

    async fn remove_old(&self) {
        let AuditConfig { index_days, index_max_megabytes, .. } = self.settings;
        let kept = SignedDuration::from_hours(24 * i64::from(index_days));
        loop {
            let since = Timestamp::now().checked_sub(kept).unwrap_or(Timestamp::MIN);
            if let Err(error) = self.store.retain_sums(Timestamp::now()).await {
                tracing::warn!(%error, "old sums of calls cannot be removed from the index");
            }
            match self.store.retain(since, u64::from(index_max_megabytes) << 20).await {
                Ok(0) => {}
                Ok(calls) => tracing::info!(calls, "old calls were removed from the index"),
                Err(error) => tracing::warn!(%error, "old calls cannot be removed from the index"),
            }
            remove_old_contents(&self.store, &self.content_settings).await;
            tokio::time::sleep(RETAIN).await;
        }
    }

    /// Writes the last entries, and disconnects.
    pub(super) async fn close(&self) {
        self.write_all().await;
        self.store.close().await;
    }
}

async fn written(writing: JoinHandle<()>) {
    if let Err(problem) = writing.await {
        tracing::error!(%problem, "the index of calls was not written");
    }
}

fn sealed_for(owner: &Owner) -> SealedFor<'_> {
    SealedFor { tenant: &owner.tenant, owner: &owner.caller, kind: "words of a failed call" }
}

/// Adds the lines of trails to the index of a configuration, each once. Returns the calls and events that were read. A gateway may
/// use the index.
/// Errors: the store or a trail cannot be read.
pub async fn rebuild_index(config: &Config, trails: Vec<PathBuf>, filter: LineFilter) -> Result<u64, StartError> {
    let location = StoreLocation::of(config);
    let main = Store::open(&location).await.map_err(component_error("store"))?;
    let store = CallIndexStore::open(&location, &main).await.map_err(component_error("store"))?;
    let (lines, mut records) = tokio::sync::mpsc::channel(REBUILT_AT_ONCE);
    let reading = tokio::task::spawn_blocking(move || {
        sekisho_audit::search(&trails, &filter, |text| {
            record_of_line(text).is_none_or(|record| lines.blocking_send(record).is_ok())
        })
    });
    let mut writer = store.writer_of_old_calls().await.map_err(component_error("store"))?;
    let (mut read, mut batch) = (0, Vec::with_capacity(REBUILT_AT_ONCE));
    while records.recv_many(&mut batch, REBUILT_AT_ONCE).await > 0 {
        read += batch.len() as u64;
        let (mut calls, mut events) = (Vec::new(), Vec::new());
        for record in batch.drain(..) {
            match record {
                LineRecord::Call { call, calls: count } => {
                    calls.push(NewIndexedCall { call: Arc::from(call), calls: count, words: None });
                }
                LineRecord::Event(event) => events.push(*event),
            }
        }
        store.add_calls(&mut writer, &calls).await.map_err(component_error("store"))?;
        store.add_events(&events).await.map_err(component_error("store"))?;
    }
    store.write_sums(&mut writer).await.map_err(component_error("store"))?;
    reading.await.map_err(component_error("audit"))?.map_err(component_error("audit"))?;
    store.close().await;
    main.close().await;
    Ok(read)
}
