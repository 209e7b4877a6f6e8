//! What jobs and switches of the tests are made from.

use tributary_proto::canary::PROTOCOL;
use tributary_proto::contract::config::{FabricPlan, JobConfig, SharedJob, SharedSwitchConfig, TimerConfig};
use tributary_proto::contract::ids::{JobId, JobKey, NodeId};
use tributary_proto::contract::metric::named;
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::time::Span;

pub const KEY: JobKey = JobKey(7);
/// How long a partial sum waits in a switch, unless a test says otherwise; it does not adapt.
pub const TIMEOUT: Span = Span::from_micros(2);
/// How long a switch keeps what nobody needs, unless a test says otherwise.
pub const LEASE: Span = Span::from_millis(5);

/// What switches hold, except for what a test chooses.
pub fn switch_with(chosen: &[(&str, &str)]) -> SharedSwitchConfig {
    let (timeout, lease) = (TIMEOUT.to_text(), LEASE.to_text());
    let usual = [("descriptors", "1024"), ("timeout", &timeout), ("adaptive", "false"), ("lease", &lease)];
    let given = usual.iter().chain(chosen).map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
    let shared = PROTOCOL.shared.as_ref().expect("Canary's jobs share");
    let options = shared.options.read(&given).expect("they are its options");
    SharedSwitchConfig { node: NodeId(0), elements_per_packet: 8, options }
}

/// What switches hold, unless a test says otherwise.
pub fn switch_config() -> SharedSwitchConfig {
    switch_with(&[])
}

pub fn job(world_size: u16, slots: u16) -> JobConfig {
    JobConfig {
        job: JobId(1),
        key: KEY,
        protocol: 3,
        world_size,
        slots,
        elements_per_packet: 8,
        trees: 1,
        levels: false,
        options: PROTOCOL.options.defaults(),
    }
}

pub fn timers() -> TimerConfig {
    TimerConfig { initial_rto: Span::from_micros(100), min_rto: Span::from_micros(50), max_rto: Span::from_millis(2) }
}

/// What a switch counts and measures for all jobs under a name.
pub fn figure(pipeline: &Pipeline, name: &str) -> f64 {
    let report = pipeline.shared(PROTOCOL.code).expect("it is shared");
    named(&report.metrics, name).unwrap_or_else(|| panic!("it has no {name}"))
}

/// One more application, as switches are told of it.
pub fn plan(id: JobId) -> SharedJob {
    let job = JobConfig { job: id, ..job(2, 16) };
    SharedJob { job, fabric: FabricPlan::default(), ports: Vec::new(), trees: Vec::new(), share_bytes: 0 }
}

/// Installs it.
pub fn install(pipeline: &mut Pipeline, id: JobId) {
    pipeline.install_shared(&plan(id), Vec::new());
}
