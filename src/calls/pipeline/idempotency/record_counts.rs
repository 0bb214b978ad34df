//! The number of records of each owner in the store. When a tenant needs space for a new record, the owner with the most
//! records loses its oldest.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use sekisho_store::{OwnedRecords, RecordOwner};

/// The counts of all owners.
#[derive(Debug, Default)]
pub(super) struct RecordCounts {
    tenants: HashMap<Arc<str>, Tenant>,
}

/// The counts of one tenant.
#[derive(Debug, Default)]
struct Tenant {
    total: Count,
    callers: HashMap<Arc<str>, Count>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

impl RecordCounts {
    pub(super) fn of(owned: Vec<OwnedRecords>) -> Self {
        let mut counts = Self::default();
        for OwnedRecords { owner, records, bytes } in owned {
            counts.change(&owner, |count| {
                count.records += records;
                count.bytes += bytes;
            });
        }
        counts
    }

    pub(super) fn of_tenant(&self, tenant: &str) -> Count {
        self.tenants.get(tenant).map(|tenant| tenant.total).unwrap_or_default()
    }

    /// The number of records of all tenants together.
    #[cfg(test)]
    pub(super) fn records(&self) -> u64 {
        self.tenants.values().map(|tenant| tenant.total.records).sum()
    }

    pub(super) fn add_record(&mut self, owner: &RecordOwner) {
        self.change(owner, |count| count.records += 1);
    }

    pub(super) fn add_bytes(&mut self, owner: &RecordOwner, bytes: u64) {
        self.change(owner, |count| count.bytes += bytes);
    }

    pub(super) fn remove_record(&mut self, owner: &RecordOwner, bytes: u64) {
        self.change(owner, |count| {
            count.records = count.records.saturating_sub(1);
            count.bytes = count.bytes.saturating_sub(bytes);
        });
    }

    pub(super) fn remove_bytes(&mut self, owner: &RecordOwner, bytes: u64) {
        self.change(owner, |count| count.bytes = count.bytes.saturating_sub(bytes));
    }

    /// The owners of a tenant, sorted by this measure, largest first.
    pub(super) fn largest_first(&self, tenant: &Arc<str>, measure: impl Fn(&Count) -> u64) -> Vec<RecordOwner> {
        let callers = self.tenants.get(tenant).into_iter().flat_map(|tenant| &tenant.callers);
        let mut callers: Vec<_> = callers.collect();
        callers.sort_by_key(|(_, count)| Reverse(measure(count)));
        let owner =
            |caller_key: &Arc<str>| RecordOwner { tenant: Arc::clone(tenant), caller_key: Arc::clone(caller_key) };
        callers.into_iter().map(|(caller_key, _)| owner(caller_key)).collect()
    }

    fn change(&mut self, owner: &RecordOwner, change: impl Fn(&mut Count)) {
        let tenant = self.tenants.entry(Arc::clone(&owner.tenant)).or_default();
        let count = tenant.callers.entry(Arc::clone(&owner.caller_key)).or_default();
        change(count);
        if *count == Count::default() {
            tenant.callers.remove(&owner.caller_key);
        }
        change(&mut tenant.total);
        if tenant.callers.is_empty() {
            self.tenants.remove(&owner.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(tenant: &str, caller: &str) -> RecordOwner {
        RecordOwner { tenant: tenant.into(), caller_key: caller.into() }
    }

    #[test]
    fn shares_add_up_by_tenant_and_owners_without_records_are_removed() {
        let (ann, bob, eve) = (owner("acme", "ann"), owner("acme", "bob"), owner("rival", "eve"));
        let mut counts = RecordCounts::of(vec![OwnedRecords { owner: ann.clone(), records: 1, bytes: 10 }]);
        for added in [&bob, &bob, &eve] {
            counts.add_record(added);
        }
        counts.add_bytes(&bob, 5);
        assert_eq!(counts.of_tenant("acme"), Count { records: 3, bytes: 15 });
        assert_eq!((counts.of_tenant("rival").records, counts.records()), (1, 4));
        assert_eq!(counts.largest_first(&"acme".into(), |count| count.records), [bob.clone(), ann.clone()]);
        assert_eq!(counts.largest_first(&"acme".into(), |count| count.bytes), [ann.clone(), bob.clone()]);
        counts.remove_bytes(&bob, 5);
        for (removed, bytes) in [(&bob, 0), (&bob, 0), (&ann, 10), (&eve, 0)] {
            counts.remove_record(removed, bytes);
        }
        assert!(counts.tenants.is_empty());
    }
}
