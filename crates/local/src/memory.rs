//! Memory that processes share, the words in it by which they wait for each other, and the memory that a caller lends.
//!
//! Nothing but this file dereferences a pointer. What makes it sound between processes is the order of
//! [`handover`](crate::handover): a rank writes to its own slots only while no other rank reads them.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::handover::Word;

/// A file in memory, without a name, whose size can no longer change: so that no access to it ever faults.
pub fn sealed_file(bytes: usize) -> io::Result<File> {
    // SAFETY: the name is a string that ends with zero.
    let fd = unsafe { libc::memfd_create(c"tributary".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and belongs to nobody else.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes as u64)?;
    // SAFETY: the call has no pointers.
    match unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SIZE_SEALS | libc::F_SEAL_SEAL) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// A mapping of such a file. A fork does not inherit it.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value alone, and its methods may be called from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above; words are atomic, and slices are handed out by the rules of the hand-over.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps a file that another process may have sent, after checking its size and that it keeps it.
    pub fn map(file: &File, bytes: usize) -> io::Result<Memory> {
        // SAFETY: the call has no pointers.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SIZE_SEALS != SIZE_SEALS || file.metadata()?.len() != bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not the memory of this group"));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an address that nothing else uses.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = Memory { start: NonNull::new(start.cast()).expect("a mapping is not at zero"), bytes };
        // SAFETY: the range is the mapping.
        match unsafe { libc::madvise(start, bytes, libc::MADV_DONTFORK) } {
            0 => Ok(memory),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The word at an offset, a multiple of four.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "{offset} is a word of {} bytes", self.bytes);
        // SAFETY: it lies in the mapping, which lives as long as the borrow, is aligned, and is used as a word only.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Bytes for reading, which no rank writes before this one has published the stage in which it reads them.
    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        self.check(offset, len);
        // SAFETY: it lies in the mapping; by the hand-over nobody writes there meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), len) }
    }

    /// Bytes of this rank's own slot for writing, which no rank reads before this one has published the stage.
    #[allow(clippy::mut_from_ref)] // Other processes share it, too: borrows cannot say who may write.
    pub fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        self.check(offset, len);
        // SAFETY: it lies in the mapping; by the hand-over nobody else uses it, and the machine that asks holds one such
        // slice at a time.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), len) }
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len).expect("offsets are small");
        assert!(end <= self.bytes, "{offset} to {end} lies in {} bytes", self.bytes);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping, and nothing borrows it. In a fork, which has no such mapping, the kernel
        // finds nothing there.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Sleeps while the word, which processes share, has this value, until it is woken or the time has passed.
fn futex_wait(word: &AtomicU32, value: u32, timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: the word and the time outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const timeout) };
}

/// Wakes all that sleep at the word.
fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call, which does not read it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, libc::c_int::MAX) };
}

impl Word for AtomicU32 {
    fn get(&self) -> u32 {
        self.load(Ordering::SeqCst)
    }

    fn set(&self, value: u32) {
        self.store(value, Ordering::SeqCst);
    }

    fn add(&self, change: u32) {
        self.fetch_add(change, Ordering::SeqCst);
    }

    fn sleep(&self, value: u32, timeout: Duration) {
        futex_wait(self, value, timeout);
    }

    fn wake(&self) {
        futex_wake(self);
    }
}

/// Memory that a caller lends to a collective until it has ended.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: who lends it has promised that it may be used from any thread until the collective has ended.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// No memory.
    pub const NONE: Lent = Lent { start: std::ptr::null_mut(), bytes: 0 };

    /// Lends memory.
    ///
    /// # Safety
    ///
    /// Until the collective has ended the memory must stay valid: for reading if it is an input, and for writing if it is
    /// an output. Nothing else writes an input or uses an output meanwhile.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> Lent {
        Lent { start, bytes }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Some of its bytes.
    pub fn fragment(&self, bytes: std::ops::Range<usize>) -> Lent {
        self.check(bytes.start, bytes.len());
        Lent { start: self.start.wrapping_add(bytes.start), bytes: bytes.len() }
    }

    /// Its address, for machines that read and write memory by its address.
    pub fn address(&self) -> *mut u8 {
        self.start
    }

    /// Copies from it.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) {
        self.check(offset, to.len());
        if !to.is_empty() {
            // SAFETY: it lies in what was lent, and the slice is other memory: a slot or scratch.
            unsafe { std::ptr::copy_nonoverlapping(self.start.add(offset), to.as_mut_ptr(), to.len()) };
        }
    }

    /// Copies to it.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        if !from.is_empty() {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(offset), from.len()) };
        }
    }

    /// Its bytes for reading, while the machine writes none of them.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        self.check(offset, len);
        match len {
            0 => &[],
            // SAFETY: it lies in what was lent, and the machine that asks writes nothing there meanwhile.
            _ => unsafe { std::slice::from_raw_parts(self.start.add(offset), len) },
        }
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len).expect("lengths are checked");
        assert!(end <= self.bytes, "{offset} to {end} lies in {} lent bytes", self.bytes);
    }
}

/// Memory of the machine's own that it lends to itself, aligned for every type. Whoever lends it keeps it.
pub(crate) struct Scratch {
    words: Box<[UnsafeCell<u64>]>,
    bytes: usize,
}

// SAFETY: its bytes are only used through what is lent of it, as memory of a caller is.
unsafe impl Send for Scratch {}

impl Scratch {
    /// Memory of this many bytes.
    pub(crate) fn new(bytes: usize) -> Scratch {
        Scratch { words: (0..bytes.div_ceil(8)).map(|_| UnsafeCell::new(0)).collect(), bytes }
    }

    /// Lends it.
    pub(crate) fn lent(&self) -> Lent {
        Lent { start: UnsafeCell::raw_get(self.words.as_ptr()).cast(), bytes: self.bytes }
    }
}
