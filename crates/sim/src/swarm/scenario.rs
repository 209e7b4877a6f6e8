//! Scenarios from seeds: small networks, a few jobs, and everything that may go wrong.

mod options;
mod shapes;
mod traffic;

pub use self::options::ORDERED;
use tributary_proto::contract::protocol;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

use crate::config::{
    AcceleratorSection, Bytes, CollectiveKind, Config, DataRate, Duration, FaultSection, HostCostSection, Hosts,
    JobSection, LinkSet, Links, LosslessSection, Network, NodeName, NoiseSection, ParameterServers, Placement, Routing,
    ServerWord, Share, StragglerSection, Switches, Timeouts,
};
use crate::engine::{Holds, Magnitudes};
use crate::net::Service;
use crate::rng::{Purpose, Rng};
use crate::topology::Rate;

/// How a scenario must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All faults end, so that every collective completes.
    AllHeals,
    /// A host or a switch dies: every rank ends, with its sum or with an error.
    SomeDie,
}

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The scenario as a file.
    pub config: Config,
    /// How it must end.
    pub ending: Ending,
}

/// The scenario of a seed. Each `Draw` has its own stream, so that a new one leaves the others as they were.
pub fn scenario(seed: u64) -> Scenario {
    let stream = |which| Draw(Rng::new(seed, Purpose::Scenario, which));
    let [mut draw, mut late, mut served] = [0, 4, 6].map(stream);
    let (mut network, hosts, switches) = draw.network(&mut stream(18));
    stream(21).add_nics(&mut network);
    let heal = Span::from_micros(draw.between(20, 20_000));
    let ending = if draw.0.chance(0.2) { Ending::SomeDie } else { Ending::AllHeals };
    let mut faults = draw.link_faults(heal);
    if ending == Ending::SomeDie {
        faults.push(draw.death(heal, hosts, switches));
    }
    let mut jobs: Vec<JobSection> = (0..draw.between(1, 3)).map(|_| draw.job(hosts, ending)).collect();
    jobs.iter_mut().for_each(|job| late.add_stragglers(job));
    jobs.iter_mut().for_each(|job| served.choose_servers(job, hosts));
    let mut traffic = if hosts >= 2 && draw.0.chance(0.3) { vec![draw.traffic(heal)] } else { Vec::new() };
    let mut more = stream(1);
    more.make_lossless(&mut network);
    if let Some(noise) = &mut network.noise {
        noise.holds = stream(3).of(&[Holds::Nic, Holds::Packet]);
    }
    if hosts >= 2 && more.0.chance(0.3) {
        traffic.push(more.flows(heal, ending));
    }
    let mut together = stream(13);
    if hosts >= 2 && ending == Ending::AllHeals && together.0.chance(0.15) {
        traffic.push(together.flows_together(hosts, heal));
    }
    stream(16).congestion(&mut network, &mut traffic);
    // Where PAUSE stops classes, nothing may be lost or held back otherwise.
    if network.lossless.is_none() || faults.is_empty() && accelerator(&network).is_none() {
        stream(17).classes(&mut network, &mut jobs, &mut traffic);
    }
    network.trim = network.lossless.is_none() && network.service == Some(Service::Strict) && stream(20).0.chance(0.5);
    network.cut_through = network.lossless.is_none() && stream(19).0.chance(0.1);
    let accelerator = accelerator(&network);
    choose_sums(&mut jobs, hosts, stream);
    let heals = ending == Ending::AllHeals;
    let trainings = if heals { stream(11).trainings(hosts, heal, &network) } else { Vec::new() };
    Scenario {
        config: Config {
            seed,
            end: END,
            steps: stream(15).steps(hosts, heals && network.queue.0 >= 30_000),
            network,
            hosts: stream(17).put_several_ranks_on_hosts(&mut jobs),
            jobs,
            trainings,
            traffic,
            transport: Default::default(),
            switches: Switches { options: stream(2).switches(), cores: None, accelerator },
            faults,
            report: Default::default(),
        },
        ending,
    }
}

/// What jobs sum, and how.
fn choose_sums(jobs: &mut [JobSection], hosts: u32, stream: impl Fn(u64) -> Draw) {
    let [mut collectives, mut chosen, mut codes, mut planned] = [5, 7, 14, 8].map(&stream);
    let [mut sparse, mut partial, mut custom] = [9, 10, 12].map(&stream);
    jobs.iter_mut().for_each(|job| collectives.choose_collective(job, hosts));
    jobs.iter_mut().for_each(|job| chosen.choose_options(job));
    jobs.iter_mut().for_each(|job| codes.choose_codes(job));
    jobs.iter_mut().for_each(|job| planned.choose_roots(job));
    jobs.iter_mut().for_each(|job| sparse.make_sparse(job));
    jobs.iter_mut().for_each(|job| partial.allow_partial(job));
    jobs.iter_mut().for_each(|job| custom.choose_custom_op(job));
}

/// Without a draw of its own, which would change all scenarios.
fn accelerator(network: &Network) -> Option<AcceleratorSection> {
    let latency = Some(Duration(Span::from_nanos(500)));
    let has_one = network.switch_latency.0 == Span::from_nanos(1);
    has_one.then_some(AcceleratorSection { latency, bus_bits: None, clock_mhz: 200 })
}

/// Even pools that are far too large for their queues get a packet or two through in each timeout. A window of one packet
/// that never grows needs minutes.
const END: Duration = Duration(Span::from_millis(600_000));

struct Draw(Rng);

impl Draw {
    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.bits() % (most - least + 1)
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.below(choices.len() as u32) as usize]
    }

    /// A probability that is often zero, and otherwise up to `most`, with small ones as likely as large ones.
    fn rarely(&mut self, most: f64) -> Share {
        if self.0.chance(0.5) { Share(0.0) } else { Share(most * 10f64.powf(-3.0 * self.0.unit())) }
    }

    /// A network, and how many hosts and switches it has.
    fn network(&mut self, direct: &mut Draw) -> (Network, u32, u32) {
        let mut network = Network {
            star: None,
            dumbbell: None,
            leaf_spine: None,
            clos: None,
            torus: None,
            hyperx: None,
            dragonfly: None,
            rails: None,
            graph: None,
            rate: DataRate(Rate(self.of(&[1, 10, 25, 100]) * 1_000_000_000)),
            delay: Duration(Span::from_nanos(self.of(&[0, 50, 300, 1000, 10_000]))),
            queue: Bytes(self.of(&[9_000, 30_000, 100_000, 1_000_000])),
            shared_buffer: None,
            shared_alpha: None,
            service: None,
            trim: false,
            cut_through: false,
            mark_above: self.0.chance(0.5).then_some(Bytes(20_000)),
            mark_all_above: None,
            core: Default::default(),
            switch_memory: None,
            switch_latency: Duration(Span::from_nanos(self.of(&[0, 1, 300, 2000]))),
            routing: self.of(&[
                Routing::Ecmp,
                Routing::RoundRobin,
                Routing::Random,
                Routing::Flowlet,
                Routing::LeastQueued,
                Routing::DefaultUnlessHalfFull,
            ]),
            background_routing: None,
            flowlet_gap: Duration(Span::from_micros(self.of(&[1, 50]))),
            overhead: Bytes(66),
            shortest: Bytes(84),
            nic_queue: Bytes(self.of(&[1, 2000, 16_000, 1_000_000])),
            lossless: None,
            noise: None,
        };
        if self.0.chance(0.2) {
            let delay = Duration(Span::from_micros(1));
            network.noise = Some(NoiseSection { probability: self.rarely(0.1), delay, holds: Holds::Nic });
        }
        if self.0.chance(0.3) {
            network.core.rate = Some(DataRate(Rate(self.of(&[1, 10, 40]) * 1_000_000_000)));
        }
        // Where queues are long enough, marks rise with their length. Drawing this would change all scenarios.
        let has_ramp = network.mark_above.is_some() && network.queue == Bytes(100_000);
        network.mark_all_above = has_ramp.then_some(Bytes(60_000));
        let drawn = self.shape(&mut network);
        let (hosts, switches) = direct.direct_shape(&mut network).unwrap_or(drawn);
        (network, hosts, switches)
    }

    fn job(&mut self, hosts: u32, ending: Ending) -> JobSection {
        let trees = self.between(1, 4) as u16;
        let elements_per_packet = self.of(&[1, 31, 64, 256, 360, 2048]);
        let packets = self.between(0, 600);
        let elements = packets * u64::from(elements_per_packet) + self.between(0, 3) * 17;
        let protocol = self.of(protocols::ALL);
        let (options, dtype, op) = self.arithmetic(protocol);
        JobSection {
            name: None,
            count: 1,
            priority: 0,
            protocol,
            options,
            hosts: if self.0.chance(0.5) { Hosts::All } else { Hosts::List(self.some_hosts(hosts)) },
            placement: self.of(&[Placement::Random, Placement::Packed]),
            ranks_per_host: 1,
            collective: CollectiveKind::Allreduce,
            root: None,
            tensor: Bytes(elements.min(200_000) * dtype.size() as u64),
            density: None,
            indices: None,
            operator: None,
            data: Default::default(),
            magnitudes: Magnitudes::Random,
            dtype,
            op,
            iterations: self.between(1, 4) as u32,
            start: Duration(Span::from_nanos(self.of(&[0, 1, 50_000]))),
            compute: Duration(Span::from_nanos(self.of(&[0, 7, 100_000]))),
            elements_per_packet,
            slots: self.0.chance(0.7).then(|| trees * self.between(1, 64) as u16),
            trees: (protocol.placement == protocol::Placement::Trees).then_some(trees),
            roots: None,
            root_choice: Default::default(),
            servers: None,
            shares: None,
            stragglers: None,
            rto: Timeouts::default(),
            timeout: Some(if ending == Ending::SomeDie { Duration(Span::from_millis(200)) } else { END }),
        }
    }

    /// Late ranks, in some jobs.
    fn add_stragglers(&mut self, job: &mut JobSection) {
        if self.0.chance(0.15) {
            let late = Duration(Span::from_nanos(self.of(&[1, 3000, 200_000])));
            job.stragglers = Some(StragglerSection { ranks: Hosts::Share(Share(0.3)), late });
        }
    }

    /// Several ranks on each host of some jobs; the memory in which they sum.
    fn put_several_ranks_on_hosts(&mut self, jobs: &mut [JobSection]) -> Option<HostCostSection> {
        let memory = Some(DataRate(Rate(self.of(&[5, 40, 200]) * 1_000_000_000)));
        for job in jobs.iter_mut() {
            let has_option = |name| job.options.contains_key(name);
            let may = job.density.is_none() && job.operator.is_none();
            if self.0.chance(0.15) && may && !has_option("partial") && !has_option("reproducible") {
                job.ranks_per_host = self.of(&[2, 3, 8]);
            }
        }
        let has_several = jobs.iter().any(|job| job.ranks_per_host > 1);
        has_several.then(|| HostCostSection { memory, ..HostCostSection::default() })
    }

    /// Hosts that sum instead of switches: the ranks' own, or a few others.
    fn choose_servers(&mut self, job: &mut JobSection, hosts: u32) {
        if job.protocol.server.is_none() {
            return;
        }
        job.servers = Some(ParameterServers::Word(ServerWord::Colocated));
        if hosts >= 2 && self.0.chance(0.5) {
            let mut ranks: Vec<u32> = (0..hosts).collect();
            self.0.shuffle(&mut ranks);
            let servers = ranks.split_off(self.between(u64::from(hosts / 2), u64::from(hosts) - 1) as usize);
            job.hosts = Hosts::List(ranks);
            job.servers = Some(ParameterServers::Dedicated(Hosts::List(servers)));
        }
        job.slots = None;
        // Each host sends to all others at once: in queues of a packet or two, long tensors would never finish.
        job.elements_per_packet = job.elements_per_packet.min(360);
        job.tensor = job.tensor.min(Bytes(40_000));
    }

    /// Another collective than allreduce, for half of all jobs.
    fn choose_collective(&mut self, job: &mut JobSection, hosts: u32) {
        let world_size = match &job.hosts {
            Hosts::List(list) => list.len() as u64,
            _ => u64::from(hosts),
        };
        let root = Some(self.between(0, world_size - 1) as u16);
        (job.collective, job.root) = match self.between(0, 9) {
            0..=1 => (CollectiveKind::Reduce, root),
            2..=3 => (CollectiveKind::Broadcast, root),
            4 => (CollectiveKind::Barrier, None),
            _ => (CollectiveKind::Allreduce, None),
        };
        if job.collective == CollectiveKind::Barrier {
            job.tensor = Bytes(0);
        }
    }

    fn some_hosts(&mut self, hosts: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..hosts).collect();
        self.0.shuffle(&mut all);
        all.truncate(self.between(1, u64::from(hosts)) as usize);
        all
    }

    /// PAUSE, where no cycle of queues can wait for itself. The queues hold the packets that arrive after an order.
    fn make_lossless(&mut self, network: &mut Network) {
        if network.graph.is_none() && !shapes::is_direct(network) && self.0.chance(0.25) {
            network.queue = Bytes(2_000_000);
            let xoff = self.of(&[10_000, 100_000, 1_000_000]);
            network.lossless = Some(LosslessSection { xoff: Some(Bytes(xoff)), ..LosslessSection::default() });
        }
    }

    /// A few faults of links, which all end when the scenario heals.
    fn link_faults(&mut self, heal: Span) -> Vec<FaultSection> {
        let count = self.between(0, 3);
        (0..count)
            .map(|_| {
                let at = self.between(0, heal.0 / 2);
                let until = self.between(at + 1, heal.0);
                let flap = self.0.chance(0.2);
                FaultSection {
                    rate: None,
                    at: Duration(Span(at)),
                    until: Some(Duration(Span(until))),
                    links: Some(Links::Set(self.of(&[LinkSet::All, LinkSet::Hosts, LinkSet::Core]))),
                    loss: self.rarely(0.3),
                    corruption: self.rarely(0.1),
                    duplication: self.rarely(0.3),
                    reordering: self.rarely(0.3),
                    delay: Duration(Span::from_nanos(self.of(&[100, 5_000, 100_000, 3_000_000]))),
                    down: self.0.chance(0.2),
                    flap: flap.then(|| Duration(Span((until - at) / self.between(2, 20) + 1))),
                    dead: None,
                }
            })
            .collect()
    }

    fn death(&mut self, heal: Span, hosts: u32, switches: u32) -> FaultSection {
        let at = self.between(0, heal.0);
        let switch = self.0.chance(0.5);
        let dead = if switch { NodeName::Switch(self.0.below(switches)) } else { NodeName::Host(self.0.below(hosts)) };
        let until = (switch && self.0.chance(0.5)).then(|| Duration(Span(at + self.between(1, heal.0))));
        FaultSection { at: Duration(Span(at)), until, dead: Some(dead), ..FaultSection::default() }
    }
}
