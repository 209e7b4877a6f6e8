//! Lets the switches of a file run their programs on cores.

use std::collections::BTreeMap;
use std::fs;

use tributary_numeric::DType;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::operator::Operator;

use crate::config::{Config, ConfigError, CoresSection, Full, invalid};
use crate::cores::operators::Table;
use crate::cores::prices::Prices;
use crate::engine::{CoresSpec, Job, JobIndex, Simulation};

/// Applies `[switches.cores]`, once all jobs are installed.
pub fn set(config: &Config, simulation: &mut Simulation) -> Result<(), ConfigError> {
    let Some(section) = &config.switches.cores else { return Ok(()) };
    let pauses = section.full == Full::Pause;
    if pauses && config.network.lossless.is_none() {
        return Err(invalid(
            "switches.cores: full = \"pause\" needs a network that can pause: write lossless = {} under [network]",
        ));
    }
    count_operators(section, simulation)?;
    let mut prices = BTreeMap::new();
    for job in simulation.traffic.jobs.all().iter().filter(|job| job.plan.protocol.sums_in_network()) {
        let (id, dtype) = (JobId(job.index.0 + 1), handled_as(job));
        if let Some(of_job) = custom_op_prices(section, job) {
            prices.insert(id, of_job);
            continue;
        }
        let Some(of_job) = Prices::new(section.handlers, dtype) else {
            let known = Prices::TYPES.map(|dtype| dtype.to_string()).join(", ");
            let name = &job.plan.name;
            return Err(invalid(format!("{name}: there are no handlers for {dtype}: switches.cores is for {known}")));
        };
        prices.insert(id, of_job);
    }
    let mark_above = section.mark_above.map(|bytes| bytes.0);
    let spec = CoresSpec { shape: section.shape()?, cycle: section.cycle(), mark_above, pauses, prices };
    simulation.set_cores(&spec).map_err(|(job, why)| {
        let name = &simulation.traffic.jobs.get(JobIndex(job.0 - 1)).plan.name;
        invalid(format!("{name}: {why}; leave [switches.cores] out, or take another protocol"))
    })
}

/// Finds the cycles of jobs' custom operators.
fn count_operators(section: &CoresSection, simulation: &mut Simulation) -> Result<(), ConfigError> {
    let mut table = Table::shipped();
    if let Some(file) = &section.operators {
        let text = fs::read_to_string(file).map_err(|error| error.to_string());
        let added = text.and_then(|text| table.add(&text));
        added.map_err(|why| invalid(format!("switches.cores: operators = {file:?}: {why}")))?;
    }
    let ops = simulation.traffic.jobs.all_mut().filter_map(|job| job.plan.custom_op.as_mut());
    ops.for_each(|op| op.cycles = Some(table.find(&op.operator)));
    Ok(())
}

/// The prices of a job with a custom operator.
fn custom_op_prices(section: &CoresSection, job: &Job) -> Option<Prices> {
    let op = job.plan.custom_op.as_ref()?;
    let (size, element) = (job.plan.spec.dtype.size() as u64, op.operator.element_size() as u64);
    Some(Prices::of_operator(section.handlers, size, element, op.cycles?))
}

/// The type in which a switch sums a job's elements.
fn handled_as(job: &Job) -> DType {
    let (protocol, dtype) = (job.plan.protocol, job.plan.spec.dtype);
    match (protocol.numbers)(&job.plan.options) {
        Numbers::Fixed if dtype.is_float() => DType::I32,
        _ => dtype,
    }
}
