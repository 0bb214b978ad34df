//! Values of arguments that other tools have (`enumerate` of `tools.overrides`): read in the background by calls of the gateway itself, and
//! offered until they are read again. Nothing waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use super::ToolOffer;
use super::tool_offer::TOGETHER;
use sekisho_calls::registry::Snapshot;
use sekisho_calls::tool::{EnumeratedValues, Tool, enumerated_values};
use sekisho_config::{Enumerate, ToolsConfig};
use sekisho_core::administration::Ownership;
use sekisho_core::call::{CallContext, Caller, Via};
use sekisho_core::caller::DEFAULT_TENANT;

/// After this time a reading that failed is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// An argument of a tool, which has the name of its source.
type Place = (String, String);

/// The values of one argument, as they were read last.
struct Reading {
    from: Enumerate,
    /// Empty where they could not be read.
    values: Vec<Value>,
    /// When they are read again.
    due: Instant,
}

/// A reading that is to be made.
struct Wanted {
    place: Place,
    from: Enumerate,
    caller: Arc<Caller>,
    reader: Arc<Tool>,
}

impl ToolOffer {
    /// Reads values when tools with them are offered, and when they have the age that is set.
    pub(super) async fn keep_values(self: Arc<Self>) {
        let mut changes = self.pipeline.registry.changes();
        let mut readings = BTreeMap::new();
        loop {
            self.read_due(&mut readings).await;
            let next = readings.values().map(|reading: &Reading| reading.due).min();
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
            // Changes of many servers are one.
            sleep(TOGETHER).await;
        }
    }

    async fn read_due(self: &Arc<Self>, readings: &mut BTreeMap<Place, Reading>) {
        let wanted = {
            // Not between the tools and the settings of a reload.
            let _changing = self.changing.lock().await;
            wanted(&self.configuration.current().tools, &self.pipeline.registry.snapshot())
        };
        let is_wanted = |place: &Place, reading: &Reading| {
            wanted.iter().any(|wanted| wanted.place == *place && wanted.from == reading.from)
        };
        readings.retain(|place, reading| {
            let stays = is_wanted(place, reading);
            if !stays {
                self.readiness.forget(&component(place));
            }
            stays
        });
        self.offer_values(readings).await;
        let now = Instant::now();
        for wanted in wanted {
            if readings.get(&wanted.place).is_none_or(|reading| reading.due <= now) {
                let place = wanted.place.clone();
                readings.insert(place, self.read(wanted).await);
            }
        }
        self.offer_values(readings).await;
    }

    async fn read(&self, wanted: Wanted) -> Reading {
        let Wanted { place, from, caller, reader } = wanted;
        let read = self.values_of(&place, &from, caller, &reader).await;
        let (values, age) = match read {
            Ok(values) => {
                self.readiness.restore(&component(&place));
                (values, from.age())
            }
            Err(problem) => {
                self.readiness.degrade(&component(&place), format!("its values cannot be read: {problem}"));
                (Vec::new(), RETRY)
            }
        };
        Reading { from, values, due: Instant::now() + age }
    }

    /// Errors: the tool may change something, its call fails, or its answer has no such values.
    async fn values_of(
        &self,
        (tool, argument): &Place,
        from: &Enumerate,
        caller: Arc<Caller>,
        reader: &Tool,
    ) -> Result<Vec<Value>, String> {
        let metadata = &reader.metadata;
        if metadata.dangerous || !(metadata.only_reads() || metadata.changes_nothing()) {
            return Err(format!("{} is no tool that only reads, as its source says", from.tool));
        }
        let call = CallContext::new(&from.tool, caller, Via::Rest);
        let arguments = from.arguments.clone().into_iter().collect();
        let answered = self.pipeline.call(call, arguments).await;
        match &answered.reply.outcome {
            Ok(answer) => enumerated_values(tool, argument, from, &answer.output),
            Err(error) => Err(format!("{}: {}: {}", from.tool, error.code().as_str(), error.message())),
        }
    }

    /// Offers the tools with these values, where they are others than before.
    async fn offer_values(self: &Arc<Self>, readings: &BTreeMap<Place, Reading>) {
        let mut values = EnumeratedValues::new();
        for ((tool, argument), reading) in readings.iter().filter(|(_, reading)| !reading.values.is_empty()) {
            values.entry(tool.clone()).or_default().insert(argument.clone(), reading.values.clone());
        }
        if **self.values.load() != values {
            self.values.store(Arc::new(values));
            self.offer_mcp_tools().await;
        }
    }
}

fn component((tool, argument): &Place) -> String {
    format!("tools.overrides.{tool}.enumerate.{argument}")
}

/// The arguments with values of other tools, where both tools are offered.
fn wanted(config: &ToolsConfig, snapshot: &Snapshot) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for (name, changes) in &config.overrides {
        let Some(tool) = snapshot.get(changes.rename.as_deref().unwrap_or(name)) else { continue };
        for (argument, from) in &changes.enumerate {
            let Some(reader) = snapshot.get(&from.tool).cloned() else { continue };
            let place = (name.clone(), argument.clone());
            wanted.push(Wanted { place, from: from.clone(), caller: reader_of(&tool.metadata.owner), reader });
        }
    }
    wanted
}

/// The gateway as a caller of the tenant that has the tool, without a role and without credentials for any upstream. Its key is of no caller from
/// outside: an issuer has an address.
fn reader_of(owner: &Ownership) -> Arc<Caller> {
    let tenant = owner.tenant().unwrap_or(DEFAULT_TENANT);
    Arc::new(Caller::of_issuer("sekisho", "gateway", tenant, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_reads_as_a_caller_of_the_tenant_that_nobody_else_is() {
        let of_tenant = reader_of(&Ownership::Tenant("acme".into()));
        assert_eq!((&*of_tenant.tenant, of_tenant.roles.len(), of_tenant.anonymous), ("acme", 0, false));
        let shared = reader_of(&Ownership::Shared);
        let same_name = Caller::new("gateway", DEFAULT_TENANT, Vec::new());
        assert!(*shared.tenant == *same_name.tenant && shared.key != same_name.key);
    }
}
