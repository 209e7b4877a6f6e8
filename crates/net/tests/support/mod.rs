//! A switch without HTTP: real shards on the loopback interface, and a rendezvous in memory.
#![allow(dead_code)]

pub mod in_flight;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tributary_control::JobName;
use tributary_net::client;
use tributary_net::group::{ConnectOptions, Group};
use tributary_net::rendezvous::{
    Departed, Gone, JoinAnswer, JoinError, JoinRequest, Rendezvous, Standing, Watched, Watching,
};
use tributary_net::shard::{JobInstall, Shard, ShardHandle, ShardOptions};
use tributary_net::status::{EndedJob, SwitchStatus};
use tributary_net::switch_daemon::{self, RunningSwitch};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, TreeId};
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::switch_options::SwitchOptions;
use tributary_proto::{protocols, switch_options};

/// No test waits longer than this for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A rank that joins a job as a person would who chooses nothing.
pub fn connect_options(
    switch: SocketAddr,
    protocol: &'static Protocol,
    job: &str,
    rank: u16,
    world_size: u16,
) -> ConnectOptions {
    ConnectOptions {
        switch: switch.to_string(),
        job: job.to_owned(),
        rank,
        world_size,
        timeout: PATIENCE,
        protocol,
        options: protocol.options.defaults(),
        elements_per_packet: None,
        slots: None,
        trees: None,
        cores: None,
    }
}

/// The question of a worker whose packets come from this socket, and which has no other wishes.
pub fn join_request(
    protocol: &'static Protocol,
    job: &str,
    rank: u16,
    world_size: u16,
    udp: &UdpSocket,
) -> JoinRequest {
    JoinRequest {
        job: job.to_owned(),
        rank,
        world_size,
        protocol,
        options: protocol.options.defaults(),
        udp: udp.local_addr().unwrap(),
        core_ports: Vec::new(),
        elements_per_packet: None,
        max_elements_per_packet: 360,
        slots: None,
        trees: None,
        suggested_slots: 64,
        timeout: PATIENCE,
    }
}

/// Waits until a switch of a fabric shows this.
pub fn until(switch: &RunningSwitch, what: &str, wanted: impl Fn(&SwitchStatus) -> bool) {
    let start = Instant::now();
    loop {
        let status = client::status(switch.listen_addr()).unwrap();
        if wanted(&status) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{what} does not come: {status:#?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The job that ended last, as soon as one has.
pub fn last_ended(switch: &RunningSwitch) -> EndedJob {
    let start = Instant::now();
    loop {
        if let Some(job) = client::ended(switch.listen_addr()).unwrap().ended.into_iter().next() {
            return job;
        }
        assert!(start.elapsed() < PATIENCE, "no job has ended");
        thread::sleep(Duration::from_millis(20));
    }
}

/// True if the switch hears a neighbour over each of its cables.
pub fn ready(status: &SwitchStatus) -> bool {
    let fabric = status.switch.fabric.as_ref().unwrap();
    fabric.ready && fabric.ports.iter().all(|port| port.up)
}

/// A switch of two shards, with memory for all, on which these protocols have this many aggregators.
pub fn switch_with(protocols: impl Iterator<Item = &'static Protocol>, aggregators: u32) -> RunningSwitch {
    let mut given = switch_options::Given::new();
    for protocol in protocols {
        switch_options::add(&mut given, &format!("{}.aggregators={aggregators}", protocol.name)).unwrap();
    }
    let switch_options = SwitchOptions::read(&given, Defaults::Real).unwrap();
    let any_port = (Ipv4Addr::LOCALHOST, 0).into();
    let options = switch_daemon::SwitchOptions {
        shards: 2,
        memory_bytes: 512 << 20,
        switch_options,
        ..switch_daemon::SwitchOptions::new(any_port)
    };
    RunningSwitch::start(&options).unwrap()
}

/// Sums of many sizes, one after the other, that must be exact.
pub fn sum_many_sizes(group: &Group, rank: u16, patience: Duration) {
    let world_size = i32::from(group.info().world_size);
    for elements in [0, 1, 1_000, 200_000] {
        let mut data: Vec<i32> = (0..elements).map(|at| at * (i32::from(rank) + 1)).collect();
        group.allreduce_in_place(&mut data, ReduceOp::Sum, patience).unwrap();
        let all = world_size * (world_size + 1) / 2;
        assert!(data.iter().zip(0..).all(|(&sum, at)| sum == at * all), "{elements} elements");
        let mut floats = vec![f32::from(rank) + 0.5; elements as usize];
        group.allreduce_in_place(&mut floats, ReduceOp::Avg, patience).unwrap();
        assert!(floats.iter().all(|&avg| avg == (world_size - 1) as f32 / 2.0 + 0.5));
    }
}

/// Shards, and the jobs that meet there.
pub struct LocalSwitch {
    pub shards: Vec<ShardHandle>,
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes watches: a job was taken out, or members are gone.
    departed: Notify,
}

#[derive(Default)]
struct State {
    meetings: BTreeMap<String, Meeting>,
    next_job: u16,
    installed: Vec<JobId>,
    gone: Departed,
}

#[derive(Default)]
struct Meeting {
    requests: BTreeMap<u16, JoinRequest>,
    answer: Option<JoinAnswer>,
}

impl LocalSwitch {
    pub fn start(shards: u16) -> Arc<LocalSwitch> {
        LocalSwitch::start_at(Ipv4Addr::LOCALHOST, shards)
    }

    pub fn start_at(ip: Ipv4Addr, shards: u16) -> Arc<LocalSwitch> {
        let open = |shard| {
            let listen = (ip, 0).into();
            let (receive_buffer, send_buffer) = (16 << 20, 16 << 20);
            let switch_options = SwitchOptions::defaults(Defaults::Real);
            let options = ShardOptions {
                shard: TreeId(shard),
                listen,
                receive_buffer,
                send_buffer,
                incarnation: None,
                switch_options,
            };
            ShardHandle::start(&options).expect("a socket")
        };
        let shards = (0..shards).map(open).collect();
        let state = Mutex::new(State { next_job: 1, ..State::default() });
        Arc::new(LocalSwitch { shards, state, changed: Condvar::new(), departed: Notify::new() })
    }

    pub fn options(&self, job: &str, rank: u16, world_size: u16) -> ConnectOptions {
        let protocol = protocols::named("switchml").unwrap();
        connect_options(self.shards[0].udp_addr(), protocol, job, rank, world_size)
    }

    fn install(&self, id: JobId, requests: &BTreeMap<u16, JoinRequest>) -> JoinAnswer {
        let shards = self.shards.len() as u16;
        let elements = |r: &JoinRequest| r.elements_per_packet.unwrap_or(r.max_elements_per_packet);
        let slots = |r: &JoinRequest| r.slots.unwrap_or(r.suggested_slots);
        let elements_per_packet = requests.values().map(elements).min().expect("members");
        let slots = requests.values().map(slots).max().expect("members").next_multiple_of(shards);
        let core_ports: Vec<_> = requests.values().map(|request| request.core_ports.clone()).collect();
        let most_cores = 1 + core_ports.iter().map(Vec::len).max().unwrap_or(0) as u16;
        let key = JobKey(0x5eed ^ u64::from(id.0));
        let peers: Vec<_> = requests.values().map(|request| request.udp).collect();
        for shard in &self.shards {
            let config = JobConfig {
                job: id,
                key,
                protocol: requests[&0].protocol.code,
                world_size: peers.len() as u16,
                slots,
                elements_per_packet,
                trees: shards,
                levels: false,
                options: requests[&0].options.clone(),
            };
            let protocol = requests[&0].protocol;
            let name = JobName::new("local").unwrap();
            let job = JobInstall::of_workers(name, protocol, config, peers.clone(), shard.udp_addr().ip());
            let job = JobInstall { core_ports: core_ports.clone(), ..job };
            shard.install(job).wait().unwrap().expect("room for a job");
        }
        let shards = self.shards.iter().map(ShardHandle::udp_addr).collect();
        JoinAnswer {
            job_id: id,
            key,
            shards,
            slots,
            elements_per_packet,
            most_cores,
            peers,
            wid: ChildId(0),
            switches: Vec::new(),
            servers: Vec::new(),
            serves: None,
            fabric: None,
        }
    }

    /// Takes a job out, as a switch does that has restarted.
    pub fn forget(&self, job: &str) {
        let mut state = self.state.lock().unwrap();
        let id = state.meetings.remove(job).and_then(|meeting| meeting.answer).expect("a job").job_id;
        state.installed.retain(|&other| other != id);
        self.shards.iter().for_each(|shard| assert!(shard.remove(id).wait().unwrap()));
        self.departed.notify_waiters();
    }

    /// Tells the members of every job that these are gone.
    pub fn announce(&self, gone: &[Gone]) {
        self.state.lock().unwrap().gone.members = gone.to_vec();
        self.departed.notify_waiters();
    }
}

impl Rendezvous for LocalSwitch {
    fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, JoinError> {
        let mut state = self.state.lock().unwrap();
        let meeting = state.meetings.entry(request.job.clone()).or_default();
        meeting.requests.insert(request.rank, request.clone());
        if meeting.requests.len() == usize::from(request.world_size) {
            let requests = meeting.requests.clone();
            let id = JobId(state.next_job);
            state.next_job += 1;
            state.installed.push(id);
            let answer = self.install(id, &requests);
            state.meetings.get_mut(&request.job).unwrap().answer = Some(answer);
            self.changed.notify_all();
        }
        loop {
            if let Some(answer) = &state.meetings[&request.job].answer {
                return Ok(JoinAnswer { wid: ChildId(request.rank), ..answer.clone() });
            }
            let (next, time) = self.changed.wait_timeout(state, request.timeout).unwrap();
            if time.timed_out() {
                return Err(JoinError::Refused("some rank did not come".to_string()));
            }
            state = next;
        }
    }

    fn leave(&self, _job: JobId, _key: JobKey, _rank: u16, _completed: Option<u64>) {}

    fn standing(&self, job: JobId, _key: JobKey) -> Standing {
        let known = self.state.lock().unwrap().installed.contains(&job);
        if known { Standing::Installed } else { Standing::Unknown }
    }

    fn watch<'a>(&'a self, job: JobId, _key: JobKey, _rank: u16, known: &'a Departed) -> Watching<'a> {
        Box::pin(async move {
            loop {
                // What departs from here on wakes it, also before it waits.
                let departed = self.departed.notified();
                {
                    let state = self.state.lock().unwrap();
                    if !state.installed.contains(&job) {
                        return Watched::Unknown;
                    }
                    if state.gone != *known {
                        return Watched::Gone(state.gone.clone());
                    }
                }
                departed.await;
            }
        })
    }
}

/// Runs `work` on every rank of a job, each on a thread of its own; the results by rank.
pub fn on_every_rank<T: Send>(
    switch: &Arc<LocalSwitch>,
    job: &str,
    world_size: u16,
    adjust: impl Fn(&mut ConnectOptions) + Sync,
    work: impl Fn(Group, u16) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let rank = |rank| {
            let (adjust, work) = (&adjust, &work);
            scope.spawn(move || {
                let mut options = switch.options(job, rank, world_size);
                adjust(&mut options);
                let rendezvous: Arc<dyn Rendezvous> = switch.clone();
                let group = Group::connect_through(&options, rendezvous).expect("the rank joins");
                work(group, rank)
            })
        };
        let threads: Vec<_> = (0..world_size).map(rank).collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank ends well")).collect()
    })
}

/// Takes another protocol, with its own defaults.
#[allow(dead_code)] // Not every test that shares this file changes the protocol.
pub fn speak(options: &mut ConnectOptions, protocol: &'static tributary_proto::contract::protocol::Protocol) {
    (options.protocol, options.options) = (protocol, protocol.options.defaults());
}
