//! The bytes of every kind of packet, as the machines write them, and the trace of figure 6a that another
//! implementation of the accelerator can be held to.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{Below, JobConfig};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{GroupId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet};
use tributary_proto::contract::switch::{Switch, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::panama::wire::Kind;
use tributary_proto::panama::{PROTOCOL, Panama};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::golden::{self, check, f32s, job, notice, sent};
use crate::harness::reduction;
use crate::setup::options;

fn host(rank: u16) -> Box<dyn Host> {
    golden::host(&PROTOCOL, rank, Default::default())
}

fn new_switch(ports: u16) -> Box<dyn Switch> {
    golden::switch(&PROTOCOL, ports, None)
}

fn processed(switch: &mut Box<dyn Switch>, from: u16, packet: &[u8]) -> (Verdict, Vec<u8>) {
    golden::processed(switch, from, packet, Ecn::Capable)
}

fn receive(host: &mut Box<dyn Host>, bytes: &[u8]) {
    let packet = Packet { bytes, wire_len: bytes.len(), ecn: Ecn::Capable };
    host.handle_packet(Time::ZERO, Addr::Switch(TreeId(0)), packet).unwrap();
}

fn of_kind(kind: Kind, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    kind.put(&mut bytes);
    bytes
}

#[test]
fn every_kind() {
    let (mut hosts, mut switch) = ([host(0), host(1)], new_switch(2));
    let mut packets = Vec::new();
    for (rank, host) in hosts.iter_mut().enumerate() {
        host.submit(Time::ZERO, f32s(&[1.0, -2.0, 0.5, 3.0 + rank as f32, 0.25])).unwrap();
    }
    let [mine, yours] = hosts.each_mut().map(|host| sent(host, Time::ZERO));
    packets.push(("CONTRIBUTION of rank 1: tree 0, VID 0, 5 elements in all", yours.clone()));
    processed(&mut switch, 0, &mine);
    let asks_at = Time::ZERO + Span::from_millis(20);
    sent(&mut hosts[0], Time::ZERO);
    hosts[0].handle_timeout(asks_at);
    let lost = sent(&mut hosts[0], asks_at);
    packets.push(("LOST of rank 0: VID 0", lost.clone()));
    processed(&mut switch, 0, &lost);
    packets.push(("WAITING: for rank 1", notice(&mut switch)));
    let mut other = yours.clone();
    other[31] += 1;
    other.truncate(38 + 16);
    let mut disagreeing = new_switch(2);
    processed(&mut disagreeing, 0, &mine);
    processed(&mut disagreeing, 1, &other);
    packets.push(("MISMATCH: rank 0 brings 5 f32, rank 1 brings 6", notice(&mut disagreeing)));
    let (verdict, result) = processed(&mut switch, 1, &yours);
    assert_eq!(verdict, Verdict::Group(GroupId(0)));
    packets.push(("RESULT: room for two packets", result.clone()));
    processed(&mut switch, 0, &lost);
    let passed = notice(&mut switch);
    packets.push(("PASSED: VID 0", passed.clone()));
    receive(&mut hosts[0], &passed);
    let gone = sent(&mut hosts[0], asks_at);
    packets.push(("GONE of rank 0: VID 0", gone.clone()));
    processed(&mut switch, 0, &gone);
    let sync = notice(&mut switch);
    packets.push(("SYNC: epoch 1", sync.clone()));
    receive(&mut hosts[1], &result);
    for (rank, host) in hosts.iter_mut().enumerate() {
        receive(host, &sync);
        let base = sent(host, asks_at);
        processed(&mut switch, rank as u16, &base);
        packets.push(("BASE: what the rank lacks", base));
    }
    let rewind = notice(&mut switch);
    packets.push(("REWIND: epoch 1 begins with VID 0", rewind.clone()));
    receive(&mut hosts[1], &rewind);
    packets.push(("CONTRIBUTION of rank 1 again, in epoch 1", sent(&mut hosts[1], asks_at)));
    packets.push(("RESEND: from VID 0 on", of_kind(Kind::Resend, &passed)));
    packets.push(("QUERY: which ranks does VID 0 wait for?", of_kind(Kind::Query, &passed)));
    packets.push(("FIN: nothing before VID 0 is needed", of_kind(Kind::Fin, &lost)));
    packets.push(("FINASK: is anything before VID 0 needed?", of_kind(Kind::FinAsk, &passed)));
    packets.push(("FINDONE: nothing before VID 0 is needed by anybody", of_kind(Kind::FinDone, &passed)));
    check("panama", &packets);
}

/// Where averages may lack ranks, an epoch begins before the first sum, and says what results there are.
#[test]
fn every_kind_that_is_other_where_averages_may_lack_ranks() {
    let job = JobConfig { options: options(&[("partial", "1/2")]), ..job(&PROTOCOL) };
    let mut hosts = [0, 1].map(|rank| reduction::host(&job, rank, rank));
    let config = reduction::switch_config(&job, 0, &Below::workers(2), None);
    let mut switch: Box<dyn Switch> = Box::new(Panama::new(Values::Elements, &config));
    let mut packets = Vec::new();
    for (rank, host) in hosts.iter_mut().enumerate() {
        let tensor = ElementTensor::new(InPlaceStorage::new(vec![1.0 + rank as f32, 4.0]), ReduceOp::Avg);
        host.submit(Time::ZERO, Collective { tensor: Box::new(tensor), deadline: None }).unwrap();
        let early = sent(host, Time::ZERO);
        let (verdict, _) = processed(&mut switch, rank as u16, &early);
        assert_eq!(verdict, Verdict::Drop(DropReason::StaleEpoch));
        receive(host, &notice(&mut switch));
    }
    begin(&mut switch, &mut hosts, &mut packets);
    let (verdict, result) = processed(&mut switch, 1, &sent(&mut hosts[1], Time::ZERO));
    assert_eq!(verdict, Verdict::Group(GroupId(0)), "rank 0 is not waited for");
    packets.push(("RESULT: an average of rank 1 alone", result.clone()));
    receive(&mut hosts[1], &result);
    let gone = of_kind(Kind::Gone, &packets[0].1);
    processed(&mut switch, 0, &gone);
    let sync = notice(&mut switch);
    hosts.iter_mut().for_each(|host| receive(host, &sync));
    begin(&mut switch, &mut hosts, &mut packets);
    packets.push(("KNOWN: rank 1 has the result of VID 0", sent(&mut hosts[1], Time::ZERO)));
    check("panama_partial", &packets);
}

/// All ranks say what they lack, and what results they have; the epoch begins.
fn begin(switch: &mut Box<dyn Switch>, hosts: &mut [Box<dyn Host>; 2], packets: &mut Vec<(&str, Vec<u8>)>) {
    for (rank, host) in hosts.iter_mut().enumerate() {
        let base = sent(host, Time::ZERO);
        processed(switch, rank as u16, &base);
        packets.push(("BASE: what the rank lacks, and behind which VIDs it has no result", base));
    }
    let rewind = notice(switch);
    hosts.iter_mut().for_each(|host| receive(host, &rewind));
    packets.push(("REWIND: where the epoch begins, and behind which VIDs nobody has a result", rewind));
}

/// Four ports, all of the bitmap, VID 0 expected: packets in by port, and what comes out.
#[test]
fn figure_6a() {
    let mut switch = new_switch(4);
    let mut packets = Vec::new();
    let said = ["port 0 in", "port 1 in", "port 2 in", "port 3 in"];
    for (port, said) in (0..4).zip(said) {
        let config = tributary_proto::contract::config::HostConfig::worker(
            tributary_proto::contract::config::JobConfig { world_size: 4, ..job(&PROTOCOL) },
            tributary_proto::contract::ids::Rank(port),
        );
        let mut host = PROTOCOL.host(Values::Elements, &config);
        let tiny = f32::from_bits(1 + u32::from(port));
        host.submit(Time::ZERO, f32s(&[1.5 * f32::from(port), 16_777_216.0 - f32::from(port), -0.0, tiny])).unwrap();
        let contribution = sent(&mut host, Time::ZERO);
        let (verdict, out) = processed(&mut switch, port, &contribution);
        packets.push((said, contribution));
        if port == 3 {
            assert_eq!(verdict, Verdict::Group(GroupId(0)));
            packets.push(("out, to all ports", out));
        }
    }
    check("panama_fig6a", &packets);
}
