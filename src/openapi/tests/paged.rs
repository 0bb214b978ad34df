//! Lists of several pages in one call, and where that ends.

use super::*;
use crate::read::operation::SecurityScheme;

/// An API of numbered pages, each with a `Link` to the next, and a record of the requests.
struct Pages {
    url: String,
    requests: Requests,
}

/// Addresses, each with the key that was sent along.
type Requests = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// The link after a page: the `Link`'s target, `{page}` being the next page's number.
async fn pages(count: usize, target: &'static str) -> Pages {
    let requests = Requests::default();
    let take = {
        let requests = Arc::clone(&requests);
        async move |uri: Uri, headers: HeaderMap| {
            let key = headers.get("x-key").map(|key| key.to_str().unwrap().to_owned());
            requests.lock().push((uri.to_string(), key));
            let page = uri.query().and_then(|query| query.rsplit_once("page=")?.1.parse().ok()).unwrap_or(1);
            let mut headers = HeaderMap::new();
            if page < count {
                let target = target.replace("{page}", &(page + 1).to_string());
                headers.insert(http::header::LINK, format!("<{target}>; rel=\"next\"").parse().unwrap());
            }
            (headers, axum::Json(json!([format!("item {page}")])))
        }
    };
    let address = test_server::serve(Router::new().fallback(take)).await;
    Pages { url: format!("http://{address}/v1"), requests }
}

fn paged(server: &str, pagination: &Value, max_response_bytes: usize) -> ToolDefinition {
    let api = api(server, vec![operation("list", Method::GET, "/pets")]);
    let settings = settings(json!({"auth_config": {"extra_headers": {"X-Key": "s1"}}}));
    let access = Access {
        pagination: serde_json::from_value(pagination.clone()).unwrap(),
        max_response_bytes,
        ..Access::clone(&access())
    };
    definitions("pets", &api, &settings, &Arc::new(access)).unwrap().0.remove(0)
}

#[tokio::test]
async fn configured_pagination_joins_the_pages_into_one_list() {
    for (max_pages, listed, more) in [(1, 1, None), (2, 2, Some(true)), (3, 3, Some(false)), (9, 3, Some(false))] {
        let server = pages(3, "/v1/pets?page={page}").await;
        let tool = paged(&server.url, &json!({"max_pages": max_pages}), 1 << 20);
        let output = call(&tool, json!({})).await.unwrap();
        let expected: Vec<_> = (1..=listed).map(|page| format!("item {page}")).collect();
        assert_eq!(output.value, json!(expected), "{max_pages}");
        assert_eq!(output.metadata.get("more_pages"), more.map(Value::Bool).as_ref(), "{max_pages}");
        let requests = server.requests.lock();
        assert_eq!(requests.len(), listed);
        assert!(requests.iter().all(|(_, key)| key.as_deref() == Some("s1")), "{requests:?}");
    }
}

#[tokio::test]
async fn a_page_of_another_origin_is_not_requested() {
    let other = Upstream::start().await;
    let target: &'static str = Box::leak(format!("{}pets?page={{page}}", other.url).into_boxed_str());
    let server = pages(3, target).await;
    let output = call(&paged(&server.url, &json!({"max_pages": 5}), 1 << 20), json!({})).await.unwrap();
    assert_eq!(output.value, json!(["item 1"]));
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn pages_end_before_the_bytes_of_one_answer_are_used_up() {
    let server = pages(9, "/v1/pets?page={page}").await;
    // A page has ten bytes: `["item 1"]`.
    let output = call(&paged(&server.url, &json!({"max_pages": 9}), 25), json!({})).await.unwrap();
    assert_eq!(output.value, json!(["item 1", "item 2"]));
    assert_eq!(output.metadata["more_pages"], true);
}

#[tokio::test]
async fn cursors_in_answers_are_followed_and_a_failing_page_fails_the_call() {
    let upstream = Upstream::start().await;
    let pagination = json!({"max_pages": 5, "items": "/data", "next": "/next", "cursor_parameter": "after"});
    let tool = paged(upstream.url.as_str(), &pagination, 1 << 20);
    upstream.answers(200, "application/json", &json!({"data": [1], "next": "c 2"}));
    upstream.answers(200, "application/json", &json!({"data": [2], "next": null}));
    let output = call(&tool, json!({})).await.unwrap();
    assert_eq!(output.value, json!({"data": [1, 2], "next": "c 2"}));
    assert_eq!((&output.metadata["pages"], &output.metadata["more_pages"]), (&json!(2), &json!(false)));
    assert_eq!(upstream.last().uri.query(), Some("after=c+2"));
    upstream.answers(200, "application/json", &json!({"data": [1], "next": "c 2"}));
    upstream.answers(503, "application/json", "{}");
    assert_eq!(call(&tool, json!({})).await.unwrap_err().code(), sekisho_core::error::ErrorCode::UpstreamError);
}

#[tokio::test]
async fn a_page_that_may_not_come_in_time_is_left_out() {
    let slow = Router::new().fallback(async || {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        ([(http::header::LINK, "<?page=2>; rel=next")], axum::Json(json!([1])))
    });
    let address = test_server::serve(slow).await;
    let tool = paged(&format!("http://{address}"), &json!({"max_pages": 5}), 1 << 20);
    let context = CallContext::new("pets", Arc::new(Caller::anonymous()), Via::Rest);
    let attempt = Attempt {
        call: &context,
        deadline: Deadline::after(Duration::from_secs(3)),
        memory_limit_bytes: 128 << 20,
        max_output_bytes: 1 << 20,
    };
    let output = tool.executor.execute(attempt, &Map::new()).await.unwrap();
    assert_eq!((output.value, &output.metadata["more_pages"]), (json!([1]), &json!(true)));
}

/// The address of the next page holds no credentials: they go with each request.
#[tokio::test]
async fn a_key_in_the_query_goes_with_every_page() {
    let server = pages(2, "/v1/pets?page={page}").await;
    let mut api = api(&server.url, vec![operation("list", Method::GET, "/pets")]);
    let scheme = SecurityScheme::ApiKey { name: "key".into(), location: Location::Query };
    api.security_schemes.insert("main".into(), scheme);
    api.security = vec![BTreeMap::from([("main".into(), Vec::new())])];
    let pagination = PaginationSettings { max_pages: 2, ..PaginationSettings::default() };
    let access = Arc::new(Access { pagination, ..Access::clone(&access()) });
    let settings = settings(json!({"auth_config": {"api_key": "s1"}}));
    call(&definitions("pets", &api, &settings, &access).unwrap().0[0], json!({})).await.unwrap();
    let requests = server.requests.lock();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|(address, _)| address.contains("key=s1")), "{requests:?}");
}
