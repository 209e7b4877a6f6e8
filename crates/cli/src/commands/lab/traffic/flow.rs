//! `--transport dctcp`: one long flow under DCTCP, over a fabric's switches. Its machine is the simulator's
//! (`tributary_sim::transport`), so that the same transport shares a cable with a job there and here.
//!
//! A packet is a CARRY. Behind its headers it has the sender's node (4 bytes), the UDP port for answers (2), two zeros,
//! and a segment of the machine; data is filled up with zeros.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tributary_control::fabric::FabricLayout;
use tributary_net::fabric::wire::{CARRY_LEN, Carry, fabric_header, read_pause};
use tributary_net::os::{self, Clock};
use tributary_net::udp::{Destination, Inbox, UdpPort};
use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::ids::{JobKey, NodeId};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{Common, kind};
use tributary_sim::transport::{HEADER_LEN, TransportHost, TransportSettings};

use super::{Ends, PAYLOAD};
use crate::cluster::Interrupt;
use crate::commands::collective::unix_seconds;
use crate::failure::Failure;
use crate::output;

/// The port of the receiving end.
const FLOW_PORT: u16 = 17_790;
/// Bytes before a segment.
const BEFORE: usize = CARRY_LEN + 8;
/// Bytes of data in a packet of 1,500.
const DATA: usize = PAYLOAD - BEFORE - HEADER_LEN;
const SOCKET_BUFFER: usize = 4 << 20;
/// More than any run can send: 2^31 packets.
const ENDLESS: u64 = (DATA as u64) << 31;
/// The longest sleep, after which the flow checks whether it must stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The state of a flow, one line for each interval.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since 1970.
    pub at: f64,
    /// Packets that the receiver has acknowledged.
    pub packets: u64,
    /// The congestion window, in packets.
    pub window_packets: u64,
}

/// Processes are late by milliseconds, unlike the simulator's hosts, so the least timeout is longer.
fn settings() -> TransportSettings {
    let ms = Span::from_millis;
    let timers = TimerConfig { initial_rto: ms(200), min_rto: ms(50), max_rto: ms(640) };
    TransportSettings { packet_bytes: DATA as u16, timers, ..TransportSettings::default() }
}

/// One end of a flow.
pub struct FlowEnd {
    udp: UdpPort,
    leaf: Destination,
    leaf_addr: SocketAddr,
    key: JobKey,
    own: NodeId,
    via: NodeId,
    /// The port for the flow's other end's packets.
    peer_port: u16,
    machine: TransportHost,
    clock: Clock,
    paused_until: Time,
    acknowledged: u64,
}

impl FlowEnd {
    /// Opens the sending or the receiving end.
    pub fn open(fabric: &FabricLayout, ends: Ends, receives: bool) -> Result<FlowEnd, Failure> {
        let own = if receives { ends.to } else { ends.from };
        let at = SocketAddr::new(fabric.nodes[own.index()].address, if receives { FLOW_PORT } else { 0 });
        let udp = UdpPort::open(at, SOCKET_BUFFER, SOCKET_BUFFER).map_err(|error| {
            let (ip, name) = (at.ip(), fabric.name(own));
            Failure::new(format!("{ip} is not an address of this machine ({error}): is this {name}?"))
        })?;
        let leaf_addr = fabric.udp(fabric.leaf_of(own));
        let mut machine = TransportHost::new(settings());
        let clock = Clock::start();
        if !receives {
            machine
                .start(clock.now(), ends.to, ENDLESS, 0)
                .ok_or_else(|| Failure::new("a flow of too many packets"))?;
        }
        Ok(FlowEnd {
            leaf: udp.destination(leaf_addr),
            udp,
            leaf_addr,
            key: fabric.key(),
            own,
            via: ends.via,
            peer_port: FLOW_PORT,
            machine,
            clock,
            paused_until: Time::ZERO,
            acknowledged: 0,
        })
    }

    /// Runs until the time is over or a signal stops it; with `every` the sender reports its state.
    pub fn run(
        &mut self,
        duration: Option<Duration>,
        every: Option<Duration>,
        interrupt: &Interrupt,
    ) -> Result<u64, Failure> {
        let (start, mut inbox) = (Instant::now(), Inbox::new());
        let mut next = every.map(|every| start + every);
        while !interrupt.is_set() && duration.is_none_or(|duration| start.elapsed() < duration) {
            self.turn(&mut inbox);
            let now = Instant::now();
            if let (Some(at), Some(every)) = (next, every)
                && at <= now
            {
                next = Some(at.max(now.checked_sub(every).unwrap_or(now)) + every);
                let window_packets = self.machine.window(0).unwrap_or(0);
                output::json(&Sample { at: unix_seconds(), packets: self.acknowledged, window_packets })?;
            }
            let timer = self.machine.poll_timeout().map(|due| os::to_duration(due.since(self.clock.now())));
            let due = next.map(|at| at.saturating_duration_since(now));
            self.udp.wait(POLL_INTERVAL.min(timer.unwrap_or(POLL_INTERVAL)).min(due.unwrap_or(POLL_INTERVAL)));
        }
        Ok(self.acknowledged)
    }

    fn turn(&mut self, inbox: &mut Inbox) {
        loop {
            let more = self.udp.receive(inbox);
            let leaf = self.leaf_addr;
            for message in inbox.messages.iter().filter(|message| message.from == leaf) {
                message.segments().for_each(|range| self.handle_packet(&inbox.memory[range], message.ecn));
            }
            self.send();
            if !more {
                break;
            }
        }
        let now = self.clock.now();
        self.machine.handle_timeout(now);
        self.send();
    }

    fn handle_packet(&mut self, packet: &[u8], ecn: Ecn) {
        let now = self.clock.now();
        let Ok(header) = Common::parse(packet) else { return };
        if header == fabric_header(kind::PAUSE, self.key) {
            self.paused_until = read_pause(packet).map_or(self.paused_until, |span| now + span);
        }
        let Some(segment) = packet.get(BEFORE..BEFORE + HEADER_LEN) else { return };
        if header != fabric_header(kind::CARRY, self.key) {
            return;
        }
        let own = &packet[CARRY_LEN..BEFORE];
        let from = NodeId(u32::from_be_bytes([own[0], own[1], own[2], own[3]]));
        if from != self.own {
            self.peer_port = u16::from_be_bytes([own[4], own[5]]);
        }
        let refused = self.machine.refused();
        self.machine.handle_packet(now, (from, 0), segment, ecn);
        // The sending end gets only acknowledgements, one for each packet.
        self.acknowledged += u64::from(self.machine.refused() == refused);
    }

    fn send(&mut self) {
        let mut packet = [0; PAYLOAD];
        loop {
            let now = self.clock.now();
            if self.paused_until > now {
                return;
            }
            let Some(out) = self.machine.poll_transmit(now, &mut packet[BEFORE..]) else { return };
            Carry { via: self.via, to: out.to, udp_port: self.peer_port }.emit(self.key, &mut packet);
            packet[CARRY_LEN..CARRY_LEN + 4].copy_from_slice(&self.own.0.to_be_bytes());
            packet[CARRY_LEN + 4..CARRY_LEN + 6].copy_from_slice(&self.udp.local_addr().port().to_be_bytes());
            // Data fills its packet; an acknowledgement is only a header.
            let len = if out.ecn == Ecn::Capable { PAYLOAD } else { BEFORE + HEADER_LEN };
            self.udp.send(&self.leaf, &[IoSlice::new(&packet[..len])], len, out.ecn);
        }
    }
}
