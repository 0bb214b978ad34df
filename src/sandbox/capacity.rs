//! How many runs, and how much memory, are allowed at once.

use std::fs;

use crate::control_group;
use sekisho_config::SandboxConfig;
use sekisho_guest_protocol::{Job, JobLimits, MAX_HELD_REPLY_BYTES};

/// The capacity for runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// Running at once, over all workers.
    pub(crate) instances: usize,
    /// The memory of all runs together.
    pub(crate) memory_bytes: u64,
    /// The memory of the sleeping runs. The rest is more than one run needs to go on, also where an owner has three
    /// quarters at most, so that sleeping runs never wait only for each other.
    pub(crate) sleeping_bytes: u64,
    /// The memory of all sessions between their calls, in addition.
    pub(crate) session_bytes: u64,
    /// Runs that may wait.
    pub(crate) max_queued: usize,
}

/// The bytes of the inputs of one run: as much as a body can hold.
const UNCOUNTED_BYTES: u64 = 4 << 20;

/// Used where the kernel does not report memory: enough for one run with the default limit.
const UNKNOWN_MEMORY_BYTES: u64 = 2 << 30;

impl Capacity {
    /// As configured. Without a configured memory limit, half of the memory that is available now, and at least one
    /// run's.
    pub(crate) fn of(config: &SandboxConfig) -> Self {
        let one_run = (u64::from(config.memory_limit_mb) << 20)
            .saturating_add(u64::from(config.max_file_bytes))
            .saturating_add(u64::from(config.max_image_bytes))
            .saturating_add(if config.code_mode.enabled { MAX_HELD_REPLY_BYTES } else { 0 });
        let configured = config.max_memory_mb.map(|megabytes| megabytes << 20);
        let memory_bytes = configured.unwrap_or_else(|| available_memory() / 2).max(one_run);
        Self {
            instances: config.max_instances as usize,
            memory_bytes,
            sleeping_bytes: (memory_bytes / 4 * 3).saturating_sub(one_run),
            session_bytes: config.sessions.max_memory_mb.map_or(memory_bytes / 4, |megabytes| megabytes << 20),
            max_queued: config.max_queued as usize,
        }
    }
}

/// The maximum memory of one run: its linear memory, the files and results that are sent to it and that it leaves, and the state
/// of its session that is kept, which are in the worker's memory. Inputs up to the size of a request's body are not counted.
pub(crate) fn memory_of_run(job: &Job) -> u64 {
    let JobLimits { memory_bytes, file_bytes, image_bytes, tool_calls, state_bytes, .. } = job.limits;
    let replies = if tool_calls > 0 { MAX_HELD_REPLY_BYTES } else { 0 };
    let inputs = job.files.iter().map(|file| file.content.len() as u64).sum::<u64>().saturating_sub(UNCOUNTED_BYTES);
    [file_bytes, image_bytes, inputs, replies, state_bytes].into_iter().fold(memory_bytes, u64::saturating_add)
}

/// The available memory of the machine, and of our control groups.
fn available_memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_of(&text));
    machine.into_iter().chain(control_group::available_memory()).min().unwrap_or(UNKNOWN_MEMORY_BYTES)
}

/// `MemAvailable` of `/proc/meminfo` (proc(5)), in bytes.
fn available_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_read_from_the_kernel() {
        let meminfo = "MemTotal:       24603820 kB\nMemFree:          123 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(available_of(meminfo), Some(1 << 20));
        assert_eq!(available_of("MemTotal: 1 kB\n"), None);
        let available = available_memory();
        assert!(available > 1 << 20, "{available} bytes on the machine that runs the tests");
    }

    #[test]
    fn any_machine_has_capacity_for_one_run() {
        let config = SandboxConfig { memory_limit_mb: 4_096, max_memory_mb: Some(1), ..SandboxConfig::default() };
        assert_eq!(Capacity::of(&config).memory_bytes, (4_096 << 20) + (64 << 20));
        let config = SandboxConfig { max_memory_mb: Some(8_192), ..SandboxConfig::default() };
        assert_eq!(Capacity::of(&config).memory_bytes, 8_192 << 20);
    }
}
