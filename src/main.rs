//! Arguments → command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // The allocator asks for huge pages. With them the heap of a gateway with thousands of tools takes half as much
    // again, and no call is faster. Where the kernel knows nothing of it, nothing is lost but that.
    _ = rustix::thread::disable_transparent_huge_pages(true);
    sekisho::cli::main()
}
