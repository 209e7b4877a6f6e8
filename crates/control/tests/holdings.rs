//! Jobs over planned trees hold memory of the switches of their trees, and of no others.

use std::collections::BTreeMap;

use crate::harness::{MIB, TestSwitch, request};
use tributary_control::admission::{TreeCharge, is_charged_by_tree};
use tributary_control::fabric::{FabricFile, FabricLayout};
use tributary_control::trees::{Tree, TreePlanner};
use tributary_control::{Client, JobShape, JoinRequest, Limits};
use tributary_proto::contract::config::{JobConfig, Parent, SwitchConfig};
use tributary_proto::contract::ids::{GroupId, JobId, JobKey, NodeId, PortId, TreeId};
use tributary_proto::contract::values::Values;
use tributary_proto::protocols;

fn controller(memory_bytes: u64) -> TestSwitch {
    TestSwitch::with(Limits { planned_trees: Some(2), ..Limits::new(memory_bytes, 1) })
}

/// A job of one rank that asks for 512 slots: about 1.4 MiB in fixed point.
fn wish(incarnation: u64) -> JoinRequest {
    JoinRequest { slots: Some(512), client: Client::at([10, 0, 0, 1].into()), ..request(0, 1, incarnation) }
}

fn start(switch: &mut TestSwitch, job: &str, incarnation: u64) -> JobId {
    let ticket = switch.join(job, wish(incarnation));
    switch.answer(ticket).unwrap().config.job
}

fn at(switch: u32, bytes: u64) -> TreeCharge {
    TreeCharge { slots: 64, bytes: BTreeMap::from([(NodeId(switch), bytes)]) }
}

#[test]
fn jobs_over_different_switches_do_not_crowd_each_other() {
    let mut switch = controller(2 * MIB);
    for number in 0..8 {
        // One switch alone would have refused the second.
        let id = start(&mut switch, &format!("job{number}"), u64::from(number));
        switch.control.trees_planned(id, at(number, MIB));
        assert_eq!(switch.control.memory_used(), MIB, "the fullest switch");
        assert_eq!(switch.control.jobs().last().map(|job| (job.slots, job.memory_bytes)), Some((64, MIB)));
    }
    let ninth = start(&mut switch, "ninth", 9);
    switch.control.trees_planned(ninth, at(3, MIB / 2));
    assert_eq!(switch.control.memory_used(), 3 * MIB / 2);
}

#[test]
fn jobs_that_divide_the_memory_divide_what_the_fullest_switch_has_left() {
    let dividing = protocols::ALL.iter().copied().find(|protocol| protocol.resizes).unwrap();
    assert!(!is_charged_by_tree(dividing));
    let divide = |used: &[(u32, u64)]| {
        let mut switch = controller(2 * MIB);
        for (number, &(node, bytes)) in used.iter().enumerate() {
            let id = start(&mut switch, &format!("job{number}"), number as u64);
            switch.control.trees_planned(id, at(node, bytes));
        }
        let options = dividing.options.defaults();
        let ticket =
            switch.join("divides", JoinRequest { protocol: dividing, options, slots: Some(4_096), ..wish(99) });
        switch.answer(ticket).map(|plan| plan.memory_bytes)
    };
    let alone = divide(&[]).unwrap();
    assert!(alone <= 2 * MIB && alone > 15 * MIB / 8, "{alone}");
    let beside = divide(&[(0, MIB), (1, MIB), (2, MIB / 2)]).unwrap();
    assert!(beside <= MIB && beside > 7 * MIB / 8, "{beside}");
    assert!(divide(&[(0, MIB), (0, MIB)]).is_err(), "one switch is full");
}

#[test]
fn what_a_job_used_is_free_when_it_ends() {
    let mut switch = controller(MIB);
    let ticket = switch.join("first", wish(1));
    let plan = switch.answer(ticket).unwrap();
    switch.control.trees_planned(plan.config.job, at(0, MIB));
    switch.leave(&plan, 0);
    assert_eq!(switch.control.memory_used(), 0);
    // A charge that comes too late belongs to no job.
    switch.control.trees_planned(plan.config.job, at(0, MIB));
    assert_eq!(switch.control.memory_used(), 0);
}

fn fabric() -> (FabricLayout, TreePlanner) {
    let text = "secret = \"0123456789abcdef\"\n[leaf_spine]\nleaves = 3\nspines = 2\nhosts_per_leaf = 4\n";
    let fabric = FabricFile::parse(text).unwrap();
    let planner = fabric.planner(&[]);
    (fabric, planner)
}

/// What the machines of a job's trees at one switch really take.
fn taken(shape: &JobShape, trees: &[Tree], switch: NodeId) -> u64 {
    let job = JobConfig {
        job: JobId(1),
        key: JobKey(1),
        protocol: shape.protocol.code,
        world_size: shape.world_size,
        slots: shape.slots,
        elements_per_packet: shape.elements_per_packet,
        trees: trees.len() as u16,
        levels: trees.iter().any(Tree::has_levels),
        options: shape.options.clone(),
    };
    let machine = |(number, tree): (usize, &Tree)| {
        let switch = tree.switch(switch)?;
        let config = SwitchConfig {
            job: job.clone(),
            tree: TreeId(number as u16),
            members: (0..switch.children.len() as u16).map(PortId).collect(),
            below: switch.children.iter().map(|child| child.below.clone()).collect(),
            group: GroupId(1),
            parent: switch.parent.map(|parent| Parent { port: PortId(99), child: parent.child }),
        };
        Some(shape.protocol.switch(Values::Elements, &config)?.memory_bytes() as u64)
    };
    trees.iter().enumerate().filter_map(machine).sum()
}

#[test]
fn every_switch_is_charged_at_least_what_its_own_machines_take_and_others_nothing() {
    let (fabric, network) = fabric();
    let spines = ["spine0", "spine1"].map(|name| fabric.node_named(name).unwrap());
    for protocol in protocols::ALL.iter().copied().filter(|protocol| is_charged_by_tree(protocol)) {
        // A rack alone; two racks; three, one rank in one of them.
        for hosts in [&[0, 1, 2][..], &[0, 1, 4, 5], &[0, 4, 5, 6, 7, 8]] {
            let hosts: Vec<NodeId> = hosts.iter().copied().map(NodeId).collect();
            for roots in [&spines[..1], &spines] {
                let mut trees: Vec<Tree> = roots.iter().map(|&root| network.tree(&hosts, root).unwrap()).collect();
                trees.dedup();
                let shape = JobShape {
                    protocol,
                    slots: 256,
                    elements_per_packet: 352,
                    world_size: hosts.len() as u16,
                    children: hosts.len() as u16,
                    neighbours: 0,
                    shards: 1,
                    trees: 1,
                    servers: 0,
                    options: protocol.options.defaults(),
                };
                let charge = shape.tree_charge(&trees);
                for switch in fabric.switches() {
                    let (taken, charged) = (taken(&shape, &trees, switch), charge.bytes.get(&switch).copied());
                    let is_in_a_tree = trees.iter().any(|tree| tree.switch(switch).is_some());
                    assert_eq!(charged.is_some(), is_in_a_tree, "{protocol} at {}", fabric.name(switch));
                    let charged = charged.unwrap_or(0);
                    assert!(taken <= charged, "{protocol} at {}: {taken} of {charged}", fabric.name(switch));
                    assert!(
                        charged <= taken + taken / 3,
                        "{protocol} at {}: {taken} of {charged}",
                        fabric.name(switch)
                    );
                }
            }
        }
    }
}
