//! Machines say exactly how much memory they hold: what they have allocated, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;

use tributary_numeric::{BlockExponent, DType, ReduceOp};
use tributary_proto::aggregation::best_effort::LEVELS_OPTION;
use tributary_proto::aggregation::best_effort::wire::{Flags, HEADER_LEN, Header, Kind};
use tributary_proto::contract::config::{
    Below, FabricPlan, JobConfig, Parent, SharedJob, SharedSwitchConfig, SwitchConfig,
};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, NodeId, PortId, Rank, TreeId};
use tributary_proto::contract::numbers::{NarrowBlocks, Numbers};
use tributary_proto::contract::options::{Defaults, name_and_value};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::protocol::{Protocol, ShardShape};
use tributary_proto::contract::switch::NoQueues;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::protocols;

thread_local! {
    /// Bytes that this thread has allocated and not given back.
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    /// How often it has asked for memory.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    ALLOCATED.with(|allocated_bytes| allocated_bytes.set(allocated_bytes.get() + bytes));
    ALLOCATIONS.with(|times| times.set(times.get() + usize::from(bytes > 0)));
}

/// The system's allocator, and a count.
struct Counting;

// SAFETY: every call is handed to the system's allocator as it is; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps to the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps to the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller keeps to the contract of `realloc`.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `make` allocates and its result holds on to.
fn allocated<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.get();
    let made = make();
    (made, (ALLOCATED.get() - before) as usize)
}

fn job(protocol: &Protocol, world_size: u16, slots: u16, shards: u16) -> JobConfig {
    let (job, key, options) = (JobId(1), JobKey(2), protocol.options.defaults());
    let (protocol, elements_per_packet, levels) = (protocol.code, 64, false);
    JobConfig { job, key, protocol, world_size, slots, elements_per_packet, trees: shards, levels, options }
}

/// A switch with workers or, where `racks` are given, with switches below it.
fn config(protocol: &Protocol, world_size: u16, racks: u16, slots: u16, shards: u16, parent: bool) -> SwitchConfig {
    let rack = |rack| (0..world_size).filter(|rank| rank % racks == rack).map(Rank).collect();
    let below = match racks {
        0 => Below::workers(world_size),
        _ => (0..racks).map(|number| Below::Switch(rack(number))).collect(),
    };
    let job = job(protocol, world_size, slots, shards);
    let parent = parent.then_some(Parent { port: PortId(2000), child: ChildId(0) });
    let members = (0..below.len() as u16).map(PortId).collect();
    SwitchConfig { job, tree: TreeId(0), members, below, group: GroupId(1), parent }
}

fn a_job_is_exact(values: Values) {
    for protocol in protocols::ALL {
        for (world_size, racks, parent) in
            [(1, 0, false), (8, 0, true), (65, 0, false), (16, 2, false), (1023, 31, true)]
        {
            for (slots, shards) in [(1, 1), (64, 2), (512, 1)] {
                let config = config(protocol, world_size, racks, slots, shards, parent);
                let (machine, allocated) = allocated(|| protocol.switch(values, &config));
                let said = machine.map_or(0, |machine| machine.memory_bytes());
                assert_eq!(said, allocated, "{}: {world_size} ranks, {racks} racks, {slots} slots", protocol.name);
            }
        }
    }
}

#[test]
fn a_switch_says_what_a_job_holds_to_the_byte() {
    a_job_is_exact(Values::Elements);
    a_job_is_exact(Values::Fingerprint);
}

#[test]
fn a_machine_that_jobs_share_says_what_it_holds_to_the_byte() {
    let shared = protocols::ALL.iter().filter_map(|protocol| Some((protocol, protocol.shared.as_ref()?)));
    for (protocol, shared) in shared {
        for (elements_per_packet, defaults) in [(1, Defaults::Real), (256, Defaults::Simulated), (352, Defaults::Real)]
        {
            let options = shared.options.read_with(&BTreeMap::new(), defaults).unwrap();
            let config = SharedSwitchConfig { node: NodeId(9), elements_per_packet, options };
            let (mut machine, mut allocated_bytes) = allocated(|| (shared.machine)(Values::Elements, &config));
            assert_eq!(machine.memory_bytes(), allocated_bytes, "{}: {config:?}", protocol.name);
            assert_eq!(
                (shared.memory)(Values::Elements, &config),
                allocated_bytes as u64,
                "{}: as charged",
                protocol.name
            );
            // The plans are the driver's.
            let (alone, mut of_jobs, mut removed) = (allocated_bytes, 0, Vec::new());
            for job in 1..100 {
                let plan = shared_job(protocol, JobId(job));
                let taken = allocated(|| machine.add_job(&plan)).1;
                (allocated_bytes, of_jobs) = (allocated_bytes + taken, of_jobs + taken as u64);
                assert_eq!(machine.memory_bytes(), allocated_bytes, "{}: {job} jobs", protocol.name);
                let charged = u64::from(job) * plan.share_bytes;
                let charges_jobs = plan.share_bytes > 0;
                assert!(!charges_jobs || of_jobs <= charged, "{}: {job} jobs, {of_jobs} bytes", protocol.name);
                removed.push(plan);
            }
            for job in 1..100 {
                let given_back = allocated(|| machine.remove_job(JobId(job))).1 as isize;
                allocated_bytes = allocated_bytes.checked_add_signed(given_back).unwrap();
                assert_eq!(machine.memory_bytes(), allocated_bytes, "{}: {job} jobs have gone", protocol.name);
            }
            assert_eq!(
                allocated_bytes, alone,
                "{}: a machine whose jobs have gone holds what it held before them",
                protocol.name
            );
        }
    }
}

/// A job of two members at the switch's first ports.
fn shared_job(protocol: &Protocol, id: JobId) -> SharedJob {
    let job = JobConfig { job: id, ..job(protocol, 2, 64, 1) };
    let hosts = [NodeId(0), NodeId(1)].into();
    let fabric = FabricPlan { hosts, switches: [NodeId(9); 2].into(), roots: [].into() };
    let ports = vec![Some(PortId(0)), Some(PortId(1))];
    SharedJob { share_bytes: protocol.share_bytes(&job, 2), job, fabric, ports, trees: Vec::new() }
}

/// What a control plane charges is what the slots take, and blocks of half the width take half: in levels, and where
/// the job's members have said so.
#[test]
fn accumulators_are_as_wide_as_the_jobs_widest_block() {
    let allocated_bytes = |given: &[&str], levels: bool| {
        let has_both = |protocol: &&&Protocol| {
            let specs = protocol.options.specs;
            protocol.switch.is_some() && [Numbers::OPTION, NarrowBlocks::OPTION].iter().all(|spec| specs.contains(spec))
        };
        let protocol = protocols::ALL.iter().find(has_both).expect("a protocol with slots");
        let given = given.iter().map(|given| name_and_value(given).unwrap()).collect();
        let options = protocol.options.read(&given).unwrap();
        let mut config = config(protocol, 8, 0, 64, 1, false);
        (config.job.levels, config.job.options) = (levels, options.clone());
        let (machine, allocated_bytes) = allocated(|| protocol.switch(Values::Elements, &config));
        let shape =
            ShardShape { slots: 64, elements_per_packet: 64, children: 8, world_size: 8, levels, options: &options };
        let charged = (protocol.memory)(&shape) as usize;
        assert!(charged <= allocated_bytes && allocated_bytes < charged + 4096, "{charged} for {allocated_bytes}");
        drop(machine);
        allocated_bytes
    };
    // Two versions of 64 slots, four nodes each of 64 elements of four bytes; in fixed point one node.
    let half = 2 * 64 * 64 * 4;
    assert_eq!(allocated_bytes(&[], false) - allocated_bytes(&["narrow_blocks=half"], false), 4 * half);
    assert_eq!(
        allocated_bytes(&["numbers=fixed"], false) - allocated_bytes(&["numbers=fixed", "narrow_blocks=half"], false),
        half
    );
    for given in [&[][..], &["numbers=fixed"]] {
        let said = [given, &["narrow_blocks=half"]].concat();
        assert_eq!(
            allocated_bytes(given, true),
            allocated_bytes(&said, false),
            "in levels a packet holds partial sums"
        );
    }
}

/// Packets of a job of four ranks round a switch: gradients of block after block, again and again, and results.
#[test]
fn no_packet_takes_memory_in_a_switch_that_jobs_share_and_sums_or_passes_on() {
    // The processor's features are looked up once in a process.
    tributary_numeric::native(DType::I32, ReduceOp::Sum).expect("integers are summed");
    let family = protocols::ALL.iter().filter(|protocol| protocol.options.specs.contains(&LEVELS_OPTION));
    for (protocol, aggregators) in family.flat_map(|protocol| [(protocol, "64"), (protocol, "2")]) {
        let shared = protocol.shared.as_ref().expect("the family's jobs share");
        let given = [("aggregators", aggregators)].map(|(name, text)| (name.to_owned(), text.to_owned()));
        let options = shared.options.read(&given.into_iter().collect()).unwrap();
        let config = SharedSwitchConfig { node: NodeId(9), elements_per_packet: 64, options };
        let mut machine = (shared.machine)(Values::Elements, &config);
        let mut plan = shared_job(protocol, JobId(1));
        plan.job.world_size = 4;
        plan.fabric.hosts = (0..4).map(NodeId).collect();
        plan.fabric.switches = [NodeId(9); 4].into();
        plan.ports = (0..4).map(|port| Some(PortId(port))).collect();
        machine.add_job(&plan);
        let (mut bytes, mut buf) = (vec![0; 2048], vec![0; 2048]);
        let mut packet = |kind: Kind, seq: u32, wid: u16, flags: Flags, port: u16| {
            let (exponent, spec) = (BlockExponent::ZERO, Spec::allreduce(1 << 20, DType::I32, ReduceOp::Sum));
            let (prog, index, received, wid, attempt) = (0, 0, 0, Rank(wid), 0);
            let count = u16::from(kind == Kind::Gradient);
            let scale = exponent;
            plan.job.common().emit(&mut bytes);
            Header { seq, prog, index, received, flags, wid, count, attempt, exponent, scale, spec }
                .emit(kind, &mut bytes);
            let len = HEADER_LEN + 4 * 64;
            let mut packet = PacketMut { bytes: &mut bytes[..len], len, wire_len: len, ecn: Ecn::Capable };
            let before = ALLOCATIONS.get();
            machine.process(Time::ZERO, PortId(port), &mut packet, &NoQueues);
            while machine.poll_transmit(Time::ZERO, &mut buf).is_some() {}
            machine.handle_timeout(Time::ZERO);
            assert_eq!(ALLOCATIONS.get(), before, "{}: {kind:?} {seq} of {wid}", protocol.name);
        };
        for seq in 1..1000u32 {
            let server = ((seq - 1) % 4) as u16;
            for wid in (0..4).filter(|&wid| wid != server) {
                packet(Kind::Gradient, seq, wid, Flags::default(), wid);
            }
            let again = if seq % 7 == 0 { Flags::RESEND } else { Flags::default() };
            packet(Kind::Gradient, seq, (server + 1) % 4, again, (server + 1) % 4);
            packet(Kind::Query, seq, (server + 1) % 4, Flags::default(), (server + 1) % 4);
            if seq > 20 {
                packet(Kind::Aack, seq - 20, server, Flags::MULTICAST, ((seq - 21) % 4) as u16);
            }
        }
        assert!(machine.report().contributions > 100);
    }
}
