//! What a job is charged covers what its machines really take.

use tributary_control::JobShape;
use tributary_proto::contract::config::{Below, JobConfig, Parent, SwitchConfig};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::values::Values;
use tributary_proto::protocols;

/// Bytes that the machines of all shards hold.
fn used(shape: &JobShape, below: &[Below], parent: Option<Parent>) -> u64 {
    let JobShape { protocol, slots, elements_per_packet, world_size, shards, .. } = *shape;
    let job = JobConfig {
        job: JobId(1),
        key: JobKey(1),
        protocol: protocol.code,
        world_size,
        slots,
        elements_per_packet,
        trees: shards,
        levels: shape.neighbours > 0,
        options: shape.options.clone(),
    };
    let machine = |shard| {
        let config = SwitchConfig {
            job: job.clone(),
            tree: TreeId(shard),
            members: (0..below.len() as u16).map(PortId).collect(),
            below: below.to_vec(),
            group: GroupId(1),
            parent,
        };
        protocol.switch(Values::Elements, &config).map_or(0, |machine| machine.memory_bytes() as u64)
    };
    (0..shards).map(machine).sum()
}

#[test]
fn no_job_holds_more_than_it_is_charged_nor_much_less() {
    for protocol in protocols::ALL {
        for (slots, shards) in [(8, 1), (8, 8), (64, 2), (512, 1), (1_024, 4)] {
            for elements_per_packet in [1, 64, 360, 2_232] {
                for world_size in [1, 2, 8, 64, 65, 1_023] {
                    let (children, neighbours) = (world_size, 0);
                    let shape = JobShape {
                        protocol,
                        slots,
                        elements_per_packet,
                        world_size,
                        children,
                        neighbours,
                        shards,
                        trees: 1,
                        servers: 0,
                        options: protocol.options.defaults(),
                    };
                    let (used, charged) = (used(&shape, &Below::workers(world_size), None), shape.bytes());
                    assert!(used <= charged, "{shape:?}: {used} of {charged}");
                    if protocol.placement == Placement::Trees
                        && elements_per_packet >= 360
                        && slots >= 64
                        && world_size <= 64
                    {
                        assert!(charged <= used + used / 4, "{shape:?}: {used} of {charged}");
                    }
                }
            }
        }
    }
}

#[test]
fn children_and_parent_are_charged_too() {
    let parent = Some(Parent { port: PortId(2_000), child: ChildId(0) });
    for (world_size, racks) in [(4, 2), (16, 2), (1_023, 31), (1_000, 1_000)] {
        let rack = |rack| (0..world_size).filter(|rank| rank % racks == rack).map(Rank).collect();
        let below: Vec<Below> = (0..racks).map(|number| Below::Switch(rack(number))).collect();
        let (protocol, slots, elements_per_packet) = (protocols::named("switchml").unwrap(), 64, 360);
        let (children, neighbours) = (racks, racks + 1);
        let shape = JobShape {
            protocol,
            slots,
            elements_per_packet,
            world_size,
            children,
            neighbours,
            shards: 2,
            trees: 1,
            servers: 0,
            options: protocol.options.defaults(),
        };
        let (used, charged) = (used(&shape, &below, parent), shape.bytes());
        assert!(used <= charged, "{shape:?}: {used} of {charged}");
    }
}
