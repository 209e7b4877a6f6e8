//! One network namespace: made, entered, and removed with everything that runs in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::error::TestbedError;
use crate::tool;

/// Names begin with this, the maker's pid and a number: `trib-PID-NUMBER-ROLE`.
const PREFIX: &str = "trib-";
/// The folder in which `ip netns` keeps the handles.
const FOLDER: &str = "/run/netns";

/// A namespace of this program. Dropping it kills the programs inside and removes it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace with its loopback interface up.
    pub(crate) fn create(number: u32, role: &str) -> Result<Namespace, TestbedError> {
        Namespace::create_as(&format!("{number}-{role}"))
    }

    /// Makes a namespace whose name ends with `rest`.
    pub(crate) fn create_as(rest: &str) -> Result<Namespace, TestbedError> {
        let name = format!("{PREFIX}{}-{rest}", std::process::id());
        tool::run("ip", &["netns", "add", &name])?;
        let namespace = Namespace { name };
        tool::run("ip", &["-n", &namespace.name, "link", "set", "lo", "up"])?;
        // IPv6 would announce itself on every link, where only our own packets may be. A kernel without IPv6 has no
        // such file.
        namespace.inside(|| drop(std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")))?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs inside the namespace, and is killed when the thread that spawned it ends.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command, TestbedError> {
        let handle = self.open()?;
        let mut command = Command::new(program);
        let enter = move || {
            enter(&handle)?;
            die_with_parent()
        };
        // SAFETY: between fork and exec the closure makes two system calls and touches nothing else: it allocates
        // nothing, takes no lock, and the handle is owned by it.
        unsafe { command.pre_exec(enter) };
        Ok(command)
    }

    /// Runs `work` on a thread inside this namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        let handle = self.open()?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                enter(&handle).map_err(|error| TestbedError::System { what: "setns".into(), error })?;
                Ok(work())
            });
            // A panic inside is the caller's: it continues in the caller.
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn open(&self) -> Result<File, TestbedError> {
        let path = Path::new(FOLDER).join(&self.name);
        File::open(&path).map_err(|error| TestbedError::System { what: format!("open {}", path.display()), error })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Moves the calling thread into a namespace.
fn enter(handle: &File) -> io::Result<()> {
    // SAFETY: setns takes a file descriptor, which `handle` keeps open, and a flag; it touches no memory of ours.
    match unsafe { libc::setns(handle.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Asks the kernel to kill this process when the thread that forked it ends, for whatever reason.
fn die_with_parent() -> io::Result<()> {
    // SAFETY: prctl with this option takes a signal number and touches no memory.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes namespaces of programs that no longer run.
pub(crate) fn remove_stale() {
    let Ok(entries) = std::fs::read_dir(FOLDER) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        if maker_of(&name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&name);
        }
    }
}

/// The pid in a namespace's name, if this library made the namespace.
fn maker_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Kills each process inside by its pid, then deletes the namespace. A failure is not reported, since the next star
/// tries again.
fn remove(name: &str) {
    let pids = tool::run("ip", &["netns", "pids", name]).unwrap_or_default();
    for pid in pids.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()) {
        // SAFETY: kill takes two numbers. The process is in a namespace that only our programs enter.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let _ = tool::run("ip", &["netns", "del", name]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_recognised() {
        assert_eq!(maker_of("trib-1234-0-h3"), Some(1234));
        assert_eq!(maker_of("trib-x-0-h3"), None);
        assert_eq!(maker_of("someone-else"), None);
    }
}
