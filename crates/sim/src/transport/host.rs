//! All flows that begin or end at one host. Acknowledgements are sent before data; flows share the link round robin.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;

use super::flow::Sender;
use super::receiver::{InOrder, Receiver};
use super::segment::{BEYOND_UDP, Body, HEADER_LEN, Segment};
use super::{Arrived, Balance, Kind, LONGEST_HEADER, Outgoing, Started, TransportSettings};
use crate::events::TimerTable;
use crate::net::{RECORDS_ON_LINKS, Records};
use crate::workload::FlowSource;

/// An acknowledgement that waits to be sent.
struct Answer {
    to: NodeId,
    segment: Segment,
    records: Option<Box<Records>>,
}

/// The transport of one host.
pub struct TransportHost {
    /// By class.
    settings: Arc<[TransportSettings]>,
    /// By number; `None` when the flow is done.
    senders: Vec<Option<Box<Sender>>>,
    started: Vec<Started>,
    /// Senders that may send, round robin.
    ready: VecDeque<u32>,
    /// Senders that may send at a time that their rate sets.
    paced: BTreeSet<(Time, u32)>,
    timers: TimerTable,
    acks: VecDeque<Answer>,
    /// By sender and number, until all of the flow has arrived.
    receivers: BTreeMap<(NodeId, u32), Box<Receiver>>,
    /// Flows that have arrived completely. They are kept separately, because their number grows, and most packets belong
    /// to others.
    complete: BTreeSet<(NodeId, u32)>,
    arrived: Vec<Arrived>,
    /// With the classes of their flows.
    sources: Vec<(FlowSource, u8)>,
    /// What has happened to flows on lanes: one has come from a host, or one from here has arrived.
    on_lanes: Vec<(u8, Option<NodeId>)>,
    balance: Balance,
    open: u64,
    /// Of flows that are done, by class.
    retransmissions: Vec<u64>,
    refused: u64,
}

impl TransportHost {
    /// A host without flows, all of one class.
    pub fn new(settings: TransportSettings) -> TransportHost {
        TransportHost::with_classes([settings].into())
    }

    /// A host without flows, with the settings of each class.
    pub fn with_classes(settings: Arc<[TransportSettings]>) -> TransportHost {
        TransportHost {
            retransmissions: vec![0; settings.len()],
            settings,
            senders: Vec::new(),
            started: Vec::new(),
            ready: VecDeque::new(),
            paced: BTreeSet::new(),
            timers: TimerTable::new(0),
            acks: VecDeque::new(),
            receivers: BTreeMap::new(),
            complete: BTreeSet::new(),
            arrived: Vec::new(),
            sources: Vec::new(),
            on_lanes: Vec::new(),
            balance: Balance::default(),
            open: 0,
            refused: 0,
        }
    }

    /// Begins a flow that the run waits for; returns its number, or `None` if it is too long for its packets to be
    /// numbered. Both ends report a flow on a lane other than 0 when it has arrived ([`TransportHost::take_on_lanes`]).
    pub fn start(&mut self, now: Time, to: NodeId, bytes: u64, lane: u8) -> Option<u32> {
        self.begin(now, to, bytes, Kind { awaited: true, lane, class: 0 })
    }

    /// Begins a flow of any kind; returns its number, or `None` as [`TransportHost::start`].
    pub fn begin(&mut self, now: Time, to: NodeId, bytes: u64, kind: Kind) -> Option<u32> {
        let number = u32::try_from(self.senders.len()).ok()?;
        let mut sender =
            Sender::new(self.settings.get(usize::from(kind.class))?, number, to, bytes.max(1), kind.awaited)?;
        sender.lane = kind.lane;
        self.senders.push(Some(Box::new(sender)));
        self.started.push(Started { to, bytes, at: now, class: kind.class });
        self.timers.grow(self.senders.len());
        self.balance.opened += u64::from(kind.awaited);
        self.enlist(number);
        Some(number)
    }

    /// Adds a source that begins flows of a class. The run waits for the flows, and for the source if it ends by itself.
    pub fn add_source(&mut self, source: FlowSource, class: u8) {
        self.balance.opened += u64::from(source.ends());
        self.sources.push((source, class));
    }

    /// Flows on lanes that have come from a host, or, without a host, that began here and have arrived, since the last
    /// call.
    pub fn take_on_lanes(&mut self) -> Vec<(u8, Option<NodeId>)> {
        std::mem::take(&mut self.on_lanes)
    }

    /// Handles a packet for this host, with its sender and its lane.
    pub fn handle_packet(&mut self, now: Time, (from, lane): (NodeId, u8), bytes: &[u8], ecn: Ecn) {
        let (header, behind) = bytes.split_at(bytes.len().min(HEADER_LEN));
        let Some(segment) = Segment::parse(header) else {
            self.refused += 1;
            return;
        };
        let records = Records::parse(behind).map(Box::new);
        match segment.body {
            Body::Data { packets, in_order, .. } => {
                if let Some(body) = self.handle_data(now, (from, lane), segment, (packets, in_order), ecn) {
                    self.acks.push_back(Answer { to: from, segment: Segment { body, ..segment }, records });
                }
            }
            Body::Ack { .. } | Body::Nack { .. } | Body::Trimmed => {
                self.handle_ack(now, from, segment, records.as_deref());
            }
        }
    }

    /// Handles a packet of which only the header has come.
    pub fn handle_trimmed(&mut self, now: Time, from: NodeId, bytes: &[u8]) {
        match Segment::parse(&bytes[..bytes.len().min(HEADER_LEN)]) {
            Some(segment @ Segment { body: Body::Data { .. }, .. }) => {
                let segment = Segment { body: Body::Trimmed, ..segment };
                self.acks.push_back(Answer { to: from, segment, records: None });
            }
            Some(segment) => self.handle_ack(now, from, segment, None),
            None => self.refused += 1,
        }
    }

    /// Takes a packet of data; returns the answer, unless there is none.
    fn handle_data(
        &mut self,
        now: Time,
        (from, lane): (NodeId, u8),
        segment: Segment,
        (packets, in_order): (u32, bool),
        ecn: Ecn,
    ) -> Option<Body> {
        let flow = (from, segment.flow);
        let mut taken = InOrder::Taken;
        let next = match self.receivers.entry(flow) {
            // A packet that was sent twice may come after its flow was complete.
            Entry::Vacant(_) if self.complete.contains(&flow) => packets,
            entry => {
                let receiver = entry.or_default();
                if in_order {
                    taken = receiver.take_in_order(segment.packet);
                } else {
                    receiver.take(segment.packet);
                }
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
        let marked = ecn == Ecn::CongestionExperienced;
        match taken {
            InOrder::Taken => Some(Body::Ack { marked, next }),
            InOrder::Refused => Some(Body::Nack { marked, next }),
            InOrder::Dropped => None,
        }
    }

    fn handle_ack(&mut self, now: Time, from: NodeId, segment: Segment, records: Option<&Records>) {
        let Some(entry) = self.senders.get_mut(segment.flow as usize) else {
            self.refused += 1;
            return;
        };
        // A flow that is done may get late acknowledgements of packets that were sent twice.
        let Some(sender) = entry else { return };
        if let Some(records) = records.filter(|_| sender.to == from) {
            sender.handle_telemetry(records.as_slice());
        }
        let possible = sender.to == from
            && match segment.body {
                Body::Ack { marked, next } => {
                    sender.handle_ack(now, segment.packet, segment.transmission, marked, next)
                }
                Body::Nack { next, .. } => sender.handle_nack(now, next),
                Body::Trimmed => sender.handle_trimmed(now, segment.packet, segment.transmission),
                Body::Data { .. } => false,
            };
        if !possible {
            self.refused += 1;
            return;
        }
        if sender.is_done() {
            let class = self.started[segment.flow as usize].class;
            self.retransmissions[usize::from(class)] += sender.retransmissions;
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

    /// The next packet, whose header is written to the beginning of `buf`; only flows with telemetry need all of
    /// [`LONGEST_HEADER`].
    pub fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Outgoing> {
        self.poll_transmit_where(now, buf, |_, _, _| true)
    }

    /// The same, of packets that may leave now, by their receiver, path and lane. A call that says yes is the last.
    pub fn poll_transmit_where(
        &mut self,
        now: Time,
        buf: &mut [u8],
        mut may: impl FnMut(NodeId, u32, u8) -> bool,
    ) -> Option<Outgoing> {
        let answer = self.acks.iter().position(|answer| may(answer.to, answer.segment.flow, 0));
        if let Some(Answer { to, segment, records }) = answer.and_then(|answer| self.acks.remove(answer)) {
            segment.write(buf);
            let (header_len, wire_len) = write_records(buf, records.as_deref());
            let (path, wire_len) = (segment.flow, BEYOND_UDP + wire_len);
            return Some(Outgoing {
                to,
                path,
                header_len,
                wire_len,
                ecn: Ecn::NotCapable,
                lane: 0,
                takes_records: false,
                priority: self.settings.iter().map(|settings| settings.priority).max().unwrap_or(0),
            });
        }
        while let Some(&(_, number)) = self.paced.first().filter(|(time, _)| *time <= now) {
            self.paced.pop_first();
            self.ready.push_back(number);
        }
        let mut waiting = Vec::new();
        let mut outgoing = None;
        while let Some(number) = self.ready.pop_front() {
            let Some(sender) = &mut self.senders[number as usize] else { continue };
            if sender.next_send() > now {
                self.paced.insert((sender.next_send(), number));
                continue;
            }
            sender.ready = false;
            if !sender.may_send() {
                continue;
            }
            let path = sender.next_path();
            if !may(sender.to, path, sender.lane) {
                sender.ready = true;
                waiting.push(number);
                continue;
            }
            let segment = sender.transmit(now);
            let (to, lane, takes_records) = (sender.to, sender.lane, sender.has_telemetry);
            self.enlist(number);
            segment.write(buf);
            let (header_len, records) = write_records(buf, takes_records.then(Records::default).as_ref());
            let Body::Data { bytes, .. } = segment.body else { unreachable!("a sender sends data") };
            let wire_len = BEYOND_UDP + usize::from(bytes) + records;
            let priority = self.settings[usize::from(self.started[number as usize].class)].priority;
            let ecn = Ecn::Capable;
            outgoing = Some(Outgoing { to, path, header_len, wire_len, ecn, lane, takes_records, priority });
            break;
        }
        waiting.into_iter().rev().for_each(|number| self.ready.push_front(number));
        outgoing
    }

    /// When the rate of a flow allows its next packet, if only that keeps it from sending.
    pub fn next_paced(&self) -> Option<Time> {
        self.paced.first().map(|&(time, _)| time)
    }

    /// When to call [`TransportHost::handle_timeout`]; possibly earlier than needed.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        let source = self.sources.iter().filter_map(|(source, _)| source.next()).min();
        [self.timers.earliest(), source].into_iter().flatten().min()
    }

    /// Runs the retransmission timers and the sources.
    pub fn handle_timeout(&mut self, now: Time) {
        for index in 0..self.sources.len() {
            let (source, class) = &mut self.sources[index];
            let kind = Kind { awaited: source.ends(), lane: 0, class: *class };
            while let Some((to, bytes)) = self.sources[index].0.pop(now) {
                self.begin(now, to, bytes, kind);
            }
            self.balance.closed += u64::from(self.sources[index].0.has_just_ended());
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
        (0..self.settings.len()).map(|class| self.retransmissions_of(class as u8)).sum()
    }

    /// How many packets of a class's flows were sent again.
    pub fn retransmissions_of(&self, class: u8) -> u64 {
        let under_way = self.started.iter().zip(&self.senders).filter(|(started, _)| started.class == class);
        let open = under_way.filter_map(|(_, sender)| sender.as_ref()).map(|sender| sender.retransmissions);
        self.retransmissions[usize::from(class)] + open.sum::<u64>()
    }

    /// How many packets were invalid.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// Writes the records of a packet, if it has any; returns the header's length with them, and their bytes on links.
fn write_records(buf: &mut [u8], records: Option<&Records>) -> (usize, usize) {
    let Some(records) = records else { return (HEADER_LEN, 0) };
    records.write(&mut buf[HEADER_LEN..LONGEST_HEADER]);
    (LONGEST_HEADER, RECORDS_ON_LINKS)
}

#[cfg(test)]
mod tests;
