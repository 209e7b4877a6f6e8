//! The network: packets, links with their output queues, and the fabric that moves packets along them.
//!
//! Start with [`Fabric`]; a [`Link`] is one direction of a cable together with the output queue before it.

mod crossing;
mod fabric;
mod faults;
mod impairment;
mod link;
mod lossless;
mod packet;
mod pause;
mod payload;
mod ring;
mod trace;

pub use crossing::{Outbox, Partition};
pub use fabric::{Fabric, Queues};
pub use impairment::{Fate, ImpairmentSpec, LinkImpairment};
pub use link::{Link, LinkCounters};
pub use lossless::Origin;
pub use packet::{Framing, Packet, PacketFlags};
pub use pause::{Charges, LosslessSpec, PAUSE_BYTES, headroom};
pub use payload::{PayloadId, Payloads};
pub use trace::{LossCause, PacketEvent, TraceEvent, TraceHash, Tracer};
