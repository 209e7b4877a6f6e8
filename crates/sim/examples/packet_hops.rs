//! An allreduce of 4 MiB over 1,024 hosts (32 leaves, 32 spines) with the protocols' own machines. Prints packet-hops
//! per CPU second. `cargo run --release --example packet_hops [PROTOCOL] [HOSTS] [TREES] [SLOTS]`

mod process;

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::engine::{JobPlan, Settings, Simulation};
use tributary_sim::topology::leaf_spine;
use tributary_sim::topology::{LinkSpec, MarkBytes, Rate};

use process::{cpu_seconds, resident_kib};

fn main() {
    let mut args = std::env::args().skip(1);
    let protocol =
        args.next().and_then(|name| protocols::named(&name)).unwrap_or(protocols::named("switchml").unwrap());
    let mut number = |default: u32| args.next().and_then(|number| number.parse().ok()).unwrap_or(default);
    let (hosts, trees, slots) = (number(1024), number(1), number(512));
    let spec = LinkSpec {
        rate: Rate(100_000_000_000),
        delay: Span::from_micros(1),
        queue_bytes: 1 << 20,
        mark_bytes: Some(MarkBytes::threshold(100_000)),
    };
    let mut sim = Simulation::new(leaf_spine(32, 32, 32, spec, spec, Span::from_nanos(300)), Settings::default());
    let installed = sim.install(JobPlan {
        sparse: None,
        custom_op: None,
        magnitudes: tributary_sim::engine::Magnitudes::Random,
        name: "allreduce".into(),
        protocol,
        options: protocol.options.defaults(),
        members: (0..hosts).map(|host| NodeId(host * 1024 / hosts)).collect(),
        spec: Spec::allreduce(1 << 20, DType::F32, ReduceOp::Sum),
        operations: Default::default(),
        iterations: 1,
        start: Time::ZERO,
        compute: Span::ZERO,
        elements_per_packet: 256,
        slots: slots as u16,
        roots: (32..32 + trees).collect(),
        timers: TimerConfig::default(),
        timeout: None,
    });
    let job = installed.expect("a job that fits");
    let cpu = cpu_seconds();
    sim.run(Time(u64::MAX));
    let cpu = cpu_seconds() - cpu;
    let job = sim.traffic.jobs.get(job);
    let end = job.iterations[0].end.map_or(f64::NAN, Time::as_secs_f64);
    println!(
        "{:.2} M hops/s   {:.2} M events/s   {} hops in {:.3} CPU s   {} KiB resident   complete: {}   {:.1} us   {:.1} Gbit/s",
        sim.fabric.hops() as f64 / cpu / 1e6,
        sim.events() as f64 / cpu / 1e6,
        sim.fabric.hops(),
        cpu,
        resident_kib(),
        job.is_complete() && job.errors.is_empty(),
        end * 1e6,
        f64::from(1 << 25) / end / 1e9,
    );
}
