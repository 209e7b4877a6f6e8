//! The contract of a switch machine: a pipeline that one packet passes at a time and may be rewritten by.
//!
//! After every input the driver carries out the verdict; after one input or a burst of them it drains `poll_transmit`, then
//! reads `poll_timeout` ([`super::drive::switch`]). All memory is taken when the machine is made; a packet never allocates.

use crate::contract::config::SharedJob;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, GroupId, JobId, NodeId, PortId, PortSet, Rank, TreeId};
use crate::contract::metric::Metric;
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::state::{SharedSwitchState, SwitchState};
use crate::contract::time::Time;
use crate::contract::work::{Brought, Claim, Work};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It did its work and goes nowhere.
    Consume,
    /// It was of no use.
    Drop(DropReason),
    /// Out of one port.
    Port(PortId),
    /// Towards a node; the driver's load balancing chooses among equal paths.
    Route(NodeId),
    /// Out of each port of a set that the packet or a descriptor determines.
    Multicast(PortSet),
    /// Out of each port of a group that was installed beforehand.
    Group(GroupId),
}

/// What a machine may see of the switch that it runs in.
pub trait PortView {
    /// Bytes that wait in the port's output queue.
    fn queued_bytes(&self, port: PortId) -> u64;
}

impl<P: PortView + ?Sized> PortView for &P {
    fn queued_bytes(&self, port: PortId) -> u64 {
        (**self).queued_bytes(port)
    }
}

/// A view without queues, for drivers and protocols that have none to show.
pub struct NoQueues;

impl PortView for NoQueues {
    fn queued_bytes(&self, _port: PortId) -> u64 {
        0
    }
}

/// Bytes that a buffer for `Switch::poll_transmit` holds at least, however short the job's packets are: every notice
/// fits.
pub const MIN_TRANSMIT_LEN: usize = 256;

/// A packet that a switch made itself: the first `len` bytes of the buffer that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emission {
    /// Bytes written to the buffer.
    pub len: usize,
    /// UDP payload bytes that they stand for on the wire.
    pub wire_len: usize,
    /// How it leaves.
    pub ecn: Ecn,
    /// Where it goes.
    pub verdict: Verdict,
    /// Where the last contribution to its sum came in; nothing where the switch speaks for itself. A sum that a timer
    /// sends takes the room that a sum in the last contribution's own packet would take.
    pub ingress: Option<PortId>,
}

/// What an operator asks of a job's machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwitchReport {
    /// Slots or descriptors that the job holds.
    pub slots: u32,
    /// Those with a sum that is not complete.
    pub slots_waiting: u32,
    /// Members that some incomplete sum waits for, ascending.
    pub missing: Vec<ChildId>,
    /// The member that is furthest behind, where results wait for it and the machine can tell.
    pub lag: Option<Lag>,
    /// Sums completed since the job was installed.
    pub blocks_completed: u64,
    /// Contributions added since the job was installed.
    pub contributions: u64,
    /// What the protocol counts and measures of its own for the job.
    pub metrics: Vec<Metric>,
    /// By tree, what waits, where a tree's packets are summed in their order; empty where they are not.
    pub orders: Vec<OrderReport>,
}

/// A member that others are ahead of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Which.
    pub rank: Rank,
    /// Blocks from the first rank to this one.
    pub blocks: u32,
}

/// The state of a tree whose packets are summed in their order, each when all children have brought it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderReport {
    /// The tree.
    pub tree: TreeId,
    /// The number of the packet that is summed next.
    pub expected: u32,
    /// How often the tree went back.
    pub epoch: u16,
    /// Packets that the switch has room for at each child's port.
    pub cap: u16,
    /// Packets that wait at each child's port.
    pub held: Vec<u16>,
    /// Children that the next packet waits for, ascending; none where nothing waits.
    pub waits_for: Vec<ChildId>,
}

/// A switch's side of a protocol for one job, or for several that share its memory: see [`SharedSwitch`].
pub trait Switch: Send {
    /// A packet that passed the pipeline's checks of job, key and membership.
    fn process(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>, ports: &dyn PortView) -> Verdict;
    /// The time of `poll_timeout` has come.
    fn handle_timeout(&mut self, now: Time);
    /// The next packet that the switch makes itself; `buf` holds a full packet of the job, and [`MIN_TRANSMIT_LEN`].
    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission>;
    /// When to call `handle_timeout`, if nothing else happens before.
    fn poll_timeout(&self) -> Option<Time>;
    /// Bytes that the machine holds, itself included: all that it has allocated.
    fn memory_bytes(&self) -> usize;
    /// The state of the job, for people.
    fn report(&self) -> SwitchReport;
    /// Why the job can never go on, for its members; whoever drives the machine ends the job then.
    fn fault(&self) -> Option<String> {
        None
    }
    /// Instructions that operators of the job's own have taken since this was asked last; `None` of a job that has none.
    fn take_instructions(&mut self) -> Option<u64> {
        None
    }
    /// The machine's state, for explorers; `None` of a machine that they cannot copy.
    fn state(&self) -> Option<&dyn SwitchState> {
        None
    }
    /// What a packet's handler must have for itself, where handlers run on cores; asked before [`Switch::process`], of packets
    /// that the pipeline admits or not.
    fn claim(&mut self, _ingress: PortId, _packet: &[u8]) -> Claim {
        Claim::ALL
    }
    /// What a packet of so many bytes on the wire brings to the block that its handler claims; `None` if nothing.
    fn brings(&mut self, _ingress: PortId, _packet: &[u8], _wire_len: usize) -> Option<Brought> {
        None
    }
    /// What the machine has done since it was last asked; `None` of one that does not count it. Who never asks loses nothing.
    fn take_work(&mut self) -> Option<Work> {
        None
    }
    /// The machine has so many slots from now on, at least one for each tree; only where the protocol says that it
    /// [`resizes`](crate::contract::protocol::Protocol::resizes). Its memory follows at once. What it held may be gone: then its
    /// members bring it again, and the driver drains `poll_transmit` as after every input.
    fn resize(&mut self, _slots: u16) {}
    /// The kinds of packets that are questions, a bit for each: one costs the switch more than its bytes, and a member
    /// that needs many has gone wrong. The pipeline bounds how often each member asks.
    fn questions(&self) -> u64 {
        0
    }
}

/// What an operator asks of memory that jobs share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedReport {
    /// Slots, descriptors, aggregators: what jobs hold one or more of.
    pub slots: u32,
    /// Those that some job holds.
    pub slots_held: u32,
    /// The most that were held at once.
    pub slots_peak: u32,
    /// What the protocol counts and measures of its own, all jobs together.
    pub metrics: Vec<Metric>,
}

impl SharedReport {
    /// All of it under names, the protocol's own figures last.
    pub fn figures(&self) -> Vec<Metric> {
        let mut all = vec![
            Metric::gauge("slots", self.slots.into(), "What jobs share."),
            Metric::gauge("slots_held", self.slots_held.into(), "What some job holds of it."),
            Metric::gauge("slots_peak", self.slots_peak.into(), "The most that was held at once."),
        ];
        all.extend(&self.metrics);
        all
    }
}

/// A switch's side of a protocol whose jobs share one memory: a packet's job is in its header, and packets of jobs that
/// were not added are dropped as [`UnknownJob`](crate::contract::drop_reason::DropReason::UnknownJob).
pub trait SharedSwitch: Switch {
    /// A job begins at this switch: its packets may come. Told once for each job, before its first packet.
    fn add_job(&mut self, plan: &SharedJob);
    /// A job that was added is over: nothing of it is left behind.
    fn remove_job(&mut self, job: JobId);
    /// The state of one job.
    fn report_job(&self, job: JobId) -> SwitchReport;
    /// The state of the memory.
    fn report_shared(&self) -> SharedReport;
    /// The machine's state, for explorers; `None` of a machine that they cannot copy.
    fn shared_state(&self) -> Option<&dyn SharedSwitchState> {
        None
    }
}
