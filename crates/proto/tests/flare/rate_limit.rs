//! An operator that takes long for each packet takes no more than its part of a thread while other jobs' packets come.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::{JobConfig, SwitchConfig};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Host, HostEvent};
use tributary_proto::contract::ids::{GroupId, JobId, PortId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::rate_limit::INSTRUCTIONS_PER_SECOND;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::flare::PROTOCOL;

use crate::custom_op::{CALL, OWN, composed, inputs, own_job};
use crate::harness::reduction::{host, in_place, output, switch_config};
use crate::setup::job;

/// What a packet's way through the thread takes, except for what operators do.
const EACH_PACKET: Span = Span::from_micros(1);

/// Jobs of two ranks on one thread of one switch: the first one's ports come first.
struct Thread {
    pipeline: Pipeline,
    jobs: Vec<(JobConfig, Vec<Box<dyn Host>>)>,
    now: Time,
    packets: Vec<u64>,
}

impl Thread {
    fn new(jobs: Vec<JobConfig>) -> Thread {
        let mut pipeline = Pipeline::with_instruction_limit();
        for (number, job) in jobs.iter().enumerate() {
            let members = vec![PortId(2 * number as u16), PortId(2 * number as u16 + 1)];
            let below = tributary_proto::contract::config::Below::workers(2);
            let config = SwitchConfig {
                members: members.clone(),
                group: GroupId(number as u16),
                ..switch_config(job, 0, &below, None)
            };
            let machine = PROTOCOL.switch(Values::Elements, &config);
            let installed = InstalledJob { protocol: job.protocol, key: job.key, members, others: Vec::new(), machine };
            pipeline.install(job.job, installed);
        }
        let packets = vec![0; jobs.len()];
        let with_hosts = |job: JobConfig| (job.clone(), vec![host(&job, 0, 0), host(&job, 1, 1)]);
        Thread { pipeline, jobs: jobs.into_iter().map(with_hosts).collect(), now: Time::ZERO, packets }
    }

    /// One packet of one rank, if it has one.
    fn turn(&mut self, number: usize, rank: usize) -> bool {
        let mut buf = vec![0; 2_000];
        let Some(sent) = self.jobs[number].1[rank].poll_transmit(self.now, &mut buf) else { return false };
        self.now += EACH_PACKET;
        self.packets[number] += 1;
        let mut packet = PacketMut::new(&mut buf[..sent.len], Ecn::NotCapable);
        let ingress = PortId((2 * number + rank) as u16);
        let verdict = self.pipeline.process(self.now, ingress, &mut packet, &NoQueues);
        let len = packet.len;
        self.deliver(number, verdict, &buf[..len]);
        while let Some(emission) = self.pipeline.poll_transmit(self.now, &mut buf) {
            self.deliver(number, emission.verdict, &buf[..emission.len]);
        }
        true
    }

    fn deliver(&mut self, number: usize, verdict: Verdict, bytes: &[u8]) {
        for (rank, host) in self.jobs[number].1.iter_mut().enumerate() {
            let is_for = match verdict {
                Verdict::Group(_) => true,
                Verdict::Port(port) => port == PortId((2 * number + rank) as u16),
                _ => false,
            };
            if is_for {
                let packet = Packet { bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
                let _ = host.handle_packet(self.now, Addr::Switch(TreeId(0)), packet);
            }
        }
    }

    /// Every rank has a turn; then timers do.
    fn round(&mut self) {
        let ranks = (0..self.jobs.len()).flat_map(|number| [(number, 0), (number, 1)]);
        let sent = ranks.filter(|&(number, rank)| self.turn(number, rank)).count();
        let hosts = self.jobs.iter_mut().flat_map(|(_, hosts)| hosts);
        if sent == 0 {
            self.now = hosts.filter_map(|host| host.poll_timeout()).min().expect("somebody waits").max(self.now);
        }
        for host in self.jobs.iter_mut().flat_map(|(_, hosts)| hosts) {
            if host.poll_timeout().is_some_and(|due| due <= self.now) {
                host.handle_timeout(self.now);
            }
        }
    }

    fn dropped(&self, number: usize) -> u64 {
        self.pipeline.report(self.jobs[number].0.job).unwrap().drops.get(DropReason::TooSlow)
    }
}

#[test]
fn a_job_with_a_slow_operator_gets_its_share_and_the_other_job_goes_on_meanwhile() {
    let slow = own_job(2, 8, 16, "ranks");
    let quick = JobConfig { job: JobId(2), ..job(2, 8, 16, &[]) };
    let mut thread = Thread::new(vec![slow, quick]);
    let inputs = inputs(2, 2_000);
    for (host, input) in thread.jobs[0].1.iter_mut().zip(&inputs) {
        host.submit(Time::ZERO, in_place(input, OWN)).unwrap();
    }
    let (mut events, mut sums) = (vec![Vec::new(), Vec::new()], 0);
    while events.iter().any(Vec::is_empty) {
        let now = thread.now;
        for host in &mut thread.jobs[1].1 {
            let done = std::iter::from_fn(|| host.poll_event()).inspect(|event| {
                assert!(matches!(event, HostEvent::Done { .. }));
            });
            if done.count() > 0 || host.stats().packets_sent == 0 {
                host.submit(now, in_place(&[1.0f32; 100], ReduceOp::Sum)).unwrap();
                sums += 1;
            }
        }
        thread.round();
        for (events, host) in events.iter_mut().zip(&mut thread.jobs[0].1) {
            events.extend(std::iter::from_fn(|| host.poll_event()));
        }
    }
    assert!(output(events, DType::U8, inputs[0].len()) == composed(&inputs), "what was dropped has come again");
    // A call for each of the 200 blocks, and what the job may have in advance.
    let seconds = thread.now.since(Time::ZERO).as_secs_f64();
    let calls = 200.0;
    assert!(calls * CALL as f64 <= (seconds + 0.001) * INSTRUCTIONS_PER_SECOND as f64 + CALL as f64, "{seconds} s");
    assert!(thread.dropped(0) > 0);
    assert_eq!(thread.dropped(1), 0);
    assert!(thread.packets[1] > 20 * 200 && sums > 500, "{} packets, {sums} sums", thread.packets[1]);
}

#[test]
fn a_job_that_is_alone_has_the_whole_thread() {
    let mut thread = Thread::new(vec![own_job(2, 8, 16, "ranks")]);
    let inputs = inputs(2, 2_000);
    for (host, input) in thread.jobs[0].1.iter_mut().zip(&inputs) {
        host.submit(Time::ZERO, in_place(input, OWN)).unwrap();
    }
    let mut events = [Vec::new(), Vec::new()];
    while events.iter().any(Vec::is_empty) {
        thread.round();
        for (events, host) in events.iter_mut().zip(&mut thread.jobs[0].1) {
            events.extend(std::iter::from_fn(|| host.poll_event()));
        }
    }
    assert_eq!(thread.dropped(0), 0);
    assert_eq!(thread.packets[0], 400, "each block once");
}
