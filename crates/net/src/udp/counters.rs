//! What a socket did and what went wrong with it, for people and metrics.

/// Counted since the socket was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// UDP payload bytes received.
    pub rx_bytes: u64,
    /// Packets received; a coalesced run counts each segment.
    pub rx_packets: u64,
    /// Messages that the kernel handed over: runs of one or more segments.
    pub rx_runs: u64,
    /// UDP payload bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Messages handed to the kernel: runs of one or more segments.
    pub tx_runs: u64,
    /// Packets that the kernel dropped because the socket's receive buffer was full.
    pub rx_overflows: u64,
    /// Packets not sent because buffers were full for too long.
    pub tx_no_buffers: u64,
    /// Packets not sent because they do not fit the path's MTU, or no longer fit it.
    pub tx_too_long: u64,
    /// Packets not sent for another reason: no route, a firewall's refusal.
    pub tx_errors: u64,
    /// Errors that the kernel reported for earlier packets, such as a dead peer's "port unreachable".
    pub soft_errors: u64,
    /// True if the kernel takes runs of segments in one call (UDP_SEGMENT).
    pub segmentation_offload: bool,
    /// True if the kernel hands over coalesced runs (UDP_GRO).
    pub receive_coalescing: bool,
    /// Bytes of receive buffer that the kernel granted, as it counts them (with its own overhead).
    pub receive_buffer: usize,
    /// Bytes of send buffer that the kernel granted, as it counts them.
    pub send_buffer: usize,
}
