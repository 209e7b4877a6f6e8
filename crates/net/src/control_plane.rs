//! Drives [`Control`] on a real switch: with real time, real shards, and real joins that wait.
//!
//! One asynchronous task carries out the effects and watches the clock. Requests only change the state and wake the
//! task. The control plane and the shards exchange messages, so no thread waits here. A switch has one thread for each
//! shard and one for its control plane, however many requests there are.

mod health;
mod job_totals;
mod lifecycle;
mod members;
mod parent_watch;
mod probes;
mod sampling;
mod servers;
mod shards;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tributary_control::levels::SwitchJoin;
use tributary_control::{
    Admitted, Control, Effect, JobName, JoinRequest, Limits, ProbeResult, ProbeTarget, Refusal, Ticket,
};
use tributary_operators::Library;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::time::Time;

use self::job_totals::JobTotals;
pub(crate) use self::job_totals::{ProtocolTotals, Totals};
use self::members::Faults;
pub(crate) use self::members::OpenWatch;
use self::parent_watch::{ParentEvent, ParentWatches};
pub(crate) use self::shards::{ShardSample, ShardSamples, used_by};
use crate::client::Token;
use crate::os::{Clock, to_duration};
use crate::parent_client::{ParentClient, ParentJoin, ParentMessage};
use crate::pool_size;
use crate::shard::Shard;

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
    /// Limits how many hosts are probed at the same time.
    probes: Arc<Semaphore>,
    /// Wakes members' watches when a member may be gone.
    departures: watch::Sender<()>,
    samples: tokio::sync::Mutex<ShardSamples>,
    parent_client: Option<ParentClient>,
    parent_messages: tokio::sync::Mutex<Option<UnboundedReceiver<ParentMessage>>>,
    parent_watches: Option<ParentWatches>,
    parent_events: tokio::sync::Mutex<Option<UnboundedReceiver<(JobId, ParentEvent)>>>,
    /// What has happened since the start.
    job_totals: Mutex<JobTotals>,
    /// The operators that jobs bring.
    library: Arc<Library>,
    faults: Mutex<Faults>,
    /// Why the parent switch is not healthy, as it was asked last.
    parent_failure: Mutex<Option<String>>,
    /// When the task last had nothing left to do, as [`Time`].
    turned_at: AtomicU64,
}

/// The most hosts that are probed at the same time. Each probe takes some sockets of this process.
const MAX_PROBES: usize = 64;
/// The interval at which shards are sampled while no decision depends on their reports.
const SAMPLE_EVERY: Duration = Duration::from_millis(1_000);
/// The interval while a decision depends on their reports.
const SAMPLE_OFTEN: Duration = Duration::from_millis(50);

/// The client of the parent switch, the channel of its answers, and the token that says whose jobs these are.
type Uplink = ((ParentClient, UnboundedReceiver<ParentMessage>), Option<Token>);

impl ControlPlane {
    /// The control plane of a switch without a parent.
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
        let parent_client = ParentClient::new(parent, listen, incarnation, token.clone());
        ControlPlane::with(Control::with_parent(limits), shards, Some((parent_client, token)))
    }

    fn with(control: Control, shards: Vec<Box<dyn Shard>>, uplink: Option<Uplink>) -> ControlPlane {
        let blank = ShardSample { alive: true, ..ShardSample::default() };
        let samples = ShardSamples { at: None, shards: vec![blank; shards.len()] };
        let (client, token) = uplink.unzip();
        let (parent_client, parent_messages) = client.unzip();
        let watches = parent_client.as_ref().map(|parent_client: &ParentClient| {
            let (sender, events) = unbounded_channel();
            (ParentWatches::new(parent_client.parent(), parent_client.incarnation(), token.flatten(), sender), events)
        });
        let (parent_watches, parent_events) = watches.unzip();
        ControlPlane {
            clock: Clock::start(),
            shards,
            state: Mutex::new(State { control, answers: BTreeMap::new() }),
            changed: Notify::new(),
            probes: Arc::new(Semaphore::new(MAX_PROBES)),
            departures: watch::Sender::new(()),
            samples: tokio::sync::Mutex::new(samples),
            parent_client,
            parent_messages: tokio::sync::Mutex::new(parent_messages),
            parent_watches,
            parent_events: tokio::sync::Mutex::new(parent_events),
            job_totals: Mutex::default(),
            library: Arc::default(),
            faults: Mutex::default(),
            parent_failure: Mutex::default(),
            turned_at: AtomicU64::default(),
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

    /// The control API of the parent switch.
    pub fn parent(&self) -> Option<SocketAddr> {
        self.parent_client.as_ref().map(ParentClient::parent)
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
    /// `own_ip` is the worker's address as its own machine knows it.
    pub async fn join(&self, name: &JobName, mut request: JoinRequest, own_ip: Option<IpAddr>) -> Admitted {
        self.with_control(|control| control.check(&request))?;
        if let Err(refusal) = self.validate_worker(name, &request, own_ip).await {
            // The answer to the challenge may have come to the next program.
            self.with_control(|control| control.check(&request))?;
            self.state().control.rank_refused(name, &request, &refusal);
            self.changed.notify_one();
            return Err(refusal);
        }
        if self.parent_client.is_none() {
            // A switch below another one does not know yet how many of the ranks join here.
            request.suggested_slots = request.suggested_slots.min(self.largest_pool(&request, request.world_size));
        }
        self.admitted(name, |control, now, key| control.join(now, name, request, key)).await
    }

    /// Joins a job with the ranks of a switch below; otherwise like [`ControlPlane::join`].
    pub async fn join_switch(&self, name: &JobName, mut join: SwitchJoin) -> Admitted {
        self.with_control(|control| control.check_switch(&join))?;
        if let Err(refusal) = self.validate_switch(name, &join).await {
            self.with_control(|control| control.check_switch(&join))?;
            return Err(refusal);
        }
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

    /// Reads the state of the state machine.
    pub fn with_control<T>(&self, read: impl FnOnce(&Control) -> T) -> T {
        read(&self.state().control)
    }

    /// The task. It runs until it is dropped.
    pub async fn run(&self) {
        let mut parent_messages = self.parent_messages.lock().await;
        let mut parent_events = self.parent_events.lock().await;
        let (answers, mut answered) = unbounded_channel();
        loop {
            self.carry_out().await;
            self.turned_at.store(self.now().0, Ordering::Relaxed);
            self.probe_hosts(&answers);
            tokio::select! {
                () = self.changed.notified() => {}
                Some(message) = next(&mut parent_messages) => self.on_parent_message(message),
                Some((id, event)) = next(&mut parent_events) => self.on_parent_event(id, event),
                () = tokio::time::sleep(self.pause()) => {
                    self.sample_shards(Duration::ZERO).await;
                    self.state().control.handle_timeout(self.now());
                }
                Some((suspect, testimony)) = answered.recv() => {
                    self.state().control.probe_answered(self.now(), suspect, testimony);
                }
            }
        }
    }

    /// Probes the hosts of suspect members, and sends on what the hosts say.
    fn probe_hosts(&self, answers: &UnboundedSender<(ProbeTarget, ProbeResult)>) {
        let mut state = self.state();
        while let Some(suspect) = state.control.poll_probe() {
            let (answers, probes) = (answers.clone(), self.probes.clone());
            tokio::spawn(async move {
                // An error means that the control plane is gone. Then sending fails too.
                let _permit = probes.acquire_owned().await;
                let _ = answers.send((suspect, probes::liveness_probe(suspect.addr).await));
            });
        }
    }

    fn on_parent_message(&self, message: ParentMessage) {
        let mut state = self.state();
        match message {
            ParentMessage::Answer { name, question, outcome } => {
                if let Err(refusal) = &outcome {
                    tracing::debug!(job = %name, code = refusal.code(), %refusal, "refused by the parent switch");
                }
                state.control.parent_answered(self.now(), &name, question, outcome);
            }
            ParentMessage::Missing { name, ranks } => state.control.missing_at_parent(&name, ranks),
        }
    }

    fn on_parent_event(&self, id: JobId, event: ParentEvent) {
        if let ParentEvent::Broken(sentence) = event {
            return self.note_fault(id, sentence);
        }
        let mut state = self.state();
        match event {
            ParentEvent::Connected(connected) => state.control.watch_at_parent(self.now(), id, connected),
            ParentEvent::Departed(gone) => state.control.parent_reports(id, gone),
            ParentEvent::Broken(_) => unreachable!("it was noted"),
            ParentEvent::Forgotten => state.control.gone_at_parent(self.now(), id),
        }
    }

    fn pause(&self) -> Duration {
        let state = self.state();
        let interval = if state.control.awaits_reports() { SAMPLE_OFTEN } else { SAMPLE_EVERY };
        match state.control.poll_timeout() {
            Some(due) => to_duration(due.since(self.now())).min(interval),
            None => interval,
        }
    }

    async fn carry_out(&self) {
        loop {
            self.note_job_events();
            let Some(effect) = self.state().control.poll_effect() else {
                if let Some(watches) = &self.parent_watches {
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
                    if let Some(parent_client) = &self.parent_client {
                        let here = ranks.len() as u16;
                        for (request, _) in &mut ranks {
                            request.suggested_slots = request.suggested_slots.min(self.largest_pool(request, here));
                        }
                        let join = ParentJoin { name, number: sequence, ranks, most_slots, switches };
                        parent_client.join(join, self.shard_addrs());
                    }
                }
                Effect::LeaveParent { name, job, key, wid, completed } => {
                    if let Some(parent_client) = &self.parent_client {
                        parent_client.leave(name, job, key, wid, completed);
                    }
                }
            }
        }
    }
}

/// The next message of the parent switch. The future never ends if there is no parent.
async fn next<T>(messages: &mut Option<UnboundedReceiver<T>>) -> Option<T> {
    match messages {
        Some(messages) => messages.recv().await,
        None => std::future::pending().await,
    }
}

/// Withdraws a join when its caller no longer waits for the answer.
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
