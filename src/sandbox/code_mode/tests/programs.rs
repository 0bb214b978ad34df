//! The digest of a program, and its input in the journal.

use super::*;
use crate::worker_handle::tests::job;
use sekisho_calls::journals::{decode, encode};
use sekisho_guest_protocol::{FunctionCall, GuestFile, Job, ModuleTask};

/// A policy that admits a program by its digest admits it only where nothing ran before it.
#[test]
fn a_program_in_a_session_has_the_digest_of_those_before_it_too() {
    let (pipeline, outer) = (Refusing::new(), outer());
    let digest_after = |earlier| {
        let pipeline = Arc::clone(&pipeline) as Arc<dyn ToolPipeline>;
        let run = ProgramRun { earlier, ..ProgramRun::without_journal(Some(pipeline), &outer) };
        let deadline = Deadline::after(Duration::from_secs(9));
        ProgramTools::new(run, &outer, "program", 9, deadline).unwrap().parent.program
    };
    let (alone, planted) = (digest_after(None), digest_of(None, "planted"));
    assert_eq!(alone, <[u8; 32]>::from(Sha256::digest("program")));
    let after = digest_after(Some(planted));
    assert!(after != alone && after != planted && after == digest_of(Some(planted), "program"));
}

#[test]
fn hostile_bytes_as_the_input_of_a_program() {
    let files = vec![GuestFile { path: "a/b.csv".to_owned(), content: vec![1, 2, 3] }];
    let (keys, code) = (keys_of(&outer()), digest_of(None, "program"));
    let input = encode(&ProgramInput { profile: "data".to_owned(), files, keys, code }).unwrap();
    sekisho_core::fuzz::feed(&[&input], |bytes| {
        let _ = decode::<ProgramInput>(bytes);
    });
}

/// A run goes on with the inputs with which it began.
#[test]
fn a_function_with_other_settings_packages_or_shared_modules_is_other_code() {
    let digest = |settings: &str, packages: &str, arguments: &str| digest_with(settings, packages, arguments, "{}");
    assert_eq!(digest("{}", "", "{}"), digest("{}", "", r#"{"x":1}"#));
    assert_ne!(digest("{}", "", "{}"), digest(r#"{"x":1}"#, "", "{}"));
    assert_ne!(digest("{}", "", "{}"), digest("{}", "other", "{}"));
    assert_ne!(digest("{}", "", "{}"), digest_with("{}", "", "{}", r#"{"_shared.py":""}"#));
    assert_eq!(digest_of_job(&job("code")), digest_of(None, "code"));
}

/// The digest of a job that calls a function of a module.
fn digest_with(settings: &str, packages: &str, arguments: &str, shared: &str) -> [u8; 32] {
    let module = ModuleTask::Call(FunctionCall {
        file: "weather.py".to_owned(),
        function: "now".to_owned(),
        arguments: arguments.to_owned(),
        settings: settings.to_owned(),
        shared: shared.to_owned(),
        needs: Vec::new(),
        converts: false,
    });
    digest_of_job(&Job { module: Some(module), packages: packages.into(), ..job("code") })
}
