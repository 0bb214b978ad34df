//! Reactors, whose profiles are snapshots.

use super::*;
use sekisho_guest_protocol::PreparedProfile;
use sekisho_interpreters::python;

/// A reactor that counts the bytes of source it was given. Source that begins with `!` fails.
const REACTOR: &str = r#"(module
    (import "host" "call" (func (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 16)
    (global $seen (mut i32) (i32.const 0))
    (func (export "host_alloc") (param i32) (result i32) (i32.const 1024))
    (func (export "turn") (param i32 i32) (result i32)
        (global.set $seen (i32.add (global.get $seen) (local.get 1)))
        (i32.eq (i32.load8_u (local.get 0)) (i32.const 33)))
    (func (export "seen") (result i32) (global.get $seen)))"#;

fn reactor(preludes: &[(&str, &str)]) -> Made {
    let made = Made::new();
    let module = wat::parse_str(REACTOR).unwrap();
    let wheel = made.place.path().join("reactor.whl");
    fs::write(&wheel, zip_of(&[("reactor.wasm", &module)])).unwrap();
    let manifest = format!(
        r#"
        name = "reactor"
        version = "1.0"
        python = "3.15"
        licence = "Apache-2.0"
        kind = "reactor"
        module = "reactor.wasm"
        arguments = []
        origin = {{ package = "reactor", sha256 = "{}" }}
        files = [{{ name = "reactor.wasm", path = "reactor.wasm", sha256 = "{}" }}]
        profiles = [
            {{ name = "base", imports = [], prelude = "base.py" }},
            {{ name = "data", imports = ["numpy"], prelude = "data.py" }},
        ]
        "#,
        sum(&fs::read(&wheel).unwrap()),
        sum(&module)
    );
    Made { manifest: Manifest::parse(&manifest, preludes, None).unwrap(), source: Source::Wheel(wheel), ..made }
}

fn seen_by(made: &Made, profile: &PreparedProfile) -> i32 {
    let compiled = fs::read(&profile.compiled).unwrap();
    #[expect(unsafe_code, reason = "the file was compiled by this test")]
    // SAFETY: `prepare` wrote it a moment ago, into a folder that only this test uses.
    let module = unsafe { wasmtime::Module::deserialize(&made.engine, compiled) }.unwrap();
    let mut store = wasmtime::Store::new(&made.engine, ());
    store.set_epoch_deadline(1);
    let mut linker = wasmtime::Linker::new(&made.engine);
    linker.func_wrap("host", "call", |_: i32, _: i32, _: i32, _: i32| -1).unwrap();
    let instance = linker.instantiate(&mut store, &module).unwrap();
    instance.get_typed_func::<(), i32>(&mut store, "seen").unwrap().call(&mut store, ()).unwrap()
}

#[test]
fn a_profile_starts_after_its_preludes_and_those_of_lighter_ones() {
    let made = reactor(&[("base.py", "12345"), ("data.py", "1234567")]);
    let lines = Lines::default();
    let prepared = made.prepare_with(&made.source, &Progress::as_lines(lines.clone())).unwrap();
    let texts = [&python::prelude(), python::REHEARSAL, include_str!("../../interpreters/prepare/finish.py")];
    let own: usize = texts.iter().map(|text| text.len()).sum();
    let own = i32::try_from(own).unwrap();
    let seen: Vec<_> = prepared.profiles.iter().map(|profile| seen_by(&made, profile) - own).collect();
    assert_eq!(seen, [5, 12]);
    assert_eq!(lines.text().matches("for snapshots …").count(), 1, "compiled once for both: {}", lines.text());
    assert!(made.files_in("snapshots").is_empty(), "they are compiled");
}

#[test]
fn mutable_globals_of_a_snapshot_are_exported_and_its_sum_is_that_of_its_state() {
    let made = reactor(&[("base.py", "12345"), ("data.py", "1234567")]);
    let prepared = made.prepare().unwrap();
    let sums: Vec<_> = prepared.profiles.iter().map(|profile| profile.snapshot.clone().unwrap()).collect();
    assert!(sums[0] != sums[1] && sums.iter().all(|sum| sum.len() == 64), "{sums:?}");
    let again = reactor(&[("base.py", "12345"), ("data.py", "7654321")]);
    let of_again: Vec<_> = again.prepare().unwrap().profiles.into_iter().map(|one| one.snapshot.unwrap()).collect();
    assert!(of_again[0] == sums[0] && of_again[1] != sums[1], "the same preludes on another machine");
    let compiled = fs::read(&prepared.profiles[0].compiled).unwrap();
    #[expect(unsafe_code, reason = "the file was compiled by this test")]
    // SAFETY: `prepare` wrote it a moment ago, into a folder that only this test uses.
    let module = unsafe { wasmtime::Module::deserialize(&made.engine, compiled) }.unwrap();
    let names: Vec<_> = module.exports().map(|export| export.name().to_owned()).collect();
    let has = |name: &str| names.iter().any(|one| one == name);
    assert!(has("__wizer_global_0") && has("__wizer_memory_0"), "{names:?}");
}

#[test]
fn state_outside_of_memory_and_globals_cannot_be_exported() {
    let module = |inner: &str| {
        let text = format!("(module (memory (export \"memory\") 1) (table $t 1 funcref) (elem $e func) {inner})");
        with_exported_state(&wat::parse_str(text).unwrap())
    };
    assert!(module("(global (mut i32) (i32.const 0))").is_ok());
    for (inner, says) in [
        ("(func (table.set $t (i32.const 0) (ref.null func)))", "table.set"),
        ("(func (elem.drop $e))", "elem.drop"),
        ("(global (mut funcref) (ref.null func))", "reference type"),
    ] {
        let reason = module(inner).unwrap_err();
        assert!(reason.contains(says), "{reason}");
    }
}

#[test]
fn a_lighter_profile_is_usable_before_the_richer_ones() {
    let made = reactor(&[("base.py", "fine"), ("data.py", "!broken")]);
    made.prepare().unwrap_err();
    let interpreters = made.interpreters();
    let (prepared, missing) = interpreters.find_usable(&made.manifest).unwrap();
    assert_eq!(prepared.profiles.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>(), ["base"]);
    assert!(matches!(missing, Some(Unusable::Missing(_))) && interpreters.find(&made.manifest).is_err());
    fs::remove_file(&prepared.profiles[0].compiled).unwrap();
    assert!(matches!(interpreters.find_usable(&made.manifest), Err(Unusable::Missing(_))));
}

#[test]
fn snapshots_taken_before_an_interruption_are_only_compiled() {
    let made = reactor(&[("base.py", "12345"), ("data.py", "1234567")]);
    let interpreters = made.interpreters();
    // A folder at the path of a compiled file interrupts it there.
    let in_the_way = interpreters.compiled().path_of(&made.manifest.sum_of_profile(&made.manifest.profiles[1]));
    fs::create_dir_all(in_the_way.join("full")).unwrap();
    made.prepare().unwrap_err();
    fs::remove_dir_all(in_the_way).unwrap();
    let lines = Lines::default();
    made.prepare_with(&made.source, &Progress::as_lines(lines.clone())).unwrap();
    let text = lines.text();
    assert_eq!(text.lines().filter_map(|line| line.strip_suffix(" …")).collect::<Vec<_>>(), ["compiling reactor data"]);
}

#[test]
fn a_failing_prelude_is_named_and_earlier_results_are_kept() {
    let made = reactor(&[("base.py", "fine"), ("data.py", "!broken\nrest")]);
    let error = made.prepare().unwrap_err().to_string();
    assert!(error.contains("profile `data`") && error.contains("`!broken` ended with status 1"), "{error}");
    let (prepared, _) = made.interpreters().find_usable(&made.manifest).unwrap();
    assert_eq!(prepared.profiles.len(), 1, "the base profile");
}
