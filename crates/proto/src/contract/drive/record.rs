//! Drivers that only record what machines do, for tests, fuzzers and replays. They drain machines as real drivers do,
//! and send nothing.

use super::host::{self, HostIo};
use super::switch::{self, Arrival, Passed, SwitchIo};
use crate::contract::host::{Host, HostEvent};
use crate::contract::ids::PortId;
use crate::contract::packet::{Addr, Ecn, Packet, PacketMut, Transmit};
use crate::contract::pipeline::Pipeline;
use crate::contract::switch::{Emission, NoQueues, PortView, Verdict};
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

/// Drains pipelines and records the packets that their machines make themselves.
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
        let mut made = None;
        self.burst(pipeline, now, &mut std::iter::once((ingress, packet)), ports, &mut |verdict| made = Some(verdict));
        made.expect("a packet was there")
    }

    /// Takes a burst of packets through a pipeline, which may rewrite them, and passes on the verdict on each. Packets
    /// that machines make themselves follow the burst, as in a driver that receives several packets at once.
    pub fn burst<'p, 'b: 'p>(
        &mut self,
        pipeline: &mut Pipeline,
        now: Time,
        packets: &mut dyn Iterator<Item = (PortId, &'p mut PacketMut<'b>)>,
        ports: &dyn PortView,
        on_verdict: &mut dyn FnMut(Verdict),
    ) {
        switch::receive(pipeline, &mut SwitchTurn { now, packets, passing: None, ports, on_verdict, recorder: self });
    }

    /// Runs the timers of a pipeline that are due.
    pub fn timeout(&mut self, pipeline: &mut Pipeline, now: Time) {
        self.drain(now, |io| switch::handle_timeout(pipeline, io));
    }

    /// Records what the machines of a pipeline have to send.
    pub fn transmit(&mut self, pipeline: &mut Pipeline, now: Time) {
        self.drain(now, |io| switch::transmit(pipeline, io));
    }

    fn drain(&mut self, now: Time, call: impl FnOnce(&mut SwitchTurn<'_, '_, '_>)) {
        let (packets, ports) = (&mut std::iter::empty(), &NoQueues);
        call(&mut SwitchTurn { now, packets, passing: None, ports, on_verdict: &mut |_| {}, recorder: self });
    }

    /// The packets made since the last call.
    pub fn take(&mut self) -> Vec<Made<Verdict>> {
        std::mem::take(&mut self.made)
    }
}

struct SwitchTurn<'a, 'p, 'b> {
    now: Time,
    packets: &'a mut dyn Iterator<Item = (PortId, &'p mut PacketMut<'b>)>,
    passing: Option<&'p mut PacketMut<'b>>,
    ports: &'a dyn PortView,
    on_verdict: &'a mut dyn FnMut(Verdict),
    recorder: &'a mut SwitchRecorder,
}

impl SwitchIo for SwitchTurn<'_, '_, '_> {
    type Ports<'a>
        = &'a dyn PortView
    where
        Self: 'a;

    fn now(&self) -> Time {
        self.now
    }

    fn receive(&mut self) -> Option<Arrival<'_, &dyn PortView>> {
        let (ingress, packet) = self.packets.next()?;
        let PacketMut { bytes, len, wire_len, ecn } = self.passing.insert(packet);
        let packet = PacketMut { bytes, len: *len, wire_len: *wire_len, ecn: *ecn };
        Some(Arrival { ingress, packet, ports: self.ports })
    }

    fn carry_out(&mut self, verdict: Verdict, passed: Passed) {
        (self.on_verdict)(verdict);
        if let Some(packet) = &mut self.passing {
            (packet.len, packet.wire_len, packet.ecn) = (passed.len, passed.wire_len, passed.ecn);
        }
    }

    fn transmit_buf(&mut self) -> &mut [u8] {
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
        self.burst(host, now, &mut std::iter::once((from, packet)));
        self.drain(host, now)
    }

    /// Gives a host a burst of packets, and records its answer to each. [`HostRecorder::drain`] follows, after one
    /// burst or several.
    pub fn burst<'p>(&mut self, host: &mut dyn Host, now: Time, packets: &mut dyn Iterator<Item = (Addr, Packet<'p>)>) {
        host::receive(host, &mut HostTurn { now, packets, recorder: self });
    }

    /// Runs a host's timer if it is due; returns when it is due next.
    pub fn timeout(&mut self, host: &mut dyn Host, now: Time) -> Option<Time> {
        host::handle_timeout(host, now);
        self.drain(host, now)
    }

    /// Records all that follows another input; returns when the host's timer is due.
    pub fn drain(&mut self, host: &mut dyn Host, now: Time) -> Option<Time> {
        host::drain(host, &mut HostTurn { now, packets: &mut std::iter::empty(), recorder: self })
    }
}

struct HostTurn<'a, 'p> {
    now: Time,
    packets: &'a mut dyn Iterator<Item = (Addr, Packet<'p>)>,
    recorder: &'a mut HostRecorder,
}

impl HostIo for HostTurn<'_, '_> {
    fn now(&self) -> Time {
        self.now
    }

    fn receive(&mut self) -> Option<(Addr, Packet<'_>)> {
        self.packets.next()
    }

    fn transmit_buf(&mut self, longest: usize) -> &mut [u8] {
        &mut self.recorder.buf[..longest]
    }

    fn send(&mut self, transmit: Transmit) {
        let Transmit { to, len, wire_len, ecn } = transmit;
        let bytes = self.recorder.buf[..len].to_vec();
        self.recorder.sent.push(Made { to, bytes, wire_len, ecn });
    }

    fn on_event(&mut self, event: HostEvent) {
        self.recorder.events.push(event);
    }
}
