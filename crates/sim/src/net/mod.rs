//! The network: packets, links with their output queues, and the fabric that moves packets along them.
//!
//! Start with [`Fabric`]; a [`Link`](link::Link) is one direction of a cable together with the output queue before it.

mod classes;
mod credits;
mod fabric;
mod link;
mod lossless;
mod packet;
mod pauses;
mod payload;
mod telemetry;
mod trace;

pub use classes::{CLASSES, Service};
pub use credits::MOST_CHANNELS;
pub use fabric::buffers::SharedBuffer;
pub use fabric::faults::{ImpairmentSpec, LinkImpairment};
pub(crate) use fabric::partition::{Outbox, Partition};
pub(crate) use fabric::{Fabric, Queues};
pub(crate) use link::LinkCounters;
pub(crate) use lossless::{Charges, Origin};
pub use lossless::{LosslessSpec, headroom};
pub use packet::{Framing, Packet};
pub(crate) use packet::{JOB_FLOW, PacketFlags};
pub use pauses::{Cause, Pause, PauseLog};
pub use payload::PayloadId;
pub(crate) use telemetry::{RECORDS_LEN, RECORDS_ON_LINKS, Records};
pub use trace::{LossCause, PacketEvent, TraceEvent, Tracer};
