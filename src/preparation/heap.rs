//! Arranges the heap of a guest before its snapshot, so that a call writes to few of its pages. The file `arrange` of the
//! interpreter's manifest, which can list the objects, requests it through `host.call`; its head has the figures.

use wasmtime::{AsContextMut, Caller, Extern, Memory};

use sekisho_guest_system::wasi::{Errno, GuestMemory};
use sekisho_interpreters::interpreter::Heap;

/// `host.call`'s result for any other request.
const FAULT: i32 = -2;
/// Request: make these objects immortal; their addresses follow, 32 bits each.
const IMMORTAL: &[u8] = b"immortal";
/// Request: allocate the free gaps inside the heap.
const FILL: &[u8] = b"fill";

/// Larger than any gap: an allocation of this size is at the heap's end.
const BEYOND_GAPS: u32 = 1 << 20;
/// Sizes are halved from the maximum down to this one, then reduced by this step.
const SMALL_GAP: u32 = 1 << 10;
const GRANULE: u32 = 8;

/// Implements `host.call` while a snapshot is prepared. Without a layout of objects it refuses everything.
/// Errors: when the guest ends while it allocates.
pub(super) async fn call<T: Send + 'static>(
    caller: &mut Caller<'_, T>,
    layout: Option<&Heap>,
    (at, length, out, length_out): (u32, u32, u32, u32),
) -> wasmtime::Result<i32> {
    let (Some(Extern::Memory(memory)), Some(layout)) = (caller.get_export("memory"), layout) else { return Ok(FAULT) };
    let mut view = GuestMemory(memory.data_mut(caller.as_context_mut()));
    let Ok(request) = view.bytes(at, length).map(<[u8]>::to_vec) else { return Ok(FAULT) };
    if let Some(addresses) = request.strip_prefix(IMMORTAL) {
        if make_immortal(&mut view, layout, addresses).is_err() {
            return Ok(FAULT);
        }
    } else if request == FILL {
        fill_gaps(caller).await?;
    } else {
        return Ok(FAULT);
    }
    Ok(answer_nothing(caller, memory, out, length_out))
}

fn make_immortal(memory: &mut GuestMemory<'_>, layout: &Heap, addresses: &[u8]) -> Result<(), Errno> {
    for address in addresses.chunks(4) {
        let at = u32::from_le_bytes(address.try_into().map_err(|_| Errno::Invalid)?);
        let count = memory.u32_at(at)?;
        let kind = memory.u32_at(at.checked_add(layout.type_offset).ok_or(Errno::Fault)?)?;
        // Both hold for an object. Writing to anything else would corrupt the interpreter.
        if count == 0 || memory.u32_at(kind)? == 0 {
            return Err(Errno::Invalid);
        }
        if count < layout.immortal_count {
            memory.store(at, &layout.immortal_count.to_le_bytes())?;
        }
    }
    Ok(())
}

/// Allocates all free gaps before the heap's end, largest first, so that the allocations of a call are adjacent,
/// behind it.
async fn fill_gaps<T: Send + 'static>(caller: &mut Caller<'_, T>) -> wasmtime::Result<()> {
    let Some(Extern::Func(allocate)) = caller.get_export("host_alloc") else { return Ok(()) };
    let allocate = allocate.typed::<u32, u32>(caller.as_context_mut())?;
    let end = allocate.call_async(caller.as_context_mut(), BEYOND_GAPS).await?;
    let halved =
        std::iter::successors(Some(BEYOND_GAPS / 2), |size| Some(size / 2)).take_while(|size| *size > SMALL_GAP);
    let small = (1..=SMALL_GAP / GRANULE).rev().map(|granules| granules * GRANULE);
    for size in halved.chain(small) {
        // 0 means out of memory.
        while (1..end).contains(&allocate.call_async(caller.as_context_mut(), size).await?) {}
    }
    Ok(())
}

fn answer_nothing<T: 'static>(caller: &mut Caller<'_, T>, memory: Memory, out: u32, length_out: u32) -> i32 {
    let mut view = GuestMemory(memory.data_mut(caller.as_context_mut()));
    let given = view.store(out, &[0; 4]).and_then(|()| view.store(length_out, &[0; 4]));
    if given.is_ok() { 0 } else { FAULT }
}

#[cfg(test)]
mod tests {
    use wasmtime::{Engine, Linker, Module, Store};

    use super::*;

    const IMMORTAL_COUNT: u32 = 5 << 28;

    fn layout() -> Heap {
        Heap { arrange: "arrange_heap.py".into(), immortal_count: IMMORTAL_COUNT, type_offset: 4 }
    }

    #[test]
    fn mortal_objects_become_immortal_and_immortal_ones_stay_as_they_are() {
        let words = [3_u32, 8, 1, 0, 7 << 28, 8];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let addresses = [0_u32, 16].map(u32::to_le_bytes).concat();
        make_immortal(&mut GuestMemory(&mut bytes), &layout(), &addresses).unwrap();
        let counts = [0, 16].map(|at| GuestMemory(&mut bytes).u32_at(at).unwrap());
        assert_eq!(counts, [IMMORTAL_COUNT, 7 << 28]);
    }

    #[test]
    fn nothing_is_written_at_addresses_without_an_object() {
        // Free memory, an object whose type is none, one whose type is outside the memory, and addresses outside it.
        let words = [0_u32, 8, 1, 0, 2, 12, 2, 4000];
        let before: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let wrong = [0_u32, 8, 16, 24, 28, 1 << 20, u32::MAX].map(|at| at.to_le_bytes().to_vec());
        for wrong in wrong.into_iter().chain([vec![0; 3]]) {
            let mut bytes = before.clone();
            make_immortal(&mut GuestMemory(&mut bytes), &layout(), &wrong).unwrap_err();
            assert_eq!(bytes, before, "at {wrong:?}");
        }
    }

    /// Its allocator has five gaps of 64 bytes, then continues at 4096.
    const GAPS: &str = r#"(module
        (import "host" "call" (func $call (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (global $gaps (mut i32) (i32.const 5))
        (global $end (mut i32) (i32.const 4096))
        (data (i32.const 16) "fill")
        (func (export "host_alloc") (param $size i32) (result i32)
            (if (i32.and (i32.le_u (local.get $size) (i32.const 64)) (i32.gt_s (global.get $gaps) (i32.const 0)))
                (then
                    (global.set $gaps (i32.sub (global.get $gaps) (i32.const 1)))
                    (return (i32.add (i32.const 64) (i32.mul (global.get $gaps) (i32.const 64))))))
            (global.set $end (i32.add (global.get $end) (local.get $size)))
            (i32.sub (global.get $end) (local.get $size)))
        (func (export "ask") (result i32) (call $call (i32.const 16) (i32.const 4) (i32.const 32) (i32.const 36)))
        (func (export "gaps") (result i32) (global.get $gaps)))"#;

    #[tokio::test]
    async fn every_gap_is_filled() {
        let engine = Engine::default();
        let module = Module::new(&engine, wat::parse_str(GAPS).unwrap()).unwrap();
        let mut linker = Linker::new(&engine);
        linker
            .func_wrap_async("host", "call", |mut caller: Caller<'_, ()>, arguments: (u32, u32, u32, u32)| {
                Box::new(async move { call(&mut caller, Some(&layout()), arguments).await })
            })
            .unwrap();
        let mut store = Store::new(&engine, ());
        let instance = linker.instantiate_async(&mut store, &module).await.unwrap();
        let ask = instance.get_typed_func::<(), i32>(&mut store, "ask").unwrap();
        assert_eq!(ask.call_async(&mut store, ()).await.unwrap(), 0);
        let gaps = instance.get_typed_func::<(), i32>(&mut store, "gaps").unwrap();
        assert_eq!(gaps.call_async(&mut store, ()).await.unwrap(), 0);
    }
}
