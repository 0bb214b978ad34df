//! Nothing in the tables crosses tenants: each tenant can be in a database of its own. The tables of tenants are the
//! tables that the page about cells moves.

use std::collections::{BTreeMap, BTreeSet};

use super::test_support::test_store;
use super::{Engine, Store};
use sekisho_core::checkout::checkout;

/// The owner of a table's rows.
enum Rows {
    /// The rows of the tenant in this column. The column may name the caller too.
    Tenant(&'static str),
    /// The rows of the tenant whose row of another table this column names.
    Of { table: &'static str, by: &'static str },
    /// The rows of no tenant, and why.
    AllTenants(&'static str),
}

const TABLES: &[(&str, Rows)] = &[
    ("_sqlx_migrations", Rows::AllTenants("the version of the tables")),
    ("agent_runs", Rows::Tenant("caller_key")),
    ("approvals", Rows::Tenant("caller_key")),
    ("background_runs", Rows::Tenant("caller_key")),
    ("broker_clients", Rows::AllTenants("a client registers before anybody signs in")),
    ("broker_codes", Rows::AllTenants("a digest, and a sealed text, for ten minutes")),
    ("broker_keys", Rows::AllTenants("the keys of the gateway as an issuer")),
    ("broker_sessions", Rows::Tenant("tenant")),
    ("budget_leases", Rows::Tenant("scope_key")),
    ("call_contents", Rows::Tenant("tenant")),
    ("call_sums", Rows::Tenant("tenant")),
    ("configuration_changes", Rows::AllTenants("about what all tenants share")),
    ("conversation_runs", Rows::Of { table: "conversations", by: "conversation" }),
    ("conversations", Rows::Tenant("caller_key")),
    ("daily_usage", Rows::Tenant("scope_key")),
    ("flow_destinations", Rows::Tenant("tenant")),
    ("flow_sessions", Rows::Tenant("caller_key")),
    ("flow_values", Rows::Tenant("caller_key")),
    ("idempotency_records", Rows::Tenant("caller_key")),
    ("indexed_calls", Rows::Tenant("tenant")),
    ("indexed_chunks", Rows::AllTenants("times, and bits of digests of the values of calls")),
    ("indexed_events", Rows::AllTenants("events of the gateway, such as a reload, have no tenant")),
    ("interpreter_sessions", Rows::Tenant("caller_key")),
    ("managed_keys", Rows::Tenant("tenant")),
    ("mcp_servers", Rows::AllTenants("registered by administrators of the gateway, for all its tenants")),
    ("message_logs", Rows::Of { table: "conversation_runs", by: "run" }),
    ("model_usage", Rows::Tenant("caller_key")),
    ("openapi_collections", Rows::AllTenants("registered by administrators of the gateway, for all its tenants")),
    ("paused_runs", Rows::Tenant("caller_key")),
    ("plan_vectors", Rows::Of { table: "plans", by: "plan" }),
    ("plans", Rows::Tenant("caller_key")),
    ("program_run_parts", Rows::Of { table: "program_runs", by: "run" }),
    ("program_runs", Rows::Tenant("caller_key")),
    ("rate_buckets", Rows::Tenant("bucket")),
    ("recorded_runs", Rows::Tenant("caller_key")),
    ("replicas", Rows::AllTenants("the processes of the gateway")),
    ("reserved_charges", Rows::Tenant("tenant")),
    ("resources", Rows::AllTenants("the tenants themselves, and models and skills for all of them")),
    ("results", Rows::Tenant("caller_key")),
    ("rule_usage", Rows::AllTenants("sums of the rules of the gateway, which may be of all tenants")),
    ("session_prefixes", Rows::Of { table: "conversations", by: "conversation" }),
    ("session_summaries", Rows::Of { table: "conversations", by: "conversation" }),
    ("shared_versions", Rows::AllTenants("counters of the tables of all tenants")),
    ("source_requests", Rows::Tenant("tenant")),
    ("stored_charges", Rows::AllTenants("random ids of charges, and nothing else")),
    ("tenant_resources", Rows::Tenant("tenant")),
    ("thread_summaries", Rows::Tenant("caller_key")),
    ("tool_execution_logs", Rows::Of { table: "conversation_runs", by: "run" }),
    ("tool_permits", Rows::AllTenants("the slots of a tool, which all tenants use")),
    ("turn_journal", Rows::Of { table: "conversation_runs", by: "run" }),
    ("usage_logs", Rows::Of { table: "conversation_runs", by: "run" }),
    ("user_sign_ins", Rows::Tenant("caller_key")),
    ("user_tokens", Rows::Tenant("caller_key")),
    ("work", Rows::AllTenants("who works on a thing, for the time of a lease")),
    ("workspaces", Rows::AllTenants("a digest of tenant, caller and session names each, and its files are objects")),
];

/// Keys that no two tenants have, although the tenant is not in them: random, or a digest with the caller in it.
const UNIQUE_IDS: [&str; 15] = [
    "approvals.id",
    "approvals.pending_digest",
    "background_runs.id",
    "broker_sessions.id",
    "call_contents.call_id",
    "conversations.id",
    "conversation_runs.id",
    "indexed_calls.call_id",
    "managed_keys.id",
    "plans.id",
    "program_runs.id",
    "idempotency_records.id",
    "reserved_charges.id",
    "results.handle",
    "user_sign_ins.id",
];

/// The columns and keys of a table.
#[derive(Debug, Default)]
struct Table {
    columns: BTreeSet<String>,
    /// Columns of each key that no two rows share.
    unique_keys: Vec<BTreeSet<String>>,
}

async fn schema(store: &Store) -> BTreeMap<String, Table> {
    let (columns, keys) = match store.engine {
        Engine::Sqlite => (
            "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'",
            "SELECT t.name, i.name, c.name FROM sqlite_master t, pragma_index_list(t.name) i, pragma_index_info(i.name) c
             WHERE t.type = 'table' AND i.\"unique\" = 1",
        ),
        Engine::PostgreSql => (
            "SELECT table_name::TEXT, column_name::TEXT FROM information_schema.columns WHERE table_schema = current_schema()",
            "SELECT t.relname::TEXT, i.indexrelid::TEXT, c.attname::TEXT FROM pg_index i
             JOIN pg_class t ON t.oid = i.indrelid
             JOIN pg_attribute c ON c.attrelid = t.oid AND c.attnum = ANY (i.indkey)
             WHERE i.indisunique AND t.relnamespace = current_schema()::regnamespace",
        ),
    };
    let mut tables = BTreeMap::<String, Table>::new();
    let columns: Vec<(String, String)> = sqlx::query_as(columns).fetch_all(&store.pool).await.unwrap();
    for (table, column) in columns {
        tables.entry(table).or_default().columns.insert(column);
    }
    let rows: Vec<(String, String, String)> = sqlx::query_as(keys).fetch_all(&store.pool).await.unwrap();
    let mut keys = BTreeMap::<(String, String), BTreeSet<String>>::new();
    for (table, key, column) in rows {
        keys.entry((table, key)).or_default().insert(column);
    }
    for ((table, _), columns) in keys {
        tables.get_mut(&table).unwrap().unique_keys.push(columns);
    }
    tables
}

async fn foreign_keys(store: &Store) -> i64 {
    let sql = match store.engine {
        Engine::Sqlite => {
            "SELECT COUNT(*) FROM sqlite_master t, pragma_foreign_key_list(t.name) WHERE t.type = 'table'"
        }
        Engine::PostgreSql => {
            "SELECT COUNT(*) FROM information_schema.table_constraints
             WHERE constraint_type = 'FOREIGN KEY' AND table_schema = current_schema()"
        }
    };
    sqlx::query_scalar(sql).fetch_one(&store.pool).await.unwrap()
}

#[tokio::test]
async fn every_table_is_divided_by_tenant_or_says_why_not() {
    let store = test_store().await;
    let tables = schema(&store).await;
    let listed: Vec<_> = TABLES.iter().map(|(table, _)| (*table).to_owned()).collect();
    assert_eq!(tables.keys().cloned().collect::<Vec<_>>(), listed, "whose the rows of each table are is listed here");
    assert_eq!(foreign_keys(&store).await, 0, "rows of another table are named by their ids");
    for (name, rows) in TABLES {
        let owner = match rows {
            Rows::AllTenants(reason) => {
                assert!(!reason.is_empty(), "{name}");
                continue;
            }
            Rows::Tenant(column) => *column,
            Rows::Of { table, by } => {
                let of = TABLES.iter().find(|(other, _)| other == table);
                assert!(!matches!(of.unwrap().1, Rows::AllTenants(_)), "{name}: {table} has no tenant");
                *by
            }
        };
        let table = &tables[*name];
        assert!(table.columns.contains(owner), "{name}.{owner}");
        for key in &table.unique_keys {
            let is_id = key.iter().any(|column| UNIQUE_IDS.contains(&format!("{name}.{column}").as_str()));
            assert!(key.contains(owner) || is_id, "{name}: rows of two tenants may have the same key {key:?}");
        }
    }
}

/// Rates are new in a minute, leases are given back before a tenant moves, sessions of interpreters begin anew, users sign in
/// anew at another issuer, and the index of calls with its sums is rebuilt from the audit trails, which stay. The contents of calls are kept for some
/// days, in the cell that made them.
const NOT_MOVED: [&str; 8] = [
    "broker_sessions",
    "budget_leases",
    "call_contents",
    "call_sums",
    "indexed_calls",
    "interpreter_sessions",
    "rate_buckets",
    "reserved_charges",
];

#[test]
fn the_page_about_cells_moves_the_tables_of_a_tenant() {
    let read = |file: &str| std::fs::read_to_string(checkout().join(file)).unwrap();
    let page = read("docs/cells.md");
    let block = page.split("<<'TABLES'").nth(1).unwrap().split("\nTABLES").next().unwrap();
    let moved: BTreeSet<_> = block.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    let of_tenants = TABLES.iter().filter(|(_, rows)| !matches!(rows, Rows::AllTenants(_))).map(|(table, _)| *table);
    let expected: BTreeSet<_> = of_tenants.filter(|table| !NOT_MOVED.contains(table)).collect();
    assert_eq!(moved, expected);
    // The test that moves a tenant has a row in each.
    let test = read("tests/cluster/cells_test.py");
    let has_row =
        |table: &str| [format!("INTO {table} "), format!("(\"{table}\", ")].iter().any(|row| test.contains(row));
    let without: Vec<_> = moved.into_iter().filter(|table| !has_row(table)).collect();
    assert_eq!(without, [""; 0], "tests/cluster/cells_test.py has no row of these tables");
}
