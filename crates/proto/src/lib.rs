//! The protocols of Tributary, each a pair of state machines without socket, clock, thread or random source.
//!
//! [`Host`] and [`Switch`] are the contract between drivers and protocols; [`contract`] says in which order a driver
//! calls them. Every packet at a switch passes a [`Pipeline`] first. Each protocol is a folder with one [`Protocol`]
//! value, and [`protocols::ALL`] lists them. `docs/protocols/` has a page for each protocol, and `docs/wire.md` has
//! every header.
//!
//! Two hosts and a switch, in memory, until both hosts have the sum:
//!
//! ```
//! use tributary_numeric::ReduceOp;
//! use tributary_proto::contract::switch::NoQueues;
//! use tributary_proto::*;
//!
//! let protocol = protocols::ALL.iter().find(|protocol| protocol.switch.is_some()).unwrap();
//! let job = JobConfig {
//!     job: JobId(1),
//!     key: JobKey(42),
//!     protocol: protocol.code,
//!     world_size: 2,
//!     slots: 4,
//!     elements_per_packet: 64,
//!     trees: 1,
//!     levels: false,
//!     options: protocol.options.defaults(),
//! };
//! let now = Time::ZERO;
//! let mut switch = protocol.switch(Values::Elements, &SwitchConfig::star(job.clone(), TreeId(0))).unwrap();
//! let mut hosts = [0, 1].map(|rank| protocol.host(Values::Elements, &HostConfig::worker(job.clone(), Rank(rank))));
//! for (host, input) in hosts.iter_mut().zip([vec![1, 2, 3], vec![10, 20, 30]]) {
//!     let tensor = Box::new(ElementTensor::new(VecStorage::<i32>::new(input), ReduceOp::Sum));
//!     host.submit(now, Collective { tensor, deadline: None }).unwrap();
//! }
//!
//! let (mut sums, mut buf) = (Vec::new(), vec![0; 1500]);
//! while sums.len() < hosts.len() {
//!     for rank in 0..hosts.len() {
//!         while let Some(sent) = hosts[rank].poll_transmit(now, &mut buf) {
//!             let mut packet = PacketMut::new(&mut buf[..sent.len], sent.ecn);
//!             let verdict = switch.process(now, PortId(rank as u16), &mut packet, &NoQueues);
//!             let (len, wire_len, ecn) = (packet.len, packet.wire_len, packet.ecn);
//!             let receivers = match verdict {
//!                 Verdict::Group(_) => 0..hosts.len(),
//!                 Verdict::Port(port) => port.index()..port.index() + 1,
//!                 _ => 0..0,
//!             };
//!             for host in &mut hosts[receivers] {
//!                 let packet = Packet { bytes: &buf[..len], wire_len, ecn };
//!                 host.handle_packet(now, Addr::Switch(TreeId(0)), packet).unwrap();
//!             }
//!         }
//!         while let Some(HostEvent::Done { tensor, .. }) = hosts[rank].poll_event() {
//!             let tensor: Box<dyn std::any::Any> = tensor;
//!             let tensor = tensor.downcast::<ElementTensor<VecStorage<i32>>>().unwrap();
//!             sums.push(tensor.into_storage().into_output());
//!         }
//!     }
//! }
//! assert_eq!(sums, [[11, 22, 33], [11, 22, 33]]);
//! ```
#![forbid(unsafe_code)]

pub mod aggregation;
pub mod atp;
pub mod canary;
pub mod congestion;
pub mod contract;
pub mod flare;
mod heap;
pub mod pa_atp;
pub mod panama;
pub mod protocols;
pub mod ps;
mod reliability;
pub mod ring;
pub mod sparcml;
pub mod switch_options;
pub mod switchml;
pub mod tensors;

pub use contract::config::{HostConfig, JobConfig, SwitchConfig};
pub use contract::drop_reason::DropReason;
pub use contract::host::{Collective, CollectiveError, Host, HostEvent};
pub use contract::ids::{JobId, JobKey, PortId, Rank, TreeId};
pub use contract::packet::{Addr, Packet, PacketMut, Transmit};
pub use contract::pipeline::{InstalledJob, Pipeline};
pub use contract::protocol::{Placement, Protocol};
pub use contract::switch::{Emission, SharedSwitch, Switch, Verdict};
pub use contract::tensor::{Primitive, Spec, Tensor};
pub use contract::time::{Span, Time};
pub use contract::values::Values;
pub use tensors::{ElementTensor, VecStorage};
