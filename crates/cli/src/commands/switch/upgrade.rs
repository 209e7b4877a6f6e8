//! A new program for a running switch: at SIGUSR2 the switch starts its own command line again, from the file that is there
//! now, and the new program takes over ([`tributary_net::handover`]). It inherits the channel to the running one as its
//! stdin, so nobody else can take a switch over.

use std::io;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::{env, thread};

use tributary_net::handover::{Channel, Ending};
use tributary_net::switch_daemon::RunningSwitch;

use crate::failure::Failure;
use crate::program::Program;

/// Set where a running switch has started this program to take over.
const VARIABLE: &str = "TRIBUTARY_TAKE_OVER";

/// The channel to the program that has started this one to take over.
pub fn inherited_channel() -> Result<Option<Channel>, Failure> {
    if env::var_os(VARIABLE).is_none() {
        return Ok(None);
    }
    let channel = io::stdin().as_fd().try_clone_to_owned().and_then(Channel::inherited);
    let sentence = || format!("{VARIABLE} is for programs that a running switch starts at SIGUSR2: unset it");
    channel.map(Some).map_err(|_| Failure::usage(sentence()))
}

/// Starts the new program and gives it the switch; returns its process id. `on_end` is called when this program should end.
pub fn hand_over(
    program: &Program,
    switch: &RunningSwitch,
    on_end: impl FnOnce(Ending) + Send + 'static,
) -> Result<u32, Failure> {
    let (own, inherited) = Channel::pair()?;
    // The command keeps the other end open, so it goes before the next program is waited for.
    let mut next = program.again().env(VARIABLE, "1").stdin(Stdio::from(inherited)).spawn()?;
    let id = next.id();
    // Whether it ends well shows on the channel.
    thread::Builder::new().name("next-process".into()).spawn(move || next.wait())?;
    switch.hand_over(own, on_end).map_err(Failure::new)?;
    Ok(id)
}
