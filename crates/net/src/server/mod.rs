//! A process that offers itself to a switch's jobs as a server, and runs one machine for each job that it is given.
//!
//! `offer` keeps the connection to the control plane and learns of jobs. `job` is one of these jobs. `thread` is the one
//! thread that receives and sends for all jobs, at one UDP port.

mod job;
mod offer;
mod thread;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use self::offer::Offering;
use self::thread::{Command, ServerThread};
use crate::api::OfferBody;
use crate::client::Token;
use crate::client::{ClientError, ServerClient};
use crate::os::Waker;
use crate::udp::UdpPort;
use crate::udp::path::Path;

/// How a server is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// The control API of the switch whose jobs the server serves.
    pub switch: SocketAddr,
    /// The UDP address at which to receive. Every address stands for the address on the way to the switch, and port 0
    /// lets the system choose a port.
    pub listen: SocketAddr,
    /// Bytes of receive buffer to ask the kernel for.
    pub receive_buffer: usize,
    /// Bytes of send buffer to ask the kernel for.
    pub send_buffer: usize,
}

impl ServerOptions {
    /// A server of this switch's jobs, at an address of this machine.
    pub fn new(switch: SocketAddr, listen: SocketAddr) -> ServerOptions {
        const SOCKET_BUFFER: usize = 8 << 20;
        ServerOptions { switch, listen, receive_buffer: SOCKET_BUFFER, send_buffer: SOCKET_BUFFER }
    }
}

/// Why a server did not start: one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The socket could not be opened.
    #[error("cannot receive at UDP {listen}: {source}; choose another address or port with --listen")]
    Open {
        /// The address.
        listen: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// There is no way to the switch.
    #[error("there is no way to the switch {switch}: {source}")]
    NoWay {
        /// The switch.
        switch: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The token cannot be sent.
    #[error("{0}")]
    Token(String),
    /// The switch did not take the offer.
    #[error(transparent)]
    Switch(#[from] ClientError),
    /// Any other error of the system.
    #[error("the server cannot start: {0}")]
    System(#[from] io::Error),
}

/// The channel to the thread that serves.
#[derive(Clone)]
struct ThreadHandle {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

impl ThreadHandle {
    fn send(&self, command: Command) {
        // The call fails only if the thread has ended.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

/// Chooses one address, so that the server's packets carry the address to which workers send.
fn of_this_machine(options: &ServerOptions) -> Result<SocketAddr, ServerError> {
    let ServerOptions { switch, listen, .. } = *options;
    let any = listen.ip().is_unspecified();
    let local =
        if any { Path::to(switch).map_err(|source| ServerError::NoWay { switch, source })?.local } else { listen.ip() };
    Ok(SocketAddr::new(local, listen.port()))
}

/// A server that runs until it is stopped or dropped.
pub struct RunningServer {
    udp: SocketAddr,
    thread_handle: ThreadHandle,
    offering: Arc<Offering>,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    /// Opens the socket and offers the server; returns when the switch knows it.
    pub fn start(options: &ServerOptions) -> Result<RunningServer, ServerError> {
        let listen = of_this_machine(options)?;
        let udp = UdpPort::open(listen, options.receive_buffer, options.send_buffer);
        let udp = udp.map_err(|source| ServerError::Open { listen, source })?;
        let addr = udp.local_addr();
        let incarnation = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let body = OfferBody::new(incarnation, addr, udp.counters().receive_buffer as u64);
        let token = Token::of_this_process().map_err(ServerError::Token)?;
        let (commands, received) = channel();
        let thread_handle = ThreadHandle { commands, waker: Arc::new(Waker::new()?) };
        let state = ServerThread::new(udp, incarnation, received, Arc::clone(&thread_handle.waker));
        let client = ServerClient::new(options.switch, token)?;
        let offering = Arc::new(Offering::new(client, body, thread_handle.clone()));
        // The thread must run before the offer, because the switch asks at the socket whether it is ours.
        let thread = Builder::new().name("server".into()).spawn(move || state.run())?;
        // From here on, dropping the value takes the offer back.
        let server = RunningServer { udp: addr, thread_handle, offering, thread: Some(thread) };
        server.offering.ask()?;
        let offering = Arc::clone(&server.offering);
        Builder::new().name("offer".into()).spawn(move || offering.run())?;
        Ok(server)
    }

    /// The address where the server receives packets.
    pub fn udp_addr(&self) -> SocketAddr {
        self.udp
    }

    /// Reports the end to the switch, gives up the server's jobs, and ends the thread.
    pub fn stop(self) {}
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.offering.stop();
        self.thread_handle.send(Command::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(udp = %self.udp, "the server's thread panicked");
        }
    }
}
