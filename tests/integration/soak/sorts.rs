//! The sorts of calls: how many of each there are, what they must be answered, and how they are made.

use futures_util::future::BoxFuture;
use serde_json::json;

use super::client::{Client, Outcome};
use super::{calls, mcp, people, programs, streams};

/// Calls in which each sort has its share.
pub(super) const ROUND: usize = 1_000;

/// Distance of two neighbours of the table in a round, so that sorts alternate. It has no divisor with [`ROUND`].
const STRIDE: usize = 389;

pub(super) struct Sort {
    pub(super) name: &'static str,
    /// Calls of each round.
    pub(super) share: usize,
    /// What its requests are answered, in their order: the status, and the error's code.
    pub(super) answers: &'static [&'static str],
    /// What they may be answered in place of it, in few cases.
    others: &'static [&'static str],
    pub(super) play: Play,
}

type Play = for<'a> fn(&'a mut Client) -> BoxFuture<'a, Outcome>;

/// Slow ones (Python, agents, approvals, pages, programs) have small shares. Python and agents together have a tenth.
pub(super) const SORTS: &[Sort] = &[
    sort("success", 130, &["200"], |client| Box::pin(calls::success(client))),
    sort("dry run", 20, &["200"], |client| Box::pin(calls::dry_run(client))),
    // A refusal by each stage, and failures of the two last ones.
    sort("find", 90, &["404 unknown_tool"], |client| Box::pin(calls::one(client, "no_such_tool", json!({})))),
    Sort {
        // The bucket of the caller is refilled once a minute.
        others: &["200"],
        ..sort("limits", 90, &["429 rate_limited"], |client| Box::pin(calls::beyond_the_rate(client)))
    },
    sort("validate", 90, &["400 invalid_arguments"], |client| Box::pin(calls::one(client, "calculator", json!({})))),
    sort("policy", 70, &["403 denied"], |client| Box::pin(calls::one(client, "shared__fail", json!({})))),
    sort("budget", 70, &["402 budget_exceeded"], |client| Box::pin(calls::one(client, "shared__picture", json!({})))),
    sort("breaker", 70, &["503 circuit_open"], |client| Box::pin(calls::one(client, "broken__echo", json!({})))),
    sort("execute", 20, &["502 upstream_error"], |client| Box::pin(calls::one(client, "shop__broken", json!({})))),
    sort("accept: schema", 15, &["422 invalid_output"], |client| {
        Box::pin(calls::one(client, "shop__wrong", json!({})))
    }),
    sort("accept: size", 15, &["502 output_too_large"], |client| Box::pin(calls::one(client, "shop__long", json!({})))),
    sort("OpenAPI operation", 30, &["200"], |client| Box::pin(calls::one(client, "shop__item", json!({"id": "1"})))),
    sort("MCP tool", 30, &["200"], |client| Box::pin(calls::one(client, "shared__echo", json!({"n": 1})))),
    sort("MCP program of a caller", 2, &["200"], |client| Box::pin(calls::one(client, "own__echo", json!({"n": 1})))),
    sort("MCP session", 10, &["200", "202", "200", "200", "204"], |client| Box::pin(mcp::session(client))),
    sort("MCP session left", 3, &["200", "202", "200"], |client| Box::pin(mcp::session_left(client))),
    sort("MCP without session", 40, &["200"], |client| Box::pin(mcp::without_session(client))),
    sort("MCP standing stream", 3, &["200", "202", "200", "204"], |client| Box::pin(mcp::standing_stream(client))),
    sort("MCP subscription", 3, &["200"], |client| Box::pin(mcp::subscription(client))),
    sort("list of tools", 20, &["200"], |client| Box::pin(calls::list(client))),
    sort("metrics", 8, &["200"], |client| Box::pin(calls::metrics(client))),
    sort("budget scopes", 11, &["200"], |client| Box::pin(calls::scopes(client))),
    sort("session", 20, &["200", "200"], |client| Box::pin(calls::session(client))),
    sort("workspace", 3, &["200", "200"], |client| Box::pin(calls::workspace(client))),
    sort("idempotency key", 10, &["200", "200"], |client| Box::pin(calls::repeated(client))),
    sort("large result", 6, &["200", "200"], |client| Box::pin(calls::large_result(client))),
    sort("approved", 3, &["403 approval_required", "200", "200", "200"], |client| Box::pin(people::approved(client))),
    sort("denied", 2, &["403 approval_required", "200", "403 approval_denied"], |client| {
        Box::pin(people::denied(client))
    }),
    sort("approval left", 1, &["403 approval_required"], |client| Box::pin(people::asked(client))),
    sort("approval awaited", 1, &["403 approval_required", "200", "200"], |client| Box::pin(people::awaited(client))),
    sort("console", 5, &["303", "200", "200", "200", "200", "200", "303"], |client| Box::pin(people::console(client))),
    sort("managed key", 1, &["201", "200", "200", "401 unauthenticated"], |client| {
        Box::pin(people::managed_key(client))
    }),
    sort("caller that leaves", 4, &[], |client| Box::pin(streams::leave(client))),
    sort("half a request", 4, &[], |client| Box::pin(streams::half_a_request(client))),
    sort("Python", 58, &["200"], |client| Box::pin(programs::python(client))),
    sort("Python that fails", 12, &["200 tool_error"], |client| Box::pin(programs::python_that_fails(client))),
    sort("Python session", 6, &["200", "200", "204"], |client| Box::pin(programs::session(client))),
    sort("Python session kept", 2, &["200", "200"], |client| Box::pin(programs::session_kept(client))),
    sort("agent", 14, &["200"], |client| Box::pin(programs::agent(client))),
    sort("agent, streaming", 4, &["200"], |client| Box::pin(programs::agent_streams(client))),
    sort("agent, stream dropped", 4, &["200"], |client| Box::pin(programs::agent_dropped(client))),
];

const fn sort(name: &'static str, share: usize, answers: &'static [&'static str], play: Play) -> Sort {
    Sort { name, share, answers, others: &[], play }
}

impl Sort {
    pub(super) fn admits(&self, answers: &[String]) -> bool {
        answers == self.answers || (!self.others.is_empty() && answers == self.others)
    }
}

/// The sorts of a round by their place in the table, in the order in which they are called.
pub(super) fn round() -> Vec<usize> {
    let of_sorts = SORTS.iter().enumerate().flat_map(|(place, sort)| std::iter::repeat_n(place, sort.share));
    let of_sorts: Vec<_> = of_sorts.collect();
    assert_eq!(of_sorts.len(), ROUND, "the shares make up a round");
    (0..ROUND).map(|at| of_sorts[at * STRIDE % ROUND]).collect()
}

/// How many calls of these sorts there are in each round.
pub(super) fn share_of(names: &[&str]) -> usize {
    let found = SORTS.iter().filter(|sort| names.contains(&sort.name));
    found.map(|sort| sort.share).sum()
}
