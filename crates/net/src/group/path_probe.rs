//! Tests what the path to a switch does to packets besides carrying them: whether congestion marks survive it, and whether
//! it keeps the order of packets. Protocols with windows depend on marks, and protocols that sum packets in their order
//! depend on the order.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};

use super::connect::{SOCKET_BUFFER, control_round_trip, join, request, resolve};
use super::error::ConnectError;
use super::options::ConnectOptions;
use crate::os::{self, Waker};
use crate::rendezvous::Rendezvous;
use crate::udp::path::{self, Path, SHORTEST_PING};
use crate::udp::{Inbox, UdpPort};

/// The number of pings: less than a switch answers one member at once.
const PINGS: u32 = 512;
/// The number of pings that leave together. A path over several links (ECMP, LAG) spreads such a burst over them.
const BURST: u32 = 32;
/// If no packet comes for this time, the remaining pings count as lost.
const SILENCE: Duration = Duration::from_millis(300);
/// Bytes of each ping: the usual fields, and its number.
const LEN: usize = 256;

/// What the pings to a switch have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathReport {
    /// Pings that were sent.
    pub sent: u32,
    /// Answers that arrived.
    pub answered: u32,
    /// Answers that are ECN-capable, as the pings were.
    pub capable: u32,
    /// Answers with a congestion mark.
    pub marked: u32,
    /// Answers that arrived after the answer to a later ping.
    pub overtaken: u32,
}

impl PathReport {
    /// Notes an answer. `newest` is the number after that of the latest ping that was answered so far.
    fn on_answer(&mut self, number: u32, newest: &mut u32, ecn: Ecn) {
        self.answered += 1;
        self.overtaken += u32::from(number < *newest);
        *newest = (*newest).max(number + 1);
        match ecn {
            Ecn::NotCapable => {}
            Ecn::Capable => self.capable += 1,
            Ecn::CongestionExperienced => self.marked += 1,
        }
    }
}

/// Joins a job of one rank, whose options name switch and job, pings its switch, and leaves.
pub fn probe_path(options: &ConnectOptions, rendezvous: &dyn Rendezvous) -> Result<PathReport, ConnectError> {
    options.check()?;
    let switch = resolve(&options.switch)?;
    let socket_error = |source| ConnectError::Socket { switch, source };
    let path = Path::to(switch).map_err(socket_error)?;
    let mut udp = UdpPort::open((path.local, 0).into(), SOCKET_BUFFER, SOCKET_BUFFER).map_err(socket_error)?;
    let socket = std::slice::from_ref(&udp);
    let wish = request(options, control_round_trip(switch), &path, socket);
    let answer = join(rendezvous, &wish, socket).map_err(socket_error)??;
    let header = Common { protocol: options.protocol.code, kind: 0, job: answer.job_id, key: answer.key };
    let waker = Waker::new().map_err(socket_error)?;
    let outcome = match answer.shards.first() {
        Some(&shard) => {
            let to = udp.destination(shard);
            ping_in_bursts(&mut udp, &waker, header, |udp, packet| {
                udp.send(&to, &[IoSlice::new(packet)], packet.len(), Ecn::Capable)
            })
        }
        None => PathReport::default(),
    };
    rendezvous.leave(answer.job_id, answer.key, options.rank, Some(0));
    Ok(outcome)
}

/// Pings in bursts. A burst leaves when the one before it was answered or is lost.
fn ping_in_bursts(
    udp: &mut UdpPort,
    waker: &Waker,
    header: Common,
    mut send: impl FnMut(&mut UdpPort, &[u8]),
) -> PathReport {
    let (mut report, mut newest) = (PathReport::default(), 0);
    let mut inbox = Inbox::new();
    while report.sent < PINGS {
        for _ in 0..BURST {
            let mut packet = path::ping(header, LEN, None);
            packet[SHORTEST_PING..SHORTEST_PING + 4].copy_from_slice(&report.sent.to_be_bytes());
            send(udp, &packet);
            report.sent += 1;
        }
        let mut last = Instant::now();
        while report.answered < report.sent && last.elapsed() < SILENCE {
            if !os::wait(udp.as_fd(), waker, Some(SILENCE)).packets {
                continue;
            }
            udp.receive(&mut inbox);
            for message in &inbox.messages {
                for range in message.segments() {
                    if let Some(number) = number_of(&inbox.memory[range], &header) {
                        report.on_answer(number, &mut newest, message.ecn);
                        last = Instant::now();
                    }
                }
            }
        }
    }
    report
}

/// The number of the ping that a packet answers, if the ping is ours.
fn number_of(packet: &[u8], header: &Common) -> Option<u32> {
    let common = Common::parse(packet).ok()?;
    let is_ours = common.kind == kind::PONG && common.job == header.job && common.key == header.key;
    let number = packet.get(SHORTEST_PING..SHORTEST_PING + 4).filter(|_| is_ours && SHORTEST_PING > COMMON_LEN)?;
    number.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_after_a_later_one_was_overtaken() {
        let (mut report, mut newest) = (PathReport::default(), 0);
        for (number, ecn) in [
            (0, Ecn::Capable),
            (2, Ecn::CongestionExperienced),
            (1, Ecn::NotCapable),
            (3, Ecn::Capable),
            (3, Ecn::Capable),
        ] {
            report.on_answer(number, &mut newest, ecn);
        }
        let PathReport { answered, capable, marked, overtaken, .. } = report;
        assert_eq!((answered, capable, marked, overtaken), (5, 3, 1, 2), "a duplicate counts as overtaken");
    }
}
