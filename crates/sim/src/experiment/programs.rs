//! What switches of a file run: their programs on cores, and the custom operators of jobs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tributary_numeric::DType;
use tributary_operators::element::Element;
use tributary_operators::source::{self, Language};
use tributary_operators::{OperatorError, Sandbox, UserOperator, describe, expression, shipped};
use tributary_proto::contract::custom_op::CustomOp as _;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::protocols;

use crate::config::{Config, ConfigError, CoresSection, ExpressionSource, Full, JobSection, OperatorSource, invalid};
use crate::cores::operators::Table;
use crate::cores::prices::Prices;
use crate::engine::{CoresSpec, CustomOp, Data, Job, JobIndex, Simulation};

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
        // Codes and levels are added in 16 bits.
        Numbers::Int8(_) | Numbers::Thc4(_) if dtype.is_float() => DType::I16,
        _ => dtype,
    }
}

// Finds, compiles and tests the custom operator of a job.

/// The operator of a section, if it has one. An error is a sentence without the job's name.
pub(super) fn custom_op(section: &JobSection) -> Result<Option<CustomOp>, String> {
    let Some(given) = &section.operator else {
        return match section.data {
            Data::Fingerprints => Ok(None),
            Data::Real => {
                Err("data = \"real\" is for jobs with a custom operator: add operator, or leave data out".into())
            }
        };
    };
    if section.protocol.options.custom_ops.is_none() {
        let able = protocols::ALL.iter().filter(|protocol| protocol.options.custom_ops.is_some());
        let able: Vec<&str> = able.map(|protocol| protocol.name).collect();
        let (protocol, able) = (section.protocol.name, able.join(" or "));
        return Err(format!("operator: {protocol} takes no custom operators; take {able}"));
    }
    if section.op != JobSection::OP {
        return Err(format!("op = \"{}\" beside operator: a job has one of the two", section.op));
    }
    let operator = Arc::new(load(given, section)?);
    let (size, packet) = (operator.element_size(), 4 * usize::from(section.elements_per_packet));
    if size > packet {
        return Err(format!(
            "operator {}: its elements of {size} bytes do not fit into packets of {packet}: elements_per_packet = {} at \
             least",
            operator.name(),
            size.div_ceil(4)
        ));
    }
    Ok(Some(CustomOp { operator, data: section.data, cycles: None }))
}

fn load(given: &OperatorSource, section: &JobSection) -> Result<UserOperator, String> {
    let sandbox = Sandbox::new();
    let text = match given {
        OperatorSource::Text(text) => text,
        OperatorSource::Expression(ExpressionSource { expression, element }) => {
            let element = Element::parse(element).map_err(|error| format!("operator: {error}"))?;
            return compile(&sandbox, expression, &element).map_err(|error| format!("operator: {error}"));
        }
    };
    if names_operator(text) {
        return source::operator(&sandbox, text, None).map_err(|error| format!("operator: {error}"));
    }
    let element = Element::parse(section.dtype.name()).map_err(|error| format!("operator: {error}"))?;
    compile(&sandbox, text, &element).map_err(|error| {
        let known = shipped::ALL.map(|shipped| shipped.name).join(", ");
        format!(
            "operator = \"{text}\" is not an expression: {error}; nor is it a file (.expr, .wat, .c or .wasm) or one of {known}"
        )
    })
}

/// The file that has a section's operator.
pub(super) fn file(section: &JobSection) -> Option<PathBuf> {
    let Some(OperatorSource::Text(text)) = &section.operator else { return None };
    (names_operator(text) && shipped::named(text).is_none()).then(|| PathBuf::from(text))
}

/// True for a file's name, or the name of a ready-made operator.
fn names_operator(text: &str) -> bool {
    let is_name = || !text.contains(char::is_whitespace) || Path::new(text).exists();
    shipped::named(text).is_some() || Language::of(Path::new(text)).is_ok() && is_name()
}

fn compile(sandbox: &Sandbox, text: &str, element: &Element) -> Result<UserOperator, OperatorError> {
    let module = expression::compile(text, element)?;
    sandbox.load(&describe(&module, Some("expression"), Some(&element.to_string())))
}
