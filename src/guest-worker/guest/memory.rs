use wasmtime::ResourceLimiter;

/// The limit to which a guest's memory may grow, and the host's observations.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    most: u64,
    pub(super) peak: u64,
    pub(super) refused: bool,
}

/// The interpreter needs more than a run's memory limit before its program has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the interpreter alone needs {0} bytes of memory")]
pub(super) struct TooSmall(u64);

impl MemoryLimit {
    pub(super) fn new(most: u64, peak: u64) -> Self {
        Self { most, peak, refused: false }
    }

    /// The same limit, for a memory that has a size already.
    /// Errors: when the size is more than the limit.
    pub(super) fn beginning_at(self, size: u64) -> Result<Self, TooSmall> {
        if size > self.most { Err(TooSmall(size)) } else { Ok(Self { peak: size, ..self }) }
    }
}

impl ResourceLimiter for MemoryLimit {
    fn memory_growing(&mut self, _now: usize, wanted: usize, _most: Option<usize>) -> wasmtime::Result<bool> {
        let allowed = wanted as u64 <= self.most;
        self.refused |= !allowed;
        if allowed {
            self.peak = self.peak.max(wanted as u64);
        }
        Ok(allowed)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = true;
        Ok(())
    }

    /// A table keeps the size with which its instance begins, which the manifest of the interpreter bounds; one that begins empty is
    /// bounded by the pool.
    fn table_growing(&mut self, now: usize, _wanted: usize, _most: Option<usize>) -> wasmtime::Result<bool> {
        Ok(now == 0)
    }
}
