use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

fn owner(tenant: &str, caller: &str) -> Owner {
    Owner { tenant: tenant.into(), caller: format!("{tenant}/{caller}").into() }
}

/// Requests a unit; the queue and the time are long enough.
fn request(share: &Arc<Share>, owner: &Owner, amount: u64) -> impl Future<Output = Result<Lease, NoLease>> + use<> {
    let (share, owner) = (Arc::clone(share), owner.clone());
    async move { share.acquire(&owner, amount, 1_000, Instant::now() + Duration::from_secs(600)).await }
}

fn is_pending<T>(future: Pin<&mut impl Future<Output = T>>) -> bool {
    future.now_or_never().is_none()
}

#[tokio::test(start_paused = true)]
async fn one_owner_alone_gets_everything() {
    let (share, ann) = (Share::new(8), owner("acme", "ann"));
    let leases: Vec<_> = (0..8).map(|_| share.try_acquire(&ann, 1).expect("it is alone")).collect();
    assert!(share.try_acquire(&ann, 1).is_none());
    drop(leases);
    assert_eq!((share.used(), share.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_quarter_is_left_to_others_while_they_are_seen() {
    let (share, flood, other) = (Share::new(8), owner("acme", "flood"), owner("acme", "other"));
    drop(share.try_acquire(&other, 1).expect("free"));
    let leases: Vec<_> = std::iter::from_fn(|| share.try_acquire(&flood, 1)).collect();
    assert_eq!(leases.len(), 6);
    let of_other = share.try_acquire(&other, 1).expect("the rest is for it");
    assert!(share.try_acquire(&other, 1).is_some(), "of the rest, it may take more than one");
    drop(of_other);
    tokio::time::advance(SEEN).await;
    assert_eq!(std::iter::from_fn(|| share.try_acquire(&flood, 1)).collect::<Vec<_>>().len(), 2, "the other has left");
}

#[tokio::test(start_paused = true)]
async fn who_is_seen_without_taking_a_unit_has_a_reserve_too() {
    let (share, flood, other) = (Share::new(8), owner("acme", "flood"), owner("acme", "other"));
    assert!(!share.was_seen());
    share.see(&other);
    assert_eq!(std::iter::from_fn(|| share.try_acquire(&flood, 1)).collect::<Vec<_>>().len(), 6);
    tokio::time::advance(SEEN).await;
    assert!(!share.was_seen());
}

#[tokio::test(start_paused = true)]
async fn many_callers_of_one_tenant_leave_a_quarter_to_other_tenants() {
    let (share, other) = (Share::new(8), owner("rival", "bob"));
    drop(share.try_acquire(&other, 1).expect("free"));
    let callers = (0..20).map(|number| owner("acme", &number.to_string()));
    let leases: Vec<_> = callers.filter_map(|caller| share.try_acquire(&caller, 1)).collect();
    assert_eq!(leases.len(), 6);
    assert!(share.try_acquire(&other, 1).is_some());
}

#[tokio::test(start_paused = true)]
async fn the_last_unit_that_is_kept_is_for_who_has_none_and_comes_while_all_others_are_held() {
    let (share, flood) = (Share::keeping_one(10), owner("acme", "flood"));
    let held: Vec<_> = std::iter::from_fn(|| share.try_acquire(&flood, 1)).collect();
    assert_eq!(held.len(), 9);
    let mut of_flood: Vec<_> = (0..20).map(|_| Box::pin(request(&share, &flood, 1))).collect();
    assert!(of_flood.iter_mut().all(|request| is_pending(request.as_mut())));
    let new = request(&share, &owner("rival", "new"), 1).now_or_never();
    let new = new.expect("at once").expect("the last unit");
    drop(new);
    assert!(of_flood.iter_mut().all(|request| is_pending(request.as_mut())), "it is kept for the next");
    let again = request(&share, &owner("rival", "third"), 1).now_or_never();
    assert!(matches!(again, Some(Ok(_))), "{again:?}");
    let small = Share::keeping_one(MIN_RESERVED - 1);
    assert_eq!(std::iter::from_fn(|| small.try_acquire(&flood, 1)).collect::<Vec<_>>().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_the_reserve_gets_it_when_the_others_have_left() {
    let (share, flood, other) = (Share::new(4), owner("acme", "flood"), owner("acme", "other"));
    drop(share.try_acquire(&other, 1).expect("free"));
    let leases: Vec<_> = std::iter::from_fn(|| share.try_acquire(&flood, 1)).collect();
    assert_eq!(leases.len(), 3);
    let began = Instant::now();
    let last = request(&share, &flood, 1).await.expect("the other does not come back");
    assert_eq!(began.elapsed(), SEEN);
    drop((leases, last));
}

#[tokio::test(start_paused = true)]
async fn a_unit_given_back_goes_to_the_owner_that_holds_least() {
    const FLOOD: usize = 0;
    const MODEST: usize = 1;
    const RIVAL: usize = 2;
    let owners = [owner("acme", "flood"), owner("acme", "modest"), owner("rival", "bob")];
    // With one unit nobody who waits holds any: the tenants take turns, and within one its callers.
    for (capacity, order) in [(1, [FLOOD, RIVAL, MODEST]), (2, [RIVAL, FLOOD, MODEST]), (3, [RIVAL, MODEST, FLOOD])] {
        let share = Share::new(capacity);
        let mut held: VecDeque<_> = std::iter::from_fn(|| share.try_acquire(&owners[FLOOD], 1)).collect();
        assert_eq!(held.len() as u64, capacity, "there is no reserve");
        let mut waiting = owners.each_ref().map(|owner| Box::pin(request(&share, owner, 1)));
        for waiting in &mut waiting {
            assert!(is_pending(waiting.as_mut()));
        }
        for next in order {
            drop(held.pop_front());
            let granted = waiting[next].as_mut().now_or_never().expect("its turn");
            held.push_back(granted.expect("a unit"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_has_room_for_those_with_fewer_requests() {
    let share = Share::new(1);
    let (flood, modest, rival) = (owner("acme", "flood"), owner("acme", "modest"), owner("rival", "bob"));
    let running = share.try_acquire(&flood, 1).expect("free");
    let enter = |owner: &Owner| {
        let (share, owner) = (Arc::clone(&share), owner.clone());
        async move { share.acquire(&owner, 1, 2, Instant::now() + Duration::from_secs(5)).await.map(drop) }
    };
    let (mut first, mut second) = (pin!(enter(&flood)), pin!(enter(&flood)));
    assert!(is_pending(first.as_mut()) && is_pending(second.as_mut()));
    assert_eq!(enter(&flood).await, Err(NoLease::QueueFull), "its own requests fill the queue");
    let mut of_modest = pin!(enter(&modest));
    assert!(is_pending(of_modest.as_mut()));
    assert_eq!(second.await, Err(NoLease::QueueFull), "the newest request of the flood was removed");
    let mut of_rival = pin!(enter(&rival));
    assert!(is_pending(of_rival.as_mut()), "the requests of a tenant count together");
    assert_eq!(share.waiting(), 2);
    drop(running);
    assert_eq!(first.await, Ok(()), "it arrived first");
    assert_eq!(of_rival.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_at_its_deadline_and_at_once_when_it_can_never_be_granted() {
    let (share, ann) = (Share::new(2), owner("acme", "ann"));
    assert_eq!(request(&share, &ann, 3).await.map(drop), Err(NoLease::TooLarge));
    let _held = share.try_acquire(&ann, 2).expect("free");
    let deadline = Instant::now() + Duration::from_secs(300);
    assert_eq!(share.acquire(&ann, 1, 1, deadline).await.map(drop), Err(NoLease::DeadlinePassed));
    assert_eq!(Instant::now(), deadline);
    assert_eq!(share.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn small_requests_do_not_overtake_a_large_one() {
    let (share, ann, bob) = (Share::new(3), owner("acme", "ann"), owner("rival", "bob"));
    let held = share.try_acquire(&ann, 1).expect("free");
    let mut large = pin!(request(&share, &bob, 3));
    assert!(is_pending(large.as_mut()));
    assert!(share.try_acquire(&ann, 1).is_none());
    let mut small = pin!(request(&share, &ann, 1));
    assert!(is_pending(small.as_mut()));
    drop(held);
    drop(large.await.expect("everything is free"));
    assert!(small.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn leases_come_back_after_a_panic() {
    let (share, ann) = (Share::new(10), owner("acme", "ann"));
    let task = tokio::spawn({
        let lease = share.try_acquire(&ann, 10).expect("free");
        async move {
            let _lease = lease;
            panic!("in a tool");
        }
    });
    let mut waiting = pin!(request(&share, &ann, 4));
    assert!(is_pending(waiting.as_mut()));
    assert!(task.await.is_err());
    assert!(waiting.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_new_capacity_admits_those_who_wait_or_takes_effect_as_units_are_given_back() {
    let (share, ann) = (Share::new(1), owner("acme", "ann"));
    let first = share.try_acquire(&ann, 1).expect("free");
    let mut waiting = pin!(request(&share, &ann, 1));
    assert!(is_pending(waiting.as_mut()));
    share.resize(2);
    let second = waiting.await.expect("a second unit");
    share.resize(1);
    drop(first);
    assert!(share.try_acquire(&ann, 1).is_none(), "one is still held");
    drop(second);
    assert!(share.try_acquire(&ann, 1).is_some());
}

#[derive(Debug, Clone)]
enum Step {
    /// By the owner with this number.
    Request {
        owner: usize,
        amount: u64,
    },
    GiveBack(Index),
    StopWaiting(Index),
    Resize(u64),
    Wait {
        seconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6usize, 1..4u64).prop_map(|(owner, amount)| Step::Request { owner, amount }),
        4 => any::<Index>().prop_map(Step::GiveBack),
        2 => any::<Index>().prop_map(Step::StopWaiting),
        1 => (3..12u64).prop_map(Step::Resize),
        1 => (1..100u64).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

type Request = Pin<Box<dyn Future<Output = Result<Lease, NoLease>>>>;

/// The requests that wait, and the leases granted.
#[derive(Default)]
struct World {
    waiting: Vec<Request>,
    leases: Vec<Lease>,
}

impl World {
    /// Polls everything that waits, until nothing more can happen: a request may be granted while another is polled.
    fn poll(&mut self) -> Result<(), NoLease> {
        let mut refused = Ok(());
        for _ in 0..=self.waiting.len() {
            refused = refused.and(self.poll_once());
        }
        refused
    }

    /// Units of the owner of this lease.
    fn held_with(&self, index: usize) -> u64 {
        held_by(&self.leases, |lease| lease.owner == self.leases[index].owner)
    }

    /// Ends a request; its owner makes another one.
    fn end(&mut self, share: &Arc<Share>, index: usize) {
        let owner = self.leases[index].owner.clone();
        drop(self.leases.swap_remove(index));
        self.waiting.push(Box::pin(request(share, &owner, 1)));
        for _ in 0..2 {
            self.poll_once().expect("there is space in the queue");
        }
    }

    fn poll_once(&mut self) -> Result<(), NoLease> {
        let mut context = Context::from_waker(Waker::noop());
        let mut refused = Ok(());
        self.waiting.retain_mut(|request| match request.as_mut().poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(Ok(lease)) => {
                self.leases.push(lease);
                false
            }
            Poll::Ready(Err(error)) => {
                refused = Err(error);
                false
            }
        });
        refused
    }
}

proptest! {
    #[test]
    fn no_more_is_held_than_there_is_and_everybody_gets_a_turn(
        capacity in 3..12u64,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let share = Share::new(capacity);
            let owners: Vec<_> = (0..6).map(|number| owner(&format!("t{}", number / 2), &number.to_string())).collect();
            let mut world = World::default();
            let mut most = capacity;
            for step in steps {
                match step {
                    Step::Request { owner, amount } => {
                        world.waiting.push(Box::pin(request(&share, &owners[owner], amount)));
                    }
                    Step::GiveBack(index) if !world.leases.is_empty() => {
                        drop(world.leases.swap_remove(index.index(world.leases.len())));
                    }
                    Step::StopWaiting(index) if !world.waiting.is_empty() => {
                        drop(world.waiting.swap_remove(index.index(world.waiting.len())));
                    }
                    Step::Resize(capacity) => {
                        share.resize(capacity);
                        most = most.max(capacity);
                    }
                    Step::Wait { seconds } => tokio::time::advance(Duration::from_secs(seconds)).await,
                    Step::GiveBack(_) | Step::StopWaiting(_) => {}
                }
                world.poll().ok();
                let held: u64 = world.leases.iter().map(|lease| lease.amount).sum();
                prop_assert!(held <= most);
                prop_assert_eq!(share.used(), held);
                prop_assert_eq!(share.waiting(), world.waiting.len());
            }
            // Nobody starves: whoever still waits gets its turn as the leases come back.
            share.resize(most);
            let mut refused = world.poll();
            while !world.waiting.is_empty() {
                prop_assert!(!world.leases.is_empty(), "everything is free, and {} wait", world.waiting.len());
                drop(world.leases.remove(0));
                refused = refused.and(world.poll());
            }
            prop_assert!(matches!(refused, Ok(()) | Err(NoLease::DeadlinePassed)));
            world.leases.clear();
            let state = share.state.lock();
            prop_assert!(state.used == 0 && state.callers.is_empty() && state.tenants.is_empty());
            Ok(())
        })?;
    }

    /// Callers come one after the other, each with more requests than there are units. Each request that ends is followed by another.
    #[test]
    fn each_caller_of_many_has_a_kept_unit_at_once_or_with_the_next_end_and_none_loses_its_last(
        capacity in 4..24u64,
        callers in 2..8usize,
        ends in prop::collection::vec(any::<Index>(), 60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let share = Share::keeping_one(capacity);
            let owners: Vec<_> = (0..callers).map(|at| owner("acme", &at.to_string())).collect();
            let seen = usize::try_from(capacity - 1).unwrap().min(callers);
            let mut world = World::default();
            for (at, new) in owners[..seen].iter().enumerate() {
                world.waiting.extend((0..capacity + 2).map(|_| Box::pin(request(&share, new, 1)) as Request));
                prop_assert!(world.poll_once().and(world.poll_once()).is_ok());
                if at >= 2 {
                    let most = (0..world.leases.len()).max_by_key(|index| world.held_with(*index)).unwrap();
                    world.end(&share, most);
                }
                prop_assert!(held_by(&world.leases, |lease| lease.owner == *new) > 0, "caller {} has none", at);
                prop_assert!(held_by(&world.leases, |lease| lease.owner == owners[0]) < capacity);
            }
            for index in ends {
                world.end(&share, index.index(world.leases.len()));
                for (at, one) in owners[..seen].iter().enumerate() {
                    prop_assert!(held_by(&world.leases, |lease| lease.owner == *one) > 0, "caller {} lost its last", at);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn while_another_owner_is_seen_none_is_given_more_than_three_quarters(
        capacity in 4..40u64,
        requests in prop::collection::vec((0..4usize, 1..5u64), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let share = Share::new(capacity);
            let owners: Vec<_> = (0..4).map(|number| owner(&format!("t{}", number / 2), &number.to_string())).collect();
            for seen in &owners {
                drop(share.try_acquire(seen, 1));
            }
            let mut leases = Vec::new();
            for (number, amount) in requests {
                let before = held_by(&leases, |lease| lease.owner == owners[number]);
                let of_tenant = held_by(&leases, |lease| lease.owner.tenant == owners[number].tenant);
                let most = (capacity * 3).div_ceil(4);
                let is_allowed = |held: u64| held == 0 || held + amount <= most;
                let is_free = held_by(&leases, |_| true) + amount <= capacity;
                let lease = share.try_acquire(&owners[number], amount);
                prop_assert_eq!(lease.is_some(), is_free && is_allowed(before) && is_allowed(of_tenant));
                leases.extend(lease);
            }
            Ok(())
        })?;
    }
}

fn held_by(leases: &[Lease], is_counted: impl Fn(&Lease) -> bool) -> u64 {
    leases.iter().filter(|lease| is_counted(lease)).map(|lease| lease.amount).sum()
}
