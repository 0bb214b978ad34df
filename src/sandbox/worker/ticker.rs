use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::Engine;

/// How long a program runs before it lets another have its turn.
const SLICE: Duration = Duration::from_millis(1);
/// Slices that pass without a program until the thread sleeps: waking it costs more than some of them.
const IDLE_SLICES: u32 = 100;

/// The thread that ends time slices: it moves the engine's epoch on while programs run.
pub(super) struct Ticker {
    running: Arc<AtomicBool>,
    asleep: Arc<AtomicBool>,
    thread: Thread,
}

impl Ticker {
    /// Lives as long as the process. Comes back once the thread runs: what a thread asks of the system when it begins
    /// is forbidden when the walls are up.
    pub(super) fn start(engine: Engine) -> io::Result<Self> {
        let (begun, has_begun) = mpsc::channel();
        let (running, asleep) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_running, is_asleep) = (Arc::clone(&running), Arc::clone(&asleep));
        let thread = thread::Builder::new().name("ticker".to_owned()).spawn(move || {
            drop(begun);
            let mut idle = 0;
            loop {
                thread::sleep(SLICE);
                engine.increment_epoch();
                idle = if is_running.load(Ordering::Relaxed) { 0 } else { idle + 1 };
                if idle < IDLE_SLICES {
                    continue;
                }
                is_asleep.store(true, Ordering::SeqCst);
                // Looked at again: it may have been set after the look above and before the line above.
                while !is_running.load(Ordering::SeqCst) {
                    thread::park();
                }
                is_asleep.store(false, Ordering::SeqCst);
            }
        })?;
        // Nothing is sent: the end of the channel is the news.
        let _: Result<(), _> = has_begun.recv();
        Ok(Self { running, asleep, thread: thread.thread().clone() })
    }

    /// Says whether programs run.
    pub(super) fn run(&self, running: bool) {
        self.running.store(running, Ordering::SeqCst);
        if running && self.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}
