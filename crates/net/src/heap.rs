//! The heap of a process that is only a switch.
#![allow(unsafe_code)]

/// An allocation of this many bytes comes from the kernel and goes back to it. This is glibc's own limit when a process
/// starts.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 128 * 1024;

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
