//! The only place where the engine is configured. Code compiled by one engine of this module is accepted by every
//! other with the same [`fingerprint`], regardless of the size of its pool.

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use wasmtime::{CacheStore, Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

/// Stack that CPython's build for WASI assumes it has.
const GUEST_STACK_BYTES: usize = 8 << 20;
/// A fiber's stack: the guest's, and space for the host functions it calls.
const FIBER_STACK_BYTES: usize = GUEST_STACK_BYTES + (2 << 20);
/// CPython with its extensions linked in has 47 157 functions in its table; the pool's default is 20 000.
const TABLE_ELEMENTS: usize = 65_536;
/// The instance's record of so many functions is larger than the pool's default of 1 MiB.
const INSTANCE_BYTES: usize = 4 << 20;
/// The part of a memory that is reset in place after a call. If a call wrote more, the whole memory is returned to
/// the kernel, which costs less than copying that much. Used only where written pages can be found: otherwise all of
/// this would be copied.
pub const MEMORY_KEPT_BYTES: usize = 2 << 20;
/// The part of a fiber's stack that most programs use: it is zeroed and kept.
const STACK_KEPT_BYTES: usize = 64 << 10;
/// Memory images up to this size are stored in full, so that a snapshot is mapped and never copied.
const IMAGE_BYTES: u64 = 256 << 20;

/// Modules, memories and tables of one component: programs in C, Rust, Go and JavaScript have a few, one of Python some twenty
/// modules for its libraries.
const MAX_CORE_INSTANCES: u32 = 100;
const MAX_MEMORIES: u32 = 4;
const MAX_TABLES: u32 = 16;
/// All that 32-bit WebAssembly can address: the limit of a call is separate.
const COMPONENT_MEMORY_BYTES: usize = 4 << 30;

/// The reservation of one process for instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstancePool {
    /// Instances that can exist at once. Each costs address space, not memory.
    pub instances: u32,
    /// Maximum linear memory of one instance, in bytes.
    pub memory_bytes: usize,
}

impl Default for InstancePool {
    /// Enough to compile, and to run one interpreter with the default memory limit (spec E25: 512 MB).
    fn default() -> Self {
        Self { instances: 1, memory_bytes: 512 << 20 }
    }
}

/// An engine with space for the pool's instances.
/// Errors: when the machine cannot reserve the address space, or the processor lacks a feature that compiled code
/// needs.
pub fn engine(pool: InstancePool) -> wasmtime::Result<Engine> {
    Engine::new(&settings(pool))
}

/// An engine that compiles a function only once. The profiles of an interpreter are snapshots of one module, which have
/// the same functions and other data: the second profile takes a tenth of the first one's time.
pub fn compiling_engine() -> wasmtime::Result<Engine> {
    Engine::new(
        settings(InstancePool::default()).enable_incremental_compilation(Arc::new(CompiledFunctions::default()))?,
    )
}

/// An engine for components and commands, with space for so many calls at once. It compiles on the thread that asks.
pub fn component_engine(calls: u32) -> wasmtime::Result<Engine> {
    Engine::new(component_settings(calls).parallel_compilation(false))
}

/// The same for a process that compiles: on all cores.
pub fn component_compiling_engine() -> wasmtime::Result<Engine> {
    Engine::new(&component_settings(1))
}

/// Machine code by the hash of its function, in memory: as long as the engine.
#[derive(Default)]
struct CompiledFunctions(
    #[expect(clippy::disallowed_types, reason = "the process ends once it has compiled")]
    dashmap::DashMap<Vec<u8>, Vec<u8>>,
);

impl CacheStore for CompiledFunctions {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.0.get(key).map(|code| Cow::Owned(code.clone()))
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        self.0.insert(key.to_vec(), value);
        true
    }
}

impl fmt::Debug for CompiledFunctions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CompiledFunctions({})", self.0.len())
    }
}

/// An engine that compiles in a third of the time to slower code, for modules that run once.
pub fn quick_engine() -> wasmtime::Result<Engine> {
    let on_demand = InstanceAllocationStrategy::OnDemand;
    Engine::new(settings(InstancePool::default()).allocation_strategy(on_demand).cranelift_opt_level(OptLevel::None))
}

/// Identifies the dependencies of the engine's compiled files: wasmtime's version, its settings, the processor's
/// features. Files with another fingerprint must be compiled again.
pub fn fingerprint(engine: &Engine) -> String {
    // DefaultHasher::new() has fixed keys. Another Rust version may hash differently, which only costs a compilation;
    // wasmtime checks compatibility again when it loads a file.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Whether the kernel can report written pages (`PAGEMAP_SCAN`, Linux 6.7). Without it a used memory is returned to
/// the kernel, and every call takes its page faults again.
pub fn can_scan_pages() -> bool {
    PoolingAllocationConfig::is_pagemap_scan_available()
}

fn settings(pool: InstancePool) -> Config {
    let mut config = Config::new();
    config
        .allocation_strategy(allocation(pool))
        .memory_init_cow(true)
        // Mapped from the compiled file, whose pages all workers share; a copy in memory would cost each worker
        // hundreds of MB and most of its start time.
        .force_memory_init_memfd(false)
        .memory_guaranteed_dense_image_size(IMAGE_BYTES)
        .table_lazy_init(true)
        .epoch_interruption(true)
        .max_wasm_stack(GUEST_STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES)
        // A stack is never reused with another call's bytes in it.
        .async_stack_zeroing(true)
        // Backtraces of the interpreter's own functions are of no use to Python authors.
        .generate_address_map(false)
        .wasm_backtrace_max_frames(None);
    config
}

/// Every call may have the maximum of one component, so that no component takes the share of others.
fn component_settings(calls: u32) -> Config {
    let mut allocation = PoolingAllocationConfig::new();
    allocation
        .total_component_instances(calls)
        .total_core_instances(calls.saturating_mul(MAX_CORE_INSTANCES))
        .max_core_instances_per_component(MAX_CORE_INSTANCES)
        // One more for the exceptions that it throws, which have a heap of their own.
        .total_memories(calls.saturating_mul(MAX_MEMORIES + 1))
        .max_memories_per_component(MAX_MEMORIES)
        .total_tables(calls.saturating_mul(MAX_TABLES))
        .max_tables_per_component(MAX_TABLES)
        .max_tables_per_module(MAX_TABLES)
        .total_stacks(calls.saturating_mul(2))
        .total_gc_heaps(calls)
        .max_memory_size(COMPONENT_MEMORY_BYTES)
        .table_elements(TABLE_ELEMENTS)
        .max_core_instance_size(INSTANCE_BYTES)
        .max_component_instance_size(INSTANCE_BYTES)
        .async_stack_keep_resident(STACK_KEPT_BYTES)
        // A used memory is returned to the kernel: only memories of the interpreter are reset in place.
        .linear_memory_keep_resident(0);
    let mut config = settings(InstancePool::default());
    config.allocation_strategy(allocation).wasm_component_model(true);
    config
}

fn allocation(pool: InstancePool) -> PoolingAllocationConfig {
    let mut allocation = PoolingAllocationConfig::new();
    allocation
        .total_core_instances(pool.instances)
        // One for the program, one for the exceptions it throws, which have a heap of their own.
        .total_memories(pool.instances.saturating_mul(2))
        .total_tables(pool.instances)
        // One for the program, one for host calls that enter the guest meanwhile.
        .total_stacks(pool.instances.saturating_mul(2))
        .total_gc_heaps(pool.instances)
        .max_memory_size(pool.memory_bytes)
        .table_elements(TABLE_ELEMENTS)
        .max_core_instance_size(INSTANCE_BYTES)
        .async_stack_keep_resident(STACK_KEPT_BYTES)
        // A kept memory is reset by `guest/pooled_memory.rs` first. A table is not kept: only the scan would reset
        // it.
        .linear_memory_keep_resident(if can_scan_pages() { MEMORY_KEPT_BYTES } else { 0 })
        .pagemap_scan(Enabled::Auto);
    allocation
}

#[cfg(test)]
mod tests {
    use wasmtime::{Instance, Module, Store};

    use super::*;

    const SMALL: InstancePool = InstancePool { instances: 2, memory_bytes: 4 << 20 };

    #[test]
    fn compiled_files_do_not_depend_on_the_size_of_the_pool() {
        let small = engine(SMALL).unwrap();
        let default = engine(InstancePool::default()).unwrap();
        assert_eq!(fingerprint(&small), fingerprint(&default));
        let compiled = small.precompile_module(&wat::parse_str("(module)").unwrap()).unwrap();
        #[expect(unsafe_code, reason = "the bytes were compiled two lines above")]
        // SAFETY: they come from `precompile_module`, unchanged.
        unsafe { Module::deserialize(&default, &compiled) }.unwrap();
    }

    #[test]
    fn what_the_compiling_engine_compiles_is_the_same_and_is_compiled_once() {
        let functions = Arc::new(CompiledFunctions::default());
        let store = Arc::clone(&functions);
        let compiling = Engine::new(settings(SMALL).enable_incremental_compilation(store).unwrap()).unwrap();
        let plain = engine(SMALL).unwrap();
        assert_eq!(fingerprint(&compiling), fingerprint(&plain));
        assert_eq!(fingerprint(&compiling_engine().unwrap()), fingerprint(&plain));
        let export = |n: usize| format!("(func (export \"f{n}\") (result i32) (i32.load8_u (i32.const {n})))");
        let exports: String = (0..50).map(export).collect();
        let module = |data: &str| {
            let memory = format!("(memory (export \"memory\") 1) (data (i32.const 0) \"{data}\")");
            wat::parse_str(format!("(module {memory} {exports})")).unwrap()
        };
        let first = compiling.precompile_module(&module("a")).unwrap();
        let after_first = functions.0.len();
        assert!(after_first >= 50 && first == plain.precompile_module(&module("a")).unwrap());
        assert_eq!(compiling.precompile_module(&module("b")).unwrap(), plain.precompile_module(&module("b")).unwrap());
        // Not exactly: the compiler's own functions may be named in another order.
        assert!(functions.0.len() < after_first + 10, "the second module has the same functions");
    }

    #[test]
    fn other_settings_have_another_fingerprint() {
        let mut without_epochs = settings(SMALL);
        without_epochs.epoch_interruption(false);
        let other = Engine::new(&without_epochs).unwrap();
        assert_ne!(fingerprint(&other), fingerprint(&engine(SMALL).unwrap()));
    }

    #[test]
    fn each_instance_of_a_full_pool_can_throw_exceptions() {
        let engine = engine(SMALL).unwrap();
        let text = "(module (tag $t) (memory 1) (func (export \"run\") (result i32)
            (block $caught (result exnref) (try_table (catch_all_ref $caught) (throw $t)) (unreachable))
            (drop) (i32.const 7)))";
        let module = Module::new(&engine, wat::parse_str(text).unwrap()).unwrap();
        let mut stores = [Store::new(&engine, ()), Store::new(&engine, ())];
        for store in &mut stores {
            store.set_epoch_deadline(1);
            let instance = Instance::new(&mut *store, &module, &[]).unwrap();
            assert_eq!(instance.get_typed_func::<(), i32>(&mut *store, "run").unwrap().call(store, ()).unwrap(), 7);
        }
    }

    #[test]
    fn what_is_compiled_on_all_cores_runs_in_every_worker() {
        let (compiling, running) = (component_compiling_engine().unwrap(), component_engine(3).unwrap());
        assert_eq!(fingerprint(&compiling), fingerprint(&running));
        let text = "(component (core module $m (memory 1)) (core instance (instantiate $m)))";
        let compiled = compiling.precompile_component(&wat::parse_str(text).unwrap()).unwrap();
        #[expect(unsafe_code, reason = "the bytes were compiled in the line above")]
        // SAFETY: they come from `precompile_component`, unchanged.
        unsafe { wasmtime::component::Component::deserialize(&running, &compiled) }.unwrap();
    }

    #[test]
    fn a_component_of_too_many_parts_is_refused_before_it_runs() {
        let engine = component_engine(3).unwrap();
        let text = format!(
            "(component (core module $m (memory 1)) {})",
            "(core instance (instantiate $m))".repeat(MAX_MEMORIES as usize + 1)
        );
        let error = wasmtime::component::Component::new(&engine, wat::parse_str(text).unwrap()).unwrap_err();
        assert!(format!("{error:#}").contains("memories"), "{error:#}");
    }

    #[test]
    fn a_function_table_of_cpythons_size_fits() {
        let engine = engine(SMALL).unwrap();
        let bytes = wat::parse_str("(module (table 47157 47157 funcref) (memory 1))").unwrap();
        let module = Module::new(&engine, bytes).unwrap();
        Instance::new(&mut Store::new(&engine, ()), &module, &[]).unwrap();
    }
}
