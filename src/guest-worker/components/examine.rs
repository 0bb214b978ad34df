//! The contents of a file: its functions, with schemas, and its imports. Nothing of it is executed.

use tokio::io::{AsyncWrite, AsyncWriteExt};
use wasmparser::{ExternalKind, Parser, Payload, TypeRef};
use wasmtime::Engine;
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Function, FunctionKind, Resolve, World, WorldItem};

use super::docs::{self, Docs};
use super::schema;
use crate::{NICER, WorkerError, hardening};
use sekisho_guest_protocol::{Examination, Examined, Export, FoundExport, FromWorker, ModuleKind, encode};
use sekisho_guest_system::engine::component_compiling_engine;

/// Begins each module and each component; four bytes with version and kind follow.
const MAGIC: &[u8] = b"\0asm";
const MODULE: &[u8] = &[1, 0, 0, 0];
const COMPONENT: &[u8] = &[0x0d, 0, 1, 0];

/// The function with which componentize-py initialises an interpreter when it builds a component. It is no tool.
const BUILD_STEP: (&str, &str) = ("exports", "init");

/// Functions of one component.
const MAX_FUNCTIONS: usize = 200;

/// Examines one file and answers. The process does nothing else: a bad file can harm nothing else.
pub async fn answer(examination: &Examination, mut gateway: impl AsyncWrite + Unpin) -> Result<(), WorkerError> {
    // Others come first, for the processor and when memory runs out.
    let _ = rustix::process::nice(NICER);
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let engine = component_compiling_engine().map_err(|error| WorkerError::Load(format!("{error:#}")))?;
    // The threads that compile start now: they cannot after hardening.
    rayon::broadcast(|_| ());
    // Missing protections are reported by those that run programs.
    let _ = hardening::apply();
    let examined = examine(&engine, examination);
    let frame = encode(&FromWorker::Examined(Box::new(examined))).map_err(WorkerError::Gateway)?;
    gateway.write_all(&frame).await.map_err(WorkerError::Gateway)
}

/// Examines a file, and compiles it for engines with this one's settings.
/// Errors: why it cannot be used as a whole.
fn examine(engine: &Engine, examination: &Examination) -> Result<Examined, String> {
    let Examination { wasm, wit, compiles } = examination;
    let (magic, version) = (wasm.get(..4).unwrap_or_default(), wasm.get(4..8).unwrap_or_default());
    let mut examined = match (magic, version) {
        (MAGIC, COMPONENT) => component(wasm, wit.as_deref())?,
        (MAGIC, MODULE) => command(wasm)?,
        (MAGIC, _) => return Err("it is of a version of WebAssembly that is not known here".to_owned()),
        _ => return Err("it is no WebAssembly: put a component, or a module of WASI preview 1, there".to_owned()),
    };
    if *compiles {
        let compiled = match examined.kind {
            ModuleKind::Component => engine.precompile_component(wasm),
            ModuleKind::Command => engine.precompile_module(wasm),
        };
        examined.compiled = compiled.map_err(|error| format!("it cannot be compiled: {error:#}"))?;
    }
    Ok(examined)
}

fn component(wasm: &[u8], wit: Option<&str>) -> Result<Examined, String> {
    let (rest, docs) = docs::split(wasm);
    let docs = match wit {
        Some(text) => Docs::of_wit(text).map_err(|error| format!("the WIT beside it is broken: {error}"))?,
        None => docs,
    };
    let decoded = decode(&rest).map_err(|error| format!("it is malformed: {error:#}"))?;
    let DecodedWasm::Component(resolve, world) = decoded else {
        return Err("it is a WIT package, which has types and no code: put the component itself there".to_owned());
    };
    let world = &resolve.worlds[world];
    let exported = exported(&resolve, world);
    if exported.len() > MAX_FUNCTIONS {
        return Err(format!("it exports more than {MAX_FUNCTIONS} functions; put several components there"));
    }
    let (mut functions, mut problems) = (Vec::new(), Vec::new());
    for (export, function) in exported {
        match found(&resolve, export.clone(), function, &docs) {
            Ok(function) => functions.push(function),
            Err(problem) => problems.push((export, problem)),
        }
    }
    if functions.is_empty() && problems.is_empty() {
        return Err("it exports no function: export those that are to be tools".to_owned());
    }
    let imports = imported(&resolve, world);
    Ok(Examined { kind: ModuleKind::Component, functions, problems, imports, compiled: Vec::new() })
}

fn exported<'a>(resolve: &'a Resolve, world: &'a World) -> Vec<(Export, &'a Function)> {
    let mut exported = Vec::new();
    for (key, item) in &world.exports {
        match item {
            WorldItem::Function(function) => {
                exported.push((Export { interface: None, function: function.name.clone() }, function));
            }
            WorldItem::Interface { id, .. } => {
                let interface = resolve.name_world_key(key);
                let functions = resolve.interfaces[*id].functions.values();
                let offered = functions.filter(|function| (interface.as_str(), function.name.as_str()) != BUILD_STEP);
                exported.extend(offered.map(|function| {
                    (Export { interface: Some(interface.clone()), function: function.name.clone() }, function)
                }));
            }
            WorldItem::Type { .. } => {}
        }
    }
    exported
}

fn found(resolve: &Resolve, export: Export, function: &Function, docs: &Docs) -> Result<FoundExport, String> {
    if let Some(resource) = function.kind.resource() {
        let name = resolve.types[resource].name.as_deref().unwrap_or("without a name");
        return Err(format!("it belongs to the resource `{name}`: export a function that takes and returns values"));
    }
    if function.kind != FunctionKind::Freestanding {
        return Err("it is `async`, which is not supported: export it without".to_owned());
    }
    let schemas = schema::of_function(resolve, function)
        .map_err(|problem| format!("{problem}, which has no form in JSON: take and return values"))?;
    Ok(FoundExport {
        description: docs.text(&export).to_owned(),
        export,
        parameters: schemas.parameters.to_string(),
        output: schemas.output.map(|schema| schema.to_string()),
    })
}

/// An interface of which only types are used needs no capability.
fn imported(resolve: &Resolve, world: &World) -> Vec<String> {
    let named = world.imports.iter().filter(|(_, item)| match item {
        WorldItem::Interface { id, .. } => !resolve.interfaces[*id].functions.is_empty(),
        WorldItem::Function(_) => true,
        WorldItem::Type { .. } => false,
    });
    named.map(|(key, _)| resolve.name_world_key(key)).collect()
}

fn command(wasm: &[u8]) -> Result<Examined, String> {
    let malformed = |error: wasmparser::Error| format!("it is malformed: {error}");
    let (mut imports, mut has_start, mut has_memory) = (Vec::new(), false, false);
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(malformed)? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(malformed)?;
                    if !matches!(import.ty, TypeRef::Func(_) | TypeRef::FuncExact(_)) {
                        return Err(format!("it imports {}.{}, which is no function", import.module, import.name));
                    }
                    imports.push(format!("{}.{}", import.module, import.name));
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.map_err(malformed)?;
                    has_start |= export.name == "_start" && export.kind == ExternalKind::Func;
                    has_memory |= export.name == "memory" && export.kind == ExternalKind::Memory;
                }
            }
            _ => {}
        }
    }
    if !has_start || !has_memory {
        return Err(
            "it is a module that exports no `_start` and no `memory`: make it a component with `wasm-tools component new`, \
             or build it as a command of WASI preview 1"
                .to_owned(),
        );
    }
    let kind = ModuleKind::Command;
    Ok(Examined { kind, functions: Vec::new(), problems: Vec::new(), imports, compiled: Vec::new() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn examined(wasm: &[u8], wit: Option<&str>) -> Result<Examined, String> {
        let engine = component_compiling_engine().unwrap();
        let wit = wit.map(str::to_owned);
        examine(&engine, &Examination { wasm: wasm.to_vec(), wit, compiles: true })
    }

    fn of_text(text: &str) -> Result<Examined, String> {
        examined(&wat::parse_str(text).unwrap(), None)
    }

    const ADDER: &str = r#"(component
        (import "wasi:clocks/wall-clock@0.2.3" (instance
            (type $time (record (field "seconds" u64)))
            (export "datetime" (type (eq $time)))))
        (import "wasi:random/random@0.2.3" (instance (export "get-random-u64" (func (result u64)))))
        (import "my:keys/store" (instance (export "get" (func (result string)))))
        (core module $m (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1))))
        (core instance $i (instantiate $m))
        (func $add (param "first-one" u32) (param "b" u32) (result u32) (canon lift (core func $i "add")))
        (export "add-both" (func $add))
        (instance $maths (export "add" (func $add)))
        (instance $build (export "init" (func $add)))
        (export "exports" (instance $build))
        (export "my:tools/maths@0.1.0" (instance $maths)))"#;

    #[test]
    fn functions_and_imports_of_a_component_are_found() {
        let wit =
            "package my:tools@0.1.0;\ninterface maths {\n /// Adds.\n add: func(first-one: u32, b: u32) -> u32;\n}\n";
        let examined = examined(&wat::parse_str(ADDER).unwrap(), Some(wit)).unwrap();
        assert_eq!((examined.kind, &*examined.problems), (ModuleKind::Component, &[][..]));
        let names: Vec<_> = examined.functions.iter().map(|found| &found.export).collect();
        let whole = Export { interface: None, function: "add-both".to_owned() };
        let inner = Export { interface: Some("my:tools/maths@0.1.0".to_owned()), function: "add".to_owned() };
        assert_eq!(names, [&whole, &inner]);
        let found = &examined.functions[1];
        let parameters: Value = serde_json::from_str(&found.parameters).unwrap();
        assert_eq!((&*found.description, &parameters["required"]), ("Adds.", &json!(["first_one", "b"])));
        assert!(found.output.as_ref().unwrap().contains("integer"));
        assert_eq!(examined.imports, ["wasi:random/random@0.2.3", "my:keys/store"], "types alone are no capability");
        assert!(!examined.compiled.is_empty());
    }

    #[test]
    fn functions_of_resources_are_refused_by_name() {
        let wit = "package my:tools;\ninterface files {\n  resource blob {\n    size: func() -> u32;\n    make: static func() -> u32;\n  }\n\
            free: func(b: borrow<blob>);\n  later: async func();\n}\n";
        let mut resolve = Resolve::default();
        resolve.push_source("wit", wit).unwrap();
        let (_, interface) = resolve.interfaces.iter().next().unwrap();
        let of = |name: &str| {
            let export = Export { interface: None, function: name.to_owned() };
            found(&resolve, export, &interface.functions[name], &Docs::default()).unwrap_err()
        };
        for (name, says) in [
            ("[method]blob.size", "belongs to the resource `blob`"),
            ("[static]blob.make", "belongs to the resource `blob`"),
            ("free", "a parameter has the resource `blob`, which has no form in JSON"),
            ("later", "`async`"),
        ] {
            let problem = of(name);
            assert!(problem.contains(says), "{name}: {problem}");
        }
    }

    #[test]
    fn a_command_is_known_by_its_start() {
        let text = r#"(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1) (func (export "_start")))"#;
        let examined = of_text(text).unwrap();
        assert_eq!(
            (examined.kind, &*examined.imports),
            (ModuleKind::Command, &["wasi_snapshot_preview1.fd_write".to_owned()][..])
        );
        for (text, says) in [
            ("(module)", "exports no `_start`"),
            ("(module (memory (export \"memory\") 1))", "exports no `_start`"),
            ("(module (import \"env\" \"memory\" (memory 1)))", "env.memory, which is no function"),
            ("(component)", "exports no function"),
        ] {
            let problem = of_text(text).unwrap_err();
            assert!(problem.contains(says), "{text}: {problem}");
        }
    }

    #[test]
    fn what_is_no_webassembly_says_so() {
        let adder = wat::parse_str(ADDER).unwrap();
        let cut = &adder[..adder.len() - 20];
        for (bytes, says) in [
            (&b""[..], "no WebAssembly"),
            (b"\x7fELF\x02\x01\x01\0", "no WebAssembly"),
            (b"\0asm\x07\0\0\0", "not known here"),
            (b"\0asm\x0d\0\x01\0\x99", "malformed"),
            (b"\0asm\x01\0\0\0\x99", "malformed"),
            (cut, "malformed"),
        ] {
            let problem = examined(bytes, None).unwrap_err();
            assert!(problem.contains(says), "{bytes:?}: {problem}");
        }
        assert!(examined(&adder, Some("interface {")).unwrap_err().contains("the WIT beside it is broken"));
    }
}
