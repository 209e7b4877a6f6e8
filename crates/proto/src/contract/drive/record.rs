//! Surroundings that only record what machines do, for tests, fuzzers and replays. They drain machines as drivers do,
//! and send nothing.

use super::host::{self, HostIo};
use super::switch::{self, Arrival, Passed, SwitchIo};
use crate::contract::host::{Host, HostEvent};
use crate::contract::ids::PortId;
use crate::contract::packet::{Addr, Ecn, Packet, PacketMut, Transmit};
use crate::contract::pipeline::Pipeline;
use crate::contract::switch::{Emission, PortView, Verdict};
use crate::contract::time::Time;

/// A length that any packet fits into.
const LONGEST: usize = 1 << 16;

/// A packet that a machine has made, and where it goes: a [`Verdict`] from a switch, an [`Addr`] from a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made<To> {
    /// The packet's verdict or address.
    pub to: To,
    /// Header and vector.
    pub bytes: Vec<u8>,
    /// UDP payload bytes on the wire.
    pub wire_len: usize,
    /// The congestion bits with which the packet leaves.
    pub ecn: Ecn,
}

/// Drains pipelines and records the packets that their machines make by themselves.
pub struct SwitchRecorder {
    buf: Vec<u8>,
    /// The packets made so far, in their order.
    pub made: Vec<Made<Verdict>>,
}

impl Default for SwitchRecorder {
    fn default() -> SwitchRecorder {
        SwitchRecorder { buf: vec![0; LONGEST], made: Vec::new() }
    }
}

impl SwitchRecorder {
    /// Takes one packet through a pipeline, which may rewrite it; returns the verdict.
    pub fn packet(
        &mut self,
        pipeline: &mut Pipeline,
        now: Time,
        ingress: PortId,
        packet: &mut PacketMut<'_>,
        ports: &dyn PortView,
    ) -> Verdict {
        let mut io = SwitchTurn { now, ingress, packet: Some(packet), ports, verdict: None, recorder: self };
        switch::receive(pipeline, &mut io);
        io.verdict.expect("a packet was there")
    }

    /// Runs the timers of a pipeline that are due.
    pub fn timeout(&mut self, pipeline: &mut Pipeline, now: Time) {
        let (ingress, ports) = (PortId::UNKNOWN, &crate::contract::switch::NoQueues);
        let mut io = SwitchTurn { now, ingress, packet: None, ports, verdict: None, recorder: self };
        switch::handle_timeout(pipeline, &mut io);
    }

    /// The packets made since the last call.
    pub fn take(&mut self) -> Vec<Made<Verdict>> {
        std::mem::take(&mut self.made)
    }
}

struct SwitchTurn<'a, 'b> {
    now: Time,
    ingress: PortId,
    packet: Option<&'a mut PacketMut<'b>>,
    ports: &'a dyn PortView,
    verdict: Option<Verdict>,
    recorder: &'a mut SwitchRecorder,
}

impl SwitchIo for SwitchTurn<'_, '_> {
    type Ports<'a>
        = &'a dyn PortView
    where
        Self: 'a;

    fn now(&self) -> Time {
        self.now
    }

    fn receive(&mut self) -> Option<Arrival<'_, &dyn PortView>> {
        let PacketMut { bytes, len, wire_len, ecn } = self.packet.as_deref_mut().filter(|_| self.verdict.is_none())?;
        let packet = PacketMut { bytes, len: *len, wire_len: *wire_len, ecn: *ecn };
        Some(Arrival { ingress: self.ingress, packet, ports: self.ports })
    }

    fn carry_out(&mut self, verdict: Verdict, passed: Passed) {
        self.verdict = Some(verdict);
        if let Some(packet) = &mut self.packet {
            (packet.len, packet.wire_len, packet.ecn) = (passed.len, passed.wire_len, passed.ecn);
        }
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.recorder.buf
    }

    fn send(&mut self, emission: Emission) {
        let Emission { len, wire_len, ecn, verdict: to, ingress: _ } = emission;
        let bytes = self.recorder.buf[..len].to_vec();
        self.recorder.made.push(Made { to, bytes, wire_len, ecn });
    }
}

/// Drains hosts and records their packets and events.
pub struct HostRecorder {
    buf: Vec<u8>,
    /// The packets sent so far, in their order.
    pub sent: Vec<Made<Addr>>,
    /// The events so far.
    pub events: Vec<HostEvent>,
}

impl Default for HostRecorder {
    fn default() -> HostRecorder {
        HostRecorder { buf: vec![0; LONGEST], sent: Vec::new(), events: Vec::new() }
    }
}

impl HostRecorder {
    /// Gives a host one packet, and records all that follows; returns when the host's timer is due.
    pub fn packet(&mut self, host: &mut dyn Host, now: Time, from: Addr, packet: Packet<'_>) -> Option<Time> {
        let mut io = HostTurn { now, packet: Some((from, packet)), recorder: self };
        host::receive(host, &mut io);
        host::settle(host, &mut io)
    }

    /// Runs a host's timer if it is due; returns when it is due next.
    pub fn timeout(&mut self, host: &mut dyn Host, now: Time) -> Option<Time> {
        host::handle_timeout(host, now);
        self.settle(host, now)
    }

    /// Records all that follows another input; returns when the host's timer is due.
    pub fn settle(&mut self, host: &mut dyn Host, now: Time) -> Option<Time> {
        host::settle(host, &mut HostTurn { now, packet: None, recorder: self })
    }
}

struct HostTurn<'a> {
    now: Time,
    packet: Option<(Addr, Packet<'a>)>,
    recorder: &'a mut HostRecorder,
}

impl HostIo for HostTurn<'_> {
    fn now(&self) -> Time {
        self.now
    }

    fn receive(&mut self) -> Option<(Addr, Packet<'_>)> {
        self.packet.take()
    }

    fn room(&mut self, longest: usize) -> &mut [u8] {
        &mut self.recorder.buf[..longest]
    }

    fn send(&mut self, transmit: Transmit) {
        let Transmit { to, len, wire_len, ecn } = transmit;
        let bytes = self.recorder.buf[..len].to_vec();
        self.recorder.sent.push(Made { to, bytes, wire_len, ecn });
    }

    fn hear(&mut self, event: HostEvent) {
        self.recorder.events.push(event);
    }
}
