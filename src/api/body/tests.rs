use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;

fn memory(values: u64) -> BodyMemory {
    BodyMemory { reading: Share::new(1 << 20), values: Share::new(values), uploads: Share::new(1) }
}

fn limits() -> BodyLimits {
    BodyLimits::of(&ServerConfig::default())
}

fn owner(name: &str) -> Owner {
    Owner { tenant: name.into(), caller: name.into() }
}

/// A text whose values take this many bytes, about.
fn text(bytes: usize) -> Vec<u8> {
    json!(vec![0; bytes / (2 + 2 * size_of::<Value>())]).to_string().into_bytes()
}

async fn hold(memory: &BodyMemory, owner: &Owner, text: &[u8]) -> Result<HeldMemory, CallError> {
    let limits = limits();
    memory.hold(limits.check(text).expect("JSON"), owner, limits).await
}

#[tokio::test(start_paused = true)]
async fn values_wait_for_memory_and_are_refused_in_time() {
    let memory = memory(1 << 20);
    let (ann, large) = (owner("ann"), text(700 << 10));
    let held = hold(&memory, &ann, &large).await.expect("memory");
    let began = Instant::now();
    let error = hold(&memory, &ann, &large).await.expect_err("no memory");
    assert_eq!((error.code(), began.elapsed().as_secs()), (ErrorCode::Overloaded, 15));
    assert!(hold(&memory, &ann, &text(1_000)).await.expect("few values").is_none());
    let waiting = hold(&memory, &ann, &large);
    let freed = async {
        sleep(Duration::from_secs(1)).await;
        drop(held);
    };
    let (granted, ()) = tokio::join!(waiting, freed);
    assert!(granted.expect("memory").is_some());
    assert_eq!(memory.values.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_sends_small_bodies_keeps_a_reserve_for_a_large_one() {
    let memory = memory(1 << 20);
    let (ann, quarter) = (owner("ann"), text(200 << 10));
    hold(&memory, &owner("bob"), &text(1_000)).await.expect("few values");
    let mut held = Vec::new();
    while let Some(Ok(lease)) = hold(&memory, &ann, &quarter).now_or_never() {
        held.push(lease);
    }
    assert_eq!(held.len(), 3, "three quarters");
    assert!(hold(&memory, &owner("bob"), &quarter).now_or_never().is_some(), "the rest is for others");
}

#[tokio::test(start_paused = true)]
async fn memory_for_bytes_is_held_while_they_are_read() {
    let memory = memory(1 << 20);
    let (ann, size) = (owner("ann"), 900 << 10);
    let slow = async_stream::stream! {
        sleep(Duration::from_secs(10)).await;
        yield Ok::<_, std::io::Error>(vec![b' '; size]);
    };
    let reading = memory.read(Body::from_stream(slow), &ann, BodyLimits { bytes: size, ..limits() });
    let whole = async {
        sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        let read = memory.read(Body::from(vec![b' '; size]), &ann, limits()).await;
        (read.map(|bytes| bytes.len()).ok(), began.elapsed().as_secs())
    };
    let (streamed, whole) = tokio::join!(reading, whole);
    assert_eq!(streamed.expect("a body").len(), size);
    assert_eq!(whole, (Some(size), 9));
    let refused = memory.read(Body::from(vec![b' '; 5 << 20]), &ann, limits()).await.expect_err("too large");
    assert_eq!((refused.code(), memory.reading.used()), (ErrorCode::TooLarge, 0));
}

#[tokio::test]
async fn too_many_values_are_refused_without_memory() {
    let memory = memory(1 << 20);
    let zeros = format!("[{}0]", "0,".repeat(limits().values));
    let headers =
        HeaderMap::from_iter([(axum::http::header::CONTENT_TYPE, "application/json".parse().expect("a type"))]);
    let refused = memory.json::<Value>(&headers, Body::from(zeros), &owner("ann"), limits()).await;
    let refused = refused.expect_err("too many");
    assert_eq!(refused.code(), ErrorCode::TooLarge);
    assert!(refused.message().contains("more than 50000 JSON values"), "{refused}");
    assert!(refused.message().contains("`server.max_json_values`"), "{refused}");
}

#[tokio::test]
async fn a_body_that_comes_at_once_needs_no_timer() {
    for (polls, comes_at_once) in [(1, true), (2, true), (3, false)] {
        let mut left = polls;
        let mut reading = pin!(poll_fn(|context| {
            left -= 1;
            context.waker().wake_by_ref();
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        }));
        let read = within_two_polls(reading.as_mut()).await;
        assert_eq!(read.is_some(), comes_at_once, "{polls}");
        if !comes_at_once {
            reading.await;
        }
    }
}
