//! Sleeping until a packet comes, another thread calls, or a time is reached. All unsafe code about sleeping is here.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::time::Duration;

/// Ends another thread's [`wait`]: an eventfd.
#[derive(Debug)]
pub struct Waker {
    event: File,
}

/// Why a wait ended. If both are false, its time was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The socket has packets, or an error to report.
    pub packets: bool,
    /// True if [`Waker::wake`] was called.
    pub woken: bool,
}

impl Waker {
    /// A waker that nobody has called.
    pub fn new() -> io::Result<Waker> {
        // SAFETY: the call has no pointers. If it succeeds, the descriptor belongs to us alone.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        Ok(Waker { event: unsafe { File::from_raw_fd(fd) } })
    }

    /// Ends the current wait, or the next one if there is none.
    pub fn wake(&self) {
        // The call fails only if the counter is full. Then the other thread is about to wake up anyway.
        let _ = (&self.event).write_all(&1u64.to_ne_bytes());
    }

    /// Forgets the calls so far.
    pub fn clear(&self) {
        // The call fails only if there were no calls.
        let _ = (&self.event).read(&mut [0; 8]);
    }
}

/// Sleeps until the socket is readable, the waker is called, or the time is over. `None` waits for ever.
pub fn wait(socket: BorrowedFd<'_>, waker: &Waker, timeout: Option<Duration>) -> Ready {
    let mut fds = [entry(socket, libc::POLLIN), entry(waker.event.as_fd(), libc::POLLIN)];
    // An interruption by a signal looks like the end of the time. The caller looks at its clock anyway.
    poll(&mut fds, timeout);
    Ready { packets: fds[0].revents != 0, woken: fds[1].revents != 0 }
}

/// Sleeps until the socket is readable, or the time is over.
pub fn wait_readable(socket: BorrowedFd<'_>, timeout: Duration) {
    poll(&mut [entry(socket, libc::POLLIN)], Some(timeout));
}

/// Sleeps until the socket has room to send, or the time is over.
pub fn wait_writable(socket: BorrowedFd<'_>, timeout: Duration) {
    poll(&mut [entry(socket, libc::POLLOUT)], Some(timeout));
}

fn entry(fd: BorrowedFd<'_>, events: i16) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
}

fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |timeout| &raw const *timeout);
    // SAFETY: the descriptors and the timeout outlive the call; no signal mask is given.
    unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, std::ptr::null()) };
}
