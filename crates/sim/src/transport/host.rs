//! All flows that begin or end at one host. Acknowledgements are sent before data; flows share the link round robin.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;

use super::flow::{Receiver, Sender};
use super::{BEYOND_UDP, Body, Segment, TransportSettings};
use crate::events::TimerTable;
use crate::workload::FlowSource;

/// A flow that this host began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Its receiver.
    pub to: NodeId,
    /// The bytes of its data.
    pub bytes: u64,
    /// When it arose.
    pub at: Time,
}

/// A flow that this host has received completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its sender.
    pub from: NodeId,
    /// Its number at the sender.
    pub flow: u32,
    /// When its last byte came.
    pub at: Time,
}

/// A packet that this host must send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiver.
    pub to: NodeId,
    /// The flow's number at its sender.
    pub flow: u32,
    /// Its length on the wire, as UDP payload.
    pub wire_len: usize,
    /// Acknowledgements do not support ECN, like TCP's.
    pub ecn: Ecn,
    /// The lane of the flow's data.
    pub lane: u8,
}

/// How many flows and sources that the run waits for have begun and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// How many began.
    pub opened: u64,
    /// How many ended.
    pub closed: u64,
}

/// The transport of one host.
pub struct TransportHost {
    settings: TransportSettings,
    /// By number; `None` when the flow is done.
    senders: Vec<Option<Box<Sender>>>,
    started: Vec<Started>,
    /// Senders that may send, round robin.
    ready: VecDeque<u32>,
    timers: TimerTable,
    acks: VecDeque<(NodeId, Segment)>,
    /// By sender and number, until all of the flow has arrived.
    receivers: BTreeMap<(NodeId, u32), Box<Receiver>>,
    /// Flows that have arrived completely. They are kept separately, because their number grows, and most packets belong
    /// to others.
    complete: BTreeSet<(NodeId, u32)>,
    arrived: Vec<Arrived>,
    sources: Vec<FlowSource>,
    /// What has happened to flows on lanes: one has come from a host, or one from here has arrived.
    on_lanes: Vec<(u8, Option<NodeId>)>,
    balance: Balance,
    open: u64,
    retransmissions: u64,
    refused: u64,
}

impl TransportHost {
    /// A host without flows.
    pub fn new(settings: TransportSettings) -> TransportHost {
        TransportHost {
            settings,
            senders: Vec::new(),
            started: Vec::new(),
            ready: VecDeque::new(),
            timers: TimerTable::new(0),
            acks: VecDeque::new(),
            receivers: BTreeMap::new(),
            complete: BTreeSet::new(),
            arrived: Vec::new(),
            sources: Vec::new(),
            on_lanes: Vec::new(),
            balance: Balance::default(),
            open: 0,
            retransmissions: 0,
            refused: 0,
        }
    }

    /// Begins a flow that the run waits for; returns its number, or `None` if it is too long for its packets to be
    /// numbered. Both ends report a flow on a lane other than 0 when it has arrived ([`TransportHost::take_on_lanes`]).
    pub fn start(&mut self, now: Time, to: NodeId, bytes: u64, lane: u8) -> Option<u32> {
        self.begin(now, to, bytes, (true, lane))
    }

    fn begin(&mut self, now: Time, to: NodeId, bytes: u64, (awaited, lane): (bool, u8)) -> Option<u32> {
        let number = u32::try_from(self.senders.len()).ok()?;
        let mut sender = Sender::new(&self.settings, number, to, bytes.max(1), awaited)?;
        sender.lane = lane;
        self.senders.push(Some(Box::new(sender)));
        self.started.push(Started { to, bytes, at: now });
        self.timers.grow(self.senders.len());
        self.balance.opened += u64::from(awaited);
        self.enlist(number);
        Some(number)
    }

    /// Adds a source that begins flows. The run waits for the flows, and for the source if it ends by itself.
    pub fn add_source(&mut self, source: FlowSource) {
        self.balance.opened += u64::from(source.ends());
        self.sources.push(source);
    }

    /// Flows on lanes that have come from a host, or, without a host, that began here and have arrived, since the last
    /// call.
    pub fn take_on_lanes(&mut self) -> Vec<(u8, Option<NodeId>)> {
        std::mem::take(&mut self.on_lanes)
    }

    /// Handles a packet for this host, with its sender and its lane.
    pub fn handle_packet(&mut self, now: Time, (from, lane): (NodeId, u8), bytes: &[u8], ecn: Ecn) {
        let Some(segment) = Segment::parse(bytes) else {
            self.refused += 1;
            return;
        };
        match segment.body {
            Body::Data { packets, .. } => self.handle_data(now, (from, lane), segment, packets, ecn),
            Body::Ack { marked, next } => self.handle_ack(now, from, segment, marked, next),
        }
    }

    fn handle_data(&mut self, now: Time, (from, lane): (NodeId, u8), segment: Segment, packets: u32, ecn: Ecn) {
        let flow = (from, segment.flow);
        let next = match self.receivers.entry(flow) {
            // A packet that was sent twice may come after its flow was complete.
            Entry::Vacant(_) if self.complete.contains(&flow) => packets,
            entry => {
                let receiver = entry.or_default();
                receiver.take(segment.packet);
                receiver.next()
            }
        };
        if next == packets && self.receivers.remove(&flow).is_some() {
            self.complete.insert(flow);
            self.arrived.push(Arrived { from, flow: segment.flow, at: now });
            if lane > 0 {
                self.on_lanes.push((lane, Some(from)));
            }
        }
        let body = Body::Ack { marked: ecn == Ecn::CongestionExperienced, next };
        self.acks.push_back((from, Segment { body, ..segment }));
    }

    fn handle_ack(&mut self, now: Time, from: NodeId, segment: Segment, marked: bool, next: u32) {
        let Some(entry) = self.senders.get_mut(segment.flow as usize) else {
            self.refused += 1;
            return;
        };
        // A flow that is done may get late acknowledgements of packets that were sent twice.
        let Some(sender) = entry else { return };
        let possible = sender.to == from;
        if !possible || !sender.handle_ack(now, segment.packet, segment.transmission, marked, next) {
            self.refused += 1;
            return;
        }
        if sender.is_done() {
            self.retransmissions += sender.retransmissions;
            self.balance.closed += u64::from(sender.awaited);
            if sender.lane > 0 {
                self.on_lanes.push((sender.lane, None));
            }
            *entry = None;
        } else {
            self.enlist(segment.flow);
        }
    }

    /// Queues a flow for sending, if it may send, and sets its timer.
    fn enlist(&mut self, number: u32) {
        let Some(sender) = &mut self.senders[number as usize] else { return };
        self.timers.set(number, sender.deadline());
        if !sender.ready && sender.may_send() {
            sender.ready = true;
            self.ready.push_back(number);
        }
    }

    /// The next packet, written to the first [`super::HEADER_LEN`] bytes of `buf`.
    pub fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Outgoing> {
        if let Some((to, segment)) = self.acks.pop_front() {
            segment.write(buf);
            return Some(Outgoing { to, flow: segment.flow, wire_len: BEYOND_UDP, ecn: Ecn::NotCapable, lane: 0 });
        }
        while let Some(number) = self.ready.pop_front() {
            let Some(sender) = &mut self.senders[number as usize] else { continue };
            sender.ready = false;
            if !sender.may_send() {
                continue;
            }
            let segment = sender.transmit(now);
            let (to, lane) = (sender.to, sender.lane);
            self.enlist(number);
            segment.write(buf);
            let Body::Data { bytes, .. } = segment.body else { unreachable!("a sender sends data") };
            let wire_len = BEYOND_UDP + usize::from(bytes);
            return Some(Outgoing { to, flow: number, wire_len, ecn: Ecn::Capable, lane });
        }
        None
    }

    /// When to call [`TransportHost::handle_timeout`]; possibly earlier than needed.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        let source = self.sources.iter().filter_map(FlowSource::next).min();
        [self.timers.earliest(), source].into_iter().flatten().min()
    }

    /// Runs the retransmission timers and the sources.
    pub fn handle_timeout(&mut self, now: Time) {
        for index in 0..self.sources.len() {
            while let Some((to, bytes)) = self.sources[index].pop(now) {
                self.begin(now, to, bytes, (self.sources[index].ends(), 0));
            }
            self.balance.closed += u64::from(self.sources[index].has_just_ended());
        }
        while let Some(number) = self.timers.pop_due(now) {
            if let Some(sender) = &mut self.senders[number as usize]
                && sender.deadline().is_some_and(|due| due <= now)
            {
                sender.handle_timeout(now);
            }
            self.enlist(number);
        }
    }

    /// What has begun and ended since the last call.
    pub fn take_balance(&mut self) -> Balance {
        let balance = std::mem::take(&mut self.balance);
        self.open = self.open + balance.opened - balance.closed;
        balance
    }

    /// How many have begun and not ended, according to [`TransportHost::take_balance`].
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Flows that began here, by number.
    pub fn started(&self) -> &[Started] {
        &self.started
    }

    /// Flows that ended here, in order of time.
    pub fn arrived(&self) -> &[Arrived] {
        &self.arrived
    }

    /// The window in packets of a flow that is not done.
    pub fn window(&self, flow: u32) -> Option<u64> {
        self.senders.get(flow as usize)?.as_ref().map(|sender| sender.window())
    }

    /// How many packets were sent again.
    pub fn retransmissions(&self) -> u64 {
        self.retransmissions + self.senders.iter().flatten().map(|sender| sender.retransmissions).sum::<u64>()
    }

    /// How many packets were invalid.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Rng};
    use crate::transport::HEADER_LEN;
    use tributary_proto::contract::time::Span;

    const HOSTS: [NodeId; 2] = [NodeId(0), NodeId(1)];
    const DELAY: Span = Span::from_micros(10);

    /// Exchanges the packets of two endpoints over a wire that loses this share of them; returns the time of the last
    /// arrival.
    fn exchange(ends: &mut [TransportHost; 2], loss: f64) -> Time {
        let (mut now, mut last) = (Time::ZERO, Time::ZERO);
        let mut rng = Rng::new(1, Purpose::LinkFaults, 0);
        let mut wire: VecDeque<(Time, usize, [u8; HEADER_LEN])> = VecDeque::new();
        loop {
            for (index, end) in ends.iter_mut().enumerate() {
                let mut buf = [0; HEADER_LEN];
                while end.poll_transmit(now, &mut buf).is_some() {
                    if !rng.chance(loss) {
                        wire.push_back((now + DELAY, 1 - index, buf));
                    }
                }
            }
            let timeout = ends.iter_mut().filter_map(TransportHost::poll_timeout).min();
            match (wire.front(), timeout) {
                (Some(&(at, to, bytes)), timeout) if timeout.is_none_or(|timeout| at <= timeout) => {
                    (now, last) = (at, at);
                    wire.pop_front();
                    ends[to].handle_packet(now, (HOSTS[1 - to], 0), &bytes, Ecn::Capable);
                }
                (_, Some(timeout)) => {
                    now = now.max(timeout);
                    ends.iter_mut().for_each(|end| end.handle_timeout(now));
                }
                (_, None) => return last,
            }
        }
    }

    fn pair() -> [TransportHost; 2] {
        std::array::from_fn(|_| TransportHost::new(TransportSettings::default()))
    }

    #[test]
    fn slow_start_doubles_the_window_each_round() {
        let mut ends = pair();
        ends[0].start(Time::ZERO, HOSTS[1], 1460 * 70, 0);
        let end = exchange(&mut ends, 0.0);
        // 10, 20 and 40 packets take three rounds; the last packet arrives half a round before the last
        // acknowledgement.
        assert_eq!(end, Time::ZERO + DELAY.times(6));
        assert_eq!(ends[1].arrived(), [Arrived { from: HOSTS[0], flow: 0, at: Time::ZERO + DELAY.times(5) }]);
    }

    #[test]
    fn flows_both_ways_arrive_whole_over_a_lossy_wire() {
        for loss in [0.5, 0.3, 0.1, 0.02] {
            let mut ends = pair();
            for flow in 0..5 {
                ends[0].start(Time::ZERO, HOSTS[1], 1000 * (flow * 17 + 1), 0);
                ends[1].start(Time::ZERO, HOSTS[0], 1000 * (flow * 31 + 1), 0);
            }
            exchange(&mut ends, loss);
            for end in &mut ends {
                assert_eq!(end.arrived().len(), 5, "{loss} lost");
                assert_eq!(end.take_balance(), Balance { opened: 5, closed: 5 });
                assert_eq!(end.refused(), 0);
            }
            assert!(ends[0].retransmissions() > 0);
        }
    }

    #[test]
    fn garbage_is_counted_and_changes_nothing() {
        let mut ends = pair();
        ends[0].start(Time::ZERO, HOSTS[1], 10, 0);
        ends[0].handle_packet(Time::ZERO, (HOSTS[1], 0), &[7; HEADER_LEN], Ecn::Capable);
        let mut ack = [0; HEADER_LEN];
        let body = Body::Ack { marked: false, next: 1 };
        Segment { flow: 9, packet: 0, transmission: 0, body }.write(&mut ack);
        ends[0].handle_packet(Time::ZERO, (HOSTS[1], 0), &ack, Ecn::Capable);
        assert_eq!(ends[0].refused(), 2);
        exchange(&mut ends, 0.0);
        assert_eq!(ends[1].arrived().len(), 1);
    }
}
