//! A switch as one of a fabric, and at the controller the whole fabric.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A switch as one of a fabric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricStatus {
    /// The switch's name.
    pub node: String,
    /// The switch where jobs are formed.
    pub controller: String,
    /// Its control API.
    pub controller_addr: SocketAddr,
    /// True if the switch knows the running jobs.
    pub ready: bool,
    /// Seconds since the controller last told this switch its jobs; none at the controller, and before the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_silent_s: Option<f64>,
    /// The switch's ports, by number.
    pub ports: Vec<PortStatus>,
    /// At the controller: all switches of the fabric, as they answered last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<FabricSwitchStatus>,
}

/// A switch of a fabric, as its controller sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricSwitchStatus {
    /// The switch's name.
    pub node: String,
    /// 1 for switches with hosts, one more with each switch between.
    pub level: u8,
    /// Its control API.
    pub control: SocketAddr,
    /// Why it does not answer the controller, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    /// The ids of the jobs that may be summed here.
    pub jobs: Vec<u16>,
    /// Its cables, by port; none while it is silent.
    pub cables: Vec<CableStatus>,
}

/// One cable of a fabric, as the switch at one of its ends sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CableStatus {
    /// The neighbour at the other end.
    pub peer: String,
    /// False if the switch at the other end is silent.
    pub up: bool,
    /// UDP payload that leaves, in Gbit/s, lately.
    pub tx_gbps: f64,
    /// UDP payload that comes in, in Gbit/s, lately.
    pub rx_gbps: f64,
    /// Packets that did not fit the queue.
    pub tx_drops: u64,
}

/// One port of a fabric's switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortStatus {
    /// The port's number.
    pub port: u16,
    /// The neighbour at the other end.
    pub peer: String,
    /// True if the neighbour is further from hosts than this switch.
    pub uplink: bool,
    /// False if the switch at the other end is silent.
    pub up: bool,
    /// Bytes that wait now, as on the wire.
    pub queued_bytes: u64,
    /// The most that have waited.
    pub peak_queued_bytes: u64,
    /// Packets that left.
    pub tx_packets: u64,
    /// UDP payload bytes that left.
    pub tx_bytes: u64,
    /// Packets that did not fit the queue.
    pub tx_drops: u64,
    /// Packets that were marked.
    pub tx_marks: u64,
    /// How often the other end was paused, in a lossless fabric.
    #[serde(default)]
    pub pauses_given: u64,
    /// How often the other end made this port pause.
    #[serde(default)]
    pub pauses_taken: u64,
    /// Bytes that came in by this port and wait in the switch, in a lossless fabric.
    #[serde(default)]
    pub buffered_bytes: u64,
    /// The most bytes of that kind so far.
    #[serde(default)]
    pub peak_buffered_bytes: u64,
    /// Packets that came in.
    pub rx_packets: u64,
    /// UDP payload bytes that came in.
    pub rx_bytes: u64,
    /// UDP payload that leaves, in Gbit/s, lately.
    #[serde(default)]
    pub tx_gbps: f64,
    /// UDP payload that comes in, in Gbit/s, lately.
    #[serde(default)]
    pub rx_gbps: f64,
}
