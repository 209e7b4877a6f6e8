//! One accelerator, packet by packet (§5): what comes out for what goes in, as a hardware design would have it.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::{Below, JobConfig, Parent, SwitchConfig};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{ChildId, GroupId, PortId, Rank, TreeId};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::switch::{NoQueues, Switch, Verdict};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::Common;
use tributary_proto::panama::Panama;
use tributary_proto::panama::wire::{HEADER_LEN, Header, Kind, NO_CAP};

use crate::setup::job;

const GROUP: GroupId = GroupId(7);
const SUM: Spec = Spec::allreduce(1, DType::F32, ReduceOp::Sum);

/// An accelerator of this many ports, with room for four packets at each, and what it makes of packets.
struct Bench {
    job: JobConfig,
    machine: Panama,
}

/// What became of a packet.
#[derive(Debug, PartialEq)]
struct Out {
    verdict: Verdict,
    vid: u32,
    value: f32,
    ecn: Ecn,
    wnd_cap: u16,
}

impl Bench {
    fn new(ports: u16, parent: Option<Parent>, first: u32) -> Bench {
        Bench::with_below(Below::workers(ports), parent, first)
    }

    fn with_below(below: Vec<Below>, parent: Option<Parent>, first: u32) -> Bench {
        let job = job(below.len() as u16, 1, 4, 4);
        let members = (0..below.len() as u16).map(PortId).collect();
        let config = SwitchConfig { job: job.clone(), tree: TreeId(0), members, below, group: GROUP, parent };
        Bench { machine: Panama::starting_at(Values::Elements, &config, first), job }
    }

    fn header(&self, port: u16, vid: u32) -> Header {
        let (tid, wnd_cap, epoch, wid) = (0, NO_CAP, 0, ChildId(port));
        Header { vid, tid, wnd_cap, epoch, wid, spec: SUM, contributors: 1 }
    }

    /// Any packet, with one float behind its header where it is a contribution.
    fn packet(&mut self, port: u16, kind: Kind, header: Header, value: f32, ecn: Ecn) -> (Verdict, Vec<u8>, Ecn) {
        let mut bytes = vec![0; HEADER_LEN];
        Common { kind: kind as u8, ..self.job.common() }.emit(&mut bytes);
        header.emit(&mut bytes);
        if matches!(kind, Kind::Contribution | Kind::Result) {
            bytes.extend(value.to_be_bytes());
        }
        let mut packet = PacketMut::new(&mut bytes, ecn);
        let verdict = self.machine.process(Time::ZERO, PortId(port), &mut packet, &NoQueues);
        let (len, ecn) = (packet.len, packet.ecn);
        bytes.truncate(len);
        (verdict, bytes, ecn)
    }

    /// A contribution; the sum, if it completes one.
    fn contribute(&mut self, port: u16, vid: u32, value: f32) -> Result<Option<Out>, DropReason> {
        self.contribute_with(self.header(port, vid), value, Ecn::Capable)
    }

    fn contribute_with(&mut self, header: Header, value: f32, ecn: Ecn) -> Result<Option<Out>, DropReason> {
        let (verdict, bytes, ecn) = self.packet(header.wid.0, Kind::Contribution, header, value, ecn);
        match verdict {
            Verdict::Drop(reason) => Err(reason),
            Verdict::Consume => Ok(None),
            verdict => {
                let Header { vid, wnd_cap, .. } = Header::parse(&bytes).unwrap();
                let value = f32::from_be_bytes(bytes[HEADER_LEN..].try_into().unwrap());
                Ok(Some(Out { verdict, vid, value, ecn, wnd_cap }))
            }
        }
    }

    /// What it makes by itself.
    fn notices(&mut self) -> Vec<(Verdict, Kind, u32)> {
        let mut buf = vec![0; 1500];
        let mut made = Vec::new();
        while let Some(emission) = self.machine.poll_transmit(Time::ZERO, &mut buf) {
            let header = Header::parse(&buf).unwrap();
            made.push((emission.verdict, Kind::of(&buf).unwrap(), header.vid));
        }
        made
    }
}

fn result(vid: u32, value: f32) -> Option<Out> {
    Some(Out { verdict: Verdict::Group(GROUP), vid, value, ecn: Ecn::Capable, wnd_cap: 4 })
}

#[test]
fn figure_6a_four_ports_with_vid_0_give_the_sum_and_vid_1_is_expected() {
    let mut bench = Bench::new(4, None, 0);
    for port in 0..3 {
        assert_eq!(bench.contribute(port, 0, 1.5), Ok(None));
    }
    assert_eq!(bench.machine.expected(), 0);
    assert_eq!(bench.contribute(3, 0, 0.25), Ok(result(0, 4.75)));
    assert_eq!(bench.machine.expected(), 1);
}

#[test]
fn one_port_alone_gives_back_what_it_brings() {
    let mut bench = Bench::new(1, None, 0);
    for vid in 0..10 {
        assert_eq!(bench.contribute(0, vid, -0.0).unwrap().unwrap().value.to_bits(), (-0.0f32).to_bits());
    }
}

#[test]
fn a_port_that_is_not_there_is_bypassed_and_not_added_as_zero() {
    for ports in [1, 2, 3, 5, 6, 7] {
        let mut bench = Bench::new(ports, None, 0);
        let mut sum = None;
        for port in 0..ports {
            sum = bench.contribute(port, 0, -0.0).unwrap();
        }
        assert_eq!(sum.unwrap().value.to_bits(), (-0.0f32).to_bits(), "{ports} ports: -0 and nothing else is -0");
    }
}

#[test]
fn sums_are_in_the_order_of_ports_whatever_the_order_of_arrival() {
    // (2^24 + 1) + (1 + -2^24): each pair is rounded first.
    let brings = [16_777_216.0, 1.0, 1.0, -16_777_216.0f32];
    let right = (brings[0] + brings[1]) + (brings[2] + brings[3]);
    assert_ne!(right, ((brings[3] + brings[2]) + brings[1]) + brings[0], "another order gives another sum");
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        let mut bench = Bench::new(4, None, 0);
        let last = order.map(|port| bench.contribute(port, 0, brings[usize::from(port)]).unwrap()).into_iter().last();
        assert_eq!(last, Some(result(0, right)), "{order:?}");
    }
}

#[test]
fn a_lost_vid_is_dropped_and_aggregation_proceeds_with_the_next() {
    let mut bench = Bench::new(2, None, 0);
    assert_eq!(bench.contribute(0, 0, 1.0), Ok(None));
    assert_eq!(bench.contribute(0, 1, 2.0), Ok(None));
    // VID 0 is missing at port 1: its head is beyond.
    assert_eq!(bench.contribute(1, 1, 5.0), Ok(result(1, 7.0)));
    assert_eq!((bench.machine.expected(), bench.machine.counters().lost_vids), (2, 1));
    // It comes too late, and changes nothing.
    assert_eq!(bench.contribute(1, 0, 9.0), Err(DropReason::Stale));
}

#[test]
fn no_two_vids_are_ever_mixed() {
    let mut bench = Bench::new(2, None, 0);
    // Each port has lost another VID.
    for (port, vid) in [(0, 0), (0, 2), (0, 3)] {
        assert_eq!(bench.contribute(port, vid, vid as f32), Ok(None));
    }
    assert_eq!(bench.contribute(1, 1, 1.0), Err(DropReason::Incomplete), "0 is lost at port 1, and 1 at port 0");
    assert_eq!(bench.contribute(1, 3, 3.0), Ok(result(3, 6.0)));
    assert_eq!(bench.machine.counters().lost_vids, 3);
}

#[test]
fn doubled_late_and_far_packets_are_dropped_by_name() {
    let mut bench = Bench::new(2, None, 0);
    assert_eq!(bench.contribute(0, 0, 1.0), Ok(None));
    assert_eq!(bench.contribute(0, 0, 1.0), Err(DropReason::Duplicate));
    assert_eq!(bench.contribute(1, 0, 1.0), Ok(result(0, 2.0)));
    assert_eq!(bench.contribute(0, 0, 1.0), Err(DropReason::Stale));
    assert_eq!(bench.contribute(0, 5, 1.0), Err(DropReason::Overflow), "1 to 4 have room");
    assert_eq!(bench.contribute(0, 4, 1.0), Ok(None));
    assert_eq!(bench.contribute(0, 2, 1.0), Err(DropReason::Duplicate), "a FIFO takes nothing before its newest");
    let old = Header { epoch: u16::MAX, ..bench.header(1, 1) };
    assert_eq!(bench.contribute_with(old, 1.0, Ecn::Capable), Err(DropReason::StaleEpoch));
    let new = Header { epoch: 1, ..bench.header(1, 1) };
    assert_eq!(bench.contribute_with(new, 1.0, Ecn::Capable), Err(DropReason::Ahead));
    let crowd = Header { contributors: 2, ..bench.header(1, 1) };
    assert_eq!(bench.contribute_with(crowd, 1.0, Ecn::Capable), Err(DropReason::BadField));
    let elsewhere = Header { tid: 1, ..bench.header(1, 1) };
    assert_eq!(bench.contribute_with(elsewhere, 1.0, Ecn::Capable), Err(DropReason::BadField));
    assert_eq!(bench.machine.expected(), 1, "nothing of this moves it");
}

#[test]
fn a_mark_at_any_port_marks_the_sum() {
    for marked in 0..16u16 {
        let mut bench = Bench::new(4, None, 0);
        let mut last = None;
        for port in 0..4 {
            let ecn = if marked >> port & 1 == 1 { Ecn::CongestionExperienced } else { Ecn::Capable };
            last = bench.contribute_with(bench.header(port, 0), 1.0, ecn).unwrap();
        }
        let expected = if marked == 0 { Ecn::Capable } else { Ecn::CongestionExperienced };
        assert_eq!(last.unwrap().ecn, expected, "ports {marked:04b}");
    }
}

#[test]
fn the_least_capacity_is_reported_the_own_included_and_never_zero() {
    for (caps, cap) in [([NO_CAP, NO_CAP], 4), ([3, NO_CAP], 3), ([9, 2], 2), ([4, 4], 4), ([0, 9], 1)] {
        let mut bench = Bench::new(2, None, 0);
        let with = |port: u16, bench: &Bench| Header { wnd_cap: caps[usize::from(port)], ..bench.header(port, 0) };
        bench.contribute_with(with(0, &bench), 1.0, Ecn::Capable).unwrap();
        let out = bench.contribute_with(with(1, &bench), 1.0, Ecn::Capable).unwrap().unwrap();
        assert_eq!(out.wnd_cap, cap, "{caps:?}");
    }
}

#[test]
fn below_another_switch_the_sum_goes_up_and_results_pass_as_they_are() {
    let parent = Parent { port: PortId(2), child: ChildId(5) };
    let mut bench = Bench::new(2, Some(parent), 0);
    bench.contribute(0, 0, 1.0).unwrap();
    let out = bench.contribute(1, 0, 2.0).unwrap().unwrap();
    assert_eq!((out.verdict, out.value), (Verdict::Port(PortId(2)), 3.0));
    let down = Header { wid: ChildId(0), contributors: 9, ..bench.header(0, 0) };
    let (verdict, bytes, ecn) = bench.packet(2, Kind::Result, down, 30.0, Ecn::CongestionExperienced);
    assert_eq!((verdict, ecn), (Verdict::Group(GROUP), Ecn::CongestionExperienced));
    assert_eq!(Header::parse(&bytes), Ok(down));
    let early = Header { vid: 1, ..down };
    let (verdict, ..) = bench.packet(2, Kind::Result, early, 30.0, Ecn::Capable);
    assert_eq!(verdict, Verdict::Drop(DropReason::Unexpected), "it has sent no part of it");
}

/// A question about VID 1 when 0 is passed, and VIDs 1 and 3 of child 0, and 1 of nobody else, are here.
#[test]
fn a_question_is_answered_by_what_is_here() {
    let rows: [(u16, u32, &[Kind]); 4] =
        [(0, 0, &[Kind::Passed]), (0, 1, &[Kind::Waiting]), (1, 1, &[Kind::Resend]), (1, 5, &[Kind::Sync])];
    for (port, vid, answers) in rows {
        let mut bench = Bench::new(2, None, 0);
        for (port, vid) in [(0, 0), (1, 0), (0, 1), (0, 3)] {
            bench.contribute(port, vid, 1.0).unwrap();
        }
        let question = bench.header(port, vid);
        assert_eq!(bench.packet(port, Kind::Lost, question, 0.0, Ecn::NotCapable).0, Verdict::Consume);
        let kinds: Vec<Kind> = bench.notices().into_iter().map(|(_, kind, _)| kind).collect();
        assert_eq!(kinds, answers, "child {port} about VID {vid}");
    }
}

#[test]
fn what_is_sent_again_fills_the_fifo_and_is_added_once() {
    let mut bench = Bench::new(2, None, 0);
    bench.contribute(0, 1, 10.0).unwrap();
    bench.packet(0, Kind::Lost, bench.header(0, 0), 0.0, Ecn::NotCapable);
    assert_eq!(bench.notices(), [(Verdict::Port(PortId(0)), Kind::Resend, 0)]);
    bench.contribute(1, 0, 2.0).unwrap();
    bench.contribute(1, 1, 20.0).unwrap();
    assert_eq!(bench.contribute(0, 0, 1.0), Ok(result(0, 3.0)));
    // What was sent behind it is lost, and asked for, though its vector is in the sum.
    bench.packet(0, Kind::Lost, bench.header(0, 1), 0.0, Ecn::NotCapable);
    assert_eq!(bench.notices(), [(Verdict::Port(PortId(0)), Kind::Resend, 1)]);
    assert_eq!(bench.contribute(0, 1, 10.0), Ok(result(1, 30.0)));
}

#[test]
fn a_tree_goes_back_to_the_least_that_anybody_lacks_where_32_bits_end_too() {
    for first in [0, u32::MAX - 1] {
        let mut bench = Bench::new(2, None, first);
        let at = |vid: u32| first.wrapping_add(vid);
        for vid in 0..3 {
            bench.contribute(0, at(vid), 1.0).unwrap();
            assert_eq!(bench.contribute(1, at(vid), 2.0), Ok(result(at(vid), 3.0)));
        }
        bench.packet(0, Kind::Gone, bench.header(0, at(1)), 0.0, Ecn::NotCapable);
        assert_eq!(bench.notices(), [(Verdict::Group(GROUP), Kind::Sync, 0)]);
        assert_eq!(bench.contribute(1, at(3), 1.0), Err(DropReason::StaleEpoch));
        for (port, base) in [(1, 3), (1, 3), (0, 1)] {
            let says = Header { epoch: 1, ..bench.header(port, at(base)) };
            bench.packet(port, Kind::Base, says, 0.0, Ecn::NotCapable);
        }
        let notices = bench.notices();
        let urged = (Verdict::Port(PortId(0)), Kind::Sync, 0);
        assert_eq!(
            notices,
            [urged, (Verdict::Group(GROUP), Kind::Rewind, at(1))],
            "who repeats itself urges the others"
        );
        assert_eq!(bench.machine.expected(), at(1));
        for port in 0..2 {
            let again = Header { epoch: 1, ..bench.header(port, at(1)) };
            bench.contribute_with(again, 5.0, Ecn::Capable).unwrap();
        }
        assert_eq!(bench.machine.expected(), at(2));
        // Who has not heard how the epoch began is told.
        let says = Header { epoch: 1, ..bench.header(1, at(3)) };
        bench.packet(1, Kind::Base, says, 0.0, Ecn::NotCapable);
        assert_eq!(bench.notices(), [(Verdict::Port(PortId(1)), Kind::Rewind, at(1))]);
    }
}

/// Child 0 asks for VID 2, child 1 lacks VID 1, and child 2 lacks nothing.
#[test]
fn a_tree_goes_back_to_the_least_whatever_the_order_of_questions_and_answers() {
    let bases = [2, 1, 4];
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        let mut bench = Bench::new(3, None, 0);
        for (vid, port) in (0..4).flat_map(|vid| (0..3).map(move |port| (vid, port))) {
            bench.contribute(port, vid, 1.0).unwrap();
        }
        bench.packet(0, Kind::Gone, bench.header(0, bases[0]), 0.0, Ecn::NotCapable);
        assert_eq!(bench.notices(), [(Verdict::Group(GROUP), Kind::Sync, 0)]);
        for port in order {
            let says = Header { epoch: 1, ..bench.header(port, bases[usize::from(port)]) };
            bench.packet(port, Kind::Base, says, 0.0, Ecn::NotCapable);
        }
        assert_eq!(bench.notices(), [(Verdict::Group(GROUP), Kind::Rewind, 1)], "{order:?}");
        assert_eq!(bench.machine.expected(), 1);
    }
}

#[test]
fn a_partial_sum_that_is_lost_between_switches_makes_the_tree_go_back() {
    let below = (0..2).map(|rack| Below::Switch(vec![Rank(2 * rack), Rank(2 * rack + 1)])).collect();
    let mut bench = Bench::with_below(below, None, 0);
    bench.packet(1, Kind::Lost, bench.header(1, 0), 0.0, Ecn::NotCapable);
    assert_eq!(bench.notices(), [(Verdict::Group(GROUP), Kind::Sync, 0)]);
}

#[test]
fn who_leaves_may_when_nobody_needs_it() {
    let mut bench = Bench::new(2, None, 0);
    let fin = |bench: &mut Bench, port, vid| {
        bench.packet(port, Kind::Fin, bench.header(port, vid), 0.0, Ecn::NotCapable);
        bench.notices()
    };
    assert_eq!(fin(&mut bench, 0, 8), [], "others leave too, most likely");
    assert_eq!(fin(&mut bench, 0, 8), [(Verdict::Port(PortId(1)), Kind::FinAsk, 8)]);
    assert_eq!(fin(&mut bench, 1, 7), [(Verdict::Group(GROUP), Kind::FinDone, 7)], "which is not enough for 0");
    assert_eq!(fin(&mut bench, 1, 8), [(Verdict::Group(GROUP), Kind::FinDone, 8)]);
    assert_eq!(fin(&mut bench, 0, 8), [(Verdict::Port(PortId(0)), Kind::FinDone, 8)], "the answer was lost");
}
