//! What the driver asks of the operating system: the time, sleep until there is work, the process that owns a value, and
//! how the heap returns memory.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};
use std::{mem, process, ptr};

use tributary_proto::contract::time::{Span, Time};

/// Turns the monotonic clock into a driver's [`Time`]; each driver has its own origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts at [`Time::ZERO`] now.
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// The time now.
    pub fn now(&self) -> Time {
        Time::ZERO + to_span(self.origin.elapsed())
    }
}

/// A duration in picoseconds; saturates at 213 days.
pub fn to_span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000))
}

/// A span for the operating system, rounded up to a nanosecond, so that a sleep is never too short.
pub fn to_duration(span: Span) -> Duration {
    Duration::from_nanos(span.0.div_ceil(1_000))
}

/// Ends another thread's [`wait`]: an eventfd.
#[derive(Debug)]
pub(crate) struct Waker {
    event: File,
}

/// Why a wait ended. If both are false, the timeout has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The socket has packets, or an error to report.
    pub packets: bool,
    /// True if [`Waker::wake`] was called.
    pub woken: bool,
}

impl Waker {
    /// A waker that has not been called.
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

/// Sleeps until the socket is readable, the waker is called, or the timeout has passed. `None` waits without a limit.
pub(crate) fn wait(socket: BorrowedFd<'_>, waker: &Waker, timeout: Option<Duration>) -> Ready {
    let mut fds = [entry(socket, libc::POLLIN), entry(waker.event.as_fd(), libc::POLLIN)];
    // An interruption by a signal looks like a timeout. The caller reads its clock anyway.
    poll(&mut fds, timeout);
    Ready { packets: fds[0].revents != 0, woken: fds[1].revents != 0 }
}

/// Sleeps until the socket is readable, or the timeout has passed.
pub(crate) fn wait_readable(socket: BorrowedFd<'_>, timeout: Duration) {
    poll(&mut [entry(socket, libc::POLLIN)], Some(timeout));
}

/// Sleeps until the socket can send, or the timeout has passed.
pub(crate) fn wait_writable(socket: BorrowedFd<'_>, timeout: Duration) {
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

/// The most descriptors that go with one message.
const MAX_DESCRIPTORS: usize = 4;

/// Space for a control message with as many descriptors.
#[repr(C, align(8))]
struct DescriptorControl([u8; 64]);

/// Sends a message over a Unix socket, and descriptors with it.
pub(crate) fn send_with_descriptors(to: BorrowedFd<'_>, bytes: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(with.len() <= MAX_DESCRIPTORS, "the control message holds them");
    let raw: Vec<RawFd> = with.iter().map(AsRawFd::as_raw_fd).collect();
    let mut iovec = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = DescriptorControl([0; 64]);
    // SAFETY: all zeros is a valid msghdr.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut iovec, 1);
    if !raw.is_empty() {
        let bytes = size_of_val(raw.as_slice()) as u32;
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the control buffer is aligned and has space for the header and for the descriptors that are copied.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(bytes) as _;
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(bytes) as _;
            ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), libc::CMSG_DATA(message), bytes as usize);
        }
    }
    // SAFETY: the header, and all that it points to, outlive the call, which only reads them.
    let sent = unsafe { libc::sendmsg(to.as_raw_fd(), &header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message and the descriptors that came with it. No bytes: the other end is closed.
pub(crate) fn receive_with_descriptors(from: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut iovec = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = DescriptorControl([0; 64]);
    // SAFETY: all zeros is a valid msghdr.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut iovec, 1);
    (header.msg_control, header.msg_controllen) = (control.0.as_mut_ptr().cast(), control.0.len() as _);
    // SAFETY: the header, and all that it points to, outlive the call.
    let received = unsafe { libc::recvmsg(from.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has written whole control messages; each descriptor in them is new and belongs to us alone.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&header);
        if !message.is_null() && (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
            let bytes = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            let first = libc::CMSG_DATA(message).cast::<RawFd>();
            for at in 0..bytes / size_of::<RawFd>() {
                descriptors.push(OwnedFd::from_raw_fd(first.add(at).read_unaligned()));
            }
        }
    }
    match header.msg_flags & libc::MSG_TRUNC {
        0 => Ok((received as usize, descriptors)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long")),
    }
}

/// The process that made a value with threads. A fork has the memory of its parent and none of its threads, so the child
/// must not wait for these threads, nor send packets in its parent's name.
#[derive(Clone, Copy, Debug)]
pub struct OwnerProcess(u32);

impl OwnerProcess {
    /// This process.
    pub fn current() -> OwnerProcess {
        OwnerProcess(process::id())
    }

    /// True if this process is the owner, and not a fork of it.
    pub fn is_current(self) -> bool {
        self.0 == process::id()
    }
}

/// An allocation of this many bytes comes from the kernel and goes back to it. This is glibc's own limit when a process
/// starts.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 128 * 1024;

/// The memory that this process may have: that of the machine, or less if a control group says so.
pub fn memory_bytes() -> u64 {
    let read = |path: &str| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
    });
    let group = read("/proc/self/cgroup").and_then(|text| {
        let group = text.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
        read(&format!("/sys/fs/cgroup{group}/memory.max"))?.trim().parse().ok()
    });
    machine.into_iter().chain(group).min().unwrap_or(u64::MAX)
}

/// True if the system lets this process have this many more bytes. Memory that is missing when a job takes its slots would
/// end the process, and all jobs with it.
pub(crate) fn has_memory(bytes: u64) -> bool {
    /// Slots are several blocks, each with its own overhead.
    const OVERHEAD: u64 = 4 << 20;
    let bytes = usize::try_from(bytes.saturating_add(OVERHEAD)).unwrap_or(usize::MAX);
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// The time of `CLOCK_MONOTONIC`, which service managers compare with their own.
pub fn monotonic() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a whole timespec that lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Raises this process's limit of open files: every member keeps a connection, and the usual soft limit is 1,024.
pub fn allow_many_connections() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole rlimit that lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: as above. If it fails, the old limit holds, and connections beyond it wait.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

/// Makes the slots of every job come from the kernel, and return to it when the job ends. Only the daemon calls this:
/// it changes the whole process, so a program that embeds a switch decides for itself.
///
/// Without this, glibc raises its limit to the size of any such block that is freed, up to 32 MiB. From then on it
/// keeps freed blocks of that size in its arenas, up to twice as much in each. Every shard has an arena, which would
/// keep the slots of the largest job that the shard ever had.
pub fn return_slots_to_the_kernel() {
    // SAFETY: the call has no pointers. It takes effect for later allocations.
    #[cfg(target_env = "gnu")]
    let accepted = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(accepted, 1, "glibc takes any limit below its own largest");
}
