//! What a service manager is told (`sd_notify(3)`): that the switch is ready, reads its files again, stops, or still works,
//! and which process it is. Without `NOTIFY_SOCKET` in the environment nothing is told.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::Scope;
use std::time::Duration;
use std::{env, process};

use tributary_net::os;
use tributary_net::switch_daemon::RunningSwitch;

/// How many times a switch says that it works before the manager would give it up.
const BEATS: u32 = 4;

/// The way to the service manager, if there is one.
pub struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
    /// The manager restarts a switch that has not said for this long that it works.
    watchdog: Option<Duration>,
    /// False while a next program has the switch.
    is_main: AtomicBool,
}

impl Notifier {
    /// The manager that the environment names.
    pub fn of_environment() -> Notifier {
        let named = env::var("NOTIFY_SOCKET").ok().and_then(|name| {
            let address = match name.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&name),
            };
            Some((UnixDatagram::unbound().ok()?, address.ok()?))
        });
        let interval = env::var("WATCHDOG_USEC").ok().and_then(|micros| micros.parse().ok()).map(Duration::from_micros);
        let watchdog = interval.filter(|interval| !interval.is_zero());
        Notifier { manager: named, watchdog, is_main: AtomicBool::new(true) }
    }

    /// Tells the manager a state, as `READY=1`.
    pub fn send(&self, state: &str) {
        let Some((socket, manager)) = &self.manager else { return };
        // If the manager does not take it, it finds out by its own timeouts.
        let _ = socket.send_to_addr(state.as_bytes(), manager);
    }

    /// Tells the manager that the files are read again.
    pub fn send_reloading(&self) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", os::monotonic().as_micros()));
    }

    /// Tells the manager which process is the switch from now on: only that one says that it works.
    pub fn send_main_process(&self, pid: u32) {
        self.is_main.store(pid == process::id(), Ordering::Relaxed);
        self.send(&format!("MAINPID={pid}"));
    }

    /// True unless a next program has the switch.
    pub fn is_main_process(&self) -> bool {
        self.is_main.load(Ordering::Relaxed)
    }

    /// Tells the manager regularly that the switch works, as long as it does and the result lives.
    pub fn watch_over<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        switch: &'env RunningSwitch,
    ) -> Option<Sender<()>> {
        let interval = self.watchdog.filter(|_| self.manager.is_some())?;
        let (alive, is_over) = mpsc::channel();
        scope.spawn(move || {
            while is_over.recv_timeout(interval / BEATS) == Err(RecvTimeoutError::Timeout) {
                if self.is_main_process() && switch.last_turn() < interval {
                    self.send("WATCHDOG=1");
                }
            }
        });
        Some(alive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_gets_each_state_as_a_datagram() {
        let address = SocketAddr::from_abstract_name(format!("tributary-test-{}", process::id())).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let notifier_to = |manager| Notifier { manager, watchdog: None, is_main: AtomicBool::new(true) };
        let notifier = notifier_to(Some((UnixDatagram::unbound().unwrap(), address)));
        notifier.send("READY=1");
        notifier.send_reloading();
        let mut bytes = [0; 256];
        let mut next = || {
            let length = manager.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        assert_eq!(next(), "READY=1");
        assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        notifier.send_main_process(1);
        assert_eq!((next(), notifier.is_main_process()), ("MAINPID=1".to_string(), false));
        notifier.send_main_process(process::id());
        assert_eq!((next(), notifier.is_main_process()), (format!("MAINPID={}", process::id()), true));
        notifier_to(None).send("READY=1");
    }
}
