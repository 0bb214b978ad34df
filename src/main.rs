//! Arguments → command.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    sekisho::run_if_sandbox_helper();
    // Where the kernel gives huge pages to all, they make the heap of a gateway with thousands of tools half as large again, and
    // calls no faster. A kernel without this setting ignores it.
    _ = rustix::thread::disable_transparent_huge_pages(true);
    sekisho::main()
}
