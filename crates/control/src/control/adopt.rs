//! Jobs that were installed before this control plane was started.

use std::net::SocketAddr;
use std::sync::Arc;

use tributary_proto::contract::config::{Below, JobConfig};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;

use crate::control::Control;
use crate::levels::Child;
use crate::memory::JobShape;
use crate::name::JobName;
use crate::plan::Plan;
use crate::running::{Running, Sharing};
use crate::servers::{JobServer, Servers};
use crate::shares::with;
use crate::tidings::Tiding;

/// A job that runs already and whose ranks are all workers here.
pub struct FoundJob {
    /// The job's name.
    pub name: JobName,
    /// The protocol that the switch runs for the job.
    pub protocol: &'static Protocol,
    /// Id, key, ranks, slots now, elements per packet, trees.
    pub config: JobConfig,
    /// The slots on which the job's members have agreed.
    pub most_slots: u16,
    /// The source address of each worker's packets, by rank.
    pub workers: Vec<SocketAddr>,
    /// The job's servers on hosts of their own, by number.
    pub servers: Vec<JobServer>,
}

impl Control {
    /// Takes over a job after this control plane was started anew.
    pub fn adopt(&mut self, now: Time, job: FoundJob) {
        let FoundJob { name, protocol, config, most_slots, workers, servers } = job;
        let id = config.job;
        let world = workers.len() as u16;
        let child = |(rank, &addr): (usize, &SocketAddr)| Child {
            below: Below::Worker(Rank(rank as u16)),
            addrs: vec![addr],
            asked_at: addr.ip(),
            incarnation: None,
            question: 0,
            control: None,
        };
        let (shards, trees) = match self.limits.planned_trees {
            Some(_) => (self.limits.shards, config.trees),
            None => (config.trees, 1),
        };
        let shape = JobShape {
            protocol,
            slots: config.slots,
            elements_per_packet: config.elements_per_packet,
            world,
            children: world,
            neighbours: 0,
            shards,
            trees,
            servers: 0,
            options: config.options.clone(),
        };
        let plan = Plan {
            name: name.clone(),
            protocol,
            config,
            children: workers.iter().enumerate().map(child).collect(),
            trees: None,
            workers,
            servers: if servers.is_empty() { Servers::None } else { Servers::Dedicated(servers) },
            switches: Vec::new(),
            uplink: None,
            slots: shape.slots,
            memory_bytes: shape.bytes(),
        };
        // Of two jobs with one name, the job with the higher id is most likely the newer one.
        let former = self.owners.insert(name.clone(), id).and_then(|former| self.running.get_mut(&former));
        if let Some(former) = former {
            former.superseded = true;
        }
        self.last_id = self.last_id.max(id);
        let plan = Arc::new(plan);
        self.expect_servers(now, plan.servers.dedicated());
        self.tidings.push_back(Tiding::Adopted(plan.clone()));
        if protocol.shared.is_some() {
            self.shared.insert(protocol.code, protocol);
        }
        let slots = shape.slots;
        let sharing = shape.resizes().then(|| Sharing { most: with(&shape, most_slots), slots });
        self.running.insert(id, Running { sharing, ..Running::adopted(now, plan) });
    }
}
