//! For tests: a machine that makes packets by itself, and the packets that leave a socket.

use std::net::Ipv4Addr;

use tributary_proto::contract::drive;
use tributary_proto::contract::ids::{JobId, JobKey, PortId};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{Emission, PortView, Switch, SwitchReport, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};

use super::burst::{Burst, MachinePackets};
use super::site::{Forwarding, Site};
use crate::udp::{Inbox, UdpPort};

const KEY: JobKey = JobKey(5);

/// Makes one packet for each verdict when its timer is due. The packet's number follows its header.
struct Emitter {
    job: JobId,
    packet_len: usize,
    verdicts: Vec<Verdict>,
    made: usize,
    is_due: bool,
}

impl Switch for Emitter {
    fn process(&mut self, _: Time, _: PortId, _: &mut PacketMut<'_>, _: &dyn PortView) -> Verdict {
        Verdict::Consume
    }
    fn handle_timeout(&mut self, _: Time) {
        self.is_due = false;
    }
    fn poll_transmit(&mut self, _: Time, buf: &mut [u8]) -> Option<Emission> {
        let verdict = *self.verdicts.get(self.made).filter(|_| !self.is_due)?;
        Common { protocol: 1, kind: kind::FIRST_OF_PROTOCOL, job: self.job, key: KEY }.emit(buf);
        buf[COMMON_LEN..self.packet_len].fill(self.made as u8);
        self.made += 1;
        Some(Emission { len: self.packet_len, wire_len: self.packet_len, ecn: Ecn::NotCapable, verdict, ingress: None })
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.is_due.then_some(Time::ZERO)
    }
    fn memory_bytes(&self) -> usize {
        0
    }
    fn report(&self) -> SwitchReport {
        SwitchReport::default()
    }
}

/// A socket that receives what a test's switch sends.
pub fn socket() -> UdpPort {
    UdpPort::open((Ipv4Addr::LOCALHOST, 0).into(), 4 << 20, 4 << 20).expect("the loopback interface is there")
}

/// The machine of each job makes packets of this length with these verdicts, and all packets leave at `site`.
/// Returns how many packets left, and in how many calls.
pub fn transmit_all<F: Forwarding>(
    site: &mut Site<F>,
    udp: &mut UdpPort,
    jobs: &[(JobId, usize, Vec<Verdict>)],
) -> (u64, u64) {
    let mut pipeline = Pipeline::default();
    for &(job, packet_len, ref verdicts) in jobs {
        let emitter = Emitter { job, packet_len, verdicts: verdicts.clone(), made: 0, is_due: true };
        let machine: Option<Box<dyn Switch>> = Some(Box::new(emitter));
        let (members, others) = (Vec::new(), Vec::new());
        pipeline.install(job, InstalledJob { protocol: 1, key: KEY, members, others, machine });
    }
    let (mut inbox, mut packets) = (Inbox::new(), MachinePackets::new());
    let mut burst = Burst::new(Time::ZERO, site, udp, &mut inbox, &mut packets);
    drive::switch::handle_timeout(&mut pipeline, &mut burst);
    burst.end();
    (udp.counters().tx_packets, udp.counters().tx_runs)
}

/// The numbers of the packets that have come to a socket, in the order of their arrival.
pub fn received(socket: &mut UdpPort) -> Vec<u8> {
    let (mut inbox, mut numbers) = (Inbox::new(), Vec::new());
    // The loopback interface delivers a packet before the call that sends it returns.
    loop {
        let more = socket.receive(&mut inbox);
        for range in inbox.messages.iter().flat_map(|message| message.segments()) {
            let packet = &inbox.memory[range];
            assert!(packet[COMMON_LEN..].iter().all(|&byte| byte == packet[COMMON_LEN]), "packets have run together");
            numbers.push(packet[COMMON_LEN]);
        }
        if !more {
            return numbers;
        }
    }
}
