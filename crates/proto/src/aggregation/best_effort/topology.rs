//! Where a job's servers are, and which switch on the way to them sums which ranks.
//!
//! A server is numbered as the rank whose host it is on. Servers on hosts of their own are numbered after all ranks, in
//! the order of the plan.

use std::ops::Range;

use crate::aggregation::modulo::Modulo;
use crate::contract::config::{FabricPlan, JobConfig};
use crate::contract::ids::{NodeId, Rank};

/// Where the servers of a job are: one with each rank, one with the last rank, or on hosts of their own.
#[derive(Clone, Debug, Hash)]
pub struct Topology {
    fabric: FabricPlan,
    world_size: u16,
    /// The number of the first server.
    first_server: u16,
    /// How many servers there are.
    servers: u16,
    /// Blocks take servers in turn.
    turn: Modulo,
    two_levels: bool,
}

/// The ranks that one switch sums a block for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// No ranks: it forwards.
    Forwards,
    /// The ranks behind it, on the way to a server behind another switch.
    Rack,
    /// All ranks except the server's own, which is behind it.
    Edge,
}

impl Topology {
    /// The places of a job whose plan names the node and the switch of every rank, then of every server on a host of
    /// its own.
    pub fn new(job: &JobConfig, fabric: &FabricPlan) -> Topology {
        let two_levels = job.options.choice(super::options::LEVELS) == "2";
        let only_last = job.options.choice(super::options::SERVED_BY) == "last_rank";
        let dedicated = fabric.hosts.len().saturating_sub(job.world_size.into()) as u16;
        let (first_server, servers) = match dedicated {
            0 if only_last => (job.world_size.saturating_sub(1), 1),
            0 => (0, job.world_size),
            _ => (job.world_size, dedicated),
        };
        let turn = Modulo::new(servers.into());
        Topology { fabric: fabric.clone(), world_size: job.world_size, first_server, servers, turn, two_levels }
    }

    /// How many ranks the job has.
    pub fn world_size(&self) -> u16 {
        self.world_size
    }

    /// How many servers there are.
    pub fn servers(&self) -> u16 {
        self.servers
    }

    /// True if servers are on hosts of their own, and no rank serves.
    pub fn has_dedicated_servers(&self) -> bool {
        self.first_server == self.world_size
    }

    /// How many ranks' parts of a block come in packets: all but the rank on the server's host.
    pub fn contributors(&self) -> u16 {
        if self.has_dedicated_servers() { self.world_size } else { self.world_size - 1 }
    }

    /// How many ranks and servers on hosts of their own there are.
    pub fn members(&self) -> u16 {
        self.world_size.max(self.first_server + self.servers)
    }

    /// True if a number is a server's.
    pub fn serves(&self, number: Rank) -> bool {
        self.first_block_of(number).is_some()
    }

    /// The first block that a rank or a server serves; `None` if it serves none.
    pub fn first_block_of(&self, number: Rank) -> Option<u64> {
        number.0.checked_sub(self.first_server).filter(|&server| server < self.servers).map(u64::from)
    }

    /// The server of a block, by its sequence number.
    #[inline]
    pub fn server_of(&self, seq: u32) -> Rank {
        Rank(self.first_server + self.turn.of(seq.wrapping_sub(1)) as u16)
    }

    /// The server of a block.
    #[inline]
    pub fn server_of_block(&self, block: u64) -> Rank {
        self.server_of(super::wire::seq_of_block(block))
    }

    /// The node of a rank or a server.
    pub fn node_of(&self, rank: Rank) -> NodeId {
        self.fabric.hosts[rank.index()]
    }

    /// The switch to which the host of a rank or a server is connected.
    pub fn switch_of(&self, rank: Rank) -> NodeId {
        self.fabric.switches[rank.index()]
    }

    /// The ranks behind the same switch as a rank, this rank included.
    pub fn neighbours(&self, rank: Rank) -> impl Iterator<Item = Rank> + '_ {
        let switch = self.switch_of(rank);
        self.ranks().map(Rank).filter(move |&other| self.switch_of(other) == switch)
    }

    /// One rank of each switch: the first.
    pub fn racks(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks().map(Rank).filter(|&rank| self.neighbours(rank).next() == Some(rank))
    }

    fn ranks(&self) -> Range<u16> {
        0..self.world_size
    }

    /// What a switch does for the blocks of a server; `behind` ranks are connected to the switch.
    pub fn level(&self, switch: NodeId, server: Rank, behind: u16) -> Level {
        if self.switch_of(server) == switch {
            // A single rank's part has nothing to be summed with on the way.
            if self.contributors() > 1 { Level::Edge } else { Level::Forwards }
        } else if self.two_levels && behind > 1 {
            Level::Rack
        } else {
            Level::Forwards
        }
    }
}
