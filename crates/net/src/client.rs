//! The control API for workers and operators: blocking calls, with errors that are one sentence.

mod http;
pub mod operators;
mod token;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{self, Runtime};
use tokio::sync::Mutex as AsyncMutex;
use tributary_control::levels::ParentAnswer;
use tributary_control::{JobName, Refusal, printable};
use tributary_proto::contract::ids::{JobId, JobKey};

use self::http::{Client, PROMPT};
pub use self::operators::{Events, ended, events, history, status, status_of_child};
pub use self::token::{Token, VARIABLE};
use crate::api::call::Calls;
use crate::api::{
    Done, GoneMembers, Jobs, JoinBody, JoinReply, LeaveBody, NO_CONTROLLER, OfferBody, OfferReply, RetireBody,
    STOPPING, StandingBody, SumsBody, SwitchJoinBody, SwitchJoinReply, SwitchLeaveBody, WatchBody, hex,
};
use crate::rendezvous::{
    Departed, JoinAnswer, JoinError, JoinRequest, LargeSums, Rendezvous, Standing, Watched, Watching,
};

/// The address of a switch from its name, `HOST:PORT`: of several, the first at which something listens.
pub fn resolve(switch: &str) -> io::Result<SocketAddr> {
    /// The time for each address of a name that has several.
    const EACH: Duration = Duration::from_secs(2);
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    let (host, port) = switch.rsplit_once(':').ok_or_else(|| wrong("write HOST:PORT"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.contains('%') {
        return Err(wrong(
            "an address with an interface (%) is valid on one link only: name another address of the switch",
        ));
    }
    let port: u16 = port.parse().map_err(|_| wrong("the port is a number from 1 to 65535"))?;
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let listens = |address: &&SocketAddr| TcpStream::connect_timeout(address, EACH).is_ok();
    let chosen = if found.len() > 1 { found.iter().find(listens) } else { None };
    chosen.or(found.first()).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Why a call to a switch failed: one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No switch answered, or another program did.
    #[error("{0}")]
    Unreachable(String),
    /// The connection ended before an answer, or was never made: its packets may have been lost.
    #[error("{0}")]
    Interrupted(String),
    /// The switch answered with an error.
    #[error("{error}")]
    Refused {
        /// The sentence.
        error: String,
        /// The code for programs, as `docs/control.md` lists them.
        code: String,
        /// The rank that the error is about, if it is about one only.
        rank: Option<u16>,
    },
}

/// The time that the network may take beside the time that a join may wait at the switch.
const MARGIN: Duration = Duration::from_secs(5);
/// The time for a question about a job. Its caller should not wait long.
const BRIEF: Duration = Duration::from_millis(1_000);
/// The time for a leave. A member whose leave is lost counts as lost, and where a link loses packets the kernel asks for a
/// connection again after a second, and once more after two.
const LEAVE: Duration = Duration::from_secs(4);
/// Time for a watch, which the switch ends after 30 s.
const WATCH: Duration = Duration::from_secs(35);

/// Joins, and joins again as long as the switch says that its next program takes joins, and once if the connection ended
/// before an answer, since a switch closes one on which packets are lost for too long, or was not made in time. `join`
/// gets the time that is left.
pub(crate) fn join_again<T>(
    timeout: Duration,
    mut join: impl FnMut(Duration) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    /// The next program may still start, or the name's former job may still end at the earlier one.
    const AGAIN: Duration = Duration::from_millis(250);
    let (start, mut left) = (Instant::now(), timeout);
    let mut was_interrupted = false;
    loop {
        match join(left) {
            Err(ClientError::Refused { code, .. }) if code == Refusal::HANDED_OVER && left > AGAIN => {}
            Err(ClientError::Interrupted(_)) if !was_interrupted && left > AGAIN => was_interrupted = true,
            other => return other,
        }
        thread::sleep(AGAIN);
        left = timeout.saturating_sub(start.elapsed());
    }
}

/// The control API of a parent switch. All calls block.
pub(crate) struct ParentApi {
    client: Client,
}

impl ParentApi {
    /// The switch whose control API is at this address. Calls show it the token.
    pub fn new(addr: SocketAddr, token: Option<Token>) -> ParentApi {
        ParentApi { client: Client::new(addr, token) }
    }

    /// The address of its control API.
    pub fn addr(&self) -> SocketAddr {
        self.client.switch
    }

    /// The token that calls show.
    pub fn token(&self) -> Option<&Token> {
        self.client.token.as_ref()
    }

    /// Joins a job with the ranks that have joined at the child switch. Returns when all ranks of the job are there.
    pub fn join(&self, name: &JobName, body: &SwitchJoinBody, timeout: Duration) -> Result<ParentAnswer, ClientError> {
        let path = format!("/jobs/{name}/switches/join");
        let reply: SwitchJoinReply = self.client.post(&path, body, timeout.saturating_add(MARGIN))?;
        reply.answer(self.client.switch.ip()).ok_or_else(|| self.client.not_a_switch())
    }

    /// Leaves a job.
    pub fn leave(&self, name: &JobName, body: &SwitchLeaveBody) -> Result<(), ClientError> {
        self.client.post::<Done>(&format!("/jobs/{name}/switches/leave"), body, LEAVE).map(|Done {}| ())
    }

    /// The ranks that are missing in a job that forms at the parent.
    pub fn missing(&self, name: &JobName) -> Result<Vec<u16>, ClientError> {
        let jobs: Jobs = self.client.get(&format!("/jobs/{name}"), PROMPT)?;
        Ok(jobs.jobs.into_iter().filter(|job| job.state == "forming").flat_map(|job| job.missing).collect())
    }
}

/// The rendezvous over HTTP: one for each process and switch.
pub struct HttpRendezvous {
    client: Client,
    incarnation: u64,
    /// The name of each job that was joined, by its id.
    names: Mutex<BTreeMap<JobId, String>>,
    watches: AsyncMutex<Calls>,
}

impl HttpRendezvous {
    /// A rendezvous at the switch whose control API is at this address, with the token of this process.
    pub fn new(switch: SocketAddr) -> Result<HttpRendezvous, JoinError> {
        HttpRendezvous::with_token(switch, Token::of_this_process().map_err(JoinError::Refused)?)
    }

    /// A rendezvous with another token, or none.
    pub fn with_token(switch: SocketAddr, token: Option<Token>) -> Result<HttpRendezvous, JoinError> {
        let incarnation = getrandom::u64()
            .map_err(|error| JoinError::Unreachable(format!("the system gives no random numbers: {error}")))?;
        let watches = AsyncMutex::new(Calls::new(switch));
        Ok(HttpRendezvous { client: Client::new(switch, token), incarnation, names: Mutex::default(), watches })
    }

    fn name(&self, job: JobId) -> Option<String> {
        self.names.lock().expect("no call panics while it holds the names").get(&job).cloned()
    }
}

impl Rendezvous for HttpRendezvous {
    fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, JoinError> {
        // A name with characters that need quoting would lead to another path.
        if let Err(refusal) = tributary_control::JobName::new(&request.job) {
            return Err(JoinError::Refused(refusal.to_string()));
        }
        let path = format!("/jobs/{}/join", request.job);
        let reply: JoinReply = join_again(request.timeout, |timeout| {
            let body = JoinBody::new(&JoinRequest { timeout, ..request.clone() }, self.incarnation);
            self.client.post(&path, &body, timeout.saturating_add(MARGIN))
        })
        .map_err(|error| match error {
            ClientError::Unreachable(why) | ClientError::Interrupted(why) => JoinError::Unreachable(why),
            ClientError::Refused { error, .. } => JoinError::Refused(error),
        })?;
        let answer = reply.answer(self.client.switch.ip());
        let answer = answer.ok_or_else(|| JoinError::Unreachable(self.client.not_a_switch().to_string()))?;
        let mut names = self.names.lock().expect("no call panics while it holds the names");
        names.insert(answer.job_id, request.job.clone());
        Ok(answer)
    }

    fn incarnation(&self) -> Option<u64> {
        Some(self.incarnation)
    }

    fn leave(&self, job: JobId, key: JobKey, rank: u16, completed: Option<u64>) {
        let Some(name) = self.name(job) else { return };
        let body = LeaveBody { job_id: job.0, key: hex(key.0), rank, completed };
        if let Err(error) = self.client.post::<Done>(&format!("/jobs/{name}/leave"), &body, LEAVE) {
            tracing::debug!(job = name, rank, %error, "the switch did not receive the leave; the lease will end it");
        }
    }

    fn standing(&self, job: JobId, key: JobKey) -> Standing {
        let Some(name) = self.name(job) else { return Standing::Unknown };
        let body = StandingBody { job_id: job.0, key: hex(key.0) };
        match self.client.post::<Done>(&format!("/jobs/{name}/standing"), &body, BRIEF) {
            Ok(Done {}) => Standing::Installed,
            Err(ClientError::Refused { code, error, .. }) if code == NO_CONTROLLER => Standing::Unreachable(error),
            Err(ClientError::Refused { .. }) => Standing::Unknown,
            Err(ClientError::Unreachable(why) | ClientError::Interrupted(why)) => Standing::Unreachable(why),
        }
    }

    fn report_sums(&self, job: JobId, key: JobKey, sums: &LargeSums) {
        let Some(name) = self.name(job) else { return };
        let body = SumsBody { job_id: job.0, key: hex(key.0), sums: sums.clone() };
        if let Err(error) = self.client.post::<Done>(&format!("/jobs/{name}/sums"), &body, BRIEF) {
            tracing::debug!(job = name, %error, "the switch does not know where large sums are made");
        }
    }

    fn watch<'a>(&'a self, job: JobId, key: JobKey, rank: u16, known: &'a Departed) -> Watching<'a> {
        Box::pin(async move {
            let Some(name) = self.name(job) else { return Watched::Unwatched };
            let body = WatchBody { job_id: job.0, key: hex(key.0), rank, gone: GoneMembers::new(known) };
            let mut calls = self.watches.lock().await;
            let path = format!("/jobs/{name}/watch");
            match self.client.post_on::<GoneMembers>(&mut calls, &path, &body, WATCH).await {
                Ok(GoneMembers { broken: Some(sentence), .. }) => Watched::Broken(printable(&sentence)),
                Ok(gone) => Watched::Gone(gone.table(self.client.switch.ip())),
                Err(ClientError::Refused { code, .. }) if code == "too_many_watches" => Watched::Unwatched,
                Err(ClientError::Refused { code, error, .. }) if code == NO_CONTROLLER => Watched::NoController(error),
                Err(ClientError::Refused { code, error, .. }) if code == STOPPING => Watched::Unreachable(error),
                Err(ClientError::Refused { .. }) => Watched::Unknown,
                Err(ClientError::Unreachable(why) | ClientError::Interrupted(why)) => Watched::Unreachable(why),
            }
        })
    }
}

/// Time for the answer to an offer. The switch gives it within a fraction of its lease, which is a day at most.
const OFFER: Duration = Duration::from_secs(86_400);

/// The control API for servers. All calls block.
pub(crate) struct ServerClient {
    client: Client,
    runtime: Runtime,
    offers: Mutex<Calls>,
}

impl ServerClient {
    /// The switch whose control API is at this address. Calls show it the token.
    pub fn new(switch: SocketAddr, token: Option<Token>) -> io::Result<ServerClient> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(ServerClient { client: Client::new(switch, token), runtime, offers: Mutex::new(Calls::new(switch)) })
    }

    /// The address of its control API.
    pub fn switch(&self) -> SocketAddr {
        self.client.switch
    }

    /// Offers the server. Returns the server's jobs when they differ from those that it knows of, or after a while.
    pub fn offer(&self, body: &OfferBody) -> Result<OfferReply, ClientError> {
        let mut offers = self.offers.lock().expect("no call panics while it holds the connection");
        self.runtime.block_on(self.client.post_on(&mut offers, "/servers/watch", body, OFFER))
    }

    /// Reports that the server ends.
    pub fn retire(&self, incarnation: String) -> Result<(), ClientError> {
        self.client.post::<Done>("/servers/leave", &RetireBody { incarnation }, BRIEF).map(|Done {}| ())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::Shutdown;

    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::api::version;

    #[test]
    fn a_name_stands_for_the_address_that_listens_and_one_of_a_link_is_refused() {
        assert_eq!(resolve("127.0.0.1:5").unwrap(), ([127, 0, 0, 1], 5).into());
        assert_eq!(resolve("[::1]:5").unwrap(), "[::1]:5".parse().unwrap());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Whether the name has one address here or two, of which nothing listens at the other.
        assert_eq!(resolve(&format!("localhost:{}", address.port())).unwrap(), address);
        assert!(resolve("[fe80::1%e0]:5").unwrap_err().to_string().contains("one link only"));
        assert!(resolve("nobody.invalid:5").is_err());
    }

    #[test]
    fn a_join_is_made_again_once_if_its_connection_ended_without_an_answer() {
        fn interrupted<T>() -> Result<T, ClientError> {
            Err(ClientError::Interrupted("the switch closed the connection".into()))
        }
        let (mut first, mut calls) = (true, 0);
        let joined =
            join_again(Duration::from_secs(60), |_| if std::mem::take(&mut first) { interrupted() } else { Ok(7) });
        assert_eq!(joined, Ok(7));
        let refused = join_again(Duration::from_secs(60), |_| {
            calls += 1;
            interrupted::<()>()
        });
        assert_eq!((refused, calls), (interrupted(), 2));
    }

    /// A listener whose queue holds one connection. With one there, the kernel drops whoever asks for another.
    fn listener_of_one() -> (Socket, SocketAddr) {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        (listener, address)
    }

    /// Its connection to the switch is its sign of life, and it takes the kernel a second to ask again for one.
    #[test]
    fn a_server_counts_as_there_while_the_packets_that_open_its_next_connection_are_lost() {
        let (listener, address) = listener_of_one();
        let offers = thread::spawn(move || {
            let client = ServerClient::new(address, None).unwrap();
            let body = OfferBody::new(1, address, 1 << 20);
            (client.offer(&body), client.offer(&body))
        });
        let mut first = TcpStream::from(listener.accept().unwrap().0);
        let mut request = vec![0; 4096];
        assert!(first.read(&mut request).unwrap() > 0);
        let full = TcpStream::connect(address).unwrap();
        let body = serde_json::to_string(&OfferReply { changes: 0, jobs: Vec::new() }).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\n{}: {}", version::HEADER, version::API_VERSION);
        write!(first, "{head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        first.shutdown(Shutdown::Write).unwrap();
        first.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert_eq!(first.read(&mut request).unwrap_err().kind(), io::ErrorKind::WouldBlock, "it is closed");
        drop((listener, full));
        let (answered, refused) = offers.join().unwrap();
        assert!(answered.is_ok() && refused.is_err(), "{answered:?} {refused:?}");
    }

    #[test]
    fn a_connection_that_is_not_made_in_time_may_have_lost_packets() {
        let (_listener, address) = listener_of_one();
        let _full = TcpStream::connect(address).unwrap();
        let client = Client::connecting_within(Duration::from_millis(20), address, None);
        let error = client.get::<Jobs>("/jobs", Duration::from_secs(60)).unwrap_err();
        assert!(matches!(&error, ClientError::Interrupted(why) if why.contains("does not answer")), "{error:?}");
    }

    #[test]
    fn a_leave_says_what_the_member_has_completed_unless_it_is_lost() {
        let leave = |completed| serde_json::to_value(LeaveBody { job_id: 1, key: hex(7), rank: 2, completed }).unwrap();
        let lost = serde_json::json!({ "job_id": 1, "key": "0000000000000007", "rank": 2 });
        assert_eq!(leave(None), lost);
        assert_eq!(leave(Some(0))["completed"], 0);
        assert_eq!(serde_json::from_value::<LeaveBody>(lost).unwrap().completed, None);
    }
}
