//! How a switch of a fabric forwards: packets go from the pipeline into queues, and leave at the rates of the ports.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tributary_control::fabric::FabricLayout;
use tributary_proto::contract::drop_reason::{DropCounters, DropReason};
use tributary_proto::contract::ids::{JobId, JobKey, NodeId, PortId};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{self, Common, kind};

use super::crossbar::{Crossbar, HELLO_EVERY, PortReport};
use super::job::{FabricJob, stopping};
use super::job_table::JobSync;
use super::tree_watch::Installed;
use super::{shared_job, tree_switch};
use crate::api::version;
use crate::shard::{Core, Forwarding, JobInstall, Origin, PacketClass, PreparedJob, ShardError, ShardReport, Site};
use crate::udp::{Message, UdpPort};

/// A command from a handle to the thread, with the channel for the answer.
pub enum Command {
    /// Makes the jobs of the switch those of the controller's message. After that the switch is ready.
    Sync {
        jobs: JobSync,
        reply: oneshot::Sender<Vec<JobId>>,
    },
    Report(oneshot::Sender<FabricReport>),
    /// The switch stops: the jobs that need it fail now. Answers how many these are.
    Leave(oneshot::Sender<usize>),
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
    /// How long ago the controller last sent the list of jobs, if it has.
    pub synced_ago: Option<Span>,
    /// The ports, by number.
    pub ports: Vec<PortReport>,
    /// The installed jobs, by ascending id.
    pub installed: Vec<InstalledReport>,
    /// The cables that some switch calls dead.
    pub dead_cables: Vec<usize>,
}

/// A job that is installed at a switch.
#[derive(Clone, Debug)]
pub struct InstalledReport {
    /// The job.
    pub job: FabricJob,
    /// When it was installed.
    pub since: Time,
    /// Why it has failed.
    pub broken: Option<String>,
    /// Its servers on hosts of this switch that were seen, by number.
    pub servers_seen: Vec<u16>,
}

/// How a switch of a fabric forwards.
pub struct FabricForwarding {
    crossbar: Crossbar,
    jobs: BTreeMap<JobId, Installed>,
    broken: watch::Sender<Broken>,
    /// Packets that came in by no port of this switch, or from the wrong socket behind a port.
    rejected_packets: DropCounters,
    ready: bool,
    /// When the controller last sent the list of jobs.
    synced: Option<Time>,
    next_hello: Time,
}

impl Forwarding for FabricForwarding {
    type Command = Command;
    type Job = FabricJob;
    type Ports<'a> = &'a Crossbar;

    fn handle_command(site: &mut Site<FabricForwarding>, command: Command, core: &mut Core) {
        // Sending an answer fails only if nobody waits for it any more.
        match command {
            Command::Sync { jobs: JobSync { keep, install, shares, shared, broken }, reply } => {
                site.forwarding.synced = Some(core.clock.now());
                let lacking = sync(site, &keep, install, core);
                shares.into_iter().for_each(|(id, slots)| site.forwarding.resize(id, slots, core));
                for protocol in site.forwarding.idle(&shared, &core.pipeline) {
                    site.unshare(protocol, core);
                }
                drop(reply.send(lacking));
                site.forwarding.note_broken(broken);
            }
            Command::Report(reply) => {
                let shard = site.report(core);
                drop(reply.send(site.forwarding.report(shard)));
            }
            Command::Leave(reply) => drop(reply.send(site.forwarding.leave())),
        }
    }

    /// The same job again changes nothing, because sums are under way. If its trees have changed, it begins again, provided
    /// that its protocol can.
    fn has_job(&self, job: &FabricJob) -> bool {
        let JobInstall { protocol, config, .. } = &job.job;
        let known = self.jobs.get(&config.job).filter(|known| known.job.job.config.key == config.key);
        known.is_some_and(|known| !protocol.survives_tree_loss || known.job.trees == job.trees)
    }

    fn add_job(&mut self, now: Time, job: FabricJob, udp: &UdpPort) -> Result<PreparedJob, ShardError> {
        let JobInstall { protocol, config, .. } = &job.job;
        let header = Common { protocol: protocol.code, kind: 0, job: config.job, key: config.key };
        self.crossbar.add_job(header, &job.endpoint_addrs(), udp);
        let prepared = match job.trees.is_empty() {
            // Who may send is checked by socket before the pipeline; there all ports of the fabric are alike.
            true => PreparedJob::Shared(shared_job::at_switch(&self.crossbar, &job), Vec::new()),
            false => {
                let trees = tree_switch::build(&job, &mut self.crossbar);
                let misfit = || ShardError::Fabric("its trees do not fit this switch's ports".into());
                PreparedJob::Own(trees.ok_or_else(misfit)?)
            }
        };
        self.jobs.insert(config.job, Installed::new(now, job, self.crossbar.fabric()));
        Ok(prepared)
    }

    fn remove_job(&mut self, id: JobId) {
        self.jobs.remove(&id);
        self.crossbar.remove_job(id);
        self.broken.send_if_modified(|broken| broken.remove(&id).is_some());
    }

    fn ingress(&mut self, now: Time, message: &Message, udp: &mut UdpPort) -> PortId {
        // The packets that the message before has queued leave first, so that only packets that wait for their port
        // stay in queues.
        self.crossbar.drain(now, udp);
        self.crossbar.ingress(message.from, message.segments().count(), message.len)
    }

    fn classify(
        &mut self,
        now: Time,
        ingress: PortId,
        from: SocketAddr,
        packet: &mut [u8],
        ecn: Ecn,
        udp: &mut UdpPort,
    ) -> PacketClass {
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
                return PacketClass::Handled;
            }
        };
        if common.job == JobId(0) {
            let handled = self.crossbar.handle_fabric_packet(now, ingress, &common, packet, ecn);
            match handled {
                Ok(()) if common.kind == kind::CARRY => self.crossbar.note_carrier(ingress, from, udp),
                Ok(()) => {}
                Err(reason) => self.rejected_packets.count(reason),
            }
            return PacketClass::Handled;
        }
        if !self.crossbar.accepts(now, ingress, from, common.job) {
            self.rejected_packets.count(DropReason::NotAMember);
            return PacketClass::Handled;
        }
        if common.kind == kind::PROGRESS { PacketClass::Progress(None) } else { PacketClass::Job }
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

    fn unroutable(&self) -> u64 {
        self.crossbar.unroutable()
    }

    fn rejected(&self) -> Option<&DropCounters> {
        Some(&self.rejected_packets)
    }

    fn last_seen(&self, id: JobId) -> Option<Vec<Option<Time>>> {
        let hosts = self.jobs.get(&id)?.job.hosts.iter();
        Some(hosts.map(|&host| self.crossbar.last_seen(id, host)).collect())
    }
}

/// Installs and removes jobs. Returns the jobs in `keep` that are not here, and the caller installs them with the next call.
fn sync(site: &mut Site<FabricForwarding>, keep: &[JobId], install: Vec<FabricJob>, core: &mut Core) -> Vec<JobId> {
    let stays = |id: &JobId| keep.contains(id) || install.iter().any(|job| job.job.config.job == *id);
    let gone: Vec<JobId> = site.forwarding.jobs.keys().copied().filter(|id| !stays(id)).collect();
    for id in gone {
        site.remove(id, core);
    }
    for job in install {
        let (name, protocol) = (job.job.name.clone(), job.job.protocol);
        if let Err(error) = site.install(job, core) {
            tracing::error!(job = %name, protocol = protocol.name, %error, "job not installed");
        }
    }
    let FabricForwarding { jobs, ready, .. } = &mut site.forwarding;
    let lacking: Vec<JobId> = keep.iter().copied().filter(|id| !jobs.contains_key(id)).collect();
    *ready |= lacking.is_empty();
    lacking
}

impl FabricForwarding {
    /// A switch without jobs. It counts as dead until the controller has sent it the list of jobs.
    pub fn site(
        fabric: Arc<FabricLayout>,
        node: NodeId,
        udp: &UdpPort,
        broken: watch::Sender<Broken>,
    ) -> Site<FabricForwarding> {
        let (elements_per_packet, options) = (fabric.elements_per_packet, fabric.switch_options.clone());
        let forwarding = FabricForwarding {
            crossbar: Crossbar::new(fabric, node, udp),
            jobs: BTreeMap::new(),
            broken,
            rejected_packets: DropCounters::default(),
            ready: false,
            synced: None,
            next_hello: Time::ZERO,
        };
        Site::new(forwarding, node, Some(elements_per_packet), options)
    }

    /// The protocols, by code, whose machine no job uses and the controller does not keep either.
    fn idle(&self, stay: &[&Protocol], pipeline: &Pipeline) -> Vec<u8> {
        let is_used = |code: &u8| self.jobs.values().any(|job| job.job.job.protocol.code == *code);
        let may_go = |code: &u8| !stay.iter().any(|protocol| protocol.code == *code) && !is_used(code);
        pipeline.all_shared().map(|(code, ..)| code).filter(may_go).collect()
    }

    /// Gives a job its new share of the memory. The machines' trees begin new epochs, each at its own time.
    fn resize(&mut self, id: JobId, slots: u16, core: &mut Core) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.job.job.config.slots != slots) else { return };
        job.job.job.config.slots = slots;
        core.pipeline.resize(id, slots);
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

    /// Fails the jobs whose sums are lost with this switch, because it stops: those that have a tree through it, and do not
    /// survive that tree's loss.
    fn leave(&mut self) -> usize {
        let node = self.crossbar.node();
        let why = stopping(self.crossbar.fabric(), node);
        let lost = self.jobs.iter().filter(|(_, installed)| installed.job.is_lost_with(node));
        let jobs: Vec<_> = lost.map(|(&id, _)| (id, why.clone())).collect();
        let count = jobs.len();
        self.note_broken(jobs);
        count
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
        tracing::warn!(job = %job.job.job.name, %why, "a job has failed");
        self.broken.send_modify(|broken| drop(broken.insert(id, (job.job.job.config.key, why))));
    }

    fn servers_seen(&self, id: JobId, job: &FabricJob) -> Vec<u16> {
        let numbered = (0..).zip(&job.server_hosts);
        numbered.filter(|&(_, &host)| self.crossbar.last_seen(id, host).is_some()).map(|(server, _)| server).collect()
    }

    fn report(&mut self, shard: ShardReport) -> FabricReport {
        let ports = self.crossbar.report(shard.now);
        let installed = |(&id, installed): (&JobId, &Installed)| {
            let Installed { job, since, broken, .. } = installed;
            let (servers_seen, job, broken) = (self.servers_seen(id, job), job.clone(), broken.clone());
            InstalledReport { job, since: *since, broken, servers_seen }
        };
        FabricReport {
            ready: self.ready,
            synced_ago: self.synced.map(|synced| shard.now.since(synced)),
            ports,
            installed: self.jobs.iter().map(installed).collect(),
            dead_cables: self.crossbar.link_state().dead_cables(),
            shard,
        }
    }
}

#[cfg(test)]
mod tests;
