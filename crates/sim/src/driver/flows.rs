//! Messages without a protocol: so many bytes from one host to another, as fast as the NIC sends, never sent again.

use tributary_proto::ids::NodeId;
use tributary_proto::time::Time;

/// A flow of [`Flows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Who sends.
    pub src: NodeId,
    /// Who receives.
    pub dst: NodeId,
    /// Bytes of each packet on a link, framing included.
    pub packet_bytes: u16,
    /// Packets of the message.
    pub packets: u32,
    /// Packets sent.
    pub sent: u32,
    /// Packets received.
    pub received: u32,
    /// When the message came up at its sender.
    pub start: Time,
    /// When its last packet was received.
    pub end: Option<Time>,
}

/// All messages of a run.
#[derive(Default)]
pub struct Flows(Vec<Flow>);

impl Flows {
    /// Adds one.
    pub fn add(&mut self, src: NodeId, dst: NodeId, packets: u32, packet_bytes: u16, start: Time) -> FlowId {
        let id = FlowId(self.0.len() as u32);
        self.0.push(Flow { src, dst, packet_bytes, packets, sent: 0, received: 0, start, end: None });
        id
    }

    /// All of them, by id.
    pub fn all(&self) -> &[Flow] {
        &self.0
    }

    /// One of them.
    pub fn get(&self, id: FlowId) -> &Flow {
        &self.0[id.0 as usize]
    }

    pub(super) fn get_mut(&mut self, id: FlowId) -> &mut Flow {
        &mut self.0[id.0 as usize]
    }

    /// Counts a packet at its receiver.
    #[inline]
    pub(super) fn receive(&mut self, id: FlowId, now: Time) {
        let flow = self.get_mut(id);
        flow.received += 1;
        if flow.received == flow.packets {
            flow.end = Some(now);
        }
    }
}
