//! Against components that were compiled a moment ago, in this process.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc};

use super::*;
use sekisho_guest_protocol::{ComponentFolder, ComponentGrants, End, JobLimits};
use sekisho_guest_system::engine::{component_compiling_engine, fingerprint};
use sekisho_guest_system::wasi::Sleeper;
use sekisho_interpreters::compiled::CompiledFolder;

const TOOLS: &str = include_str!("../../../tests/components/tools.wat");
const COMMAND: &str = include_str!("../../../tests/components/command.wat");

/// Counts which of a method and an authority of so many bytes are refused.
const TEXTS_OF_REQUESTS: &str = r#"(component
    (import "wasi:http/types@0.2.3" (instance $types
        (export "fields" (type $fields (sub resource)))
        (export "outgoing-request" (type $request (sub resource)))
        (type $method' (variant (case "get") (case "head") (case "post") (case "put") (case "delete") (case "connect")
            (case "options") (case "trace") (case "patch") (case "other" string)))
        (export "method" (type $method (eq $method')))
        (export "[constructor]fields" (func (result (own $fields))))
        (export "[constructor]outgoing-request" (func (param "headers" (own $fields)) (result (own $request))))
        (export "[method]outgoing-request.set-method"
            (func (param "self" (borrow $request)) (param "method" $method) (result (result))))
        (export "[method]outgoing-request.set-authority"
            (func (param "self" (borrow $request)) (param "authority" (option string)) (result (result))))))
    (core module $libc (memory (export "memory") 1))
    (core instance $libc (instantiate $libc))
    (core func $fields (canon lower (func $types "[constructor]fields")))
    (core func $request (canon lower (func $types "[constructor]outgoing-request")))
    (core func $method (canon lower (func $types "[method]outgoing-request.set-method")
        (memory (core memory $libc "memory"))))
    (core func $authority (canon lower (func $types "[method]outgoing-request.set-authority")
        (memory (core memory $libc "memory"))))
    (core module $code
        (import "libc" "memory" (memory 1))
        (import "http" "fields" (func $fields (result i32)))
        (import "http" "request" (func $request (param i32) (result i32)))
        (import "http" "method" (func $method (param i32 i32 i32 i32) (result i32)))
        (import "http" "authority" (func $authority (param i32 i32 i32 i32) (result i32)))
        (func (export "refused") (param i32) (result i32) (local $at i32)
            (memory.fill (i32.const 0) (i32.const 97) (local.get 0))
            (local.set $at (call $request (call $fields)))
            (i32.add
                (call $method (local.get $at) (i32.const 9) (i32.const 0) (local.get 0))
                (call $authority (local.get $at) (i32.const 1) (i32.const 0) (local.get 0)))))
    (core instance $code (instantiate $code
        (with "libc" (instance $libc))
        (with "http" (instance (export "fields" (func $fields)) (export "request" (func $request))
            (export "method" (func $method)) (export "authority" (func $authority))))))
    (func (export "refused") (param "bytes" u32) (result u32) (canon lift (core func $code "refused"))))"#;

/// The length of a value of the configuration, by an earlier draft of the interface.
const CONFIG: &str = r#"(component
    (import "wasi:config/store@0.2.0-draft" (instance $store
        (type $error' (variant (case "upstream" string) (case "io" string)))
        (export "error" (type $error (eq $error')))
        (export "get" (func (param "key" string) (result (result (option string) (error $error)))))))
    (core module $libc (memory (export "memory") 1) (data (i32.const 0) "units")
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 128)))
    (core instance $libc (instantiate $libc))
    (core func $get (canon lower (func $store "get")
        (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
    (core module $code
        (import "libc" "memory" (memory 1))
        (import "config" "get" (func $get (param i32 i32 i32)))
        (func (export "length") (result i32)
            (call $get (i32.const 0) (i32.const 5) (i32.const 64))
            (if (i32.or (i32.load8_u (i32.const 64)) (i32.eqz (i32.load8_u (i32.const 68))))
                (then (return (i32.const 0))))
            (i32.load (i32.const 76))))
    (core instance $code (instantiate $code
        (with "libc" (instance $libc))
        (with "config" (instance (export "get" (func $get))))))
    (func (export "length") (result u32) (canon lift (core func $code "length"))))"#;

/// The same function with another type.
const CONFIG_WITHOUT_RESULT: &str = r#"(component
    (import "wasi:config/store@0.2.0-draft" (instance $store (export "get-all" (func))))
    (core func $get (canon lower (func $store "get-all")))
    (core module $code (import "config" "get" (func $get)) (func (export "read") (call $get)))
    (core instance $code (instantiate $code (with "config" (instance (export "get" (func $get))))))
    (func (export "read") (canon lift (core func $code "read"))))"#;

#[tokio::test]
async fn a_draft_with_another_type_fails_its_call() {
    let running = Running::start(CONFIG_WITHOUT_RESULT, ModuleKind::Component, ComponentGrants::default()).await;
    for _ in 0..2 {
        let outcome = running.call(None, "read", json!({})).await;
        assert!(matches!(outcome.end, End::Trap(_)), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_draft_of_the_configuration_has_the_same_values() {
    for (config, length) in [(vec![("units".to_owned(), "metric".to_owned())], 6), (Vec::new(), 0)] {
        let grants = ComponentGrants { config, ..ComponentGrants::default() };
        let running = Running::start(CONFIG, ModuleKind::Component, grants).await;
        assert_eq!(running.result("length", json!({})).await, json!({"value": length}));
    }
}

/// One component, loaded.
struct Running {
    components: Components,
    _ticker: Ticker,
    _folder: TempDir,
}

impl Running {
    async fn start(text: &str, kind: ModuleKind, grants: ComponentGrants) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compiling = component_compiling_engine().unwrap();
        let wasm = wat::parse_str(text).unwrap();
        let code = match kind {
            ModuleKind::Component => compiling.precompile_component(&wasm).unwrap(),
            ModuleKind::Command => compiling.precompile_module(&wasm).unwrap(),
        };
        let compiled = CompiledFolder::open(&folder.path().join("compiled"), &fingerprint(&compiling)).unwrap();
        let compiled = compiled.store("sum", &code).unwrap();
        let engine = component_engine(4).unwrap();
        let ticker = Ticker::start(engine.clone()).unwrap();
        ticker.run(true);
        let load = ComponentLoad { id: "own".to_owned(), kind, compiled, grants };
        let load = ComponentsLoad { components: vec![load], instances: 4 };
        let components = Components::load(&engine, load).await.unwrap();
        Self { components, _ticker: ticker, _folder: folder }
    }

    async fn tools() -> Self {
        Self::start(TOOLS, ModuleKind::Component, ComponentGrants::default()).await
    }

    async fn call(&self, interface: Option<&str>, function: &str, arguments: Value) -> Outcome {
        let memory = 4 << 20;
        let limits = JobLimits {
            wall_time: Duration::from_millis(300),
            total_time: Duration::from_secs(20),
            memory_bytes: memory,
            stream_bytes: 64 << 10,
            result_bytes: 10_000,
            image_bytes: 0,
            file_bytes: 1 << 20,
            max_files: 100,
            max_open_files: 10,
            random_bytes: 1 << 20,
            host_calls: 1_000,
            tool_calls: 0,
            state_bytes: 0,
        };
        let export = Export { interface: interface.map(str::to_owned), function: function.to_owned() };
        let call =
            ComponentCall { id: 1, component: "own".to_owned(), export, arguments: arguments.to_string(), limits };
        #[expect(clippy::disallowed_methods, reason = "a test sends few, and ends")]
        let (gateway, _heard) = mpsc::unbounded_channel();
        let sleeper = Sleeper { job: 1, gateway, may_continue: Arc::new(Notify::new()) };
        let link = ToolLink { sleeper, inbox: Arc::default(), waited: Arc::default(), recorder: Arc::default() };
        self.components.begin(call, link).unwrap().await.outcome
    }

    async fn result(&self, function: &str, arguments: Value) -> Value {
        let outcome = self.call(None, function, arguments).await;
        let result = outcome.result.as_deref().unwrap_or_else(|| panic!("{function}: {outcome:?}"));
        serde_json::from_str(result).unwrap()
    }
}

#[tokio::test]
async fn functions_take_and_return_values_and_errors() {
    let running = Running::tools().await;
    for _ in 0..3 {
        let echoed = running.result("echo", json!({"the_text": "関所"})).await;
        assert_eq!(echoed, json!({"value": "関所"}), "each call has an instance of its own");
    }
    let invalid = running.result("echo", json!({"the_text": 7})).await;
    assert_eq!(invalid, json!({"invalid": {"path": "/the_text", "message": "it must be a text"}}));
    for (number, expected) in [(8, json!({"value": 4})), (7, json!({"error": "odd"}))] {
        let outcome = running.call(Some("my:tools/maths@0.1.0"), "half", json!({"number": number})).await;
        assert_eq!((outcome.end, outcome.result), (End::Exited { code: 0 }, Some(expected.to_string())));
        assert!(outcome.usage.peak_memory_bytes > 0 && outcome.usage.wall_time > Duration::ZERO);
    }
    assert_eq!(running.result("count-variables", json!({})).await, json!({"value": 0}), "nothing of this process");
    let outcome = running.call(None, "nowhere", json!({})).await;
    assert!(matches!(&outcome.end, End::Trap(reason) if reason.contains("no such function")), "{outcome:?}");
}

#[tokio::test]
async fn what_is_granted_is_there() {
    let environment = vec![("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())];
    let grants = ComponentGrants { environment, ..ComponentGrants::default() };
    let running = Running::start(TOOLS, ModuleKind::Component, grants).await;
    assert_eq!(running.result("count-variables", json!({})).await, json!({"value": 2}));
}

#[tokio::test]
async fn hostile_functions_are_stopped_and_the_next_call_is_fine() {
    let running = Running::tools().await;
    type Check = fn(&End) -> bool;
    let cases: [(&str, Value, Check); 6] = [
        ("spin", json!({}), |end| *end == End::Timeout),
        ("hoard", json!({}), |end| *end == End::Memory),
        ("deep", json!({"n": 1}), |end| matches!(end, End::Trap(reason) if reason.contains("stack"))),
        ("crash", json!({}), |end| matches!(end, End::Trap(reason) if reason.contains("unreachable"))),
        ("long", json!({"bytes": 20_000}), |end| *end == End::Output("result_bytes".to_owned())),
        ("outside", json!({}), |end| matches!(end, End::Trap(_))),
    ];
    for (function, arguments, is_expected) in cases {
        let outcome = running.call(None, function, arguments).await;
        assert!(is_expected(&outcome.end) && outcome.result.is_none(), "{function}: {outcome:?}");
        assert_eq!(running.result("echo", json!({"the_text": "fine"})).await["value"], "fine", "{function}");
    }
    assert_eq!(running.result("grow", json!({"pages": 1_000})).await, json!({"value": -1}), "it is told so");
    assert_eq!(running.result("grow", json!({"pages": 1})).await, json!({"value": 1}));
}

/// Returns a list of so many flags, all of which are set.
const LIST_OF_FLAGS: &str = r#"(component
    (type $flags' (flags "a" "b" "c" "d" "e" "f" "g" "h" "i" "j" "k" "l" "m" "n" "o" "p"))
    (export $flags "marks" (type $flags'))
    (core module $code
        (memory (export "memory") 2)
        (func (export "list") (param i32) (result i32)
            (memory.fill (i32.const 8) (i32.const 255) (i32.const 100000))
            (i32.store (i32.const 0) (i32.const 8))
            (i32.store (i32.const 4) (local.get 0))
            (i32.const 0)))
    (core instance $code (instantiate $code))
    (func (export "list") (param "length" u32) (result (list $flags))
        (canon lift (core func $code "list") (memory (core memory $code "memory")))))"#;

#[tokio::test]
async fn a_list_whose_values_take_too_much_memory_is_too_long() {
    let running = Running::start(LIST_OF_FLAGS, ModuleKind::Component, ComponentGrants::default()).await;
    let listed = running.result("list", json!({"length": 100})).await;
    assert_eq!((listed["value"].as_array().unwrap().len(), &listed["value"][99][15]), (100, &json!("p")));
    for (length, limit) in [(1_000, "result_bytes"), (10_000, "copied_bytes")] {
        let outcome = running.call(None, "list", json!({"length": length})).await;
        assert_eq!(outcome.end, End::Output(limit.to_owned()), "{length}");
    }
}

/// Hands 200,000 headers over while it is instantiated: 48 bytes each as values.
const COPIES_AT_ITS_START: &str = r#"(component
    (import "wasi:http/types@0.2.3" (instance $types
        (export "fields" (type $fields (sub resource)))
        (type $error' (variant (case "invalid-syntax") (case "forbidden") (case "immutable")))
        (export "header-error" (type $error (eq $error')))
        (export "[static]fields.from-list" (func (param "entries" (list (tuple string (list u8))))
            (result (result (own $fields) (error $error)))))))
    (core module $libc (memory (export "memory") 50))
    (core instance $libc (instantiate $libc))
    (core func $from (canon lower (func $types "[static]fields.from-list") (memory (core memory $libc "memory"))))
    (core module $code
        (import "libc" "memory" (memory 50))
        (import "http" "from" (func $from (param i32 i32 i32)))
        (func $begin (call $from (i32.const 16) (i32.const 200000) (i32.const 0)))
        (start $begin)
        (func (export "run") (result i32) (i32.const 1)))
    (core instance $code (instantiate $code
        (with "libc" (instance $libc))
        (with "http" (instance (export "from" (func $from))))))
    (func (export "run") (result u32) (canon lift (core func $code "run"))))"#;

#[tokio::test]
async fn what_is_copied_while_a_component_is_instantiated_is_bounded_too() {
    let running = Running::start(COPIES_AT_ITS_START, ModuleKind::Component, ComponentGrants::default()).await;
    let outcome = running.call(None, "run", json!({})).await;
    assert_eq!(outcome.end, End::Output("copied_bytes".to_owned()), "{outcome:?}");
}

#[tokio::test]
async fn texts_of_requests_are_bounded() {
    let running = Running::start(TEXTS_OF_REQUESTS, ModuleKind::Component, ComponentGrants::default()).await;
    for (bytes, refused) in [(1_000, 0), (2_000, 2)] {
        assert_eq!(running.result("refused", json!({"bytes": bytes})).await, json!({"value": refused}), "{bytes}");
    }
}

#[tokio::test]
async fn a_command_reads_its_arguments_and_prints_its_result() {
    let running = Running::start(COMMAND, ModuleKind::Command, ComponentGrants::default()).await;
    let outcome = running.call(None, "run", json!({"city": "Bern"})).await;
    assert_eq!((outcome.end, &*outcome.stdout.bytes), (End::Exited { code: 0 }, &br#"{"city":"Bern"}"#[..]));
    let outcome = running.call(None, "run", json!({})).await;
    assert_eq!((outcome.end, &*outcome.stderr.bytes), (End::Exited { code: 3 }, &b"no arguments\n"[..]));
}

#[tokio::test]
async fn one_that_cannot_be_loaded_fails_its_own_calls() {
    let folders = vec![ComponentFolder { guest_path: "/data".to_owned(), host_path: "/nowhere".into() }];
    let grants = ComponentGrants { folders, ..ComponentGrants::default() };
    let running = Running::start(TOOLS, ModuleKind::Component, grants).await;
    let [(id, reason)] = &running.components.unloadable()[..] else { panic!("it was loaded") };
    assert!(id == "own" && reason.contains("/nowhere"), "{id}: {reason}");
}
