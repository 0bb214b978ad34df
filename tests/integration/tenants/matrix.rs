//! The matrix as its file states it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::callers::{ANN, CALLERS, Caller, EVE, MAX, ROOT};

const TEXT: &str = include_str!("matrix.yaml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Matrix {
    callers: Vec<String>,
    routes: Vec<Group>,
    forms: Vec<Group>,
    mcp: Vec<Group>,
}

/// Routes, forms or methods with the same answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    of: Vec<String>,
    #[serde(default)]
    pub thing: Option<Thing>,
    #[serde(default)]
    pub body: Value,
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
    #[serde(default)]
    pub query: String,
    #[serde(default)]
    pub ends: bool,
    #[serde(default)]
    pub sessionless: bool,
    #[serde(default)]
    why: Option<String>,
    #[serde(default)]
    own: Option<String>,
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    other: Option<String>,
    #[serde(default)]
    shared: Option<String>,
}

/// What is made, so that something can be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Thing {
    Conversation,
    Run,
    Plan,
    Result,
    Key,
    Approval,
    Call,
    Server,
    /// A server that is one tool.
    Function,
    /// A tool of a server.
    ServerTool,
    Tenant,
    Model,
    Skill,
    Tool,
    Agent,
    Nothing,
}

impl Thing {
    /// Whether no answer has the id of such a thing of this owner: of another tenant, and for a caller without a role of anybody else.
    pub(super) fn is_hidden_from(self, caller: Caller, owner: Caller) -> bool {
        if owner == caller || caller == ROOT {
            return false;
        }
        match self {
            Self::Nothing | Self::Tool | Self::Agent => false,
            Self::Server | Self::Function | Self::ServerTool | Self::Tenant | Self::Model | Self::Skill => {
                ![caller.tenant, ROOT.tenant].contains(&owner.tenant)
            }
            Self::Conversation | Self::Run | Self::Plan | Self::Result | Self::Key | Self::Approval | Self::Call => {
                owner.tenant != caller.tenant || caller.roles.is_empty()
            }
        }
    }
}

/// Whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Own,
    Tenant,
    Other,
    Shared,
}

/// One caller who asks for one thing.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    pub of: &'a str,
    pub group: &'a Group,
    whose: Whose,
    pub column: usize,
    pub caller: Caller,
    pub expected: &'a str,
}

impl Matrix {
    pub(super) fn read() -> Self {
        let matrix: Self = serde_saphyr::from_str(TEXT).unwrap();
        assert_eq!(matrix.callers, ["none", "caller", "viewer", "approver", "operator", "admin", "default"]);
        for group in matrix.routes.iter().chain(&matrix.forms).chain(&matrix.mcp) {
            assert!(!group.of.is_empty() && !group.rows().is_empty(), "{group:?}");
            assert!(group.thing != Some(Thing::Nothing) || group.why.is_some(), "{:?} says why", group.of);
        }
        matrix
    }

    pub(super) fn routes(&self) -> impl Iterator<Item = Cell<'_>> {
        self.routes.iter().flat_map(Group::cells)
    }

    pub(super) fn forms(&self) -> impl Iterator<Item = Cell<'_>> {
        self.forms.iter().flat_map(Group::cells)
    }

    pub(super) fn methods(&self) -> impl Iterator<Item = Cell<'_>> {
        self.mcp.iter().flat_map(Group::cells)
    }
}

impl Group {
    fn rows(&self) -> Vec<(Whose, Vec<&str>)> {
        let all = [
            (Whose::Own, &self.own),
            (Whose::Tenant, &self.tenant),
            (Whose::Other, &self.other),
            (Whose::Shared, &self.shared),
        ];
        let stated = all.into_iter().filter_map(|(whose, row)| Some((whose, row.as_ref()?)));
        stated
            .map(|(whose, row)| {
                let answers: Vec<_> = row.split_whitespace().collect();
                assert_eq!(answers.len(), CALLERS.len(), "{:?} {whose:?}", self.of);
                assert!(
                    answers.iter().all(|answer| ["ok", "401", "403", "404", "taken"].contains(answer)),
                    "{:?}: {row}",
                    self.of
                );
                (whose, answers)
            })
            .collect()
    }

    fn cells(&self) -> Vec<Cell<'_>> {
        let rows = self.rows();
        let cells = self.of.iter().flat_map(|of| {
            rows.iter().flat_map(move |(whose, answers)| {
                answers.iter().zip(CALLERS).enumerate().map(move |(column, (expected, caller))| Cell {
                    of,
                    group: self,
                    whose: *whose,
                    column,
                    caller,
                    expected,
                })
            })
        });
        cells.collect()
    }
}

impl Cell<'_> {
    /// Whose the thing is. Somebody without credentials has nothing, and asks for Ann's.
    pub(super) fn owner(&self) -> Caller {
        match self.whose {
            Whose::Own if self.caller.key.is_empty() => ANN,
            Whose::Own => self.caller,
            Whose::Tenant => MAX,
            Whose::Other => EVE,
            Whose::Shared => ROOT,
        }
    }
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { of, group, whose, caller, expected, .. } = self;
        write!(formatter, "{of} {:?} {whose:?} by {}: {expected} is stated", group.fields, caller.id)
    }
}
