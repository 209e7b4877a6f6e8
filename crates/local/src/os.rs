//! System calls of the meeting: descriptors that are handed over, who is at the other end, and whether it still exists.
#![allow(unsafe_code)]

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process;

/// The most descriptors that go with a message.
pub const MAX_DESCRIPTORS: usize = 80;

/// Space for the descriptors of a message, aligned as the kernel's structures are.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; 24 + 4 * MAX_DESCRIPTORS]);

/// Sends bytes, and descriptors with them.
pub fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(descriptors.len() <= MAX_DESCRIPTORS && !bytes.is_empty(), "a message has bytes, and few descriptors");
    let mut control = Control([MaybeUninit::zeroed(); _]);
    let mut data = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    if !descriptors.is_empty() {
        let payload = mem::size_of_val(descriptors) as libc::c_uint;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the macros compute; the header and its data lie in `control`, which has space for them.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(payload) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload) as _;
            for (index, descriptor) in descriptors.iter().enumerate() {
                let slot = libc::CMSG_DATA(header).cast::<libc::c_int>().add(index);
                slot.write_unaligned(descriptor.as_raw_fd());
            }
        }
    }
    // SAFETY: the message and all that it names outlive the call.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        // The messages are a few bytes, which a socket takes whole.
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Receives bytes, and the descriptors that came with them; no bytes at the end of the stream.
pub fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control([MaybeUninit::zeroed(); _]);
    let mut data = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = mem::size_of::<Control>() as _;
    // SAFETY: the message and all that it names outlive the call.
    let received = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has written whole headers into `control`; each descriptor is new and belongs to nobody else.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(found) = header.as_ref() {
            if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
                let payload = found.cmsg_len - (data.cast::<u8>().offset_from(header.cast::<u8>()) as usize);
                let count = payload / mem::size_of::<libc::c_int>();
                descriptors.extend((0..count).map(|i| OwnedFd::from_raw_fd(data.add(i).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    match message.msg_flags & libc::MSG_CTRUNC {
        0 => Ok((received, descriptors)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "this process has no descriptors left")),
    }
}

/// The user of the process at the other end.
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both outlive the call, and the length is that of the structure.
    let done = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len)
    };
    if done == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// This process's user.
pub fn own_user() -> u32 {
    // SAFETY: the call has no arguments.
    unsafe { libc::geteuid() }
}

/// A descriptor of this process, by which others see when it ends, whatever its children inherit.
pub fn own_process() -> io::Result<OwnedFd> {
    // SAFETY: the call has no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process::id(), 0) };
    match libc::c_int::try_from(fd) {
        // SAFETY: the descriptor is new, and belongs to nobody else.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Which of these processes have ended, a bit for each.
pub fn ended(processes: &[OwnedFd]) -> u64 {
    let entry = |process: &OwnedFd| libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<libc::pollfd> = processes.iter().map(entry).collect();
    // SAFETY: the entries outlive the call.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, 0) };
    entries.iter().enumerate().filter(|(_, entry)| entry.revents != 0).map(|(rank, _)| 1 << rank).sum()
}

/// Processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
