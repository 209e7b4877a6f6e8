//! Memory that processes share, the words in it by which they wait for each other, and the memory that a caller lends.
//!
//! Nothing but this file dereferences a pointer. What makes it sound between processes is the order of
//! [`handover`](crate::handover): a rank writes to its own slots only while no other rank reads them.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::thread::futex;

use crate::handover::Word;

/// A file in memory, without a name, whose size can no longer change: so that no access to it ever faults.
pub fn sealed_file(bytes: usize) -> io::Result<File> {
    let file = File::from(memfd_create(c"tributary", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.set_len(bytes as u64)?;
    fcntl_add_seals(&file, SIZE_SEALS | SealFlags::SEAL)?;
    Ok(file)
}

const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

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
        let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SIZE_SEALS));
        if !sealed || file.metadata()?.len() != bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not the memory of this group"));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address that nothing else uses.
        let start = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
        let memory = Memory { start: NonNull::new(start.cast()).expect("a mapping is not at zero"), bytes };
        // SAFETY: the range is the mapping.
        unsafe { madvise(start, bytes, Advice::LinuxDontFork)? };
        Ok(memory)
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
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
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
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        // It ends when it is woken, when the word has another value, or in time: the caller reads the word.
        let _ = futex::wait(self, futex::Flags::empty(), value, Some(&timeout));
    }

    fn wake(&self) {
        let _ = futex::wake(self, futex::Flags::empty(), i32::MAX as u32);
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
