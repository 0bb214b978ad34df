//! The workers here are the substitute of the tests beside [`WorkerHandle`].

use std::collections::HashSet;
use std::time::Duration;

use super::*;
use crate::admission::Admission;
use crate::capacity::Capacity;
use crate::worker_handle::tests::{job, load, stand_in};
use sekisho_core::call::SentFlag;
use sekisho_core::caller::Owner;
use sekisho_core::error::ErrorCode;

struct Made {
    pool: Pool,
    admission: Admission,
    readiness: Arc<Readiness>,
}

fn made(workers: usize, program: Program) -> Made {
    let metrics = SandboxMetrics::for_tests();
    let readiness = Arc::new(Readiness::default());
    let room = Capacity { instances: 100, memory_bytes: 100, sleeping_bytes: 50, session_bytes: 0, max_queued: 0 };
    let admission = Admission::new(room, metrics.clone());
    let (component, readiness_of_pool) = (COMPONENT, Arc::clone(&readiness));
    let start =
        Start { program, load: load(), workers, component, is_counted: true, metrics, readiness: readiness_of_pool };
    Made { pool: Pool::new(start), admission, readiness }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

impl Made {
    async fn run(&self, code: &str) -> Result<String, CallError> {
        let worker = self.pool.worker(soon()).await?;
        let ticket = self.admission.enter(Owner::gateway(), 1, soon()).await?;
        Ok(worker.run(job(code), ticket, &SentFlag::default(), None).await?.result.unwrap())
    }

    fn ready(&self) -> usize {
        self.pool.shared.standing.borrow().ready.len()
    }

    async fn wait_for_workers(&self, workers: usize) {
        self.pool.worker(soon()).await.unwrap();
        let mut standing = self.pool.shared.standing.subscribe();
        let enough = standing.wait_for(|standing| standing.ready.len() == workers);
        tokio::time::timeout(Duration::from_secs(20), enough).await.expect("all workers start").unwrap();
    }
}

#[tokio::test]
async fn no_process_is_started_before_the_first_job() {
    let made = made(2, stand_in());
    assert!(!made.pool.shared.is_started.load(Ordering::Relaxed) && made.pool.shared.keepers.is_empty());
    assert_eq!(made.run("first").await.unwrap(), "FIRST");
    made.wait_for_workers(2).await;
    made.pool.close().await;
    assert_eq!(made.ready(), 0);
}

#[tokio::test]
async fn jobs_go_to_the_worker_with_the_fewest_jobs() {
    let made = made(2, stand_in());
    made.wait_for_workers(2).await;
    let hanging = async {
        let _ended = tokio::time::timeout(
            Duration::from_millis(300),
            futures_util::future::join(made.run("hang"), made.run("hang")),
        )
        .await;
    };
    let looking = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        made.pool.shared.standing.borrow().ready.iter().map(|worker| worker.in_flight()).collect::<Vec<_>>()
    };
    let ((), under_way) = tokio::join!(hanging, looking);
    assert_eq!(under_way, [Some(1), Some(1)]);
    made.pool.close().await;
}

#[tokio::test]
async fn idle_workers_take_turns() {
    let made = made(3, stand_in());
    made.wait_for_workers(3).await;
    let mut chosen = Vec::new();
    for _ in 0..9 {
        chosen.push(Arc::as_ptr(&made.pool.worker(soon()).await.unwrap()));
    }
    let first: HashSet<_> = chosen[..3].iter().collect();
    assert_eq!(first.len(), 3);
    assert_eq!((&chosen[..3], &chosen[..3]), (&chosen[3..6], &chosen[6..]));
    made.pool.close().await;
}

#[tokio::test]
async fn a_dead_worker_fails_its_own_jobs_and_another_takes_its_place() {
    let made = made(2, stand_in());
    made.wait_for_workers(2).await;
    for round in 0..3 {
        let (dead, alive) = tokio::join!(made.run("die"), made.run("alive"));
        assert_eq!(dead.unwrap_err().code(), ErrorCode::SandboxTrap);
        assert_eq!(alive.unwrap(), "ALIVE", "round {round}");
        made.wait_for_workers(2).await;
    }
    for component in PROCESS_SANDBOX {
        assert!(made.readiness.degraded().contains_key(component), "the substitute reports a missing protection");
    }
    made.pool.close().await;
    assert_eq!(made.admission.in_use(), (0, 0));
}

#[tokio::test]
async fn a_program_that_does_not_start_is_reported_and_retried() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker");
    let made = made(1, Program { file: file.clone(), ..stand_in() });
    let refused = made.run("early").await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::WarmingUp);
    assert!(refused.wait().is_some());
    assert!(made.readiness.degraded()[COMPONENT].contains("no worker can be started"));
    std::os::unix::fs::symlink(stand_in().file, file).unwrap();
    made.wait_until_restored().await;
    assert_eq!(made.run("late").await.unwrap(), "LATE");
    made.pool.close().await;
}

/// A worker killed while it started only causes a delay, and no call is refused.
#[tokio::test]
async fn a_start_that_fails_once_only_takes_longer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker");
    let made = made(1, Program { file: file.clone(), ..stand_in() });
    let mending = async {
        tokio::time::sleep(FIRST_PAUSE / 2).await;
        std::os::unix::fs::symlink(stand_in().file, file).unwrap();
    };
    let (answer, ()) = tokio::join!(made.run("late"), mending);
    assert_eq!(answer.unwrap(), "LATE");
    assert!(!made.readiness.degraded().contains_key(COMPONENT));
    made.pool.close().await;
}

impl Made {
    async fn wait_until_restored(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.readiness.degraded().contains_key(COMPONENT) {
            assert!(Instant::now() < deadline, "the pool does not retry");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

#[test]
fn pauses_grow_up_to_a_limit() {
    assert_eq!(pause_after(0), Duration::ZERO);
    assert_eq!(pause_after(1), FIRST_PAUSE);
    assert_eq!(pause_after(3), FIRST_PAUSE * 4);
    assert_eq!(pause_after(1_000), MAX_PAUSE);
}
