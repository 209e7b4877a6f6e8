//! How ranks find out that they share a host: one hands the others a descriptor of memory, and it arrives.
//!
//! Rank 0 listens at a socket whose name the group alone knows, in the kernel's abstract namespace: nothing is in a file
//! system, and nothing is left when a process is killed. Each rank brings a descriptor of its own process. Ranks in
//! another network namespace, or of another user, do not share memory.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::named;
use crate::layout::{Layout, MAX_RANKS};
use crate::memory::{Memory, sealed_file};
use crate::os::{self, Process};

/// The first bytes of a message, which change with the layout of the memory.
const GREETING: u32 = 0x7472_6202;
/// How often a rank that waits asks its caller whether to go on.
const POLL: Duration = Duration::from_millis(100);
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// Why ranks did not meet.
#[derive(Debug, thiserror::Error)]
pub enum MeetError<E> {
    /// They cannot share memory.
    #[error("{0}")]
    Separate(String),
    /// Some did not come in time.
    #[error("{0}")]
    TimedOut(String),
    /// The caller ended the wait.
    #[error("the caller ended the wait")]
    Ended(E),
}

impl<E> MeetError<E> {
    fn separate(what: &str) -> impl FnOnce(io::Error) -> MeetError<E> {
        move |error| MeetError::Separate(format!("{what}: {error}"))
    }
}

/// Which ranks meet.
pub struct Ranks<'a> {
    /// The group's name, which nobody else knows.
    pub name: &'a str,
    /// This rank.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// How long to wait for the others.
    pub timeout: Duration,
}

/// The memory, and a descriptor of each rank's process.
pub type Met = (Layout, Vec<Process>);

/// Meets the other ranks; `poll` is called now and then, and ends the wait with an error.
pub fn meet<E>(group: &Ranks<'_>, poll: &mut dyn FnMut() -> Result<(), E>) -> Result<Met, MeetError<E>> {
    if !(1..=MAX_RANKS).contains(&group.ranks) {
        return Err(MeetError::Separate(format!("a group in memory has at most {MAX_RANKS} ranks")));
    }
    let process = os::own_process().map_err(MeetError::separate("this kernel has no descriptors of processes"))?;
    let address = SocketAddr::from_abstract_name(group.name).map_err(MeetError::separate("the socket's name"))?;
    let mut wait = Wait { deadline: Instant::now() + group.timeout, next_poll: Instant::now() + POLL, poll };
    let (layout, processes) = match group.rank {
        0 => host(group, process, &address, &mut wait)?,
        _ => visit(group, process, &address, &mut wait)?,
    };
    Ok((layout, processes.into_iter().map(os::shared).collect()))
}

struct Wait<'a, E> {
    deadline: Instant,
    next_poll: Instant,
    poll: &'a mut dyn FnMut() -> Result<(), E>,
}

impl<E> Wait<'_, E> {
    /// Polls the caller if it is time; `late` names who did not come, if the time is over.
    fn check(&mut self, late: impl FnOnce() -> String) -> Result<(), MeetError<E>> {
        let now = Instant::now();
        if now >= self.next_poll {
            self.next_poll = now + POLL;
            (self.poll)().map_err(MeetError::Ended)?;
        }
        if now < self.deadline { Ok(()) } else { Err(MeetError::TimedOut(late())) }
    }
}

/// What a rank says first.
fn greeting(group: &Ranks<'_>) -> [u8; 12] {
    let words = [GREETING, group.rank as u32, group.ranks as u32].map(u32::to_ne_bytes);
    words.concat().try_into().expect("three words")
}

/// Rank 0: waits for all others, and gives each the memory and all processes.
fn host<E>(
    group: &Ranks<'_>,
    process: OwnedFd,
    address: &SocketAddr,
    wait: &mut Wait<'_, E>,
) -> Result<(Layout, Vec<OwnedFd>), MeetError<E>> {
    let listener = UnixListener::bind_addr(address).map_err(MeetError::separate("cannot listen at a Unix socket"))?;
    listener.set_nonblocking(true).map_err(MeetError::separate("cannot listen at a Unix socket"))?;
    let mut visitors: Vec<Option<(UnixStream, OwnedFd)>> = (1..group.ranks).map(|_| None).collect();
    while visitors.iter().any(Option::is_none) {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Some((rank, process)) = greeted(group, &stream) {
                    visitors[rank - 1] = Some((stream, process));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(error) => return Err(MeetError::separate("cannot accept at a Unix socket")(error)),
        }
        wait.check(|| {
            let absent = visitors.iter().enumerate().filter(|(_, visitor)| visitor.is_none());
            let absent: Vec<u16> = absent.map(|(index, _)| index as u16 + 1).collect();
            let have = if absent.len() == 1 { "has" } else { "have" };
            format!("{} {have} not come to share memory", named(&absent))
        })?;
    }
    let file = sealed_file(Layout::bytes(group.ranks)).map_err(MeetError::separate("cannot make memory to share"))?;
    let layout = mapped(&file, group)?;
    let (streams, others): (Vec<UnixStream>, Vec<OwnedFd>) = visitors.into_iter().flatten().unzip();
    let processes: Vec<OwnedFd> = std::iter::once(process).chain(others).collect();
    let gifts: Vec<BorrowedFd<'_>> =
        std::iter::once(file.as_fd()).chain(processes.iter().map(OwnedFd::as_fd)).collect();
    for stream in &streams {
        os::send(stream, &greeting(group), &gifts).map_err(MeetError::separate("cannot hand memory over"))?;
    }
    drop(gifts);
    Ok((layout, processes))
}

/// The rank that a visitor is, and its process; `None` if it is not one of this group.
fn greeted(group: &Ranks<'_>, stream: &UnixStream) -> Option<(usize, OwnedFd)> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(POLL)).ok()?;
    if os::peer_user(stream).ok()? != os::own_user() {
        return None;
    }
    let mut bytes = [0; 12];
    let (12, mut descriptors) = os::receive(stream, &mut bytes).ok()? else { return None };
    let rank = u32::from_ne_bytes(bytes[4..8].try_into().expect("four bytes")) as usize;
    let same = bytes == greeting(&Ranks { rank, ..*group });
    match (same && (1..group.ranks).contains(&rank), descriptors.len()) {
        (true, 1) => Some((rank, descriptors.remove(0))),
        _ => None,
    }
}

/// Any other rank: visits rank 0.
fn visit<E>(
    group: &Ranks<'_>,
    process: OwnedFd,
    address: &SocketAddr,
    wait: &mut Wait<'_, E>,
) -> Result<(Layout, Vec<OwnedFd>), MeetError<E>> {
    let late = || "rank 0 has not come to share memory".to_string();
    let stream = loop {
        match UnixStream::connect_addr(address) {
            Ok(stream) => break stream,
            // Rank 0 does not listen yet.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => thread::sleep(PAUSE),
            Err(error) => return Err(MeetError::separate("cannot reach the Unix socket of rank 0")(error)),
        }
        wait.check(late)?;
    };
    let other = os::peer_user(&stream).map_err(MeetError::separate("the user of rank 0"))?;
    if other != os::own_user() {
        return Err(MeetError::Separate(format!(
            "rank 0 runs as the user {other}, and this rank as {}",
            os::own_user()
        )));
    }
    os::send(&stream, &greeting(group), &[process.as_fd()])
        .map_err(MeetError::separate("cannot greet rank 0 at its Unix socket"))?;
    stream.set_read_timeout(Some(POLL)).map_err(MeetError::separate("a Unix socket"))?;
    let mut bytes = [0; 12];
    let (received, descriptors) = loop {
        match os::receive(&stream, &mut bytes) {
            Ok(received) => break received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => wait.check(late)?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(MeetError::separate("the memory of rank 0 did not arrive")(error)),
        }
    };
    let expected = greeting(&Ranks { rank: 0, ..*group });
    if received != bytes.len() || bytes != expected || descriptors.len() != group.ranks + 1 {
        return Err(MeetError::Separate("the memory of rank 0 did not arrive".into()));
    }
    let mut descriptors = descriptors.into_iter();
    let file = File::from(descriptors.next().expect("it was counted"));
    Ok((mapped(&file, group)?, descriptors.collect()))
}

fn mapped<E>(file: &File, group: &Ranks<'_>) -> Result<Layout, MeetError<E>> {
    let memory = Memory::map(file, Layout::bytes(group.ranks)).map_err(MeetError::separate("cannot map the memory"))?;
    Ok(Layout::new(memory, group.ranks))
}
