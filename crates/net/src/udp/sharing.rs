//! Two sockets at one address, while a switch's next program takes over from an earlier one: the kernel gives the earlier
//! program the packets of its jobs, and the next one all others (`SO_REUSEPORT` with a filter).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use socket2::Socket;
use tributary_proto::contract::ids::JobId;

use super::{UdpPort, sys};

/// Where a packet's common header has its job.
const JOB_AT: u32 = 6;

/// The same socket as a [`UdpPort`] on another thread.
pub struct PortSharing(Socket);

impl PortSharing {
    /// The sharing of a port that is open.
    pub fn of(port: &UdpPort) -> io::Result<PortSharing> {
        Ok(PortSharing(port.as_fd().try_clone_to_owned()?.into()))
    }

    /// Lets another socket of this user bind the same address; or no longer, and all packets that come are for this one.
    pub fn set_shared(&self, shared: bool) -> io::Result<()> {
        if !shared {
            // The call fails only if nothing was left to anybody.
            let _ = sys::set_option(self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 1);
        }
        self.0.set_reuse_port(shared)
    }

    /// Leaves packets of these jobs to the socket that had the address before this one, and none else.
    pub fn leave_to_earlier(&self, jobs: &[JobId]) -> io::Result<()> {
        let ids: Vec<u16> = jobs.iter().map(|job| job.0).collect();
        sys::leave_to_first(self.0.as_raw_fd(), JOB_AT, &ids)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use tributary_proto::contract::ids::JobKey;
    use tributary_proto::contract::wire::{COMMON_LEN, Common};

    use super::super::Inbox;
    use super::*;

    fn open(listen: SocketAddr, beside: bool) -> UdpPort {
        UdpPort::open_as(listen, 1 << 16, 1 << 16, beside).unwrap()
    }

    /// The jobs of the packets that a port has received.
    fn received(port: &mut UdpPort) -> Vec<u16> {
        let (mut inbox, mut jobs) = (Inbox::new(), Vec::new());
        while port.receive(&mut inbox) || !inbox.messages.is_empty() {
            for range in inbox.messages.iter().flat_map(|message| message.segments()) {
                jobs.push(Common::parse(&inbox.memory[range]).unwrap().job.0);
            }
            inbox.messages.clear();
        }
        jobs.sort_unstable();
        jobs
    }

    /// Sends a packet of each job, each from a socket of its own.
    fn send(to: SocketAddr, jobs: &[u16]) {
        for &job in jobs {
            let mut packet = [0; COMMON_LEN];
            Common { protocol: 1, kind: 1, job: JobId(job), key: JobKey(7) }.emit(&mut packet);
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&packet, to).unwrap();
        }
    }

    #[test]
    fn packets_of_its_jobs_go_to_the_earlier_socket_and_all_others_to_the_next() {
        let mut earlier = open("127.0.0.1:0".parse().unwrap(), false);
        let address = earlier.local_addr();
        assert!(UdpPort::open_as(address, 1 << 16, 1 << 16, true).is_err(), "nobody shares a port unasked");
        PortSharing::of(&earlier).unwrap().set_shared(true).unwrap();
        let mut next = open(address, true);
        let sharing = PortSharing::of(&next).unwrap();
        sharing.leave_to_earlier(&[JobId(1), JobId(40_000)]).unwrap();
        let all = [0, 1, 2, 3, 40_000, 65_535];
        send(address, &all);
        assert_eq!((received(&mut earlier), received(&mut next)), (vec![1, 40_000], vec![0, 2, 3, 65_535]));
        sharing.leave_to_earlier(&[]).unwrap();
        send(address, &all);
        assert_eq!((received(&mut earlier), received(&mut next)), (vec![], all.to_vec()), "its last job has ended");
        drop(earlier);
        send(address, &all);
        assert_eq!(received(&mut next), all, "the earlier socket is gone");
        sharing.set_shared(false).unwrap();
        assert!(UdpPort::open_as(address, 1 << 16, 1 << 16, true).is_err(), "it is shared no longer");
        sharing.set_shared(true).unwrap();
        let mut last = open(address, true);
        PortSharing::of(&last).unwrap().leave_to_earlier(&[JobId(2)]).unwrap();
        send(address, &all);
        assert_eq!((received(&mut next), received(&mut last)), (vec![2], vec![0, 1, 3, 40_000, 65_535]));
        drop(last);
        send(address, &all);
        assert_eq!(received(&mut next), all, "the next program has failed");
    }
}
