//! Closed segments in object storage: copied once, kept until then, and verified there.

use std::collections::BTreeSet;

use super::disk::until;
use super::*;
use sekisho_outbound::blobs::test_support::{folder_storage, storage_out_of_reach};
use sekisho_outbound::blobs::{BlobKey, Blobs};

/// A trail whose segments are copied.
struct Copied {
    audit: Audit,
    uploads: SegmentUploads,
    file: PathBuf,
    /// Storage and state directories.
    folder: TempDir,
}

impl Copied {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("storage")).unwrap();
        let file = folder.path().join("state/audit.jsonl");
        let (audit, uploads) = start(&file, &folder_storage(&folder.path().join("storage")), None);
        Self { audit, uploads, file, folder }
    }

    fn storage(&self) -> Blobs {
        folder_storage(&self.folder.path().join("storage"))
    }

    /// Closes a segment with one line of a call.
    async fn close_segment(&self) {
        close_segment(&self.audit, &self.file).await;
    }

    async fn verified(&self) -> Vec<Result<Verified, String>> {
        let trails = verify_stored(&self.storage()).await.unwrap();
        assert!(trails.iter().all(|trail| trail.host == "host"), "{trails:?}");
        trails.into_iter().map(|trail| trail.found.map_err(|error| error.to_string())).collect()
    }

    /// The objects with this ending, of the whole storage.
    async fn objects(&self, ending: &str) -> Vec<BlobKey> {
        let listed = self.storage().list(&BlobKey::of(["audit"])).await.unwrap();
        listed.into_iter().map(|object| object.key).filter(|key| key.name().ends_with(ending)).collect()
    }
}

fn start(file: &Path, storage: &Blobs, retention_days: Option<u32>) -> (Audit, SegmentUploads) {
    let config = AuditConfig { durability: Durability::Strict, retention_days, ..config(1_000) };
    let audit = Audit::open_stored(file.to_owned(), &config, Arc::default()).unwrap();
    (audit, SegmentUploads::new(file.to_owned(), storage.clone(), "replica", "host").unwrap())
}

async fn close_segment(audit: &Audit, file: &Path) {
    let before = closed(file).len();
    write(audit.reserve().unwrap(), "calculator").wait().await.unwrap();
    audit.start_segment();
    until(|| closed(file).len() > before && file.exists()).await;
}

fn closed(file: &Path) -> Vec<PathBuf> {
    segments::closed(file).unwrap().into_iter().map(|segment| segment.path).collect()
}

#[tokio::test]
async fn closed_segments_are_copied_once_also_after_a_restart() {
    let mut copied = Copied::start();
    copied.uploads.copy_closed(&copied.audit).await.unwrap();
    assert!(copied.verified().await.is_empty());
    copied.close_segment().await;
    copied.close_segment().await;
    copied.uploads.copy_closed(&copied.audit).await.unwrap();
    let two = Verified { lines: 3, segments: 2, ..Verified::default() };
    assert_eq!(copied.verified().await, [Ok(two)]);
    assert_eq!(copied.uploads.known(), (2, 2), "each is known once, as long as it is here");

    // Closed, and the process ends before it is copied.
    copied.close_segment().await;
    copied.audit.close().await;
    let before: BTreeSet<_> = copied.objects("").await.into_iter().collect();
    (copied.audit, copied.uploads) = start(&copied.file, &copied.storage(), None);
    copied.uploads.copy_closed(&copied.audit).await.unwrap();
    let three = Verified { lines: 5, segments: 3, ..Verified::default() };
    assert_eq!(copied.verified().await, [Ok(three)]);
    assert_eq!(copied.uploads.known(), (3, 3));
    assert_eq!(copied.objects("").await.len(), before.len() + 2, "under the same id");
    assert_eq!(fs::metadata(segments::id_path(&copied.file)).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_segment_is_kept_until_it_is_copied() {
    let copied = Copied::start();
    copied.close_segment().await;
    copied.close_segment().await;
    copied.audit.close().await;
    // Closed in the past, so that the rule for retention removes them.
    for (path, time) in closed(&copied.file).iter().zip(["20200101", "20200102"]) {
        let name = path.file_name().unwrap().to_str().unwrap();
        fs::rename(path, path.with_file_name(format!("{}-{time}T000000Z.jsonl", &name[..18]))).unwrap();
    }
    let (audit, mut uploads) = start(&copied.file, &storage_out_of_reach(), Some(30));
    let (error, waiting) = uploads.copy_closed(&audit).await.unwrap_err();
    assert_eq!(waiting, 2, "{error}");
    // The writer looks when it starts; a line after that shows that it has.
    write(audit.reserve().unwrap(), "calculator").wait().await.unwrap();
    audit.close().await;
    assert_eq!(closed(&copied.file).len(), 2);

    let (audit, mut uploads) = start(&copied.file, &copied.storage(), Some(30));
    uploads.copy_closed(&audit).await.unwrap();
    audit.close().await;
    let mut retention = retention::Retention::of_days(30);
    assert!(
        retention.due(&copied.file, 4, 1).is_some_and(|old| old.through_line == 1),
        "of two, the one that is copied"
    );
    let mut retention = retention::Retention::of_days(30);
    assert!(retention.due(&copied.file, 4, 3).is_some_and(|old| old.through_line == 3));
    assert!(retention::Retention::of_days(30).due(&copied.file, 4, 0).is_none());
}

#[tokio::test]
async fn what_is_missing_or_changed_in_storage_is_found() {
    let mut copied = Copied::start();
    for _ in 0..3 {
        copied.close_segment().await;
    }
    copied.uploads.copy_closed(&copied.audit).await.unwrap();
    let storage = copied.storage();
    let faults = async || copied.verified().await.remove(0).unwrap_err();
    let (lines, records) = (copied.objects(".jsonl").await, copied.objects(".json").await);
    assert_eq!((lines.len(), records.len()), (3, 3));

    // A changed line, and lines that are gone.
    let whole = storage.get(&lines[1], 1 << 20).await.unwrap().unwrap();
    let changed = String::from_utf8(whole.to_vec()).unwrap().replace("\"tokens\":7", "\"tokens\":8");
    storage.put(&lines[1], changed.into()).await.unwrap();
    assert!(faults().await.contains("line 3 was changed"));
    storage.delete(&lines[1]).await.unwrap();
    assert!(faults().await.contains("line 3"));
    // Without its record a segment is one that is still to be copied, and the next does not follow.
    let record = storage.get(&records[1], 1 << 20).await.unwrap().unwrap();
    storage.delete(&records[1]).await.unwrap();
    assert!(faults().await.contains("line 2 is missing"));
    storage.put(&records[1], "{}".into()).await.unwrap();
    assert!(faults().await.contains("is no record of a segment"));
    storage.put(&records[1], record).await.unwrap();
    storage.put(&lines[1], whole).await.unwrap();
    assert!(copied.verified().await[0].is_ok());
    // The beginning.
    storage.delete(&records[0]).await.unwrap();
    assert!(faults().await.contains("line 1 is missing"));
}

#[tokio::test]
async fn two_gateways_that_go_on_with_one_trail_are_found() {
    let mut copied = Copied::start();
    copied.close_segment().await;
    copied.uploads.copy_closed(&copied.audit).await.unwrap();
    copied.audit.close().await;
    // A copy of the state directory, such as of a machine's disk.
    let twin = copied.folder.path().join("twin/audit.jsonl");
    fs::create_dir(twin.parent().unwrap()).unwrap();
    for entry in fs::read_dir(copied.file.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, twin.with_file_name(path.file_name().unwrap())).unwrap();
    }
    for file in [&copied.file, &twin] {
        let (audit, mut uploads) = start(file, &copied.storage(), None);
        close_segment(&audit, file).await;
        uploads.copy_closed(&audit).await.unwrap();
        audit.close().await;
        assert!(verify(file).is_ok(), "each by itself is whole");
    }
    let error = copied.verified().await.remove(0).unwrap_err();
    assert!(error.contains("line 2 is in two segments"), "{error}");
}
