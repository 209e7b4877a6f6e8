//! Who has lost a result gets it the first time it asks (Algorithm 3, line 21), however long ranks computed before:
//! time in which nothing was under way is not a round trip. Appendix A's t8, in steady use.

use tributary_proto::contract::config::{Below, JobConfig, Parent};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::{ChildId, GroupId, PortId, Rank, TreeId};
use tributary_proto::contract::metric::MetricValue;
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::switchml::PROTOCOL;

use crate::setup::{collective, host, job, pipelines, pipelines_in_tree};

const K: usize = 4;
/// A round trip of these tests.
const ROUND: Span = Span::from_micros(100);
/// A rank asks so long after its result was lost.
const TIMEOUT: Span = Span::from_millis(1);
/// What ranks compute between two tensors.
const PAUSE: Span = Span::from_millis(100);
const UP: PortId = PortId(1);

fn process(switch: &mut Pipeline, now: Time, from: PortId, packet: &[u8]) -> (Verdict, Vec<u8>) {
    let mut bytes = packet.to_vec();
    let verdict = switch.process(now, from, &mut PacketMut::new(&mut bytes, Ecn::NotCapable), &NoQueues);
    (verdict, bytes)
}

/// Two ranks that sum tensors in one slot, one after another.
struct Ranks {
    hosts: [Box<dyn Host>; 2],
    blocks: usize,
    now: Time,
    tensors: usize,
    /// Blocks of the tensor at hand that are still to be summed.
    left: usize,
}

impl Ranks {
    fn new(job: &JobConfig, blocks: usize) -> Ranks {
        Ranks { hosts: [host(job, 0), host(job, 1)], blocks, now: Time::ZERO, tensors: 0, left: 0 }
    }

    /// What both send for the next block: a round trip after the last one, or after a pause if it is a new tensor's.
    fn next_updates(&mut self) -> [Vec<u8>; 2] {
        if self.left == 0 {
            self.now += PAUSE;
            for (rank, host) in self.hosts.iter_mut().enumerate() {
                let elements = self.blocks * K;
                host.submit(self.now, collective(rank as u16, self.tensors, elements, false)).unwrap();
            }
            (self.left, self.tensors) = (self.blocks, self.tensors + 1);
        } else {
            self.now += ROUND;
        }
        self.left -= 1;
        self.hosts.each_mut().map(|host| {
            let mut buf = vec![0; 64];
            let len = host.poll_transmit(self.now, &mut buf).expect("an update").len;
            buf.truncate(len);
            buf
        })
    }

    fn receive(&mut self, result: &[u8]) {
        for host in &mut self.hosts {
            let packet = Packet { bytes: result, wire_len: result.len(), ecn: Ecn::NotCapable };
            host.handle_packet(self.now, Addr::Switch(TreeId(0)), packet).unwrap();
            while host.poll_event().is_some() {}
        }
    }
}

#[test]
fn a_lost_result_is_sent_at_the_first_question_however_long_ranks_computed_before() {
    for blocks in [1, 2, 4] {
        let job = job(2, 1, K as u16);
        let (mut ranks, mut switch) = (Ranks::new(&job, blocks), pipelines(Values::Elements, &job, 2).remove(0));
        for block in 0..4 * blocks {
            let updates = ranks.next_updates();
            process(&mut switch, ranks.now, PortId(0), &updates[0]);
            let (verdict, result) = process(&mut switch, ranks.now, PortId(1), &updates[1]);
            assert_eq!(verdict, Verdict::Group(GroupId(0)));
            let answer = process(&mut switch, ranks.now + TIMEOUT, PortId(0), &updates[0]);
            assert_eq!(answer.0, Verdict::Port(PortId(0)), "block {block} of tensors of {blocks}");
            assert_eq!((&answer.1[..24], &answer.1[26..]), (&result[..24], &result[26..]), "all but the receiver");
            ranks.receive(&result);
        }
    }
}

/// The rule that spares answers still works where it can tell: in the blocks of a tensor that goes round the pool
/// often.
#[test]
fn a_pause_leaves_the_measured_round_trip_as_it_was() {
    let job = job(2, 1, K as u16);
    let (mut ranks, mut switch) = (Ranks::new(&job, 3), pipelines(Values::Elements, &job, 2).remove(0));
    for block in 0..12 {
        let updates = ranks.next_updates();
        process(&mut switch, ranks.now, PortId(0), &updates[0]);
        let (_, result) = process(&mut switch, ranks.now, PortId(1), &updates[1]);
        if block > 0 {
            let early = process(&mut switch, ranks.now + Span(ROUND.0 - 1), PortId(0), &updates[0]).0;
            assert_eq!(early, Verdict::Drop(DropReason::Crossed), "block {block}");
            let second = process(&mut switch, ranks.now + Span(ROUND.0 - 1), PortId(0), &updates[0]).0;
            assert_eq!(second, Verdict::Port(PortId(0)), "block {block}: it has asked twice");
        }
        ranks.receive(&result);
    }
}

/// With `resend=paper` it spares none: Algorithm 3 answers whatever comes again (line 21).
#[test]
fn to_the_letter_every_question_is_answered_however_early_it_comes() {
    let given = [("numbers", "fixed"), ("resend", "paper")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = PROTOCOL.options.read(&given.into()).unwrap();
    let job = JobConfig { options, ..job(2, 1, K as u16) };
    let (mut ranks, mut switch) = (Ranks::new(&job, 3), pipelines(Values::Elements, &job, 2).remove(0));
    for block in 0..12 {
        let updates = ranks.next_updates();
        process(&mut switch, ranks.now, PortId(0), &updates[0]);
        let (_, result) = process(&mut switch, ranks.now, PortId(1), &updates[1]);
        let early = process(&mut switch, ranks.now + Span(1), PortId(0), &updates[0]).0;
        assert_eq!(early, Verdict::Port(PortId(0)), "block {block}");
        ranks.receive(&result);
    }
}

/// One rank that is slow in the middle of a tensor does not make the round trip of the others longer.
#[test]
fn a_straggler_is_not_a_round_trip() {
    let job = job(2, 1, K as u16);
    let (mut ranks, mut switch) = (Ranks::new(&job, 8), pipelines(Values::Elements, &job, 2).remove(0));
    for block in 0..8 {
        let updates = ranks.next_updates();
        process(&mut switch, ranks.now, PortId(0), &updates[0]);
        ranks.now += PAUSE;
        let (_, result) = process(&mut switch, ranks.now, PortId(1), &updates[1]);
        let answer = process(&mut switch, ranks.now + TIMEOUT, PortId(0), &updates[0]).0;
        assert_eq!(answer, Verdict::Port(PortId(0)), "block {block}");
        ranks.receive(&result);
    }
}

/// A root above two leaves with one rank each.
struct Levels {
    root: Pipeline,
    leaves: [Pipeline; 2],
}

impl Levels {
    fn new(job: &JobConfig) -> Levels {
        let leaf = |rank: u16| {
            let up = Parent { port: UP, child: ChildId(rank) };
            pipelines_in_tree(Values::Elements, job, &[Below::Worker(Rank(rank))], Some(up)).remove(0)
        };
        let below = [0, 1].map(|rank| Below::Switch(vec![Rank(rank)]));
        Levels { root: pipelines_in_tree(Values::Elements, job, &below, None).remove(0), leaves: [leaf(0), leaf(1)] }
    }

    /// A rank's packet on its way up: what the root makes of it, if it gets there.
    fn up(&mut self, now: Time, rank: usize, update: &[u8]) -> (Verdict, Vec<u8>) {
        // Hosts say which child of their leaf they are; here each is the only one.
        let mut update = update.to_vec();
        update[24..26].copy_from_slice(&[0, 0]);
        let (verdict, partial) = process(&mut self.leaves[rank], now, PortId(0), &update);
        match verdict {
            Verdict::Port(UP) => process(&mut self.root, now, PortId(rank as u16), &partial),
            verdict => (verdict, partial),
        }
    }
}

#[test]
fn with_two_levels_a_result_lost_before_the_leaf_is_sent_at_the_first_question() {
    for (blocks, lost) in [1, 2, 4].into_iter().flat_map(|blocks| (0..4 * blocks).map(move |lost| (blocks, lost))) {
        let job = job(2, 1, K as u16);
        let (mut ranks, mut levels) = (Ranks::new(&job, blocks), Levels::new(&job));
        for block in 0..=lost {
            let updates = ranks.next_updates();
            assert_eq!(levels.up(ranks.now, 0, &updates[0]).0, Verdict::Consume);
            let (verdict, result) = levels.up(ranks.now, 1, &updates[1]);
            assert_eq!(verdict, Verdict::Group(GroupId(0)));
            assert_eq!(process(&mut levels.leaves[1], ranks.now, UP, &result).0, Verdict::Group(GroupId(0)));
            if block == lost {
                // The root's copy for leaf 0 is lost, and its rank asks.
                let queried_at = ranks.now + TIMEOUT;
                let (verdict, again) = levels.up(queried_at, 0, &updates[0]);
                assert_eq!(verdict, Verdict::Port(PortId(0)), "block {block} of tensors of {blocks}");
                assert_eq!(process(&mut levels.leaves[0], queried_at, UP, &again).0, Verdict::Group(GroupId(0)));
            } else {
                assert_eq!(process(&mut levels.leaves[0], ranks.now, UP, &result).0, Verdict::Group(GroupId(0)));
            }
            ranks.receive(&result);
        }
    }
}

/// Two slots and two ranks. Rank 0 asks for the first slot's result again after it has answered the second slot's, which
/// left later; or before that, when the result may still be on its way.
#[test]
fn a_result_counts_as_lost_once_its_member_has_answered_a_later_one() {
    let job = job(2, 2, K as u16);
    for overtaken in [false, true] {
        let mut switch = pipelines(Values::Elements, &job, 2).remove(0);
        let mut hosts = [host(&job, 0), host(&job, 1)];
        let packets_of = |host: &mut Box<dyn Host>| -> Vec<Vec<u8>> {
            let mut buf = vec![0; 64];
            std::iter::from_fn(|| host.poll_transmit(Time::ZERO, &mut buf).map(|sent| buf[..sent.len].to_vec()))
                .collect()
        };
        let at = |round: u64| Time::ZERO + ROUND.times(round);
        let updates = [0, 1].map(|rank: usize| {
            hosts[rank].submit(Time::ZERO, collective(rank as u16, 0, 4 * K, false)).unwrap();
            packets_of(&mut hosts[rank])
        });
        let mut results = Vec::new();
        for (slot, (first, second)) in (0..2).zip(updates[0].iter().zip(&updates[1])) {
            process(&mut switch, at(slot), PortId(0), first);
            results.push(process(&mut switch, at(slot), PortId(1), second).1);
        }
        if overtaken {
            let packet = Packet { bytes: &results[1], wire_len: results[1].len(), ecn: Ecn::NotCapable };
            hosts[0].handle_packet(at(2), Addr::Switch(TreeId(0)), packet).unwrap();
            let next = packets_of(&mut hosts[0]);
            assert_eq!(process(&mut switch, at(2), PortId(0), &next[0]).0, Verdict::Consume);
        }
        assert_eq!(process(&mut switch, at(20), PortId(0), &updates[0][0]).0, Verdict::Port(PortId(0)));
        let metrics = switch.report(job.job).expect("the job").machine.expect("its machine").metrics;
        let value = |name: &str| metrics.iter().find(|metric| metric.name == name).expect(name).value;
        assert_eq!(value("unicast_resends"), MetricValue::Counter(1));
        assert_eq!(value("lost_results"), MetricValue::Counter(overtaken.into()), "overtaken: {overtaken}");
    }
}
