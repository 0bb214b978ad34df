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
use sekisho_calls::tool::{EnumeratedValues, ToolValues, enumerated_values, has_types_of};
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
    /// Of the tool with the argument.
    owner: Ownership,
    /// Empty where they could not be read.
    values: Vec<Value>,
    /// When they are read again.
    due: Instant,
}

/// A reading that is to be made.
struct Wanted {
    place: Place,
    /// The name under which the tool with the argument is offered.
    tool: String,
    from: Enumerate,
    owner: Ownership,
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
        let (wanted, snapshot) = {
            // Not between the tools and the settings of a reload.
            let _changing = self.changing.lock().await;
            let snapshot = self.pipeline.registry.snapshot();
            (wanted(&self.configuration.current().tools, &snapshot), snapshot)
        };
        let is_wanted = |place: &Place, reading: &Reading| {
            let is_same = |wanted: &&Wanted| {
                wanted.place == *place && wanted.from == reading.from && wanted.owner == reading.owner
            };
            // Guards may have changed since.
            wanted.iter().find(is_same).is_some_and(|wanted| wanted.problem_of(&reading.values, &snapshot).is_none())
        };
        readings.retain(|place, reading| {
            let stays = is_wanted(place, reading);
            if !stays {
                self.readiness.forget(&component(place));
            }
            stays
        });
        drop(snapshot);
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
        let component = component(&wanted.place);
        let (values, age) = match self.values_of(&wanted).await {
            Ok(values) => {
                self.readiness.restore(&component);
                (values, wanted.from.age())
            }
            Err(problem) => {
                self.readiness.degrade(&component, format!("its values cannot be read: {problem}"));
                (Vec::new(), RETRY)
            }
        };
        let Wanted { from, owner, .. } = wanted;
        Reading { from, owner, values, due: Instant::now() + age }
    }

    /// Errors: the tool may change something, its call fails, or its answer has no such values or some that models may not read.
    async fn values_of(&self, wanted: &Wanted) -> Result<Vec<Value>, String> {
        let ((tool, argument), from) = (&wanted.place, &wanted.from);
        let only_reads = self.pipeline.registry.snapshot().get(&from.tool).is_some_and(|reader| {
            let metadata = &reader.metadata;
            !metadata.dangerous && (metadata.only_reads() || metadata.changes_nothing())
        });
        if !only_reads {
            return Err(format!("{} is no tool that only reads, as its source says", from.tool));
        }
        let call = CallContext::new(&from.tool, reader_of(&wanted.owner), Via::Rest);
        let arguments = from.arguments.clone().into_iter().collect();
        let answered = Box::pin(self.pipeline.call(call, arguments)).await;
        let values = match &answered.reply.outcome {
            Ok(answer) => enumerated_values(tool, argument, from, &answer.output)?,
            Err(error) => return Err(format!("{}: {}: {}", from.tool, error.code().as_str(), error.message())),
        };
        match wanted.problem_of(&values, &self.pipeline.registry.snapshot()) {
            Some(problem) => Err(problem),
            None => Ok(values),
        }
    }

    /// Offers the tools with these values, where they are others than before.
    async fn offer_values(self: &Arc<Self>, readings: &BTreeMap<Place, Reading>) {
        let mut values = EnumeratedValues::new();
        for ((tool, argument), reading) in readings.iter().filter(|(_, reading)| !reading.values.is_empty()) {
            let of_tool = || ToolValues { owner: reading.owner.clone(), by_argument: BTreeMap::new() };
            let of_tool = values.entry(tool.clone()).or_insert_with(of_tool);
            of_tool.by_argument.insert(argument.clone(), reading.values.clone());
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
            if snapshot.get(&from.tool).is_some() {
                let (place, owner) = ((name.clone(), argument.clone()), tool.metadata.owner.clone());
                wanted.push(Wanted { place, tool: tool.name().to_owned(), from: from.clone(), owner });
            }
        }
    }
    wanted
}

impl Wanted {
    /// Why the values may not be offered to models: the type of the argument, or the guards of its tool.
    fn problem_of(&self, values: &[Value], snapshot: &Snapshot) -> Option<String> {
        let tool = snapshot.get(&self.tool)?;
        if !has_types_of(&tool.input.document()["properties"][&self.place.1], values) {
            let reader = &self.from.tool;
            return Some(format!(
                "{reader} has values of another type than the argument; have `path` convert them, as `[*].to_string(id)` does"
            ));
        }
        snapshot.problem_of_values(&tool.metadata, values)
    }
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
