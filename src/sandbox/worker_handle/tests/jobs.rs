//! Jobs of a worker: their results, and their ends when the worker exits or they are cancelled.

use tokio::time::Instant;

use super::*;

fn program(file: &str) -> Program {
    Program { file: file.into(), arguments: Vec::new() }
}

/// Waits for a condition in another process; fails when it does not occur.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn each_job_gets_its_own_answer() {
    let (worker, admission) = (worker().await, admission());
    assert_eq!(worker.missing_protections, ["seccomp"]);
    let (left, right) = tokio::join!(
        async { worker.run(job("left"), room(&admission).await, &SentFlag::default(), None).await.unwrap() },
        async { worker.run(job("right"), room(&admission).await, &SentFlag::default(), None).await.unwrap() },
    );
    assert_eq!((left.result.unwrap(), right.result.unwrap()), ("LEFT".into(), "RIGHT".into()));
    assert_eq!((worker.in_flight(), admission.in_use()), (Some(0), (0, 0)));
}

#[tokio::test]
async fn a_job_too_long_for_a_frame_fails_alone() {
    let (worker, admission) = (worker().await, admission());
    let (long, sent) = (job(&"x".repeat(256 << 20)), SentFlag::default());
    let (long, short) =
        tokio::join!(async { worker.run(long, room(&admission).await, &sent, None).await.unwrap() }, async {
            worker.run(job("short"), room(&admission).await, &SentFlag::default(), None).await.unwrap()
        },);
    assert_eq!(long.end, End::Output("frame_bytes".to_owned()));
    assert_eq!(short.result.unwrap(), "SHORT");
    let next = worker.run(job("next"), room(&admission).await, &SentFlag::default(), None).await.unwrap();
    assert_eq!(next.result.unwrap(), "NEXT", "the worker continues");
    assert_eq!((worker.in_flight(), admission.in_use()), (Some(0), (0, 0)));
}

#[tokio::test]
async fn a_worker_has_no_environment() {
    let worker = worker().await;
    let seen = worker.run(job("environment"), room(&admission()).await, &SentFlag::default(), None).await.unwrap();
    assert_eq!(seen.result.unwrap(), "");
}

#[tokio::test]
async fn a_worker_that_exits_fails_its_jobs_and_frees_their_capacity() {
    let (worker, admission) = (worker().await, admission());
    let (hanging, dying) = tokio::join!(
        async { worker.run(job("hang"), room(&admission).await, &SentFlag::default(), None).await },
        async { worker.run(job("die"), room(&admission).await, &SentFlag::default(), None).await },
    );
    for end in [hanging, dying] {
        assert_eq!(end.unwrap_err().code(), ErrorCode::SandboxTrap);
    }
    timeout(Duration::from_secs(10), worker.gone()).await.expect("it is gone");
    assert_eq!((worker.in_flight(), admission.in_use()), (None, (0, 0)));
    let late = worker.run(job("late"), room(&admission).await, &SentFlag::default(), None).await;
    assert_eq!(late.unwrap_err().code(), ErrorCode::SandboxTrap, "no further job is taken");
}

#[tokio::test]
async fn a_cancelled_job_keeps_its_capacity_until_it_has_stopped() {
    let (worker, admission) = (worker().await, admission());
    let ticket = room(&admission).await;
    let waited = timeout(Duration::from_millis(50), worker.run(job("hang"), ticket, &SentFlag::default(), None)).await;
    assert!(waited.is_err());
    assert_eq!(admission.in_use(), (1, 0), "the worker has not confirmed yet that it stopped");
    eventually("the capacity of a cancelled job is free", || admission.in_use() == (0, 0)).await;
    let next = worker.run(job("next"), room(&admission).await, &SentFlag::default(), None).await.unwrap();
    assert_eq!(next.result.unwrap(), "NEXT", "the worker continues");
}

#[tokio::test]
async fn a_worker_that_does_not_stop_a_cancelled_job_is_ended() {
    let (worker, admission) = (worker().await, admission());
    let ticket = room(&admission).await;
    assert!(
        timeout(Duration::from_millis(50), worker.run(job("hang, deaf"), ticket, &SentFlag::default(), None))
            .await
            .is_err()
    );
    timeout(Duration::from_secs(10), worker.gone()).await.expect("it is ended");
    assert_eq!(admission.in_use(), (0, 0));
}

#[tokio::test]
async fn a_stopped_worker_is_gone_with_its_jobs() {
    let (worker, admission) = (worker().await, admission());
    let ticket = room(&admission).await;
    let sent = SentFlag::default();
    let (end, ()) = tokio::join!(worker.run(job("hang"), ticket, &sent, None), async { worker.stop() });
    assert_eq!(end.unwrap_err().code(), ErrorCode::SandboxTrap);
    timeout(Duration::from_secs(10), worker.gone()).await.expect("it is gone");
}

#[tokio::test]
async fn a_program_that_does_not_exist_or_exits_at_once_is_named() {
    let arguments = ["-c", "kill -9 $$"].map(OsString::from).to_vec();
    let killed = Program { file: "/bin/sh".into(), arguments };
    let cases = [
        (program("/no/such/program"), "/no/such/program", false),
        (program("/bin/true"), "before it was ready", false),
        (killed, "signal: 9", true),
    ];
    for (program, says, was_killed) in cases {
        let error = WorkerHandle::start(&program, &load()).await.unwrap_err();
        assert!(error.reason.contains(says) && error.was_killed == was_killed, "{error:?}");
    }
}

#[tokio::test]
async fn a_job_that_sleeps_gives_memory_back_and_goes_on_when_there_is_memory_again() {
    let (worker, admission) = (worker().await, admission());
    let deadline = Deadline::after(Duration::from_secs(10));
    let ticket = admission.enter(Owner::gateway(), 5, deadline).await.unwrap();
    let mut job = job("sleep");
    job.limits.memory_bytes = 4;
    let sent = SentFlag::default();
    let others = admission.enter(Owner::gateway(), 5, deadline).await.unwrap();
    let freed = async {
        // Before the job runs, all is taken: these three units are the job's.
        let of_job = admission.enter(Owner::gateway(), 3, deadline).await.unwrap();
        assert_eq!(worker.in_flight(), Some(1), "it waits for them");
        drop((others, of_job));
    };
    // In this order: the request is in the queue before the job begins.
    let (freed, run) = (Box::pin(freed), Box::pin(worker.run(job, ticket, &sent, None)));
    let ((), outcome) = tokio::join!(biased; freed, run);
    assert_eq!(outcome.unwrap().result.unwrap(), "AWAKE");
    assert_eq!((admission.in_use(), admission.load().memory_bytes), ((0, 0), 0));
}

#[tokio::test]
async fn a_worker_that_says_again_and_again_that_a_job_wants_to_wake_fills_no_queue() {
    let (jobs, admission) = (Jobs::new(), admission());
    let mut events = jobs.begin(1, room(&admission).await, 1).unwrap();
    (0..1_000).for_each(|_| jobs.wants_to_wake(1));
    assert_eq!(events.awake.len(), 1);
    assert_eq!(events.awake.recv().await, Some(()));
    let queued = (0..1_000).filter(|_| jobs.is_to_continue(1)).count();
    assert_eq!(queued, 1, "it is let go on once while it does not read");
    jobs.continues(1);
    assert!(jobs.is_to_continue(1) && !jobs.is_to_continue(2), "after each sleep");
}
