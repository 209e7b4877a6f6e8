//! What a job is charged covers what its machines really take.

use tributary_control::JobShape;
use tributary_proto::config::{Below, JobConfig, SwitchConfig};
use tributary_proto::ids::{GroupId, JobId, JobKey, PortId, ShardId};
use tributary_proto::registry::Protocol;
use tributary_proto::values::Elements;

/// Bytes that the machines of all shards hold.
fn held(shape: JobShape) -> u64 {
    let JobShape { protocol, slots, elements_per_packet, world, shards } = shape;
    let job = JobConfig { job: JobId(1), key: JobKey(1), world, slots, elements_per_packet, shards };
    let machine = |shard| {
        let config = SwitchConfig {
            job: job.clone(),
            shard: ShardId(shard),
            members: (0..world).map(PortId).collect(),
            below: Below::workers(world),
            group: GroupId(1),
            parent: None,
        };
        protocol.switch::<Elements>(&config).map_or(0, |machine| machine.memory_bytes() as u64)
    };
    (0..shards).map(machine).sum()
}

#[test]
fn no_job_holds_more_than_it_is_charged_nor_much_less() {
    for protocol in Protocol::ALL {
        for (slots, shards) in [(8, 1), (8, 8), (64, 2), (512, 1), (1_024, 4)] {
            for elements_per_packet in [1, 64, 360, 2_232] {
                for world in [1, 2, 8, 64, 65, 1_023] {
                    let shape = JobShape { protocol, slots, elements_per_packet, world, shards };
                    let (held, charged) = (held(shape), shape.bytes());
                    assert!(held <= charged, "{shape:?}: {held} of {charged}");
                    if protocol.aggregates_in_switch() && elements_per_packet >= 360 && slots >= 64 && world <= 64 {
                        assert!(charged <= held + held / 4, "{shape:?}: {held} of {charged}");
                    }
                }
            }
        }
    }
}
