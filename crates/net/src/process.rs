//! The process that a value with threads belongs to. A fork has the memory of its parent and none of its threads, so
//! the child must not wait for these threads, nor send packets in its parent's place.

use std::process;

/// The process in which something was made.
#[derive(Clone, Copy, Debug)]
pub struct Home(u32);

impl Home {
    /// This process.
    pub fn here() -> Home {
        Home(process::id())
    }

    /// True if this process is that process, and not a fork of it.
    pub fn is_here(self) -> bool {
        self.0 == process::id()
    }
}
