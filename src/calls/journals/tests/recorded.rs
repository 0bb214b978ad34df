//! Runs that are recorded when they end, and played again from their files.

use super::*;
use sekisho_config::RecordingConfig;
use sekisho_core::error::ErrorCode;
use sekisho_core::run_file::{RunEnd as FileEnd, RunFile};

fn recording(fixture: &Fixture, max_run_bytes: usize) -> Arc<Journals> {
    let recording = RecordingConfig { runs: true, max_run_bytes, ..RecordingConfig::default() };
    let config = Config { recording, ..fixture.config.clone() };
    Arc::new(Journals::new(&config, fixture.store.program_runs()))
}

/// Two requests, with readings before, between and after them. `written`: whether a part is in the store before the end.
async fn record(journals: &Arc<Journals>, call: &CallContext, written: bool) {
    let journal = journals.begin(call, &arguments(1), Some(vec![7])).unwrap();
    assert_eq!(journal.find(0, &question(0), false, (vec![Reading::Real(5)], false)), NEW);
    journal.answer(0, true, "1");
    if written {
        journal.write().await.unwrap();
    }
    let readings = vec![Reading::Random(vec![1, 2]), Reading::Waited(Some(0))];
    assert_eq!(journal.find(1, &question(1), true, (readings, false)), NEW);
    journal.answer(1, false, "{}");
    let end = FileEnd { reason: "exited".to_owned(), result_sha256: Some("ab".to_owned()) };
    journal.record(call, "p", vec![Reading::Elapsed(9)], end).await;
    journal.end(RunEnd::Ended).await;
}

async fn exported(journals: &Journals, call: &CallContext) -> Result<RunFile, CallError> {
    let text = journals.recordings.get(&call.caller, &call.id.to_string()).await?;
    Ok(RunFile::parse(&text).unwrap())
}

#[tokio::test]
async fn a_run_is_played_again_with_all_that_it_read_and_makes_no_other_request() {
    let fixture = Fixture::new().await;
    let journals = recording(&fixture, 1 << 20);
    for written in [false, true] {
        let first = call();
        record(&journals, &first, written).await;
        let file = exported(&journals, &first).await.unwrap();
        let of_file = Journals::call_of_file(&file).unwrap();
        assert_eq!((&of_file.arguments, &*of_file.context.tool), (&arguments(1), "python_executor"));
        let (journal, past) = fixture.journals.replay(&call(), &of_file.arguments, &file).unwrap();
        let readings = [Reading::Real(5), Reading::Random(vec![1, 2]), Reading::Waited(Some(0)), Reading::Elapsed(9)];
        assert_eq!((past.readings, past.start.input), (readings.into(), vec![7]));
        assert_eq!(journal.replay().unwrap().expected.as_deref(), Some("ab"));
        assert_eq!(ask(&journal, 0, false), answered("1"));
        assert!(!journal.is_caught_up());
        let failed = Found::Answered(JournalAnswer { is_ok: false, json: "{}".to_owned() });
        assert_eq!(ask(&journal, 1, true), failed);
        assert!(journal.is_caught_up());
        assert_eq!(ask(&journal, 2, true), Found::Diverged, "no request is made, although it has done all");
        journal.write().await.unwrap();
        assert!(!journal.end(RunEnd::Ended).await);
    }
    assert_eq!(fixture.journals.list(&call()).await.unwrap(), [], "a run that is played again is not stored");
}

#[tokio::test]
async fn only_its_caller_reads_a_run_and_a_large_one_is_not_kept() {
    let fixture = Fixture::new().await;
    let journals = recording(&fixture, 1 << 20);
    let first = call();
    record(&journals, &first, true).await;
    let bob = CallContext { caller: Arc::new(Caller::new("bob", "acme", Vec::new())), ..call() };
    let other = journals.recordings.get(&bob.caller, &first.id.to_string()).await.unwrap_err();
    assert_eq!(other.code(), ErrorCode::NotFound);
    assert_eq!(journals.recordings.list(&bob.caller).await.unwrap(), []);
    assert_eq!(journals.recordings.list(&first.caller).await.unwrap().len(), 1);
    let sealed = journals.recordings.get_sealed(&first.caller, &first.id.to_string()).await.unwrap();
    assert!(journals.recordings.open(&first.caller, &sealed).is_ok());
    for (id, tenant) in [("bob", "acme"), ("ann", "other")] {
        let refused = journals.recordings.open(&Caller::new(id, tenant, Vec::new()), &sealed).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidRequest, "{id} of {tenant}");
    }
    let large = call();
    record(&recording(&fixture, 100), &large, false).await;
    assert_eq!(exported(&journals, &large).await.unwrap_err().code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn a_file_that_is_no_run_of_a_program_is_refused() {
    let fixture = Fixture::new().await;
    let journals = recording(&fixture, 1 << 20);
    let first = call();
    record(&journals, &first, false).await;
    let file = exported(&journals, &first).await.unwrap();
    let without_input = RunFile { lines: file.lines[1..].to_vec(), ..file.clone() };
    let twice = RunFile { lines: [&file.lines[..], &file.lines[1..]].concat(), ..file.clone() };
    for file in [without_input, twice] {
        let refused = fixture.journals.replay(&call(), &arguments(1), &file).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidRequest, "{refused}");
    }
}
