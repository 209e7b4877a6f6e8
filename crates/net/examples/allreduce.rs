//! One job for profiles, over the loopback interface or over a star of namespaces (with root):
//! `cargo run --release -p tributary-net --example allreduce -- links=10`.
//!
//! Shards and workers are threads of this process, so that one `perf record` sees all of them. Prints goodput (bits of
//! tensor over the median time), latency percentiles, packets per run each way, and CPU seconds by thread. The program's
//! `bench` is the measure of the product; this is the magnifying glass.

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use support::LocalSwitch;
use tributary_net::group::{ConnectOptions, Group, GroupStats};
use tributary_net::rendezvous::Rendezvous;
use tributary_net::shard::Shard;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;
use tributary_testbed::{Faults, Shaping, Star, StarOptions};

const HELP: &str = "options: world_size=4 shards=2 elements=6250000 iters=20 k=0 slots=0 protocol=switchml mtu=1500 \
                    links=loopback loss=0\n\
                    k=0: as many as the path holds; slots=0: from the bandwidth-delay product;\n\
                    links: loopback, unshaped, or Gbit/s of each link of a star of network namespaces;\n\
                    loss: percent of packets that each of these links loses each way";

fn main() -> ExitCode {
    match options() {
        Ok(options) => {
            run(&options);
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            eprintln!("{wrong}\n{HELP}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    world_size: u16,
    shards: u16,
    elements: usize,
    iters: usize,
    k: u16,
    slots: u16,
    protocol: &'static Protocol,
    mtu: u16,
    /// Of a star; the loopback interface without.
    links: Option<Shaping>,
    loss_percent: f64,
}

fn options() -> Result<Options, String> {
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    for argument in std::env::args().skip(1) {
        let (name, value) = argument.split_once('=').ok_or(format!("{argument} is not of the form name=value"))?;
        given.insert(name.to_string(), value.to_string());
    }
    let mut number = |name: &str, default: usize| {
        given
            .remove(name)
            .map_or(Ok(default), |text| text.parse().map_err(|_| format!("{name}={text} is not a number")))
    };
    let (world_size, shards) = (number("world_size", 4)? as u16, number("shards", 2)? as u16);
    let (elements, iters) = (number("elements", 6_250_000)?, number("iters", 20)?);
    let (k, slots) = (number("k", 0)? as u16, number("slots", 0)? as u16);
    let mtu = number("mtu", 1500)? as u16;
    let loss = given.remove("loss").unwrap_or("0".to_string());
    let loss_percent = loss.parse().map_err(|_| format!("loss={loss} is not a number"))?;
    let links = match given.remove("links").as_deref() {
        None | Some("loopback") => None,
        Some("unshaped") => Some(Shaping::Unshaped),
        Some(gbps) => {
            let gbps = gbps.parse().map_err(|_| format!("links={gbps} is not a rate"))?;
            Some(Shaping::gbps(gbps).map_err(|error| error.to_string())?)
        }
    };
    let protocol = given.remove("protocol").unwrap_or("switchml".to_string());
    let protocol = protocols::named(&protocol).ok_or(format!("{protocol} is not a protocol"))?;
    given.keys().next().map_or(Ok(()), |name| Err(format!("there is no option {name}")))?;
    Ok(Options { world_size, shards, elements, iters, k, slots, protocol, mtu, links, loss_percent })
}

struct Measured {
    seconds: Vec<f64>,
    stats: GroupStats,
}

fn run(options: &Options) {
    let star = options.links.map(|shaping| {
        let faults = Faults::loss(options.loss_percent);
        let options =
            StarOptions { mtu: options.mtu, faults, ..StarOptions::new(usize::from(options.world_size), shaping) };
        Star::build(options).expect("a star")
    });
    let switch = match &star {
        None => LocalSwitch::start(options.shards),
        Some(star) => {
            let start = || LocalSwitch::start_at(star.switch_addr(), options.shards);
            star.switch_box().inside(start).expect("the switch box")
        }
    };
    let barrier = Barrier::new(usize::from(options.world_size));
    let (cpu, start) = (Mutex::new(BTreeMap::new()), Instant::now());
    let measured: Vec<Measured> = thread::scope(|scope| {
        let rank = |rank: u16| {
            let (switch, star, barrier, cpu) = (&switch, &star, &barrier, &cpu);
            let work = move || worker(switch, options, rank, barrier, cpu);
            let inside = move || match star {
                None => work(),
                Some(star) => star.host(usize::from(rank)).inside(work).expect("a host's namespace"),
            };
            thread::Builder::new().name(format!("rank-{rank}")).spawn_scoped(scope, inside).expect("a thread")
        };
        let threads: Vec<_> = (0..options.world_size).map(rank).collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank ends well")).collect()
    });
    println!("{:.2} s in all", start.elapsed().as_secs_f64());
    report(options, &measured, &cpu.lock().expect("no panics"));
    for shard in &switch.shards {
        println!("shard: {:?}", shard.report().wait().expect("the shard runs").socket);
    }
}

fn worker(
    switch: &Arc<LocalSwitch>,
    options: &Options,
    rank: u16,
    barrier: &Barrier,
    cpu: &Mutex<BTreeMap<String, f64>>,
) -> Measured {
    let connect = ConnectOptions {
        elements_per_packet: (options.k > 0).then_some(options.k),
        slots: (options.slots > 0).then_some(options.slots),
        trees: None,
        protocol: options.protocol,
        options: options.protocol.options.defaults(),
        ..switch.options("bench", rank, options.world_size)
    };
    let rendezvous: Arc<dyn Rendezvous> = switch.clone();
    let group = Group::connect_through(&connect, rendezvous).expect("the rank joins");
    if rank == 0 {
        let info = group.info();
        println!("k {} slots {} round trip {:?}", info.elements_per_packet, info.slots, info.round_trip);
    }
    let input: Vec<f32> = (0..options.elements).map(|i| (i % 1009) as f32 - 504.0).collect();
    barrier.wait();
    let before = cpu_by_thread();
    let measured = measure(&group, options, &input, barrier);
    if rank == 0 {
        *cpu.lock().expect("no panics") = cpu_by_thread()
            .into_iter()
            .map(|(name, s)| (name.clone(), s - before.get(&name).unwrap_or(&0.0)))
            .collect();
    }
    // Threads end with their ranks; all are counted before.
    barrier.wait();
    measured
}

fn measure(group: &Group, options: &Options, input: &[f32], barrier: &Barrier) -> Measured {
    let mut output = vec![0.0; options.elements];
    let timeout = Duration::from_secs(60);
    let mut seconds = Vec::with_capacity(options.iters);
    for round in 0..options.iters + 2 {
        barrier.wait();
        let start = Instant::now();
        group.allreduce(input, &mut output, ReduceOp::Sum, timeout).expect("the collective ends well");
        if round >= 2 {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    seconds.sort_by(f64::total_cmp);
    Measured { seconds, stats: group.stats().expect("the driver runs") }
}

fn report(options: &Options, measured: &[Measured], cpu: &BTreeMap<String, f64>) {
    let at = |measured: &Measured, share: f64| measured.seconds[(measured.seconds.len() as f64 * share) as usize];
    let bytes = options.elements as f64 * 4.0;
    for (rank, one) in measured.iter().enumerate() {
        let (socket, host) = (&one.stats.socket, &one.stats.host);
        println!(
            "rank {rank}: p10 {:.1} us, median {:.1} us, p90 {:.1} us, {:.2} Gbit/s; packets per run: {:.1} out, {:.1} in; \
             {} sent, {} again, {} overflows",
            at(one, 0.1) * 1e6,
            at(one, 0.5) * 1e6,
            at(one, 0.9) * 1e6,
            8e-9 * bytes / at(one, 0.5),
            socket.tx_packets as f64 / socket.tx_runs as f64,
            socket.rx_packets as f64 / socket.rx_runs as f64,
            host.packets_sent,
            host.retransmissions,
            socket.rx_overflows,
        );
    }
    let gigabytes = bytes * (options.iters + 2) as f64 * 1e-9;
    for (thread, seconds) in cpu {
        println!("{thread:>16}: {seconds:.2} s of CPU, {:.3} s per GB", seconds / gigabytes);
    }
}

/// User and system seconds of each thread, by its name; threads of one name are added up.
fn cpu_by_thread() -> BTreeMap<String, f64> {
    let mut seconds = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')) else { continue };
        let ticks = |field: usize| rest.split_whitespace().nth(field).and_then(|text| text.parse::<f64>().ok());
        // Fields 14 and 15 of proc_pid_stat(5), of which the first two are before the bracket's end; 100 ticks a second.
        let total = ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0);
        *seconds.entry(name.to_string()).or_insert(0.0) += total / 100.0;
    }
    seconds
}
