//! The contract of a host machine: a worker, a leader or a parameter server.
//!
//! After every input the driver drains packets, then events, then reads the timeout: see [the order of calls](super).

use crate::contract::drop_reason::{DropCounters, DropReason};
use crate::contract::ids::{OpId, Rank, ServerId, TreeId};
use crate::contract::metric::Metric;
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::state::HostState;
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::time::Time;

/// One collective, as the caller submits it.
#[derive(Clone, Hash)]
pub struct Collective {
    /// The data.
    pub tensor: Box<dyn Tensor>,
    /// When to give up; never, if `None`.
    pub deadline: Option<Time>,
}

/// Why a collective was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// An earlier collective failed; ranks may no longer agree on what comes next.
    #[error("this group failed earlier ({0}); connect again to go on")]
    Broken(CollectiveError),
}

/// Why a collective failed. The job is broken after that: every later collective fails with the same error. The sentence
/// leaves it to the caller to say which collective, in the caller's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Hash)]
pub enum CollectiveError {
    /// The switch answers; the contributions of some ranks are missing.
    #[error("rank {} did not contribute in time", list(missing, *others))]
    Missing {
        /// The ranks that have not contributed, ascending in each rack; if there are very many, the first ones.
        missing: Vec<Rank>,
        /// How many further ranks have not contributed.
        others: u16,
        /// The slot or descriptor that waits.
        slot: u32,
        /// The block of the tensor that waits.
        block: u32,
        /// The collective.
        op: OpId,
    },
    /// A parent switch of this rank's own does not answer; the switches below it do.
    #[error(
        "the switch {levels_up} level{} above this rank's own has not answered", if *levels_up == 1 { "" } else { "s" }
    )]
    ParentSilent {
        /// How many levels above the rank's own switch the silent switch is, at least 1.
        levels_up: u8,
        /// The slot that waits.
        slot: u32,
        /// The block of the tensor that waits.
        block: u32,
        /// The collective.
        op: OpId,
    },
    /// The sum waits for a switch in another rack that does not report which ranks it waits for.
    #[error("the switch of rank {} has not answered", list(ranks, *others))]
    ChildSwitchSilent {
        /// The ranks below the silent switch, ascending; if there are very many, the first ones.
        ranks: Vec<Rank>,
        /// How many further ranks are below it.
        others: u16,
        /// The slot that waits.
        slot: u32,
        /// The block of the tensor that waits.
        block: u32,
        /// The collective.
        op: OpId,
    },
    /// Nothing came from the switch (its shard `tree`) since the collective's last progress.
    #[error("the switch (shard {tree}) has not answered")]
    SwitchSilent {
        /// The silent shard.
        tree: TreeId,
        /// The block that waits.
        block: u32,
        /// The collective.
        op: OpId,
    },
    /// Nothing came from a server since the collective's last progress.
    #[error("server {server} has not answered")]
    ServerSilent {
        /// The silent server.
        server: ServerId,
        /// The block that waits.
        block: u32,
        /// The collective.
        op: OpId,
    },
    /// Nothing came from a peer that the protocol waits for.
    #[error("rank {worker} has not answered")]
    PeerSilent {
        /// The silent rank.
        worker: Rank,
        /// The collective.
        op: OpId,
    },
    /// Two ranks submitted different collectives.
    #[error("ranks disagree: rank {a} brings {a_spec}, rank {b} brings {b_spec}")]
    Mismatch {
        /// One rank.
        a: Rank,
        /// The collective that `a` brings.
        a_spec: Spec,
        /// Another rank.
        b: Rank,
        /// The collective that `b` brings.
        b_spec: Spec,
        /// The collective.
        op: OpId,
    },
    /// The driver aborted the collective.
    #[error("the collective was aborted")]
    Aborted,
}

impl CollectiveError {
    /// The collective in which ranks or switches were waited for; `None` if they were not.
    pub fn awaited_in(&self) -> Option<OpId> {
        match *self {
            CollectiveError::Missing { op, .. }
            | CollectiveError::ParentSilent { op, .. }
            | CollectiveError::ChildSwitchSilent { op, .. }
            | CollectiveError::SwitchSilent { op, .. }
            | CollectiveError::ServerSilent { op, .. }
            | CollectiveError::PeerSilent { op, .. } => Some(op),
            CollectiveError::Mismatch { .. } | CollectiveError::Aborted => None,
        }
    }
}

fn list(workers: &[Rank], others: u16) -> String {
    let named = workers.iter().map(|w| w.to_string()).collect::<Vec<_>>().join(", ");
    if others > 0 { format!("{named} and {others} more") } else { named }
}

/// A result for the caller of a host machine.
#[derive(Clone, Hash)]
pub enum HostEvent {
    /// The collective is complete; its output is written.
    Done {
        /// The collective.
        op: OpId,
        /// The data, handed back.
        tensor: Box<dyn Tensor>,
    },
    /// The collective cannot complete.
    Failed {
        /// The collective.
        op: OpId,
        /// The data, handed back; its output is undefined.
        tensor: Box<dyn Tensor>,
        /// Why.
        error: CollectiveError,
    },
}

/// What a machine is about to be called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upcoming<'a> {
    /// A packet comes or the next one is sent. The packet itself is not available yet.
    Something,
    /// This packet comes. It is not checked yet.
    Packet(&'a [u8]),
    /// The next packet is sent.
    Transmit,
}

/// What a host machine counted since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Packets sent again, for whatever reason.
    pub retransmissions: u64,
    /// Of these, packets of blocks that all ranks sent again: issued again, or with another scale.
    pub reissued: u64,
    /// Packets received and acted on.
    pub packets_received: u64,
    /// Blocks whose sum was made in the network.
    pub blocks_in_network: u64,
    /// Blocks whose sum was made at hosts.
    pub blocks_at_hosts: u64,
    /// Ranks whose data is in the results, over all blocks, in a job whose sums need not wait for all ranks; 0 in other
    /// jobs.
    pub ranks_in_sums: u64,
    /// Ranks whose data would be in these results if no rank were left out.
    pub ranks_of_sums: u64,
    /// Blocks that this host led and issued again, counted once for each time.
    pub reissues: u64,
    /// A hash of the expression by which the last block was summed, if the protocol has one that does not depend on
    /// arrival.
    pub order: Option<u32>,
    /// Packets that were dropped, by reason.
    pub drops: DropCounters,
}

impl HostStats {
    /// The share of ranks whose data is in the results, in a job whose sums need not wait for all ranks; `None` before
    /// the first result.
    pub fn contributed(&self) -> Option<f64> {
        (self.ranks_of_sums > 0).then(|| self.ranks_in_sums as f64 / self.ranks_of_sums as f64)
    }

    /// Adds the counters of a machine that drives other slots of the same host.
    pub fn add(&mut self, other: &HostStats) {
        for (sum, other) in [
            (&mut self.packets_sent, other.packets_sent),
            (&mut self.retransmissions, other.retransmissions),
            (&mut self.reissued, other.reissued),
            (&mut self.packets_received, other.packets_received),
            (&mut self.blocks_in_network, other.blocks_in_network),
            (&mut self.blocks_at_hosts, other.blocks_at_hosts),
            (&mut self.ranks_in_sums, other.ranks_in_sums),
            (&mut self.ranks_of_sums, other.ranks_of_sums),
            (&mut self.reissues, other.reissues),
        ] {
            *sum += other;
        }
        self.order = self.order.or(other.order);
        self.drops.add(&other.drops);
    }

    /// Counts a packet by its outcome.
    #[inline]
    pub fn count_received(&mut self, outcome: Result<(), DropReason>) {
        match outcome {
            Ok(()) => self.packets_received += 1,
            Err(reason) => self.drops.count(reason),
        }
    }
}

/// A host's side of a protocol, without socket, clock, thread or random source.
pub trait Host: Send {
    /// Bytes of the longest packet that `poll_transmit` writes.
    fn max_packet_len(&self) -> usize;
    /// What was counted so far.
    fn stats(&self) -> &HostStats;
    /// The protocol's own gauges at this host, such as its windows; their names are the same at any time.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }
    /// True if no other host needs this one. If a driver leaves earlier, other hosts may never get their sums.
    fn may_leave(&self) -> bool {
        true
    }

    /// Takes a packet from the network. `Err` says why the packet was dropped; the machine has counted it.
    fn handle_packet(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason>;
    /// The time of `poll_timeout` has come. An early call does no harm.
    fn handle_timeout(&mut self, now: Time);

    /// Queues a collective behind all earlier ones. All ranks submit the same collectives in the same order.
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError>;
    /// Queues the collectives of one operation, such as a reduce for each rank. All ranks queue the same ones together:
    /// a machine may put their blocks side by side.
    fn submit_together(&mut self, now: Time, collectives: Vec<Collective>) -> Result<Vec<OpId>, SubmitError> {
        collectives.into_iter().map(|collective| self.submit(now, collective)).collect()
    }
    /// Gives up all collectives that are queued; `Failed` events with [`CollectiveError::Aborted`] follow.
    fn abort(&mut self, now: Time);
    /// The caller will submit nothing more. Other hosts may still need results that this host holds;
    /// [`Host::may_leave`] is true once they do not.
    fn finish(&mut self, _now: Time) {}

    /// Writes the next packet to `buf`, which holds at least [`Host::max_packet_len`] bytes.
    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit>;
    /// The next event for the caller.
    fn poll_event(&mut self) -> Option<HostEvent>;
    /// When to call `handle_timeout`, if nothing else happens before.
    fn poll_timeout(&self) -> Option<Time>;
    /// The same time, if it comes before `limit`. A driver whose timer is set for `limit` needs no later time, and a
    /// machine may know at once that none of its own timers is so soon.
    fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        self.poll_timeout().filter(|&due| due < limit)
    }

    /// Prefetches memory that the machine will touch soon. This is a hint, for drivers that run more machines than fit
    /// into the processor's inner caches; it changes nothing.
    fn prefetch(&self, _upcoming: Upcoming<'_>) {}
    /// The machine's state, for explorers; `None` if explorers cannot copy the machine.
    fn state(&self) -> Option<&dyn HostState> {
        None
    }
}
