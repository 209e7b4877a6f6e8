//! Workload W: 32 leaves, 32 spines, 32 hosts a leaf, 100 Gbit/s, 1 us a link; every host sends 1,024 packets of
//! 1,024 bytes to one host of a random permutation, over a random spine for each packet. Prints packet-hops per CPU
//! second. `cargo run --release --example workload_w [RUNS]`

mod process;

use std::time::Instant;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::Balancing;
use tributary_sim::engine::{Settings, Simulation};
use tributary_sim::topology::{LinkSpec, MarkBytes, Rate, leaf_spine};

use process::{cpu_seconds, resident_kib};

fn main() {
    let runs: u64 = std::env::args().nth(1).and_then(|runs| runs.parse().ok()).unwrap_or(5);
    let spec = LinkSpec {
        rate: Rate(100_000_000_000),
        delay: Span::from_micros(1),
        queue_bytes: 1 << 20,
        mark_bytes: Some(MarkBytes::threshold(100_000)),
    };
    for _ in 0..runs {
        let start = Instant::now();
        let graph = leaf_spine(32, 32, 32, spec, spec, Span::ZERO);
        let settings = Settings { balancing: [Balancing::Random; 2], ..Settings::default() };
        let hosts: Vec<NodeId> = (0..graph.hosts()).map(NodeId).collect();
        let mut simulation = Simulation::new(graph, settings.clone());
        let set_up = start.elapsed();
        let cpu = cpu_seconds();
        simulation.send_permutation(&hosts, settings.seed, 1024 * 1024, 1024);
        simulation.run(Time(u64::MAX));
        let cpu = cpu_seconds() - cpu;
        let fabric = &simulation.fabric;
        println!(
            "{:.2} M hops/s   {} hops in {:.3} CPU s   set-up {:.1} ms   simulated {:.1} us   {} KiB of links   {} KiB resident   trace {:016x}",
            fabric.hops() as f64 / cpu / 1e6,
            fabric.hops(),
            cpu,
            set_up.as_secs_f64() * 1e3,
            fabric.now.as_secs_f64() * 1e6,
            fabric.memory_bytes() / 1024,
            resident_kib(),
            fabric.trace_hash(),
        );
    }
}
