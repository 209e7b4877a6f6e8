//! What a shard sends through its ports: [`Forwarder`] sends packets in runs, and [`Uplinks`] exchanges keepalives with
//! parent switches.

use std::io::IoSlice;
use std::ops::Range;

use tributary_proto::contract::ids::{JobId, PortId};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;

use super::ports::Ports;
use crate::udp::path::{self, MtuProbe};
use crate::udp::{Batches, Run, UdpPort};

/// The number of verdicts whose runs are gathered at the same time: one for all members, and those for single members.
const VERDICTS: usize = 16;

/// Sends the packets of verdicts. Packets of one length with the same verdict leave in one call for each receiver, straight
/// from the memory into which they were received.
pub struct Forwarder {
    /// By the verdict and the share of slots, which says to which core of each receiver a packet goes.
    batches: Batches<(Verdict, u16), VERDICTS>,
    /// The number of packets for which there was no port.
    unroutable: u64,
}

impl Forwarder {
    /// Nothing gathered.
    pub fn new() -> Forwarder {
        Forwarder { batches: Batches::new((Verdict::Consume, 0)), unroutable: 0 }
    }

    /// The number of packets for which there was no port.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// True if nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Takes the packet at `range` in `memory`, with its verdict and its share of the slots. Sends a run if the packet does
    /// not continue it, or needs its batch.
    pub fn push(
        &mut self,
        range: Range<usize>,
        ecn: Ecn,
        to: (Verdict, u16),
        memory: &[u8],
        ports: &Ports,
        udp: &mut UdpPort,
    ) {
        let unroutable = &mut self.unroutable;
        self.batches.push(to, range, ecn, |to, run| *unroutable += send_run(to, run, memory, ports, udp));
    }

    /// Sends all packets that were gathered. Their memory is free after that.
    pub fn flush(&mut self, memory: &[u8], ports: &Ports, udp: &mut UdpPort) {
        let unroutable = &mut self.unroutable;
        self.batches.flush(|to, run| *unroutable += send_run(to, run, memory, ports, udp));
    }
}

/// Sends a run to the receivers of its verdict. Returns the number of packets for which there was no port.
fn send_run((verdict, share): (Verdict, u16), run: &Run, memory: &[u8], ports: &Ports, udp: &mut UdpPort) -> u64 {
    let mut reached = 0;
    let mut send = |port| {
        let destination = ports.destination(ports.core_of(port, share));
        run.send(destination.inspect(|_| reached += 1).into_iter(), memory, udp);
    };
    match verdict {
        Verdict::Port(port) => send(port),
        Verdict::Multicast(set) => set.iter().for_each(send),
        Verdict::Group(group) => ports.group(group).iter().for_each(|&port| send(port)),
        // A star knows only the nodes of its own jobs.
        Verdict::Route(_) | Verdict::Consume | Verdict::Drop(_) => {}
    }
    if reached == 0 { run.packets() as u64 } else { 0 }
}

struct Uplink {
    common: Common,
    port: PortId,
    mtu: MtuProbe,
}

/// The paths to parent switches, for all jobs of one shard. The child pings and the parent answers. By this each knows that
/// the other is alive, and how long a packet the path between them holds.
#[derive(Default)]
pub struct Uplinks {
    uplinks: Vec<Uplink>,
}

impl Uplinks {
    /// Adds a job's path to the parent switch, with its longest packet; the first ping is due at once.
    pub fn add(&mut self, port: PortId, common: Common, full: usize) {
        self.uplinks.push(Uplink { common, port, mtu: MtuProbe::new(full, full) });
    }

    /// Removes a job that is gone.
    pub fn remove(&mut self, job: JobId) {
        self.uplinks.retain(|uplink| uplink.common.job != job);
    }

    /// When to ping next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.uplinks.iter().map(|uplink| uplink.mtu.due()).min()
    }

    /// Handles a pong on this port, which may answer one of this switch's pings.
    pub fn on_pong(&mut self, ingress: PortId, pong: &[u8], ports: &mut Ports) {
        let Ok(common) = Common::parse(pong) else { return };
        let ours = |uplink: &&mut Uplink| uplink.port == ingress && uplink.common == Common { kind: 0, ..common };
        for uplink in self.uplinks.iter_mut().filter(ours) {
            uplink.mtu.on_pong(pong.len());
            ports.set_limit(uplink.port, uplink.mtu.limit());
        }
    }

    /// Pings the parent switches, if it is time.
    pub fn ping(&mut self, now: Time, ports: &mut Ports, udp: &mut UdpPort) {
        for Uplink { common, port, mtu } in &mut self.uplinks {
            let lengths = mtu.poll(now);
            if lengths.is_empty() {
                continue;
            }
            ports.set_limit(*port, mtu.limit());
            let Some(parent) = ports.destination(*port) else { continue };
            for len in lengths {
                let ping = path::ping(*common, len, mtu.limit());
                udp.send(parent, &[IoSlice::new(&ping)], ping.len(), Ecn::NotCapable);
            }
        }
    }
}
