//! Draws the jobs of a `[[training]]`: when each arrives, which model it trains, and with how many workers.

use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::time::{Span, Time};

use super::hosts::Allocation;
use super::plan::{plan_without_hosts, pool_size_of, refuse_trees};
use crate::config::{Config, ConfigError, Duration, TrainingSection, invalid};
use crate::engine::{Arrival, HostLimits, JobPlan, Simulation};
use crate::rng::{Purpose, Rng};
use crate::workload::Model;

/// A model, with the parameters of one section.
struct WeightedModel {
    model: Model,
    weight: f64,
    protocol: &'static Protocol,
    /// Bytes of a worker's gradients, divided by the scale.
    bytes: u64,
    compute: Span,
}

/// Schedules the arrivals of the jobs of all sections.
pub(super) fn schedule_arrivals(
    simulation: &mut Simulation,
    config: &Config,
    hosts: &mut Allocation,
) -> Result<(), ConfigError> {
    let mut arrivals = Vec::new();
    for (index, section) in config.trainings.iter().enumerate() {
        let name = section.name.clone().unwrap_or_else(|| format!("training {index}"));
        arrivals.extend(draw(simulation, config, index, &name, section, hosts)?);
    }
    arrivals.sort_by_key(|arrival| arrival.time);
    if !config.trainings.is_empty() {
        simulation.schedule_arrivals(arrivals, config.network.switch_memory.map(|memory| memory.0));
    }
    Ok(())
}

/// The most jobs: a job needs a number.
const MAX_JOBS: usize = 60_000;

fn draw(
    simulation: &Simulation,
    config: &Config,
    index: usize,
    name: &str,
    section: &TrainingSection,
    hosts: &mut Allocation,
) -> Result<Vec<Arrival>, ConfigError> {
    let error = |sentence: String| invalid(format!("{name}: {sentence}"));
    check(section).map_err(error)?;
    let members = hosts.take(name, &section.hosts, crate::config::Placement::Packed)?;
    let [least, most] = section.workers;
    if usize::from(most) > members.len() {
        return Err(error(format!("workers = [{least}, {most}]: it has {} hosts", members.len())));
    }
    let mut may_use = vec![false; simulation.graph().hosts() as usize];
    members.iter().for_each(|host| may_use[host.index()] = true);
    let limits = HostLimits { may_use, workers_per_host: section.workers_per_host };
    let models = models(section).map_err(error)?;
    let weights: f64 = models.iter().map(|weighted| weighted.weight).sum();
    let gap = section.bytes_of_a_job(&models) * 8e12
        / (section.load.0 * config.network.rate.0.0 as f64 * members.len() as f64);
    let mut rng = Rng::new(config.seed, Purpose::Training, index as u64);
    let mut time = Time::ZERO + section.start.0;
    let mut arrivals = Vec::new();
    if section.load.0 == 0.0 {
        return Ok(arrivals);
    }
    loop {
        time = Time(time.0.saturating_add((rng.exponential() * gap).round() as u64));
        if time >= Time::ZERO + section.until.0 {
            return Ok(arrivals);
        }
        if arrivals.len() == MAX_JOBS {
            return Err(error(format!(
                "more than {MAX_JOBS} jobs arrive: a lower load, larger jobs or less time bring fewer"
            )));
        }
        let workers = least + rng.below(u32::from(most - least) + 1) as u16;
        let mut drawn = rng.unit() * weights;
        let weighted = models.iter().find(|weighted| {
            drawn -= weighted.weight;
            drawn < 0.0
        });
        let weighted = weighted.or(models.last()).ok_or_else(|| error("no model is left".into()))?;
        let job = format!("{name} {} {}", arrivals.len(), weighted.model.name);
        arrivals.push(arrival(simulation, config, section, weighted, (job, time, workers), &limits)?);
    }
}

fn arrival(
    simulation: &Simulation,
    config: &Config,
    section: &TrainingSection,
    weighted: &WeightedModel,
    (name, time, workers): (String, Time, u16),
    limits: &HostLimits,
) -> Result<Arrival, ConfigError> {
    let job = section.job(weighted.protocol, weighted.bytes, Duration(weighted.compute));
    refuse_trees(&name, &job)?;
    let trees = if weighted.protocol.placement == Placement::Trees { job.trees.unwrap_or(1) } else { 0 };
    let plan = plan_without_hosts(config, &name, &job, workers.into(), simulation)?;
    let all = match job.slots {
        Some(slots) => slots,
        None => pool_size_of(config, &job, simulation, (&plan.options, workers.into()), trees.max(1).into())?,
    };
    let slots = all / trees.max(1);
    if slots == 0 {
        return Err(invalid(format!("{name}: slots = {all} are too few for {trees} trees")));
    }
    // Where switches only forward, there is one root, and it is not used.
    let roots = if weighted.protocol.placement == Placement::Hosts { vec![0] } else { Vec::new() };
    let plan = JobPlan { slots, roots, ..plan };
    let (model, limits) = (weighted.model.name.to_string(), limits.clone());
    Ok(Arrival { time, plan, workers, trees, model, limits })
}

fn check(section: &TrainingSection) -> Result<(), String> {
    let [least, most] = section.workers;
    if least == 0 || least > most {
        return Err(format!("workers = [{least}, {most}] are the fewest and the most of a job, and at least 1"));
    }
    if section.workers_per_host == 0 || section.scale == 0 || section.iterations == 0 {
        return Err("workers_per_host, scale and iterations are at least 1".into());
    }
    if most == 1 {
        return Err("workers = [1, 1] send nothing, so that no number of jobs is a load".into());
    }
    if section.until.0 <= section.start.0 {
        return Err("until is not after start".into());
    }
    if section.protocol.server.is_some() {
        let name = section.protocol.name;
        return Err(format!("{name} needs servers, which jobs that come and go do not have"));
    }
    Ok(())
}

fn models(section: &TrainingSection) -> Result<Vec<WeightedModel>, String> {
    let models = Model::all();
    let names: Vec<&str> = models.iter().map(|model| model.name).collect();
    if let Some(unknown) = section.models.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("\"{unknown}\" is not a model: there are {}", names.join(", ")));
    }
    if section.models.values().any(|&weight| !(weight >= 0.0 && weight.is_finite())) {
        return Err("models: each has a number that says how likely it is, 0 or more".into());
    }
    let weight = |model: &Model| match section.models.is_empty() {
        true => 1.0,
        false => section.models.get(model.name).copied().unwrap_or(0.0),
    };
    let scale = f64::from(section.scale);
    let weighted = |model: Model| {
        let small = section.small_models.as_ref().filter(|small| model.bytes < small.below.0);
        WeightedModel {
            weight: weight(&model),
            protocol: small.map_or(section.protocol, |small| small.protocol),
            // A whole number of elements of four bytes.
            bytes: (model.bytes as f64 / scale / 4.0).round() as u64 * 4,
            compute: Span((model.compute_seconds / scale * 1e12).round() as u64),
            model,
        }
    };
    let models: Vec<WeightedModel> =
        models.into_iter().map(weighted).filter(|weighted| weighted.weight > 0.0).collect();
    if models.is_empty() { Err("models: none has a weight above 0".into()) } else { Ok(models) }
}

impl TrainingSection {
    /// How many bytes a job's workers send on average in a ring, over all iterations: 2 (n - 1) / n of the gradients
    /// each.
    fn bytes_of_a_job(&self, models: &[WeightedModel]) -> f64 {
        let weights: f64 = models.iter().map(|weighted| weighted.weight).sum();
        let bytes = models.iter().map(|weighted| weighted.weight * weighted.bytes as f64).sum::<f64>() / weights;
        let [least, most] = self.workers.map(f64::from);
        f64::from(self.iterations) * 2.0 * ((least + most) / 2.0 - 1.0) * bytes
    }
}
