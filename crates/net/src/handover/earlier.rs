//! The next program's end: it takes over the sockets, and passes on what belongs to the earlier program.

use std::mem;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Builder;
use std::time::Duration;

use tokio::net::TcpStream;
use tributary_control::{Client, EarlierJob, Succession};
use tributary_proto::contract::ids::JobId;

use super::{Channel, HandoverError, Message, VERSION};
use crate::control_plane::ControlPlane;

/// How long the earlier program may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The bytes of a request in which its path must be. The name of a job and what is before it fit.
const REQUEST_LINE: usize = 256;
/// Time that a client has to send them ...
const REQUEST_LINE_TIMEOUT: Duration = Duration::from_secs(10);
/// ... and after which it is asked again.
const PEEK_AGAIN: Duration = Duration::from_millis(5);

/// What a program takes over.
pub(crate) struct Inheritance {
    channel: Channel,
    /// The switch's address.
    pub listen: SocketAddr,
    /// The operators' own address.
    pub http: Option<SocketAddr>,
    /// The sockets that listen there.
    sockets: Vec<OwnedFd>,
    succession: Succession,
}

impl Inheritance {
    /// Asks the program at the other end of the channel for its switch.
    pub fn receive(channel: Channel) -> Result<Inheritance, HandoverError> {
        channel.set_patience(Some(PATIENCE))?;
        channel.send(&Message::Ready { version: VERSION }, &[])?;
        let (mut jobs, mut banned) = (Vec::<EarlierJob>::new(), Vec::<Client>::new());
        loop {
            let (message, sockets) = channel.expect()?;
            match message {
                Message::Job(body) => jobs.push(body.job().ok_or(HandoverError::NotTaken)?),
                Message::Banned(body) => banned.push(body.client()),
                Message::OtherVersion { version } => return Err(HandoverError::Version(version, VERSION)),
                Message::Sockets { listen, http, last_id, cordoned } => {
                    if sockets.len() != 1 + usize::from(http.is_some()) {
                        return Err(HandoverError::NotTaken);
                    }
                    let succession = Succession { jobs, last_id: JobId(last_id), cordoned, banned };
                    return Ok(Inheritance { channel, listen, http, sockets, succession });
                }
                _ => return Err(HandoverError::NotTaken),
            }
        }
    }

    /// The jobs that stay with the earlier program.
    pub fn jobs(&self) -> Vec<JobId> {
        self.succession.jobs.iter().map(|job| job.id).collect()
    }

    /// The listening sockets of members and of operators.
    pub fn sockets(&mut self) -> (Option<TcpListener>, Option<TcpListener>) {
        let mut sockets = mem::take(&mut self.sockets).into_iter().map(TcpListener::from);
        (sockets.next(), sockets.next())
    }
}

/// The program that served the switch before this one, and still serves its jobs.
pub(crate) struct EarlierProgram {
    channel: Channel,
    has_http: bool,
    over: AtomicBool,
}

impl EarlierProgram {
    /// Makes this program's control plane the successor. No connection was accepted yet.
    pub fn new(inheritance: Inheritance, plane: &ControlPlane) -> Arc<EarlierProgram> {
        let Inheritance { channel, http, succession, .. } = inheritance;
        plane.succeed(succession);
        Arc::new(EarlierProgram { channel, has_http: http.is_some(), over: AtomicBool::new(false) })
    }

    /// Connections are accepted: the earlier program need not do it any more.
    pub fn begin(self: &Arc<Self>, plane: &Arc<ControlPlane>) -> Result<(), HandoverError> {
        self.channel.set_patience(None)?;
        self.channel.send(&Message::Serving, &[])?;
        self.end_if_without_jobs(plane);
        let (this, plane) = (Arc::clone(self), Arc::downgrade(plane));
        Builder::new().name("earlier-program".into()).spawn(move || this.read(&plane))?;
        Ok(())
    }

    /// True once the earlier program has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Asks it to stop, because this program stops.
    pub fn stop(&self) {
        // The call fails only if it has ended.
        let _ = self.channel.send(&Message::Stop, &[]);
    }

    /// Ends the channel. If the earlier program still has jobs, it takes the switch back.
    pub fn close(&self) {
        self.over.store(true, Ordering::Release);
        self.channel.close();
    }

    /// Notes which of its jobs have ended, until it ends itself.
    fn read(&self, plane: &Weak<ControlPlane>) {
        while let Ok(Some((message, _))) = self.channel.receive() {
            let (Message::Ended { id }, Some(plane)) = (message, plane.upgrade()) else { continue };
            plane.earlier_job_ended(JobId(id));
            share_packets(&plane);
            self.end_if_without_jobs(&plane);
        }
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(plane) = plane.upgrade() else { return };
        plane.earlier_jobs().into_iter().for_each(|job| plane.earlier_job_ended(job.id));
        if let Err(error) = plane.first_shard().set_shared(false) {
            tracing::debug!(%error, "the port can still be shared");
        }
        tracing::info!("the earlier program has ended");
    }

    /// Lets the earlier program end once none of its jobs is left. Connections that it was passed are answered before.
    fn end_if_without_jobs(&self, plane: &ControlPlane) {
        if plane.earlier_jobs().is_empty() {
            self.channel.end_sending();
        }
    }

    /// Passes a connection on if its request is about a job of the earlier program; otherwise returns it.
    pub async fn pass_on(&self, stream: TcpStream, listener: usize, plane: &ControlPlane) -> Option<TcpStream> {
        if self.is_over() || listener > usize::from(self.has_http) {
            return Some(stream);
        }
        let path = tokio::time::timeout(REQUEST_LINE_TIMEOUT, path_of(&stream)).await.ok().flatten();
        if !path.is_some_and(|path| is_about_one_of(&path, &plane.earlier_jobs())) {
            return Some(stream);
        }
        match self.channel.send(&Message::Connection { listener }, &[stream.as_fd()]) {
            Ok(()) => None,
            // The last of its jobs has ended in the meantime.
            Err(error) => {
                tracing::debug!(%error, "a connection was not passed on");
                Some(stream)
            }
        }
    }
}

/// Leaves packets of the earlier program's jobs to it.
fn share_packets(plane: &ControlPlane) {
    let jobs: Vec<JobId> = plane.earlier_jobs().iter().map(|job| job.id).collect();
    if let Err(error) = plane.first_shard().leave_to_earlier(&jobs) {
        tracing::debug!(%error, "packets of jobs that have ended still go to the earlier program");
    }
}

/// The path of the request that a client sends, which stays in the socket; `None` if it sends none.
async fn path_of(stream: &TcpStream) -> Option<String> {
    let mut bytes = [0; REQUEST_LINE];
    loop {
        let length = stream.peek(&mut bytes).await.ok().filter(|&length| length > 0)?;
        let text = String::from_utf8_lossy(&bytes[..length]);
        let mut words = text.split(' ').skip(1);
        if let (Some(path), Some(_)) = (words.next(), words.next()) {
            return Some(path.to_owned());
        }
        if length == bytes.len() {
            return None;
        }
        tokio::time::sleep(PEEK_AGAIN).await;
    }
}

/// True if a request with this path is about one of these jobs, or about the servers of one.
fn is_about_one_of(path: &str, jobs: &[EarlierJob]) -> bool {
    let mut words = path.split(['/', '?']).skip(1);
    match (words.next(), words.next()) {
        (Some("jobs"), Some(name)) => jobs.iter().any(|job| job.name.as_str() == name),
        (Some("servers"), _) => jobs.iter().any(|job| job.has_servers),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tributary_control::JobName;
    use tributary_proto::protocols;

    use super::*;

    #[test]
    fn requests_about_a_job_go_where_the_job_is_and_those_of_servers_where_they_serve() {
        let job = |name: &str, has_servers| EarlierJob {
            id: JobId(1),
            name: JobName::new(name).unwrap(),
            client: Client::at([10, 0, 0, 1].into()),
            protocol: protocols::ALL[0],
            memory_bytes: 1,
            has_servers,
        };
        let jobs = [job("train", false), job("eval", false)];
        for path in ["/jobs/train/join", "/jobs/train", "/jobs/eval?x=1", "/jobs/train/switches/watch"] {
            assert!(is_about_one_of(path, &jobs), "{path}");
        }
        for path in ["/", "/jobs", "/jobs/", "/jobs/trai", "/jobs/train2/join", "/status", "/servers/watch", "train"] {
            assert!(!is_about_one_of(path, &jobs), "{path}");
        }
        assert!(is_about_one_of("/servers/watch", &[job("train", true)]));
    }
}
