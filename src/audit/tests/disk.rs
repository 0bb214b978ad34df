//! A trail on a disk that refuses, and at its end.

use super::*;
use crate::faulty_disk::FaultyDisk;

pub(super) async fn until(condition: impl Fn() -> bool) {
    tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("it never came to be");
}

#[tokio::test]
async fn a_full_disk_refuses_calls_and_loses_no_line() {
    let (disk, readiness) = (FaultyDisk::default(), Arc::<Readiness>::default());
    let audit = disk.audit(Durability::Relaxed, 100, &readiness);
    disk.with(|plate| plate.full = true);
    let under_way = audit.reserve().unwrap();
    let _ = write(audit.reserve().unwrap(), "first");
    until(|| audit.reserve().is_err()).await;
    let refused = audit.reserve().unwrap_err();
    assert_eq!((refused.code(), refused.wait()), (ErrorCode::Overloaded, Some(Duration::from_secs(1))));
    assert!(readiness.degraded()["audit"].contains("refused"));
    let _ = write(under_way, "second");
    until(|| disk.with(|plate| plate.text.is_empty())).await;

    disk.with(|plate| plate.full = false);
    until(|| audit.reserve().is_ok()).await;
    assert!(readiness.degraded().is_empty());
    audit.close().await;
    let text = disk.with(|plate| String::from_utf8(plate.text.clone()).unwrap());
    let mut chain = Chain::EMPTY;
    text.lines().for_each(|line| chain.follow(line.as_bytes()).unwrap());
    assert_eq!(chain.lines, 2, "{text}");
}

#[tokio::test]
async fn a_strict_trail_answers_after_the_sync_and_not_at_all_when_the_disk_refuses() {
    let (disk, readiness) = (FaultyDisk::default(), Arc::default());
    let audit = disk.audit(Durability::Strict, 100, &readiness);
    write(audit.reserve().unwrap(), "kept").wait().await.unwrap();
    assert_eq!(disk.with(|plate| plate.syncs), 1);

    disk.with(|plate| plate.full = true);
    let error = write(audit.reserve().unwrap(), "lost?").wait().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Internal);
    disk.with(|plate| plate.full = false);
    audit.close().await;
    assert_eq!(disk.with(|plate| plate.text.iter().filter(|byte| **byte == b'\n').count()), 2);
}

#[tokio::test]
async fn a_disk_that_never_recovers_does_not_hold_up_the_end() {
    let disk = FaultyDisk::default();
    let audit = disk.audit(Durability::Relaxed, 100, &Arc::default());
    disk.with(|plate| plate.full = true);
    let _ = write(audit.reserve().unwrap(), "lost");
    audit.close().await;
    assert!(disk.with(|plate| plate.text.is_empty()), "no half line stays");
}

#[tokio::test]
async fn a_full_queue_refuses_and_unused_reservations_are_freed() {
    let disk = FaultyDisk::default();
    let audit = disk.audit(Durability::Relaxed, 2, &Arc::default());
    let (first, second) = (audit.reserve().unwrap(), audit.reserve().unwrap());
    assert_eq!(audit.reserve().unwrap_err().code(), ErrorCode::Overloaded);
    drop(first);
    let third = audit.reserve().unwrap();
    let _ = (write(second, "a"), write(third, "b"));
    until(|| audit.reserve().is_ok()).await;
    audit.close().await;
    assert_eq!(disk.with(|plate| plate.text.iter().filter(|byte| **byte == b'\n').count()), 2);
    assert_eq!(audit.reserve().unwrap_err().code(), ErrorCode::Overloaded, "a closed trail takes no more");
}

#[tokio::test]
async fn a_call_still_under_way_at_the_end_gets_its_line() {
    let disk = FaultyDisk::default();
    let audit = disk.audit(Durability::Relaxed, 10, &Arc::default());
    let slot = audit.reserve().unwrap();
    let closing = tokio::spawn({
        let audit = audit.clone();
        async move { audit.close().await }
    });
    until(|| audit.reserve().is_err()).await;
    let _ = write(slot, "late");
    closing.await.unwrap();
    assert!(disk.with(|plate| plate.text.ends_with(b"\n")));
}
