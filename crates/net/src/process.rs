//! Which process something with threads belongs to. A fork has its memory and none of its threads, so that the child
//! must not wait for them, nor speak to anybody in its parent's place.

use std::process;

/// The process that something was made in.
#[derive(Clone, Copy, Debug)]
pub struct Home(u32);

impl Home {
    /// This process.
    pub fn here() -> Home {
        Home(process::id())
    }

    /// Whether this process is the one, and not a fork of it.
    pub fn is_here(self) -> bool {
        self.0 == process::id()
    }
}
