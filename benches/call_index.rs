//! The index of calls on SQLite: the processor time of an entry, and the time of pages that filters choose.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::console::processor_millis;
use crate::row;
use sekisho_core::call::{CallContext, Caller, Stage, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::CallSummary;
use sekisho_store::{
    CallIndexStore, CallOrder, FailuresBy, IndexFilter, IndexWriter, NewIndexedCall, Series, Store, StoreLocation,
    Subject, TimeRange,
};

/// Calls that are added at once, as a busy gateway does.
const BATCH: u64 = 512;

/// Calls whose sums are written at once: of ten seconds, as [`call`] has them.
const SUMMED: u64 = 40_000;

/// When the first call ended: figures have the last hours.
static START: LazyLock<SystemTime> = LazyLock::new(|| SystemTime::now() - Duration::from_secs(3_000));

/// Of 30 servers with 10 tools each, 200 callers of 20 tenants; each tenth fails.
fn call(number: u64) -> NewIndexedCall {
    let (caller, tool) = (format!("caller {}", number * 7 % 200), number * 13 % 300);
    let caller = Caller::new(&caller, &format!("tenant {}", number % 20), Vec::new());
    let context = CallContext::new(format!("server{}__tool{tool}", tool / 10), Arc::new(caller), Via::Mcp);
    let failed = CallError::new(ErrorCode::UpstreamError, "it failed").at_stage(Stage::Execute);
    let call = CallSummary {
        time: *START + Duration::from_micros(number * 250),
        duration: Duration::from_micros(500 + number % 10_000),
        ..CallSummary::new(&context, None, number.is_multiple_of(10).then_some(&failed), format!("request {number}"))
    };
    NewIndexedCall { call: Arc::new(call), calls: 1, words: None }
}

/// The rows, with so many calls.
pub(crate) fn rows(calls: u64) {
    let folder = TempDir::new().unwrap();
    let runtime = Runtime::new().unwrap();
    let index = runtime.block_on(async {
        let location = StoreLocation::File(folder.path().join("sekisho.db"));
        let store = Store::open(&location).await.unwrap();
        CallIndexStore::open(&location, &store).await.unwrap()
    });
    let (mut writer, mut spent, mut some) = (IndexWriter::default(), 0.0, None);
    for first in (0..calls).step_by(usize::try_from(BATCH).unwrap()) {
        let batch: Vec<_> = (first..first + BATCH).map(call).collect();
        some = some.or_else(|| Some(batch[0].call.id.to_string()));
        let before = processor_millis(std::process::id());
        runtime.block_on(index.add_calls(&mut writer, &batch)).unwrap();
        if first % SUMMED < BATCH {
            runtime.block_on(index.write_sums(&mut writer)).unwrap();
        }
        spent += processor_millis(std::process::id()) - before;
    }
    let micros = spent * 1_000.0 / calls as f64;
    row(&format!("index of calls, processor time of an entry ({calls} calls)"), &format!("{micros:.1} µs"), "≤ 15 µs");
    let text = |text: &str| Some(text.to_owned());
    for (name, filter) in [
        ("by tool", IndexFilter { tool: text("server3__tool33"), ..IndexFilter::default() }),
        (
            "by tenant and code",
            IndexFilter { tenant: text("tenant 3"), code: text("upstream_error"), ..IndexFilter::default() },
        ),
        ("by the oldest id", IndexFilter { text: some, ..IndexFilter::default() }),
        ("by a value that none has", IndexFilter { session: text("none"), ..IndexFilter::default() }),
    ] {
        let began = Instant::now();
        runtime.block_on(index.calls(&filter, CallOrder::Time, None, 50)).unwrap();
        row(&format!("  a page {name}"), &format!("{:.0} ms", began.elapsed().as_secs_f64() * 1_000.0), "≤ 200 ms");
    }
    let began = Instant::now();
    runtime.block_on(index.failures(&IndexFilter::default(), FailuresBy::Tool)).unwrap();
    row("  failures by tool", &format!("{:.0} ms", began.elapsed().as_secs_f64() * 1_000.0), "≤ 200 ms");
    for (subject, tenant, value) in [
        (Subject::All, None, ""),
        (Subject::Tool, Some("tenant 3"), "server3__tool33"),
        (Subject::Caller, None, "caller 7"),
    ] {
        let series = Series { subject, tenant: tenant.map(str::to_owned), value: value.to_owned() };
        for range in TimeRange::ALL {
            runtime.block_on(index.figures(&series, range, jiff::Timestamp::now())).unwrap();
        }
    }
    row(
        "  charts of all, a tool and a caller, each of six times",
        &format!("{:.0} ms", began.elapsed().as_secs_f64() * 1_000.0),
        "≤ 200 ms",
    );
}
