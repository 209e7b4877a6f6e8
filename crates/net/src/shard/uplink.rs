//! Signs of life between a job's switches: the lower one pings, the upper one answers. Each then knows of the other.

use std::io::IoSlice;

use tributary_control::Timers;
use tributary_proto::contract::ids::{JobId, PortId};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};

use super::ports::Ports;
use crate::udp::UdpPort;

struct Uplink {
    job: JobId,
    port: PortId,
    ping: [u8; COMMON_LEN],
}

/// The ways up of all jobs of one shard.
#[derive(Default)]
pub struct Uplinks {
    uplinks: Vec<Uplink>,
    due: Time,
}

impl Uplinks {
    /// A job's way up; the first ping is due at once.
    pub fn add(&mut self, port: PortId, common: Common) {
        let mut ping = [0; COMMON_LEN];
        Common { kind: kind::PING, ..common }.emit(&mut ping);
        self.uplinks.push(Uplink { job: common.job, port, ping });
        self.due = Time::ZERO;
    }

    /// The job is gone.
    pub fn remove(&mut self, job: JobId) {
        self.uplinks.retain(|uplink| uplink.job != job);
    }

    /// When to ping next.
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.uplinks.is_empty()).then_some(self.due)
    }

    /// Pings the switches above, if it is time.
    pub fn ping(&mut self, now: Time, ports: &Ports, udp: &mut UdpPort) {
        if self.due > now {
            return;
        }
        for Uplink { port, ping, .. } in &self.uplinks {
            if let Some(above) = ports.destination(*port) {
                udp.send(above, &[IoSlice::new(ping)], ping.len(), Ecn::NotCapable);
            }
        }
        self.due = now + Timers::KEEPALIVE;
    }
}
