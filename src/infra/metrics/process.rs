//! Metrics of the process itself, by the names that all Prometheus client libraries use. They are read from `/proc` here:
//! the library's own collector brings a crate for all of `/proc` and a second version of rustix, 2 % of a build from
//! nothing.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, IntGauge};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

#[derive(Debug)]
pub(super) struct ProcessMetrics {
    cpu_seconds: Counter,
    open_fds: IntGauge,
    max_fds: IntGauge,
    virtual_bytes: IntGauge,
    resident_bytes: IntGauge,
    start_time: IntGauge,
    threads: IntGauge,
}

/// The fields of `/proc/self/stat` that are exported; times in clock ticks.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: i64,
    start_ticks: i64,
    virtual_bytes: i64,
    resident_pages: i64,
}

impl ProcessMetrics {
    pub(super) fn new() -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| IntGauge::new(name, help);
        let metrics = Self {
            cpu_seconds: Counter::new("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")?,
            open_fds: gauge("process_open_fds", "Number of open file descriptors.")?,
            max_fds: gauge("process_max_fds", "Maximum number of open file descriptors.")?,
            virtual_bytes: gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.")?,
            resident_bytes: gauge("process_resident_memory_bytes", "Resident memory size in bytes.")?,
            start_time: gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")?,
            threads: gauge("process_threads", "Number of OS threads in the process.")?,
        };
        if let (Some(stat), Some(boot_time)) = (Stat::read(), boot_time()) {
            metrics.start_time.set(boot_time + stat.start_ticks / clock_ticks());
        }
        Ok(metrics)
    }

    fn all(&self) -> [&dyn Collector; 7] {
        let Self { cpu_seconds, open_fds, max_fds, virtual_bytes, resident_bytes, start_time, threads } = self;
        [cpu_seconds, open_fds, max_fds, virtual_bytes, resident_bytes, start_time, threads]
    }
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.all().iter().flat_map(|metric| metric.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if let Some(stat) = Stat::read() {
            let cpu_seconds = stat.cpu_ticks as f64 / clock_ticks() as f64;
            // Two readers at once: the later one may have read the earlier value.
            self.cpu_seconds.inc_by((cpu_seconds - self.cpu_seconds.get()).max(0.0));
            self.threads.set(stat.threads);
            self.virtual_bytes.set(stat.virtual_bytes);
            self.resident_bytes.set(stat.resident_pages.saturating_mul(page_size().try_into().unwrap_or(i64::MAX)));
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            self.open_fds.set(open.count().try_into().unwrap_or(i64::MAX));
        }
        if let Some(max) = getrlimit(Resource::Nofile).current {
            self.max_fds.set(max.try_into().unwrap_or(i64::MAX));
        }
        self.all().iter().flat_map(|metric| metric.collect()).collect()
    }
}

impl Stat {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// The fields as proc(5) numbers them, from 1. The second is the program's name, which may contain anything.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<i64>().ok();
        Some(Self {
            cpu_ticks: (field(14)?.checked_add(field(15)?)?).try_into().ok()?,
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// When the machine started, in seconds since the epoch.
fn boot_time() -> Option<i64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn clock_ticks() -> i64 {
    clock_ticks_per_second().try_into().unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_moves_no_field() {
        let line = "77 (a) b (c)) S 1 77 77 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 1234 8192000 300 1844674 1 1";
        let expected =
            Stat { cpu_ticks: 300, threads: 9, start_ticks: 1234, virtual_bytes: 8_192_000, resident_pages: 300 };
        assert_eq!(Stat::parse(line), Some(expected));
        for wrong in ["", "77 (a", "77 (a) S 1 77", &line.replace("1234", "x")] {
            assert_eq!(Stat::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn this_process_is_described() {
        let metrics = ProcessMetrics::new().unwrap();
        assert_eq!((metrics.collect().len(), metrics.desc().len()), (7, 7));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let age = now.abs_diff(metrics.start_time.get().try_into().unwrap());
        assert!(age < 24 * 60 * 60, "{age}");
        // The kernel counts in steps of some milliseconds.
        while metrics.cpu_seconds.get() == 0.0 {
            metrics.collect();
        }
        assert!(metrics.threads.get() >= 1);
        assert!((1..metrics.virtual_bytes.get()).contains(&metrics.resident_bytes.get()));
        assert!((3..=metrics.max_fds.get()).contains(&metrics.open_fds.get()));
        let before = metrics.cpu_seconds.get();
        metrics.collect();
        assert!(metrics.cpu_seconds.get() >= before);
    }
}
