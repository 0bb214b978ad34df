//! How long an evaluation may work. The limit counts the processor time of its thread: on a busy machine the thread waits for a
//! processor, and rules that need little would deny. The engine is stopped by real time only. An evaluation that was stopped
//! before it had its processor time is repeated with more real time, up to a bound.

use std::time::{Duration, Instant};

use sekisho_core::thread_clock;

/// Bound of the real time of all attempts, as a multiple of the limit.
const MAX_REAL_TIME: u32 = 10;

pub(super) trait Clocks {
    /// Real time.
    fn real(&self) -> Duration;
    /// Processor time of the current thread.
    fn processor(&self) -> Duration;
}

/// The machine's own clocks: this is work, which a paused tokio clock would not see.
pub(super) struct MachineClocks(Instant);

impl MachineClocks {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clocks for MachineClocks {
    fn real(&self) -> Duration {
        self.0.elapsed()
    }

    fn processor(&self) -> Duration {
        thread_clock::processor_time()
    }
}

/// Runs an evaluation, which gets the real time after which it must stop.
/// Errors: it failed, worked longer than `limit`, or did not end in the real time of all attempts.
pub(super) fn limited<T>(
    limit: Duration,
    clocks: &impl Clocks,
    evaluation: impl Fn(Duration) -> Result<T, String>,
) -> Result<T, String> {
    let end = clocks.real() + limit * MAX_REAL_TIME;
    // More than the limit: every thread is interrupted now and then, and rules that work too long are not to be repeated for that.
    let mut real_time = limit + limit / 4;
    loop {
        let (begun, used_before) = (clocks.real(), clocks.processor());
        let ended = evaluation(real_time);
        // The engine does not interrupt builtins, so an evaluation may end with a result after its time.
        if clocks.processor().saturating_sub(used_before) > limit {
            return Err(format!("the evaluation took more than {} ms of processor time", limit.as_millis()));
        }
        let now = clocks.real();
        if ended.is_ok() || now.saturating_sub(begun) <= real_time {
            return ended;
        }
        let left = end.saturating_sub(now);
        if left.is_zero() {
            let (limit, waited) = (limit.as_millis(), (limit * MAX_REAL_TIME).as_millis());
            return Err(format!(
                "the evaluation did not have {limit} ms of processor time in {waited} ms: the machine is overloaded"
            ));
        }
        real_time = (real_time * 2).min(left);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(50);

    /// Clocks that go on only with the evaluations of a test.
    #[derive(Default)]
    struct Machine {
        real: Cell<Duration>,
        processor: Cell<Duration>,
        attempts: RefCell<Vec<Duration>>,
    }

    impl Clocks for Machine {
        fn real(&self) -> Duration {
            self.real.get()
        }

        fn processor(&self) -> Duration {
            self.processor.get()
        }
    }

    impl Machine {
        /// Evaluates rules that need `work` of a processor, while the thread has one for a part in `share` of the time.
        fn evaluate(&self, work: Duration, share: u32) -> Result<(), String> {
            limited(LIMIT, self, |real_time| {
                self.attempts.borrow_mut().push(real_time);
                let (needed, stopped) = (work * share, real_time + Duration::from_millis(1));
                let took = needed.min(stopped);
                self.real.set(self.real.get() + took);
                self.processor.set(self.processor.get() + took / share);
                if needed <= real_time { Ok(()) } else { Err("stopped".to_owned()) }
            })
        }
    }

    fn millis(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    #[test]
    fn rules_that_need_little_pass_on_a_busy_machine() {
        let machine = Machine::default();
        assert_eq!(machine.evaluate(millis(40), 4), Ok(()));
        assert_eq!(*machine.attempts.borrow(), [millis(62) + Duration::from_micros(500), millis(125), millis(250)]);
    }

    #[test]
    fn rules_that_work_too_long_deny_at_the_first_attempt() {
        let machine = Machine::default();
        let failure = machine.evaluate(millis(1000), 1).unwrap_err();
        assert!(failure.contains("more than 50 ms of processor time"), "{failure}");
        assert_eq!(machine.attempts.borrow().len(), 1);
    }

    #[test]
    fn rules_that_work_too_long_deny_on_a_busy_machine() {
        let machine = Machine::default();
        let failure = machine.evaluate(millis(1000), 3).unwrap_err();
        assert!(failure.contains("more than 50 ms of processor time"), "{failure}");
        assert!(machine.real.get() <= LIMIT * MAX_REAL_TIME, "{:?}", machine.real.get());
    }

    #[test]
    fn without_a_processor_the_evaluation_denies_at_the_bound() {
        let machine = Machine::default();
        let failure = machine.evaluate(millis(40), 1000).unwrap_err();
        assert!(failure.contains("overloaded"), "{failure}");
        assert!(machine.real.get() < LIMIT * (MAX_REAL_TIME + 1), "{:?}", machine.real.get());
    }

    #[test]
    fn a_builtin_that_takes_the_time_denies_also_with_a_result() {
        let machine = Machine::default();
        let denied = limited(LIMIT, &machine, |_| {
            machine.processor.set(machine.processor.get() + millis(51));
            machine.real.set(machine.real.get() + millis(51));
            Ok(())
        });
        assert!(denied.is_err());
    }

    #[test]
    fn a_failure_is_not_repeated() {
        let machine = Machine::default();
        let attempts = Cell::new(0);
        let failed: Result<(), _> = limited(LIMIT, &machine, |_| {
            attempts.set(attempts.get() + 1);
            Err("a rule failed".to_owned())
        });
        assert_eq!((failed, attempts.get()), (Err("a rule failed".to_owned()), 1));
    }
}
