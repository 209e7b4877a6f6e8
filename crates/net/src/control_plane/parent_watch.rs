//! Watches at the parent switch, one for each job that runs there too. By a watch the parent learns who is gone below this
//! switch, and this switch learns who is gone elsewhere. The connections show both switches that the other is alive.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tributary_control::{Control, Departed, Plan};
use tributary_proto::contract::ids::{JobId, JobKey};

use crate::api::call::Calls;
use crate::api::{ErrorBody, GoneMembers, SwitchWatchBody, hex};
use crate::client::Token;

/// The time between a change below and the next request. Ranks often end together, and one request then reports them all.
const GATHER: Duration = Duration::from_millis(20);
/// The pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(250);
/// The pause after a call that was refused, unless the reason is that the job is unknown.
const LONG_PAUSE: Duration = Duration::from_secs(10);
/// Time for an answer. The parent answers after 30 s at the latest.
const WATCH: Duration = Duration::from_secs(35);

/// What a watch reports.
pub(crate) enum ParentEvent {
    /// True if the connection to the parent is open.
    Connected(bool),
    /// The members and switches that are gone elsewhere.
    Departed(Departed),
    /// The job has failed at the parent or elsewhere, for this reason.
    Broken(String),
    /// The parent no longer has this job.
    Forgotten,
}

/// All watches of this switch at its parent.
pub(crate) struct ParentWatches {
    parent: SocketAddr,
    /// The incarnation by which the parent knows this switch.
    incarnation: u64,
    token: Option<Token>,
    events: UnboundedSender<(JobId, ParentEvent)>,
    jobs: Mutex<BTreeMap<JobId, Watch>>,
}

/// The report to the parent: who is gone below, and why the job has failed here, if it has.
type Below = (Departed, Option<String>);

/// One watch. Dropping it ends it.
struct Watch {
    key: JobKey,
    /// The number of the last report.
    reported: u32,
    below: watch::Sender<Below>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ParentWatches {
    /// No watches. `parent` is the control API of the parent switch, and calls show it the token.
    pub fn new(
        parent: SocketAddr,
        incarnation: u64,
        token: Option<Token>,
        events: UnboundedSender<(JobId, ParentEvent)>,
    ) -> ParentWatches {
        ParentWatches { parent, incarnation, token, events, jobs: Mutex::default() }
    }

    /// Begins and ends watches as jobs come and go, and reports changes below.
    pub fn keep(&self, control: &Control, faults: &BTreeMap<JobId, String>) {
        let mut jobs = self.jobs.lock().expect("no call panics while it holds the watches");
        let now: BTreeMap<JobId, (&Plan, u32)> =
            control.jobs_at_parent().map(|(plan, number)| (plan.config.job, (plan, number))).collect();
        jobs.retain(|id, watch| now.get(id).is_some_and(|(plan, _)| plan.config.key == watch.key));
        for (id, (plan, number)) in now {
            let watch = jobs.entry(id).or_insert_with(|| self.begin(plan));
            let fault = faults.get(&id).cloned();
            if watch.reported != number || watch.below.borrow().1 != fault {
                watch.reported = number;
                let below = (control.gone_below(id).unwrap_or_default(), fault);
                watch.below.send_if_modified(|reported| std::mem::replace(reported, below.clone()) != below);
            }
        }
    }

    fn begin(&self, plan: &Plan) -> Watch {
        let (below, news_below) = watch::channel(Below::default());
        let body = SwitchWatchBody {
            job_id: plan.config.job.0,
            key: hex(plan.config.key.0),
            wid: plan.uplink.as_ref().map_or(0, |uplink| uplink.wid.0),
            incarnation: hex(self.incarnation),
            below: GoneMembers::default(),
            gone: GoneMembers::default(),
        };
        let path = format!("/jobs/{}/switches/watch", plan.name);
        let (token, events) = (self.token.clone(), self.events.clone());
        let task = WatchTask { parent: self.parent, token, path, job: plan.config.job, events };
        Watch { key: plan.config.key, reported: 0, below, task: tokio::spawn(task.run(body, news_below)) }
    }
}

/// The task of one watch.
struct WatchTask {
    parent: SocketAddr,
    token: Option<Token>,
    path: String,
    job: JobId,
    events: UnboundedSender<(JobId, ParentEvent)>,
}

impl WatchTask {
    async fn run(self, mut body: SwitchWatchBody, mut below: watch::Receiver<Below>) {
        let mut calls = Calls::new(self.parent);
        loop {
            {
                let (gone, broken) = &*below.borrow_and_update();
                body.below = GoneMembers { broken: broken.clone(), ..GoneMembers::new(gone) };
            }
            let answer = tokio::select! {
                changed = below.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // If the job is over, its ranks learn the reason, they leave, and this watch ends. So the report
                    // must not wait.
                    if below.borrow().1.is_none() {
                        tokio::time::sleep(GATHER).await;
                    }
                    continue;
                }
                answer = tokio::time::timeout(WATCH, self.request(&mut calls, &body)) => answer,
            };
            match answer {
                Ok(Ok(Ok(GoneMembers { broken: Some(sentence), .. }))) => {
                    body.gone.broken = Some(sentence.clone());
                    self.emit(ParentEvent::Broken(sentence));
                }
                Ok(Ok(Ok(mut gone))) if gone != body.gone => {
                    gone.broken = body.gone.broken.take();
                    self.emit(ParentEvent::Departed(gone.clone().table(self.parent.ip())));
                    body.gone = gone;
                }
                Ok(Ok(Ok(_))) => {}
                Ok(Ok(Err(error))) if matches!(error.code.as_str(), "unknown_job" | "wrong_key") => {
                    return self.emit(ParentEvent::Forgotten);
                }
                Ok(Ok(Err(error))) => {
                    tracing::warn!(parent = %self.parent, error = error.error, "the parent switch refuses a watch");
                    tokio::time::sleep(LONG_PAUSE).await;
                }
                Ok(Err(_)) | Err(_) => {
                    self.emit(ParentEvent::Connected(false));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn request(
        &self,
        calls: &mut Calls,
        body: &SwitchWatchBody,
    ) -> std::io::Result<Result<GoneMembers, ErrorBody>> {
        let bytes = serde_json::to_vec(body)?;
        let headers: Vec<_> = self.token.iter().map(|token| ("Authorization", token.header())).collect();
        let call = calls.begin(&self.path, &bytes, &headers).await?;
        self.emit(ParentEvent::Connected(true));
        let answer = call.answer().await?;
        Ok(match answer.status {
            200 => Ok(serde_json::from_slice(&answer.body)?),
            _ => Err(serde_json::from_slice(&answer.body)?),
        })
    }

    fn emit(&self, events: ParentEvent) {
        // The call fails only if the control plane is gone.
        let _ = self.events.send((self.job, events));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{Shutdown, TcpStream};
    use std::thread;

    use socket2::{Domain, Socket, Type};
    use tokio::runtime;
    use tokio::sync::mpsc::{self, UnboundedReceiver};

    use super::*;
    use crate::api::version;

    /// A parent switch, of which the test is the kernel and the control API.
    struct Parent(Socket);

    impl Parent {
        fn start() -> (Parent, SocketAddr) {
            let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
            listener.listen(0).unwrap();
            let address = listener.local_addr().unwrap().as_socket().unwrap();
            (Parent(listener), address)
        }

        /// Takes the next connection, and its request.
        fn next_watch(&self) -> TcpStream {
            let mut stream = TcpStream::from(self.0.accept().unwrap().0);
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            stream
        }

        /// Has the kernel drop the packets that open connections, until the returned one is taken.
        fn drop_opening_packets(&self) -> TcpStream {
            TcpStream::connect(self.0.local_addr().unwrap().as_socket().unwrap()).unwrap()
        }
    }

    /// Answers that the members which are gone are those that the child knows of.
    fn answer(watch: &mut TcpStream) {
        let body = serde_json::to_string(&GoneMembers::default()).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\n{}: {}", version::HEADER, version::API_VERSION);
        write!(watch, "{head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        watch.shutdown(Shutdown::Write).unwrap();
    }

    fn assert_open(watch: &mut TcpStream) {
        watch.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert_eq!(watch.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "the child has closed it");
        watch.set_read_timeout(None).unwrap();
    }

    fn start(parent: SocketAddr) -> (watch::Sender<Below>, UnboundedReceiver<(JobId, ParentEvent)>) {
        let (below, news_below) = watch::channel(Below::default());
        let (events, emitted) = mpsc::unbounded_channel();
        let body = SwitchWatchBody {
            job_id: 1,
            key: hex(7),
            wid: 0,
            incarnation: hex(9),
            below: GoneMembers::default(),
            gone: GoneMembers::default(),
        };
        let path = "/jobs/train/switches/watch".to_owned();
        let task = WatchTask { parent, token: None, path, job: JobId(1), events };
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        thread::spawn(move || runtime.block_on(task.run(body, news_below)));
        (below, emitted)
    }

    /// The connection is the child's sign of life, and it takes the kernel a second to ask again for one.
    #[test]
    fn a_child_counts_as_there_while_the_packets_that_open_its_next_watch_are_lost() {
        let (parent, address) = Parent::start();
        let (below, mut emitted) = start(address);
        let mut first = parent.next_watch();
        let full = parent.drop_opening_packets();
        answer(&mut first);
        assert_open(&mut first);
        drop((full, parent.0.accept().unwrap()));
        let mut second = parent.next_watch();
        assert_eq!(first.read(&mut [0]).unwrap(), 0, "the next watch is under way");

        let _full = parent.drop_opening_packets();
        below.send_replace((Departed::default(), Some("the switch gives up".into())));
        assert_open(&mut second);
        while let Ok((_, event)) = emitted.try_recv() {
            assert!(matches!(event, ParentEvent::Connected(true)), "it counts as cut off");
        }
    }
}
