//! The links of one rank: one to each other rank, from when either has something for the other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::congestion::Controller;
use crate::contract::config::{HostConfig, TimerConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::Rank;
use crate::contract::packet::Ecn;
use crate::contract::time::Time;
use crate::reliability::link::Numbers;
use crate::reliability::link::receiver::Receiver;
use crate::reliability::link::sender::{Sender, controller};
use crate::sparcml::message::{Fragment, Message};
use crate::sparcml::wire::{Ack, MAX_ACK_WORDS};

/// How many packets go to one rank before other ranks have their turn: packets to one address are sent together.
const RUN: u32 = 16;
/// A rank that fails to answer so often in a row has left, and needs nothing any more.
const TIMEOUTS_OF_THE_GONE: u32 = 8;

/// A link to one rank, and from it.
#[derive(Clone, Hash)]
struct Link {
    sender: Sender<Fragment>,
    receiver: Receiver,
    /// Messages, and the next fragment of each.
    queue: VecDeque<(Arc<Message>, u32)>,
    /// How many packets of this rank are kept for later collectives.
    kept: usize,
    /// The rank that the other rank waits for, and when the other rank said so.
    waits_for: Option<(Rank, Time)>,
    /// When the link is looked at next, if nothing comes before.
    due: Option<Time>,
}

impl Link {
    fn next(&mut self) -> Option<Fragment> {
        let (message, next) = self.queue.front_mut()?;
        let fragment = Fragment { message: Arc::clone(message), number: *next };
        *next += 1;
        if *next == message.fragments() {
            self.queue.pop_front();
        }
        Some(fragment)
    }
}

/// A packet for a rank.
pub(super) enum Out {
    /// An acknowledgement, with this many of these words.
    Ack(Ack, [u64; MAX_ACK_WORDS], usize),
    /// A fragment; true if it is sent again.
    Fragment(Numbers, Fragment, bool),
}

/// The links to all ranks.
#[derive(Clone, Hash)]
pub(super) struct Peers {
    timers: TimerConfig,
    /// The controller of a link that has carried nothing.
    congestion: Box<dyn Controller>,
    links: BTreeMap<Rank, Link>,
    /// Links that may have something to send now.
    busy: BTreeSet<Rank>,
    /// When links that are not busy are looked at next. Of many links only a few have packets on their way.
    due: BTreeSet<(Time, Rank)>,
    /// The link that sends, and how many packets it has sent in this turn.
    turn: (Rank, u32),
}

impl Peers {
    pub(super) fn new(config: &HostConfig) -> Peers {
        let (links, busy, due) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let congestion = controller(&config.job);
        Peers { timers: config.timers, congestion, links, busy, due, turn: (config.rank, 0) }
    }

    fn link(&mut self, rank: Rank) -> &mut Link {
        self.busy.insert(rank);
        self.links.entry(rank).or_insert_with(|| Link {
            sender: Sender::new(self.timers, self.congestion.clone()),
            receiver: Receiver::default(),
            queue: VecDeque::new(),
            kept: 0,
            waits_for: None,
            due: None,
        })
    }

    pub(super) fn send(&mut self, to: Rank, message: Arc<Message>) {
        self.link(to).queue.push_back((message, 0));
    }

    pub(super) fn handle_ack(&mut self, now: Time, from: Rank, ack: &Ack, words: &[u64]) -> Result<(), DropReason> {
        self.link(from).sender.handle_ack(now, ack, words, |_| {})
    }

    pub(super) fn check(&mut self, from: Rank, numbers: Numbers) -> Result<u64, DropReason> {
        let link = self.link(from);
        link.waits_for = None;
        link.receiver.check(numbers)
    }

    /// Keeps a packet for a later collective, if there is room.
    pub(super) fn keep(&mut self, from: Rank, seq: u64) -> Result<(), DropReason> {
        let link = self.link(from);
        if seq >= link.receiver.limit(link.kept) {
            link.receiver.announce();
            return Err(DropReason::Unexpected);
        }
        link.kept += 1;
        Ok(())
    }

    /// A kept packet is released.
    pub(super) fn release(&mut self, from: Rank) {
        let link = self.link(from);
        link.kept -= 1;
        link.receiver.announce();
    }

    pub(super) fn accept(&mut self, from: Rank, seq: u64, numbers: Numbers, ecn: Ecn) {
        self.link(from).receiver.accept(seq, numbers, ecn);
    }

    /// A rank says that it waits for another.
    pub(super) fn on_notice(&mut self, now: Time, from: Rank, worker: Rank) {
        self.link(from).waits_for = Some((worker, now));
    }

    /// The rank that another rank waits for, if it has said so since then.
    pub(super) fn waits_for(&self, rank: Rank, since: Time) -> Option<Rank> {
        let (worker, at) = self.links.get(&rank)?.waits_for?;
        (at >= since).then_some(worker)
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(&(due, rank)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, rank));
            let link = self.link(rank);
            link.due = None;
            let more = !link.queue.is_empty();
            link.sender.handle_timeout(now, more, |fragment| fragment.message.until.is_some_and(|until| until <= now));
        }
    }

    /// The next timeout. Busy links are not in the list of due times, so they are asked themselves.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let busy = self.busy.iter().filter_map(|rank| self.links.get(rank)?.poll_timeout());
        busy.chain(self.due.first().map(|(due, _)| *due)).min()
    }

    /// A link has nothing to send now.
    fn rest(&mut self, rank: Rank) {
        self.busy.remove(&rank);
        let Some(link) = self.links.get_mut(&rank) else { return };
        let due = link.poll_timeout();
        let before = std::mem::replace(&mut link.due, due);
        if before != due {
            before.map(|before| self.due.remove(&(before, rank)));
            self.due.extend(due.map(|due| (due, rank)));
        }
    }

    /// True if no rank that still answers needs anything that this rank holds.
    pub(super) fn are_served(&self) -> bool {
        let served = |link: &Link| link.queue.is_empty() && link.sender.is_idle();
        self.links.values().all(|link| served(link) || link.sender.timeouts() >= TIMEOUTS_OF_THE_GONE)
    }

    /// Drops the messages of collectives from `op` on.
    pub(super) fn forget_from(&mut self, op: u64) {
        for (&rank, link) in &mut self.links {
            self.busy.insert(rank);
            link.queue.retain(|(message, _)| message.op < op);
            link.sender.forget(|fragment| fragment.message.op >= op);
        }
    }

    /// A rank has everything that this rank contributes to its chunk of a collective.
    pub(super) fn forget_brought(&mut self, rank: Rank, op: u64) {
        self.link(rank).sender.forget(|fragment| fragment.message.op == op && fragment.message.is_brought());
    }

    /// The next packet and its receiver; links take turns.
    pub(super) fn poll(&mut self, now: Time) -> Option<(Rank, Out)> {
        loop {
            let (rank, sent) = self.turn;
            let is_over = sent >= RUN || !self.busy.contains(&rank);
            let rank = match is_over {
                false => rank,
                true => {
                    let after = (std::ops::Bound::Excluded(rank), std::ops::Bound::Unbounded);
                    *self.busy.range(after).next().or_else(|| self.busy.first())?
                }
            };
            self.turn = (rank, if is_over { 0 } else { sent } + 1);
            match self.links.get_mut(&rank).and_then(|link| link.poll(now)) {
                Some(out) => return Some((rank, out)),
                None => self.rest(rank),
            }
        }
    }
}

impl Link {
    fn poll_timeout(&self) -> Option<Time> {
        self.sender.poll_timeout(!self.queue.is_empty())
    }

    fn poll(&mut self, now: Time) -> Option<Out> {
        let mut words = [0; MAX_ACK_WORDS];
        if let Some((ack, count)) = self.receiver.poll_ack(self.kept, &mut words) {
            return Some(Out::Ack(ack, words, count));
        }
        if self.sender.may_resend(now) {
            let (numbers, fragment) = self.sender.resend(now)?;
            return Some(Out::Fragment(numbers, fragment.clone(), true));
        }
        if self.queue.is_empty() || !self.sender.may_send(now) {
            return None;
        }
        let fragment = self.next()?;
        let numbers = self.sender.send(now, fragment.clone(), !self.queue.is_empty());
        Some(Out::Fragment(numbers, fragment, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregation::ordered::VectorFormat;
    use crate::contract::config::JobConfig;
    use crate::contract::ids::{JobId, JobKey};
    use crate::contract::tensor::Spec;
    use crate::contract::time::Span;
    use crate::contract::values::Values;
    use crate::sparcml::PROTOCOL;
    use crate::sparcml::chunk::{Chunk, Data};
    use crate::sparcml::codec::Codec;
    use crate::sparcml::message::Envelope;

    const WORLD_SIZE: u16 = 100;

    fn peers() -> Peers {
        let job = JobConfig {
            job: JobId(1),
            key: JobKey(1),
            protocol: PROTOCOL.code,
            world_size: WORLD_SIZE,
            slots: 1,
            elements_per_packet: 64,
            trees: 1,
            levels: false,
            options: PROTOCOL.options.read(&BTreeMap::new()).unwrap(),
        };
        Peers::new(&HostConfig::worker(job, Rank(0)))
    }

    fn message() -> Arc<Message> {
        let codec = Codec::new(Values::Elements, 256, &Spec::NOTHING, false).unwrap();
        let chunk = Arc::new(Chunk { range: 0..0, data: Data::Brought });
        let envelope = Envelope { op: 0, until: None, spec: Spec::NOTHING, codec };
        Arc::new(Message::new(envelope, 0, VectorFormat::Host, vec![(0, chunk)]))
    }

    #[test]
    fn a_timeout_wakes_the_links_that_it_is_of_and_no_others() {
        let mut peers = peers();
        let ms = |ms| Time::ZERO + Span::from_millis(ms);
        for rank in 1..WORLD_SIZE {
            peers.send(Rank(rank), message());
            while peers.poll(ms(u64::from(rank))).is_some() {}
        }
        assert!(peers.busy.is_empty());
        let first = peers.poll_timeout().unwrap();
        assert_eq!(first, ms(1) + TimerConfig::default().initial_rto);
        peers.handle_timeout(first);
        assert_eq!(peers.busy, BTreeSet::from([Rank(1)]));
        let Some((Rank(1), Out::Fragment(numbers, _, true))) = peers.poll(first) else { panic!("it is sent again") };
        assert_eq!(numbers.attempt, 2);
        while peers.poll(first).is_some() {}
        assert_eq!(peers.poll_timeout(), Some(ms(2) + TimerConfig::default().initial_rto));
    }
}
