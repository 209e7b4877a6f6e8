//! Ctrl-C and SIGTERM, as a flag that waiting code checks, so that everything that was started is taken down in order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;

/// True once a signal asked the program to stop.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Makes the two signals set this flag. A second signal ends the process as usual.
    pub fn on_signals() -> io::Result<Interrupt> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_default(signal, flag.clone())?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Interrupt(flag))
    }

    /// The flag itself, for loops that check it on their own.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// True once a signal asked the program to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once a signal asked the program to stop.
    pub fn check(&self) -> Result<(), Failure> {
        if self.is_set() { Err(Failure::new("interrupted; everything that was started is taken down")) } else { Ok(()) }
    }
}
