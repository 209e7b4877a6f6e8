//! The heap of a process that is only a switch.
#![allow(unsafe_code)]

/// Allocations of so many bytes come from the kernel and go back to it: glibc's own limit at a process's start.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 128 * 1024;

/// Makes the slots of every job come from the kernel, and return to it when the job ends. For the daemon: it concerns
/// the whole process, so a program that embeds a switch decides for itself.
///
/// Without this, glibc raises its limit to the size of any such block that is freed, up to 32 MiB, and from then on
/// keeps freed blocks of that size in its arenas, up to twice as much in each. Every shard has an arena, and would keep
/// the slots of the largest job that it ever had.
pub fn return_slots_to_the_kernel() {
    // SAFETY: a call without pointers; it takes effect for later allocations.
    #[cfg(target_env = "gnu")]
    let accepted = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(accepted, 1, "glibc takes any limit below its own largest");
}
