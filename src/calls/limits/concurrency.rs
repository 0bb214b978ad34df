//! Limits the calls that run at once: over all tools, and of each tool. Callers share the slots fairly ([`Share`]).
//!
//! A call takes a slot of its tool first and one of the whole gateway second, so that calls queued for one slow tool do
//! not block others. A call made by a running tool takes no slot of the gateway, since its parent holds one. It waits
//! for a slot of its tool unless that tool makes calls itself: then the holders of the slots may wait for calls like
//! this one.
//!
//! A call of a tool whose limit is counted over all replicas needs one of their slots too ([`GlobalPermits`]).

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::Numbers;
use super::global::{GlobalPermit, GlobalPermits, NoPermit};
use crate::tool::Tool;
use sekisho_core::call::CallContext;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::share::{Lease, NoLease, Share};

/// The limits and their queues.
#[derive(Debug)]
pub(super) struct Concurrency {
    numbers: ArcSwap<Numbers>,
    gateway: Arc<Share>,
    /// By the tool's name: a tool rebuilt by a reload keeps its slots.
    #[expect(clippy::disallowed_types, reason = "one entry for each registered tool, whose slots must be found")]
    tools: dashmap::DashMap<String, Arc<Share>>,
}

/// The slots of one running call.
#[derive(Debug)]
pub(super) struct ConcurrencyPermit {
    _tool: Lease,
    _global: Option<GlobalPermit>,
    _gateway: Option<Lease>,
}

impl Concurrency {
    pub(super) fn new(numbers: Numbers) -> Self {
        let gateway = Share::new(numbers.max_concurrent.get().into());
        Self { numbers: ArcSwap::from_pointee(numbers), gateway, tools: Default::default() }
    }

    /// Tools apply a new limit at their next call.
    pub(super) fn reconfigure(&self, numbers: Numbers) {
        self.gateway.resize(numbers.max_concurrent.get().into());
        self.numbers.store(Arc::new(numbers));
    }

    /// `permits`: where replicas count slots together.
    pub(super) async fn enter(
        &self,
        call: &CallContext,
        tool: &Tool,
        permits: Option<&GlobalPermits>,
    ) -> Result<ConcurrencyPermit, CallError> {
        let permits = permits.filter(|_| tool.metadata.is_concurrency_global);
        let of_tool = self.slots_of(tool);
        let owner = &call.caller.owner;
        if call.nesting.depth > 0 && tool.metadata.sandboxed {
            let slot = of_tool.try_acquire(owner, 1).ok_or_else(|| refused_nested_call(&of_tool, tool.name()))?;
            let global = take_global(permits, &of_tool, tool.name(), None).await?;
            return Ok(ConcurrencyPermit { _tool: slot, _global: global, _gateway: None });
        }
        let max_waiting = self.numbers.load().max_queued as usize;
        let deadline = call.begin_by(tool.timeout());
        let tool_slot = of_tool.acquire(owner, 1, max_waiting, deadline).await;
        let tool_slot = tool_slot.map_err(|why| refused(&of_tool, tool.name(), why))?;
        let global = take_global(permits, &of_tool, tool.name(), Some(deadline)).await?;
        if call.nesting.depth > 0 {
            return Ok(ConcurrencyPermit { _tool: tool_slot, _global: global, _gateway: None });
        }
        let gateway_slot = self.gateway.acquire(owner, 1, max_waiting, deadline).await;
        let gateway_slot = gateway_slot.map_err(|why| refused(&self.gateway, "the gateway", why))?;
        Ok(ConcurrencyPermit { _tool: tool_slot, _global: global, _gateway: Some(gateway_slot) })
    }

    pub(super) fn in_flight(&self) -> usize {
        let running: u64 = self.tools.iter().map(|slots| slots.used()).sum();
        usize::try_from(running).unwrap_or(usize::MAX)
    }

    /// Removes tools without running or waiting calls, which hold a reference to the slots, and without callers who count for
    /// the reserve.
    pub(super) fn evict_idle(&self) {
        self.tools.retain(|_, slots| Arc::strong_count(slots) > 1 || slots.was_seen());
        self.tools.shrink_to_fit();
    }

    #[cfg(test)]
    pub(super) fn tools_known(&self) -> usize {
        self.tools.len()
    }

    /// Calls running and waiting.
    #[cfg(test)]
    pub(super) fn gateway_state(&self) -> (u64, usize) {
        (self.gateway.used(), self.gateway.waiting())
    }

    fn slots_of(&self, tool: &Tool) -> Arc<Share> {
        let limit = tool.metadata.max_concurrent;
        let limit = limit.unwrap_or_else(|| self.numbers.load().max_concurrent_per_tool.get()).into();
        let known = self.tools.get(tool.name()).map(|slots| Arc::clone(&slots));
        let slots = known.unwrap_or_else(|| {
            Arc::clone(&self.tools.entry(tool.name().to_owned()).or_insert_with(|| Share::new(limit)))
        });
        if slots.capacity() != limit {
            slots.resize(limit);
        }
        slots
    }
}

/// Seconds after which a refused caller should retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Takes a slot of all replicas; `until`: how long to wait for one.
async fn take_global(
    permits: Option<&GlobalPermits>,
    slots: &Share,
    tool: &str,
    until: Option<Instant>,
) -> Result<Option<GlobalPermit>, CallError> {
    let Some(permits) = permits else { return Ok(None) };
    let limit = u32::try_from(slots.capacity()).unwrap_or(u32::MAX);
    // Boxed, because few tools have such a limit.
    Box::pin(permits.take(tool, limit, until)).await.map(Some).map_err(|why| match why {
        NoPermit::NoneFree => refused_nested_call(slots, tool),
        NoPermit::DeadlinePassed => refused(slots, tool, NoLease::DeadlinePassed),
        NoPermit::Away => {
            let message = format!(
                "the calls of {tool} that run at all replicas cannot be counted: the database that they share is away; \
                 call again later"
            );
            CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(5))
        }
    })
}

fn refused(slots: &Share, whose: &str, why: NoLease) -> CallError {
    let reason = match why {
        // A call takes one slot, and there is at least one.
        NoLease::QueueFull | NoLease::TooLarge => "and the queue is full",
        NoLease::DeadlinePassed => "and none became free before this call's deadline; the tool has not run",
    };
    overloaded(slots, whose, &format!("{reason}; call again in 1 s"))
}

fn refused_nested_call(slots: &Share, whose: &str) -> CallError {
    overloaded(
        slots,
        whose,
        "and a call that a running tool makes of a tool that makes calls itself does not wait for a slot",
    )
}

fn overloaded(slots: &Share, whose: &str, reason: &str) -> CallError {
    let message = format!("no slot of {whose} is free for you ({} in all), {reason}", slots.capacity());
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}
