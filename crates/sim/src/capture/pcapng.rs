//! The trace as pcapng (IETF draft-ietf-opsawg-pcapng), and the size of the file before it is written.
//!
//! There is one packet for every link that a packet joins, with the Ethernet, IP and UDP headers that it would have, in the
//! order of sending. Times are in nanoseconds: Wireshark shows these, and finer ones overflow in it after 18 ms. An
//! interface is a node.
//!
//! Host `h` is 10.h and switch `s` is 172.16.s in dotted numbers; the channel is added to port 17777. A fingerprint instead
//! of a vector is shorter in the file than on the wire; the file keeps the wire's length.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;

use super::{Capture, Filter, Recorder};
use crate::engine::Simulation;
use crate::net::{Packet, PacketEvent, TraceEvent};
use crate::topology::Graph;

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const ETHERNET: u16 = 1;
/// Bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
/// Bytes of preamble, gap and check sequence, which captures do not contain.
const NOT_CAPTURED: u32 = 24;
const PORT: u16 = 17_777;
/// Bytes of a block without its body: type, length, and length again.
const BLOCK_ENDS: usize = 12;
/// Bytes before the frame in a packet's body: interface, time, and both lengths.
const PACKET_HEAD: usize = 20;

/// Writes packets as pcapng.
pub struct PcapngCapture<W> {
    out: W,
    hosts: u32,
    /// Packets that wait for their link, ordered by the time of sending.
    waiting: BinaryHeap<Reverse<(Time, u64, Vec<u8>)>>,
    captured: u64,
}

impl<W: Write> PcapngCapture<W> {
    /// A capture of one network; writes the file's head.
    pub fn new(graph: &Graph, mut out: W) -> io::Result<PcapngCapture<W>> {
        let mut section = Vec::new();
        section.extend(0x1A2B_3C4Du32.to_le_bytes());
        section.extend(1u16.to_le_bytes());
        section.extend(0u16.to_le_bytes());
        section.extend(u64::MAX.to_le_bytes());
        block(&mut out, SECTION_HEADER, &section)?;
        for node in 0..graph.nodes() as u32 {
            let mut interface = Vec::new();
            interface.extend(ETHERNET.to_le_bytes());
            interface.extend(0u16.to_le_bytes());
            interface.extend(0u32.to_le_bytes());
            option(&mut interface, 2, graph.name(NodeId(node)).as_bytes());
            // if_tsresol: units of 10^-9 s.
            option(&mut interface, 9, &[9]);
            option(&mut interface, 0, &[]);
            block(&mut out, INTERFACE, &interface)?;
        }
        Ok(PcapngCapture { out, hosts: graph.hosts(), waiting: BinaryHeap::new(), captured: 0 })
    }

    fn ip(&self, node: NodeId) -> [u8; 4] {
        let number = node.0.checked_sub(self.hosts).unwrap_or(node.0).to_be_bytes();
        if node.0 < self.hosts {
            [10, number[1], number[2], number[3]]
        } else {
            [172, 16 | number[1] & 15, number[2], number[3]]
        }
    }

    fn frame(&self, packet: &Packet, payload: &[u8], on_wire: u32) -> Vec<u8> {
        let mac = |node: NodeId| [[2, 0].as_slice(), &node.0.to_be_bytes()].concat();
        let ip_len = (on_wire as u16).saturating_sub(14);
        let udp_len = ip_len.saturating_sub(20);
        let tos = match packet.flags.ecn() {
            Ecn::NotCapable => 0,
            Ecn::Capable => 2,
            Ecn::CongestionExperienced => 3,
        };
        let mut frame = Vec::with_capacity(HEADERS + payload.len());
        frame.extend(mac(packet.dst));
        frame.extend(mac(packet.src));
        frame.extend(0x0800u16.to_be_bytes());
        let mut ip = vec![0x45, packet.flags.priority() << 5 | tos];
        ip.extend(ip_len.to_be_bytes());
        ip.extend((packet.serial as u16).to_be_bytes());
        ip.extend([0x40, 0, 64, 17, 0, 0]);
        ip.extend(self.ip(packet.src));
        ip.extend(self.ip(packet.dst));
        let checksum = checksum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(ip);
        frame.extend(PORT.to_be_bytes());
        frame.extend((PORT + u16::from(packet.lane)).to_be_bytes());
        frame.extend(udp_len.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        frame
    }
}

impl<W: Write + Send> Capture for PcapngCapture<W> {
    fn write(&mut self, event: &TraceEvent, payload: &[u8]) -> io::Result<()> {
        let PacketEvent::Enqueued { start, .. } = event.kind else { return Ok(()) };
        let on_wire = u32::from(event.packet.bytes).saturating_sub(NOT_CAPTURED);
        let mut frame = self.frame(&event.packet, payload, on_wire);
        frame.truncate(on_wire as usize);
        let nanos = start.0 / 1000;
        let mut body = Vec::with_capacity(frame.len() + 24);
        body.extend(event.node.0.to_le_bytes());
        body.extend(((nanos >> 32) as u32).to_le_bytes());
        body.extend((nanos as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend(on_wire.to_le_bytes());
        body.extend(&frame);
        self.waiting.push(Reverse((start, self.captured, body)));
        self.captured += 1;
        // A packet that joins a link from now on is not sent before now.
        self.write_until(event.time)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_until(Time(u64::MAX))?;
        self.out.flush()
    }
}

impl<W: Write> PcapngCapture<W> {
    fn write_until(&mut self, now: Time) -> io::Result<()> {
        while self.waiting.peek().is_some_and(|Reverse((start, ..))| *start <= now) {
            let Some(Reverse((.., body))) = self.waiting.pop() else { break };
            block(&mut self.out, ENHANCED_PACKET, &body)?;
        }
        Ok(())
    }
}

/// Bytes that an event takes in the file; `None` if the file has no packet for it.
fn block_len(event: &TraceEvent, payload: usize) -> Option<u64> {
    let PacketEvent::Enqueued { .. } = event.kind else { return None };
    let on_wire = u32::from(event.packet.bytes).saturating_sub(NOT_CAPTURED) as usize;
    let body = PACKET_HEAD + (HEADERS + payload).min(on_wire);
    Some((BLOCK_ENDS + body.next_multiple_of(4)) as u64)
}

/// A block: type, length, body padded to 32 bits, length again.
fn block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let padding = body.len().next_multiple_of(4) - body.len();
    let total = (12 + body.len() + padding) as u32;
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&total.to_le_bytes())?;
    out.write_all(body)?;
    out.write_all(&[0; 3][..padding])?;
    out.write_all(&total.to_le_bytes())
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The Internet checksum (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    !((sum & 0xFFFF) + (sum >> 16)) as u16
}

/// The size of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapngSize {
    /// Bytes of the file.
    pub bytes: u64,
    /// Packets in it, one for each link that a packet joins.
    pub packets: u64,
    /// The time up to which packets were counted, if the run goes on after it.
    pub until: Option<Time>,
}

/// Runs a simulation up to `end` or for at most `most_events`, and counts the size of a capture of all of it.
pub fn pcapng_size(mut simulation: Simulation, end: Time, most_events: u64) -> io::Result<PcapngSize> {
    let counts = Counts::default();
    // The head of the file, which names every node.
    drop(PcapngCapture::new(simulation.graph(), counts.clone())?);
    let (recorder, _) = Recorder::new(counts.clone(), Filter::default());
    simulation.fabric.set_tracer(Some(Box::new(recorder)));
    let mut left = most_events;
    while left > 0 && simulation.open() > 0 && simulation.step(end) {
        left -= 1;
    }
    let goes_on = left == 0 && simulation.open() > 0;
    Ok(PcapngSize {
        bytes: counts.bytes.load(Ordering::Relaxed),
        packets: counts.packets.load(Ordering::Relaxed),
        until: goes_on.then_some(simulation.fabric.now),
    })
}

/// A writer that counts bytes and keeps none.
#[derive(Clone, Default)]
struct Counts {
    bytes: Arc<AtomicU64>,
    packets: Arc<AtomicU64>,
}

impl Write for Counts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Capture for Counts {
    fn write(&mut self, event: &TraceEvent, payload: &[u8]) -> io::Result<()> {
        if let Some(len) = block_len(event, payload.len()) {
            self.bytes.fetch_add(len, Ordering::Relaxed);
            self.packets.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}
