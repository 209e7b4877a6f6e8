//! What switches hold for jobs that share their memory, from the file.

use tributary_proto::contract::config::FlushTimeout;
use tributary_proto::contract::time::Span;

use crate::config::{Config, ConfigError, FlushSection, invalid};
use crate::driver::SharedSettings;

/// The settings of all switches.
pub fn shared(config: &Config) -> Result<SharedSettings, ConfigError> {
    let section = &config.switches;
    let timeout = match section.timeout {
        FlushSection::Fixed(span) => FlushTimeout::Fixed(span.0),
        FlushSection::Adaptive { least, most } => FlushTimeout::Adaptive { least: least.0, most: most.0 },
    };
    if section.descriptors == 0 || section.partitions == 0 || u32::from(section.partitions) > section.descriptors {
        return Err(invalid(format!(
            "switches: {} descriptors in {} partitions: each partition needs at least one",
            section.descriptors, section.partitions
        )));
    }
    if section.lease.0 == Span::ZERO {
        return Err(invalid("switches: a lease of no time frees every descriptor at once"));
    }
    Ok(SharedSettings {
        descriptors: section.descriptors,
        partitions: section.partitions,
        elements_per_packet: config.jobs.iter().map(|job| job.elements_per_packet).max().unwrap_or(256),
        timeout,
        lease: section.lease.0,
        reissues: section.reissues,
    })
}
