//! What jobs and switches of the tests are made from, and which protocols they are of.

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::aggregation::best_effort::LEVELS_OPTION;
use tributary_proto::contract::config::{JobConfig, SharedSwitchConfig, TimerConfig};
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::{JobId, JobKey, NodeId};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

pub const KEY: JobKey = JobKey(7);
/// How long a switch keeps what nobody touches, unless a test says otherwise.
pub const LEASE: Span = Span::from_millis(5);

/// The protocols of the family.
pub fn family() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.options.specs.contains(&LEVELS_OPTION))
}

/// The one whose switches acknowledge gradients.
pub fn acknowledging() -> &'static Protocol {
    let has_progress = |protocol: &&Protocol| protocol.options.specs.iter().any(|spec| spec.name == "progress");
    family().find(has_progress).expect("a protocol of the family acknowledges gradients")
}

/// The one whose results are the only acknowledgements.
pub fn clocked_by_results() -> &'static Protocol {
    family().find(|&protocol| protocol != acknowledging()).expect("a protocol of the family does not")
}

fn texts(chosen: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    chosen.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect()
}

/// What switches hold, except for what a test chooses.
pub fn switch(protocol: &Protocol, chosen: &[(&str, &str)]) -> SharedSwitchConfig {
    let lease = LEASE.to_text();
    let mut given = texts(&[("aggregators", "1024"), ("lease", &lease)]);
    given.extend(texts(chosen));
    let shared = protocol.shared.as_ref().expect("the family's jobs share memory");
    let options = shared.options.read(&given).expect("they are its options");
    SharedSwitchConfig { node: NodeId(0), elements_per_packet: 8, options }
}

pub fn job(protocol: &Protocol, world_size: u16, slots: u16, chosen: &[(&str, &str)]) -> JobConfig {
    JobConfig {
        job: JobId(1),
        key: KEY,
        protocol: protocol.code,
        world_size,
        slots,
        elements_per_packet: 8,
        trees: 1,
        levels: false,
        options: protocol.options.read(&texts(chosen)).expect("they are its options"),
    }
}

pub fn timers() -> TimerConfig {
    TimerConfig { initial_rto: Span::from_micros(100), min_rto: Span::from_micros(50), max_rto: Span::from_millis(2) }
}

pub fn at_us(us: u64) -> Time {
    Time::ZERO + Span::from_micros(us)
}

pub fn collective<T: Element>(values: Vec<T>, op: ReduceOp) -> Collective {
    Collective { tensor: Box::new(ElementTensor::new(InPlaceStorage::new(values), op)), deadline: None }
}

/// What a rank's oldest collective brought; panics if there is none.
pub fn output<T: Element>(events: &mut Vec<HostEvent>) -> Vec<T> {
    assert!(!events.is_empty(), "nothing has come of it");
    let HostEvent::Done { tensor, .. } = events.remove(0) else { panic!("it failed") };
    let tensor: Box<dyn std::any::Any> = tensor;
    tensor.downcast::<ElementTensor<InPlaceStorage<T>>>().expect("what was submitted").into_storage().into_output()
}

/// What rank `rank` brings: whole numbers, so that sums of floats are exact.
pub fn input(rank: usize, elements: usize) -> Vec<i32> {
    (0..elements).map(|i| ((rank + 1) * (i * 7919 % 1009)) as i32 - 500).collect()
}

pub fn expected(world_size: usize, elements: usize) -> Vec<i32> {
    (0..elements).map(|i| (0..world_size).map(|rank| input(rank, i + 1)[i]).sum()).collect()
}
