//! The contract of a switch machine, through which one packet passes at a time, and which may rewrite it.
//!
//! The driver carries out the verdict on each packet, and drains `poll_transmit` after each packet or burst of packets:
//! see [the order of calls](super). All memory is allocated when the machine is made; a packet never allocates.

use crate::contract::config::SharedJob;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, GroupId, JobId, NodeId, PortId, PortSet, Rank, TreeId};
use crate::contract::metric::Metric;
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::state::{SharedSwitchState, SwitchState};
use crate::contract::time::Time;
use crate::contract::work::Instrumented;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The packet has done its work and goes nowhere.
    Consume,
    /// The packet is dropped for this reason.
    Drop(DropReason),
    /// The packet leaves by one port.
    Port(PortId),
    /// The packet goes towards a node; the driver's load balancing chooses among equal paths.
    Route(NodeId),
    /// The packet leaves by each port of a set that the packet or a descriptor determines.
    Multicast(PortSet),
    /// The packet leaves by each port of a group that was installed beforehand.
    Group(GroupId),
}

/// What a machine can see of the switch that it runs in.
pub trait PortView {
    /// Bytes that wait in the port's output queue.
    fn queued_bytes(&self, port: PortId) -> u64;
}

impl<P: PortView + ?Sized> PortView for &P {
    fn queued_bytes(&self, port: PortId) -> u64 {
        (**self).queued_bytes(port)
    }
}

/// A view without queues, for drivers that have no queues.
pub struct NoQueues;

impl PortView for NoQueues {
    fn queued_bytes(&self, _port: PortId) -> u64 {
        0
    }
}

/// The least length of a buffer for `Switch::poll_transmit`, however short the job's packets are: every notice fits.
pub const MIN_TRANSMIT_LEN: usize = 256;

/// A packet that a switch makes itself: the first `len` bytes of the buffer that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emission {
    /// Bytes written to the buffer.
    pub len: usize,
    /// UDP payload bytes of the packet on the wire.
    pub wire_len: usize,
    /// The congestion bits with which the packet leaves.
    pub ecn: Ecn,
    /// Where the packet goes.
    pub verdict: Verdict,
    /// The port by which the last contribution to the packet's sum came in; `None` for a packet that is not a sum. A
    /// sum that a timer sends uses the buffer that the last contribution's packet has freed.
    pub ingress: Option<PortId>,
}

/// The state of a job's machine, for the switch's operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwitchReport {
    /// Slots or descriptors that the job holds.
    pub slots: u32,
    /// Slots or descriptors with a sum that is not complete.
    pub slots_waiting: u32,
    /// Members that some incomplete sum waits for, ascending.
    pub missing: Vec<ChildId>,
    /// The member that is furthest behind, if results wait for it and the machine can tell.
    pub lag: Option<Lag>,
    /// Sums completed since the job was installed.
    pub blocks_completed: u64,
    /// Contributions added since the job was installed.
    pub contributions: u64,
    /// The protocol's own counters and gauges for the job.
    pub metrics: Vec<Metric>,
    /// The state of each tree whose packets are summed in their order; empty if there is no such tree.
    pub orders: Vec<OrderReport>,
}

/// A member that is behind the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The member's rank.
    pub rank: Rank,
    /// Blocks by which it is behind the first rank.
    pub blocks: u32,
}

/// The state of a tree whose packets are summed in their order, each when all children have sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderReport {
    /// The tree.
    pub tree: TreeId,
    /// The number of the packet that is summed next.
    pub expected: u32,
    /// How often the tree was rewound.
    pub epoch: u16,
    /// Packets that each child's port can buffer.
    pub cap: u16,
    /// Packets that wait at each child's port.
    pub queued: Vec<u16>,
    /// Children that the next packet waits for, ascending; empty if no packet waits.
    pub waits_for: Vec<ChildId>,
}

/// What a machine reports about its job's custom operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorStatus {
    /// Instructions that the operators have taken since the machine was made.
    pub instructions: u64,
    /// Why an operator failed, and the job with it. The driver ends the job, and its members get this text.
    pub fault: Option<String>,
}

/// A switch's side of a protocol, for one job, or for several jobs that share its memory: see [`SharedSwitch`].
pub trait Switch: Send {
    /// All bytes that the machine has allocated, and its own.
    fn memory_bytes(&self) -> usize;
    /// The state of the job, for the switch's operator.
    fn report(&self) -> SwitchReport;
    /// The kinds of packets that are queries, a bit for each. A query costs the switch more than its bytes, and a
    /// member that needs many queries has gone wrong: the pipeline limits how often each member may send one.
    fn query_kinds(&self) -> u64 {
        0
    }

    /// True if the job's packets have a checksum, which the pipeline checks and writes: see
    /// [`seal`](crate::contract::seal).
    fn is_sealed(&self) -> bool {
        false
    }

    /// Takes a packet whose job, key and membership the pipeline has checked.
    fn process(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>, ports: &dyn PortView) -> Verdict;
    /// The time of `poll_timeout` has come.
    fn handle_timeout(&mut self, now: Time);

    /// Gives the machine another number of slots, at least one for each tree; only if the protocol
    /// [`resizes`](crate::contract::protocol::Protocol::resizes). Its memory changes at once. Contents of slots may be
    /// lost; members then send them again.
    fn resize(&mut self, _slots: u16) {}

    /// The next packet that the switch makes itself. `buf` holds a full packet of the job, and at least
    /// [`MIN_TRANSMIT_LEN`] bytes.
    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission>;
    /// When to call `handle_timeout`, if nothing else happens before.
    fn poll_timeout(&self) -> Option<Time>;
    /// The same time, if it comes before `limit`: see
    /// [`Host::poll_timeout_before`](crate::contract::host::Host::poll_timeout_before).
    fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        self.poll_timeout().filter(|&due| due < limit)
    }

    /// The status of the job's custom operators; `None` if the job has none.
    fn operator_status(&self) -> Option<OperatorStatus> {
        None
    }
    /// The machine as one that counts its work, for drivers that simulate a switch's cores; `None` if it does not
    /// count.
    fn instrumented(&mut self) -> Option<&mut dyn Instrumented> {
        None
    }
    /// The machine's state, for explorers; `None` if explorers cannot copy the machine.
    fn state(&self) -> Option<&dyn SwitchState> {
        None
    }
}

/// The state of memory that jobs share, for the switch's operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedReport {
    /// Slots, descriptors or aggregators in all.
    pub slots: u32,
    /// Slots, descriptors or aggregators that some job holds.
    pub slots_in_use: u32,
    /// The most that were in use at once.
    pub slots_peak: u32,
    /// The protocol's own counters and gauges, all jobs together.
    pub metrics: Vec<Metric>,
}

impl SharedReport {
    /// The whole report as named figures, the protocol's own figures last.
    pub fn figures(&self) -> Vec<Metric> {
        let mut all = vec![
            Metric::gauge("slots", self.slots.into(), "What jobs share."),
            Metric::gauge("slots_in_use", self.slots_in_use.into(), "What some job uses of it."),
            Metric::gauge("slots_peak", self.slots_peak.into(), "The most that was in use at once."),
        ];
        all.extend(&self.metrics);
        all
    }
}

/// A switch's side of a protocol whose jobs share one memory. A packet's job is in its header; packets of jobs that
/// were not added are dropped as [`UnknownJob`](crate::contract::drop_reason::DropReason::UnknownJob).
pub trait SharedSwitch: Switch {
    /// A job begins at this switch. Called once for each job, before its first packet.
    fn add_job(&mut self, plan: &SharedJob);
    /// A job that was added is over: the machine frees all that the job held.
    fn remove_job(&mut self, job: JobId);
    /// The state of one job.
    fn report_job(&self, job: JobId) -> SwitchReport;
    /// The state of the memory.
    fn report_shared(&self) -> SharedReport;
    /// The machine's state, for explorers; `None` if explorers cannot copy the machine.
    fn shared_state(&self) -> Option<&dyn SharedSwitchState> {
        None
    }
}
