mod disk;
mod receipts;
mod rotation;
mod stored;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;
use rust_decimal::Decimal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::chain::Chain;
use super::segments::head_path;
use super::verify::Verified;
use super::*;
use sekisho_config::OnDamage;
use sekisho_core::call::{CallContext, Caller, ClientRequest, Stage, Via};

fn call(tool: &str) -> CallContext {
    CallContext::new(tool, Arc::new(Caller::new("ann", "acme", vec![])), Via::Rest)
}

fn summary(call: &CallContext, error: Option<&CallError>) -> CallSummary {
    CallSummary {
        duration: Duration::from_micros(42),
        cost_usd: Decimal::new(1, 3),
        tokens: 7,
        attempts: 1,
        arguments_digest: [0xab; 32],
        policy_version: Some("p1".into()),
        ..CallSummary::new(call, None, error, String::new())
    }
}

/// Sends the line of a call that succeeded.
fn write(slot: AuditSlot, tool: &str) -> Durable {
    slot.write(summary(&call(tool), None).into(), None)
}

fn entry(call: &CallContext) -> Item {
    Item::Call(Entry {
        call: summary(call, None).into(),
        arguments: None,
        policy_input: None,
        repeated: None,
        acknowledge: None,
    })
}

fn open(file: &Path, durability: Durability) -> Result<Audit, AuditError> {
    let config = AuditConfig { durability, on_damage: OnDamage::Refuse, ..config(1_000) };
    Audit::open(file.to_owned(), &config, Arc::default())
}

/// With this many lines at once.
fn config(max_queued: usize) -> AuditConfig {
    AuditConfig { max_queued, ..AuditConfig::default() }
}

/// A closed trail of `lines` lines.
async fn trail(lines: usize) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state/audit.jsonl");
    let audit = open(&file, Durability::Relaxed).unwrap();
    for n in 0..lines {
        let _ = write(audit.reserve().unwrap(), &format!("tool_{n}"));
    }
    audit.close().await;
    (folder, file)
}

#[tokio::test]
async fn a_line_has_caller_tool_and_result_but_no_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = open(&file, Durability::Relaxed).unwrap();
    let mut call = call("calculator");
    call.origin.claimed_user = Some("somebody else".into());
    let error = CallError::new(ErrorCode::Denied, "no").at_stage(Stage::Policy);
    let request = ClientRequest { address: Some([192, 0, 2, 7].into()), id: "r-1".into() };
    call.origin.request = Some(request.into());
    let refused = CallSummary { trace_id: Some([1; 16]), ..summary(&call, Some(&error)) };
    let _ = audit.reserve().unwrap().write(refused.into(), None);
    audit.close().await;
    let mut line: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    for changing in ["time", "call_id", "hash"] {
        line[changing] = format!("<{changing}>").into();
    }
    insta::assert_snapshot!(line, @r#"{"seq":1,"time":"<time>","call_id":"<call_id>","tenant":"acme","caller":"ann","anonymous":false,"claimed_user":"somebody else","via":"rest","client":"192.0.2.7","request_id":"r-1","depth":0,"dry_run":false,"session":null,"tool":"calculator","status":"refused","code":"denied","stage":"policy","arguments_sha256":"abababababababababababababababababababababababababababababababab","policy_version":"p1","cost_usd":"0.001","tokens":7,"attempts":1,"duration_us":42,"trace_id":"01010101010101010101010101010101","prev":"0000000000000000000000000000000000000000000000000000000000000000","hash":"<hash>"}"#);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(&head_path(&file))), (0o600, 0o600));
}

#[tokio::test]
async fn a_trail_goes_on_where_it_ended() {
    let (_folder, file) = trail(3).await;
    let audit = open(&file, Durability::Relaxed).unwrap();
    let _ = write(audit.reserve().unwrap(), "more");
    audit.close().await;
    assert_eq!(verify(&file).unwrap(), Verified { lines: 4, segments: 1, ..Verified::default() });
}

/// A change to a trail of five lines, and the line that `verify` names.
type Tampering = (&'static str, fn(&mut Vec<String>), Option<u64>);

const TAMPERINGS: &[Tampering] = &[
    ("change a byte", |lines| lines[1] = lines[1].replace("\"tokens\":7", "\"tokens\":8"), Some(2)),
    ("change the last line", |lines| lines[4] = lines[4].replace("ann", "bob"), Some(5)),
    ("change a hash", |lines| lines[2] = lines[2].replace("\"hash\":\"", "\"hash\":\"0"), Some(3)),
    ("drop the first line", |lines| drop(lines.remove(0)), Some(1)),
    ("drop a line", |lines| drop(lines.remove(2)), Some(3)),
    ("swap two lines", |lines| lines.swap(1, 3), Some(2)),
    ("insert a copy", |lines| lines.insert(2, lines[0].clone()), Some(3)),
    ("append a copy", |lines| lines.push(lines[4].clone()), Some(6)),
    ("append rubbish", |lines| lines.push("{}\n".into()), Some(6)),
    ("append a huge line", |lines| lines.push("x".repeat(1 << 20)), Some(6)),
    ("add a space", |lines| lines[3] = lines[3].replace(",\"tenant\"", ", \"tenant\""), Some(4)),
    ("an empty line", |lines| lines.insert(1, "\n".into()), Some(2)),
    ("state a field twice", |lines| lines[0] = lines[0].replace("{\"seq\":1", "{\"seq\":9,\"seq\":1"), Some(1)),
    ("forge a line", |lines| lines[2] = forged(&lines[1], &lines[2]), Some(4)),
    ("forge the last line", |lines| lines[4] = forged(&lines[3], &lines[4]), Some(5)),
    ("cut off the tail", |lines| lines.truncate(3), Some(4)),
    ("cut off all", Vec::clear, Some(1)),
    ("cut in a line", |lines| lines[4].truncate(100), Some(5)),
    ("cut off the last newline", |lines| lines[4] = lines[4].trim_end().into(), Some(5)),
];

/// A trail can be verified from its documented format, without our code.
#[tokio::test]
async fn a_hash_is_over_the_one_before_and_the_line_without_its_own() {
    let (_folder, file) = trail(3).await;
    let mut prev = "0".repeat(64);
    for line in fs::read_to_string(&file).unwrap().lines() {
        let (body, hash) = line.trim_end_matches("\"}").split_once(",\"hash\":\"").unwrap();
        let digest = Sha256::digest(format!("{prev}{body}}}"));
        let expected = hex::encode(digest);
        assert_eq!(hash, expected);
        assert_eq!(serde_json::from_str::<Value>(line).unwrap()["prev"], prev);
        prev = expected;
    }
}

/// The line with another caller and a matching hash, as a forger would write it.
fn forged(before: &str, line: &str) -> String {
    let honest = chain::Link::read(before.trim_end().as_bytes()).unwrap();
    let changed = line.replace("\"caller\":\"ann\"", "\"caller\":\"eve\"");
    let body = format!("{}}}", changed.split_once(",\"hash\"").unwrap().0);
    let hash = chain::Hash::of(honest.stated, &[body.as_bytes()]);
    let hash = hash.as_str();
    format!("{},\"hash\":\"{hash}\"}}\n", &body[..body.len() - 1])
}

#[tokio::test]
async fn tampering_is_found_and_its_line_named_and_the_trail_not_gone_on_with() {
    for (what, tamper, expected) in TAMPERINGS {
        let (_folder, file) = trail(5).await;
        let mut lines: Vec<_> = fs::read_to_string(&file).unwrap().split_inclusive('\n').map(Into::into).collect();
        tamper(&mut lines);
        fs::write(&file, lines.concat()).unwrap();
        let error = verify(&file).expect_err(what);
        assert_eq!(error.line(), *expected, "{what}: {error}");
        // Opening checks only the end: `verify` finds errors before the head's line.
        let at_the_end = expected.is_some_and(|line| line >= 5) || lines.len() < 5;
        match open(&file, Durability::Relaxed) {
            Err(refused) => {
                assert_eq!(refused.line(), *expected, "{what}: {refused}");
                assert!(refused.to_string().contains("sekisho audit verify"), "{refused}");
            }
            Ok(_) => assert!(!at_the_end, "{what} was not noticed when the trail was opened"),
        }
    }
}

#[tokio::test]
async fn a_head_that_does_not_fit_is_found() {
    let (_folder, file) = trail(2).await;
    let head = head_path(&file);
    let kept = fs::read_to_string(&head).unwrap();
    fs::write(&head, kept.replace("\"lines\":2", "\"lines\":1")).unwrap();
    verify(&file).unwrap_err();
    assert!(matches!(open(&file, Durability::Relaxed), Err(AuditError::Refused { .. })));
    fs::write(&head, kept).unwrap();
    verify(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert!(matches!(open(&file, Durability::Relaxed), Err(AuditError::Refused { .. })), "the whole trail is gone");
}

/// As after a restore of only the trail.
#[tokio::test]
async fn a_trail_without_its_head_goes_on_and_says_so() {
    for damaged in [None, Some("{")] {
        let (_folder, file) = trail(2).await;
        match damaged {
            None => fs::remove_file(head_path(&file)).unwrap(),
            Some(text) => fs::write(head_path(&file), text).unwrap(),
        }
        assert!(matches!(verify(&file), Err(AuditError::NoHead { .. })), "nobody knows where the trail ended");
        let audit = open(&file, Durability::Relaxed).unwrap();
        let _ = write(audit.reserve().unwrap(), "more");
        audit.close().await;
        assert_eq!(verify(&file).unwrap(), Verified { lines: 4, segments: 1, ..Verified::default() });
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.lines().nth(2).unwrap().contains(r#""event":"head_missing""#), "{text}");
    }
}

#[tokio::test]
async fn what_a_crash_leaves_behind_is_mended() {
    let (_folder, file) = trail(2).await;
    let early_head = fs::read(head_path(&file)).unwrap();
    let audit = open(&file, Durability::Relaxed).unwrap();
    let _ = write(audit.reserve().unwrap(), "written, but the head is not");
    audit.close().await;
    fs::write(head_path(&file), early_head).unwrap();
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{whole}{{\"seq\":4,\"ti")).unwrap();
    assert_eq!(
        verify(&file).unwrap(),
        Verified { lines: 3, segments: 1, lines_beyond_head: 1, unfinished_bytes: 12, ..Verified::default() }
    );

    let audit = open(&file, Durability::Relaxed).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), whole);
    let _ = write(audit.reserve().unwrap(), "after");
    audit.close().await;
    assert_eq!(verify(&file).unwrap(), Verified { lines: 4, segments: 1, ..Verified::default() });
}

#[tokio::test]
async fn a_trail_has_one_writer() {
    let (_folder, file) = trail(1).await;
    let first = open(&file, Durability::Relaxed).unwrap();
    assert!(matches!(open(&file, Durability::Relaxed), Err(AuditError::InUse { .. })));
    first.close().await;
    open(&file, Durability::Relaxed).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_lines_of_eight_threads_are_all_there_in_one_chain() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = Audit::open(file.clone(), &config(20_000), Arc::default()).unwrap();
    thread::scope(|scope| {
        for giver in 0..8 {
            let audit = &audit;
            scope.spawn(move || {
                for n in 0..1_250 {
                    let _ = write(audit.reserve().unwrap(), &format!("{giver}_{n}"));
                }
            });
        }
    });
    audit.close().await;
    assert_eq!(verify(&file).unwrap().lines, 10_000);
    let text = fs::read_to_string(&file).unwrap();
    for giver in 0..8 {
        let of_one = text.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["tool"].as_str().unwrap().strip_prefix(&format!("{giver}_")).map(str::to_owned)
        });
        assert!(of_one.eq((0..1_250).map(|n| n.to_string())), "the lines of thread {giver}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn hostile_strings_stay_one_line_of_bounded_length(tool in ".*", user in any::<Vec<char>>(), long in 0..3_usize) {
        let mut call = call(&tool);
        call.origin.claimed_user = Some(user.into_iter().collect::<String>() + &"\u{1}\n".repeat(long * 1_000));
        call.caller = Arc::new(Caller::new("\"\n\\\u{2028}", &"\0".repeat(5_000), vec![]));
        let mut text = Vec::new();
        let mut chain = Chain::EMPTY;
        chain.append(&entry(&call), &mut text).unwrap();
        prop_assert_eq!(text.iter().filter(|byte| **byte < b' ').count(), 1);
        prop_assert!(text.len() < chain::MAX_LINE);
        prop_assert_eq!(chain.bytes, text.len() as u64);
        let mut reader = Chain::EMPTY;
        reader.follow(&text[..text.len() - 1]).unwrap();
        prop_assert_eq!(reader, chain);
    }

    #[test]
    fn any_changed_byte_is_found(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut text = Vec::new();
        let mut chain = Chain::EMPTY;
        let calls = [call("a"), call("b")];
        calls.iter().for_each(|call| chain.append(&entry(call), &mut text).unwrap());
        let at = at.index(text.len() - 1);
        text[at] ^= 1_u8 << bit;
        let mut reader = Chain::EMPTY;
        let read = text[..text.len() - 1].split(|byte| *byte == b'\n').try_for_each(|line| reader.follow(line));
        prop_assert!(read.is_err() || reader != chain);
    }
}
