//! The plan of a job: its options, its tensor, its slots and its timeout, all that does not depend on hosts.

use std::sync::Arc;

use tributary_control::config::{of_switches, texts};
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::custom_op::CustomOp as _;
use tributary_proto::contract::ids::{NodeId, Rank};
use tributary_proto::contract::options::{Defaults, Options};
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_proto::switch_options::SwitchOptions;
use tributary_proto::tensors::FingerprintTensor;

use super::hosts::Allocation;
use super::{indices, programs};
use crate::config::{CollectiveKind, Config, ConfigError, JobSection, RootChoice, Share, SwitchName, invalid};
use crate::engine::{CustomOp, JobPlan, Simulation};
use crate::rng::{Purpose, Rng};
use crate::topology::Graph;

/// The operators' options of shared memory.
pub(super) fn switch_options(config: &Config) -> Result<SwitchOptions, ConfigError> {
    SwitchOptions::read(&of_switches(&config.switches.options), Defaults::Simulated)
        .map_err(|error| invalid(error.to_string()))
}

/// The default number of slots of a job with `world_size` ranks and these options.
pub(super) fn pool_size_of(
    config: &Config,
    section: &JobSection,
    simulation: &Simulation,
    (options, world_size): (&Options, usize),
    trees: usize,
) -> Result<u16, ConfigError> {
    let longest_wait = switch_options(config)?.derive(section.protocol, |shared| shared.longest_wait);
    let wait = longest_wait.unwrap_or_default() + simulation.accelerator_latency();
    let world_size = u16::try_from(world_size).unwrap_or(u16::MAX);
    let result = (section.protocol.options.packets_of_a_result)(options, world_size, section.elements_per_packet);
    let path = Path { graph: simulation.graph(), wait, legs: legs(section) };
    Ok(path.pool_size(packet_bytes(section, config)?, result, trees))
}

/// How many times a block crosses the network until its result is there: up to a switch and down again, or through
/// switches that sum to a server, and back from there.
fn legs(section: &JobSection) -> u64 {
    if section.protocol.shared.as_ref().is_some_and(|shared| shared.server.is_some()) { 2 } else { 1 }
}

/// The plan of a job with `world_size` ranks, before it has hosts, trees and slots.
pub(super) fn plan_without_hosts(
    config: &Config,
    name: &str,
    section: &JobSection,
    world_size: usize,
    simulation: &Simulation,
) -> Result<JobPlan, ConfigError> {
    let graph = simulation.graph();
    check_numbers(name, section)?;
    let error = |sentence: String| invalid(format!("{name}: {sentence}"));
    let op = programs::custom_op(section).map_err(error)?;
    let density_ppm = density_ppm(section).map_err(error)?;
    let sparse = indices::sparse(section, density_ppm, world_size).map_err(error)?;
    let options = options(section, density_ppm, op.as_ref()).map_err(error)?;
    let spec = spec(section, world_size, op.as_ref()).map_err(error)?;
    let can = match density_ppm {
        None => (section.protocol.check)(&spec, &options),
        Some(_) => section.protocol.check_sparse(&spec, &options),
    };
    can.map_err(|refusal| invalid(format!("{name}: {refusal}")))?;
    let most = FingerprintTensor::MAX_PARTIAL_RANKS;
    if section.protocol.options.quorum(&options, world_size as u16).is_some() && world_size > usize::from(most) {
        return Err(invalid(format!(
            "{name}: it has {world_size} ranks, and results that may lack ranks can be checked for at most {most}"
        )));
    }
    let packet = packet_bytes(section, config)?;
    let queues = graph.edges().iter().map(|edge| edge.a_to_b.queue_bytes.min(edge.b_to_a.queue_bytes));
    let smallest = queues.chain(config.network.shared_buffer.map(|shared| shared.0)).min();
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
        sparse,
        custom_op: op,
        magnitudes: section.magnitudes,
        operations: Arc::default(),
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

/// The plan of a job, with its hosts and the roots of its trees.
pub(super) fn job_plan(
    config: &Config,
    index: usize,
    section: &JobSection,
    hosts: &mut Allocation,
    simulation: &Simulation,
) -> Result<JobPlan, ConfigError> {
    let name = section.name.clone().unwrap_or_else(|| format!("job {index}"));
    let members = hosts.take(&name, &section.hosts, section.placement)?;
    let plan = plan_without_hosts(config, &name, section, members.len(), simulation)?;
    let roots = roots(config, index, &name, section, &members, simulation)?;
    let slots = match section.slots {
        Some(slots) => slots,
        None => pool_size_of(config, section, simulation, (&plan.options, members.len()), roots.len().max(1))?,
    };
    Ok(JobPlan { members, roots, slots, ..plan })
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

/// The share of elements that ranks contribute, in millionths; `None` for dense tensors.
fn density_ppm(section: &JobSection) -> Result<Option<u32>, String> {
    let Some(Share(density)) = section.density else { return Ok(None) };
    match (density * 1e6).round() {
        ppm if (1.0..=1e6).contains(&ppm) => Ok(Some(ppm as u32)),
        _ => Err(format!("density = {density} is not a share of the elements from 0.000001 to 1")),
    }
}

/// The chosen options of the protocol, and the options that a job with sparse tensors or a custom operator needs.
fn options(section: &JobSection, density_ppm: Option<u32>, op: Option<&CustomOp>) -> Result<Options, String> {
    let (given, set) = (texts(&section.options), &section.protocol.options);
    let given = match op {
        None => given,
        Some(op) => set.with_custom_ops(&given, &[op.shared()]).unwrap_or(given),
    };
    let chosen = match density_ppm {
        None => given,
        Some(ppm) => set
            .of_sparse(&given, Some(ppm.into()))
            .ok_or_else(|| format!("density: {} sums no sparse tensors; leave it out", section.protocol.name))?,
    };
    let options = set.read_with(&chosen, Defaults::Simulated).map_err(|error| error.to_string())?;
    Ok(match op {
        None => options,
        Some(op) => op.provide(options),
    })
}

/// Checks the numbers of a job that depend on nothing else.
fn check_numbers(name: &str, section: &JobSection) -> Result<(), ConfigError> {
    let size = if section.operator.is_some() { 1 } else { section.dtype.size() as u64 };
    if !section.tensor.0.is_multiple_of(size) {
        return Err(invalid(format!(
            "{name}: a tensor of {} is not a whole number of {} elements, which have {size} bytes",
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

/// The default timeout: only a collective with hardly any progress takes longer.
fn default_timeout(section: &JobSection, graph: &Graph) -> Span {
    let slowest = graph.edges().iter().map(|edge| edge.a_to_b.rate.min(edge.b_to_a.rate)).min();
    let tensor = slowest.map_or(Span::ZERO, |rate| rate.time_of(section.tensor.0));
    let late = section.stragglers.as_ref().map_or(Span::ZERO, |stragglers| stragglers.late.0);
    let span = tensor.0.saturating_mul(TIMEOUT_TRANSFERS).max(MIN_TIMEOUT.0);
    // Bounded, so that no deadline is after the end of time.
    Span(span.saturating_add(late.0).min(u64::MAX / 4))
}

/// The default deadline of a collective, in times that its tensor takes on the slowest link.
const TIMEOUT_TRANSFERS: u64 = 100;
/// The least default deadline.
const MIN_TIMEOUT: Span = Span::from_millis(1_000);

/// The kind of a job's collectives.
fn spec(section: &JobSection, world_size: usize, op: Option<&CustomOp>) -> Result<Spec, String> {
    let (dtype, op) = match op {
        None => (section.dtype, section.op),
        // Opaque elements are counted in bytes.
        Some(op) if section.tensor.0.is_multiple_of(op.operator.element_size() as u64) => {
            (DType::U8, ReduceOp::Custom(0))
        }
        Some(op) => {
            let (name, size) = (op.operator.name(), op.operator.element_size());
            return Err(format!(
                "a tensor of {} is not a whole number of {name}'s elements of {size} bytes",
                section.tensor
            ));
        }
    };
    let elements = (section.tensor.0 / dtype.size() as u64) as u32;
    let (root, per_host) = (section.root.unwrap_or(0), section.ranks_per_host.max(1));
    if usize::from(root / per_host) >= world_size {
        let ranks = world_size * usize::from(per_host);
        return Err(format!("root = {root} is not one of its {ranks} ranks"));
    }
    let root = Rank(root / per_host);
    match section.collective {
        CollectiveKind::Allreduce | CollectiveKind::Barrier if section.root.is_some() => {
            Err(format!("root = {root}: only collective = \"reduce\" and \"broadcast\" have one"))
        }
        CollectiveKind::Barrier if elements > 0 => Err("a barrier has no data: write tensor = 0".to_string()),
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

/// Bytes on a link of a job's full packet.
fn packet_bytes(section: &JobSection, config: &Config) -> Result<u64, ConfigError> {
    let payload = (4 * usize::from(section.elements_per_packet)).min(60_000) + section.protocol.header_len;
    Ok(u64::from(config.network.framing()?.bytes_on_link(payload)))
}

/// The longest path of a job's blocks.
struct Path<'a> {
    graph: &'a Graph,
    /// The time that waiting adds at each hop (Canary §3.2.2), the accelerator's included.
    wait: Span,
    /// As of [`legs`].
    legs: u64,
}

impl Path<'_> {
    /// The slots that cover the bandwidth-delay product of the path at the slowest link's rate, rounded up to a power of
    /// two (SwitchML, appendix C), for packets of this many bytes. `result`: how many packets come back for each packet
    /// that is sent; such a block fills the path longer, and the next one is sent while the results come back.
    fn pool_size(&self, packet: u64, result: u64, trees: usize) -> u16 {
        let graph = self.graph;
        let highest = (0..graph.switches()).map(|switch| graph.level(graph.switch(switch))).max().unwrap_or(1);
        let links = || graph.edges().iter().map(|edge| edge.a_to_b);
        let time = links().map(|link| link.rate).min().map_or(Span::ZERO, |slowest| slowest.time_of(packet));
        let longest = links().map(|link| link.delay).max().unwrap_or_default();
        let latency = graph.latency(graph.switch(0)) + longest + time + self.wait;
        let in_flight = latency.times(2 * u64::from(highest) * self.legs).0.div_ceil(time.0.max(1)) + 1;
        let slots = match result {
            1 => in_flight.next_power_of_two().clamp(8, 1 << 15),
            _ => (2 * (in_flight.div_ceil(result) + 1)).next_power_of_two().clamp(4, 1 << 15),
        };
        (slots.div_ceil(trees as u64) * trees as u64).min(u64::from(u16::MAX)) as u16
    }
}
