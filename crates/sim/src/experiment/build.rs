//! Builds the simulation that a file describes.

use tributary_control::config::{of_switches, texts};
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::ids::{NodeId, Rank};
use tributary_proto::contract::operator::Operator;
use tributary_proto::contract::options::{Defaults, Options};
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_proto::switch_options::SwitchOptions;
use tributary_proto::tensors::FingerprintTensor;

use super::faults;
use super::hosts::Allocation;
use super::own;
use super::servers::{Servers, servers};
use super::traffic::{add_traffic, transport};
use super::training;
use crate::config::{
    CollectiveKind, Config, ConfigError, Duration, Hosts, JobSection, RootChoice, Share, StragglerSection, SwitchName,
    invalid,
};
use crate::driver::{JobPlan, Noise, Own, Settings, SharedSettings, Simulation};
use crate::rng::{Purpose, Rng};
use crate::topology::Graph;

/// The network of a file with its jobs, traffic and faults, at time zero.
pub fn build(config: &Config) -> Result<Simulation, ConfigError> {
    let graph = config.network.build()?;
    let longest = graph.edges().iter().map(|edge| edge.a_to_b.delay.max(edge.b_to_a.delay)).max().unwrap_or_default();
    if longest > config.end.0 {
        let longest = Duration(longest);
        return Err(invalid(format!("a link's delay of {longest} is longer than the whole run: end = {}", config.end)));
    }
    let settings = Settings {
        seed: config.seed,
        balancing: config.network.balancing(),
        nic_bytes: config.network.nic_queue.0,
        framing: config.network.framing()?,
        lossless: config.network.lossless(&graph)?,
        transport: transport(config)?,
        shared: shared(config)?,
    };
    let mut hosts = Allocation::new(graph.hosts(), config.seed);
    let mut simulation = Simulation::new(graph, settings);
    if let Some(noise) = &config.network.noise {
        for host in 0..simulation.graph().hosts() {
            let rng = Rng::new(config.seed, Purpose::HostNoise, u64::from(host));
            let noise = Noise::new(noise.probability.0, noise.delay.0, noise.holds, rng);
            simulation.set_noise(NodeId(host), Some(noise));
        }
    }
    for (index, section) in config.faults.iter().enumerate() {
        faults::plan(&mut simulation, section).map_err(|error| invalid(format!("fault {index}: {error}")))?;
    }
    for (index, section) in config.jobs.iter().enumerate() {
        let plan = job_plan(config, index, section, &mut hosts, &simulation)?;
        let late = lateness(&plan, section)?;
        let servers = servers(&plan, section, &mut hosts)?;
        let installed = match servers {
            None => simulation.install(plan),
            Some(Servers { hosts, slots }) => simulation.install_served(JobPlan { slots, ..plan }, &hosts),
        };
        let job = installed.map_err(|error| invalid(error.to_string()))?;
        simulation.traffic.jobs.get_mut(job).late = late;
    }
    super::cores::set(config, &mut simulation)?;
    if let Some(memory) = config.network.switch_memory {
        simulation.share_memory(memory.0).map_err(|error| invalid(error.to_string()))?;
    }
    for (index, section) in config.traffic.iter().enumerate() {
        add_traffic(&mut simulation, config, index, section, &mut hosts)?;
    }
    training::expect(&mut simulation, config, &mut hosts)?;
    Ok(simulation)
}

/// The settings of memory that jobs share in switches, with room for the longest packets of any job.
fn shared(config: &Config) -> Result<SharedSettings, ConfigError> {
    let options = switch_options(config)?;
    let of_jobs = config.jobs.iter().map(|job| job.elements_per_packet);
    let of_trainings = config.trainings.iter().map(|training| training.elements_per_packet);
    let elements_per_packet = of_jobs.chain(of_trainings).max();
    Ok(SharedSettings { options, elements_per_packet: elements_per_packet.unwrap_or(256) })
}

fn switch_options(config: &Config) -> Result<SwitchOptions, ConfigError> {
    SwitchOptions::read(&of_switches(&config.switches.options), Defaults::Simulated)
        .map_err(|error| invalid(error.to_string()))
}

fn job_plan(
    config: &Config,
    index: usize,
    section: &JobSection,
    hosts: &mut Allocation,
    simulation: &Simulation,
) -> Result<JobPlan, ConfigError> {
    let name = section.name.clone().unwrap_or_else(|| format!("job {index}"));
    let members = hosts.take(&name, &section.hosts, section.placement)?;
    let plan = unplaced(config, &name, section, members.len(), simulation)?;
    let roots = roots(config, index, &name, section, &members, simulation)?;
    let slots = match section.slots {
        Some(slots) => slots,
        None => pool_size_of(config, section, simulation, (&plan.options, members.len()), roots.len().max(1))?,
    };
    Ok(JobPlan { members, roots, slots, ..plan })
}

/// The default number of slots of a job with so many ranks and these options.
pub(super) fn pool_size_of(
    config: &Config,
    section: &JobSection,
    simulation: &Simulation,
    (options, world): (&Options, usize),
    trees: usize,
) -> Result<u16, ConfigError> {
    let wait = switch_options(config)?.ask(section.protocol, |shared| shared.longest_wait).unwrap_or_default();
    let world = u16::try_from(world).unwrap_or(u16::MAX);
    let result = (section.protocol.options.packets_of_a_result)(options, world, section.elements_per_packet);
    Ok(pool_size(packet_bytes(section, config)?, result, simulation.graph(), config, trees, wait))
}

/// The plan of a job with so many ranks, before it has hosts, trees and slots.
pub(super) fn unplaced(
    config: &Config,
    name: &str,
    section: &JobSection,
    world: usize,
    simulation: &Simulation,
) -> Result<JobPlan, ConfigError> {
    let graph = simulation.graph();
    check_numbers(name, section)?;
    let wrong = |sentence: String| invalid(format!("{name}: {sentence}"));
    let own = own::own(section).map_err(wrong)?;
    let density_ppm = density_ppm(section).map_err(wrong)?;
    let options = options(section, density_ppm, own.as_ref()).map_err(wrong)?;
    let spec = spec(section, world, own.as_ref()).map_err(wrong)?;
    let can = match density_ppm {
        None => (section.protocol.can)(&spec, &options),
        Some(_) => section.protocol.can_sparse(&spec, &options),
    };
    can.map_err(|refusal| invalid(format!("{name}: {refusal}")))?;
    let most = FingerprintTensor::MOST_IN_PART;
    if section.protocol.options.quorum(&options, world as u16).is_some() && world > usize::from(most) {
        return Err(invalid(format!(
            "{name}: it has {world} ranks, and results that may lack ranks can be checked of {most} at most"
        )));
    }
    let packet = packet_bytes(section, config)?;
    let smallest = graph.edges().iter().map(|edge| edge.a_to_b.queue_bytes.min(edge.b_to_a.queue_bytes)).min();
    if smallest.is_some_and(|queue| queue < packet) {
        return Err(invalid(format!(
            "{name}: its packets of {packet} bytes fit into no queue of {} bytes",
            smallest.unwrap_or(0)
        )));
    }
    Ok(JobPlan {
        protocol: section.protocol,
        spec,
        members: Vec::new(),
        density_ppm,
        own,
        iterations: section.iterations,
        start: Time::ZERO + section.start.0,
        compute: section.compute.0,
        options,
        elements_per_packet: section.elements_per_packet,
        slots: 0,
        roots: Vec::new(),
        timers: section.rto.timers(),
        timeout: Some(section.timeout.map_or_else(|| default_timeout(section, graph), |timeout| timeout.0)),
        name: name.to_string(),
    })
}

/// The share of elements that ranks bring, in millionths; `None` for dense tensors.
fn density_ppm(section: &JobSection) -> Result<Option<u32>, String> {
    let Some(Share(density)) = section.density else { return Ok(None) };
    match (density * 1e6).round() {
        ppm if (1.0..=1e6).contains(&ppm) => Ok(Some(ppm as u32)),
        _ => Err(format!("density = {density} is no share of the elements from 0.000001 to 1")),
    }
}

/// The chosen options of the protocol, and the options that a job of sparse tensors or with its own operator needs.
fn options(section: &JobSection, density_ppm: Option<u32>, own: Option<&Own>) -> Result<Options, String> {
    let (given, set) = (texts(&section.options), &section.protocol.options);
    let given = match own {
        None => given,
        Some(own) => set.of_own(&given, &[own.shared()]).unwrap_or(given),
    };
    let chosen = match density_ppm {
        None => given,
        Some(ppm) => set
            .of_sparse(&given, Some(ppm.into()))
            .ok_or_else(|| format!("density: {} sums no sparse tensors; leave it out", section.protocol.name))?,
    };
    let options = set.read_with(&chosen, Defaults::Simulated).map_err(|error| error.to_string())?;
    Ok(match own {
        None => options,
        Some(own) => own.provide(options),
    })
}

/// Checks the numbers of a job that depend on nothing else.
fn check_numbers(name: &str, section: &JobSection) -> Result<(), ConfigError> {
    let size = if section.operator.is_some() { 1 } else { section.dtype.size() as u64 };
    if !section.tensor.0.is_multiple_of(size) {
        return Err(invalid(format!(
            "{name}: a tensor of {} is no whole number of {} elements, which have {size} bytes",
            section.tensor, section.dtype
        )));
    }
    if section.tensor.0 / size > u64::from(u32::MAX) {
        return Err(invalid(format!("{name}: a tensor of {} has more than 2^32 - 1 elements", section.tensor)));
    }
    if section.iterations == 0 {
        return Err(invalid(format!("{name}: iterations = 0 leaves nothing to do")));
    }
    let rto = section.rto;
    if rto.min > rto.max || rto.min.0 == Span::ZERO {
        return Err(invalid(format!(
            "{name}: rto.min = {} must be above 0 and at most rto.max = {}",
            rto.min, rto.max
        )));
    }
    Ok(())
}

/// The default timeout, so long that only a collective with hardly any progress takes longer.
fn default_timeout(section: &JobSection, graph: &Graph) -> Span {
    let slowest = graph.edges().iter().map(|edge| edge.a_to_b.rate.min(edge.b_to_a.rate)).min();
    let tensor = slowest.map_or(Span::ZERO, |rate| rate.time_of(section.tensor.0));
    let late = section.stragglers.as_ref().map_or(Span::ZERO, |stragglers| stragglers.late.0);
    let span = tensor.0.saturating_mul(TIMEOUT_TRANSFERS).max(LEAST_TIMEOUT.0);
    // Bounded, so that no deadline lies behind the end of time.
    Span(span.saturating_add(late.0).min(u64::MAX / 4))
}

/// The default deadline of a collective, in times that its tensor takes on the slowest link.
const TIMEOUT_TRANSFERS: u64 = 100;
/// The least default deadline.
const LEAST_TIMEOUT: Span = Span::from_millis(1_000);

/// For each rank, how late it is; empty if no rank is late.
fn lateness(plan: &JobPlan, section: &JobSection) -> Result<Vec<Span>, ConfigError> {
    let Some(StragglerSection { ranks, late }) = &section.stragglers else { return Ok(Vec::new()) };
    let (name, all) = (&plan.name, plan.members.len());
    let late_ones: Vec<usize> = match ranks {
        Hosts::Count(count) => (0..*count as usize).collect(),
        Hosts::Share(share) => (0..(share.0 * all as f64).round() as usize).collect(),
        Hosts::List(list) => list.iter().map(|&rank| rank as usize).collect(),
        Hosts::All => (0..all).collect(),
        Hosts::Rest => return Err(invalid(format!("{name}: stragglers are a number, a share or a list of ranks"))),
    };
    let mut lateness = vec![Span::ZERO; all];
    for rank in late_ones {
        let place = lateness.get_mut(rank);
        *place.ok_or_else(|| invalid(format!("{name}: rank {rank} is no straggler: it has {all} ranks, from 0")))? =
            late.0;
    }
    Ok(lateness)
}

/// The kind of a job's collectives, in a world of so many ranks.
fn spec(section: &JobSection, world: usize, own: Option<&Own>) -> Result<Spec, String> {
    let (dtype, op) = match own {
        None => (section.dtype, section.op),
        // Opaque elements are counted in bytes.
        Some(own) if section.tensor.0.is_multiple_of(own.operator.element_size() as u64) => {
            (DType::U8, ReduceOp::Own(0))
        }
        Some(own) => {
            let (name, size) = (own.operator.name(), own.operator.element_size());
            return Err(format!(
                "a tensor of {} is no whole number of {name}'s elements of {size} bytes",
                section.tensor
            ));
        }
    };
    let elements = (section.tensor.0 / dtype.size() as u64) as u32;
    let root = Rank(section.root.unwrap_or(0));
    if root.index() >= world {
        return Err(format!("root = {root} is none of its {world} ranks"));
    }
    match section.collective {
        CollectiveKind::Allreduce | CollectiveKind::Barrier if section.root.is_some() => {
            Err(format!("root = {root}: only collective = \"reduce\" and \"broadcast\" have one"))
        }
        CollectiveKind::Barrier if elements > 0 => Err("a barrier brings nothing: write tensor = 0".to_string()),
        CollectiveKind::Allreduce | CollectiveKind::Barrier => Ok(Spec::allreduce(elements, dtype, op)),
        CollectiveKind::Reduce => Ok(Spec::reduce(elements, dtype, op, root)),
        CollectiveKind::Broadcast => Ok(Spec::broadcast(section.tensor.0.div_ceil(4) as u32, root)),
    }
}

/// Refuses settings that only jobs with planned trees have, so that they are not ignored.
pub(super) fn refuse_trees(name: &str, section: &JobSection) -> Result<(), ConfigError> {
    if section.protocol.placement == Placement::Trees {
        return Ok(());
    }
    let given = [
        ("trees", section.trees.is_some()),
        ("roots", section.roots.is_some()),
        ("root_choice", section.root_choice != RootChoice::default()),
    ];
    let Some((key, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    let with_trees = protocols::ALL.iter().filter(|protocol| protocol.placement == Placement::Trees);
    let names: Vec<&str> = with_trees.map(|protocol| protocol.name).collect();
    let (protocol, names) = (section.protocol.name, names.join(" and "));
    Err(invalid(format!(
        "{name}: {protocol} has no trees that a file plans: leave {key} out; jobs of {names} have them"
    )))
}

fn roots(
    config: &Config,
    index: usize,
    name: &str,
    section: &JobSection,
    members: &[NodeId],
    simulation: &Simulation,
) -> Result<Vec<u32>, ConfigError> {
    let graph = simulation.graph();
    refuse_trees(name, section)?;
    if let Some(roots) = &section.roots {
        if roots.is_empty() {
            return Err(invalid(format!("{name}: roots is an empty list")));
        }
        let root = |root: &SwitchName| root.switch(graph).map_err(|error| invalid(format!("{name}: roots: {error}")));
        return roots.iter().map(root).collect();
    }
    if section.protocol.placement == Placement::EveryHop {
        return Ok(Vec::new());
    }
    let trees = section.trees.unwrap_or(1);
    if trees == 0 {
        return Err(invalid(format!("{name}: trees = 0: a job has at least one")));
    }
    let mut rng = Rng::new(config.seed, Purpose::Roots, index as u64);
    if section.root_choice == RootChoice::LeastLoaded {
        let chosen = simulation.least_loaded_roots(members, trees, &mut rng);
        return chosen.map_err(|error| invalid(format!("{name}: {error}")));
    }
    let mut top = graph.top_switches();
    rng.shuffle(&mut top);
    Ok(top.iter().copied().cycle().take(usize::from(trees)).collect())
}

/// Bytes on a link of a job's full packet.
fn packet_bytes(section: &JobSection, config: &Config) -> Result<u64, ConfigError> {
    let payload = (4 * usize::from(section.elements_per_packet)).min(60_000) + section.protocol.header_len;
    Ok(u64::from(config.network.framing()?.bytes_on_link(payload)))
}

/// So many slots, rounded up to a power of two, that the bandwidth-delay product of the longest path is covered, with
/// the slowest link's bandwidth (SwitchML, appendix C). `result`: how many packets come back for each packet that is
/// sent; such a block fills the path longer, and the next one is sent while the results come back. `wait`: the time
/// that waiting adds at each hop (Canary §3.2.2).
fn pool_size(packet: u64, result: u64, graph: &Graph, config: &Config, trees: usize, wait: Span) -> u16 {
    let levels = u64::from((0..graph.switches()).map(|switch| graph.level(graph.switch(switch))).max().unwrap_or(1));
    let slowest = graph.edges().iter().map(|edge| edge.a_to_b.rate).min().unwrap_or(config.network.rate.0);
    let longest = graph.edges().iter().map(|edge| edge.a_to_b.delay).max().unwrap_or_default();
    let latency = graph.latency(graph.switch(0)) + longest + slowest.time_of(packet) + wait;
    let in_flight = latency.times(2 * levels).0.div_ceil(slowest.time_of(packet).0.max(1)) + 1;
    let slots = match result {
        1 => in_flight.next_power_of_two().clamp(8, 1 << 15),
        _ => (2 * (in_flight.div_ceil(result) + 1)).next_power_of_two().clamp(4, 1 << 15),
    };
    (slots.div_ceil(trees as u64) * trees as u64).min(u64::from(u16::MAX)) as u16
}
