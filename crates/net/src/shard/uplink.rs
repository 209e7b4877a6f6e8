//! Signs of life between a job's switches. The lower switch pings and the upper switch answers. By this each knows that
//! the other is alive, and how long a packet the way between them holds.

use std::io::IoSlice;

use tributary_proto::contract::ids::{JobId, PortId};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;

use super::ports::Ports;
use crate::udp::UdpPort;
use crate::udp::path::{self, MtuProbe};

struct Uplink {
    common: Common,
    port: PortId,
    path: MtuProbe,
}

/// The ways to the switches above, for all jobs of one shard.
#[derive(Default)]
pub struct Uplinks {
    uplinks: Vec<Uplink>,
}

impl Uplinks {
    /// Adds a job's way to the switch above, with its longest packet; the first ping is due at once.
    pub fn add(&mut self, port: PortId, common: Common, full: usize) {
        self.uplinks.push(Uplink { common, port, path: MtuProbe::new(full, full) });
    }

    /// Removes a job that is gone.
    pub fn remove(&mut self, job: JobId) {
        self.uplinks.retain(|uplink| uplink.common.job != job);
    }

    /// When to ping next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.uplinks.iter().map(|uplink| uplink.path.due()).min()
    }

    /// Notes that a ping has come back on this port. It may be one of this switch's pings.
    pub fn hear(&mut self, ingress: PortId, pong: &[u8], ports: &mut Ports) {
        let Ok(common) = Common::parse(pong) else { return };
        let ours = |uplink: &&mut Uplink| uplink.port == ingress && uplink.common == Common { kind: 0, ..common };
        for uplink in self.uplinks.iter_mut().filter(ours) {
            uplink.path.on_pong(pong.len());
            ports.set_limit(uplink.port, uplink.path.limit());
        }
    }

    /// Pings the switches above, if it is time.
    pub fn ping(&mut self, now: Time, ports: &mut Ports, udp: &mut UdpPort) {
        for Uplink { common, port, path } in &mut self.uplinks {
            let lengths = path.poll(now);
            if lengths.is_empty() {
                continue;
            }
            ports.set_limit(*port, path.limit());
            let Some(above) = ports.destination(*port) else { continue };
            for len in lengths {
                let ping = path::ping(*common, len, path.limit());
                udp.send(above, &[IoSlice::new(&ping)], ping.len(), Ecn::NotCapable);
            }
        }
    }
}
