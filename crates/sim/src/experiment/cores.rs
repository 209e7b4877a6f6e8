//! Lets the switches of a file run their programs on cores.

use std::collections::BTreeMap;

use tributary_numeric::DType;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::numbers::Numbers;

use crate::config::{Config, ConfigError, CostMode, Full, invalid};
use crate::cores::exact::Setup;
use crate::cores::prices::Prices;
use crate::driver::{CoresSpec, Job, JobIndex, Simulation};

/// What `[switches.cores]` says; when all jobs are there.
pub fn set(config: &Config, simulation: &mut Simulation) -> Result<(), ConfigError> {
    let Some(section) = &config.switches.cores else { return Ok(()) };
    let pauses = section.full == Full::Pause;
    if pauses && config.network.lossless.is_none() {
        return Err(invalid(
            "switches.cores: full = \"pause\" needs a network that can pause: write lossless = {} under [network]",
        ));
    }
    let (mut prices, mut exact) = (BTreeMap::new(), BTreeMap::new());
    for job in simulation.traffic.jobs.all().iter().filter(|job| job.plan.protocol.sums_in_network()) {
        let (id, dtype) = (JobId(job.index.0 + 1), handled_as(job));
        let Some(of_job) = Prices::new(section.handlers, dtype) else {
            let known = Prices::TYPES.map(|dtype| dtype.to_string()).join(", ");
            let name = &job.plan.name;
            return Err(invalid(format!("{name}: there are no handlers for {dtype}: switches.cores is for {known}")));
        };
        prices.insert(id, of_job);
        if section.mode == CostMode::Exact {
            let setup = Setup {
                code: section.handlers,
                dtype,
                children: 0,
                blocks: job.plan.slots.into(),
                payload_bytes: 4 * u32::from(job.plan.elements_per_packet),
            };
            exact.insert(id, setup);
        }
    }
    let mark_above = section.mark_above.map(|bytes| bytes.0);
    let spec = CoresSpec { shape: section.shape()?, cycle: section.cycle(), mark_above, pauses, prices, exact };
    simulation.set_cores(&spec).map_err(|(job, why)| {
        let name = &simulation.traffic.jobs.get(JobIndex(job.0 - 1)).plan.name;
        invalid(format!("{name}: {why}; leave [switches.cores] out, or take another protocol"))
    })
}

/// What a switch sums a job's elements as.
fn handled_as(job: &Job) -> DType {
    let (protocol, dtype) = (job.plan.protocol, job.plan.spec.dtype);
    match (protocol.numbers)(&job.plan.options) {
        Numbers::Fixed if dtype.is_float() => DType::I32,
        _ => dtype,
    }
}
