//! Where the values of a session came from, and which calls a person is asked about: the labels of tools, the values that went
//! into a session, and the judgement of a call's arguments against both. No input or output, no clock.

mod destination;
mod fields;
mod found;
mod judge;
mod judgement;
mod labels;
mod normal;
mod rules;
mod tokens;
mod values;

pub use destination::{Destination, DestinationHash, DestinationKind, KnownDestinations, NothingKnown, destinations};
pub use judgement::{ArgumentLabels, ArgumentState, ForbiddenSecret, Judgement, Question, ValueOrigin};
pub use labels::{
    DestinationPlaces, LabelsOverlay, Returned, Sink, SinkKind, SinkOverlay, ToolFacts, ToolLabels, Trust,
};
pub use normal::{decoded, in_plain_letters, stored as normalized, without_escapes, without_look_alikes};
pub use rules::verb_of;
pub use values::{CallOrigin, MAX_SESSION_BYTES, SessionValues};
