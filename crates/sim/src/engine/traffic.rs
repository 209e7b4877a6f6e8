//! The traffic of hosts: endpoints of jobs, and messages without a protocol.
//!
//! A message is a number of bytes from one host to another, sent as fast as the NIC sends, and never retransmitted.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::endpoint::Endpoint;
use super::job::Jobs;
use super::records::Scratch;

/// The traffic of hosts.
#[derive(Default)]
pub struct Traffic {
    /// Members of jobs.
    pub endpoints: Vec<Endpoint>,
    /// Jobs.
    pub jobs: Jobs,
    /// Messages without a protocol.
    pub flows: Flows,
    /// The buffer in which machines write.
    pub scratch: Scratch,
}

/// A flow of [`Flows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sender.
    pub src: NodeId,
    /// The receiver.
    pub dst: NodeId,
    /// Bytes of all packets on a link, framing included.
    pub bytes: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes of each packet on a link, except perhaps the last, framing included.
    pub packet_bytes: u16,
    /// When the message arose at its sender.
    pub start: Time,
    /// When its last byte was received.
    pub end: Option<Time>,
}

/// All messages of a run.
#[derive(Default)]
pub struct Flows {
    flows: Vec<Flow>,
    /// Packets and bytes of traffic without messages, at their receivers.
    pub background: Received,
}

/// What was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Packets.
    pub packets: u64,
    /// Their bytes on a link.
    pub bytes: u64,
}

impl FlowId {
    /// The flow of packets that belong to no message.
    pub const BACKGROUND: FlowId = FlowId((1 << 31) - 1);
    /// The bit that marks flows of a host's [`crate::transport::TransportHost`]; the bit below it is never set in them.
    const TRANSPORT: u32 = 1 << 30;

    /// The flow of a transport's packets: enough bits of what paths are chosen by.
    pub(super) fn of_transport(path: u32) -> FlowId {
        FlowId(FlowId::TRANSPORT | path & (FlowId::TRANSPORT / 2 - 1))
    }

    /// True for a transport's flows.
    pub(super) fn is_of_transport(self) -> bool {
        self.0 & FlowId::TRANSPORT != 0 && self != FlowId::BACKGROUND
    }
}

impl Flows {
    /// Adds a message.
    pub fn add(&mut self, src: NodeId, dst: NodeId, bytes: u64, packet_bytes: u16, start: Time) -> FlowId {
        let id = FlowId(self.flows.len() as u32);
        self.flows.push(Flow { src, dst, bytes, sent: 0, received: 0, packet_bytes, start, end: None });
        id
    }

    /// Takes over the state of another partition: bytes sent by its senders, bytes received by its receivers.
    pub(super) fn absorb(&mut self, other: &Flows, theirs: impl Fn(NodeId) -> bool) {
        for (ours, flow) in self.flows.iter_mut().zip(&other.flows) {
            if theirs(flow.src) {
                ours.sent = flow.sent;
            }
            if theirs(flow.dst) {
                (ours.received, ours.end) = (flow.received, flow.end);
            }
        }
        self.background.packets += other.background.packets;
        self.background.bytes += other.background.bytes;
    }

    /// All messages, by id.
    pub fn all(&self) -> &[Flow] {
        &self.flows
    }

    /// Takes the next packet of a message; returns its destination, its bytes, and whether it is the last.
    #[inline]
    pub(super) fn next_packet(&mut self, id: FlowId) -> (NodeId, u16, bool) {
        let flow = &mut self.flows[id.0 as usize];
        let bytes = (flow.bytes - flow.sent).min(u64::from(flow.packet_bytes)) as u16;
        flow.sent += u64::from(bytes);
        (flow.dst, bytes, flow.sent == flow.bytes)
    }

    /// Counts a packet at its receiver; true if it completes its message.
    #[inline]
    pub(super) fn receive(&mut self, id: FlowId, bytes: u16, now: Time) -> bool {
        let Some(flow) = self.flows.get_mut(id.0 as usize) else {
            self.background.packets += 1;
            self.background.bytes += u64::from(bytes);
            return false;
        };
        let complete = flow.received == flow.bytes;
        flow.received += u64::from(bytes);
        if flow.received < flow.bytes || complete {
            return false;
        }
        flow.end = Some(now);
        true
    }
}
