//! Arguments → command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // The allocator requests huge pages by default: they make the heap of a gateway with thousands of tools half as
    // large again, and calls no faster. A kernel without this setting ignores it.
    _ = rustix::thread::disable_transparent_huge_pages(true);
    sekisho::main()
}
