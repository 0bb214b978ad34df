//! `poll_oneoff`: the only call that waits. It suspends the fiber, so other calls continue meanwhile.

use std::time::Duration;

use super::Wasi;
use super::errno::Errno;
use super::memory::GuestMemory;
use super::records;

/// Maximum subscriptions of one call.
const MAX_SUBSCRIPTIONS: u32 = 1024;
const SUBSCRIPTION_BYTES: u32 = 48;
const EVENT_BYTES: u32 = 32;
const KIND_CLOCK: u8 = 0;
const KIND_READ: u8 = 1;
const KIND_WRITE: u8 = 2;
const FLAG_ABSOLUTE: u16 = 1;

/// The subscriptions, read before the wait: the guest's memory cannot be borrowed meanwhile.
#[derive(Debug)]
pub(super) struct Poll {
    /// Until the first event.
    pub(super) wait: Duration,
    events: Vec<(Duration, [u8; 32])>,
}

impl Poll {
    /// Reads the subscriptions. Streams and files are always ready.
    pub(super) fn read(wasi: &Wasi, memory: &GuestMemory<'_>, at: u32, count: u32) -> Result<Self, Errno> {
        if count == 0 || count > MAX_SUBSCRIPTIONS {
            return Err(Errno::Invalid);
        }
        let mut events = Vec::new();
        for number in 0..count {
            let at = at.checked_add(number * SUBSCRIPTION_BYTES).ok_or(Errno::Fault)?;
            events.push(subscription(wasi, &memory.array(at)?)?);
        }
        let wait = events.iter().map(|(wait, _)| *wait).min().unwrap_or_default();
        Ok(Self { wait, events })
    }

    /// Writes the events that are due after the wait, and their number.
    pub(super) fn write(self, memory: &mut GuestMemory<'_>, at: u32, out: u32) -> Result<(), Errno> {
        let mut written: u32 = 0;
        for (_, event) in self.events.iter().filter(|(wait, _)| *wait <= self.wait) {
            memory.store(at.checked_add(written * EVENT_BYTES).ok_or(Errno::Fault)?, event)?;
            written += 1;
        }
        memory.store(out, &written.to_le_bytes())
    }
}

fn subscription(wasi: &Wasi, record: &[u8; SUBSCRIPTION_BYTES as usize]) -> Result<(Duration, [u8; 32]), Errno> {
    let user_data = field(record, 0);
    let [kind] = field(record, 8);
    let about = u32::from_le_bytes(field(record, 16));
    let (wait, errno) = match kind {
        KIND_CLOCK => {
            let absolute = u16::from_le_bytes(field(record, 40)) & FLAG_ABSOLUTE != 0;
            match until(wasi, about, u64::from_le_bytes(field(record, 24)), absolute) {
                Ok(wait) => (wait, 0),
                Err(errno) => (Duration::ZERO, errno as u16),
            }
        }
        KIND_READ..=KIND_WRITE => (Duration::ZERO, wasi.handles.get(about).map_or_else(|errno| errno as u16, |_| 0)),
        _ => return Err(Errno::Invalid),
    };
    Ok((wait, records::event(user_data, errno, kind)))
}

/// Duration until a subscription's time, which is relative or absolute.
fn until(wasi: &Wasi, clock: u32, nanoseconds: u64, absolute: bool) -> Result<Duration, Errno> {
    let now = wasi.now(clock)?;
    Ok(Duration::from_nanos(if absolute { nanoseconds.saturating_sub(now) } else { nanoseconds }))
}

fn field<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.iter_mut().zip(record.iter().skip(at)).for_each(|(to, from)| *to = *from);
    value
}
