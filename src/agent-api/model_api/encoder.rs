//! A streamed run in the form of an API.

use std::pin::pin;

use futures_util::{Stream, StreamExt};

#[cfg(test)]
use serde_json::Value;

use super::output::{Output, OutputChange};
use sekisho_agent::Event;
#[cfg(test)]
use sekisho_api::event_stream::NamedEvent;

/// The form of an API for a run that is streamed.
pub(crate) trait Encoder {
    /// A chunk or event of the stream.
    type Item;

    /// The items before the output.
    fn opening(&mut self) -> Vec<Self::Item>;

    /// The items of a change; none for one that the API has no form for.
    fn encode(&mut self, change: OutputChange) -> Vec<Self::Item>;

    /// The items at the end of the run.
    fn closing(&mut self, output: &Output) -> Vec<Self::Item>;
}

/// The items of a run. `ended` gets the output before the last of them are sent.
pub(crate) fn encoded<E: Encoder>(
    mut encoder: E,
    events: impl Stream<Item = Event>,
    ended: impl FnOnce(Output),
) -> impl Stream<Item = E::Item> {
    async_stream::stream! {
        let (mut events, mut output) = (pin!(events), Output::new());
        for item in encoder.opening() {
            yield item;
        }
        while let Some(event) = events.next().await {
            for change in output.add(event) {
                for item in encoder.encode(change) {
                    yield item;
                }
            }
        }
        let last = encoder.closing(&output);
        ended(output);
        for item in last {
            yield item;
        }
    }
}

/// The items of a run whose events are known.
#[cfg(test)]
pub(crate) fn encoded_run<E: Encoder>(encoder: E, run: Vec<Event>) -> Vec<E::Item> {
    use futures_util::{FutureExt, stream};

    encoded(encoder, stream::iter(run), drop).collect::<Vec<_>>().now_or_never().unwrap()
}

/// The names and bodies of the events of such a run.
#[cfg(test)]
pub(crate) fn encoded_events<E: Encoder<Item = NamedEvent>>(encoder: E, run: Vec<Event>) -> Vec<(String, Value)> {
    let events = encoded_run(encoder, run).into_iter();
    events.map(|NamedEvent { name, data }| (name.to_owned(), serde_json::from_str(&data).unwrap())).collect()
}
