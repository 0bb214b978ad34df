//! The index on both engines: entries are found by each field, in each order, page by page.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::test_support::test_store;
use sekisho_core::call::{CallContext, Caller, Via};
use sekisho_core::error::CallError;
use sekisho_core::record::{EventRecord, Status};

async fn index() -> CallIndexStore {
    CallIndexStore(test_store().await)
}

/// A call that ended in this second.
fn call(tool: &str, tenant: &str, second: u64, error: Option<&CallError>) -> NewIndexedCall {
    let context = CallContext::new(tool, Arc::new(Caller::new("ann", tenant, Vec::new())), Via::Rest);
    let call = CallSummary {
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
        duration: Duration::from_millis(second),
        ..CallSummary::new(&context, None, error, String::new())
    };
    NewIndexedCall { call: Arc::new(call), calls: 1, words: None }
}

fn denied() -> CallError {
    CallError::new(ErrorCode::Denied, "The rule 100% refuses it").at_stage(Stage::Policy)
}

async fn tools(index: &CallIndexStore, filter: &IndexFilter) -> Vec<String> {
    let found = index.calls(filter, CallOrder::Time, None, 50).await.unwrap();
    found.calls.iter().map(|found| found.call.tool.to_string()).collect()
}

#[tokio::test]
async fn calls_are_found_by_what_they_have() {
    let (index, mut writer) = (index().await, IndexWriter::default());
    let refused = call("crm__list", "acme", 2, Some(&denied()));
    let calls = [call("crm__get", "acme", 1, None), refused, call("echo", "globex", 3, None)];
    index.add_calls(&mut writer, &calls).await.unwrap();
    index.add_calls(&mut writer, &calls).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let second = |second: i64| Some(Timestamp::from_second(second).unwrap());
    let id = calls[2].call.id.to_string();
    for (filter, expected) in [
        (IndexFilter::default(), &["echo", "crm__list", "crm__get"][..]),
        (IndexFilter { tool: text("echo"), ..IndexFilter::default() }, &["echo"]),
        (IndexFilter { tool: text("crm__*"), ..IndexFilter::default() }, &["crm__list", "crm__get"]),
        (IndexFilter { tool: text("crm__l*"), ..IndexFilter::default() }, &["crm__list"]),
        (IndexFilter { tool: text("e*"), ..IndexFilter::default() }, &["echo"]),
        (IndexFilter { server: text("crm"), ..IndexFilter::default() }, &["crm__list", "crm__get"]),
        (IndexFilter { tenant: text("globex"), ..IndexFilter::default() }, &["echo"]),
        (IndexFilter { tenant: text("globex"), server: text("crm"), ..IndexFilter::default() }, &[]),
        (IndexFilter { code: text("denied"), ..IndexFilter::default() }, &["crm__list"]),
        (IndexFilter { stage: text("policy"), ..IndexFilter::default() }, &["crm__list"]),
        (IndexFilter { status: text("refused"), ..IndexFilter::default() }, &["crm__list"]),
        (IndexFilter { call_id: Some(id.clone()), ..IndexFilter::default() }, &["echo"]),
        (IndexFilter { text: Some(id), ..IndexFilter::default() }, &["echo"]),
        (IndexFilter { text: text("100% REFUSES"), ..IndexFilter::default() }, &["crm__list"]),
        (IndexFilter { text: text("100_"), ..IndexFilter::default() }, &[]),
        (
            IndexFilter { min_duration: Some(Duration::from_millis(2)), ..IndexFilter::default() },
            &["echo", "crm__list"],
        ),
        (IndexFilter { since: second(2), until: second(3), ..IndexFilter::default() }, &["crm__list"]),
        (IndexFilter { dry_run: Some(true), ..IndexFilter::default() }, &[]),
        (IndexFilter { session: text("none"), ..IndexFilter::default() }, &[]),
    ] {
        assert_eq!(tools(&index, &filter).await, expected, "{filter:?}");
    }
    let facets = index.facets(&IndexFilter { tenant: text("acme"), ..IndexFilter::default() }).await.unwrap();
    let of = |name: &str| facets.iter().find(|facet| facet.name == name).unwrap().values.clone();
    assert_eq!(of("server"), [("crm".to_owned(), 2)]);
    assert_eq!(of("status"), [("refused".to_owned(), 1), ("success".to_owned(), 1)]);
}

#[tokio::test]
async fn calls_are_found_by_run_program_and_approval() {
    let (index, mut writer) = (index().await, IndexWriter::default());
    let mut of_run = call("t", "acme", 1, None);
    let summary = Arc::get_mut(&mut of_run.call).unwrap();
    (summary.run, summary.program) = (Some("r-1".into()), Some("ab".into()));
    summary.approval = Some("a-1".into());
    index.add_calls(&mut writer, &[of_run, call("other", "acme", 2, None)]).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    for (filter, expected) in [
        (IndexFilter { run: text("r-1"), ..IndexFilter::default() }, &["t"][..]),
        (IndexFilter { program: text("ab"), ..IndexFilter::default() }, &["t"]),
        (IndexFilter { approval: text("a-1"), ..IndexFilter::default() }, &["t"]),
        (IndexFilter { run: text("a-1"), ..IndexFilter::default() }, &[]),
        (IndexFilter { text: text("a-1"), ..IndexFilter::default() }, &["t"]),
        (IndexFilter { text: text("r-1"), ..IndexFilter::default() }, &["t"]),
    ] {
        assert_eq!(tools(&index, &filter).await, expected, "{filter:?}");
    }
}

#[tokio::test]
async fn failures_are_counted_with_the_first_call_since_the_last_success() {
    let (index, mut writer) = (index().await, IndexWriter::default());
    let failed = CallError::new(ErrorCode::UpstreamError, "503").at_stage(Stage::Execute);
    let calls = [
        call("crm__list", "acme", 1, Some(&failed)),
        call("crm__list", "acme", 2, None),
        call("crm__list", "acme", 3, Some(&failed)),
        call("crm__list", "acme", 4, Some(&failed)),
        call("echo", "acme", 5, Some(&denied())),
        call("echo", "acme", 6, None),
        call("fine", "acme", 7, None),
    ];
    index.add_calls(&mut writer, &calls).await.unwrap();
    let found = index.failures(&IndexFilter::default(), FailuresBy::Tool).await.unwrap();
    let second = |moment: Timestamp| moment.as_second();
    let rows = found.groups.iter().map(|group| {
        let FailureGroup { value, failed, calls, since, last, last_success, is_constant, .. } = group;
        (&**value, *failed, *calls, second(*since), second(*last), last_success.map(second), *is_constant)
    });
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows, [("crm__list", 3, 4, 3, 4, Some(2), true), ("echo", 1, 2, 5, 5, Some(6), false)]);
    let ids = [calls[2].call.id.to_string(), calls[4].call.id.to_string()];
    assert_eq!(found.groups.iter().map(|group| group.first_call.clone()).collect::<Vec<_>>(), ids);
    assert_eq!(found.groups[0].code.as_deref(), Some("upstream_error"));
    assert_eq!(found.searched_since, None);
    let code = Some("denied".to_owned());
    let refused =
        index.failures(&IndexFilter { code, ..IndexFilter::default() }, FailuresBy::Tool).await.unwrap().groups;
    assert_eq!(refused.iter().map(|group| (group.calls, group.is_constant)).collect::<Vec<_>>(), [(2, false)]);
    let since = Some(Timestamp::from_second(5).unwrap());
    let later = index.failures(&IndexFilter { since, ..IndexFilter::default() }, FailuresBy::Server).await.unwrap();
    assert_eq!(later.groups, []);
}

#[tokio::test]
async fn the_calls_that_a_limit_counts_have_their_callers_and_exact_costs() {
    let (index, mut writer) = (index().await, IndexWriter::default());
    let costing = |tool: &str, second, cost: &str, error| {
        let mut new = call(tool, "acme", second, error);
        Arc::get_mut(&mut new.call).unwrap().cost_usd = cost.parse().unwrap();
        new
    };
    let limited = CallError::new(ErrorCode::RateLimited, "used up").at_stage(Stage::Limits);
    let calls = [
        costing("a", 1, "9000000.25", None),
        costing("a", 2, "0.000000000001", Some(&denied())),
        costing("b", 3, "0", None),
        costing("a", 4, "0", Some(&limited)),
    ];
    index.add_calls(&mut writer, &calls).await.unwrap();
    let uses = index.counted_uses(&IndexFilter::default()).await.unwrap();
    let uses = uses.iter().map(|used| (&*used.tool, &*used.caller, used.calls, used.cost_usd.normalize().to_string()));
    let uses: Vec<_> = uses.collect();
    assert_eq!(uses, [("a", "ann", 2, "9000000.250000000001".to_owned()), ("b", "ann", 1, "0".to_owned())]);
}

#[tokio::test]
async fn pages_follow_each_other_in_each_order() {
    let (index, mut writer) = (index().await, IndexWriter::default());
    let calls: Vec<_> = (1..=7).map(|second| call("t", "acme", second, None)).collect();
    // Two chunks, whose times overlap.
    index.add_calls(&mut writer, &calls[..4]).await.unwrap();
    let mut other = IndexWriter::default();
    index.add_calls(&mut other, &[call("t", "acme", 3, None)]).await.unwrap();
    index.add_calls(&mut other, &calls[4..]).await.unwrap();
    for order in [CallOrder::Time, CallOrder::Duration, CallOrder::Cost] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let found = index.calls(&IndexFilter::default(), order, after.as_ref(), 3).await.unwrap();
            assert!(found.calls.len() <= 3);
            seen.extend(found.calls.iter().map(|call| call.place(order)));
            after = found.next.map(|next| next.to_string().parse().unwrap());
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), 8, "{order:?}");
        assert!(seen.is_sorted_by(|one, other| one > other), "{order:?}: {seen:?}");
    }
}

/// Otherwise the page of an old call would not find it.
#[tokio::test]
async fn a_call_is_found_by_its_id_behind_chunks_that_seem_to_have_it() {
    let index = index().await;
    let old = call("t", "acme", 1, None);
    for second in 10..40 {
        let mut chunk = OpenChunk::default();
        let later = CallSummary { time: SystemTime::UNIX_EPOCH + Duration::from_secs(second), ..(*old.call).clone() };
        chunk.add(&NewIndexedCall { call: Arc::new(later), calls: 1, words: None });
        let mut connection = index.0.pool.acquire().await.unwrap();
        chunk.write(&index, &mut connection).await.unwrap();
    }
    let id = Some(old.call.id.to_string());
    index.add_calls(&mut IndexWriter::default(), &[old]).await.unwrap();
    for filter in [
        IndexFilter { call_id: id.clone(), ..IndexFilter::default() },
        IndexFilter { text: id, ..IndexFilter::default() },
    ] {
        assert_eq!(tools(&index, &filter).await, ["t"], "{filter:?}");
    }
}

#[tokio::test]
async fn old_calls_and_calls_beyond_the_size_leave_with_their_chunks() {
    let (index, mut writer) = (index().await, IndexWriter::default());
    let calls: Vec<_> = (1..=10).map(|second| call("t", "acme", second, None)).collect();
    index.add_calls(&mut writer, &calls).await.unwrap();
    let since = Timestamp::from_second(4).unwrap();
    assert_eq!(index.retain(since, u64::MAX >> 20).await.unwrap(), 3);
    assert_eq!(tools(&index, &IndexFilter::default()).await.len(), 7);
    let record = serde_json::to_string(&*calls[9].call).unwrap().len();
    let two = 2 * (u64::try_from(record).unwrap() + 520);
    assert_eq!(index.retain(since, two).await.unwrap(), 5);
    assert_eq!(tools(&index, &IndexFilter::default()).await.len(), 2);
    index.retain(Timestamp::from_second(20).unwrap(), u64::MAX >> 20).await.unwrap();
    let chunks: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM indexed_chunks").fetch_one(&index.0.pool).await.unwrap();
    assert_eq!(chunks, 0);
}

#[tokio::test]
async fn figures_are_exact_each_call_counts_once_and_they_are_by_time_and_subject() {
    let (index, mut writer) = (index().await, IndexWriter::default());
    let now = Timestamp::now();
    let ago = |tool: &str, tenant: &str, seconds: i64, error: Option<&CallError>, cost: &str| {
        let row = call(tool, tenant, u64::try_from(now.as_second() - seconds).unwrap(), error);
        let call = CallSummary { cost_usd: cost.parse().unwrap(), tokens: 5, ..(*row.call).clone() };
        NewIndexedCall { call: Arc::new(call), ..row }
    };
    let calls = [
        ago("crm__get", "acme", 61, None, "0.000000000001"),
        ago("crm__get", "acme", 61, None, "40000000"),
        ago("crm__list", "acme", 3_700, Some(&denied()), "0"),
        ago("echo", "globex", 5, None, "0.25"),
        // Older than any figure.
        ago("echo", "globex", 100 * 86_400, None, "7"),
    ];
    index.add_calls(&mut writer, &calls[..2]).await.unwrap();
    index.write_sums(&mut writer).await.unwrap();
    // Some of these are there.
    let mut other = IndexWriter::default();
    index.add_calls(&mut other, &calls).await.unwrap();
    index.write_sums(&mut other).await.unwrap();
    index.write_sums(&mut other).await.unwrap();
    let total = async |subject, tenant: Option<&str>, value: &str, name: &str| {
        let range = TimeRange::ALL.into_iter().find(|range| range.name == name).unwrap();
        let series = Series { subject, tenant: tenant.map(str::to_owned), value: value.to_owned() };
        let figures = index.figures(&series, range, now).await.unwrap();
        assert_eq!(figures.parts.len(), usize::try_from(range.parts).unwrap());
        assert!(figures.end_of(figures.parts.last().unwrap().0) > now, "{name}");
        figures.total()
    };
    for range in TimeRange::ALL.map(|range| range.name) {
        let acme = total(Subject::All, Some("acme"), "", range).await;
        assert_eq!(acme.cost_usd.to_string(), "40000000.000000000001", "{range}");
        let refused = u64::from(!matches!(range, "15m" | "1h"));
        assert_eq!(
            (acme.calls(), acme.of(Status::Refused), acme.refused_at("policy")),
            (2 + refused, refused, refused)
        );
        assert_eq!(total(Subject::All, None, "", range).await.calls(), 3 + refused, "{range}");
        assert_eq!(total(Subject::Server, None, "crm", range).await.calls(), 2 + refused, "{range}");
    }
    for (subject, tenant, value, calls) in [
        (Subject::Tool, Some("acme"), "crm__get", 2),
        (Subject::Tool, None, "crm__list", 1),
        (Subject::Tool, Some("globex"), "crm__get", 0),
        (Subject::Caller, Some("acme"), "ann", 3),
        (Subject::Caller, None, "ann", 4),
        (Subject::Owner, Some("acme"), "acme\u{1f}ann", 3),
        (Subject::Key, Some("acme"), "none", 0),
    ] {
        assert_eq!(total(subject, tenant, value, "24h").await.calls(), calls, "{subject:?} {tenant:?} {value}");
    }
    let day = TimeRange::ALL[3];
    let by_tool = |sums: BTreeMap<String, CallSums>| sums.into_iter().map(|(tool, sums)| (tool, sums.calls()));
    let tools = index.sums_of_tools(Some("acme"), None, day, now).await.unwrap();
    let expected = [("crm__get".to_owned(), 2), ("crm__list".to_owned(), 1)];
    assert_eq!(by_tool(tools).collect::<Vec<_>>(), expected);
    let callers = async |tenant: Option<&str>| index.sums_of_callers(tenant, day, now).await.unwrap();
    let of = |tenant: &str| (tenant.to_owned(), "ann".to_owned());
    let (all, acme) = (callers(None).await, callers(Some("acme")).await);
    assert_eq!((all.len(), all[&of("acme")].calls(), all[&of("globex")].calls()), (2, 3, 1));
    assert_eq!((acme.len(), acme[&of("acme")].calls()), (1, 3));
    let own = index.sums_of_tools(Some("acme"), Some("acme\u{1f}ann"), day, now).await.unwrap();
    assert_eq!(by_tool(own).collect::<Vec<_>>(), expected);
    assert!(index.sums_of_tools(Some("acme"), Some("acme\u{1f}an"), day, now).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_tool_fails_while_no_more_calls_succeed_than_its_upstream_fails() {
    let (index, mut writer) = (index().await, IndexWriter::default());
    let now = u64::try_from(Timestamp::now().as_second()).unwrap();
    let failed = CallError::new(ErrorCode::UpstreamError, "503").at_stage(Stage::Execute);
    let answered = |status| CallError::new(ErrorCode::ToolError, "no").answered_with(status).at_stage(Stage::Execute);
    let calls = [
        call("repaired", "acme", now - 1_200, Some(&failed)),
        call("repaired", "acme", now - 600, None),
        call("broken", "acme", now - 600, None),
        call("broken", "acme", now, Some(&failed)),
        call("mostly", "acme", now, None),
        call("mostly", "acme", now, None),
        call("mostly", "acme", now, Some(&failed)),
        // Its fault is the call's.
        call("refusing", "acme", now, Some(&answered(404))),
        call("refusing", "other", now, Some(&answered(401))),
    ];
    index.add_calls(&mut writer, &calls).await.unwrap();
    index.write_sums(&mut writer).await.unwrap();
    let at = |second: u64| Timestamp::from_second(second.try_into().unwrap()).unwrap();
    let failing = async |tenant| Vec::from_iter(index.failing_tools(tenant, at(now)).await.unwrap());
    assert_eq!(failing(Some("acme")).await, ["broken"]);
    assert_eq!(failing(None).await, ["broken", "refusing"]);
    assert_eq!(index.failing_tools(None, at(now + 4_000)).await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_rebuild_adds_calls_that_left_to_the_index_and_not_to_the_sums() {
    let (index, mut writer) = (index().await, IndexWriter::default());
    let now = Timestamp::now();
    let second = u64::try_from(now.as_second()).unwrap();
    let calls = [120, 60].map(|ago| call("t", "acme", second - ago, None));
    index.add_calls(&mut writer, &calls).await.unwrap();
    index.write_sums(&mut writer).await.unwrap();
    let since = now.checked_sub(jiff::SignedDuration::from_secs(90)).unwrap();
    assert_eq!(index.retain(since, u64::MAX >> 20).await.unwrap(), 1);
    let mut rebuilding = index.writer_of_old_calls().await.unwrap();
    index.add_calls(&mut rebuilding, &calls).await.unwrap();
    index.add_calls(&mut rebuilding, &[call("t", "acme", second - 30, None)]).await.unwrap();
    index.write_sums(&mut rebuilding).await.unwrap();
    assert_eq!(tools(&index, &IndexFilter::default()).await.len(), 3);
    let series = Series { subject: Subject::All, tenant: None, value: String::new() };
    let figures = index.figures(&series, TimeRange::ALL[3], now).await.unwrap();
    assert_eq!(figures.total().calls(), 3);
}

#[tokio::test]
async fn uses_of_tools_follow_each_other_page_by_page_and_leave_with_their_time() {
    let (index, mut writer) = (index().await, IndexWriter::default());
    let second = u64::try_from(Timestamp::now().as_second()).unwrap();
    let calls: Vec<_> = ["acme", "globex"]
        .into_iter()
        .flat_map(|tenant| [0, 1, 2].map(|day| call("echo", tenant, second - day * 86_400, None)))
        .chain([call("other", "acme", second, None)])
        .collect();
    index.add_calls(&mut writer, &calls).await.unwrap();
    index.write_sums(&mut writer).await.unwrap();
    let pages = async |whose: (Option<&str>, Option<&str>)| {
        let (mut seen, mut after): (Vec<ToolUse>, Option<UseCursor>) = (Vec::new(), None);
        loop {
            let found = index.tool_uses(Timestamp::UNIX_EPOCH, whose, after.as_ref(), 2).await.unwrap();
            after = found.last().map(|last| last.place().to_string().parse().unwrap());
            seen.extend(found);
            if after.is_none() || seen.len() > calls.len() {
                break seen;
            }
        }
    };
    let all = pages((None, None)).await;
    assert!(all.len() == 7 && all.is_sorted_by(|one, other| one.day >= other.day), "{all:?}");
    assert_eq!(pages((Some("globex"), None)).await.len(), 3);
    assert_eq!(pages((Some("acme"), Some("acme\u{1f}ann"))).await.len(), 4);
    assert_eq!(pages((Some("acme"), Some("globex\u{1f}ann"))).await.len(), 0);
    let later = Timestamp::now().checked_add(jiff::SignedDuration::from_hours(24 * 89)).unwrap();
    index.retain_sums(later).await.unwrap();
    assert_eq!(pages((None, None)).await.len(), 3, "of the last day");
    let minutes: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM call_sums WHERE period <> 86400")
        .fetch_one(&index.0.pool)
        .await
        .unwrap();
    assert_eq!(minutes, 0);
}

#[tokio::test]
async fn events_are_kept_once_and_found_by_tenant() {
    let index = index().await;
    let event = |second: u64, tenant: &str| EventRecord {
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
        event: "key_created".to_owned(),
        success: true,
        tenant: Some(tenant.to_owned()),
        caller: Some("ann".to_owned()),
        key: None,
        subject: Some("k1".to_owned()),
        detail: None,
        client: None,
        request_id: None,
        count: 1,
    };
    let events = [event(1, "acme"), event(2, "globex"), event(3, "acme")];
    index.add_events(&events).await.unwrap();
    index.add_events(&events).await.unwrap();
    let none = EventFilter { tenant: Some(String::new()), ..EventFilter::default() };
    assert_eq!(index.events(&none, None, 1).await.unwrap(), (Vec::new(), None));
    let acme = EventFilter { tenant: Some("acme".to_owned()), ..EventFilter::default() };
    let (first, next) = index.events(&acme, None, 1).await.unwrap();
    assert_eq!(first, [events[2].clone()]);
    let (last, next) = index.events(&acme, next.as_ref(), 1).await.unwrap();
    assert_eq!((last, next), (vec![events[0].clone()], None));
}

#[tokio::test]
async fn contents_are_kept_by_age_and_bytes() {
    let index = index().await;
    let content = |second| NewCallContent { call: call("echo", "acme", second, None).call, sealed: "x".repeat(100) };
    let contents: Vec<_> = (1..=5).map(content).collect();
    index.add_contents(&contents).await.unwrap();
    index.add_contents(&contents).await.unwrap();
    let kept = async || {
        let mut kept = Vec::new();
        for NewCallContent { call, .. } in &contents {
            let content = index.content_of(call).await.unwrap();
            assert_eq!(content.is_some(), index.has_content(call).await.unwrap());
            kept.push(content.is_some());
        }
        kept
    };
    let second = |second: i64| Timestamp::from_second(second).unwrap();
    assert_eq!(index.retain_contents(second(2), 400).await.unwrap(), 1);
    assert_eq!(kept().await, [false, true, true, true, true]);
    assert_eq!(index.retain_contents(second(0), 250).await.unwrap(), 2);
    assert_eq!(kept().await, [false, false, false, true, true]);
    assert_eq!(index.retain_contents(second(0), 99).await.unwrap(), 2);
    assert_eq!(kept().await, [false; 5]);
}

#[tokio::test]
async fn a_new_file_has_pages_for_several_calls() {
    let folder = tempfile::TempDir::new().unwrap();
    let location = StoreLocation::File(folder.path().join("sekisho.db"));
    let store = Store::open(&location).await.unwrap();
    let index = CallIndexStore::open(&location, &store).await.unwrap();
    let size: (i64,) = sqlx::query_as("SELECT page_size FROM pragma_page_size").fetch_one(&index.0.pool).await.unwrap();
    assert_eq!(size, (16_384,));
    index.close().await;
    store.close().await;
}
