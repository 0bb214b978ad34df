mod modules;

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::guest::{Guest, ModuleImage, Program, Remains};
use crate::host_call::HostCall;
use sekisho_guest_protocol::read_recorder::ReadRecorder;
use sekisho_guest_protocol::{End, SessionEntry};
use sekisho_guest_system::engine::{InstancePool, engine};
use sekisho_guest_system::files::{Quota, ROOT};
use sekisho_guest_system::wasi::{Limits, Start, Wasi};

const ID: SessionId = 7;

/// A reactor whose memory, grown memory and global each count its programs, which report that they exit with seven times
/// their number.
const COUNTS: &str = r#"(module
    (import "host" "call" (func $call (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 8)
    (global $count (mut i32) (i32.const 0))
    (data (i32.const 1024) "{\"v\":1,\"op\":\"job\"}")
    (data (i32.const 1280) "{\"v\":1,\"op\":\"done\",\"end\":{\"kind\":\"exited\",\"code\":  }}")
    EXPORTS
    (func $add (param $at i32) (param $more i32) (result i32)
        (i32.store8 (local.get $at) (i32.add (i32.load8_u (local.get $at)) (local.get $more)))
        (i32.load8_u (local.get $at)))
    (func (export "host_alloc") (param i32) (result i32) (i32.const 4096))
    (func (export "turn") (param i32 i32) (result i32) (local $code i32)
        ENTRY
        (drop (call $call (i32.const 1024) (i32.const 18) (i32.const 512) (i32.const 516)))
        (global.set $count (i32.add (global.get $count) (i32.const 1)))
        (if (i32.eq (memory.size) (i32.const 8)) (then (drop (memory.grow (i32.const 2)))))
        (local.set $code (i32.add (global.get $count)
            (i32.add (call $add (i32.const 60000) (i32.const 2)) (call $add (i32.const 600000) (i32.const 4)))))
        (i32.store8 (i32.const 1329) (if (result i32) (i32.lt_u (local.get $code) (i32.const 10))
            (then (i32.const 32))
            (else (i32.add (i32.const 48) (i32.div_u (local.get $code) (i32.const 10))))))
        (i32.store8 (i32.const 1330) (i32.add (i32.const 48) (i32.rem_u (local.get $code) (i32.const 10))))
        (drop (call $call (i32.const 1280) (i32.const 53) (i32.const 512) (i32.const 516)))
        (i32.const 0)))"#;

const EXPORTS: &str = r#"(export "__wizer_memory_0" (memory 0)) (export "__wizer_global_0" (global $count))"#;

struct Made {
    runtime: Runtime,
    template: Template,
    mounts: Mounts,
}

impl Made {
    fn with(exports: &str) -> Self {
        Self::entered_with("", exports)
    }

    /// Does this before it requests its program.
    fn entered_with(entry: &str, exports: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let engine = engine(InstancePool { instances: 8, memory_bytes: 8 << 20 }).unwrap();
        let text = COUNTS.replace("EXPORTS", exports).replace("ENTRY", entry);
        let module = Module::new(&engine, wat::parse_str(text).unwrap()).unwrap();
        let template = runtime.block_on(Template::new(&engine, &module, Entry::Turn("0".to_owned()))).unwrap();
        Self { runtime, template, mounts: Mounts::open(&[]).unwrap() }
    }

    fn program(&self, wasi: Option<Wasi>) -> Program {
        let limits = Limits { stream_bytes: 64, max_open_files: 4, random_bytes: 64 };
        let new = || {
            let (files, folders) = self.mounts.place(Quota { bytes: 64 << 10, nodes: 16 }).unwrap();
            Wasi::new(files, Start { folders, ..Start::default() }, limits).unwrap()
        };
        let wasi = wasi.map_or_else(new, |wasi| wasi.continued(Bytes::new(), limits));
        Program {
            wasi,
            host_call: HostCall::new(String::new(), 64, 64, 3).in_session(SessionEntry::Continue),
            wall_time: Duration::from_secs(60),
            total_time: Duration::from_secs(60),
            waited: Arc::default(),
            memory_bytes: 2 << 20,
            output_bytes: 4096,
            session: Some(ID),
        }
    }

    /// A session after its first program.
    fn begun(&self) -> SessionGuest {
        self.runtime.block_on(async {
            let ended = self.template.guest().await.unwrap().run(self.program(None)).await;
            assert_eq!(ended.outcome.end, End::Exited { code: 7 });
            rests(ended.left)
        })
    }

    /// The exit code of one more program.
    fn next(&self, mut guest: SessionGuest) -> (SessionGuest, End) {
        let wasi = guest.take_system();
        let ended = self.runtime.block_on(guest.run(self.program(Some(wasi))));
        (rests(ended.left), ended.outcome.end)
    }

    fn parts(&self, guest: &mut SessionGuest) -> Vec<Vec<u8>> {
        let (mut parts, mut from) = (Vec::new(), Some(ImageCursor::State));
        while let Some(place) = from {
            let (part, next) = guest.read_image(&self.template, &[], place, Pieces::default()).unwrap();
            parts.push(postcard::to_stdvec(&part).unwrap());
            from = next;
        }
        parts
    }

    /// The image of a module that was executed.
    fn module(&self) -> ModuleImage {
        self.module_of(&mut self.begun())
    }

    fn module_of(&self, tried: &mut SessionGuest) -> ModuleImage {
        let parts = self.parts(tried);
        let mut parts = parts.iter().map(|part| postcard::from_bytes::<ImagePart>(part).unwrap());
        let mut image = ModuleImage::beginning_with(parts.next().unwrap()).unwrap();
        parts.for_each(|part| image.add(part).unwrap());
        image
    }

    fn entered(&self, image: &ModuleImage) -> Result<Guest, String> {
        self.runtime.block_on(self.template.guest_with(image, ReadRecorder::default()))
    }

    fn restored(&self, parts: &[Vec<u8>]) -> Result<SessionGuest, String> {
        let read = |part: &Vec<u8>| postcard::from_bytes::<ImagePart>(part).map_err(|error| error.to_string());
        let mut parts = parts.iter().map(read);
        let Some(ImagePart::State(state)) = parts.next().transpose()? else {
            return Err("it does not begin with its state".to_owned());
        };
        let restoring = self.runtime.block_on(self.template.restore(*state, &self.mounts, &[]));
        let mut guest = restoring.map_err(|error| error.to_string())?;
        for part in parts {
            guest.add(part?).map_err(|error| error.to_string())?;
        }
        guest.finish(ID, Vec::new(), Vec::new(), false).map_err(|error| error.to_string())
    }
}

fn rests(left: Remains) -> SessionGuest {
    let Remains::Session(guest) = left else { panic!("the session has ended") };
    *guest
}

fn memory_of(guest: &SessionGuest) -> &[u8] {
    guest.entered.used.memory.data(&guest.entered.used.store)
}

#[test]
fn a_session_goes_on_from_its_image_and_so_does_each_copy() {
    let made = Made::with(EXPORTS);
    let mut first = made.begun();
    let file = first.files_mut().create_file(ROOT, "tmp/kept").unwrap();
    first.files_mut().write(file, 0, b"kept").unwrap();
    let parts = made.parts(&mut first);
    let copies = [made.restored(&parts).unwrap(), made.restored(&parts).unwrap()];
    for guest in copies.into_iter().chain([first]) {
        let (mut guest, second) = made.next(guest);
        assert_eq!(second, End::Exited { code: 14 });
        let mut content = [0; 4];
        guest.files().read(guest.files().find(ROOT, "tmp/kept").unwrap(), 0, &mut content).unwrap();
        assert_eq!(&content, b"kept");
        let parts = made.parts(&mut guest);
        assert_eq!(made.next(made.restored(&parts).unwrap()).1, End::Exited { code: 21 }, "an image of a copy");
    }
}

#[test]
fn only_pages_that_differ_are_in_the_image() {
    let made = Made::with(EXPORTS);
    let mut guest = made.begun();
    // A page that was written with the same content.
    let memory = guest.entered.used.memory;
    memory.data_mut(&mut guest.entered.used.store)[200_000] = 0;
    let parts = made.parts(&mut guest);
    let of_memory = parts.iter().filter_map(|part| match postcard::from_bytes::<ImagePart>(part).unwrap() {
        ImagePart::Memory(pieces) => Some(pieces.iter().map(|piece| piece.unwrap().1).collect::<Vec<_>>()),
        ImagePart::State(_) | ImagePart::Files(_) => None,
    });
    let changed: Vec<_> = of_memory.flatten().map(|offset| offset / PAGE_BYTES as u64).collect();
    // The reply at 512 and the source at 4096, and the two that count.
    assert_eq!(changed, [0, 1, 60_000 / 4096, 600_000 / 4096]);
}

#[test]
fn an_interpreter_whose_state_is_not_exported_has_no_images() {
    for exports in ["", r#"(export "__wizer_global_0" (global $count))"#] {
        let made = Made::with(exports);
        let mut guest = made.begun();
        let refused = guest.read_image(&made.template, &[], ImageCursor::State, Pieces::default()).unwrap_err();
        assert!(refused.contains("not exported"), "{refused}");
    }
}

#[test]
fn an_image_of_another_interpreter_is_refused() {
    let made = Made::with(EXPORTS);
    let other = Made::with(r#"(export "__wizer_memory_0" (memory 0))"#);
    let parts = made.parts(&mut made.begun());
    assert!(other.restored(&parts).unwrap_err().contains("other globals"));
    let begins_twice = [parts.clone(), parts].concat();
    assert!(made.restored(&begins_twice).unwrap_err().contains("begins twice"));
}

#[test]
fn without_space_for_its_instance_the_image_counts_as_good() {
    let made = Made::with(EXPORTS);
    let parts = made.parts(&mut made.begun());
    let state = || match postcard::from_bytes::<ImagePart>(&parts[0]).unwrap() {
        ImagePart::State(state) => *state,
        ImagePart::Files(_) | ImagePart::Memory(_) => panic!("it does not begin with its state"),
    };
    let restoring = || made.runtime.block_on(made.template.restore(state(), &made.mounts, &[]));
    let mut others = Vec::new();
    let refused = loop {
        match restoring() {
            Ok(guest) => others.push(guest),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, RestoreError::NoSpace(_)) && !others.is_empty(), "{refused}");
    others.clear();
    assert!(restoring().is_ok());
}

#[test]
fn random_numbers_of_a_copy_are_seeded_anew_before_its_next_program_alone() {
    let made = Made::with(EXPORTS);
    let mut first = made.begun();
    let parts = made.parts(&mut first);
    let mut copy = made.restored(&parts).unwrap();
    assert!(!copy.is_copy);
    copy.is_copy = true;
    let mut again = made.restored(&made.parts(&mut copy)).unwrap();
    assert!(again.is_copy, "also when it was stored before its first program");
    let wasi = again.take_system();
    let program = made.program(Some(wasi));
    let program = Program { host_call: program.host_call.reseeding(), ..program };
    assert!(!rests(made.runtime.block_on(again.run(program)).left).is_copy);
    assert!(made.next(copy).0.is_copy, "a look at it changes nothing");
}

/// A message that is too long for a frame would end the worker, with the runs of others.
#[test]
fn a_part_that_is_too_long_for_a_frame_is_refused() {
    let mut pieces = Pieces::default();
    pieces.push(0, 0, &vec![0; MAX_PART_BYTES - 100]);
    assert!(ImagePart::Memory(pieces.clone()).encode().is_ok());
    pieces.push(0, 0, &[0; 100]);
    assert_eq!(ImagePart::Memory(pieces).encode(), Err("it has too many files".to_owned()));
}

#[test]
fn hostile_bytes_as_images() {
    let made = Made::with(EXPORTS);
    let mut first = made.begun();
    let file = first.files_mut().create_file(ROOT, "tmp/kept").unwrap();
    first.files_mut().write(file, 0, b"kept").unwrap();
    first.files_mut().replace_file("/input/sent", Bytes::from_static(b"sent"), true).unwrap();
    let parts = made.parts(&mut first);
    let seeds: Vec<_> = parts.iter().map(Vec::as_slice).collect();
    sekisho_core::fuzz::feed(&seeds, |bytes| {
        let bytes = [bytes.to_vec()];
        let as_beginning = [&bytes[..], &parts[1..]].concat();
        let as_later_part = [&parts[..1], &bytes[..]].concat();
        for parts in [as_beginning, as_later_part] {
            // A restored session can be written down again.
            if let Ok(mut guest) = made.restored(&parts) {
                made.parts(&mut guest);
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_restored_as_it_was(writes in prop::collection::vec((0..(10_usize << 16), any::<u8>()), 0..400)) {
        let made = Made::with(EXPORTS);
        let mut guest = made.begun();
        let memory = guest.entered.used.memory;
        for (at, byte) in writes {
            memory.data_mut(&mut guest.entered.used.store)[at] = byte;
        }
        let again = made.restored(&made.parts(&mut guest)).unwrap();
        prop_assert!(memory_of(&again) == memory_of(&guest));
    }

    #[test]
    fn a_damaged_image_is_refused_or_is_a_session(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let made = Made::with(EXPORTS);
        let mut parts = made.parts(&mut made.begun());
        let shorter = parts[..cut.index(parts.len())].to_vec();
        for (part, at, byte) in changes {
            let part = part.index(parts.len());
            let at = at.index(parts[part].len());
            parts[part][at] = byte;
        }
        for parts in [parts, shorter] {
            let _ = made.restored(&parts);
        }
    }
}
