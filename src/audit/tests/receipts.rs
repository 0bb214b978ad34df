//! Receipts of lines, and the keys by which they are signed.

use sekisho_core::slack::slack;

use super::disk::until;
use super::rotation::Running;
use super::*;
use crate::segments::{checkpoint_path, key_path};

/// A closed trail: four lines, another segment with two and its header.
async fn signed() -> Running {
    let running = Running::start(OnDamage::Refuse);
    for _ in 0..4 {
        running.line().await;
    }
    running.new_segment().await;
    running.line().await;
    running.line().await;
    running.audit.close().await;
    running
}

/// Of the keys that the trail has now.
fn verifier(file: &Path) -> ReceiptVerifier {
    ReceiptVerifier::new(public_keys(file).unwrap())
}

#[tokio::test]
async fn each_line_of_each_segment_has_a_receipt_that_needs_only_the_public_key() {
    let running = signed().await;
    let keys = public_keys(&running.file).unwrap();
    assert_eq!(keys, [keys[0].to_string().parse::<VerifierKey>().unwrap()]);
    let mut all = String::new();
    for line in 1..=7 {
        all.push_str(&receipt_of_line(&running.file, line).unwrap());
    }
    assert!(matches!(receipt_of_line(&running.file, 8), Err(NoReceipt::NotSigned)));
    let Running { file, folder, .. } = running;
    let mut in_trail = String::new();
    for (path, _) in crate::verify::files(&file).unwrap() {
        in_trail.push_str(&fs::read_to_string(path).unwrap());
    }
    drop(folder);
    let mut verifier = ReceiptVerifier::new(keys);
    let verified: String =
        receipts_in(&all).map(|receipt| verifier.verify(receipt).map(|found| found.line + "\n").unwrap()).collect();
    assert_eq!(verified, in_trail);
    assert!(verified.contains("\"policy_version\":\"p1\""));
}

#[tokio::test]
async fn the_receipt_of_a_call_is_found_by_its_id() {
    let running = signed().await;
    let text = fs::read_to_string(&running.file).unwrap();
    let line = text.lines().last().unwrap();
    let fields: Value = serde_json::from_str(line).unwrap();
    let receipt = receipt_of_call(&running.file, fields["call_id"].as_str().unwrap()).unwrap();
    assert_eq!(verifier(&running.file).verify(&receipt).unwrap().line, line);
    assert!(matches!(receipt_of_call(&running.file, "c-1"), Err(NoReceipt::NoLine)));
}

#[tokio::test]
async fn each_bit_of_a_receipt_that_is_changed_is_found() {
    let running = signed().await;
    let mut verifier = verifier(&running.file);
    for line in [1, 3, 7] {
        let receipt = receipt_of_line(&running.file, line).unwrap();
        assert!(verifier.verify(&receipt).is_ok());
        for (at, bit) in (0..receipt.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = receipt.clone().into_bytes();
            changed[at] ^= 1 << bit;
            let Ok(changed) = String::from_utf8(changed) else { continue };
            let is_valid = receipts_in(&changed).all(|receipt| verifier.verify(receipt).is_ok());
            assert!(!is_valid, "line {line}, byte {at}, bit {bit}: {changed}");
        }
        for longer in
            [format!("{receipt}\n"), format!("\n{receipt}"), format!("{receipt}x"), receipt.trim_end().to_owned()]
        {
            assert!(verifier.verify(&longer).is_err(), "{longer}");
        }
        let steering = receipt.replace("— sekisho", "— \u{1b}[2Jsekisho");
        assert!(matches!(verifier.verify(&steering), Err(InvalidReceipt::Form(_))), "its name is shown");
    }
}

#[tokio::test]
async fn ten_thousand_receipts_are_verified_in_seconds() {
    let running = signed().await;
    let few: String = (1..=4).map(|line| receipt_of_line(&running.file, line).unwrap()).collect();
    let many = few.repeat(2_500);
    let mut verifier = verifier(&running.file);
    let began = std::time::Instant::now();
    assert_eq!(receipts_in(&many).filter(|receipt| verifier.verify(receipt).is_ok()).count(), 10_000);
    // A second in a build for use; this one is not optimized.
    assert!(began.elapsed() < slack(Duration::from_secs(5)), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_new_key_signs_from_the_next_segment_on_and_the_old_one_stays_known() {
    let mut running = Running::start(OnDamage::Refuse);
    running.line().await;
    running.restart().await;
    running.line().await;
    let old = public_keys(&running.file).unwrap();
    // The writer has read the key then.
    until(|| receipt_of_line(&running.file, 2).is_ok()).await;
    let new = rotate_key(&running.file).unwrap();
    running.new_segment().await;
    running.line().await;
    running.audit.close().await;
    assert_eq!(public_keys(&running.file).unwrap(), [new.clone(), old[0].clone()]);
    assert_eq!(new.name(), old[0].name(), "it is the same trail");
    let mode = fs::metadata(key_path(&running.file)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (mut by_new, mut by_old) = (ReceiptVerifier::new(vec![new]), ReceiptVerifier::new(old));
    for (line, is_new) in [(1, false), (2, false), (3, true), (4, true)] {
        let receipt = receipt_of_line(&running.file, line).unwrap();
        assert_eq!((by_new.verify(&receipt).is_ok(), by_old.verify(&receipt).is_ok()), (is_new, !is_new), "{line}");
        assert!(verifier(&running.file).verify(&receipt).is_ok());
    }
}

/// Somebody who can write the files, and does not have the key, while no gateway runs.
#[tokio::test]
async fn a_history_that_is_written_anew_is_not_signed_and_has_no_receipts() {
    let mut running = Running::start(OnDamage::Refuse);
    running.line().await;
    running.line().await;
    running.audit.close().await;
    let receipt = receipt_of_line(&running.file, 1).unwrap();
    let mut chain = Chain::EMPTY;
    let mut text = Vec::new();
    for tool in ["another", "one"] {
        chain.append(&entry(&call(tool)), &mut text).unwrap();
    }
    fs::write(&running.file, &text).unwrap();
    fs::write(head_path(&running.file), serde_json::to_vec(&chain).unwrap()).unwrap();
    assert!(verify(&running.file).is_ok(), "the chain has no key");
    assert!(matches!(receipt_of_line(&running.file, 1), Err(NoReceipt::Changed { line: 1 })));
    // Its first line is another one, so that it is another trail: the receipt of the first one names that.
    let checkpoint = fs::read(checkpoint_path(&running.file, 1)).unwrap();
    running.restart().await;
    running.line().await;
    running.audit.close().await;
    assert_ne!(fs::read(checkpoint_path(&running.file, 1)).unwrap(), checkpoint);
    let origin = |receipt: &str| receipt.lines().find(|line| line.starts_with("sekisho/audit/")).unwrap().to_owned();
    assert_ne!(origin(&receipt_of_line(&running.file, 1).unwrap()), origin(&receipt));
}

#[tokio::test]
async fn a_segment_with_other_lines_than_were_signed_is_not_signed_again() {
    let mut running = Running::start(OnDamage::Refuse);
    for _ in 0..3 {
        running.line().await;
    }
    running.audit.close().await;
    let (text, checkpoint) = (fs::read(&running.file).unwrap(), fs::read(checkpoint_path(&running.file, 1)).unwrap());
    // As from a copy of the state directory after the first line, with the same key.
    let first = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut chain = Chain::EMPTY;
    chain.follow(&text[..first - 1]).unwrap();
    fs::write(&running.file, &text[..first]).unwrap();
    fs::write(head_path(&running.file), serde_json::to_vec(&chain).unwrap()).unwrap();
    running.restart().await;
    running.line().await;
    running.line().await;
    until(|| running.readiness.degraded().contains_key("audit_receipts")).await;
    assert!(!running.readiness.refuses_calls(), "calls go on");
    assert_eq!(fs::read(checkpoint_path(&running.file, 1)).unwrap(), checkpoint);
    running.new_segment().await;
    until(|| !running.readiness.degraded().contains_key("audit_receipts")).await;
    running.audit.close().await;
}
