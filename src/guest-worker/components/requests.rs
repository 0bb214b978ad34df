//! Requests of a component over HTTP: the gateway sends them. This process has no sockets.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest as _, Method, OutgoingRequest};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks, WasiHttpView};

use crate::host_call::ToolLink;
use sekisho_guest_protocol::{
    FromWorker, HttpFailure, HttpRequest, HttpResponse, MAX_HTTP_BODY_BYTES, ReadSoFar, ToolQuestion, ToolReply,
    ToolRequest,
};

/// Requests that a component may have open at once: their responses are in memory before they count below.
const MAX_OPEN: usize = MAX_HELD_BYTES / MAX_HTTP_BODY_BYTES;

/// Bytes of requests that are written, and of responses that the component has not dropped, together: they are outside of its
/// memory.
const MAX_HELD_BYTES: usize = 32 << 20;

/// Maximum length of one write to a body. A body holds two of them, which is as much as headers may have.
const MAX_WRITE_BYTES: usize = 16 << 10;

/// Maximum length of a method and of an authority.
const MAX_TEXT_BYTES: usize = 1 << 10;

/// The interface of [`bound_texts`], as the library names it: components may import other versions of 0.2.
const TYPES: &str = "wasi:http/types@0.2.12";

/// The work beside a response.
type Beside = Box<dyn Future<Output = Result<(), Error>> + Send>;

/// The requests of one call.
pub(super) struct Requests {
    link: ToolLink,
    left: u32,
    next: u32,
    open: Arc<Semaphore>,
    room: Arc<Semaphore>,
    /// A request goes on until the gateway has answered it, also where the component has dropped it: otherwise it could have any
    /// number of them open. They end with the call.
    under_way: JoinSet<()>,
}

sekisho_core::debug_fields!(Requests { left });

impl Requests {
    pub(super) fn new(link: ToolLink, most: u32) -> Self {
        let [open, room] = [MAX_OPEN, MAX_HELD_BYTES].map(|most| Arc::new(Semaphore::new(most)));
        Self { link, left: most, next: 0, open, room, under_way: JoinSet::new() }
    }
}

/// Has requests refuse methods and authorities that are too long: the library bounds their other parts. Call it when the
/// interface is in the linker, and may be shadowed.
/// Errors: when the linker has the name for something else.
pub(super) fn bound_texts<T: WasiHttpView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: StoreContextMut<'_, T>, (request, method): (Resource<OutgoingRequest>, Method)| {
            if matches!(&method, Method::Other(name) if name.len() > MAX_TEXT_BYTES) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_method(request, method)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: StoreContextMut<'_, T>, (request, authority): (Resource<OutgoingRequest>, Option<String>)| {
            if authority.as_ref().is_some_and(|authority| authority.len() > MAX_TEXT_BYTES) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_authority(request, authority)?,))
        },
    )
}

impl WasiHttpHooks for Requests {
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        MAX_WRITE_BYTES
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        _options: Option<RequestOptions>,
        _read: Beside,
    ) -> Box<dyn Future<Output = Result<(http::Response<WasiBody>, Beside), Error>> + Send> {
        let Some(left) = self.left.checked_sub(1) else {
            return Box::new(async { Err(Error::HttpRequestDenied) });
        };
        self.left = left;
        let number = self.next;
        self.next += 1;
        let (link, open, room) = (self.link.clone(), Arc::clone(&self.open), Arc::clone(&self.room));
        let (answer, answered) = oneshot::channel();
        self.under_way.spawn(async move {
            // It is never closed.
            let _open = open.acquire_owned().await;
            // The component may have dropped the request meanwhile.
            let _ = answer.send(exchange(&link, number, request, &room).await);
        });
        Box::new(async move {
            // Only the end of the call ends it unanswered.
            let response = answered.await.unwrap_or(Err(Error::HttpRequestDenied))?;
            let nothing: Beside = Box::new(async { Ok(()) });
            Ok((response, nothing))
        })
    }
}

async fn exchange(
    link: &ToolLink,
    number: u32,
    request: http::Request<WasiBody>,
    room: &Arc<Semaphore>,
) -> Result<http::Response<WasiBody>, Error> {
    let (request, held) = whole(request, room).await?;
    let response = ask(link, number, request).await.map_err(error_of)?;
    drop(held);
    response_of(response, room)
}

/// The request, once the component has written all of it.
async fn whole(
    request: http::Request<WasiBody>,
    room: &Arc<Semaphore>,
) -> Result<(HttpRequest, OwnedSemaphorePermit), Error> {
    let (parts, mut body) = request.into_parts();
    let too_long = || Error::HttpRequestBodySize(Some(MAX_HTTP_BODY_BYTES as u64));
    let (mut content, mut held) = (BytesMut::new(), hold(room, 0).ok_or_else(too_long)?);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let more = hold(room, data.len()).filter(|_| content.len() + data.len() <= MAX_HTTP_BODY_BYTES);
        held.merge(more.ok_or_else(too_long)?);
        content.extend_from_slice(&data);
    }
    let headers = parts.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
    let request = HttpRequest {
        method: parts.method.as_str().to_owned(),
        url: parts.uri.to_string(),
        headers: headers.collect(),
        body: content.to_vec(),
    };
    Ok((request, held))
}

/// Room for so many bytes, if there is some now.
fn hold(room: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    Arc::clone(room).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
}

async fn ask(link: &ToolLink, number: u32, request: HttpRequest) -> Result<HttpResponse, HttpFailure> {
    let question = ToolQuestion::Fetch(Box::new(request));
    let request = ToolRequest { number, question, read: ReadSoFar::default() };
    // Without the gateway the worker ends.
    let _ = link.sleeper.gateway.send(FromWorker::Ask(link.sleeper.job, Box::new(request)));
    let ToolReply { is_ok, json, .. } = link.inbox.next(&[number]).await;
    if !is_ok {
        return Err(HttpFailure::TooLarge);
    }
    let answer: Result<Result<HttpResponse, HttpFailure>, _> = postcard::from_bytes(&json);
    answer.unwrap_or_else(|error| Err(HttpFailure::Failed(error.to_string())))
}

/// The body of a response, which has its room until the component has dropped it.
struct HeldBody {
    content: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

fn response_of(response: HttpResponse, room: &Arc<Semaphore>) -> Result<http::Response<WasiBody>, Error> {
    let HttpResponse { status, headers, body: content } = response;
    let bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() + content.len();
    let too_much = Error::HttpResponseBodySize(Some(content.len() as u64));
    let body = HeldBody { content, _room: hold(room, bytes).ok_or(too_much)? };
    let builder = headers
        .into_iter()
        .fold(http::Response::builder().status(status), |builder, (name, value)| builder.header(name, value));
    let body = Full::new(Bytes::from_owner(body)).map_err(|never| match never {}).boxed_unsync();
    builder.body(body).map_err(|error| Error::InternalError(Some(error.to_string())))
}

fn error_of(failure: HttpFailure) -> Error {
    match failure {
        HttpFailure::Denied => Error::HttpRequestDenied,
        HttpFailure::Timeout => Error::HttpResponseTimeout,
        HttpFailure::TooLarge => Error::HttpResponseBodySize(Some(MAX_HTTP_BODY_BYTES as u64)),
        HttpFailure::Failed(reason) => Error::InternalError(Some(reason)),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::Empty;
    use tokio::sync::{Notify, mpsc};

    use super::*;
    use sekisho_guest_system::wasi::Sleeper;

    /// The requests of a call, and the messages of it to the gateway.
    fn requests() -> (Requests, ToolLink, mpsc::UnboundedReceiver<FromWorker>) {
        #[expect(clippy::disallowed_methods, reason = "a test sends few, and ends")]
        let (gateway, heard) = mpsc::unbounded_channel();
        let sleeper = Sleeper { job: 1, gateway, may_continue: Arc::new(Notify::new()) };
        let link = ToolLink { sleeper, inbox: Arc::default(), waited: Arc::default(), recorder: Arc::default() };
        (Requests::new(link.clone(), 100), link, heard)
    }

    fn request() -> http::Request<WasiBody> {
        let body = Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync();
        http::Request::get("https://api.example.com/").body(body).unwrap()
    }

    /// Lets all tasks go on until they wait.
    async fn settled() {
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
    }

    fn asked(heard: &mut mpsc::UnboundedReceiver<FromWorker>) -> usize {
        std::iter::from_fn(|| heard.try_recv().ok()).count()
    }

    fn answer(link: &ToolLink, number: u32, bytes: usize) {
        let response = HttpResponse { status: 200, headers: Vec::new(), body: vec![0; bytes] };
        let json = postcard::to_stdvec(&Ok::<_, HttpFailure>(response)).unwrap();
        link.inbox.deliver(ToolReply { number, is_ok: true, json });
    }

    #[tokio::test]
    async fn requests_that_the_component_drops_are_open_until_they_are_answered() {
        let (mut requests, link, mut heard) = requests();
        for _ in 0..100 {
            drop(requests.send_request(request(), None, Box::new(async { Ok(()) })));
        }
        settled().await;
        assert_eq!(asked(&mut heard), MAX_OPEN);
        (0..3).for_each(|number| answer(&link, number, 1));
        settled().await;
        assert_eq!(asked(&mut heard), 3);
        let denied = Box::into_pin(requests.send_request(request(), None, Box::new(async { Ok(()) }))).await;
        assert!(matches!(denied, Err(Error::HttpRequestDenied)), "a call sends 100 at most");
    }

    #[tokio::test]
    async fn bodies_that_are_not_sent_hold_no_more_than_headers() {
        let (mut requests, _link, _heard) = requests();
        let pieces = requests.p2_outgoing_body_buffer_chunks() + 1;
        assert_eq!(pieces * requests.p2_outgoing_body_chunk_size(), 32 << 10);
    }

    #[tokio::test]
    async fn responses_that_the_component_keeps_are_bounded_together() {
        let (mut requests, link, _heard) = requests();
        let mut kept = Vec::new();
        for number in 0..5 {
            let response = requests.send_request(request(), None, Box::new(async { Ok(()) }));
            settled().await;
            answer(&link, number, MAX_HTTP_BODY_BYTES);
            kept.push(Box::into_pin(response).await);
        }
        assert!(kept[..4].iter().all(Result::is_ok));
        assert!(matches!(kept.pop(), Some(Err(Error::HttpResponseBodySize(_)))));
        kept.pop();
        let response = requests.send_request(request(), None, Box::new(async { Ok(()) }));
        settled().await;
        answer(&link, 5, MAX_HTTP_BODY_BYTES);
        assert!(Box::into_pin(response).await.is_ok(), "the room of one that is dropped is free again");
    }
}
