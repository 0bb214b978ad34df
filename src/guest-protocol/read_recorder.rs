//! The values that a program reads and that differ between runs: clocks, random bytes, and which of several calls ended
//! first. They are recorded in their order. A program that is resumed reads the same again, and then goes on with new
//! values.

use std::collections::VecDeque;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::{ReadSoFar, ReadStanding};
use sekisho_core::reading::{MAX_JOURNAL_BYTES, Reading};

/// Readings of clocks that are recorded.
pub const MAX_CLOCK_READINGS: u32 = 10_000;

/// The first value of a simulated clock, in nanoseconds since 1970: the year 2026. Each reading adds the step.
const SIMULATED_START: u64 = 1_767_225_600_000_000_000;
const SIMULATED_STEP: u64 = 1_000_000;
/// The length of a digest.
const SIMULATED_BYTES: usize = 32;

/// The recorder of one run, from the start of its instance on. By default it records.
#[derive(Debug, Default)]
pub struct ReadRecorder(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The values that the program has yet to read again.
    past: VecDeque<Reading>,
    /// The values that it has read since they were last taken.
    recorded: Vec<Reading>,
    clock_readings: u32,
    /// The size of the readings of random bytes.
    random_bytes: usize,
    /// Nothing is recorded any more, and why.
    end: Option<ReadStanding>,
    /// The last reading of the clock that only goes forward.
    last_elapsed: u64,
    /// By how much that clock was ahead of the one of this run, when the program had read all again.
    ahead: Option<u64>,
    /// For a simulation: the number of readings.
    simulated: Option<u64>,
}

impl ReadRecorder {
    /// For a program that reads this again, which counts against the bounds of its run.
    pub fn replaying(past: Vec<Reading>) -> Self {
        let clock_readings = past.iter().filter(|reading| reading.is_of_clock()).count();
        let random_bytes = past.iter().filter(|reading| !reading.is_of_clock()).map(Reading::bytes).sum();
        let clock_readings = u32::try_from(clock_readings).unwrap_or(u32::MAX);
        Self(Mutex::new(State { past: past.into(), clock_readings, random_bytes, ..State::default() }))
    }

    /// For a snapshot: clocks and random bytes are simulated, so that each machine prepares the same one, and sessions
    /// of one can go on at another. A program gets random bytes of its own, whatever the snapshot has.
    pub fn simulated() -> Self {
        Self(Mutex::new(State { simulated: Some(0), ..State::default() }))
    }

    /// Records nothing: no journal has the values of this program.
    pub fn switch_off(&self) {
        self.0.lock().stop(ReadStanding::NotRecorded);
    }

    /// Whether the program has yet to read something again.
    pub fn is_replaying(&self) -> bool {
        !self.0.lock().past.is_empty()
    }

    /// The time, which is `now` if the program has not read it before.
    pub fn real(&self, now: u64) -> u64 {
        let mut state = self.0.lock();
        if let Some(readings) = state.simulate() {
            return SIMULATED_START + readings * SIMULATED_STEP;
        }
        match state.past.pop_front() {
            Some(Reading::Real(then)) => return then,
            Some(_) => state.diverge(),
            None => {}
        }
        state.record_clock(Reading::Real(now));
        now
    }

    /// The clock that only goes forward, also from one process to another.
    pub fn elapsed(&self, now: u64) -> u64 {
        let mut state = self.0.lock();
        if let Some(readings) = state.simulate() {
            return readings * SIMULATED_STEP;
        }
        match state.past.pop_front() {
            Some(Reading::Elapsed(then)) => {
                state.last_elapsed = then;
                return then;
            }
            Some(_) => state.diverge(),
            None => {}
        }
        let last = state.last_elapsed;
        let ahead = *state.ahead.get_or_insert(last.saturating_sub(now));
        let now = now.saturating_add(ahead);
        state.record_clock(Reading::Elapsed(now));
        now
    }

    /// Fills `room` with the bytes that the program has read before, or with the bytes of `fill`.
    pub fn random<E>(&self, room: &mut [u8], fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        let mut state = self.0.lock();
        if let Some(readings) = state.simulate() {
            for (number, part) in room.chunks_mut(SIMULATED_BYTES).enumerate() {
                let digest = Sha256::new().chain_update(readings.to_le_bytes()).chain_update(number.to_le_bytes());
                part.copy_from_slice(&digest.finalize()[..part.len()]);
            }
            return Ok(());
        }
        match state.past.pop_front() {
            Some(Reading::Random(then)) if then.len() == room.len() => {
                room.copy_from_slice(&then);
                return Ok(());
            }
            Some(_) => state.diverge(),
            None => {}
        }
        fill(room)?;
        state.record_random(room);
        Ok(())
    }

    /// How a wait has ended before: with the request that was answered, or with none. `None`: the program has not waited
    /// before.
    pub fn past_wait(&self) -> Option<Option<u32>> {
        let mut state = self.0.lock();
        match state.past.pop_front() {
            Some(Reading::Waited(answered)) => return Some(answered),
            Some(_) => state.diverge(),
            None => {}
        }
        None
    }

    /// A wait has ended.
    pub fn record_wait(&self, answered: Option<u32>) {
        self.0.lock().record_clock(Reading::Waited(answered));
    }

    /// The program does something else than before.
    pub fn diverge(&self) {
        self.0.lock().diverge();
    }

    /// The values that the program has read since the last call of this function.
    pub fn take(&self) -> ReadSoFar {
        let mut state = self.0.lock();
        let standing = match state.end {
            Some(end) => end,
            None if !state.past.is_empty() => ReadStanding::Behind,
            None => ReadStanding::Recorded,
        };
        ReadSoFar { readings: std::mem::take(&mut state.recorded), standing }
    }
}

impl State {
    /// The number of a reading that is simulated.
    fn simulate(&mut self) -> Option<u64> {
        let readings = self.simulated.as_mut()?;
        *readings += 1;
        Some(*readings)
    }

    fn record_clock(&mut self, reading: Reading) {
        if self.end.is_some() {
            return;
        }
        self.clock_readings = self.clock_readings.saturating_add(1);
        match self.clock_readings > MAX_CLOCK_READINGS {
            true => self.stop(ReadStanding::TooManyReadings),
            false => self.recorded.push(reading),
        }
    }

    fn record_random(&mut self, bytes: &[u8]) {
        if self.end.is_some() {
            return;
        }
        let reading = Reading::Random(bytes.to_vec());
        self.random_bytes = self.random_bytes.saturating_add(reading.bytes());
        match self.random_bytes > MAX_JOURNAL_BYTES {
            true => self.stop(ReadStanding::TooManyBytes),
            false => self.recorded.push(reading),
        }
    }

    fn diverge(&mut self) {
        self.stop(ReadStanding::Diverged);
    }

    /// The first reason counts.
    fn stop(&mut self, end: ReadStanding) {
        self.end.get_or_insert(end);
        self.past = VecDeque::new();
        self.recorded = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Real,
        Elapsed,
        Random(usize),
        Wait(Option<u32>),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Real),
            Just(Step::Elapsed),
            (0..40_usize).prop_map(Step::Random),
            any::<Option<u32>>().prop_map(Step::Wait),
        ]
    }

    /// The values that a program with these steps sees, at a moment from which clocks and bytes derive.
    fn run(recorder: &ReadRecorder, steps: &[Step], moment: u64) -> Vec<Vec<u8>> {
        let seen = |(at, step): (u64, &Step)| match step {
            Step::Real => recorder.real(moment + at).to_be_bytes().to_vec(),
            Step::Elapsed => recorder.elapsed(at).to_be_bytes().to_vec(),
            Step::Random(length) => {
                let mut room = vec![0; *length];
                let fill = |room: &mut [u8]| {
                    room.fill(u8::try_from((moment + at) % 251).unwrap());
                    Ok::<_, ()>(())
                };
                recorder.random(&mut room, fill).unwrap();
                room
            }
            Step::Wait(answered) => {
                let answered = recorder.past_wait().unwrap_or_else(|| {
                    let answered = answered.map(|number| number.wrapping_add(u32::try_from(moment % 9).unwrap()));
                    recorder.record_wait(answered);
                    answered
                });
                format!("{answered:?}").into_bytes()
            }
        };
        (0..).zip(steps).map(seen).collect()
    }

    proptest! {
        #[test]
        fn a_program_that_is_resumed_reads_what_it_read_before(
            steps in prop::collection::vec(step(), 0..30),
            more in prop::collection::vec(step(), 0..9),
        ) {
            let first = ReadRecorder::default();
            let seen = run(&first, &steps, 1_000);
            let read = first.take();
            prop_assert_eq!(read.standing, ReadStanding::Recorded);
            let again = ReadRecorder::replaying(read.readings);
            prop_assert_eq!(run(&again, &steps, 5_000), seen);
            let read_again = again.take();
            prop_assert!(!again.is_replaying() && read_again.readings.is_empty());
            prop_assert_eq!(read_again.standing, ReadStanding::Recorded);
            run(&again, &more, 5_000);
            prop_assert_eq!(again.take().readings.len(), more.len(), "what is new is recorded");
        }
    }

    #[test]
    fn clocks_go_on_where_they_were() {
        let recorder = ReadRecorder::replaying(vec![Reading::Elapsed(500), Reading::Real(7), Reading::Elapsed(900)]);
        assert!(recorder.is_replaying() && recorder.take().standing == ReadStanding::Behind);
        assert_eq!([recorder.elapsed(1), recorder.real(8), recorder.elapsed(2)], [500, 7, 900]);
        assert_eq!([recorder.elapsed(3), recorder.elapsed(10), recorder.real(9)], [900, 907, 9], "it never goes back");
        let late = ReadRecorder::replaying(vec![Reading::Elapsed(500)]);
        assert_eq!([late.elapsed(1), late.elapsed(700)], [500, 700]);
    }

    #[test]
    fn another_reading_than_before_is_a_divergence() {
        for step in [Step::Real, Step::Random(2), Step::Wait(None)] {
            let recorder = ReadRecorder::replaying(vec![Reading::Elapsed(1), Reading::Random(vec![0; 3])]);
            run(&recorder, &[step], 1);
            let read = recorder.take();
            assert!(read.standing == ReadStanding::Diverged && read.readings.is_empty() && !recorder.is_replaying());
        }
        let recorder = ReadRecorder::replaying(vec![Reading::Random(vec![0; 3])]);
        run(&recorder, &[Step::Random(2)], 1);
        assert_eq!(recorder.take().standing, ReadStanding::Diverged, "another length");
    }

    #[test]
    fn what_is_read_again_counts_too() {
        let clocks = vec![Reading::Elapsed(1); MAX_CLOCK_READINGS as usize];
        let random = vec![Reading::Random(vec![1; MAX_JOURNAL_BYTES / 2])];
        let recorder = ReadRecorder::replaying([clocks.clone(), random].concat());
        for _ in clocks {
            recorder.elapsed(1);
        }
        let mut room = vec![0; MAX_JOURNAL_BYTES / 2];
        recorder.random(&mut room, |_| Err(())).unwrap();
        assert_eq!(recorder.take(), ReadSoFar::default());
        let more = ReadRecorder::replaying(vec![Reading::Random(vec![1; MAX_JOURNAL_BYTES / 2])]);
        for _ in 0..2 {
            more.random(&mut room, |_| Ok::<_, ()>(())).unwrap();
        }
        assert_eq!(more.take().standing, ReadStanding::TooManyBytes);
        recorder.real(1);
        assert_eq!(recorder.take().standing, ReadStanding::TooManyReadings);
    }

    #[test]
    fn what_a_snapshot_reads_is_the_same_each_time() {
        let steps = [Step::Real, Step::Random(70), Step::Elapsed, Step::Random(70), Step::Elapsed];
        let seen = run(&ReadRecorder::simulated(), &steps, 1_000);
        assert_eq!(run(&ReadRecorder::simulated(), &steps, 5_000), seen);
        assert!(seen[1] != seen[3] && seen[1][..32] != seen[1][32..64] && seen[2] < seen[4], "{seen:?}");
    }

    #[test]
    fn readings_are_bounded() {
        let recorder = ReadRecorder::default();
        for _ in 0..MAX_CLOCK_READINGS {
            recorder.elapsed(1);
        }
        assert_eq!(recorder.take().standing, ReadStanding::Recorded);
        recorder.record_wait(None);
        assert_eq!(recorder.take(), ReadSoFar { readings: Vec::new(), standing: ReadStanding::TooManyReadings });
        let recorder = ReadRecorder::default();
        for _ in 0..2 {
            recorder.random(&mut vec![0; MAX_JOURNAL_BYTES / 2 + 1], |_| Ok::<_, ()>(())).unwrap();
        }
        assert_eq!(recorder.take().standing, ReadStanding::TooManyBytes);
        let recorder = ReadRecorder::default();
        for _ in 0..MAX_JOURNAL_BYTES / 32 {
            recorder.random(&mut [], |_| Ok::<_, ()>(())).unwrap();
        }
        assert_eq!(recorder.take().standing, ReadStanding::Recorded);
        recorder.random(&mut [], |_| Ok::<_, ()>(())).unwrap();
        assert_eq!(recorder.take().standing, ReadStanding::TooManyBytes, "empty ones take memory too");
        let recorder = ReadRecorder::default();
        recorder.switch_off();
        recorder.real(1);
        assert_eq!(recorder.take(), ReadSoFar { readings: Vec::new(), standing: ReadStanding::NotRecorded });
    }
}
