use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::Engine;

/// Time slice of a program before another has its turn.
const SLICE: Duration = Duration::from_millis(1);
/// Slices without a program after which the thread sleeps: waking it costs more than some of them.
const IDLE_SLICES: u32 = 100;

/// The thread that ends time slices: it advances the engine's epoch while programs run.
pub(super) struct Ticker {
    running: Arc<AtomicBool>,
    asleep: Arc<AtomicBool>,
    thread: Thread,
}

impl Ticker {
    /// Runs as long as the process. Returns once the thread runs: the system calls of a starting thread are forbidden
    /// after hardening.
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
                // Checked again: it may have been set between the check above and the line above.
                while !is_running.load(Ordering::SeqCst) {
                    thread::park();
                }
                is_asleep.store(false, Ordering::SeqCst);
            }
        })?;
        // No value is ever sent: the closed channel is the event.
        let _: Result<(), _> = has_begun.recv();
        Ok(Self { running, asleep, thread: thread.thread().clone() })
    }

    /// Sets whether programs run.
    pub(super) fn run(&self, running: bool) {
        self.running.store(running, Ordering::SeqCst);
        if running && self.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}
