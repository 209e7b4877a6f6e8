//! The contract of a host machine: a worker, a leader, a parameter server.
//!
//! After every input (`submit`, `handle_*`) the driver drains `poll_transmit` until `None`, then `poll_event` until
//! `None`, then reads `poll_timeout` ([`super::drive::host`]). A machine does nothing between inputs. Same inputs, same
//! outputs, always.

use crate::contract::drop_reason::{DropCounters, DropReason};
use crate::contract::ids::{OpId, Rank, ServerId, TreeId};
use crate::contract::metric::Metric;
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::state::HostState;
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::time::Time;

/// One collective as the caller hands it over.
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

/// Why a collective failed. The job is broken after that: every later collective fails with the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Hash)]
pub enum CollectiveError {
    /// The switch is there, some ranks' contributions are not.
    #[error("rank {} did not contribute to block {block} of collective {op} (slot {slot}) in time", list(missing, *others))]
    Missing {
        /// The ranks that have not contributed, ascending in each rack; of very many the first ones.
        missing: Vec<Rank>,
        /// How many there are beyond those.
        others: u16,
        /// The slot or descriptor that waits.
        slot: u32,
        /// The block of the tensor that waits.
        block: u32,
        /// The collective.
        op: OpId,
    },
    /// The switches up to there answer, and wait for the one above them.
    #[error(
        "the switch {above} level{} above this rank's own has not answered since block {block} of collective {op} \
         (slot {slot}) was sent", if *above == 1 { "" } else { "s" }
    )]
    SwitchAboveSilent {
        /// How many levels above the rank's own switch it is, at least 1.
        above: u8,
        /// The slot that waits.
        slot: u32,
        /// The block of the tensor that waits.
        block: u32,
        /// The collective.
        op: OpId,
    },
    /// The sum waits for a switch in another rack that does not say whom it waits for.
    #[error(
        "the switch of rank {} has not answered in block {block} of collective {op} (slot {slot})", list(ranks, *others)
    )]
    SwitchBelowSilent {
        /// The ranks below it, ascending; of very many the first ones.
        ranks: Vec<Rank>,
        /// How many there are beyond those.
        others: u16,
        /// The slot that waits.
        slot: u32,
        /// The block of the tensor that waits.
        block: u32,
        /// The collective.
        op: OpId,
    },
    /// Nothing came from the switch (its part `tree`) since the collective's last progress.
    #[error("the switch (part {tree}) has not answered since block {block} of collective {op} was sent")]
    SwitchSilent {
        /// The silent part.
        tree: TreeId,
        /// The block that waits.
        block: u32,
        /// The collective.
        op: OpId,
    },
    /// Nothing came from a server since the collective's last progress.
    #[error("server {server} has not answered since block {block} of collective {op} was sent")]
    ServerSilent {
        /// The silent server.
        server: ServerId,
        /// The block that waits.
        block: u32,
        /// The collective.
        op: OpId,
    },
    /// Nothing came from a peer that the protocol waits for.
    #[error("rank {worker} has not answered in collective {op}")]
    PeerSilent {
        /// The silent rank.
        worker: Rank,
        /// The collective.
        op: OpId,
    },
    /// Two ranks brought different things.
    #[error("ranks disagree in collective {op}: rank {a} brings {a_spec}, rank {b} brings {b_spec}")]
    Mismatch {
        /// One rank.
        a: Rank,
        /// What it brings.
        a_spec: Spec,
        /// Another rank.
        b: Rank,
        /// What that one brings.
        b_spec: Spec,
        /// The collective.
        op: OpId,
    },
    /// The driver gave the collective up.
    #[error("the collective was aborted")]
    Aborted,
}

fn list(workers: &[Rank], others: u16) -> String {
    let named = workers.iter().map(|w| w.to_string()).collect::<Vec<_>>().join(", ");
    if others > 0 { format!("{named} and {others} more") } else { named }
}

/// What a host machine tells its caller.
#[derive(Clone, Hash)]
pub enum HostEvent {
    /// The collective is complete; its output is written.
    Done {
        /// Which.
        op: OpId,
        /// The data, handed back.
        tensor: Box<dyn Tensor>,
    },
    /// The collective cannot complete.
    Failed {
        /// Which.
        op: OpId,
        /// The data, handed back; its output is undefined.
        tensor: Box<dyn Tensor>,
        /// Why.
        error: CollectiveError,
    },
}

/// What a machine will be asked to do soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upcoming<'a> {
    /// A packet comes or the next one is sent. The packet itself is not at hand yet.
    Something,
    /// This packet comes. Nobody has checked it.
    Packet(&'a [u8]),
    /// The next packet is sent.
    Transmit,
}

/// What a host machine counted since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Packets received and acted upon.
    pub packets_received: u64,
    /// Blocks whose sum was made in the network.
    pub blocks_in_network: u64,
    /// Blocks whose sum was made at hosts.
    pub blocks_at_hosts: u64,
    /// Ranks whose data is in the results, over all blocks of a job whose sums need not wait for all ranks; 0 of any other ...
    pub ranks_in_sums: u64,
    /// ... and how many they would be if none were left out.
    pub ranks_of_sums: u64,
    /// Blocks that this host led and had issued again, once for each time.
    pub reissues: u64,
    /// A hash of the expression that the last block was summed by, where the protocol has one that does not depend on arrival.
    pub order: Option<u32>,
    /// Packets of no use, by reason.
    pub drops: DropCounters,
}

impl HostStats {
    /// The share of ranks whose data is in the results, of a job whose sums need not wait for all ranks, once there are any.
    pub fn contributed(&self) -> Option<f64> {
        (self.ranks_of_sums > 0).then(|| self.ranks_in_sums as f64 / self.ranks_of_sums as f64)
    }

    /// Counts a packet by what became of it.
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
    /// Queues a collective behind those before it. Ranks submit the same ones in the same order.
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError>;
    /// A packet from the network. `Err` says why it was of no use; it is counted already.
    fn handle_packet(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason>;
    /// The time of `poll_timeout` has come. Harmless when called early.
    fn handle_timeout(&mut self, now: Time);
    /// Gives up everything that is queued; `Failed` events with [`CollectiveError::Aborted`] follow.
    fn abort(&mut self, now: Time);
    /// The caller will submit nothing more. Others may still need what this host holds; [`Host::may_leave`] says when
    /// they do not.
    fn finish(&mut self, _now: Time) {}
    /// True if no other host needs this one any more. A driver that leaves earlier may leave others without their sums.
    fn may_leave(&self) -> bool {
        true
    }
    /// Writes the next packet to `buf`, which holds at least [`Host::max_packet_len`] bytes.
    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit>;
    /// The next thing to tell the caller.
    fn poll_event(&mut self) -> Option<HostEvent>;
    /// When to call `handle_timeout`, if nothing else happens before.
    fn poll_timeout(&self) -> Option<Time>;
    /// Bytes of the longest packet that `poll_transmit` writes.
    fn max_packet_len(&self) -> usize;
    /// What was counted so far.
    fn stats(&self) -> &HostStats;
    /// Asks the processor for the memory that the machine will touch soon. A hint of a driver that runs more machines than
    /// its processor's inner caches hold; changes nothing.
    fn prefetch(&self, _upcoming: Upcoming<'_>) {}
    /// The machine's state, for explorers; `None` of a machine that they cannot copy.
    fn state(&self) -> Option<&dyn HostState> {
        None
    }
    /// What the protocol measures of its own here now, as its windows: gauges, under the same names at any time.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }
}
