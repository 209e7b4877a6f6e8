//! What the driver asks of the operating system: the time, sleep until there is work, the process that owns a value, and
//! how the heap returns memory.

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
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
        Ok(Waker { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?.into() })
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
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN), PollFd::new(&waker.event, PollFlags::IN)];
    wait_for(&mut fds, timeout);
    Ready { packets: !fds[0].revents().is_empty(), woken: !fds[1].revents().is_empty() }
}

/// Sockets of which each wakes its poller once, until it is armed again.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// A poller of no sockets.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Has the socket wake a wait when it is readable, once, with this key.
    pub fn arm(&self, socket: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let (key, once) = (epoll::EventData::new_u64(key), epoll::EventFlags::IN | epoll::EventFlags::ONESHOT);
        match epoll::modify(&self.epoll, socket, key, once) {
            Err(Errno::NOENT) => Ok(epoll::add(&self.epoll, socket, key, once)?),
            armed => Ok(armed?),
        }
    }

    /// Sleeps until a socket is readable, the waker is called, or the timeout has passed. Returns the keys of some
    /// readable sockets, and whether the waker was called.
    pub fn wait(&self, waker: &Waker, timeout: Option<Duration>) -> (Vec<u64>, bool) {
        let ready = wait(self.epoll.as_fd(), waker, timeout);
        let mut events = Vec::with_capacity(64);
        // A call that fails has changed nothing: the next one says it.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&Timespec::default()));
        (events.iter().map(|event: &epoll::Event| event.data.u64()).collect(), ready.woken)
    }
}

/// Sleeps until the socket is readable, or the timeout has passed.
pub(crate) fn wait_readable(socket: BorrowedFd<'_>, timeout: Duration) {
    wait_for(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(timeout));
}

/// Sleeps until the socket can send, or the timeout has passed.
pub(crate) fn wait_writable(socket: BorrowedFd<'_>, timeout: Duration) {
    wait_for(&mut [PollFd::from_borrowed_fd(socket, PollFlags::OUT)], Some(timeout));
}

/// An interruption by a signal has the effect of a timeout: the caller reads its clock anyway.
fn wait_for(fds: &mut [PollFd<'_>], timeout: Option<Duration>) {
    let timeout =
        timeout.map(|timeout| Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
    let _ = poll(fds, timeout.as_ref());
}

/// The most descriptors that go with one message.
const MAX_DESCRIPTORS: usize = 4;

/// Sends a message over a Unix socket, and descriptors with it.
pub(crate) fn send_with_descriptors(to: BorrowedFd<'_>, bytes: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = with.is_empty() || control.push(SendAncillaryMessage::ScmRights(with));
    assert!(fits, "the control message holds them");
    sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message and the descriptors that came with it. No bytes: the other end is closed.
pub(crate) fn receive_with_descriptors(from: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(from, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    Ok((received.bytes, descriptors))
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
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(Path::new("/sys/fs/cgroup"), &groups);
    machine_memory_bytes().into_iter().chain(limit).min().unwrap_or(u64::MAX)
}

/// The machine's memory, by a system call: a service that sees only processes in /proc has no /proc/meminfo.
#[allow(unsafe_code)]
fn machine_memory_bytes() -> Option<u64> {
    let mut system = MaybeUninit::<libc::sysinfo>::uninit();
    // SAFETY: the call fills the structure, for which there is memory, or returns an error.
    let system = unsafe { (libc::sysinfo(system.as_mut_ptr()) == 0).then(|| system.assume_init()) }?;
    u64::try_from(u128::from(system.totalram) * u128::from(system.mem_unit)).ok()
}

/// The lowest limit of a process's control group and of those above it. `groups` is its /proc/self/cgroup, where the group
/// of the second version has no controllers beside it.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let hierarchies = groups.lines().filter_map(|line| {
        let (_, line) = line.split_once(':')?;
        match line.split_once(':')? {
            ("", group) => Some((root.to_owned(), group, "memory.max")),
            ("memory", group) => Some((root.join("memory"), group, "memory.limit_in_bytes")),
            _ => None,
        }
    });
    let files = hierarchies.flat_map(|(hierarchy, group, file)| {
        let groups = Path::new(group.trim_start_matches('/')).ancestors();
        groups.map(move |group| hierarchy.join(group).join(file))
    });
    // A group without a limit has no such file, or `max` in it.
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
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
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Raises this process's limit of open files: every member keeps a connection, and the usual soft limit is 1,024.
pub fn allow_many_connections() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If it fails, the old limit holds, and connections beyond it wait.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Makes the slots of every job come from the kernel, and return to it when the job ends. Only the daemon calls this:
/// it changes the whole process, so a program that embeds a switch decides for itself.
///
/// Without this, glibc raises its limit to the size of any such block that is freed, up to 32 MiB. From then on it
/// keeps freed blocks of that size in its arenas, up to twice as much in each. Every shard has an arena, which would
/// keep the slots of the largest job that the shard ever had.
#[allow(unsafe_code)]
pub fn return_slots_to_the_kernel() {
    // SAFETY: the call has no pointers. It takes effect for later allocations.
    #[cfg(target_env = "gnu")]
    let accepted = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(accepted, 1, "glibc takes any limit below its own largest");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_a_group_and_its_parents_counts_in_both_versions_of_control_groups() {
        let root = std::env::temp_dir().join(format!("tributary-groups-{}", process::id()));
        let write = |file: &str, limit: &str| {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, limit).unwrap();
        };
        write("system.slice/memory.max", "1073741824\n");
        write("system.slice/switch.service/memory.max", "max\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/system.slice/switch.service/memory.limit_in_bytes", "536870912\n");
        let limit = |groups: &str| group_limit(&root, groups);
        assert_eq!(limit("0::/system.slice/switch.service\n"), Some(1 << 30));
        assert_eq!(limit("0::/user.slice\n"), None);
        let first_version = "5:devices:/\n4:memory:/system.slice/switch.service\n1:name=systemd:/\n0::/\n";
        assert_eq!(limit(first_version), Some(512 << 20));
        assert_eq!(limit("4:memory:/elsewhere\n"), Some(9_223_372_036_854_771_712));
        assert_eq!(limit(""), None);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_machine_s_memory_is_at_least_what_proc_says() {
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let kib: u64 = total.trim().strip_suffix("kB").unwrap().trim().parse().unwrap();
        // A container may be shown less.
        assert!(machine_memory_bytes().unwrap() >= kib * 1_024);
    }
}
