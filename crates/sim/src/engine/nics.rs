//! A host with several NICs: which of them a packet takes, and the packets that wait for theirs.
//!
//! A host chooses by the network's rule, as a switch does, among the NICs that are nearest to the packet's destination. Where
//! the rule goes by flow, a packet waits for the NIC of its flow; where it goes by packet, the host chooses among NICs that
//! take one now. A job's packet for the first switch of a tree takes the cable by which its host is in the tree. Packets
//! that every switch handles take the first cable, because their protocols know one switch for each host.
//!
//! A sender is what shares the NICs: an endpoint, the messages, the transport, or a background pattern. The transport sends
//! what its other flows have while one waits; any other sender waits with its next packet.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::job::Jobs;
use super::records::{EndpointId, JobIndex};
use crate::net::{Fabric, Packet};
use crate::routing::{Balancing, Chooser, Table};
use crate::topology::LinkId;

/// Who has made a packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Endpoint(EndpointId),
    Messages,
    Background(usize),
}

/// The NICs of a host that has several.
pub(super) struct Nics {
    /// For each NIC its cable, and the backlog with which it takes no more packets.
    pub nics: Vec<(LinkId, Span)>,
    chooser: Chooser,
    /// At most one packet of each sender, not numbered yet.
    pub waiting: Vec<(Sender, Packet)>,
}

impl Nics {
    /// The NICs of a host, each of which holds about `nic_bytes`; `None` if it has one.
    pub fn new(
        node: NodeId,
        fabric: &Fabric,
        nic_bytes: u64,
        balancing: [Balancing; 2],
        seed: u64,
    ) -> Option<Box<Nics>> {
        let links = fabric.ports(node);
        let nics = links.iter().map(|&link| (link, fabric.link(link).transmission(nic_bytes)));
        let new =
            || Nics { nics: nics.collect(), chooser: Chooser::of_host(balancing, seed, node), waiting: Vec::new() };
        (links.len() > 1).then(|| Box::new(new()))
    }

    /// A cable has another rate: its NIC still holds as many bytes.
    pub fn set_rate(&mut self, fabric: &Fabric, nic_bytes: u64) {
        self.nics.iter_mut().for_each(|(link, limit)| *limit = fabric.link(*link).transmission(nic_bytes));
    }

    /// Drops the packets that wait.
    pub fn clear(&mut self, fabric: &mut Fabric) {
        self.waiting.drain(..).for_each(|(_, packet)| fabric.payloads.release(packet.payload));
    }

    /// True if a NIC takes a packet now.
    pub fn takes(&self, fabric: &Fabric, port: u16) -> bool {
        let (link, limit) = self.nics[usize::from(port)];
        let link = fabric.link(link);
        !link.down && link.backlog(fabric.now) < limit
    }

    /// True if a NIC has lost its cable.
    pub fn is_down(&self, fabric: &Fabric, port: u16) -> bool {
        fabric.link(self.nics[usize::from(port)].0).down
    }

    /// The NICs, by number.
    pub fn ports(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.nics.len() as u16
    }

    /// When a NIC that is full has sent what it holds.
    pub fn next_free(&self, fabric: &Fabric) -> Time {
        // A lossless link has an event when it finishes a packet; when that will be is not known before.
        if fabric.is_lossless() {
            return Time(u64::MAX);
        }
        let full = self.ports().filter(|&port| !self.takes(fabric, port) && !self.is_down(fabric, port));
        full.map(|port| fabric.link(self.nics[usize::from(port)].0).busy_until()).min().unwrap_or(Time(u64::MAX))
    }

    /// The NIC that a packet takes now; `None` if it waits. A job's packet whose NIC has lost its cable is lost there, because
    /// machines must be drained.
    pub fn choose(&mut self, fabric: &Fabric, table: &Table, jobs: &Jobs, packet: &Packet) -> Option<u16> {
        let port = match first_nic(jobs, packet) {
            Some(port) => port,
            None => {
                let nearest = table.first_hops(packet.src, packet.dst).0;
                // What no NIC leads to is lost at the first switch.
                let nearest = if nearest.is_empty() { &[0] } else { nearest };
                let by_packet = self.chooser.goes_by_packet(packet);
                let free: Vec<u16> =
                    nearest.iter().copied().filter(|&port| by_packet && self.takes(fabric, port)).collect();
                if by_packet && free.is_empty() && !nearest.iter().all(|&port| self.is_down(fabric, port)) {
                    return None;
                }
                let ports = if free.is_empty() { nearest } else { &free };
                self.chooser.choose(fabric, packet.src, ports, packet)
            }
        };
        (self.takes(fabric, port) || packet.is_of_job() && self.is_down(fabric, port)).then_some(port)
    }
}

/// The NIC that a job's packet must take, if it must take one.
fn first_nic(jobs: &Jobs, packet: &Packet) -> Option<u16> {
    if packet.flags.every_hop() {
        return Some(0);
    }
    let job = jobs.get(JobIndex::of_flow(packet.flow)?);
    // Hosts send to hosts, and to no switch but the first of a tree.
    let is_for_switch = job.rank_of(packet.dst).is_none();
    let rank = job.rank_of(packet.src).filter(|_| is_for_switch)?;
    job.first_nic(rank, usize::from(packet.lane))
}
