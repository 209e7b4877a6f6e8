//! A UDP socket for packets in runs.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tributary_proto::contract::packet::Ecn;

use super::inbox::Inbox;
use super::{Destination, SocketCounters, key_of, sys};
use crate::os;

/// The most packets in one run. At 1,472 bytes each, 44 packets fill a UDP message.
pub const MAX_RUN: usize = 44;
/// The most bytes in one run. It is less than UDP's 65,507, so that the headers fit too.
pub const MAX_RUN_BYTES: usize = 65_000;

/// How long a send waits for space in the socket's buffer before the packets count as lost.
const SEND_PATIENCE: Duration = Duration::from_millis(5);

/// A bound UDP socket. Receiving never waits, and sending waits only for a short time.
pub struct UdpPort {
    socket: Arc<Socket>,
    local: SocketAddr,
    counters: SocketCounters,
    overflows_seen: u32,
    /// The id of the next packet that leaves in fragments.
    next_fragment_id: u16,
}

impl UdpPort {
    /// Binds `listen` and asks the kernel for offloads and for buffers of these sizes.
    pub fn open(listen: SocketAddr, receive_buffer: usize, send_buffer: usize) -> io::Result<UdpPort> {
        UdpPort::open_as(listen, receive_buffer, send_buffer, false)
    }

    /// The same; `beside`: another socket of this user has the address, and shares it.
    pub fn open_as(listen: SocketAddr, receive_buffer: usize, send_buffer: usize, beside: bool) -> io::Result<UdpPort> {
        let socket = Socket::new(Domain::for_address(listen), Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
        if listen.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_port(beside)?;
        socket.bind(&listen.into())?;
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let fd = socket.as_raw_fd();
        grow(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_buffer)?;
        grow(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send_buffer)?;
        // Routers must not fragment packets. The kernel must not believe routers' messages about MTUs either, because
        // anybody can forge them. Only answers of the peer show what passes (`probe`).
        sys::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        if listen.is_ipv6() {
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        }
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        let counters = SocketCounters {
            segmentation_offload: sys::get_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok(),
            receive_coalescing: sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok(),
            receive_buffer: socket.recv_buffer_size()?,
            send_buffer: socket.send_buffer_size()?,
            ..SocketCounters::default()
        };
        Ok(UdpPort { socket: Arc::new(socket), local, counters, overflows_seen: 0, next_fragment_id: 0 })
    }

    /// The socket, for those who sleep on it.
    pub fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.socket)
    }

    /// The address that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The counters so far.
    pub fn counters(&self) -> &SocketCounters {
        &self.counters
    }

    /// A remote address in the form for this socket: IPv4 through an IPv6 socket needs the mapped form.
    pub fn destination(&self, remote: SocketAddr) -> Destination {
        let v4 = key_of(remote).0.is_ipv4();
        let remote = match (self.local, remote.ip()) {
            (SocketAddr::V6(_), IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), remote.port()),
            _ => remote,
        };
        Destination { address: remote.into(), v4, from: None, limit: None }
    }

    /// Like [`UdpPort::destination`], for a remote that takes packets only from our address `local`. A socket that is
    /// bound to every address of the machine would otherwise send from the address that the route to the remote names
    /// first.
    pub fn destination_from(&self, local: IpAddr, remote: SocketAddr) -> Destination {
        let to = self.destination(remote);
        let local = local.to_canonical();
        let chosen = self.local.ip().is_unspecified() && local.is_ipv4() == to.v4;
        Destination { from: chosen.then_some(local), ..to }
    }

    /// Sleeps until a packet has come, or the time is over.
    pub fn wait(&self, timeout: Duration) {
        os::wait_readable(self.as_fd(), timeout);
    }

    /// Receives the packets that are there, without waiting. True if there may be more.
    pub fn receive(&mut self, inbox: &mut Inbox) -> bool {
        inbox.overflows = self.overflows_seen;
        while let Err(error) = sys::receive(self.socket.as_raw_fd(), inbox) {
            match error.kind() {
                io::ErrorKind::WouldBlock => return false,
                io::ErrorKind::Interrupted => {}
                // Such an error belongs to an earlier packet: for example, a dead peer's port. The kernel reports it
                // once.
                _ => {
                    self.counters.soft_errors += 1;
                    return false;
                }
            }
        }
        self.counters.rx_overflows += u64::from(inbox.overflows.wrapping_sub(self.overflows_seen));
        self.overflows_seen = inbox.overflows;
        for message in &inbox.messages {
            self.counters.rx_runs += 1;
            self.counters.rx_packets += message.len.div_ceil(message.segment.max(1)).max(1) as u64;
            self.counters.rx_bytes += message.len as u64;
        }
        inbox.note_batch()
    }

    /// Sends a run: the bytes of `slices`, packets of `segment` bytes each, except the last, which may be shorter.
    /// Packets that cannot be sent are counted and treated as lost on the way.
    pub fn send(&mut self, to: &Destination, slices: &[IoSlice<'_>], segment: usize, ecn: Ecn) {
        match to.limit.filter(|&limit| limit < segment) {
            None => self.send_run(to, slices, segment, ecn),
            Some(limit) => self.send_fragmented(to, slices, segment, limit, ecn),
        }
    }

    /// Sends a run on a path that is too narrow for its packets. This copies the packets, which costs little because such
    /// a path is not fast.
    fn send_fragmented(&mut self, to: &Destination, slices: &[IoSlice<'_>], segment: usize, limit: usize, ecn: Ecn) {
        let run: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        for packet in run.chunks(segment) {
            let mut fragments = Vec::with_capacity(2 * segment);
            self.next_fragment_id = self.next_fragment_id.wrapping_add(1);
            match packet.len() > limit && super::fragments::split(packet, limit, self.next_fragment_id, &mut fragments)
            {
                true => self.send_run(to, &[IoSlice::new(&fragments)], limit, ecn),
                false => self.send_run(to, &[IoSlice::new(packet)], packet.len(), ecn),
            }
        }
    }

    fn send_run(&mut self, to: &Destination, slices: &[IoSlice<'_>], segment: usize, ecn: Ecn) {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        if bytes <= segment {
            self.send_whole(to, slices, bytes, None, ecn);
        } else if !self.counters.segmentation_offload {
            self.send_singly(to, slices, segment, ecn);
        } else if self.send_whole(to, slices, bytes, Some(segment), ecn) == Outcome::Refused {
            // EINVAL and EIO mean one of two things: this kernel or device does not cut segments, or a segment is too
            // long for the path. Only in the first case do single packets pass.
            let before = self.counters.tx_packets;
            self.send_singly(to, slices, segment, ecn);
            self.counters.segmentation_offload = self.counters.tx_packets == before;
        }
    }

    fn send_singly(&mut self, to: &Destination, slices: &[IoSlice<'_>], segment: usize, ecn: Ecn) {
        let run: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        for packet in run.chunks(segment) {
            self.send_whole(to, &[IoSlice::new(packet)], packet.len(), None, ecn);
        }
    }

    fn send_whole(
        &mut self,
        to: &Destination,
        slices: &[IoSlice<'_>],
        bytes: usize,
        segment: Option<usize>,
        ecn: Ecn,
    ) -> Outcome {
        let packets = segment.map_or(1, |segment| bytes.div_ceil(segment)) as u64;
        let mut patience = 2;
        loop {
            let segment = segment.map(|segment| segment as u16);
            let result = sys::send(self.socket.as_raw_fd(), to, slices, segment, ecn);
            let Err(error) = result else {
                self.counters.tx_runs += 1;
                self.counters.tx_packets += packets;
                self.counters.tx_bytes += bytes as u64;
                return Outcome::Sent;
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS) if patience > 0 => {
                    patience -= 1;
                    os::wait_writable(self.as_fd(), SEND_PATIENCE);
                }
                Some(libc::EAGAIN | libc::ENOBUFS) => {
                    self.counters.tx_no_buffers += packets;
                    return Outcome::Lost;
                }
                Some(libc::EINVAL | libc::EIO) if segment.is_some() => return Outcome::Refused,
                Some(libc::EMSGSIZE) => {
                    self.counters.tx_too_long += packets;
                    return Outcome::Lost;
                }
                // This error answers an earlier packet, perhaps to another peer. The kernel has not looked at this
                // packet yet.
                Some(libc::ECONNREFUSED) if patience > 0 => {
                    patience -= 1;
                    self.counters.soft_errors += 1;
                }
                _ => {
                    self.counters.tx_errors += packets;
                    return Outcome::Lost;
                }
            }
        }
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[derive(PartialEq, Eq)]
enum Outcome {
    Sent,
    Lost,
    Refused,
}

/// Asks for a buffer beyond the system's limit, which only root may do. If that fails, asks for what the limit allows.
fn grow(fd: i32, force: i32, ask: i32, bytes: usize) -> io::Result<()> {
    // The kernel doubles the value, to account for its own overhead.
    let value = i32::try_from(bytes / 2).unwrap_or(i32::MAX / 2);
    sys::set_option(fd, libc::SOL_SOCKET, force, value).or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, ask, value))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn without_segmentation_offload_a_run_leaves_packet_by_packet() {
        let open = || UdpPort::open(([127, 0, 0, 1], 0).into(), 1 << 20, 1 << 20).unwrap();
        let (mut sender, mut receiver) = (open(), open());
        sender.counters.segmentation_offload = false;
        let to = sender.destination(receiver.local_addr());
        let bytes: Vec<u8> = (0..250).collect();
        sender.send(&to, &[IoSlice::new(&bytes[..30]), IoSlice::new(&bytes[30..])], 100, Ecn::Capable);
        assert_eq!((sender.counters.tx_runs, sender.counters.tx_packets, sender.counters.tx_bytes), (3, 3, 250));
        let (mut inbox, mut received) = (Inbox::new(), Vec::new());
        // The loopback interface delivers a packet before the call that sends it returns.
        loop {
            let more = receiver.receive(&mut inbox);
            for range in inbox.messages.iter().flat_map(|message| message.segments()) {
                received.push(inbox.memory[range].to_vec());
            }
            if !more {
                break;
            }
        }
        assert!(received.iter().map(Vec::as_slice).eq(bytes.chunks(100)));
    }

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_path_that_shrinks_or_widens_is_a_line_of_the_log_and_one_that_stays_is_none() {
        let written = LogBuffer::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let socket = UdpPort::open("127.0.0.1:0".parse().unwrap(), 1 << 16, 1 << 16).unwrap();
        let mut path = socket.destination("127.0.0.1:9".parse().unwrap());
        tracing::subscriber::with_default(log, || {
            for limit in [None, Some(1_452), Some(1_452), Some(524), Some(1_452), None] {
                path.set_limit(limit);
            }
            let _same = socket.destination("127.0.0.1:9".parse().unwrap()).with_limit_of(Some(&path));
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        for (line, says) in lines.iter().zip(["shrunk", "shrunk", "widened", "widened"]) {
            assert!(line.contains("127.0.0.1:9") && line.contains(&format!("path {says}")), "{line}");
        }
        assert!(
            lines[0].contains("WARN") && lines[0].contains("bytes=1452") && lines[1].contains("bytes=524"),
            "{text}"
        );
    }
}
