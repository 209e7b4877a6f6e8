//! The drain of a switch: packets through the pipeline, then packets that machines make themselves.

use crate::contract::ids::PortId;
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::pipeline::Pipeline;
use crate::contract::switch::{Emission, PortView, Verdict};
use crate::contract::time::Time;

/// A packet that has arrived at a switch.
pub struct Arrival<'a, P> {
    /// The port by which the packet came in.
    pub ingress: PortId,
    /// The packet, in the driver's memory.
    pub packet: PacketMut<'a>,
    /// What machines can see of the switch's ports.
    pub ports: P,
}

/// A packet as the pipeline has left it. Its driver knows where the packet's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Bytes in memory.
    pub len: usize,
    /// UDP payload bytes on the wire.
    pub wire_len: usize,
    /// The congestion bits with which the packet leaves.
    pub ecn: Ecn,
}

/// A switch's environment: its clock, the packets that arrive, and its ports.
pub trait SwitchIo {
    /// What machines may see of the switch's ports.
    type Ports<'a>: PortView
    where
        Self: 'a;

    /// The time of the current inputs.
    fn now(&self) -> Time;
    /// The next packet of the burst that has arrived; `None` after the last packet.
    fn receive(&mut self) -> Option<Arrival<'_, Self::Ports<'_>>>;
    /// Carries out a verdict on the packet that [`SwitchIo::receive`] returned last.
    fn carry_out(&mut self, verdict: Verdict, packet: Passed);
    /// A buffer for the next packet that a machine makes: enough for a full packet of any job, and at least
    /// [`MIN_TRANSMIT_LEN`](super::super::switch::MIN_TRANSMIT_LEN) bytes.
    fn transmit_buf(&mut self) -> &mut [u8];
    /// Sends the packet that a machine has written to the last [`SwitchIo::transmit_buf`].
    fn send(&mut self, emission: Emission);
}

/// Takes a burst of packets; then sends all packets that machines have made.
#[inline]
pub fn receive<Io: SwitchIo>(pipeline: &mut Pipeline, io: &mut Io) {
    while let Some((verdict, passed)) = process(pipeline, io) {
        io.carry_out(verdict, passed);
    }
    transmit(pipeline, io);
}

/// Takes the next packet through the pipeline; returns the verdict.
#[inline(always)]
fn process<Io: SwitchIo>(pipeline: &mut Pipeline, io: &mut Io) -> Option<(Verdict, Passed)> {
    let now = io.now();
    let Arrival { ingress, mut packet, ports } = io.receive()?;
    let verdict = pipeline.process(now, ingress, &mut packet, &ports);
    Some((verdict, Passed { len: packet.len, wire_len: packet.wire_len, ecn: packet.ecn }))
}

/// Runs the timers that are due; then sends all packets that machines have made.
#[inline]
pub fn handle_timeout<Io: SwitchIo>(pipeline: &mut Pipeline, io: &mut Io) {
    let now = io.now();
    if pipeline.poll_timeout().is_some_and(|due| due <= now) {
        pipeline.handle_timeout(now);
        transmit(pipeline, io);
    }
}

/// Sends all packets that machines have made themselves.
#[inline]
pub fn transmit<Io: SwitchIo>(pipeline: &mut Pipeline, io: &mut Io) {
    let now = io.now();
    while let Some(emission) = pipeline.poll_transmit(now, io.transmit_buf()) {
        io.send(emission);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ids::{JobId, JobKey};
    use crate::contract::pipeline::InstalledJob;
    use crate::contract::switch::{NoQueues, Switch, SwitchReport};
    use crate::contract::time::Span;
    use crate::contract::wire::{COMMON_LEN, Common, kind};

    const JOB: JobId = JobId(1);
    const KEY: JobKey = JobKey(2);
    const MEMBER: PortId = PortId(0);
    const LATER: Time = Time(Span::from_millis(1).0);

    /// Sends each packet back, and makes one packet of its own for each; its timer makes one more.
    #[derive(Default)]
    struct Echo {
        pending: u8,
    }

    impl Switch for Echo {
        fn process(&mut self, _: Time, ingress: PortId, packet: &mut PacketMut<'_>, _: &dyn PortView) -> Verdict {
            self.pending += 1;
            packet.truncate(COMMON_LEN);
            Verdict::Port(ingress)
        }
        fn handle_timeout(&mut self, _: Time) {
            self.pending += 1;
        }
        fn poll_transmit(&mut self, _: Time, buf: &mut [u8]) -> Option<Emission> {
            self.pending = self.pending.checked_sub(1)?;
            buf[0] = self.pending;
            Some(Emission { len: 1, wire_len: 1, ecn: Ecn::NotCapable, verdict: Verdict::Port(MEMBER), ingress: None })
        }
        fn poll_timeout(&self) -> Option<Time> {
            Some(LATER)
        }
        fn memory_bytes(&self) -> usize {
            0
        }
        fn report(&self) -> SwitchReport {
            SwitchReport::default()
        }
    }

    struct Wire {
        now: Time,
        waiting: Vec<Vec<u8>>,
        passing: Vec<u8>,
        log: Vec<String>,
        buf: [u8; 1],
    }

    impl SwitchIo for Wire {
        type Ports<'a> = NoQueues;
        fn now(&self) -> Time {
            self.now
        }
        fn receive(&mut self) -> Option<Arrival<'_, NoQueues>> {
            self.passing = self.waiting.pop()?;
            let packet = PacketMut::new(&mut self.passing, Ecn::NotCapable);
            Some(Arrival { ingress: MEMBER, packet, ports: NoQueues })
        }
        fn carry_out(&mut self, verdict: Verdict, packet: Passed) {
            self.log.push(format!("{verdict:?} of {} bytes", packet.len));
        }
        fn transmit_buf(&mut self) -> &mut [u8] {
            &mut self.buf
        }
        fn send(&mut self, emission: Emission) {
            self.log.push(format!("made {:?}", &self.buf[..emission.len]));
        }
    }

    fn scenario(packets: usize) -> (Pipeline, Wire) {
        let mut pipeline = Pipeline::default();
        let machine: Option<Box<dyn Switch>> = Some(Box::new(Echo::default()));
        pipeline
            .install(JOB, InstalledJob { protocol: 1, key: KEY, members: vec![MEMBER], others: Vec::new(), machine });
        let mut bytes = vec![7; COMMON_LEN + 8];
        Common { protocol: 1, kind: kind::FIRST_OF_PROTOCOL, job: JOB, key: KEY }.emit(&mut bytes);
        let waiting = vec![bytes; packets];
        (pipeline, Wire { now: Time::ZERO, waiting, passing: Vec::new(), log: Vec::new(), buf: [0] })
    }

    #[test]
    fn each_verdict_is_carried_out_before_the_next_packet_and_a_machines_own_packets_follow_the_burst() {
        let (mut pipeline, mut wire) = scenario(2);
        receive(&mut pipeline, &mut wire);
        let back = "Port(PortId(0)) of 16 bytes";
        assert_eq!(wire.log, [back, back, "made [1]", "made [0]"]);
    }

    #[test]
    fn a_timer_runs_when_it_is_due_and_what_it_makes_leaves() {
        let (mut pipeline, mut wire) = scenario(0);
        handle_timeout(&mut pipeline, &mut wire);
        assert!(wire.log.is_empty());
        wire.now = LATER;
        handle_timeout(&mut pipeline, &mut wire);
        assert_eq!(wire.log, ["made [0]"]);
    }
}
