//! System calls of the meeting: descriptors that are handed over, who is at the other end, and whether it still exists.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{fstat, fstatfs};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg};
use rustix::process::{PidfdFlags, geteuid, getpid, pidfd_open};

/// The most descriptors that go with a message.
pub const MAX_DESCRIPTORS: usize = 80;

/// Sends bytes, and descriptors with them.
pub fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors));
    assert!(fits && !bytes.is_empty(), "a message has bytes, and few descriptors");
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    // The messages are a few bytes, which a socket takes whole.
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives bytes, and the descriptors that came with them; no bytes at the end of the stream.
pub fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "this process has no descriptors left"));
    }
    Ok((received.bytes, descriptors))
}

/// The user of the process at the other end.
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    Ok(socket_peercred(stream)?.uid.as_raw())
}

/// This process's user.
pub fn own_user() -> u32 {
    geteuid().as_raw()
}

/// A descriptor of this process, by which others see when it ends, whatever its children inherit.
pub fn own_process() -> io::Result<OwnedFd> {
    Ok(pidfd_open(getpid(), PidfdFlags::empty())?)
}

/// A descriptor of a process, which all groups of this process share that know it.
pub type Process = Arc<OwnedFd>;

/// The processes that groups of this process know, by the inodes of their descriptors.
static KNOWN: Mutex<BTreeMap<u64, Weak<OwnedFd>>> = Mutex::new(BTreeMap::new());

/// The descriptor of the same process that another group has already, or this one.
pub fn shared(process: OwnedFd) -> Process {
    let Some(inode) = inode_of(&process) else { return Arc::new(process) };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(other) = known.get(&inode).and_then(Weak::upgrade) {
        return other;
    }
    known.retain(|_, other| other.strong_count() > 0);
    let process = Arc::new(process);
    known.insert(inode, Arc::downgrade(&process));
    process
}

/// The inode that stands for a process as long as it has descriptors; `None` where the kernel (before 6.9) gives all
/// processes the same.
fn inode_of(process: &OwnedFd) -> Option<u64> {
    const PIDFS: u64 = 0x5049_4446;
    let system = fstatfs(process).ok()?;
    (system.f_type as u64 == PIDFS).then(|| fstat(process).map(|status| status.st_ino).ok())?
}

/// Which of these processes have ended, a bit for each.
pub fn ended(processes: &[Process]) -> u64 {
    let mut entries: Vec<PollFd<'_>> = processes.iter().map(|process| PollFd::new(process, PollFlags::IN)).collect();
    // A call that fails has changed nothing: the next one says it.
    let _ = poll(&mut entries, Some(&Timespec::default()));
    entries.iter().enumerate().filter(|(_, entry)| !entry.revents().is_empty()).map(|(rank, _)| 1 << rank).sum()
}

/// Processors that this process may use.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
