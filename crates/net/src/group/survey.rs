//! Tests what the way to a switch does to packets besides carrying them: whether congestion marks survive it, and
//! whether it keeps the order of packets. Protocols with windows depend on marks, and protocols that sum packets in
//! their order depend on the order.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};

use super::connect::{SOCKET_BUFFER, control_round_trip, join, request, resolve};
use super::error::ConnectError;
use super::options::ConnectOptions;
use crate::rendezvous::Rendezvous;
use crate::udp::path::Path;
use crate::udp::probe::{self, SHORTEST};
use crate::udp::{Inbox, UdpPort};
use crate::wake::{self, Waker};

/// The number of all questions. It is less than a switch answers one member at once.
const QUESTIONS: u32 = 512;
/// The number of questions that leave together. A way with several lanes spreads such a burst over them.
const BURST: u32 = 32;
/// If no packet comes for this time, the remaining questions count as lost.
const SILENCE: Duration = Duration::from_millis(300);
/// Bytes of each question. They have room for its number behind what every ping has.
const LEN: usize = 256;

/// The answers to the questions that a switch was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Questions that left.
    pub sent: u32,
    /// Answers that came.
    pub answered: u32,
    /// Answers that say that their sender takes part in ECN, as the questions did.
    pub capable: u32,
    /// Answers with a congestion mark.
    pub marked: u32,
    /// Answers that came after one to a later question.
    pub overtaken: u32,
}

impl Survey {
    /// Notes an answer. `newest` is the number after that of the latest question that was answered so far.
    fn hear(&mut self, number: u32, newest: &mut u32, ecn: Ecn) {
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

/// Joins a job of one rank, whose options name switch and job, asks its switch, and leaves.
pub fn survey(options: &ConnectOptions, rendezvous: &dyn Rendezvous) -> Result<Survey, ConnectError> {
    options.check()?;
    let switch = resolve(&options.switch)?;
    let socket_error = |source| ConnectError::Socket { switch, source };
    let path = Path::to(switch).map_err(socket_error)?;
    let mut udp = UdpPort::open((path.local, 0).into(), SOCKET_BUFFER, SOCKET_BUFFER).map_err(socket_error)?;
    let answer =
        join(rendezvous, &request(options, control_round_trip(switch), &path, &udp), &udp).map_err(socket_error)??;
    let header = Common { protocol: options.protocol.code, kind: 0, job: answer.job_id, key: answer.key };
    let waker = Waker::new().map_err(socket_error)?;
    let outcome = match answer.shards.first() {
        Some(&shard) => {
            let to = udp.destination(shard);
            ask(&mut udp, &waker, header, |udp, packet| {
                udp.send(&to, &[IoSlice::new(packet)], packet.len(), Ecn::Capable)
            })
        }
        None => Survey::default(),
    };
    rendezvous.leave(answer.job_id, answer.key, options.rank);
    Ok(outcome)
}

/// Asks in bursts. A burst leaves when the one before it was answered or is lost.
fn ask(udp: &mut UdpPort, waker: &Waker, header: Common, mut send: impl FnMut(&mut UdpPort, &[u8])) -> Survey {
    let (mut survey, mut newest) = (Survey::default(), 0);
    let mut inbox = Inbox::new();
    while survey.sent < QUESTIONS {
        for _ in 0..BURST {
            let mut packet = probe::ping(header, LEN, None);
            packet[SHORTEST..SHORTEST + 4].copy_from_slice(&survey.sent.to_be_bytes());
            send(udp, &packet);
            survey.sent += 1;
        }
        let mut last = Instant::now();
        while survey.answered < survey.sent && last.elapsed() < SILENCE {
            if !wake::wait(udp.as_fd(), waker, Some(SILENCE)).packets {
                continue;
            }
            udp.receive(&mut inbox);
            for message in &inbox.messages {
                for place in message.segments() {
                    if let Some(number) = number_of(&inbox.memory[place], &header) {
                        survey.hear(number, &mut newest, message.ecn);
                        last = Instant::now();
                    }
                }
            }
        }
    }
    survey
}

/// The number of the question that a packet answers, if the question is ours.
fn number_of(packet: &[u8], header: &Common) -> Option<u32> {
    let common = Common::parse(packet).ok()?;
    let is_ours = common.kind == kind::PONG && common.job == header.job && common.key == header.key;
    let number = packet.get(SHORTEST..SHORTEST + 4).filter(|_| is_ours && SHORTEST > COMMON_LEN)?;
    number.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_later_answer_was_overtaken() {
        let (mut survey, mut newest) = (Survey::default(), 0);
        for (number, ecn) in [
            (0, Ecn::Capable),
            (2, Ecn::CongestionExperienced),
            (1, Ecn::NotCapable),
            (3, Ecn::Capable),
            (3, Ecn::Capable),
        ] {
            survey.hear(number, &mut newest, ecn);
        }
        let Survey { answered, capable, marked, overtaken, .. } = survey;
        assert_eq!((answered, capable, marked, overtaken), (5, 3, 1, 2), "a duplicate counts as overtaken");
    }
}
