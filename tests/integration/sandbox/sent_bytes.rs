//! What is sent for a call depends on nothing but the call that was judged: each field of a request is changed on its own, on every
//! way in, for every kind of source: tools, and what MCP servers offer beside them.

mod commands;
mod described;
mod exceptions;
mod fields;
mod kinds;
mod requests;
mod upstreams;
mod ways;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;

use sekisho::{Arguments, CallContext, Caller, Via};
use serde_json::Value;

use self::exceptions::{PASSED_ON, compared, compared_message, is_of_connection};
use self::fields::{Field, JUDGED, MARK, Place, REFUSED};
use self::kinds::{KINDS, Kind, Sent};
use self::requests::{Answer, Request};
use self::ways::{WAYS, Way};
use self::world::World;

/// A call that was made: what was judged of it, and what was sent.
struct Made {
    /// The digest by which approvals and keys are bound, of what the policy was given.
    digest: String,
    judged: String,
    /// Each request, without what is not compared.
    compared: Vec<String>,
    /// Each request as it came, also those that began a connection.
    bytes: Vec<String>,
}

impl World {
    /// What becomes of a request.
    ///
    /// # Errors
    /// Why no call was made.
    async fn make(&self, way: &Way, kind: &Kind, request: &Request, arguments: &Value) -> Result<Made, String> {
        self.upstreams.begin(kind.tool, arguments);
        let begin = self.read_so_far();
        let output = match request.send(&self.app.app, way, kind.tool).await {
            Answer::Done(output) => output,
            Answer::DoneByModel => self.upstreams.last_result(),
            Answer::Refused(why) => {
                assert_eq!(self.calls_sent(kind, begin), 0, "{} {}: {why}", way.name, kind.name);
                return Err(why);
            }
        };
        let (bytes, compared) = self.sent(kind, begin, &output);
        let judged = self.upstreams.judged(kind.tool);
        assert_eq!((judged.len(), compared.len()), (1, 1), "{} {}: {output} {bytes:#?}", way.name, kind.name);
        let judged = judged.into_iter().next().unwrap();
        Ok(Made { digest: self.digest(&judged), judged: judged["sent"].to_string(), compared, bytes })
    }

    /// All bytes that were sent, and those of the call without what is not compared.
    fn sent(&self, kind: &Kind, begin: usize, output: &Value) -> (Vec<String>, Vec<String>) {
        match kind.sent {
            Sent::Requests(path) => {
                let requests = self.upstreams.requests_to(path);
                let of_call =
                    requests.iter().filter(|request| !request.method.as_deref().is_some_and(is_of_connection));
                let of_call = of_call.map(|request| compared(&request.bytes)).collect();
                (requests.into_iter().map(|request| request.bytes).collect(), of_call)
            }
            Sent::Lines => {
                let lines = self.lines_from(begin);
                let of_call = lines.iter().filter(|line| !is_of_connection(&method_of(line)));
                (lines.clone(), of_call.map(|line| compared_message(line)).collect())
            }
            Sent::Seen => (self.upstreams.seen(), self.upstreams.seen()),
            Sent::Output => (vec![output.to_string()], vec![output.to_string()]),
        }
    }

    fn calls_sent(&self, kind: &Kind, begin: usize) -> usize {
        match kind.sent {
            Sent::Output => 0,
            _ => self.sent(kind, begin, &Value::Null).1.len(),
        }
    }

    /// The digest of the call that the policy was asked about.
    fn digest(&self, input: &Value) -> String {
        let members = |value: &Value| value.as_object().cloned().unwrap_or_else(Arguments::new);
        let (name, arguments) = (input["tool"].as_str().unwrap(), members(&input["sent"]["arguments"]));
        let (gateway, caller) = (&self.app.app.gateway, Arc::new(Caller::anonymous()));
        let mut call = CallContext::new(name, Arc::clone(&caller), Via::Rest);
        (call.client.meta, call.client.as_task) = (members(&input["sent"]["meta"]), input["sent"]["as_task"] == true);
        let registry = &gateway.pipeline.registry;
        let method = input["sent"]["method"].as_str().unwrap();
        let tool = match gateway.mcp_servers().request(&caller, method, &arguments) {
            Some(operation) => {
                call = operation.into_call(call).0;
                registry.find_for(&call).unwrap()
            }
            None => Arc::clone(registry.snapshot().get(name).unwrap()),
        };
        let sent = tool.sent_call(&call, &arguments);
        let (destination, judged) = (&sent.destination, &input["sent"]);
        let parts = [Some(&*destination.method), Some(&*destination.address), destination.coding.as_deref()];
        assert_eq!(parts, ["method", "address", "coding"].map(|part| judged[part].as_str()), "{input}");
        sent.digest(&tool)
    }
}

fn method_of(line: &str) -> String {
    let message: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not a message: {line}"));
    message["method"].as_str().unwrap_or_default().to_owned()
}

/// Why what was sent is not what was judged.
fn problem(base: &Made, made: &Made, field: Field) -> Option<String> {
    if made.compared != base.compared && made.digest == base.digest {
        return Some(format!("what is sent differs: {:#?} {:#?}", base.compared, made.compared));
    }
    let is_passed_on = matches!(field.place, Place::Header(name) if PASSED_ON.contains(&name));
    let marked = made.bytes.iter().find(|bytes| bytes.contains(MARK));
    let marked = marked.filter(|_| !is_passed_on && !made.judged.contains(MARK));
    marked.map(|bytes| format!("a text of the caller is sent: {bytes}"))
}

/// What was found on one way to one source.
#[derive(Default)]
struct Findings {
    problems: Vec<String>,
    /// Fields with which no call is made.
    refused: BTreeSet<(&'static str, Place)>,
    sent: usize,
    /// Fields that are a part of the call: with another value it is another one.
    judged: BTreeSet<Place>,
}

async fn try_fields(world: &World, way: &Way, kind: &Kind, findings: &mut Findings) {
    let arguments = (kind.arguments)(&world.upstreams.url, "base");
    let request = Request::new(way, kind.tool, &arguments);
    let of_pair = format!("{} → {}", way.name, kind.name);
    let refused = |why| -> Made { panic!("{of_pair}: {why}") };
    let base = world.make(way, kind, &request, &arguments).await.unwrap_or_else(refused);
    let again = world.make(way, kind, &request, &arguments).await.unwrap_or_else(refused);
    assert_eq!((&again.compared, &again.digest), (&base.compared, &base.digest), "{of_pair}, twice the same");
    let others = (kind.arguments)(&world.upstreams.url, MARK);
    let changed = Request::new(way, kind.tool, &others);
    let changed = world.make(way, kind, &changed, &others).await.unwrap_or_else(refused);
    assert!(changed.compared != base.compared && changed.digest != base.digest, "{of_pair}: other arguments");
    for field in way.fields.iter().copied().flatten().copied() {
        match world.make(way, kind, &request.clone().with(field), &arguments).await {
            Ok(made) => {
                findings.sent += 1;
                let problem = problem(&base, &made, field);
                findings.problems.extend(problem.map(|problem| format!("{of_pair}, {:?}: {problem}", field.place)));
                if made.digest != base.digest {
                    findings.judged.insert(field.place);
                }
            }
            Err(_) => _ = findings.refused.insert((way.name, field.place)),
        }
    }
}

/// 157 fields, 19 ways, 17 kinds of sources.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_byte_that_is_sent_depends_on_what_was_not_judged_on_any_way_to_any_source() {
    let world = World::start().await;
    let mut findings = Findings::default();
    for way in &WAYS {
        for kind in KINDS.iter().filter(|kind| way.leads_to(kind)) {
            try_fields(&world, way, kind, &mut findings).await;
        }
    }
    let fields: BTreeSet<_> = WAYS.iter().flat_map(|way| way.fields.concat()).map(|field| field.place).collect();
    println!("{} fields, {} ways, {} kinds of sources, {} calls", fields.len(), WAYS.len(), KINDS.len(), findings.sent);
    assert!(findings.problems.is_empty(), "{}", findings.problems.join("\n\n"));
    assert!(fields.len() >= 157 && findings.sent >= 6_000, "some are left out: {} {}", fields.len(), findings.sent);
    for kind in &KINDS {
        assert!(WAYS.iter().filter(|way| way.leads_to(kind)).count() >= 2, "{} is called on too few ways", kind.name);
    }
    let refused: BTreeSet<_> = REFUSED.iter().copied().collect();
    assert_eq!(findings.refused, refused, "fields for which no call is made");
    let judged = findings.judged;
    assert_eq!(judged, BTreeSet::from_iter(JUDGED), "fields that make it another call");
}
