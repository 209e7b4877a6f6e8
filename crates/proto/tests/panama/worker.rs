//! One worker, packet by packet: which packets count, and what it sends because of them.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::{ChildId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;
use tributary_proto::panama::wire::{HEADER_LEN, Header, Kind, NO_CAP};

use crate::harness::reduction::{host, in_place};
use crate::setup::job;

const ELEMENTS: u32 = 8;

/// Rank 0 of two, with eight packets of one element to send.
struct Bench {
    job: JobConfig,
    machine: Box<dyn Host>,
}

impl Bench {
    fn new() -> Bench {
        let job = job(2, 1, 4, 1);
        let mut machine = host(&job, 0, 0);
        machine.submit(Time::ZERO, in_place(&[1.0f32; ELEMENTS as usize], ReduceOp::Sum)).unwrap();
        Bench { job, machine }
    }

    /// A packet from the switch, with a sum behind its header where it is a result.
    fn receive(&mut self, kind: Kind, epoch: u16, vid: u32) -> Result<(), DropReason> {
        let mut bytes = vec![0; HEADER_LEN];
        Common { kind: kind as u8, ..self.job.common() }.emit(&mut bytes);
        let spec = Spec::allreduce(ELEMENTS, DType::F32, ReduceOp::Sum);
        Header { vid, tid: 0, wnd_cap: NO_CAP, epoch, wid: ChildId(0), spec, contributors: 2 }.emit(&mut bytes);
        if kind == Kind::Result {
            bytes.extend(2.0f32.to_be_bytes());
        }
        let packet = Packet { bytes: &bytes, wire_len: bytes.len(), ecn: Ecn::Capable };
        self.machine.handle_packet(Time::ZERO, Addr::Switch(TreeId(0)), packet)
    }

    /// Everything that it sends now.
    fn sent(&mut self) -> Vec<(Kind, u32)> {
        let mut buf = vec![0; self.machine.max_packet_len()];
        let mut next = || {
            let transmit = self.machine.poll_transmit(Time::ZERO, &mut buf)?;
            let packet = &buf[..transmit.len];
            Some((Kind::of(packet).unwrap(), Header::parse(packet).unwrap().vid))
        };
        std::iter::from_fn(&mut next).collect()
    }
}

#[test]
fn what_was_said_in_an_older_epoch_counts_no_more() {
    let mut bench = Bench::new();
    assert_eq!(bench.sent(), [(Kind::Contribution, 0), (Kind::Contribution, 1)]);
    bench.receive(Kind::Sync, 1, 0).unwrap();
    assert_eq!(bench.receive(Kind::Result, 0, 0), Err(DropReason::StaleEpoch), "the new epoch has not begun");
    assert_eq!(bench.sent(), [(Kind::Base, 0)]);
    bench.receive(Kind::Rewind, 1, 0).unwrap();
    assert_eq!(bench.sent(), [(Kind::Contribution, 0), (Kind::Contribution, 1)]);
    for kind in [Kind::Result, Kind::Passed, Kind::Resend, Kind::Waiting, Kind::Sync, Kind::Rewind] {
        assert_eq!(bench.receive(kind, 0, 0), Err(DropReason::StaleEpoch), "{}", kind.name());
    }
    assert_eq!(bench.sent(), [], "the window has not moved");
    bench.receive(Kind::Result, 1, 0).unwrap();
    assert_eq!(bench.sent(), [(Kind::Contribution, 2)]);
}

/// Each port of a switch has room for four packets from the first VID on whose sum is not made: the one that lacks its
/// result may be that.
#[test]
fn nothing_is_sent_beyond_the_capacity_of_a_port() {
    let mut bench = Bench::new();
    let mut sent = bench.sent();
    // The result of VID 0 is lost; those behind it open the window.
    for vid in 1..4 {
        bench.receive(Kind::Result, 0, vid).unwrap();
        sent.extend(bench.sent());
    }
    let contributions: Vec<u32> = sent.iter().filter(|said| said.0 == Kind::Contribution).map(|said| said.1).collect();
    assert_eq!(contributions, [0, 1, 2, 3]);
    assert!(sent.contains(&(Kind::Gone, 0)), "{sent:?}");
    bench.receive(Kind::Result, 0, 0).unwrap();
    assert_eq!(bench.sent()[0], (Kind::Contribution, 4));
}
