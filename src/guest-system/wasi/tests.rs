use std::fmt::Write as _;
use std::time::Duration;

use proptest::prelude::*;
use wasmtime::{Engine, Instance, Module, Store, Val, ValType};

use super::*;
use crate::engine::{InstancePool, engine};
use crate::files::ROOT;

const LIMITS: Limits = Limits { stream_bytes: 8, max_open_files: 4, random_bytes: 64 };
/// Descriptor of the one folder that the guest starts with: the root.
const TOP: u32 = 3;
const READ_AND_WRITE: u64 = records::RIGHT_READ | records::RIGHT_WRITE;
/// `how` of `path_open`.
const CREATE: u32 = 1;

fn wasi() -> Wasi {
    let mut files = Files::new(Quota { bytes: 64 << 10, nodes: 16 });
    files.place_folder("/tmp", false).unwrap();
    files.place_file("/input/a", Bytes::from_static(b"hello"), true).unwrap();
    let start = Start {
        arguments: vec!["python".to_owned(), "-c".to_owned()],
        environment: vec![("HOME".to_owned(), "/tmp".to_owned())],
        stdin: Bytes::from_static(b"typed"),
        folders: vec![("/".into(), ROOT)],
    };
    Wasi::new(files, start, LIMITS).unwrap()
}

/// A guest's system and its memory, called without a guest. Paths are written at 0, the record of one buffer at 1024,
/// data at 2048; results are read from 512.
struct Called {
    wasi: Wasi,
    memory: Vec<u8>,
}

const OUT: u32 = 512;
const BUFFERS: u32 = 1024;
const DATA: u32 = 2048;

impl Called {
    fn new() -> Self {
        Self { wasi: wasi(), memory: vec![0; 8192] }
    }

    fn put(&mut self, at: u32, data: &[u8]) -> u32 {
        GuestMemory(&mut self.memory).store(at, data).unwrap();
        u32::try_from(data.len()).unwrap()
    }

    fn out(&mut self) -> u32 {
        GuestMemory(&mut self.memory).u32_at(OUT).unwrap()
    }

    fn open(&mut self, path: &[u8], how: u32, rights: u64) -> Result<u32, Errno> {
        let length = self.put(0, path);
        let memory = &mut GuestMemory(&mut self.memory);
        self.wasi.path_open(memory, TOP, 0, 0, length, how, rights, 0, 0, OUT)?;
        Ok(self.out())
    }

    fn write(&mut self, fd: u32, data: &[u8]) -> Result<u32, Errno> {
        let length = self.put(DATA, data);
        self.put(BUFFERS, &[DATA.to_le_bytes(), length.to_le_bytes()].concat());
        self.wasi.fd_write(&mut GuestMemory(&mut self.memory), fd, BUFFERS, 1, OUT)?;
        Ok(self.out())
    }

    fn read(&mut self, fd: u32, length: u32) -> Result<Vec<u8>, Errno> {
        self.put(BUFFERS, &[DATA.to_le_bytes(), length.to_le_bytes()].concat());
        self.wasi.fd_read(&mut GuestMemory(&mut self.memory), fd, BUFFERS, 1, OUT)?;
        let count = self.out();
        Ok(GuestMemory(&mut self.memory).bytes(DATA, count).unwrap().to_vec())
    }

    /// Names in a folder, read through a buffer of this many bytes as a C library does.
    fn names(&mut self, path: &[u8], room: u32, mut between: impl FnMut(&mut Wasi)) -> Vec<String> {
        let fd = self.open(path, 0, 0).unwrap();
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            self.wasi.fd_readdir(&mut GuestMemory(&mut self.memory), fd, DATA, room, cookie, OUT).unwrap();
            let used = self.out();
            let read = GuestMemory(&mut self.memory).bytes(DATA, used).unwrap().to_vec();
            let mut rest = &read[..];
            while rest.len() >= 24 {
                let length = u32::from_le_bytes(rest[16..20].try_into().unwrap()) as usize;
                let Some(name) = rest.get(24..24 + length) else { break };
                names.push(String::from_utf8(name.to_vec()).unwrap());
                cookie = u64::from_le_bytes(rest[..8].try_into().unwrap());
                rest = &rest[24 + length..];
            }
            if used < room {
                return names;
            }
            between(&mut self.wasi);
        }
    }
}

#[test]
fn a_file_is_written_and_read_again() {
    let mut guest = Called::new();
    let fd = guest.open(b"tmp/x", CREATE, READ_AND_WRITE).unwrap();
    assert_eq!(guest.write(fd, b"abcdef"), Ok(6));
    let seek = |guest: &mut Called, offset, whence| {
        guest.wasi.fd_seek(&mut GuestMemory(&mut guest.memory), fd, offset, whence, OUT)
    };
    seek(&mut guest, -4, 2).unwrap();
    assert_eq!(guest.read(fd, 3).unwrap(), b"cde");
    assert_eq!(guest.read(fd, 3).unwrap(), b"f");
    assert_eq!(guest.read(fd, 3).unwrap(), b"");
    assert_eq!(seek(&mut guest, -7, 2), Err(Errno::Invalid));
    assert_eq!(seek(&mut guest, 0, 3), Err(Errno::Invalid));
}

#[test]
fn every_error_has_the_number_that_a_c_library_expects() {
    let cases: [(&[u8], u32, u64, Errno); 12] = [
        (b"tmp/none", 0, 0, Errno::Missing),
        (b"input/a/b", 0, 0, Errno::NotFolder),
        (b"input/a", 2, 0, Errno::NotFolder),
        (b"input/a", 0, READ_AND_WRITE, Errno::ReadOnly),
        (b"input/a", 8, 0, Errno::ReadOnly),
        (b"input/b", CREATE, READ_AND_WRITE, Errno::ReadOnly),
        (b"tmp", 0, READ_AND_WRITE, Errno::IsFolder),
        (b"input/a", CREATE | 4, 0, Errno::Exists),
        (b"tmp/\xff", CREATE, READ_AND_WRITE, Errno::IllegalBytes),
        (b"tmp/\0", CREATE, READ_AND_WRITE, Errno::Invalid),
        (b"/etc/passwd", 0, 0, Errno::NotCapable),
        (b"../../etc/passwd", 0, 0, Errno::Missing),
    ];
    let mut guest = Called::new();
    for (path, how, rights, errno) in cases {
        assert_eq!(guest.open(path, how, rights), Err(errno), "{}", String::from_utf8_lossy(path));
    }
    let read_only = guest.open(b"input/a", 0, records::RIGHT_READ).unwrap();
    assert_eq!(guest.write(read_only, b"x"), Err(Errno::BadDescriptor));
    assert_eq!(guest.write(0, b"x"), Err(Errno::BadDescriptor));
    assert_eq!(guest.write(TOP, b"x"), Err(Errno::IsFolder));
    assert_eq!(guest.read(1, 1), Err(Errno::BadDescriptor));
    assert_eq!(guest.read(99, 1), Err(Errno::BadDescriptor));
    assert_eq!(guest.wasi.fd_tell(&mut GuestMemory(&mut guest.memory), 1, OUT), Err(Errno::NotSeekable));
}

#[test]
fn descriptors_are_limited_and_the_lowest_free_one_is_used_next() {
    let mut guest = Called::new();
    let opened: Vec<_> = (0..LIMITS.max_open_files).map(|_| guest.open(b"input/a", 0, 0).unwrap()).collect();
    assert_eq!(opened, [4, 5, 6, 7]);
    assert_eq!(guest.open(b"tmp/new", CREATE, READ_AND_WRITE), Err(Errno::TooManyOpen));
    assert!(guest.wasi.files().find(ROOT, "tmp/new").is_err(), "a refused open created a file");
    guest.wasi.fd_close(&mut GuestMemory(&mut guest.memory), 5).unwrap();
    assert_eq!(guest.open(b"input/a", 0, 0), Ok(5));
}

#[test]
fn a_stream_stores_its_start_and_reports_the_rest_as_written() {
    let mut guest = Called::new();
    for _ in 0..3 {
        assert_eq!(guest.write(1, b"12345"), Ok(5));
    }
    assert_eq!(guest.write(2, b"e"), Ok(1));
    let (stdout, stderr) = guest.wasi.take_output();
    assert_eq!((&stdout.bytes[..], stdout.total), (&b"12345123"[..], 15));
    assert_eq!((&stderr.bytes[..], stderr.total), (&b"e"[..], 1));
    assert_eq!(guest.read(0, 3).unwrap(), b"typ");
    assert_eq!(guest.read(0, 3).unwrap(), b"ed");
}

#[test]
fn a_folder_is_listed_completely_through_any_buffer_and_while_it_changes() {
    for room in [40, 64, 100, 4096] {
        let mut guest = Called::new();
        for name in ["b", "a", "c"] {
            guest.wasi.files_mut().create_file(ROOT, &format!("tmp/{name}")).unwrap();
        }
        let listed = guest.names(b"tmp", room, |wasi| {
            let _ = wasi.files_mut().unlink(ROOT, "tmp/b");
        });
        let whole = [".", "..", "b", "a", "c"];
        let without_b = [".", "..", "a", "c"];
        assert!(listed == whole || listed == without_b, "{room}: {listed:?}");
    }
}

#[test]
fn a_hole_read_into_many_buffers_ends_after_a_few_megabytes() {
    let mut guest = Called::new();
    guest.memory = vec![0; 2 << 20];
    let fd = guest.open(b"tmp/x", CREATE, READ_AND_WRITE).unwrap();
    guest.wasi.fd_filestat_set_size(&mut GuestMemory(&mut guest.memory), fd, 1 << 40).unwrap();
    for number in 0..1024 {
        guest.put(BUFFERS + number * 8, &[65_536_u32.to_le_bytes(), (1_u32 << 20).to_le_bytes()].concat());
    }
    guest.wasi.fd_read(&mut GuestMemory(&mut guest.memory), fd, BUFFERS, 1024, OUT).unwrap();
    assert_eq!(guest.out(), MAX_TRANSFER_BYTES);
    let refused = guest.wasi.fd_read(&mut GuestMemory(&mut guest.memory), fd, BUFFERS, 1025, OUT);
    assert_eq!(refused, Err(Errno::Invalid));
}

#[test]
fn arguments_and_environment_are_adjacent() {
    let mut guest = Called::new();
    guest.wasi.args_sizes_get(&mut GuestMemory(&mut guest.memory), OUT, OUT + 4).unwrap();
    assert_eq!(GuestMemory(&mut guest.memory).array(OUT), Ok([2, 0, 0, 0, 10, 0, 0, 0]));
    guest.wasi.args_get(&mut GuestMemory(&mut guest.memory), OUT, DATA).unwrap();
    assert_eq!(GuestMemory(&mut guest.memory).bytes(DATA, 10).unwrap(), b"python\0-c\0");
    assert_eq!(GuestMemory(&mut guest.memory).u32_at(OUT + 4), Ok(DATA + 7));
    guest.wasi.environ_get(&mut GuestMemory(&mut guest.memory), OUT, DATA).unwrap();
    assert_eq!(GuestMemory(&mut guest.memory).bytes(DATA, 10).unwrap(), b"HOME=/tmp\0");
}

#[test]
fn clocks_move_in_whole_ticks() {
    let mut guest = Called::new();
    for clock in 0..4 {
        guest.wasi.clock_time_get(&mut GuestMemory(&mut guest.memory), clock, 1, OUT).unwrap();
        let now = u64::from_le_bytes(GuestMemory(&mut guest.memory).array(OUT).unwrap());
        assert_eq!(now % 100_000, 0, "clock {clock}");
    }
    let unknown = guest.wasi.clock_time_get(&mut GuestMemory(&mut guest.memory), 4, 1, OUT);
    assert_eq!(unknown, Err(Errno::Invalid));
}

/// A module that forwards each of its exports to the call of that name.
struct Guest {
    store: Store<Wasi>,
    instance: Instance,
    calls: Vec<(String, Vec<ValType>)>,
}

async fn guest(engine: &Engine) -> Guest {
    let mut linker = Linker::new(engine);
    add_to_linker(&mut linker, |wasi: &mut Wasi| wasi).unwrap();
    let mut store = Store::new(engine, wasi());
    store.set_epoch_deadline(u64::MAX / 2);
    let (mut imports, mut functions, mut calls) = (String::new(), String::new(), Vec::new());
    let defined: Vec<_> =
        linker.iter(&mut store).map(|(_, name, item)| (name.to_owned(), item.into_func().unwrap())).collect();
    for (name, function) in defined {
        let kind = function.ty(&store);
        let params: String = kind.params().map(|param| format!(" {param}")).collect();
        let result = if kind.results().len() == 0 { "" } else { "(result i32)" };
        let gets: String = (0..kind.params().len()).map(|number| format!("(local.get {number})")).collect();
        write!(imports, r#"(import "{MODULE}" "{name}" (func ${name} (param{params}) {result}))"#).unwrap();
        write!(functions, r#"(func (export "{name}") (param{params}) {result} (call ${name} {gets}))"#).unwrap();
        calls.push((name, kind.params().collect()));
    }
    let text = format!(r#"(module {imports} (memory (export "memory") 1) {functions})"#);
    let module = Module::new(engine, wat::parse_str(text).unwrap()).unwrap();
    let instance = linker.instantiate_async(&mut store, &module).await.unwrap();
    Guest { store, instance, calls }
}

impl Guest {
    async fn call(&mut self, name: &str, arguments: &[Val]) -> wasmtime::Result<i32> {
        let function = self.instance.get_func(&mut self.store, name).unwrap();
        let mut results = vec![Val::I32(0); function.ty(&self.store).results().len()];
        function.call_async(&mut self.store, arguments, &mut results).await?;
        Ok(results.first().map_or(0, Val::unwrap_i32))
    }

    fn put(&mut self, at: usize, data: &[u8]) {
        let memory = self.instance.get_memory(&mut self.store, "memory").unwrap();
        memory.write(&mut self.store, at, data).unwrap();
    }
}

fn small_engine() -> Engine {
    engine(InstancePool { instances: 1, memory_bytes: 1 << 20 }).unwrap()
}

#[tokio::test]
async fn the_exit_of_the_program_and_exhausted_randomness_stop_the_guest() {
    let mut guest = guest(&small_engine()).await;
    let exit = guest.call("proc_exit", &[Val::I32(7)]).await.unwrap_err();
    assert_eq!(exit.downcast_ref(), Some(&Stop::Exit(7)));
    assert_eq!(guest.call("random_get", &[Val::I32(0), Val::I32(64)]).await.unwrap(), 0);
    let spent = guest.call("random_get", &[Val::I32(0), Val::I32(1)]).await.unwrap_err();
    assert_eq!(spent.downcast_ref(), Some(&Stop::RandomBytes));
}

#[tokio::test(start_paused = true)]
async fn a_sleep_waits_on_the_runtime_for_its_earliest_subscription() {
    let mut guest = guest(&small_engine()).await;
    for (number, seconds) in [3_u64, 2].into_iter().enumerate() {
        let mut subscription = [0_u8; 48];
        subscription[0] = 40 + u8::try_from(number).unwrap();
        subscription[16] = 1;
        subscription[24..32].copy_from_slice(&(seconds * 1_000_000_000).to_le_bytes());
        guest.put(number * 48, &subscription);
    }
    let before = tokio::time::Instant::now();
    let arguments = [0, 512, 2, 1024].map(Val::I32);
    assert_eq!(guest.call("poll_oneoff", &arguments).await.unwrap(), 0);
    assert_eq!(before.elapsed().as_secs(), Duration::from_secs(2).as_secs());
    let memory = guest.instance.get_memory(&mut guest.store, "memory").unwrap();
    let (event, count) = (memory.data(&guest.store)[512], memory.data(&guest.store)[1024]);
    assert_eq!((event, count), (41, 1));
    let none = [0, 512, 0, 1024].map(Val::I32);
    assert_eq!(guest.call("poll_oneoff", &none).await.unwrap(), Errno::Invalid as i32);
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..16_u64, 65_530..65_540_u64, Just(u64::MAX), Just(1 << 31), Just(1 << 63), any::<u64>()]
}

#[test]
fn no_arguments_crash_the_host() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let engine = small_engine();
    proptest!(ProptestConfig::with_cases(64), |(rounds in proptest::collection::vec((0..46_usize, proptest::array::uniform9(number())), 1..60))| {
        runtime.block_on(async {
            let mut guest = guest(&engine).await;
            for (which, numbers) in rounds {
                let (name, params) = guest.calls[which % guest.calls.len()].clone();
                #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "any value will do")]
                let arguments: Vec<_> = params.iter().zip(numbers).map(|(param, number)| match param {
                    ValType::I64 => Val::I64(number as i64),
                    _ => Val::I32(number as i32),
                }).collect();
                if let Err(error) = guest.call(&name, &arguments).await {
                    assert!(error.is::<Stop>(), "{name}: {error:?}");
                }
            }
        });
    });
}

#[test]
fn all_calls_of_preview_1_are_defined() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let guest = runtime.block_on(guest(&small_engine()));
    assert_eq!(guest.calls.len(), 46);
}
