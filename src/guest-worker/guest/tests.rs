use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use bytes::Bytes;

use super::*;
use crate::host_call::ToolLink;
use sekisho_core::slack::slack;
use sekisho_guest_protocol::{GuestFile, ToolReply};
use sekisho_guest_system::engine::{InstancePool, can_scan_pages, engine};
use sekisho_guest_system::files::{Files, Quota, ROOT};
use sekisho_guest_system::wasi::{Limits, Sleeper, Start};

const MEMORY_BYTES: u64 = 2 << 20;

/// Frames that a guest sends, and their addresses in its memory.
const JOB: (u32, &str) = (1024, r#"{"v":1,"op":"job"}"#);
const DONE: (u32, &str) = (1280, r#"{"v":1,"op":"done","end":{"kind":"exited","code":0},"result":"2"}"#);
const OUT_OF_MEMORY: (u32, &str) =
    (1536, r#"{"v":1,"op":"done","end":{"kind":"exception","type":"_ArrayMemoryError","message":"","traceback":""}}"#);
const CALL: (u32, &str) = (2304, r#"{"v":1,"op":"call","tool":"t"}"#);
const WRONG_VALUE: (u32, &str) =
    (1792, r#"{"v":1,"op":"done","end":{"kind":"exception","type":"ValueError","message":"","traceback":""}}"#);

/// Advances the engine's epoch, like the worker's ticker, until it is dropped.
pub(super) struct Ticker(Arc<AtomicBool>);

impl Ticker {
    pub(super) fn new(engine: &Engine) -> Self {
        let (done, engine) = (Arc::new(AtomicBool::new(false)), engine.clone());
        let stop = Arc::clone(&done);
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
                engine.increment_epoch();
            }
        });
        Self(done)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn program() -> Program {
    let mut files = Files::new(Quota { bytes: 64 << 10, nodes: 16 });
    files.place_folder("/output", false).unwrap();
    files.place_file("/input/a", Bytes::from_static(b"hello"), true).unwrap();
    let start = Start { folders: vec![("/".into(), ROOT)], ..Start::default() };
    Program {
        wasi: Wasi::new(files, start, Limits { stream_bytes: 64, max_open_files: 4, random_bytes: 64 }).unwrap(),
        host_call: HostCall::new("1+1".to_owned(), 64, 64, 3),
        wall_time: Duration::from_millis(200),
        total_time: Duration::from_millis(200),
        waited: Arc::default(),
        memory_bytes: MEMORY_BYTES,
        output_bytes: 4096,
        session: None,
    }
}

fn data((at, text): (u32, &str)) -> String {
    format!("(data (i32.const {at}) {text:?})")
}

/// Sends a frame through `host.call`.
fn send((at, text): (u32, &str)) -> String {
    format!("(drop (call $call (i32.const {at}) (i32.const {}) (i32.const 512) (i32.const 516)))", text.len())
}

/// A reactor with this `turn`; addresses up to 512 are free, a reply is written to 4096.
async fn guest(turn: &str) -> (wasmtime::Result<Guest>, Ticker) {
    let engine = engine(InstancePool { instances: 2, memory_bytes: 8 << 20 }).unwrap();
    let ticker = Ticker::new(&engine);
    let frames = [JOB, DONE, OUT_OF_MEMORY, WRONG_VALUE, CALL].map(data).join(" ");
    let text = format!(
        r#"(module
            (import "host" "call" (func $call (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            {frames}
            (data (i32.const 2048) "\08\08\00\00\02\00\00\00hi")
            (func (export "host_alloc") (param i32) (result i32) (i32.const 4096))
            (func $deep (result i32) (i32.add (call $deep) (i32.const 1)))
            (func (export "turn") (param i32 i32) (result i32) {turn}))"#
    );
    let module = Module::new(&engine, wat::parse_str(text).unwrap()).unwrap();
    (Template::new(&engine, &module, Entry::Turn("pass".to_owned())).await.unwrap().guest().await, ticker)
}

/// Runs a reactor that does this after it received its program.
async fn run(turn: &str, program: Program) -> Outcome {
    let (guest, _ticker) = guest(&format!("{} {turn}", send(JOB))).await;
    guest.unwrap().run(program).await.outcome
}

#[tokio::test]
async fn a_run_ends_as_the_host_observed_it() {
    let (done, wrong, no_memory) = (send(DONE), send(WRONG_VALUE), send(OUT_OF_MEMORY));
    let grow = "(drop (memory.grow (i32.const 64)))";
    let exited = |code| End::Exited { code };
    let output = |limit: &str| End::Output(limit.to_owned());
    let cases = [
        ("(i32.const 0)".to_owned(), exited(0)),
        ("(i32.const 0x103)".to_owned(), exited(3)),
        ("(call $exit (i32.const 126)) (i32.const 0)".to_owned(), exited(126)),
        ("(call $exit (i32.const 300)) (i32.const 0)".to_owned(), End::Trap("300 is not a valid exit code".to_owned())),
        (format!("{done} (i32.const 1)"), exited(0)),
        ("(loop (br 0)) (i32.const 0)".to_owned(), End::Timeout),
        ("(call $random (i32.const 0) (i32.const 65))".to_owned(), output("random_bytes")),
        (format!("(loop {done} (br 0)) (i32.const 0)"), output("host_calls")),
        // Refused memory ends a run only if the run failed because of it.
        (format!("{grow} (i32.const 1)"), End::Memory),
        (format!("{grow} {no_memory} (i32.const 1)"), End::Memory),
        (format!("{grow} unreachable"), End::Memory),
        (format!("{grow} {done} (i32.const 0)"), exited(0)),
    ];
    for (turn, end) in cases {
        assert_eq!(run(&turn, program()).await.end, end, "{turn}");
    }
    for turn in ["unreachable".to_owned(), format!("{grow} (call $deep)"), "(i32.load (i32.const -1))".to_owned()] {
        let end = run(&turn, program()).await.end;
        assert!(matches!(end, End::Trap(_)), "{turn}: {end:?}");
    }
    for turn in [format!("{grow} {wrong} (i32.const 1)"), format!("{no_memory} (i32.const 1)")] {
        let end = run(&turn, program()).await.end;
        assert!(matches!(end, End::Exception { .. }), "{turn}: {end:?}");
    }
}

#[tokio::test]
async fn a_program_has_all_its_time_however_long_the_instance_waited() {
    let (guest, _ticker) = guest(&format!("{} (i32.const 0)", send(JOB))).await;
    let guest = guest.unwrap();
    tokio::time::sleep(program().wall_time * 2).await;
    let outcome = guest.run(program()).await.outcome;
    assert_eq!(outcome.end, End::Exited { code: 0 });
    assert!(outcome.usage.wall_time < program().wall_time, "{:?}", outcome.usage);
}

#[tokio::test]
async fn an_interpreter_that_requests_no_program_is_not_used() {
    for turn in ["(i32.const 0)", "unreachable", "(call $exit (i32.const 0)) (i32.const 0)"] {
        let error = guest(turn).await.0.unwrap_err().to_string();
        assert!(error.contains("did not request"), "{error}");
    }
}

#[tokio::test]
async fn a_limit_below_the_interpreters_own_memory_is_reported_as_such() {
    let program = Program { memory_bytes: 1 << 10, ..program() };
    assert_eq!(run("(i32.const 0)", program).await.end, End::Memory);
}

#[tokio::test]
async fn an_endless_loop_is_stopped_in_time_and_yields_to_others() {
    let begun = Instant::now();
    let other = tokio::spawn(async move {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        begun.elapsed()
    });
    let outcome = run("(loop (br 0)) (i32.const 0)", program()).await;
    assert_eq!(outcome.end, End::Timeout);
    assert!(outcome.usage.wall_time < slack(Duration::from_millis(700)), "{:?}", outcome.usage);
    assert!(outcome.usage.cpu_time > Duration::from_millis(50), "{:?}", outcome.usage);
    let waited = other.await.unwrap();
    assert!(waited < outcome.usage.wall_time + slack(Duration::from_secs(1)), "{waited:?}");
}

#[tokio::test]
async fn a_session_goes_on_only_after_a_turn_that_has_reported_its_end() {
    for (turn, code, goes_on) in [
        (format!("{} (i32.const 0)", send(DONE)), 0, true),
        ("(i32.const 0)".to_owned(), 0, false),
        ("(i32.const 1)".to_owned(), 1, false),
        (format!("{} unreachable", send(DONE)), 0, false),
    ] {
        let (guest, _ticker) = guest(&format!("{} {turn}", send(JOB))).await;
        let Ended { outcome, left } = guest.unwrap().run(Program { session: Some(7), ..program() }).await;
        assert_eq!(matches!(left, Remains::Session(guest) if guest.id == 7), goes_on, "{turn}: {outcome:?}");
        assert!(outcome.end == End::Exited { code } || turn.contains("unreachable"), "{outcome:?}");
    }
}

/// A program that calls a tool, which takes longer than the program's own time; `total_time` is for both.
async fn calling(total_time: Duration) -> End {
    #[expect(clippy::disallowed_methods, reason = "a test sends few, and ends")]
    let (gateway, _asked) = tokio::sync::mpsc::unbounded_channel();
    let sleeper = Sleeper { job: 1, gateway, may_continue: Arc::default() };
    let link = ToolLink { sleeper, inbox: Arc::default(), waited: Arc::default(), recorder: Arc::default() };
    let host_call = program().host_call.with_tools(link.clone(), 1);
    let program = Program { host_call, total_time, waited: Arc::clone(&link.waited), ..program() };
    let later = program.wall_time * 3;
    let answering = async {
        tokio::time::sleep(later).await;
        link.inbox.deliver(ToolReply { number: 0, is_ok: true, json: b"1".to_vec() });
        link.sleeper.may_continue.notify_one();
    };
    let turn = format!("{} {} (i32.const 0)", send(CALL), send(DONE));
    let (outcome, ()) = tokio::join!(run(&turn, program), answering);
    outcome.end
}

#[tokio::test]
async fn waiting_for_a_tool_is_not_counted_as_the_programs_own_time() {
    assert_eq!(calling(slack(Duration::from_secs(10))).await, End::Exited { code: 0 });
    assert_eq!(calling(program().wall_time * 2).await, End::Timeout);
}

#[tokio::test]
async fn addresses_outside_the_memory_fail_the_call() {
    for call in [
        "(call $call (i32.const -1) (i32.const 65) (i32.const 512) (i32.const 516))",
        "(call $call (i32.const 1024) (i32.const 65) (i32.const -2) (i32.const 516))",
        "(call $call (i32.const 1024) (i32.const 65) (i32.const 512) (i32.const 65534))",
    ] {
        let outcome = run(call, program()).await;
        assert_eq!(outcome.end, End::Exited { code: -2 & STATUS_BITS }, "{call}");
    }
}

#[tokio::test]
async fn the_output_of_a_run_is_returned() {
    let mut program = program();
    let file = program.wasi.files_mut().create_file(ROOT, "output/b").unwrap();
    program.wasi.files_mut().write(file, 0, b"left").unwrap();
    program.wasi.files_mut().create_folder(ROOT, "output/a").unwrap();
    program.wasi.files_mut().create_file(ROOT, "output/a/c").unwrap();
    let print = "(drop (call $write (i32.const 1) (i32.const 2048) (i32.const 1) (i32.const 512)))";
    let outcome = run(&format!("{print} (i32.const 0)"), program).await;
    assert_eq!((&outcome.stdout.bytes[..], outcome.stdout.total), (&b"hi"[..], 2));
    let files = [("a/c", &b""[..]), ("b", b"left")]
        .map(|(path, content)| GuestFile { path: path.to_owned(), content: content.to_vec() });
    assert_eq!(outcome.files, files);
    assert_eq!(outcome.usage.peak_memory_bytes, 65_536);
}

#[tokio::test]
async fn a_hole_in_an_output_file_is_not_filled() {
    let mut program = program();
    let file = program.wasi.files_mut().create_file(ROOT, "output/x").unwrap();
    program.wasi.files_mut().resize(file, 1 << 40).unwrap();
    assert_eq!(run("(i32.const 0)", program).await.end, End::Output("file_bytes".to_owned()));
}

/// Not left to the pool, which misses pages that are not in memory at that moment.
#[tokio::test]
async fn all_writes_are_reset_before_the_pool_gets_the_memory_back() {
    if !can_scan_pages() {
        return;
    }
    let engine = engine(InstancePool { instances: 2, memory_bytes: 8 << 20 }).unwrap();
    let text = format!(r#"(module (memory (export "memory") 64 128) {})"#, data((70_000, "as it was")));
    let module = Module::new(&engine, wat::parse_str(text).unwrap()).unwrap();
    let template = Template::new(&engine, &module, Entry::Start).await.unwrap();
    let pristine = Arc::clone(&template.pristine);
    let mut store = Store::new(&engine, State::default());
    let instance = template.linked.instantiate_async(&mut store).await.unwrap();
    let memory = memory_of(&instance, &mut store).unwrap();
    let new = memory.data(&store).to_vec();
    assert_eq!(&new[70_000..70_009], b"as it was");
    memory.grow(&mut store, 64).unwrap();
    // A few pages, many, and more than are kept: in the data, beside it, and in grown memory.
    for step in [1 << 20, 40 << 10, 4 << 10] {
        for at in (0..8 << 20).step_by(step) {
            memory.data_mut(&mut store)[at + 368..][..9].copy_from_slice(b"a secret!");
        }
        pristine.restore(memory.data_mut(&mut store));
        let (known, grown) = memory.data(&store).split_at(new.len());
        assert!(known == new && grown.iter().all(|byte| *byte == 0), "each {step} bytes");
    }
}
