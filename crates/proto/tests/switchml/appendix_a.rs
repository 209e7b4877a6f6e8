//! Appendix A of the paper, event by event: three workers, one slot, and two losses.

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Host, HostEvent};
use tributary_proto::contract::ids::{GroupId, PortId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::switchml::wire::{HEADER_LEN, Header, Kind};

use crate::setup::{at_ms, collective, host, job, pipelines, sum};

const K: usize = 4;
const EVERYBODY: Verdict = Verdict::Group(GroupId(0));

struct Stage {
    workers: Vec<Box<dyn Host>>,
    switch: Pipeline,
}

impl Stage {
    fn new(job: &JobConfig) -> Stage {
        let workers = (0..3).map(|worker| host(job, worker)).collect();
        Stage { workers, switch: pipelines(Values::Elements, job, 3).remove(0) }
    }

    /// The one packet that a worker has to send now.
    fn sends(&mut self, worker: usize, now: Time) -> Vec<u8> {
        let mut buf = vec![0; 64];
        let transmit = self.workers[worker].poll_transmit(now, &mut buf).expect("a packet");
        assert_eq!(transmit.to, Addr::Switch(TreeId(0)));
        assert!(self.workers[worker].poll_transmit(now, &mut [0; 64]).is_none(), "one packet only");
        buf.truncate(transmit.len);
        buf
    }

    /// The worker's timeout kicks in.
    fn times_out(&mut self, worker: usize) -> (Time, Vec<u8>) {
        let due = self.workers[worker].poll_timeout().expect("a timer");
        self.workers[worker].handle_timeout(due);
        let packet = self.sends(worker, due);
        (due, packet)
    }

    /// An update reaches the switch; what becomes of it.
    fn reaches_switch(&mut self, worker: usize, now: Time, packet: &[u8]) -> (Verdict, Vec<u8>) {
        let mut bytes = packet.to_vec();
        let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
        let verdict = self.switch.process(now, PortId(worker as u16), &mut packet, &NoQueues);
        (verdict, bytes)
    }

    fn receives(&mut self, worker: usize, now: Time, result: &[u8]) {
        let packet = Packet { bytes: result, wire_len: result.len(), ecn: Ecn::NotCapable };
        self.workers[worker].handle_packet(now, Addr::Switch(TreeId(0)), packet).unwrap();
    }
}

/// Slot, phase and vector of a packet.
fn content(packet: &[u8]) -> (u16, u32, Vec<i32>) {
    let header = Header::parse(packet).unwrap();
    let vector =
        packet[HEADER_LEN..].chunks_exact(4).map(|bytes| i32::from_be_bytes(bytes.try_into().unwrap())).collect();
    (header.idx, header.phase, vector)
}

#[test]
fn two_losses_in_one_slot() {
    // One slot; the tensor has one block for `off` and one for `off + k * s`.
    let job = job(3, 1, K as u16);
    let mut stage = Stage::new(&job);
    for rank in 0..3 {
        stage.workers[usize::from(rank)].submit(Time::ZERO, collective(rank, 0, 2 * K, false)).unwrap();
    }
    let expected = sum(3, 0, 2 * K);
    let duplicate = Verdict::Drop(DropReason::Duplicate);

    // t0, t1: w1 and w2 send their updates for `off`, which are added.
    let (w1_update, w2_update) = (stage.sends(0, at_ms(0)), stage.sends(1, at_ms(1)));
    assert_eq!(stage.reaches_switch(0, at_ms(0), &w1_update).0, Verdict::Consume);
    assert_eq!(stage.reaches_switch(1, at_ms(1), &w2_update).0, Verdict::Consume);
    // t2, t3: w3 sends its own, which is lost on the way up.
    let lost = stage.sends(2, at_ms(2));

    // t4, t5: w1 and w2 time out and send the same again; the switch ignores it.
    for (worker, update) in [(0, w1_update), (1, w2_update)] {
        let (now, again) = stage.times_out(worker);
        assert_eq!(again, update, "the same update");
        assert_eq!(stage.reaches_switch(worker, now, &again).0, duplicate);
    }
    // t6: w3 times out; its update completes the slot, which turns into a shadow copy, and the result leaves.
    let (t6, w3_again) = stage.times_out(2);
    assert_eq!(w3_again, lost);
    let (verdict, result) = stage.reaches_switch(2, t6, &w3_again);
    assert_eq!(verdict, EVERYBODY);
    assert_eq!(Kind::of(&result), Ok(Kind::Result));
    assert_eq!(content(&result), (0, 0, expected[..K].to_vec()));

    // t7: w1's copy of the result is lost. t8: it times out a second time; the switch answers it alone.
    let (t8, w1_third) = stage.times_out(0);
    let (verdict, unicast) = stage.reaches_switch(0, t8, &w1_third);
    assert_eq!(verdict, Verdict::Port(PortId(0)));
    assert_eq!(content(&unicast), content(&result));
    // t9, t10: w2 and w3 have the result. t12, t13: they use the slot again, for `off + k * s`.
    for worker in [1, 2] {
        stage.receives(worker, t8, &result);
        let next = stage.sends(worker, t8);
        assert_eq!(content(&next).1, 1, "the other version");
        assert_eq!(stage.reaches_switch(worker, t8, &next).0, Verdict::Consume);
    }
    // t11: the unicast result reaches w1. t14: so it uses the slot again, too.
    stage.receives(0, t8, &unicast);
    let next = stage.sends(0, t8);
    // t15: with it the slot is complete: everybody has the first result, and the versions change roles again.
    let (verdict, second) = stage.reaches_switch(0, t8, &next);
    assert_eq!(verdict, EVERYBODY);
    assert_eq!(content(&second), (0, 1, expected[K..].to_vec()));

    for worker in 0..3 {
        stage.receives(worker, t8, &second);
        assert!(matches!(stage.workers[worker].poll_event(), Some(HostEvent::Done { .. })));
        assert_eq!(stage.workers[worker].poll_timeout(), None);
    }
    let report = stage.switch.report(job.job).unwrap().machine.unwrap();
    assert_eq!((report.blocks_completed, report.contributions, report.slots_waiting), (2, 6, 0));
}
