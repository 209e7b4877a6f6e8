//! Where a job's servers are, and which switch sums what on the way to them.

use std::ops::Range;

use crate::contract::config::{FabricPlan, JobConfig};
use crate::contract::ids::{NodeId, Rank};

/// Where the servers of a job are: one with each rank, or one with the last rank.
#[derive(Clone, Debug, Hash)]
pub struct Places {
    fabric: FabricPlan,
    world: u16,
    /// The first rank that serves; those after it do too.
    first_server: u16,
    two_levels: bool,
}

/// The ranks that one switch sums a block for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// None: it forwards.
    Forwards,
    /// Those behind it, on the way to a server elsewhere.
    Rack,
    /// All but the server's own, which is behind it.
    Edge,
}

impl Places {
    /// Of a job whose plan names the node and the switch of every rank.
    pub fn new(job: &JobConfig, fabric: &FabricPlan) -> Places {
        let two_levels = job.options.choice(super::options::LEVELS) == "2";
        let only_last = job.options.choice(super::options::SERVED_BY) == "last_rank";
        let first_server = if only_last { job.world.saturating_sub(1) } else { 0 };
        Places { fabric: fabric.clone(), world: job.world, first_server, two_levels }
    }

    /// Ranks of the job.
    pub fn world(&self) -> u16 {
        self.world
    }

    /// How many servers there are.
    pub fn servers(&self) -> u16 {
        self.world - self.first_server
    }

    /// The first block that a rank serves; none if it serves nothing.
    pub fn first_block_of(&self, rank: Rank) -> Option<u64> {
        rank.0.checked_sub(self.first_server).map(u64::from)
    }

    /// The rank that serves the block of a sequence number.
    #[inline]
    pub fn server_of(&self, seq: u32) -> Rank {
        Rank(self.first_server + (seq.wrapping_sub(1) % u32::from(self.servers())) as u16)
    }

    /// The rank that serves a block.
    #[inline]
    pub fn server_of_block(&self, block: u64) -> Rank {
        self.server_of(super::seq::of_block(block))
    }

    /// A rank's node.
    pub fn node_of(&self, rank: Rank) -> NodeId {
        self.fabric.hosts[rank.index()]
    }

    /// The switch that a rank's host is connected to.
    pub fn switch_of(&self, rank: Rank) -> NodeId {
        self.fabric.switches[rank.index()]
    }

    /// The ranks behind a rank's switch, that one included.
    pub fn neighbours(&self, rank: Rank) -> impl Iterator<Item = Rank> + '_ {
        let switch = self.switch_of(rank);
        self.ranks().map(Rank).filter(move |&other| self.switch_of(other) == switch)
    }

    /// One rank of each switch, the first one.
    pub fn racks(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks().map(Rank).filter(|&rank| self.neighbours(rank).next() == Some(rank))
    }

    fn ranks(&self) -> Range<u16> {
        0..self.world
    }

    /// What a switch does for the blocks of a server, of whose ranks `behind` are connected to it.
    pub fn level(&self, switch: NodeId, server: Rank, behind: u16) -> Level {
        if self.switch_of(server) == switch {
            // A single rank besides the server's own has nobody to be summed with.
            if self.world > 2 { Level::Edge } else { Level::Forwards }
        } else if self.two_levels && behind > 1 {
            Level::Rack
        } else {
            Level::Forwards
        }
    }
}
