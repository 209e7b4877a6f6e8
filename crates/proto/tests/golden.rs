//! The bytes of what all protocols have in common; each protocol's own are among its tests.

mod harness;

use harness::golden::{JOB, KEY, check};
use tributary_proto::contract::wire::{Common, kind};

#[test]
fn the_common_header() {
    let mut packets = Vec::new();
    for (what, kind) in [("PING", kind::PING), ("PONG", kind::PONG)] {
        let mut bytes = vec![0; 16];
        Common { protocol: 1, kind, job: JOB, key: KEY }.emit(&mut bytes);
        packets.push((what, bytes));
    }
    check("common", &packets);
}
