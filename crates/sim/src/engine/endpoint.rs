//! An endpoint: the machine of one member of a job, at its host.

use tributary_proto::contract::drive;
use tributary_proto::contract::drive::host::Drain;
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::{NodeId, Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Packet as MachinePacket};
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::time::Time;

use super::job::Jobs;
use super::records::{JobIndex, Scratch};
use crate::net::{Fabric, Packet, PacketFlags};

/// The lane of packets for a server. A host may be a server and a rank of the same job: the lane says for which of the two
/// a packet is, and so which of the two at its sender it comes from.
const FOR_SERVER: u8 = 1;

/// One member of one job, in one cache line.
#[repr(align(64))]
pub struct Endpoint {
    /// The host.
    pub host: NodeId,
    /// The job.
    pub job: JobIndex,
    /// The rank in the job.
    pub rank: Rank,
    /// Its machine.
    pub machine: Box<dyn Host>,
    /// The progress of the drain after the machine's last input: the NIC takes one packet at a time.
    pub drain: Drain,
    /// True while its host runs.
    pub alive: bool,
    /// Collectives submitted so far.
    pub submitted: u32,
    /// How many of them it has completed.
    pub completed: u32,
    /// True while it has collectives to submit or to wait for.
    pub open: bool,
    /// Its progress at the last check; `None` if it is not watched.
    pub last_progress: Option<Progress>,
}

/// The progress of an endpoint; more of any field is more progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    submitted: u32,
    completed: u32,
    blocks: u64,
}

impl Endpoint {
    /// An endpoint before its first collective; `open` if it has any to submit.
    pub fn new(host: NodeId, job: JobIndex, rank: Rank, machine: Box<dyn Host>, open: bool) -> Endpoint {
        Endpoint {
            host,
            job,
            rank,
            machine,
            drain: Drain::default(),
            alive: true,
            submitted: 0,
            completed: 0,
            open,
            last_progress: None,
        }
    }

    /// The machine's next packet, ready to send.
    #[inline]
    pub fn next_packet(&mut self, fabric: &mut Fabric, jobs: &Jobs, scratch: &mut Scratch) -> Option<Packet> {
        let transmit = self.drain.transmit(&mut *self.machine, fabric.now, scratch)?;
        let job = jobs.get(self.job);
        let (dst, lane) = match transmit.to {
            Addr::Switch(shard) => (job.first_switch(self.rank, shard.index()), shard.0 as u8),
            Addr::Worker(worker) => (job.members[worker.index()], 0),
            Addr::Server(server) => (job.servers[server.index()], FOR_SERVER),
            Addr::Node(node) => (node, 0),
        };
        Some(Packet {
            arrival: fabric.now,
            src: self.host,
            dst,
            serial: fabric.next_serial(self.host),
            flow: self.job.flow(),
            payload: fabric.payloads.store(&scratch[..transmit.len], transmit.wire_len),
            bytes: fabric.framing.bytes_on_link(transmit.wire_len),
            lane,
            flags: PacketFlags::new(transmit.ecn, 0).with_every_hop(job.plan.protocol.placement == Placement::EveryHop),
        })
    }

    /// Gives the machine a packet. The machine counts packets that it drops.
    pub fn receive(&mut self, fabric: &Fabric, jobs: &Jobs, packet: &Packet) {
        let job = jobs.get(self.job);
        let from = match job.rank_of(packet.src) {
            Some(_) if !job.servers.is_empty() && packet.lane != FOR_SERVER => Addr::Server(
                job.server_on(packet.src).expect("a packet for a rank of a job with servers comes from a server"),
            ),
            Some(worker) => Addr::Worker(worker),
            None => Addr::Switch(TreeId(u16::from(packet.lane))),
        };
        let (bytes, wire_len) = fabric.payloads.get(packet.payload);
        let packet = MachinePacket { bytes, wire_len, ecn: packet.flags.ecn() };
        let _ = self.machine.handle_packet(fabric.now, from, packet);
        self.drain.begin();
    }

    /// The machine's timer may have run out.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.alive && drive::host::handle_timeout(&mut *self.machine, now) {
            self.drain.begin();
        } else {
            self.drain.reset_timer();
        }
    }

    /// The endpoint's progress.
    pub fn progress(&self) -> Progress {
        let stats = self.machine.stats();
        let blocks = stats.blocks_in_network + stats.blocks_at_hosts;
        Progress { submitted: self.submitted, completed: self.completed, blocks }
    }

    /// True if it has submitted a collective that is not complete.
    pub fn waits(&self) -> bool {
        self.submitted > self.completed
    }

    /// Stops the machine: it sends and receives nothing any more.
    pub fn silence(&mut self) {
        self.alive = false;
        self.drain = Drain::Done;
    }
}
