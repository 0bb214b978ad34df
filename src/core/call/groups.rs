//! The parts of a call. The parts that a [repeated](super::CallContext::repeated) call has too are `Clone`; parts that
//! only one call has are not.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{
    BudgetScopes, ChargeSink, InterpreterNote, NestedCalls, OpenTime, ParentCall, QueueTime, ResultHandles, Sending,
    TraceParent, Undo, Upload,
};
use crate::client_request::ClientRequest;
use crate::coercion::Coercion;
use crate::peer::{ClientPeer, ClientSession};
use crate::run_file::RunFile;
use crate::session::Session;
use crate::share::Lease;
use crate::tool_scope::NestedScope;

/// The data of a call's request beside the tool and its arguments.
#[derive(Debug, Clone, Default)]
pub struct CallOrigin {
    /// The request of the call, if it came from outside of this process.
    pub request: Option<Arc<ClientRequest>>,
    /// The batch that it came with: an id of the gateway, which no client can name.
    pub batch: Option<Arc<str>>,
    pub trace: Option<TraceParent>,
    pub session: Option<Arc<Session>>,
    /// Where it is not the session: the run or conversation of an agent, or the session of an MCP client, among whose values its
    /// result is.
    pub values_of: Option<Arc<str>>,
    /// The run of a conversation that makes it.
    pub run: Option<Arc<str>>,
    /// `session_context.user_text`: the text of the user, as the client declares it.
    pub user_text: Option<Arc<str>>,
    /// The request to the agent that makes the call, for its approver.
    pub asked: Option<Arc<str>>,
    /// `session_context.user_id`: never an identity, only passed on and recorded.
    pub claimed_user: Option<String>,
    /// `session_context.prompt_params`, for adapters (E43).
    pub prompt_params: Map<String, Value>,
    /// `session_context.tool_parameters`, for adapters.
    pub tool_parameters: Map<String, Value>,
    /// Set where its result goes to a model that can read a stored one.
    pub handles: Option<ResultHandles>,
}

impl CallOrigin {
    /// The id of the session among whose values its result is; none for a call without a session.
    pub fn session_of_values(&self) -> Option<&Arc<str>> {
        self.values_of.as_ref().or(self.session.as_ref().map(|session| &session.id))
    }
}

/// The place of a call among the calls that running tools make.
#[derive(Debug, Clone, Default)]
pub struct CallNesting {
    /// 0 for a call from outside, parent + 1 for a call made by a running tool.
    pub depth: u32,
    /// The parent of a call made by a running tool.
    pub parent: Option<Arc<ParentCall>>,
    /// The caller's tools that calls made by its tool may use; for such a call, the tools that it may use.
    pub scope: NestedScope,
}

/// The identity of a call when it is sent again.
#[derive(Debug, Clone, Default)]
pub struct CallResumption {
    pub idempotency_key: Option<String>,
    /// The id of the approval by which it is made (`X-Approval-Id`).
    pub approval: Option<Arc<str>>,
    /// The run of a program that the call resumes.
    pub run: Option<Arc<str>>,
    /// The reasons that an approver was shown for this effect of a program, with all its effects. Only a program's run sets them.
    pub shown_reasons: Option<Arc<[String]>>,
    /// The run of a program that the call plays again: its program gets the answers of the file, and calls nothing.
    pub replay: Option<Arc<RunFile>>,
    /// Sent to an HTTP API as its `Idempotency-Key`: the same key when the recorder of the call sends it again.
    pub upstream_key: Option<Arc<str>>,
}

/// The MCP client of a call.
#[derive(Debug, Clone, Default)]
pub struct CallClient {
    /// The client, if it can be contacted while the call runs.
    pub peer: Option<Arc<dyn ClientPeer>>,
    /// The MCP session of the call, where the client's revision has sessions.
    pub session: Option<Arc<dyn ClientSession>>,
    /// The members that the client adds for the tool's server, beside the arguments: the `_meta` of an MCP request.
    pub meta: Map<String, Value>,
    /// The client wants it to run as a task.
    pub as_task: bool,
    /// The effect that is undone if its caller leaves before it has the result.
    pub undo: Option<Arc<Undo>>,
}

/// The accounts of a call's charges.
#[derive(Debug, Clone, Default)]
pub struct CallCharging {
    pub scopes: BudgetScopes,
    /// Stores its charge; without it the charge is written in the background.
    pub sink: Option<Arc<dyn ChargeSink>>,
}

/// The form in which a call came.
#[derive(Debug, Default)]
pub struct CallBody {
    /// The share of its arguments in the memory for bodies.
    pub memory: Option<Arc<Lease>>,
    /// The file that its arguments name, where the request's body is one.
    pub upload: Option<Arc<Upload>>,
    /// Changes of its form before it came here, for its receipt.
    pub corrections: Vec<Coercion>,
    /// The id of the call in an agent's run.
    pub agent_call: Option<Box<str>>,
}

/// The notes of a call while it runs.
#[derive(Debug, Default)]
pub struct CallProgress {
    /// The calls that its tool has made.
    pub nested: NestedCalls,
    /// The session of an interpreter in which its program ran.
    pub interpreter: InterpreterNote,
    /// Whether its price is refunded when it ends.
    pub sending: Sending,
    /// How long it has waited for sessions of MCP servers to start: not counted as the tool's time.
    pub starting: OpenTime,
    /// The input of the policies about it, where audit lines have that.
    pub policy_input: Mutex<Option<Box<RawValue>>>,
    /// How long it has waited for slots, queues and look-ups of the gateway: not counted as the tool's time either.
    pub queueing: Arc<QueueTime>,
}
