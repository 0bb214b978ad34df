//! Fair shares of a bounded resource: slots, queue positions, bytes of memory, connections.
//!
//! Every unit belongs to an owner, which is a caller of a tenant. While units are free, anybody takes them. Then owners
//! wait, and a unit that is given back goes to the owner that holds least: first the tenant, then the caller within it.
//! Those that hold the same take turns, however many requests each has.
//!
//! Held units cannot be taken back, so a reserve remains: once a second owner has been seen within [`SEEN`], no owner
//! is given more than three quarters of the capacity, and the rest is left to owners that hold less. A share of units
//! that are held long ([`Share::keeping_one`]) also has its last unit for a caller that holds none: nobody needs to have
//! been seen for that. Capacities below [`MIN_RESERVED`] have no reserve.

mod bytes;
mod lease;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

pub use self::bytes::HeldBytes;
pub use self::lease::Lease;

use super::caller::Owner;

/// How long an owner counts after it was last seen.
const SEEN: Duration = Duration::from_secs(60);

/// The smallest capacity with a reserve.
const MIN_RESERVED: u64 = 4;

/// A resource of bounded capacity.
#[derive(Debug)]
pub struct Share {
    state: Mutex<State>,
}

/// Why there is no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLease {
    /// More than the whole capacity was requested.
    TooLarge,
    /// Too many wait already, and none of them belongs to an owner with more waiting.
    QueueFull,
    /// No unit was given back before the deadline.
    DeadlinePassed,
}

#[derive(Debug)]
struct State {
    capacity: u64,
    /// Units that only a caller is given that holds none.
    kept: u64,
    used: u64,
    waiting: usize,
    /// The number of the last request or turn.
    last_number: u64,
    /// Only callers that hold units or wait.
    callers: HashMap<Arc<str>, CallerState>,
    /// Only tenants of such callers.
    tenants: HashMap<Arc<str>, TenantState>,
    recent_callers: Recent,
    recent_tenants: Recent,
}

#[derive(Debug)]
struct CallerState {
    tenant: Arc<str>,
    held: u64,
    queue: VecDeque<Waiting>,
    /// The number of its last turn, or from when it waits. The lowest is next.
    turn: u64,
}

#[derive(Debug, Default)]
struct TenantState {
    held: u64,
    waiting: usize,
    turn: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    amount: u64,
    grant: oneshot::Sender<Lease>,
}

/// The two seen last, the later one first.
#[derive(Debug, Default)]
struct Recent([Option<(Arc<str>, Instant)>; 2]);

impl Share {
    /// `capacity` in units, at least 1.
    pub fn new(capacity: u64) -> Arc<Self> {
        Self::with(capacity, 0)
    }

    /// As [`new`](Self::new), for units that are held long: the last one is only given to a caller that holds none, so
    /// that a caller who comes first does not have to wait for one who keeps all others. Requests are for one unit each.
    pub fn keeping_one(capacity: u64) -> Arc<Self> {
        Self::with(capacity, 1)
    }

    fn with(capacity: u64, kept: u64) -> Arc<Self> {
        let state = State {
            capacity: capacity.max(1),
            kept,
            used: 0,
            waiting: 0,
            last_number: 0,
            callers: HashMap::new(),
            tenants: HashMap::new(),
            recent_callers: Recent::default(),
            recent_tenants: Recent::default(),
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Remembers that the owner may soon want units: the reserve for others counts it. For an owner whose need is met
    /// without units.
    pub fn see(&self, owner: &Owner) {
        self.state.lock().see(owner, Instant::now());
    }

    /// Whether any owner counts still. If this is false and nobody holds units, a new share can replace this one.
    pub fn was_seen(&self) -> bool {
        self.state.lock().recent_callers.has_any(Instant::now())
    }

    /// Takes units if that is possible without waiting and without overtaking anybody who waits.
    pub fn try_acquire(self: &Arc<Self>, owner: &Owner, amount: u64) -> Option<Lease> {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.see(owner, now);
        let is_free = state.fits(owner, amount, now) && (state.waiting == 0 || state.next(now).is_none());
        is_free.then(|| {
            state.take(owner, amount);
            Lease::new(self, owner, amount)
        })
    }

    /// Takes units, after waiting for them if necessary, behind at most `max_waiting` other requests. When there are
    /// more, the newest request of the owner with the most requests is refused, not one of an owner with fewer.
    pub async fn acquire(
        self: &Arc<Self>,
        owner: &Owner,
        amount: u64,
        max_waiting: usize,
        deadline: Instant,
    ) -> Result<Lease, NoLease> {
        if let Some(lease) = self.try_acquire(owner, amount) {
            return Ok(lease);
        }
        let (_place, mut granted) = self.queue(owner, amount, max_waiting)?;
        // Units may have been given back since.
        self.grant();
        loop {
            // The reserve ends when other owners have not been seen for a while.
            let until = deadline.min(Instant::now() + SEEN);
            match timeout_at(until, &mut granted).await {
                Ok(Ok(lease)) if Instant::now() < deadline => return Ok(lease),
                Ok(Ok(_too_late)) => return Err(NoLease::DeadlinePassed),
                // The place was given to an owner with fewer requests.
                Ok(Err(_)) => return Err(NoLease::QueueFull),
                Err(_) if until == deadline => return Err(NoLease::DeadlinePassed),
                Err(_) => self.grant(),
            }
        }
    }

    /// Sets another capacity, at least 1. A lower one takes effect as units are given back.
    pub fn resize(self: &Arc<Self>, capacity: u64) {
        self.state.lock().capacity = capacity.max(1);
        self.grant();
    }

    pub fn capacity(&self) -> u64 {
        self.state.lock().capacity
    }

    /// Units held.
    pub fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    fn queue(
        self: &Arc<Self>,
        owner: &Owner,
        amount: u64,
        max_waiting: usize,
    ) -> Result<(Place<'_>, oneshot::Receiver<Lease>), NoLease> {
        let mut state = self.state.lock();
        if amount > state.capacity {
            return Err(NoLease::TooLarge);
        }
        if state.waiting >= max_waiting && !state.displace(owner) {
            return Err(NoLease::QueueFull);
        }
        let (grant, granted) = oneshot::channel();
        let number = state.enqueue(owner, amount, grant);
        Ok((Place { share: self, owner: owner.clone(), number }, granted))
    }

    /// Grants free units to the owners that wait. Leases are sent without the lock: a lease without a receiver is given
    /// back here.
    fn grant(self: &Arc<Self>) {
        let now = Instant::now();
        let mut granted = Vec::new();
        {
            let mut state = self.state.lock();
            while let Some((owner, waiting)) = state.grant_next(now) {
                granted.push((waiting.grant, Lease::new(self, &owner, waiting.amount)));
            }
        }
        for (grant, lease) in granted {
            drop(grant.send(lease));
        }
    }
}

/// A position in the queue; given up on drop.
struct Place<'a> {
    share: &'a Arc<Share>,
    owner: Owner,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.share.state.lock().leave(&self.owner, self.number);
        // A large request at the front of the queue may have blocked others.
        self.share.grant();
    }
}

impl State {
    fn see(&mut self, owner: &Owner, now: Instant) {
        self.recent_callers.see(&owner.caller, now);
        self.recent_tenants.see(&owner.tenant, now);
    }

    /// Whether the units are free, and not in the reserve for others.
    fn fits(&self, owner: &Owner, amount: u64, now: Instant) -> bool {
        let held = self.callers.get(&owner.caller).map_or(0, |caller| caller.held);
        let held_by_tenant = self.tenants.get(&owner.tenant).map_or(0, |tenant| tenant.held);
        amount <= self.free() && self.is_within_share(owner, [held, held_by_tenant], amount, now)
    }

    fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    fn is_within_share(&self, owner: &Owner, [by_caller, by_tenant]: [u64; 2], amount: u64, now: Instant) -> bool {
        if self.capacity < MIN_RESERVED {
            return true;
        }
        let most = (self.capacity * 3).div_ceil(4);
        let is_within = |held: u64| held == 0 || held + amount <= most;
        (by_caller == 0 || self.kept == 0 || self.free() >= amount + self.kept)
            && (is_within(by_caller) || !self.recent_callers.has_other(&owner.caller, now))
            && (is_within(by_tenant) || !self.recent_tenants.has_other(&owner.tenant, now))
    }

    fn take(&mut self, owner: &Owner, amount: u64) {
        self.used += amount;
        let (caller, tenant) = self.states(owner);
        caller.held += amount;
        tenant.held += amount;
    }

    fn give_back(&mut self, owner: &Owner, amount: u64) {
        self.used -= amount;
        // Each is looked up once.
        if let Entry::Occupied(mut caller) = self.callers.entry(Arc::clone(&owner.caller)) {
            caller.get_mut().held -= amount;
            if caller.get().is_idle() {
                caller.remove();
            }
        }
        if let Entry::Occupied(mut tenant) = self.tenants.entry(Arc::clone(&owner.tenant)) {
            tenant.get_mut().held -= amount;
            if tenant.get().is_idle() {
                tenant.remove();
            }
        }
    }

    fn enqueue(&mut self, owner: &Owner, amount: u64, grant: oneshot::Sender<Lease>) -> u64 {
        let number = self.next_number();
        self.waiting += 1;
        let (caller, tenant) = self.states(owner);
        if caller.queue.is_empty() {
            caller.turn = number;
        }
        if tenant.waiting == 0 {
            tenant.turn = number;
        }
        tenant.waiting += 1;
        caller.queue.push_back(Waiting { number, amount, grant });
        number
    }

    /// Grants the next request. `None` also while it does not fit: smaller ones do not overtake it for ever.
    fn grant_next(&mut self, now: Instant) -> Option<(Owner, Waiting)> {
        if self.waiting == 0 {
            return None;
        }
        let (owner, free, number) = (self.next(now)?, self.free(), self.next_number());
        let (caller, tenant) = self.states(&owner);
        let waiting = caller.queue.pop_front_if(|first| first.amount <= free)?;
        tenant.waiting -= 1;
        (caller.turn, tenant.turn) = (number, number);
        self.waiting -= 1;
        self.take(&owner, waiting.amount);
        Some((owner, waiting))
    }

    /// The next owner: of the owners that may be given more, the one that holds least.
    fn next(&self, now: Instant) -> Option<Owner> {
        let candidates = self.callers.iter().filter_map(|(name, caller)| {
            let owner = Owner { tenant: Arc::clone(&caller.tenant), caller: Arc::clone(name) };
            let tenant = self.tenants.get(&caller.tenant)?;
            let amount = caller.queue.front()?.amount;
            let may_take = self.is_within_share(&owner, [caller.held, tenant.held], amount, now);
            may_take.then_some(((tenant.held, caller.held, tenant.turn, caller.turn), owner))
        });
        candidates.min_by_key(|(order, _)| *order).map(|(_, owner)| owner)
    }

    /// Removes the newest request of the tenant with the most requests, and of its caller with the most, if that is
    /// more than `owner` would have.
    fn displace(&mut self, owner: &Owner) -> bool {
        let of_tenant = |tenant: &Arc<str>| self.tenants.get(tenant).map_or(0, |tenant| tenant.waiting);
        let own = self.callers.get(&owner.caller).map_or(0, |caller| caller.queue.len());
        let counts = self.callers.values_mut().map(|caller| (of_tenant(&caller.tenant), caller));
        let newest = |caller: &CallerState| caller.queue.back().map(|waiting| waiting.number);
        let longest = counts.max_by_key(|(of_tenant, caller)| (*of_tenant, caller.queue.len(), newest(caller)));
        let Some((waiting, longest)) = longest else { return false };
        let has_more = match longest.tenant == owner.tenant {
            true => longest.queue.len() > own + 1,
            false => waiting > of_tenant(&owner.tenant) + 1,
        };
        if has_more && longest.queue.pop_back().is_some() {
            self.waiting -= 1;
            if let Some(tenant) = self.tenants.get_mut(&longest.tenant) {
                tenant.waiting -= 1;
            }
        }
        has_more
    }

    fn leave(&mut self, owner: &Owner, number: u64) {
        let (caller, tenant) = self.states(owner);
        let before = caller.queue.len();
        caller.queue.retain(|waiting| waiting.number != number);
        let left = before - caller.queue.len();
        tenant.waiting -= left;
        self.waiting -= left;
        self.forget_idle(owner);
    }

    fn states(&mut self, owner: &Owner) -> (&mut CallerState, &mut TenantState) {
        let idle = || CallerState { tenant: Arc::clone(&owner.tenant), held: 0, queue: VecDeque::new(), turn: 0 };
        (
            self.callers.entry(Arc::clone(&owner.caller)).or_insert_with(idle),
            self.tenants.entry(Arc::clone(&owner.tenant)).or_default(),
        )
    }

    fn forget_idle(&mut self, owner: &Owner) {
        if self.callers.get(&owner.caller).is_some_and(CallerState::is_idle) {
            self.callers.remove(&owner.caller);
        }
        if self.tenants.get(&owner.tenant).is_some_and(TenantState::is_idle) {
            self.tenants.remove(&owner.tenant);
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

impl CallerState {
    fn is_idle(&self) -> bool {
        self.held == 0 && self.queue.is_empty()
    }
}

impl TenantState {
    fn is_idle(&self) -> bool {
        self.held == 0 && self.waiting == 0
    }
}

impl Recent {
    fn see(&mut self, name: &Arc<str>, now: Instant) {
        match &mut self.0 {
            [Some((latest, at)), _] if latest == name => *at = now,
            [latest, previous] => *previous = latest.replace((Arc::clone(name), now)),
        }
    }

    fn has_any(&self, now: Instant) -> bool {
        self.0.iter().flatten().any(|(_, at)| now.duration_since(*at) < SEEN)
    }

    /// Whether another one has been seen.
    fn has_other(&self, name: &Arc<str>, now: Instant) -> bool {
        self.0.iter().flatten().any(|(seen, at)| seen != name && now.duration_since(*at) < SEEN)
    }
}

#[cfg(test)]
mod tests;
