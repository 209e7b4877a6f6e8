//! A fabric's own packets: what switches exchange, and what they only forward.

use std::cell::LazyCell;
use std::net::SocketAddr;
use std::sync::Arc;

use tributary_control::fabric::{FabricFile, FabricLayout};
use tributary_net::fabric::crossbar::Crossbar;
use tributary_net::fabric::wire::{Carry, Hello, fabric_header, hellos, pause, read_hello, read_pause};
use tributary_net::udp::UdpPort;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{JobId, JobKey, NodeId, PortId};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};

/// What is read can be written back, and says the same then.
pub fn fabric_wire(bytes: &[u8]) {
    if let Some(carry) = Carry::read(bytes) {
        let mut again = bytes.to_vec();
        carry.emit_fields(&mut again);
        // Two reserved bytes are not read.
        again[26..28].copy_from_slice(&bytes[26..28]);
        assert_eq!(again, bytes);
    }
    if let Some(span) = read_pause(bytes) {
        let again = pause(fabric_header(kind::PAUSE, JobKey(7)), span);
        assert_eq!(again[COMMON_LEN..], bytes[COMMON_LEN..again.len()]);
    }
    if let Some(hello) = read_hello(bytes) {
        let packets = hellos(JobKey(7), hello.node, hello.ready, hello.adverts.iter());
        assert!(packets.iter().all(|packet| packet.len() <= 1_472), "longer than an ordinary MTU");
        let read: Vec<Hello> = packets.iter().map(|packet| read_hello(packet).expect("we wrote it")).collect();
        assert!(read.iter().all(|again| (again.node, again.ready) == (hello.node, hello.ready)));
        assert!(read.iter().flat_map(|again| &again.adverts).eq(&hello.adverts));
    }
}

/// The first leaf of two, with two hosts each and two spines.
const LEAF: NodeId = NodeId(4);
const SPINES: [NodeId; 2] = [NodeId(6), NodeId(7)];
/// A host of the other leaf.
const FAR: NodeId = NodeId(2);
const PORTS: u16 = 4;
const QUEUE_KIB: u64 = 16;

thread_local! {
    /// A fabric that drops, one that pauses, and a socket that only gives names: nothing is sent.
    static FABRICS: LazyCell<([Arc<FabricLayout>; 2], UdpPort)> = LazyCell::new(|| {
        let text = |more: &str| {
            let file = format!(
                "secret = \"0123456789abcdef\"\nnetwork = \"127.77.0.0\"\nqueue = \"{QUEUE_KIB} KiB\"\nrate = \"1 Mbit/s\"\n{more}\n\
                 [leaf_spine]\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n"
            );
            Arc::new(FabricFile::parse(&file).expect("it is a fabric"))
        };
        let udp = UdpPort::open(([127, 0, 0, 1], 0).into(), 1 << 16, 1 << 16).expect("the loopback interface is there");
        ([text(""), text("lossless = true\npause_above = \"4 KiB\"")], udp)
    });
}

/// A packet as the input has it: a byte that says where it comes from, one that says how much of its common header is
/// made right, a length, and the bytes.
fn next(bytes: &mut &[u8], key: JobKey) -> Option<(u8, Vec<u8>)> {
    let (&[from, like, len], rest) = bytes.split_first_chunk()?;
    let (packet, rest) = rest.split_at(usize::from(len).min(rest.len()));
    *bytes = rest;
    let mut packet = packet.to_vec();
    if like % 4 != 3 && packet.len() >= COMMON_LEN {
        let kind = match like % 8 {
            0 | 4 => kind::CARRY,
            6 => kind::PAUSE,
            _ => kind::HELLO,
        };
        Common { protocol: 0, kind, job: JobId(0), key }.emit(&mut packet);
    }
    Some((from, packet))
}

/// A leaf receives any packets from its hosts, its spines and other senders. No queue, and no port's buffer, grows beyond
/// its limit; other senders change nothing; and when all has been silent for long, no way leads to the other leaf.
pub fn fabric_switch(bytes: &[u8]) {
    FABRICS.with(|fabrics| fabrics.0.iter().for_each(|fabric| receives(fabric, &fabrics.1, bytes)));
}

fn receives(fabric: &Arc<FabricLayout>, udp: &UdpPort, mut bytes: &[u8]) {
    let mut crossbar = Crossbar::new(fabric.clone(), LEAF, udp);
    let mut now = Time::ZERO;
    while let Some((from, mut packet)) = next(&mut bytes, fabric.key()) {
        now += Span::from_millis(u64::from(from / 8));
        let host = |node: u8| SocketAddr::new(fabric.nodes[usize::from(node)].address, 4_000);
        let sender = match from % 8 {
            node @ 0..3 => host(node),
            spine @ 3..7 => fabric.udp(SPINES[usize::from(spine % 2)]),
            _ => "127.78.0.1:4000".parse().expect("it is an address"),
        };
        let Ok(common) = Common::parse(&packet) else { continue };
        let ingress = crossbar.ingress(sender, 1, packet.len());
        let before = waiting(&mut crossbar, now);
        if common.job == JobId(0) {
            let handled = crossbar.handle_fabric_packet(now, ingress, &common, &mut packet, Ecn::Capable);
            if ingress == PortId::UNKNOWN {
                assert_eq!(handled, Err(DropReason::NotAMember));
                assert_eq!(waiting(&mut crossbar, now), before, "a sender without a port has changed something");
            }
        } else {
            let is_switch = (2..PORTS).map(PortId).any(|port| port == ingress);
            assert_eq!(crossbar.accepts(now, ingress, sender, common.job), is_switch, "there is no job");
        }
        let buffers = if fabric.lossless.is_some() { u64::from(PORTS) + 1 } else { 1 };
        assert!(waiting(&mut crossbar, now).iter().all(|&(_, queued)| queued <= (buffers * QUEUE_KIB) << 10));
        assert!(crossbar.report(now).iter().all(|port| port.ingress.buffered_bytes <= QUEUE_KIB << 10));
        if from % 16 == 0 {
            crossbar.update_links(now, false);
        }
    }
    now += Span::from_millis(10_000);
    crossbar.update_links(now, false);
    let unroutable = crossbar.unroutable();
    crossbar.forward(PortId(0), FAR, b"late", Ecn::NotCapable, 4_000);
    assert_eq!(crossbar.unroutable(), unroutable + 1, "a route over a dead switch");
}

/// Who is alive at each port, and what waits there.
fn waiting(crossbar: &mut Crossbar, now: Time) -> Vec<(bool, u64)> {
    crossbar.report(now).iter().map(|port| (port.up, port.queued_bytes)).collect()
}
