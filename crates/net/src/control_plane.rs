//! Drives [`Control`] on a real switch: with real time, real shards, and real joins that wait.
//!
//! One asynchronous task carries out the effects and watches the clock. Requests only change the state and wake the
//! task. The control plane and the shards exchange messages, so no thread waits here. A switch has one thread for each
//! shard and one for its control plane, however many requests there are.

mod above;
mod addresses;
mod alibi;
mod books;
mod faults;
mod looks;
mod members;
mod operator;
mod servers;
mod shards;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tributary_control::levels::SwitchJoin;
use tributary_control::{
    Admitted, Control, Effect, JobName, JoinRequest, Limits, ProbeResult, ProbeTarget, Refusal, Ticket,
};
use tributary_operators::Library;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::time::Time;

use self::above::{News, WatchesAbove};
use self::books::Books;
pub(crate) use self::books::{Account, Totals};
use self::faults::Faults;
pub(crate) use self::members::OpenWatch;
pub(crate) use self::shards::{Shard, Sighting, Sightings, used_by};
use crate::ascent::{Ascender, Question, Said};
use crate::clock::{Clock, duration};
use crate::pool_size;
use crate::token::Token;

struct State {
    control: Control,
    answers: BTreeMap<Ticket, oneshot::Sender<Admitted>>,
}

/// The control plane of one switch.
pub(crate) struct ControlPlane {
    clock: Clock,
    shards: Vec<Box<dyn Shard>>,
    state: Mutex<State>,
    changed: Notify,
    /// Limits how many hosts are asked about members at the same time.
    questions: Arc<Semaphore>,
    /// Wakes members' watches when a member may be gone.
    departures: watch::Sender<()>,
    sightings: tokio::sync::Mutex<Sightings>,
    ascender: Option<Ascender>,
    heard_above: tokio::sync::Mutex<Option<UnboundedReceiver<Said>>>,
    watches_above: Option<WatchesAbove>,
    news_from_above: tokio::sync::Mutex<Option<UnboundedReceiver<(JobId, News)>>>,
    /// The account of what has happened since the start.
    books: Mutex<Books>,
    /// The operators that jobs bring.
    library: Arc<Library>,
    faults: Mutex<Faults>,
}

/// The most hosts that are asked about members at the same time. Each question takes some sockets of this process.
const MOST_QUESTIONS: usize = 64;
/// The interval at which shards are asked while no decision depends on their reports.
const LOOK_EVERY: Duration = Duration::from_millis(1_000);
/// The interval while a decision depends on their reports.
const LOOK_OFTEN: Duration = Duration::from_millis(50);

/// The way to the switch above, the channel of its answers, and the token that tells it whose jobs these are.
type WayUp = ((Ascender, UnboundedReceiver<Said>), Option<Token>);

impl ControlPlane {
    /// The control plane of a switch without a switch above.
    pub fn new(limits: Limits, shards: Vec<Box<dyn Shard>>) -> ControlPlane {
        ControlPlane::with(Control::new(limits), shards, None)
    }

    /// The control plane of a switch whose control API is at `listen`, below the switch at `parent`, which knows this
    /// one by its incarnation and its token.
    pub fn below(
        limits: Limits,
        shards: Vec<Box<dyn Shard>>,
        listen: SocketAddr,
        parent: SocketAddr,
        incarnation: u64,
        token: Option<Token>,
    ) -> ControlPlane {
        let ascender = Ascender::new(parent, listen, incarnation, token.clone());
        ControlPlane::with(Control::with_parent(limits), shards, Some((ascender, token)))
    }

    fn with(control: Control, shards: Vec<Box<dyn Shard>>, above: Option<WayUp>) -> ControlPlane {
        let blank = Sighting { alive: true, ..Sighting::default() };
        let sightings = Sightings { at: None, shards: vec![blank; shards.len()] };
        let (above, token) = above.unzip();
        let (ascender, heard_above) = above.unzip();
        let watches = ascender.as_ref().map(|ascender: &Ascender| {
            let (sender, news) = unbounded_channel();
            (WatchesAbove::new(ascender.parent(), token.flatten(), sender), news)
        });
        let (watches_above, news_from_above) = watches.unzip();
        ControlPlane {
            clock: Clock::start(),
            shards,
            state: Mutex::new(State { control, answers: BTreeMap::new() }),
            changed: Notify::new(),
            questions: Arc::new(Semaphore::new(MOST_QUESTIONS)),
            departures: watch::Sender::new(()),
            sightings: tokio::sync::Mutex::new(sightings),
            ascender,
            heard_above: tokio::sync::Mutex::new(heard_above),
            watches_above,
            news_from_above: tokio::sync::Mutex::new(news_from_above),
            books: Mutex::default(),
            library: Arc::default(),
            faults: Mutex::default(),
        }
    }

    /// The same control plane, with the operators that this switch serves.
    pub fn serving(self, library: Arc<Library>) -> ControlPlane {
        ControlPlane { library, ..self }
    }

    /// The operators that this switch serves.
    pub fn library(&self) -> Arc<Library> {
        Arc::clone(&self.library)
    }

    /// The control API of the switch above.
    pub fn parent(&self) -> Option<SocketAddr> {
        self.ascender.as_ref().map(Ascender::parent)
    }

    /// The time since the control plane's start.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The UDP address of each shard.
    pub fn shard_addrs(&self) -> Vec<SocketAddr> {
        self.shards.iter().map(|shard| shard.udp_addr()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The lock is poisoned only if the state machine has panicked. Then its state cannot be trusted.
        self.state.lock().expect("the control plane did not panic")
    }

    /// Joins a job; returns when the job is complete or the join is refused. Dropping the future withdraws the join.
    pub async fn join(&self, name: &JobName, mut request: JoinRequest) -> Admitted {
        self.with_control(|control| control.check(&request))?;
        self.prove_worker(name, &request).await?;
        if self.ascender.is_none() {
            // A switch below another one does not know yet how many of the ranks join here.
            request.suggested_slots = request.suggested_slots.min(self.largest_pool(&request, request.world_size));
        }
        self.admitted(name, |control, now, key| control.join(now, name, request, key)).await
    }

    /// Joins a job with the ranks of a switch below; otherwise like [`ControlPlane::join`].
    pub async fn join_switch(&self, name: &JobName, mut join: SwitchJoin) -> Admitted {
        self.with_control(|control| control.check_switch(&join))?;
        self.prove_switch(name, &join).await?;
        // Nobody knows how many racks there are. The guess is that all racks have as many ranks as this one.
        let racks = join.ranks.first().map_or(1, |(request, _)| request.world_size.div_ceil(join.ranks.len() as u16));
        for (request, _) in &mut join.ranks {
            request.suggested_slots = request.suggested_slots.min(self.largest_pool(request, racks));
        }
        self.admitted(name, |control, now, key| control.join_switch(now, name, join, key)).await
    }

    async fn admitted(&self, name: &JobName, join: impl FnOnce(&mut Control, Time, JobKey) -> Ticket) -> Admitted {
        let key = match getrandom::u64() {
            Ok(key) => JobKey(key),
            Err(error) => {
                let why = format!("the system gives no random numbers for its key ({error})");
                return Err(Refusal::NotInstalled { job: name.clone(), why });
            }
        };
        let (sender, answer) = oneshot::channel();
        let ticket = {
            let mut state = self.state();
            let ticket = join(&mut state.control, self.now(), key);
            state.answers.insert(ticket, sender);
            ticket
        };
        self.changed.notify_one();
        let _withdrawal = Withdrawal { plane: self, ticket };
        answer.await.unwrap_or(Err(Refusal::Stopping))
    }

    /// The largest pool that the receive buffers hold. A worker that insists on a larger one gets it and loses packets.
    fn largest_pool(&self, request: &JoinRequest, senders: u16) -> u16 {
        let elements = request.elements_per_packet.unwrap_or(request.max_elements_per_packet);
        let packet_bytes = pool_size::packet_bytes(request.protocol, elements);
        if request.protocol.server.is_some() {
            // If each worker is a server too, its suggestion already takes that into account.
            let servers = self.server_buffers(request.protocol, &request.client);
            return servers.map_or(request.suggested_slots, |(buffer, count)| {
                pool_size::largest(buffer, count, senders, packet_bytes)
            });
        }
        let (buffer, used) = shards::buffers(&self.shards, request.protocol);
        pool_size::largest(buffer, used, senders, packet_bytes)
    }

    /// A member ends its part of the job.
    pub fn leave(&self, name: &JobName, id: JobId, rank: u16, key: JobKey) -> Result<(), Refusal> {
        let left = self.state().control.leave(self.now(), name, id, rank, key);
        self.changed.notify_one();
        left
    }

    /// A switch below ends its part of the job.
    pub fn leave_switch(
        &self,
        name: &JobName,
        id: JobId,
        key: JobKey,
        wid: ChildId,
        lost: bool,
    ) -> Result<(), Refusal> {
        let left = self.state().control.leave_switch(self.now(), name, id, key, wid, lost);
        self.changed.notify_one();
        left
    }

    /// An error unless the job is installed and the caller has its key.
    pub fn standing(&self, name: &JobName, id: JobId, key: JobKey) -> Result<(), Refusal> {
        self.state().control.check_member(name, id, key)
    }

    /// Reads the state of the state machine.
    pub fn with_control<T>(&self, look: impl FnOnce(&Control) -> T) -> T {
        look(&self.state().control)
    }

    /// The task. It runs until it is dropped.
    pub async fn run(&self) {
        let mut heard_above = self.heard_above.lock().await;
        let mut news_from_above = self.news_from_above.lock().await;
        let (answers, mut answered) = unbounded_channel();
        loop {
            self.carry_out().await;
            self.question_hosts(&answers);
            tokio::select! {
                () = self.changed.notified() => {}
                Some(said) = next(&mut heard_above) => self.hear_above(said),
                Some((id, news)) = next(&mut news_from_above) => self.hear_news(id, news),
                () = tokio::time::sleep(self.pause()) => {
                    self.look(Duration::ZERO).await;
                    self.state().control.handle_timeout(self.now());
                }
                Some((suspect, said)) = answered.recv() => {
                    self.state().control.probe_answered(self.now(), suspect, said);
                }
            }
        }
    }

    /// Asks the hosts of suspect members about these members, and sends the hosts' testimonies on.
    fn question_hosts(&self, answers: &UnboundedSender<(ProbeTarget, ProbeResult)>) {
        let mut state = self.state();
        while let Some(suspect) = state.control.poll_probe() {
            let (answers, questions) = (answers.clone(), self.questions.clone());
            tokio::spawn(async move {
                // An error means that the control plane is gone. Then sending fails too.
                let _permit = questions.acquire_owned().await;
                let _ = answers.send((suspect, alibi::testimony(suspect.addr).await));
            });
        }
    }

    fn hear_above(&self, said: Said) {
        let mut state = self.state();
        match said {
            Said::Answer { name, question, outcome } => {
                if let Err(refusal) = &outcome {
                    tracing::debug!(job = %name, code = refusal.code(), %refusal, "refused by the switch above");
                }
                state.control.parent_answered(self.now(), &name, question, outcome);
            }
            Said::Missing { name, ranks } => state.control.missing_at_parent(&name, ranks),
        }
    }

    fn hear_news(&self, id: JobId, news: News) {
        if let News::Broken(sentence) = news {
            return self.note_fault(id, sentence);
        }
        let mut state = self.state();
        match news {
            News::Stands(stands) => state.control.watch_at_parent(self.now(), id, stands),
            News::Departed(gone) => state.control.parent_reports(id, gone),
            News::Broken(_) => unreachable!("it was noted"),
            News::Forgotten => state.control.gone_at_parent(self.now(), id),
        }
    }

    fn pause(&self) -> Duration {
        let state = self.state();
        let look = if state.control.awaits_reports() { LOOK_OFTEN } else { LOOK_EVERY };
        match state.control.poll_timeout() {
            Some(due) => duration(due.since(self.now())).min(look),
            None => look,
        }
    }

    async fn carry_out(&self) {
        loop {
            self.note_tidings();
            let Some(effect) = self.state().control.poll_effect() else {
                if let Some(watches) = &self.watches_above {
                    let faults = self.faults().clone();
                    watches.keep(&self.state().control, &faults);
                }
                self.departures.send_replace(());
                return;
            };
            match effect {
                Effect::Answer { ticket, admitted } => {
                    if let Some(sender) = self.state().answers.remove(&ticket) {
                        // The call fails if the process has gone away in the meantime. Its lease then shows it.
                        let _ = sender.send(admitted);
                    }
                }
                Effect::Install(plan) => self.install(plan).await,
                Effect::Resize(id, slots) => shards::resize(&self.shards, id, slots).await,
                Effect::Remove(id) => self.remove(id).await,
                Effect::RemoveShared(protocol) => shards::unshare(&self.shards, protocol).await,
                Effect::JoinParent { name, sequence, mut ranks, most_slots, switches } => {
                    if let Some(ascender) = &self.ascender {
                        let here = ranks.len() as u16;
                        for (request, _) in &mut ranks {
                            request.suggested_slots = request.suggested_slots.min(self.largest_pool(request, here));
                        }
                        let question = Question { name, number: sequence, ranks, most_slots, switches };
                        ascender.ask(question, self.shard_addrs());
                    }
                }
                Effect::LeaveParent { name, job, key, wid, lost } => {
                    if let Some(ascender) = &self.ascender {
                        ascender.leave(name, job, key, wid, lost);
                    }
                }
            }
        }
    }
}

/// The next message of the switch above. The future never ends if there is no switch above.
async fn next<T>(heard: &mut Option<UnboundedReceiver<T>>) -> Option<T> {
    match heard {
        Some(heard) => heard.recv().await,
        None => std::future::pending().await,
    }
}

/// Takes a join back as soon as nobody waits for its answer any more.
struct Withdrawal<'a> {
    plane: &'a ControlPlane,
    ticket: Ticket,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        let mut state = self.plane.state();
        // If the entry is still there, no answer was sent.
        if state.answers.remove(&self.ticket).is_some() {
            state.control.withdraw(self.plane.now(), self.ticket);
            drop(state);
            self.plane.changed.notify_one();
        }
    }
}
