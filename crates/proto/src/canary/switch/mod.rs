//! The switch's side (§3.1, §3.2): it sums contributions that meet here by chance, and remembers which ports they came
//! from.
//!
//! The entry that a contribution finds may be
//! - free: the contribution opens a descriptor;
//! - its own block's, which still collects: the contribution is added;
//! - its own block's, which was sent: the contribution is a straggler and is passed on. Stragglers that follow it
//!   closely are collected again; otherwise one contribution that comes too early would keep all others from being
//!   summed. The operator can choose the paper's switch, which passes on every straggler;
//! - another block's (a collision): the contribution is passed on to the leader, which restores the subtree.
//!
//! The sum on its way back goes to the descriptor's children and frees the descriptor. The switch remembers nothing
//! else: when it restarts, the blocks that it held are lost, and hosts issue them again.

mod array;
mod counters;
mod timeout;

use self::array::{Array, BlockId, Descriptor, State};
use self::counters::{Counters, JobCounters, figures};
use self::timeout::Timeout;
use super::protocol::FlushTimeout;
use super::vector::Codec;
use super::wire::{
    HEADER_LEN, Header, Kind, NO_SWITCH, SHARD_PORTS, ports_of_shard, put_bypass, put_children, put_sum,
};
use crate::contract::config::{SharedJob, SharedSwitchConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{JobId, NodeId, PortId, PortSet};
use crate::contract::metric::Metric;
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::state::SharedSwitchState;
use crate::contract::switch::{Emission, PortView, SharedReport, SharedSwitch, Switch, SwitchReport, Verdict};
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::{COMMON_LEN, u16};
use crate::contract::work::Instrumented;
use crate::heap::{heap_bytes, insert_exactly};

/// What one switch of a fabric does for all jobs.
#[derive(Clone, Hash)]
pub struct CanarySwitch {
    node: NodeId,
    elements_per_packet: usize,
    array: Array,
    timeout: Timeout,
    /// Stragglers that closely follow another straggler are summed.
    collects_stragglers: bool,
    /// Ascending by job.
    jobs: Vec<(JobId, JobCounters)>,
    counters: Counters,
    values: Values,
}

fn job_of(packet: &PacketMut<'_>) -> JobId {
    JobId(u16(packet.bytes, 6))
}

impl CanarySwitch {
    /// A machine with all its memory.
    pub fn new(values: Values, config: &SharedSwitchConfig) -> CanarySwitch {
        let timeout = Timeout::new(FlushTimeout::of(&config.options));
        CanarySwitch {
            node: config.node,
            elements_per_packet: config.elements_per_packet.into(),
            array: Array::new(values, config, timeout.steps()),
            timeout,
            collects_stragglers: config.options.flag("collect_stragglers"),
            jobs: Vec::new(),
            counters: Counters::default(),
            values,
        }
    }

    /// Bytes that a machine without jobs holds.
    pub fn bytes_of(values: Values, config: &SharedSwitchConfig) -> u64 {
        let timeout = Timeout::new(FlushTimeout::of(&config.options));
        (size_of::<Self>() + timeout.memory_bytes()) as u64 + Array::bytes_of(values, config, timeout.steps())
    }

    fn receive(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>) -> Result<Verdict, DropReason> {
        let header = Header::parse(&packet.bytes[..packet.len])?;
        let job = self.job_at(job_of(packet))?;
        if header.bypass && header.destination != self.node {
            return Ok(Verdict::Route(header.destination));
        }
        match Kind::of(packet.bytes)? {
            Kind::Reduce if !header.bypass => self.reduce(now, ingress, job, &header, packet),
            Kind::Broadcast | Kind::Failure if header.multicast => self.distribute(job, &header, packet),
            Kind::Reduce | Kind::Broadcast | Kind::Failure => Err(DropReason::BadField),
            Kind::Request | Kind::Query | Kind::Report | Kind::Mismatch | Kind::Claim => Err(DropReason::BadKind),
        }
    }

    /// A contribution (§3.1.1, §3.5).
    fn reduce(
        &mut self,
        now: Time,
        ingress: PortId,
        job: usize,
        header: &Header,
        packet: &mut PacketMut<'_>,
    ) -> Result<Verdict, DropReason> {
        let codec = Codec::of(self.values, header);
        let elements = codec.elements(packet.len, packet.wire_len)?;
        if header.counter == 0 || header.counter >= header.hosts || ingress.index() >= PortSet::CAPACITY {
            return Err(DropReason::BadField);
        }
        let block = BlockId { job: job_of(packet), attempt: header.attempt, id: header.id };
        let counters = &mut self.jobs[job].1;
        counters.contributions += 1;
        let index = self.array.index_of(block);
        let Some(entry) = self.array.get_mut(index) else {
            return Ok(self.begin(now, ingress, index, block, elements, header, packet));
        };
        let stored = &mut entry.header;
        let fits = entry.block == block
            && usize::from(entry.elements) == elements
            && (stored.destination, stored.root, stored.hosts) == (header.destination, header.root, header.hosts)
            && stored.spec == header.spec;
        if !fits {
            return Ok(self.collide(ingress, header, packet));
        }
        entry.children.insert(ingress);
        (entry.last_from, entry.last_at) = (ingress, now);
        let passed = entry.passed.saturating_add(header.counter);
        let completes = |full| entry.passed < full && passed >= full;
        let is_last = completes(entry.full) || passed >= header.hosts - 1;
        entry.passed = passed;
        if entry.state == State::Sent {
            self.counters.stragglers += 1;
            counters.stragglers += 1;
            if is_last || !self.collects_stragglers || entry.alone_until <= now {
                entry.wait = self.timeout.expectation(block.job, header.root, header.hosts).wait;
                entry.alone_until = now + self.timeout.span(entry.wait);
                self.array.renew(now, index);
                return Ok(self.up(header, packet));
            }
            (entry.header, entry.due) = (header.summed(), entry.alone_until);
            self.counters.work.copied += elements as u64;
            self.array.reopen(index, codec, &packet.bytes[HEADER_LEN..packet.len]);
            return Ok(Verdict::Consume);
        }
        stored.counter = stored.counter.saturating_add(header.counter);
        stored.contributors = stored.contributors.wrapping_add(header.contributors);
        stored.exponent_hint.join(&header.exponent_hint);
        let sum = *stored;
        self.counters.work.combined += elements as u64;
        self.array.add(index, codec, &packet.bytes[HEADER_LEN..packet.len]);
        Ok(if is_last { self.go_on(now, index, &sum, header, packet) } else { Verdict::Consume })
    }

    /// No contribution is missing, so the sum leaves at once: in the packet of the last contribution, or in a packet of
    /// its own where the sum is wider than the contributions.
    fn go_on(&mut self, now: Time, index: u32, sum: &Header, last: &Header, packet: &mut PacketMut<'_>) -> Verdict {
        if last.scale.is_some() {
            self.array.fill(now, index);
            return Verdict::Consume;
        }
        self.array.load(index, &mut packet.bytes[HEADER_LEN..packet.len]);
        put_sum(packet.bytes, sum.counter, sum.contributors, sum.exponent_hint);
        self.array.sent(now, index);
        self.counters.flushed_full += 1;
        self.counters.work.emitted += 1;
        self.up(last, packet)
    }

    /// The first contribution of a block that the switch sees.
    #[expect(clippy::too_many_arguments, reason = "all of a packet, taken apart once")]
    fn begin(
        &mut self,
        now: Time,
        ingress: PortId,
        index: u32,
        block: BlockId,
        elements: usize,
        header: &Header,
        packet: &mut PacketMut<'_>,
    ) -> Verdict {
        if elements > self.elements_per_packet {
            return self.collide(ingress, header, packet);
        }
        let mut children = PortSet::EMPTY;
        children.insert(ingress);
        let expectation = self.timeout.expectation(block.job, header.root, header.hosts);
        let mut common = [0; COMMON_LEN];
        common.copy_from_slice(&packet.bytes[..COMMON_LEN]);
        let descriptor = Descriptor {
            state: State::Open,
            block,
            elements: elements as u16,
            common,
            header: header.summed(),
            children,
            last_from: ingress,
            due: now + self.timeout.span(expectation.wait),
            wait: expectation.wait,
            passed: header.counter,
            full: expectation.full,
            alone_until: Time::ZERO,
            first_at: now,
            last_at: now,
        };
        if header.counter < expectation.full {
            let codec = Codec::of(self.values, header);
            self.counters.work.copied += elements as u64;
            self.array.open(index, descriptor, codec, &packet.bytes[HEADER_LEN..packet.len]);
            return Verdict::Consume;
        }
        self.array.pass(now, index, descriptor);
        self.counters.flushed_full += 1;
        self.up(header, packet)
    }

    /// Another block has the entry: the leader will restore the subtree behind the port (§3.2.1).
    fn collide(&mut self, ingress: PortId, header: &Header, packet: &mut PacketMut<'_>) -> Verdict {
        self.counters.collisions += 1;
        if let Ok(job) = self.job_at(job_of(packet)) {
            self.jobs[job].1.collisions += 1;
        }
        put_children(packet.bytes, self.node, ingress.0.into(), (ingress.0 / SHARD_PORTS) as u8);
        put_bypass(packet.bytes, true);
        Verdict::Route(header.destination)
    }

    /// Sends a contribution on: to the root, and from the root to the leader, past all switches between them.
    fn up(&self, header: &Header, packet: &mut PacketMut<'_>) -> Verdict {
        if header.root != self.node {
            return Verdict::Route(header.way());
        }
        put_bypass(packet.bytes, true);
        Verdict::Route(header.destination)
    }

    /// The sum or a failure, on its way from the leader (§3.1.2).
    fn distribute(&mut self, job: usize, header: &Header, packet: &mut PacketMut<'_>) -> Result<Verdict, DropReason> {
        put_bypass(packet.bytes, false);
        if header.bypass && header.switch_address == self.node {
            self.counters.restorations += 1;
            put_children(packet.bytes, NO_SWITCH, 0, 0);
            return Ok(Verdict::Multicast(ports_of_shard(header.shard, header.children)?));
        }
        // A failure names the next issue; the issue that failed is the one before.
        let attempt = match Kind::of(packet.bytes)? {
            Kind::Failure => header.attempt.checked_sub(1).ok_or(DropReason::BadField)?,
            _ => header.attempt,
        };
        let block = BlockId { job: job_of(packet), attempt, id: header.id };
        let index = self.array.index_of(block);
        let entry = self.array.get(index).filter(|entry| entry.block == block).ok_or(DropReason::NoDescriptor)?;
        let children = entry.children;
        if entry.state == State::Sent && header.attempt == attempt {
            let spread = entry.last_at.since(entry.first_at);
            self.timeout.sample(block.job, entry.header.root, entry.passed, spread);
        }
        self.jobs[job].1.blocks_completed += u64::from(header.attempt == attempt);
        self.array.free(index);
        self.counters.work.completed += 1;
        self.counters.work.emitted += 1;
        Ok(Verdict::Multicast(children))
    }
}

impl Switch for CanarySwitch {
    fn process(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>, _ports: &dyn PortView) -> Verdict {
        self.receive(now, ingress, packet).unwrap_or_else(Verdict::Drop)
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(index) = self.array.expired(now) {
            self.array.free(index);
            self.counters.expired += 1;
        }
    }

    /// Sends a partial sum whose wait is over.
    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission> {
        let (index, is_full) = self.array.due_to_send(now)?;
        let entry = self.array.get(index)?;
        let (header, elements, ingress) = (entry.header, usize::from(entry.elements), Some(entry.last_from));
        let is_first = entry.passed == header.counter;
        let codec = Codec::of(self.values, &header);
        let (len, wire_len) = (HEADER_LEN + codec.buffer_len(elements), HEADER_LEN + codec.wire_len(elements));
        buf[..COMMON_LEN].copy_from_slice(&entry.common);
        header.emit(buf);
        self.array.load(index, &mut buf[HEADER_LEN..len]);
        self.array.sent(now, index);
        if let Some(entry) = self.array.get_mut(index).filter(|_| !is_first && !is_full) {
            entry.wait = self.timeout.expectation(entry.block.job, header.root, header.hosts).wait;
            entry.alone_until = now + self.timeout.span(entry.wait);
        }
        let counter = if is_full { &mut self.counters.flushed_full } else { &mut self.counters.flushed_late };
        *counter += 1;
        self.counters.work.emitted += 1;
        let verdict = self.up(&header, &mut PacketMut { bytes: buf, len, wire_len, ecn: Ecn::NotCapable });
        Some(Emission { len, wire_len, ecn: Ecn::NotCapable, verdict, ingress })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.array.next_due()
    }

    fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        self.array.next_due_before(limit)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.array.memory_bytes() + self.timeout.memory_bytes() + heap_bytes(&self.jobs)
    }

    fn report(&self) -> SwitchReport {
        self.account(|_| true)
    }

    fn instrumented(&mut self) -> Option<&mut dyn Instrumented> {
        Some(self)
    }
}

impl CanarySwitch {
    /// Where a job's counters are. Packets of unknown jobs are dropped: they must not take descriptors.
    #[inline]
    fn job_at(&self, job: JobId) -> Result<usize, DropReason> {
        self.jobs.binary_search_by_key(&job, |&(job, _)| job).map_err(|_| DropReason::UnknownJob)
    }

    /// The report of the chosen jobs together.
    fn account(&self, of: impl Fn(JobId) -> bool) -> SwitchReport {
        let mut report = SwitchReport::default();
        for entry in self.array.iter().filter(|entry| of(entry.block.job)) {
            report.slots += 1;
            report.slots_waiting += u32::from(entry.state == State::Open);
        }
        for (_, counters) in self.jobs.iter().filter(|&&(job, _)| of(job)) {
            report.blocks_completed += counters.blocks_completed;
            report.contributions += counters.contributions;
        }
        report
    }
}

impl SharedSwitch for CanarySwitch {
    fn add_job(&mut self, plan: &SharedJob) {
        let new = (plan.job.job, JobCounters::default());
        match self.jobs.binary_search_by_key(&plan.job.job, |&(job, _)| job) {
            Ok(at) => self.jobs[at] = new,
            Err(at) => insert_exactly(&mut self.jobs, at, new),
        }
    }

    fn remove_job(&mut self, job: JobId) {
        self.jobs.retain(|&(other, _)| other != job);
        self.jobs.shrink_to_fit();
        self.array.free_job(job);
        self.timeout.forget(job);
    }

    fn report_job(&self, job: JobId) -> SwitchReport {
        let mut report = self.account(|other| other == job);
        let counters = self.jobs.iter().find(|&&(other, _)| other == job).map(|&(_, counters)| counters);
        let JobCounters { collisions, stragglers, .. } = counters.unwrap_or_default();
        report.metrics = vec![figures::collisions(collisions), figures::stragglers(stragglers)];
        report
    }

    fn report_shared(&self) -> SharedReport {
        let Counters { collisions, stragglers, flushed_late, flushed_full, restorations, expired, .. } = self.counters;
        let timeout = self.timeout.longest().as_secs_f64();
        SharedReport {
            slots: self.array.len(),
            slots_in_use: self.array.in_use,
            slots_peak: self.array.peak,
            metrics: vec![
                Metric::gauge("timeout_seconds", timeout, "How long a partial sum waits for more now, at most."),
                figures::collisions(collisions),
                figures::stragglers(stragglers),
                Metric::counter("flushed_late", flushed_late, "Partial sums that left because their time was up."),
                Metric::counter("flushed_full", flushed_full, "Sums that left because nothing was missing."),
                Metric::counter("restorations", restorations, "Packets that restored a subtree."),
                Metric::counter("expired", expired, "Descriptors freed because nobody needed them for a lease."),
            ],
        }
    }

    fn shared_state(&self) -> Option<&dyn SharedSwitchState> {
        Some(self)
    }
}
