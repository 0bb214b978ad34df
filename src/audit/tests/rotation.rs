//! Segments: closing them, crashes between two of them, and trails that others moved or cut off.

use std::time::SystemTime;

use super::disk::until;
use super::*;
use sekisho_core::checkout::checkout;

/// A trail that continues in a new chain when it is damaged.
pub(super) struct Running {
    pub(super) audit: Audit,
    pub(super) readiness: Arc<Readiness>,
    pub(super) file: PathBuf,
    pub(super) folder: TempDir,
}

impl Running {
    pub(super) fn start(on_damage: OnDamage) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.jsonl");
        let readiness = Arc::<Readiness>::default();
        let audit = start(&file, on_damage, &readiness);
        Self { audit, readiness, file, folder }
    }

    /// Writes a line, and waits until it is on the disk.
    pub(super) async fn line(&self) {
        write(self.audit.reserve().unwrap(), "calculator").wait().await.unwrap();
    }

    pub(super) async fn new_segment(&self) {
        let before = closed(&self.file).len();
        self.audit.start_segment();
        // There is no file between closing a segment and opening the next one.
        until(|| closed(&self.file).len() > before && self.file.exists()).await;
    }

    pub(super) async fn restart(&mut self) {
        self.audit.close().await;
        self.readiness = Arc::default();
        self.audit = start(&self.file, OnDamage::NewChain, &self.readiness);
    }
}

fn start(file: &Path, on_damage: OnDamage, readiness: &Arc<Readiness>) -> Audit {
    let config = AuditConfig { durability: Durability::Strict, on_damage, ..config(1_000) };
    Audit::open(file.to_owned(), &config, Arc::clone(readiness)).unwrap()
}

fn closed(file: &Path) -> Vec<PathBuf> {
    segments::closed(file).unwrap().into_iter().map(|segment| segment.path).collect()
}

fn first_line(file: &Path) -> Value {
    serde_json::from_str(fs::read_to_string(file).unwrap().lines().next().unwrap()).unwrap()
}

fn last_line(file: &Path) -> Value {
    serde_json::from_str(fs::read_to_string(file).unwrap().lines().last().unwrap()).unwrap()
}

#[test]
fn a_segment_is_full_after_64_mib_or_a_day() {
    let began = SystemTime::now();
    let (day, second) = (Duration::from_secs(24 * 60 * 60), Duration::from_secs(1));
    for (bytes, now, expected) in [
        (0, began, false),
        ((64 << 20) - 1, began + day - second, false),
        (64 << 20, began, true),
        (1, began + day, true),
        (1, began - day, false),
    ] {
        assert_eq!(writer::is_full(bytes, began, now), expected, "{bytes} bytes at {now:?}");
    }
}

#[tokio::test]
async fn a_segment_of_64_mib_is_closed() {
    let running = Running::start(OnDamage::Refuse);
    // Texts are cut to 256 bytes.
    let text = "x".repeat(256);
    let event = AuditEvent {
        subject: Some(text.clone()),
        detail: Some(text),
        ..AuditEvent::new(EventKind::ConfigurationReloaded)
    };
    while closed(&running.file).is_empty() {
        (0..500).for_each(|_| running.audit.event(event.clone()));
        running.line().await;
    }
    let [segment] = closed(&running.file).try_into().unwrap();
    let bytes = fs::metadata(segment).unwrap().len();
    assert!((64 << 20..65 << 20).contains(&bytes), "{bytes}");
    running.audit.close().await;
    assert_eq!(verify(&running.file).unwrap().segments, 2);
}

#[tokio::test]
async fn a_segment_begins_with_the_hash_of_the_last_one() {
    let mut running = Running::start(OnDamage::Refuse);
    for _ in 0..3 {
        running.line().await;
        running.new_segment().await;
    }
    let closed = closed(&running.file);
    assert_eq!(closed.len(), 3);
    let files = [&closed[..], std::slice::from_ref(&running.file)].concat();
    for pair in files.windows(2) {
        let (last, header) = (last_line(&pair[0]), first_line(&pair[1]));
        assert_eq!((&header["event"], &header["prev"]), (&Value::from("segment"), &last["hash"]));
        assert_eq!(header["seq"].as_u64(), last["seq"].as_u64().map(|seq| seq + 1));
        assert_eq!(fs::metadata(&pair[0]).unwrap().permissions().mode() & 0o777, 0o600);
    }
    running.restart().await;
    running.line().await;
    running.audit.close().await;
    assert_eq!(verify(&running.file).unwrap(), Verified { lines: 7, segments: 4, ..Verified::default() });
    assert!(running.readiness.degraded().is_empty());

    // A segment that is gone, or changed, is found.
    let second = fs::read_to_string(&closed[1]).unwrap();
    fs::remove_file(&closed[1]).unwrap();
    assert_eq!(verify(&running.file).unwrap_err().line(), Some(2));
    fs::write(&closed[1], second.replace("\"tokens\":7", "\"tokens\":8")).unwrap();
    let error = verify(&running.file).unwrap_err();
    assert_eq!(error.line(), Some(3));
    assert!(error.to_string().contains(closed[1].to_str().unwrap()), "{error}");
    fs::write(&closed[1], second).unwrap();
    fs::remove_file(&closed[0]).unwrap();
    assert!(matches!(verify(&running.file).unwrap_err().line(), Some(1)), "the beginning is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_segments_under_load_lose_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = Audit::open(file.clone(), &config(20_000), Arc::default()).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..2_500 {
                    let _ = write(audit.reserve().unwrap(), &format!("tool_{n}"));
                    if n % 100 == 0 {
                        audit.start_segment();
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
    });
    audit.close().await;
    let verified = verify(&file).unwrap();
    assert!(verified.segments > 1, "{verified:?}");
    assert_eq!(verified.lines, 10_000 + verified.segments as u64 - 1, "and a header for each segment but the first");
    assert!(verified.damages.is_empty());
}

/// The files of a process that is killed between closing a segment and opening the next one, at each step.
#[tokio::test]
async fn a_crash_between_two_segments_is_mended() {
    for step in 0..3 {
        let mut running = Running::start(OnDamage::Refuse);
        running.line().await;
        running.line().await;
        running.audit.close().await;
        let old_head = fs::read(head_path(&running.file)).unwrap();
        match step {
            // The next segment is complete, and has no name yet.
            0 => fs::write(segments::next_path(&running.file), "{\"seq\":3,").unwrap(),
            // The closed one has its name.
            1 => {
                let closed = segments::closed_path(&running.file, 1, std::time::SystemTime::now());
                fs::rename(&running.file, closed).unwrap();
            }
            // The next one too, and the head is still the old one.
            _ => {
                running.restart().await;
                running.new_segment().await;
                running.audit.close().await;
                fs::write(head_path(&running.file), old_head).unwrap();
            }
        }
        running.restart().await;
        running.line().await;
        running.audit.close().await;
        let (lines, segments) = if step > 0 { (4, 2) } else { (3, 1) };
        let expected = Verified { lines, segments, ..Verified::default() };
        assert_eq!(verify(&running.file).unwrap(), expected, "step {step}");
        assert!(running.readiness.degraded().is_empty(), "step {step}");
    }
}

/// A change to the file, and its name.
type Change = (&'static str, fn(&Path));

/// The actions of tools for log rotation.
const ROTATIONS: [Change; 4] = [
    ("moved away", |file| fs::rename(file, file.with_extension("jsonl.1")).unwrap()),
    ("removed", |file| fs::remove_file(file).unwrap()),
    ("copied and cut off", |file| {
        fs::copy(file, file.with_extension("jsonl.1")).unwrap();
        fs::OpenOptions::new().write(true).open(file).unwrap().set_len(0).unwrap();
    }),
    ("replaced", |file| {
        fs::rename(file, file.with_extension("jsonl.1")).unwrap();
        fs::write(file, "").unwrap();
    }),
];

#[tokio::test]
async fn a_trail_that_others_rotate_is_stated_and_goes_on_in_a_marked_chain() {
    for (what, rotate) in ROTATIONS {
        let mut running = Running::start(OnDamage::NewChain);
        running.line().await;
        running.line().await;
        let last = last_line(&running.file);
        rotate(&running.file);
        until(|| running.readiness.degraded().contains_key("audit_chain")).await;
        assert!(!running.readiness.refuses_calls(), "{what}");
        running.line().await;
        let header = first_line(&running.file);
        assert_eq!(header["event"], "new_chain", "{what}");
        assert_eq!((&header["last_line"], &header["last_hash"]), (&2.into(), &last["hash"]), "{what}");
        running.restart().await;
        assert!(running.readiness.degraded().is_empty(), "{what}: the next start has nothing to state");
        running.line().await;
        running.audit.close().await;
        let verified = verify(&running.file).unwrap();
        assert_eq!((verified.lines, verified.damages.len()), (3, 1), "{what}");
        assert_eq!(verified.damages[0].line, 3, "{what}");
    }
}

#[tokio::test]
async fn under_refuse_a_trail_that_is_moved_away_refuses_calls_until_it_is_back() {
    for (what, rotate) in ROTATIONS {
        let running = Running::start(OnDamage::Refuse);
        running.line().await;
        let whole = fs::read(&running.file).unwrap();
        rotate(&running.file);
        let lost = write(running.audit.reserve().unwrap(), "calculator").wait().await;
        assert_eq!(lost.unwrap_err().code(), ErrorCode::Internal, "{what}");
        assert_eq!(running.audit.reserve().unwrap_err().code(), ErrorCode::Overloaded, "{what}");
        assert!(running.readiness.refuses_calls(), "{what}");
        assert!(running.readiness.degraded()["audit"].contains("audit.jsonl"), "{what}");
        if what == "moved away" {
            fs::rename(running.file.with_extension("jsonl.1"), &running.file).unwrap();
            until(|| running.audit.reserve().is_ok()).await;
            running.line().await;
            running.audit.close().await;
            assert_eq!(verify(&running.file).unwrap().lines, 3, "the waiting line was not dropped");
        } else {
            assert!(fs::read(&running.file).unwrap_or_default() != whole, "{what}: nothing is written meanwhile");
        }
    }
}

/// Damage that is found at the start.
#[tokio::test]
async fn a_damaged_trail_is_kept_aside_and_a_marked_chain_follows() {
    let damages: [Change; 3] = [
        ("cut off", |file| {
            let text = fs::read_to_string(file).unwrap();
            fs::write(file, text.lines().next().unwrap().to_owned() + "\n").unwrap();
        }),
        ("changed", |file| {
            let text = fs::read_to_string(file).unwrap();
            fs::write(file, text.replace("\"tokens\":7", "\"tokens\":8")).unwrap();
        }),
        ("gone", |file| fs::remove_file(file).unwrap()),
    ];
    for (what, damage) in damages {
        let mut running = Running::start(OnDamage::NewChain);
        running.line().await;
        running.line().await;
        running.audit.close().await;
        damage(&running.file);
        let found = fs::read_to_string(&running.file).ok();
        running.restart().await;
        assert!(running.readiness.degraded()["audit_chain"].contains("new chain from line 3"), "{what}");
        running.line().await;
        running.audit.close().await;
        let verified = verify(&running.file).unwrap();
        assert_eq!((verified.lines, verified.damages.len()), (2, 1), "{what}");
        let kept = verified.damages[0].stated.kept_as.as_ref();
        let kept = kept.map(|name| fs::read_to_string(running.file.with_file_name(name)).unwrap());
        assert_eq!(kept, found, "{what}: the evidence is kept");
    }
}

/// The state directory of a version without segments.
#[tokio::test]
async fn a_trail_of_an_earlier_version_is_the_first_segment() {
    let mut running = Running::start(OnDamage::Refuse);
    running.audit.close().await;
    let fixtures = checkout().join("tests/fixtures/audit");
    for name in ["audit.jsonl", "audit.jsonl.head"] {
        fs::copy(fixtures.join(name), running.file.with_file_name(name)).unwrap();
    }
    running.restart().await;
    running.line().await;
    running.new_segment().await;
    running.line().await;
    running.audit.close().await;
    let verified = verify(&running.file).unwrap();
    // Its lines are more than a day old, so that it is closed at once, or were when this test was written.
    let further = verified.segments - 2;
    assert_eq!(
        verified,
        Verified { lines: 6 + u64::try_from(further).unwrap(), segments: 2 + further, ..Verified::default() }
    );
    assert!(further <= 1 && running.readiness.degraded().is_empty());
}

#[tokio::test]
async fn old_segments_are_removed_and_the_trail_says_so() {
    let mut running = Running::start(OnDamage::Refuse);
    running.line().await;
    running.new_segment().await;
    running.line().await;
    running.new_segment().await;
    running.audit.close().await;
    let files = closed(&running.file);
    let [first, second] = &files[..] else { panic!("two closed segments") };
    // Closed in the past.
    fs::rename(first, running.file.with_file_name("audit-000000000001-20200101T000000Z.jsonl")).unwrap();
    let config = AuditConfig { retention_days: Some(30), on_damage: OnDamage::Refuse, ..config(1_000) };
    running.audit = Audit::open(running.file.clone(), &config, Arc::default()).unwrap();
    until(|| closed(&running.file).len() == 1).await;
    running.audit.close().await;
    assert_eq!(closed(&running.file), files[1..]);
    let verified = verify(&running.file).unwrap();
    assert_eq!((verified.removed_lines, verified.lines, verified.segments), (1, 4, 2));
    // More than the trail says is missing.
    fs::remove_file(second).unwrap();
    assert!(matches!(verify(&running.file), Err(AuditError::BeginningMissing { found: 4, .. })));
}
