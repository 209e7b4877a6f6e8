//! Builds the simulation that a file describes.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::faults;
use super::hosts::{Allocation, host_ranks};
use super::plan::{job_plan, switch_options};
use super::traffic::add_traffic;
use super::transport::transports;
use super::{shares, step, training};
use crate::config::{
    Config, ConfigError, Duration, HostCostSection, Hosts, JobSection, StragglerSection, check_credits, invalid,
};
use crate::engine::{Accelerator, HostCosts, JobPlan, Noise, Settings, SharedSettings, Simulation};
use crate::net::Service;
use crate::rng::{Purpose, Rng};
use crate::topology::Graph;

/// The network of a file with its jobs, traffic and faults, at time zero.
pub fn build(config: &Config) -> Result<Simulation, ConfigError> {
    let graph = config.network.build()?;
    check_credits(config)?;
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
        shared_buffer: config.network.shared_buffer()?,
        service: service(config)?,
        transports: transports(config, &graph)?.into(),
        shared: shared(config)?,
        accelerator: accelerator(config, &graph)?,
    };
    let mut hosts = Allocation::new(graph.hosts(), config.seed);
    let mut simulation = Simulation::new(graph, settings);
    if config.report.pauses {
        if !config.network.has_pause() {
            return Err(invalid("report: pauses are those of switches with PAUSE: give [network] a lossless table"));
        }
        simulation.fabric.log_pauses();
    }
    if let Some(HostCostSection { per_packet, per_byte, memory }) = config.hosts {
        memory.into_iter().for_each(|rate| simulation.set_host_memory(rate.0));
        simulation.set_host_costs(HostCosts { per_packet: per_packet.0, per_byte: per_byte.0, free_at: Time::ZERO });
    }
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
    install_jobs(&mut simulation, config, &mut hosts)?;
    for index in 0..config.steps.len() {
        step::install(&mut simulation, config, index, &mut hosts)?;
    }
    super::programs::set(config, &mut simulation)?;
    if let Some(memory) = config.network.switch_memory {
        simulation.share_memory(memory.0).map_err(|error| invalid(error.to_string()))?;
    }
    for (index, section) in config.traffic.iter().enumerate() {
        add_traffic(&mut simulation, config, index, section, &mut hosts)?;
    }
    training::schedule_arrivals(&mut simulation, config, &mut hosts)?;
    Ok(simulation)
}

/// Which class of packets switches send first, checked against the classes of jobs and flows.
fn service(config: &Config) -> Result<Option<Service>, ConfigError> {
    let service = config.network.service()?;
    let own = config.traffic.iter().filter_map(|pattern| pattern.transport_settings.as_ref()?.priority);
    let of_jobs = config.jobs.iter().map(|job| job.priority);
    let highest = of_jobs.chain(own).chain(config.transport.priority).max().unwrap_or(0);
    match &service {
        None if highest > 0 => Err(invalid(format!(
            "priority = {highest} needs switches with classes: set service in [network], as in \"strict\""
        ))),
        Some(service) if usize::from(highest) >= service.classes() => {
            let last = service.classes() - 1;
            Err(invalid(format!("priority = {highest}: the service of [network] has classes 0 to {last}")))
        }
        _ => Ok(service),
    }
}

fn install_jobs(simulation: &mut Simulation, config: &Config, hosts: &mut Allocation) -> Result<(), ConfigError> {
    for (index, section) in config.jobs.iter().enumerate() {
        let plan = job_plan(config, index, section, hosts, simulation)?;
        let late = lateness(&plan, section)?;
        for (plan, served) in shares::jobs(plan, section, hosts, simulation.graph())? {
            let (plan, ranks) = host_ranks(config, section, plan)?;
            let installed = match served {
                None => simulation.install(plan),
                Some(servers) => simulation.install_served(plan, &servers),
            };
            let job = installed.map_err(|error| invalid(error.to_string()))?;
            simulation.traffic.jobs.get_mut(job).late = late.clone();
            simulation.fabric.set_job_class(usize::from(job.0), section.priority);
            ranks.into_iter().for_each(|ranks| simulation.set_host_ranks(job, ranks));
        }
    }
    Ok(())
}

fn accelerator(config: &Config, graph: &Graph) -> Result<Option<Accelerator>, ConfigError> {
    let Some(section) = &config.switches.accelerator else { return Ok(None) };
    if config.switches.cores.is_some() {
        return Err(invalid("switches have either cores or an accelerator: leave one of the two tables out"));
    }
    section.kind(graph).map(Some)
}

/// The settings of memory that jobs share in switches, for the longest packets of any job.
fn shared(config: &Config) -> Result<SharedSettings, ConfigError> {
    let options = switch_options(config)?;
    let of_jobs = config.jobs.iter().map(|job| job.elements_per_packet);
    let of_trainings = config.trainings.iter().map(|training| training.elements_per_packet);
    let of_steps = config.steps.iter().map(|step| step.elements_per_packet);
    let elements_per_packet = of_jobs.chain(of_trainings).chain(of_steps).max();
    Ok(SharedSettings { options, elements_per_packet: elements_per_packet.unwrap_or(256) })
}

/// For each member, how late it is, with the latest of its host's ranks; empty if no rank is late.
fn lateness(plan: &JobPlan, section: &JobSection) -> Result<Vec<Span>, ConfigError> {
    let Some(StragglerSection { ranks, late }) = &section.stragglers else { return Ok(Vec::new()) };
    let per_host = usize::from(section.ranks_per_host);
    let (name, all) = (&plan.name, plan.members.len() * per_host);
    let late_ranks: Vec<usize> = match ranks {
        Hosts::Count(count) => (0..*count as usize).collect(),
        Hosts::Share(share) => (0..(share.0 * all as f64).round() as usize).collect(),
        Hosts::List(list) => list.iter().map(|&rank| rank as usize).collect(),
        Hosts::All => (0..all).collect(),
        Hosts::Rest => return Err(invalid(format!("{name}: stragglers are a number, a share or a list of ranks"))),
    };
    let mut lateness = vec![Span::ZERO; plan.members.len()];
    for rank in late_ranks {
        let entry = lateness.get_mut(rank / per_host.max(1));
        *entry.ok_or_else(|| invalid(format!("{name}: stragglers name rank {rank}: it has {all} ranks, from 0")))? =
            late.0;
    }
    Ok(lateness)
}
