//! A simulation that several threads run in partitions, and the merge of the partitions at the end.

use std::sync::Arc;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use crate::engine::faults::Failure;
use crate::engine::records::JobIndex;
use crate::engine::simulation::Simulation;
use crate::events::EventKind;
use crate::net::Partition;
use crate::routing::Table;
use crate::topology::Graph;

/// Divides the nodes into partitions. A switch and its hosts stay together, and so do neighbouring switches with hosts;
/// the other switches are assigned round robin.
pub fn assign_partitions(graph: &Graph, partitions: u16) -> Arc<[u16]> {
    let table = Table::new(graph, |_| true);
    let mut hosts_of = vec![0u64; graph.switches() as usize];
    (0..graph.hosts()).for_each(|host| hosts_of[table.attachment(NodeId(host)).0 as usize] += 1);
    let (mut before, mut others) = (0, 0);
    let partition_of_switch: Vec<u16> = hosts_of
        .iter()
        .map(|&hosts| {
            if hosts == 0 {
                others += 1;
                return (others - 1) % partitions;
            }
            before += hosts;
            ((before - 1) * u64::from(partitions) / u64::from(graph.hosts())) as u16
        })
        .collect();
    let of_host = |host| partition_of_switch[table.attachment(NodeId(host)).0 as usize];
    (0..graph.hosts()).map(of_host).chain(partition_of_switch.iter().copied()).collect()
}

impl Simulation {
    /// Makes this simulation one of several equal partitions, before anything has happened.
    pub fn become_partition(&mut self, partition: Partition) {
        let (endpoints, hosts) = (&self.traffic.endpoints, self.hosts.len());
        let steps = &self.steps.ranks;
        self.fabric.queue.retain(|id| match id.kind() {
            EventKind::Nic => partition.owns(NodeId(id.number())),
            EventKind::Submit => partition.owns(endpoints[id.number() as usize].host),
            EventKind::StepWake => partition.owns(steps[id.number() as usize].host),
            EventKind::Action => true,
            EventKind::Arrival
            | EventKind::LateArrival
            | EventKind::Departure
            | EventKind::PauseOrder
            | EventKind::ProgressCheck => {
                unreachable!("nothing has been sent to any of {hosts} hosts")
            }
        });
        self.fabric.become_partition(partition);
    }

    /// When the next event or timer comes; the end of time if none does.
    pub fn next_time(&mut self) -> Time {
        let event = self.fabric.queue.peek().map(|event| event.time);
        let timer = self.next_timer();
        event.into_iter().chain(timer).min().unwrap_or(Time(u64::MAX))
    }

    /// When the first action after a time is carried out. All partitions must have reached that time before.
    pub fn next_action_after(&self, time: Time) -> Option<Time> {
        self.schedule.next_after(time)
    }

    /// The ranks that have ended in this partition since the last call, each by its job.
    pub fn take_ended(&mut self) -> Vec<JobIndex> {
        self.cluster.as_mut().map_or_else(Vec::new, |cluster| std::mem::take(&mut cluster.ended))
    }

    /// The failures in this partition since the last call.
    pub fn take_failures(&mut self) -> Vec<(JobIndex, Failure)> {
        std::mem::take(&mut self.failures.local).into_iter().collect()
    }

    /// Takes over what another partition knows about its nodes. `before`: how many were open before anything had happened.
    /// The joined simulation can be read, but not run on.
    pub fn absorb(&mut self, mut other: Simulation, before: u64) {
        for index in 0..self.graph.nodes() {
            let node = NodeId(index as u32);
            if !other.fabric.owns(node) {
                continue;
            }
            match self.graph.switch_index(node) {
                Some(switch) => {
                    let switch = switch as usize;
                    std::mem::swap(&mut self.switches[switch], &mut other.switches[switch]);
                }
                None => std::mem::swap(&mut self.hosts[index], &mut other.hosts[index]),
            }
        }
        for (ours, theirs) in self.traffic.endpoints.iter_mut().zip(&mut other.traffic.endpoints) {
            if other.fabric.owns(ours.host) {
                std::mem::swap(ours, theirs);
            }
        }
        for (ours, theirs) in self.steps.ranks.iter_mut().zip(&mut other.steps.ranks) {
            if other.fabric.owns(ours.host) {
                std::mem::swap(ours, theirs);
            }
        }
        let fabric = &other.fabric;
        self.traffic.flows.absorb(&other.traffic.flows, |node| fabric.owns(node));
        self.traffic.jobs.absorb(std::mem::take(&mut other.traffic.jobs));
        self.programs.past_metrics.append(&mut other.programs.past_metrics);
        self.programs.max_memory = self.programs.max_memory.max(other.programs.max_memory);
        self.open = self.open.wrapping_add(other.open).wrapping_sub(before);
        // Every partition carries out all actions, so they count once.
        self.events += other.events - other.schedule.done;
        self.fabric.absorb(other.fabric);
    }
}
