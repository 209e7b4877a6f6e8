//! A switch of a fabric for the event loop: packets go from the pipeline into queues, and leave at the rates of the ports.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tributary_control::fabric::FabricLayout;
use tributary_proto::contract::drop_reason::{DropCounters, DropReason};
use tributary_proto::contract::ids::{JobId, JobKey, NodeId, PortId};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::{self, Common, kind};

use super::crossbar::{Crossbar, HELLO_EVERY, PortReport};
use super::job::FabricJob;
use super::job_table::JobSync;
use super::tree_watch::Installed;
use super::{shared_machines, tree_switch};
use crate::api::version;
use crate::event_loop::{Core, Origin, Site};
use crate::progress::Progress;
use crate::shard::{JobInstall, ShardJob, ShardReport, SharedMachines};
use crate::udp::{Message, UdpPort};

/// A command from a handle to the thread, with the channel for the answer.
pub enum Command {
    /// Makes the jobs of the switch those of the controller's message. After that the switch is ready.
    Sync {
        jobs: JobSync,
        reply: oneshot::Sender<Vec<JobId>>,
    },
    Report(oneshot::Sender<FabricReport>),
}

/// The jobs that have failed, each with its key and the reason.
pub type Broken = BTreeMap<JobId, (JobKey, String)>;

/// What an operator sees of a fabric switch, beyond what every switch has.
#[derive(Clone, Debug)]
pub struct FabricReport {
    /// What every switch has.
    pub shard: ShardReport,
    /// True if the switch knows the running jobs.
    pub ready: bool,
    /// The ports, by number.
    pub ports: Vec<PortReport>,
    /// The installed jobs; one that has failed has a reason.
    pub installed: Vec<(FabricJob, Option<String>)>,
    /// By job: its servers on hosts of this switch that were seen.
    pub servers_seen: BTreeMap<JobId, Vec<u16>>,
    /// The cables that some switch calls dead.
    pub dead_cables: Vec<usize>,
}

/// What a switch of a fabric adds to the loop.
pub struct FabricSite {
    crossbar: Crossbar,
    jobs: BTreeMap<JobId, Installed>,
    shared_machines: SharedMachines,
    broken: watch::Sender<Broken>,
    /// Packets that came in by no port of this switch, or from the wrong socket behind a port.
    rejected_packets: DropCounters,
    ready: bool,
    next_hello: Time,
}

impl Site for FabricSite {
    type Command = Command;
    type Ports<'a> = &'a Crossbar;

    fn handle_command(&mut self, command: Command, core: &mut Core) {
        // Sending an answer fails only if nobody waits for it any more.
        match command {
            Command::Sync { jobs: JobSync { keep, install, shares, shared, broken }, reply } => {
                let lacking = self.sync(&keep, install, core);
                shares.into_iter().for_each(|(id, slots)| self.resize(id, slots, core));
                shared_machines::remove_idle(&self.jobs, &shared, &mut self.shared_machines, &mut core.pipeline);
                drop(reply.send(lacking));
                self.note_broken(broken);
            }
            Command::Report(reply) => drop(reply.send(self.report(core))),
        }
    }

    fn ingress(&mut self, now: Time, message: &Message, udp: &mut UdpPort) -> PortId {
        // The packets that the message before has queued leave first, so that only packets that wait for their port
        // stay in queues.
        self.crossbar.drain(now, udp);
        self.crossbar.ingress(message.from, message.segments().count(), message.len)
    }

    fn accepts(
        &mut self,
        now: Time,
        ingress: PortId,
        from: SocketAddr,
        packet: &mut [u8],
        ecn: Ecn,
        udp: &mut UdpPort,
    ) -> bool {
        let common = match Common::parse(packet) {
            Ok(common) => common,
            Err(reason) => {
                if reason == DropReason::BadVersion && ingress != PortId::UNKNOWN {
                    // The cable looks dead, although the neighbours at both ends are alive.
                    let theirs = ("the neighbour", packet[wire::VERSION_AT].into());
                    let why = version::differ("the wire format", theirs, ("this switch", wire::VERSION.into()));
                    tracing::warn!(%from, why, "packets of another version");
                }
                self.rejected_packets.count(reason);
                return false;
            }
        };
        if common.job == JobId(0) {
            let handled = self.crossbar.handle_fabric_packet(now, ingress, &common, packet, ecn);
            match handled {
                Ok(()) if common.kind == kind::CARRY => self.crossbar.note_carrier(ingress, from, udp),
                Ok(()) => {}
                Err(reason) => self.rejected_packets.count(reason),
            }
            return false;
        }
        let accepted = self.crossbar.accepts(now, ingress, from, common.job);
        if !accepted {
            self.rejected_packets.count(DropReason::NotAMember);
        }
        // If a packet with a member's progress is wrong, the pipeline counts why.
        accepted && (common.kind != kind::PROGRESS || self.on_progress(now, &common, packet).is_err())
    }

    fn ports(&self) -> &Crossbar {
        &self.crossbar
    }

    fn carry_out(
        &mut self,
        verdict: Verdict,
        range: Range<usize>,
        ecn: Ecn,
        origin: Origin,
        memory: &[u8],
        _udp: &mut UdpPort,
    ) -> bool {
        let packet = &memory[range];
        let job = Common::parse(packet).map_or(JobId(0), |common| common.job);
        self.crossbar.carry_out(verdict, packet, ecn, origin, job);
        // The queues have copied the packet into their own memories.
        false
    }

    fn flush(&mut self, now: Time, _memory: &[u8], udp: &mut UdpPort) {
        self.crossbar.drain(now, udp);
    }

    fn due(&self) -> Option<Time> {
        Some(self.crossbar.due().map_or(self.next_hello, |due| due.min(self.next_hello)))
    }

    /// Sends hellos, and the packets of queues whose ports are free again.
    fn tick(&mut self, now: Time, udp: &mut UdpPort) {
        if self.next_hello <= now {
            self.crossbar.update_links(now, false);
            self.crossbar.greet(self.ready, udp);
            self.next_hello = now + HELLO_EVERY;
            self.check_trees(now);
        }
        self.crossbar.drain(now, udp);
    }
}

impl FabricSite {
    /// A switch without jobs. It counts as dead until the controller has sent it the list of jobs.
    pub fn new(fabric: Arc<FabricLayout>, node: NodeId, udp: &UdpPort, broken: watch::Sender<Broken>) -> FabricSite {
        FabricSite {
            crossbar: Crossbar::new(fabric, node, udp),
            jobs: BTreeMap::new(),
            shared_machines: SharedMachines::default(),
            broken,
            rejected_packets: DropCounters::default(),
            ready: false,
            next_hello: Time::ZERO,
        }
    }

    /// Installs and removes jobs. Returns the jobs in `keep` that are not here, and the caller installs them with the
    /// next call.
    fn sync(&mut self, keep: &[JobId], install: Vec<FabricJob>, core: &mut Core) -> Vec<JobId> {
        let stays = |id: &JobId| keep.contains(id) || install.iter().any(|job| job.job.config.job == *id);
        let gone: Vec<JobId> = self.jobs.keys().copied().filter(|id| !stays(id)).collect();
        gone.into_iter().for_each(|id| self.remove(id, core));
        install.into_iter().for_each(|job| self.install(job, core));
        let lacking: Vec<JobId> = keep.iter().copied().filter(|id| !self.jobs.contains_key(id)).collect();
        self.ready |= lacking.is_empty();
        lacking
    }

    /// Gives a job its new share of the memory. The machines' trees begin new epochs, each at its own time.
    fn resize(&mut self, id: JobId, slots: u16, core: &mut Core) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.job.job.config.slots != slots) else { return };
        job.job.job.config.slots = slots;
        core.pipeline.resize(id, slots);
    }

    fn install(&mut self, job: FabricJob, core: &mut Core) {
        let JobInstall { protocol, ref config, .. } = job.job;
        let (id, key) = (config.job, config.key);
        // The same job again changes nothing, because sums are under way. If its trees have changed, it begins again,
        // provided that its protocol can.
        let known = self.jobs.get(&id).filter(|known| known.job.job.config.key == key);
        if known.is_some_and(|known| !protocol.replants || known.job.trees == job.trees) {
            return;
        }
        self.remove(id, core);
        let header = Common { protocol: protocol.code, kind: 0, job: id, key };
        self.crossbar.add_job(header, &job.endpoint_addrs(), &core.udp);
        if job.trees.is_empty() {
            // Who may send is checked by socket before the pipeline; there all ports of the fabric are alike.
            shared_machines::install(protocol, self.crossbar.fabric(), self.crossbar.node(), &mut core.pipeline);
            let endpoints: Vec<NodeId> = job.endpoints().collect();
            core.pipeline
                .install_shared(&shared_machines::job_plan(&self.crossbar, protocol, config, &endpoints), Vec::new());
        } else if let Some(trees) = tree_switch::build(&job, &mut self.crossbar) {
            core.pipeline.install(id, trees);
        } else {
            tracing::error!(job = %job.name, protocol = protocol.name, "its trees do not fit this switch's ports");
            return self.remove(id, core);
        }
        self.jobs.insert(id, Installed::new(core.clock.now(), job, self.crossbar.fabric()));
    }

    fn remove(&mut self, id: JobId, core: &mut Core) {
        self.jobs.remove(&id);
        self.crossbar.remove_job(id);
        core.pipeline.remove(id);
        self.broken.send_if_modified(|broken| broken.remove(&id).is_some());
    }

    /// Records a member's report of its progress.
    fn on_progress(&mut self, now: Time, common: &Common, packet: &[u8]) -> Result<(), DropReason> {
        let job = self.jobs.get_mut(&common.job).filter(|job| job.job.job.config.key == common.key);
        job.ok_or(DropReason::UnknownJob)?.progress.record(now, Progress::parse(packet)?)
    }

    fn check_trees(&mut self, now: Time) {
        let mut failed = Vec::new();
        for (&id, job) in &mut self.jobs {
            if job.check(now, &self.crossbar) {
                failed.push(id);
            }
        }
        failed.into_iter().for_each(|id| self.notify_broken(id));
    }

    /// Notes the jobs that have failed according to the controller.
    fn note_broken(&mut self, broken: Vec<(JobId, String)>) {
        for (id, why) in broken {
            if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.broken.is_none()) {
                job.broken = Some(why);
                self.notify_broken(id);
            }
        }
    }

    fn notify_broken(&self, id: JobId) {
        let Some((job, why)) = self.jobs.get(&id).and_then(|job| Some((job, job.broken.clone()?))) else { return };
        tracing::warn!(job = %job.job.name, %why, "a job has failed");
        self.broken.send_modify(|broken| drop(broken.insert(id, (job.job.job.config.key, why))));
    }

    fn servers_seen(&self, id: JobId, job: &FabricJob) -> Vec<u16> {
        let numbered = (0..).zip(&job.server_hosts);
        numbered.filter(|&(_, &host)| self.crossbar.last_seen(id, host).is_some()).map(|(server, _)| server).collect()
    }

    fn report(&mut self, core: &Core) -> FabricReport {
        let now = core.clock.now();
        let mut jobs = Vec::new();
        for (&id, Installed { job, rates, progress, .. }) in &mut self.jobs {
            let Some(mut report) = core.pipeline.report(id) else { continue };
            report.last_seen = job.hosts.iter().map(|&host| self.crossbar.last_seen(id, host)).collect();
            rates.update(now, &report);
            let (packets_per_s, blocks_per_s) = (rates.packets_per_s, rates.blocks_per_s);
            let (absent, progress) = (Vec::new(), progress.clone());
            jobs.push(ShardJob { id, report, packets_per_s, blocks_per_s, absent, progress });
        }
        let mut rejected_packets = self.rejected_packets.clone();
        rejected_packets.add(core.pipeline.strangers());
        FabricReport {
            shard: ShardReport {
                now,
                jobs,
                rejected_packets,
                unroutable: self.crossbar.unroutable(),
                socket: *core.udp.counters(),
                shared: self.shared_machines.report(&core.pipeline),
            },
            ready: self.ready,
            ports: self.crossbar.report(now),
            installed: self.jobs.values().map(|job| (job.job.clone(), job.broken.clone())).collect(),
            servers_seen: self.jobs.iter().map(|(&id, job)| (id, self.servers_seen(id, &job.job))).collect(),
            dead_cables: self.crossbar.link_state().dead_cables(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_control::fabric::FabricFile;
    use tributary_proto::contract::ids::JobKey;

    use super::*;
    use crate::event_loop::testing::{received, socket, transmit_all};

    const JOBS: [JobId; 2] = [JobId(1), JobId(2)];
    const LEAF: NodeId = NodeId(4);
    const LEN: usize = 1_000;

    /// A leaf whose ports have no rate, the sockets of a member of each job on each of its hosts, and the leaf's own
    /// socket.
    fn leaf() -> (FabricSite, Vec<UdpPort>, UdpPort) {
        let text = "secret = \"0123456789abcdef\"\nnetwork = \"127.77.0.0\"\n[leaf_spine]\nleaves = 2\nspines = 2\n\
                    hosts_per_leaf = 2\n";
        let fabric = Arc::new(FabricFile::parse(text).unwrap());
        let udp = socket();
        let mut site = FabricSite::new(Arc::clone(&fabric), LEAF, &udp, watch::channel(Broken::new()).0);
        let members: Vec<UdpPort> = (0..4).map(|_| socket()).collect();
        for (job, members) in JOBS.into_iter().zip(members.chunks(2)) {
            let addrs: Vec<_> = (0..).map(NodeId).zip(members.iter().map(|member| member.local_addr())).collect();
            let header = Common { protocol: 1, kind: 0, job, key: JobKey(7) };
            site.crossbar.add_job(header, &addrs, &udp);
        }
        (site, members, udp)
    }

    #[test]
    fn what_a_machine_makes_for_two_hosts_leaves_in_one_run_for_each() {
        let (mut site, mut members, mut udp) = leaf();
        let verdicts = (0..40).map(|number| Verdict::Port(PortId(number % 2))).collect();
        assert_eq!(transmit_all(&mut site, &mut udp, &[(JOBS[0], LEN, verdicts)]), (40, 2));
        assert!(received(&mut members[0]).into_iter().eq((0..40).step_by(2)));
        assert!(received(&mut members[1]).into_iter().eq((1..40).step_by(2)));
    }

    #[test]
    fn what_two_jobs_make_for_their_members_on_one_host_leaves_in_one_run_for_each() {
        let (mut site, mut members, mut udp) = leaf();
        let verdicts = || vec![Verdict::Port(PortId(1)); 20];
        assert_eq!(transmit_all(&mut site, &mut udp, &JOBS.map(|job| (job, LEN, verdicts()))), (40, 2));
        assert!([1, 3].into_iter().all(|member: usize| received(&mut members[member]).into_iter().eq(0..20)));
    }
}
