/// A mistake in a structure: its name, the file of `src/core` and the text there that it replaces, and the scenario that must fail.
type Mistake = (&'static str, &'static str, &'static str, &'static str, &'static str);

pub const MISTAKES: [Mistake; 8] = [
    ("waiters_forgotten", "share/lease.rs", "        if is_awaited {", "        if false {", "all_is_given_back"),
    (
        "checked_before_taken",
        "share.rs",
        "        let is_free = state.fits(owner, amount, now) && (state.waiting == 0 || state.next(now).is_none());\n",
        "        let is_free = state.fits(owner, amount, now) && (state.waiting == 0 || state.next(now).is_none());\n        \
         drop(state);\n        let mut state = self.state.lock();\n",
        "all_is_given_back",
    ),
    (
        "not_looked_again",
        "share.rs",
        "        // Units may have been given back since.\n        self.grant();\n",
        "        let until_the_end = true;\n",
        "all_is_given_back",
    ),
    (
        "place_kept",
        "share.rs",
        "        self.share.state.lock().leave(&self.owner, self.number);\n",
        "",
        "one_that_gives_up_leaves_its_place",
    ),
    (
        "units_lost_on_the_way",
        "share.rs",
        "            drop(grant.send(lease));\n",
        "            if let Err(lease) = grant.send(lease) {\n                std::mem::forget(lease);\n            }\n",
        "one_that_gives_up_leaves_its_place",
    ),
    (
        "capacity_without_a_word",
        "share.rs",
        "        self.state.lock().capacity = capacity.max(1);\n        self.grant();\n",
        "        self.state.lock().capacity = capacity.max(1);\n",
        "a_larger_capacity_wakes_who_waits",
    ),
    (
        "queue_without_a_bound",
        "share.rs",
        "        if state.waiting >= max_waiting && !state.displace(owner) {\n            return Err(NoLease::QueueFull);\n        }\n",
        "        let is_full = state.waiting >= max_waiting && !state.displace(owner);\n        drop(state);\n        if is_full {\n            \
         return Err(NoLease::QueueFull);\n        }\n        let mut state = self.state.lock();\n",
        "the_queue_has_a_bound",
    ),
    (
        "cache_checked_before_added",
        "bounded.rs",
        "        self.part(&key).write().insert_or_clear(key, value, is_over);\n",
        "        let is_full = self.part(&key).read().is_full_for(&key);\n        if is_full {\n            \
         self.part(&key).write().entries.clear();\n        }\n        self.part(&key).write().entries.insert(key, value);\n",
        "a_cache_has_a_bound",
    ),
];
