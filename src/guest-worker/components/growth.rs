use wasmtime::ResourceLimiter;

/// The limit to which all memories of a call may grow together, and the host's observations.
#[derive(Debug)]
pub(super) struct Growth {
    most: u64,
    pub(super) used: u64,
    pub(super) refused: bool,
}

impl Growth {
    pub(super) fn new(most: u64) -> Self {
        Self { most, used: 0, refused: false }
    }
}

impl ResourceLimiter for Growth {
    fn memory_growing(&mut self, now: usize, wanted: usize, _most: Option<usize>) -> wasmtime::Result<bool> {
        let used = self.used.saturating_add(wanted.saturating_sub(now) as u64);
        let allowed = used <= self.most;
        self.refused |= !allowed;
        if allowed {
            self.used = used;
        }
        Ok(allowed)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = true;
        Ok(())
    }

    /// The pool limits the size of each table, and their number.
    fn table_growing(&mut self, _now: usize, _wanted: usize, _most: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_grow_to_one_limit_together() {
        let mut growth = Growth::new(100);
        for (now, wanted, allowed) in [(0, 60, true), (0, 40, true), (40, 41, false), (60, 60, true)] {
            assert_eq!(growth.memory_growing(now, wanted, None).unwrap(), allowed, "{now} → {wanted}");
        }
        assert_eq!((growth.used, growth.refused), (100, true));
    }
}
