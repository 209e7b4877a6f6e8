//! The earlier program's end: the sockets go to the next program, and it serves its jobs until they end.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tributary_control::Succession;
use tributary_proto::contract::ids::JobId;

use super::{Channel, ClientBody, HandoverError, JobBody, Message, VERSION};
use crate::control_plane::ControlPlane;

/// How long the next program may take to start and to read its settings ...
const PATIENCE: Duration = Duration::from_secs(60);
/// ... and then, while nobody accepts connections, to open its sockets.
const PATIENCE_WITHOUT_CONNECTIONS: Duration = Duration::from_secs(10);

/// Connections that the next program has accepted, each with the number of its listener.
pub(crate) type HandedConnections = UnboundedReceiver<(usize, TcpStream)>;

/// What decides which connections the control API takes.
pub(crate) struct Intake {
    paused: watch::Sender<bool>,
    handed: UnboundedSender<(usize, TcpStream)>,
    /// The sockets that listen, in the server's order.
    listeners: Vec<TcpListener>,
}

impl Intake {
    /// The intake of these listeners, and where connections of the next program come out.
    pub fn new(listeners: Vec<TcpListener>) -> (Intake, HandedConnections) {
        let (handed, connections) = unbounded_channel();
        (Intake { paused: watch::Sender::new(false), handed, listeners }, connections)
    }

    /// True while connections are left to the next program.
    pub fn is_paused(&self) -> watch::Receiver<bool> {
        self.paused.subscribe()
    }

    fn pause(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    /// Hands a connection to the server that came with a message.
    fn hand(&self, listener: usize, with: Vec<OwnedFd>) {
        let Some(stream) = with.into_iter().next().map(TcpStream::from) else { return };
        match stream.set_nonblocking(true) {
            // The call fails only if the server has ended.
            Ok(()) => drop(self.handed.send((listener, stream))),
            Err(error) => tracing::debug!(%error, "a connection was not taken over"),
        }
    }
}

/// How a hand-over ends for the earlier program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its last job has ended: it should end.
    NoJobs,
    /// The next program was asked to stop: it should stop, too.
    Stopped,
    /// The next program has failed: it has taken its switch back, and goes on.
    TakenBack,
}

/// Called once, when the hand-over is over.
type OnEnd = Box<dyn FnOnce(Ending) + Send>;

/// What the program that has handed over its switch keeps until it ends. Dropping it ends the channel.
pub(crate) struct NextProgram(Arc<Shared>);

struct Shared {
    channel: Channel,
    plane: Weak<ControlPlane>,
    intake: Arc<Intake>,
    /// `None` once the program ends, or has taken its switch back.
    on_end: Mutex<Option<OnEnd>>,
}

impl NextProgram {
    /// Gives the switch to the program at the other end of the channel. After an error this program goes on as before.
    pub fn begin(
        channel: Channel,
        plane: &Arc<ControlPlane>,
        intake: &Arc<Intake>,
        addresses: (SocketAddr, Option<SocketAddr>),
        on_end: OnEnd,
    ) -> Result<NextProgram, HandoverError> {
        channel.set_patience(Some(PATIENCE))?;
        let (Message::Ready { version }, _) = channel.expect()? else { return Err(HandoverError::NotTaken) };
        if version != VERSION {
            channel.send(&Message::OtherVersion { version: VERSION }, &[])?;
            return Err(HandoverError::Version(VERSION, version));
        }
        channel.set_patience(Some(PATIENCE_WITHOUT_CONNECTIONS))?;
        intake.pause(true);
        let succession = plane.hand_over();
        let ids = succession.jobs.iter().map(|job| job.id).collect();
        if let Err(error) = give(&channel, plane, intake, addresses, succession) {
            take_back(plane, intake);
            return Err(error);
        }
        let on_end = Mutex::new(Some(on_end));
        let (plane, changes) = (Arc::downgrade(plane), plane.changes());
        let shared = Arc::new(Shared { channel, plane, intake: Arc::clone(intake), on_end });
        let (reader, reporter) = (Arc::clone(&shared), Arc::clone(&shared));
        Builder::new().name("next-program".into()).spawn(move || reader.read())?;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Builder::new().name("old-jobs".into()).spawn(move || runtime.block_on(reporter.report(ids, changes)))?;
        Ok(NextProgram(shared))
    }
}

impl Drop for NextProgram {
    fn drop(&mut self) {
        drop(self.0.end());
        self.0.channel.close();
    }
}

/// Sends the next program what it must know, and waits until it serves.
fn give(
    channel: &Channel,
    plane: &ControlPlane,
    intake: &Intake,
    (listen, http): (SocketAddr, Option<SocketAddr>),
    Succession { jobs, last_id, cordoned, banned }: Succession,
) -> Result<(), HandoverError> {
    plane.first_shard().set_shared(true)?;
    for job in &jobs {
        channel.send(&Message::Job(JobBody::new(job)), &[])?;
    }
    for client in &banned {
        channel.send(&Message::Banned(ClientBody::new(client)), &[])?;
    }
    let sockets: Vec<BorrowedFd<'_>> = intake.listeners.iter().map(AsFd::as_fd).collect();
    channel.send(&Message::Sockets { listen, http, last_id: last_id.0, cordoned }, &sockets)?;
    loop {
        match channel.expect()? {
            (Message::Serving, _) => return Ok(channel.set_patience(None)?),
            // It accepts connections a moment before it says so.
            (Message::Connection { listener }, with) => intake.hand(listener, with),
            _ => return Err(HandoverError::NotTaken),
        }
    }
}

/// Goes on as if there had been no next program.
fn take_back(plane: &ControlPlane, intake: &Intake) {
    if let Err(error) = plane.first_shard().set_shared(false) {
        tracing::debug!(%error, "the port can still be shared");
    }
    plane.take_back();
    intake.pause(false);
}

impl Shared {
    /// Ends the hand-over, once: `None` if that was done before.
    fn end(&self) -> Option<OnEnd> {
        self.on_end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes connections that belong to this program, until the next one ends.
    fn read(&self) {
        loop {
            match self.channel.receive() {
                Ok(Some((Message::Connection { listener }, with))) => self.intake.hand(listener, with),
                Ok(Some((Message::Stop, _))) => {
                    if let Some(on_end) = self.end() {
                        on_end(Ending::Stopped);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        let (Some(plane), Some(on_end)) = (self.plane.upgrade(), self.end()) else { return };
        if plane.running_ids().is_empty() {
            return on_end(Ending::NoJobs);
        }
        tracing::warn!("the next program has ended: this one takes the switch back");
        take_back(&plane, &self.intake);
        on_end(Ending::TakenBack);
    }

    /// Reports jobs that end, until there are none. The next program then ends its half of the channel.
    async fn report(&self, mut running: BTreeSet<JobId>, mut changes: watch::Receiver<()>) {
        loop {
            let Some(plane) = self.plane.upgrade() else { return };
            let now = plane.running_ids();
            drop(plane);
            for ended in running.difference(&now) {
                if self.channel.send(&Message::Ended { id: ended.0 }, &[]).is_err() {
                    return;
                }
            }
            running = now;
            if running.is_empty() || changes.changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::switch_daemon::{RunningSwitch, SwitchOptions};

    #[test]
    fn a_connection_may_come_before_the_next_program_says_that_it_serves() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let switch = RunningSwitch::start(&SwitchOptions::new(listen)).unwrap();
        let (own, inherited) = Channel::pair().unwrap();
        let (client, accepted) = client_with_request();
        let next = thread::spawn(move || {
            let next = Channel::inherited(inherited).unwrap();
            next.send(&Message::Ready { version: VERSION }, &[]).unwrap();
            while !matches!(next.expect().unwrap().0, Message::Sockets { .. }) {}
            next.send(&Message::Connection { listener: 0 }, &[accepted.as_fd()]).unwrap();
            next.send(&Message::Serving, &[]).unwrap();
            next
        });
        switch.hand_over(own, |_| ()).unwrap();
        assert!(answer(client).starts_with("HTTP/1.1 200"));
        drop(next.join().unwrap());
    }

    /// A connection as the next program accepts it: the client's end, which has sent a request, and the other.
    fn client_with_request() -> (TcpStream, TcpStream) {
        let entrance = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(entrance.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /healthz HTTP/1.1\r\nHost: switch\r\nConnection: close\r\n\r\n").unwrap();
        (client, entrance.accept().unwrap().0)
    }

    fn answer(mut client: TcpStream) -> String {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_connection_that_was_passed_on_as_the_last_job_ended_is_answered() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let switch = RunningSwitch::start(&SwitchOptions::new(listen)).unwrap();
        let (own, inherited) = Channel::pair().unwrap();
        let (client, accepted) = client_with_request();
        let (end, ended) = mpsc::channel();
        let next = thread::spawn(move || {
            let next = Channel::inherited(inherited).unwrap();
            next.send(&Message::Ready { version: VERSION }, &[]).unwrap();
            while !matches!(next.expect().unwrap().0, Message::Sockets { .. }) {}
            next.send(&Message::Serving, &[]).unwrap();
            let early = ended.recv_timeout(Duration::from_millis(200));
            assert!(early.is_err(), "it ends while connections may come");
            next.send(&Message::Connection { listener: 0 }, &[accepted.as_fd()]).unwrap();
            drop(accepted);
            next.end_sending();
            (next, ended.recv_timeout(PATIENCE))
        });
        switch.hand_over(own, move |why| end.send(why).unwrap()).unwrap();
        let (_next, why) = next.join().unwrap();
        assert_eq!(why, Ok(Ending::NoJobs));
        switch.stop();
        assert!(answer(client).starts_with("HTTP/1.1 200"));
    }
}
