//! Address validation, as in QUIC (RFC 9000, section 8). A process that joins names the UDP address of its packets. A
//! switch accepts the address only after a challenge that it sent *to* the address was answered *from* the address by a
//! process that knows of the join. So no process can take the address of another job's member, and none can make a switch
//! send more than a few short packets to a third party.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::thread;

use tokio::sync::oneshot;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};

use crate::os::{self, Waker};
use crate::udp::{Destination, UdpPort, key_of};

/// Bytes of a question, and of its answer: the common header and the incarnation of the process that joins.
pub const LEN: usize = COMMON_LEN + 8;
/// The most challenges to one address. A join has more than 200 bytes, and its challenges together have fewer than three
/// times as many.
pub const MAX_ATTEMPTS: u32 = 6;
/// The pause between the first question and the second. Each further pause is twice as long as the one before.
const ASK_AGAIN: Span = Span::from_millis(100);
/// The most challenges that one shard has open.
const MAX_OPEN: usize = 4_096;

fn packet(kind: u8, nonce: u64, incarnation: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    Common { protocol: 0, kind, job: JobId(0), key: JobKey(nonce) }.emit(&mut bytes);
    bytes[COMMON_LEN..].copy_from_slice(&incarnation.to_be_bytes());
    bytes
}

/// The kind, the number and the incarnation of a question or of an answer.
fn parse(bytes: &[u8]) -> Option<(u8, u64, u64)> {
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let common = Common::parse(bytes).ok().filter(|common| common.job == JobId(0))?;
    let incarnation = u64::from_be_bytes(bytes[COMMON_LEN..].try_into().ok()?);
    Some((common.kind, common.key.0, incarnation))
}

/// The answer to a question, if the question is for the process with this incarnation.
pub fn answer(bytes: &[u8], incarnation: u64) -> Option<[u8; LEN]> {
    let (_, nonce, _) = parse(bytes).filter(|&(kind, _, whose)| kind == kind::CHALLENGE && whose == incarnation)?;
    Some(packet(kind::RESPONSE, nonce, incarnation))
}

/// Calls `join`, and answers the questions that come to these sockets in the meantime. It is for a process that joins and
/// has no job yet.
pub fn answering<T>(sockets: &[UdpSocket], incarnation: u64, join: impl FnOnce() -> T) -> std::io::Result<T> {
    let ended = Waker::new()?;
    Ok(thread::scope(|scope| {
        for socket in sockets {
            let ended = &ended;
            scope.spawn(move || answer_until(socket, incarnation, ended));
        }
        // The thread must end also if the join panics, because the scope waits for the thread.
        let _end = WakeOnDrop(&ended);
        join()
    }))
}

struct WakeOnDrop<'a>(&'a Waker);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

fn answer_until(socket: &UdpSocket, incarnation: u64, ended: &Waker) {
    let mut bytes = [0; 2 * LEN];
    loop {
        let ready = os::wait(socket.as_fd(), ended, None);
        if ready.woken {
            return;
        }
        // Such an error belongs to an earlier packet.
        let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
        if let Some(answer) = answer(&bytes[..len], incarnation) {
            // If the answer is lost, the switch repeats its question.
            let _ = socket.send_to(&answer, from);
        }
    }
}

/// A question without an answer so far.
struct Open {
    peer: (IpAddr, u16),
    to: Destination,
    incarnation: u64,
    left: u32,
    pause: Span,
    due: Time,
    answered: oneshot::Sender<bool>,
}

/// The questions that one shard has open. The key is the random number of the question.
#[derive(Default)]
pub struct Challenges {
    open: HashMap<u64, Open>,
}

impl Challenges {
    /// Asks whether the process with this incarnation is at an address. The answer is false if the process does not
    /// confirm it in time.
    pub fn ask(
        &mut self,
        now: Time,
        peer: SocketAddr,
        to: Destination,
        incarnation: u64,
        questions: u32,
        answered: oneshot::Sender<bool>,
    ) {
        let nonce = getrandom::u64().ok().filter(|nonce| !self.open.contains_key(nonce));
        let Some(nonce) = nonce.filter(|_| self.open.len() < MAX_OPEN) else {
            // The call fails only if nobody waits for the answer any more.
            let _ = answered.send(false);
            return;
        };
        let (peer, left) = (key_of(peer), questions.clamp(1, MAX_ATTEMPTS));
        self.open.insert(nonce, Open { peer, to, incarnation, left, pause: ASK_AGAIN, due: now, answered });
    }

    /// Takes an answer. Returns false if the packet does not have the form of an answer.
    pub fn on_response(&mut self, from: SocketAddr, bytes: &[u8]) -> bool {
        let Some((kind::RESPONSE, nonce, incarnation)) = parse(bytes) else { return false };
        let right = |open: &Open| open.peer == key_of(from) && open.incarnation == incarnation;
        if self.open.get(&nonce).is_some_and(right)
            && let Some(open) = self.open.remove(&nonce)
        {
            // The call fails only if nobody waits for the answer any more.
            let _ = open.answered.send(true);
        }
        true
    }

    /// When the next question must be repeated or given up.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.open.values().map(|open| open.due).min()
    }

    /// Repeats the questions that are due. Gives up a question once it was asked often enough.
    pub fn handle_timeout(&mut self, now: Time, udp: &mut UdpPort) {
        // This is the usual case: nobody joins.
        if self.open.is_empty() {
            return;
        }
        self.open.retain(|_, open| !open.answered.is_closed());
        for (&nonce, open) in self.open.iter_mut().filter(|(_, open)| open.due <= now && open.left > 0) {
            let question = packet(kind::CHALLENGE, nonce, open.incarnation);
            udp.send(&open.to, &[IoSlice::new(&question)], LEN, Ecn::NotCapable);
            (open.left, open.due) = (open.left - 1, now + open.pause);
            open.pause = open.pause.times(2);
        }
        let over: Vec<u64> =
            self.open.iter().filter(|(_, open)| open.due <= now && open.left == 0).map(|(&nonce, _)| nonce).collect();
        for open in over.iter().filter_map(|nonce| self.open.remove(nonce)) {
            // The call fails only if nobody waits for the answer any more.
            let _ = open.answered.send(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_joins_answers_and_only_its_answer_counts() {
        let question = packet(kind::CHALLENGE, 7, 99);
        assert_eq!(answer(&question, 98), None, "a member of another job receives it, and keeps silent");
        let right = answer(&question, 99).unwrap();
        assert_eq!(answer(&right, 99), None, "an answer is not a question");
        assert_eq!(answer(&question[..COMMON_LEN], 99), None);

        let mut udp = UdpPort::open(([127, 0, 0, 1], 0).into(), 1 << 16, 1 << 16).unwrap();
        let joining = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (peer, elsewhere) = (joining.local_addr().unwrap(), SocketAddr::from(([127, 0, 0, 1], 9)));
        let (sender, mut answered) = oneshot::channel();
        let mut challenges = Challenges::default();
        challenges.ask(Time::ZERO, peer, udp.destination(peer), 99, MAX_ATTEMPTS, sender);
        challenges.handle_timeout(Time::ZERO, &mut udp);
        let mut question = [0; LEN];
        assert_eq!(joining.recv(&mut question).unwrap(), LEN);
        let right = answer(&question, 99).unwrap();
        assert!(challenges.on_response(elsewhere, &right), "from another address");
        let mut guessed = right;
        guessed[8] ^= 1;
        assert!(challenges.on_response(peer, &guessed), "another number");
        assert!(answered.try_recv().is_err(), "neither is a proof");
        assert!(challenges.on_response(peer, &right));
        assert_eq!(answered.try_recv(), Ok(true));
        assert_eq!(challenges.poll_timeout(), None);
    }

    #[test]
    fn a_silent_peer_is_challenged_again_and_then_given_up() {
        let mut udp = UdpPort::open(([127, 0, 0, 1], 0).into(), 1 << 16, 1 << 16).unwrap();
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = silent.local_addr().unwrap();
        let (sender, mut answered) = oneshot::channel();
        let mut challenges = Challenges::default();
        challenges.ask(Time::ZERO, peer, udp.destination(peer), 1, u32::MAX, sender);
        while let Some(due) = challenges.poll_timeout() {
            challenges.handle_timeout(due, &mut udp);
        }
        assert_eq!(answered.try_recv(), Ok(false));
        silent.set_nonblocking(true).unwrap();
        let mut bytes = [0; 100];
        let questions = std::iter::from_fn(|| silent.recv(&mut bytes).ok()).count();
        assert_eq!(questions, MAX_ATTEMPTS as usize);
    }
}
