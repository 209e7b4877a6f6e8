//! The ports of a shard: remote UDP addresses that jobs have named, and the groups to which jobs multicast ([`Ports`]).
//! [`Forwarder`] sends to them in runs, and [`Uplinks`] exchanges keepalives with parent switches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use tributary_proto::contract::ids::{GroupId, JobId, PortId, PortSet};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;

use crate::udp::path::{self, MtuProbe};
use crate::udp::{Batches, Destination, Run, UdpPort, key_of};

/// The owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A worker, of one job.
    Worker(GroupId),
    /// Another switch or a server, for all jobs that run on both.
    Switch,
}

struct Port {
    key: (IpAddr, u16),
    owner: Owner,
    /// The destination; `None` once the address belongs to another owner.
    destination: Option<Destination>,
    /// Jobs that name this address.
    jobs: usize,
}

/// A member of a group.
pub struct Member {
    /// The source address of its packets.
    pub address: SocketAddr,
    /// The destination of packets to it.
    pub destination: Destination,
    /// True for a switch or a server. All jobs that run on it too name the same address.
    pub serves_several: bool,
}

/// Addresses by port and ports by address.
#[derive(Default)]
pub struct Ports {
    ports: Vec<Option<Port>>,
    /// The lowest free port is taken first.
    free: BTreeSet<PortId>,
    by_address: HashMap<(IpAddr, u16), PortId>,
    groups: BTreeMap<GroupId, Vec<PortId>>,
    /// The ports to parent switches, by the group of their job.
    uplinks: BTreeMap<GroupId, PortId>,
}

impl Ports {
    /// The port of a remote address; [`PortId::UNKNOWN`] for unknown addresses.
    pub fn of(&self, address: SocketAddr) -> PortId {
        self.by_address.get(&key_of(address)).copied().unwrap_or(PortId::UNKNOWN)
    }

    /// The destination of a port.
    pub fn destination(&self, port: PortId) -> Option<&Destination> {
        self.ports.get(port.index())?.as_ref()?.destination.as_ref()
    }

    /// Sets the longest packet that reaches the remote behind a port, as that remote reports.
    pub fn set_limit(&mut self, port: PortId, limit: Option<usize>) {
        let entry = self.ports.get_mut(port.index()).and_then(Option::as_mut);
        if let Some(destination) = entry.and_then(|port| port.destination.as_mut()) {
            destination.set_limit(limit);
        }
    }

    /// The ports of a group.
    pub fn group(&self, group: GroupId) -> &[PortId] {
        self.groups.get(&group).map_or(&[], Vec::as_slice)
    }

    /// The parent switch of a group, if there is one.
    pub fn parent(&self, group: GroupId) -> Option<&Destination> {
        self.destination(*self.uplinks.get(&group)?)
    }

    /// Adds the members of a group, by rank; `None` if no ports are left, and then nothing has changed. `shares`: the group's
    /// job uses a machine that it shares with others. Such a machine distinguishes only the first ports, so that these are
    /// left to its jobs.
    pub fn add_group(&mut self, group: GroupId, members: Vec<Member>, shares: bool) -> Option<Vec<PortId>> {
        self.remove_group(group);
        if members.len() > PortId::UNKNOWN.index() - PortSet::CAPACITY - self.used() {
            return None;
        }
        let first = if shares { 0 } else { PortSet::CAPACITY as u16 };
        let add = |Member { address, destination, serves_several }| {
            let owner = if serves_several { Owner::Switch } else { Owner::Worker(group) };
            self.add(address, owner, destination, PortId(first))
        };
        let ports: Vec<PortId> = members.into_iter().map(add).collect();
        self.groups.insert(group, ports.clone());
        Some(ports)
    }

    /// Adds the parent switch of a group; `None` if no ports are left.
    pub fn add_uplink(&mut self, group: GroupId, parent: SocketAddr, destination: Destination) -> Option<PortId> {
        if self.used() + PortSet::CAPACITY >= PortId::UNKNOWN.index() {
            return None;
        }
        let port = self.add(parent, Owner::Switch, destination, PortId(PortSet::CAPACITY as u16));
        self.uplinks.insert(group, port);
        Some(port)
    }

    /// Removes a group and its uplink, and their addresses if no other group names them; returns the ports of these
    /// addresses.
    pub fn remove_group(&mut self, group: GroupId) -> Vec<PortId> {
        let mut gone = Vec::new();
        let uplink = self.uplinks.remove(&group);
        for port in self.groups.remove(&group).unwrap_or_default().into_iter().chain(uplink) {
            let entry = &mut self.ports[port.index()];
            let Some(used) = entry else { continue };
            used.jobs -= 1;
            if used.jobs == 0 {
                if self.by_address.get(&used.key) == Some(&port) {
                    self.by_address.remove(&used.key);
                }
                *entry = None;
                self.free.insert(port);
                gone.push(port);
            }
        }
        gone
    }

    fn used(&self) -> usize {
        self.ports.len() - self.free.len()
    }

    /// Adds an address whose owner has answered there, as the caller has checked. Any other owner of the address is
    /// gone, because two sockets are never bound to one address. A new port is `first` or a later one.
    fn add(&mut self, address: SocketAddr, owner: Owner, destination: Destination, first: PortId) -> PortId {
        let key = key_of(address);
        if let Some(&port) = self.by_address.get(&key) {
            let used = self.ports[port.index()].as_mut().expect("a named port is in use");
            if used.owner == owner {
                // A switch has one socket, and the path to it is the same as before.
                let destination = destination.with_limit_of(used.destination.as_ref());
                (used.jobs, used.destination) = (used.jobs + 1, Some(destination));
                return port;
            }
            used.destination = None;
        }
        let port = self.take_free(first);
        self.ports[port.index()] = Some(Port { key, owner, destination: Some(destination), jobs: 1 });
        self.by_address.insert(key, port);
        port
    }
}

impl Ports {
    /// The lowest free port from `first` on.
    fn take_free(&mut self, first: PortId) -> PortId {
        while self.ports.len() <= first.index() {
            self.free.insert(PortId(self.ports.len() as u16));
            self.ports.push(None);
        }
        if let Some(&port) = self.free.range(first..).next() {
            self.free.remove(&port);
            return port;
        }
        self.ports.push(None);
        PortId((self.ports.len() - 1) as u16)
    }
}

/// The number of verdicts whose runs are gathered at the same time: one for all members, and those for single members.
const VERDICTS: usize = 16;

/// Sends the packets of verdicts. Packets of one length with the same verdict leave in one call for each receiver, straight
/// from the memory into which they were received.
pub struct Forwarder {
    batches: Batches<Verdict, VERDICTS>,
    /// The number of packets for which there was no port.
    unroutable: u64,
}

impl Forwarder {
    /// Nothing gathered.
    pub fn new() -> Forwarder {
        Forwarder { batches: Batches::new(Verdict::Consume), unroutable: 0 }
    }

    /// The number of packets for which there was no port.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// True if nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Takes the packet at `range` in `memory`. Sends a run if the packet does not continue it, or needs its batch.
    pub fn push(
        &mut self,
        range: Range<usize>,
        ecn: Ecn,
        verdict: Verdict,
        memory: &[u8],
        ports: &Ports,
        udp: &mut UdpPort,
    ) {
        let unroutable = &mut self.unroutable;
        self.batches.push(verdict, range, ecn, |to, run| *unroutable += send_run(to, run, memory, ports, udp));
    }

    /// Sends all packets that were gathered. Their memory is free after that.
    pub fn flush(&mut self, memory: &[u8], ports: &Ports, udp: &mut UdpPort) {
        let unroutable = &mut self.unroutable;
        self.batches.flush(|to, run| *unroutable += send_run(to, run, memory, ports, udp));
    }
}

/// Sends a run to the receivers of its verdict. Returns the number of packets for which there was no port.
fn send_run(verdict: Verdict, run: &Run, memory: &[u8], ports: &Ports, udp: &mut UdpPort) -> u64 {
    let mut reached = 0;
    let mut send = |port| run.send(ports.destination(port).inspect(|_| reached += 1).into_iter(), memory, udp);
    match verdict {
        Verdict::Port(port) => send(port),
        Verdict::Multicast(set) => set.iter().for_each(send),
        Verdict::Group(group) => ports.group(group).iter().for_each(|&port| send(port)),
        // A star knows only the nodes of its own jobs.
        Verdict::Route(_) | Verdict::Consume | Verdict::Drop(_) => {}
    }
    if reached == 0 { run.packets() as u64 } else { 0 }
}

struct Uplink {
    common: Common,
    port: PortId,
    mtu: MtuProbe,
}

/// The paths to parent switches, for all jobs of one shard. The child pings and the parent answers. By this each knows that
/// the other is alive, and how long a packet the path between them holds.
#[derive(Default)]
pub struct Uplinks {
    uplinks: Vec<Uplink>,
}

impl Uplinks {
    /// Adds a job's path to the parent switch, with its longest packet; the first ping is due at once.
    pub fn add(&mut self, port: PortId, common: Common, full: usize) {
        self.uplinks.push(Uplink { common, port, mtu: MtuProbe::new(full, full) });
    }

    /// Removes a job that is gone.
    pub fn remove(&mut self, job: JobId) {
        self.uplinks.retain(|uplink| uplink.common.job != job);
    }

    /// When to ping next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.uplinks.iter().map(|uplink| uplink.mtu.due()).min()
    }

    /// Handles a pong on this port, which may answer one of this switch's pings.
    pub fn on_pong(&mut self, ingress: PortId, pong: &[u8], ports: &mut Ports) {
        let Ok(common) = Common::parse(pong) else { return };
        let ours = |uplink: &&mut Uplink| uplink.port == ingress && uplink.common == Common { kind: 0, ..common };
        for uplink in self.uplinks.iter_mut().filter(ours) {
            uplink.mtu.on_pong(pong.len());
            ports.set_limit(uplink.port, uplink.mtu.limit());
        }
    }

    /// Pings the parent switches, if it is time.
    pub fn ping(&mut self, now: Time, ports: &mut Ports, udp: &mut UdpPort) {
        for Uplink { common, port, mtu } in &mut self.uplinks {
            let lengths = mtu.poll(now);
            if lengths.is_empty() {
                continue;
            }
            ports.set_limit(*port, mtu.limit());
            let Some(parent) = ports.destination(*port) else { continue };
            for len in lengths {
                let ping = path::ping(*common, len, mtu.limit());
                udp.send(parent, &[IoSlice::new(&ping)], ping.len(), Ecn::NotCapable);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::UdpPort;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn add(ports: &mut Ports, group: u16, members: &[SocketAddr], serves_several: bool) -> Vec<PortId> {
        let socket = UdpPort::open(address(0), 1 << 16, 1 << 16).unwrap();
        let member = |&address| Member { address, destination: socket.destination(address), serves_several };
        ports.add_group(GroupId(group), members.iter().map(member).collect(), false).unwrap()
    }

    #[test]
    fn a_worker_s_address_is_of_one_job_and_of_the_one_that_it_has_proven_last() {
        let mut ports = Ports::default();
        let first = add(&mut ports, 1, &[address(5), address(6)], false);
        let second = add(&mut ports, 2, &[address(6)], false);
        assert_ne!(second[0], first[1]);
        assert_eq!(ports.of(address(6)), second[0]);
        assert!(ports.destination(first[1]).is_none(), "what is for the former socket goes to nobody");
        assert!(ports.destination(second[0]).is_some());
        ports.remove_group(GroupId(1));
        assert_eq!(ports.of(address(6)), second[0]);
        ports.remove_group(GroupId(2));
        assert_eq!(ports.of(address(6)), PortId::UNKNOWN);
        assert_eq!(ports.used(), 0);
    }

    #[test]
    fn jobs_with_machines_of_their_own_leave_the_first_ports_to_machines_that_jobs_share() {
        let mut ports = Ports::default();
        let crowd: Vec<SocketAddr> = (1_000..1_000 + 2 * PortSet::CAPACITY as u16).map(address).collect();
        let crowd = add(&mut ports, 1, &crowd, false);
        assert!(crowd.iter().all(|port| port.index() >= PortSet::CAPACITY));
        let socket = UdpPort::open(address(0), 1 << 16, 1 << 16).unwrap();
        let member = |address| Member { address, destination: socket.destination(address), serves_several: false };
        let sharing = ports.add_group(GroupId(2), vec![member(address(5)), member(address(6))], true).unwrap();
        assert_eq!(sharing, [PortId(0), PortId(1)]);
        ports.remove_group(GroupId(1));
        ports.remove_group(GroupId(2));
        assert_eq!(ports.used(), 0);
    }

    #[test]
    fn a_switch_keeps_its_port_until_the_last_group_that_names_it_is_gone() {
        let mut ports = Ports::default();
        let first = add(&mut ports, 1, &[address(5), address(6)], true);
        let second = add(&mut ports, 2, &[address(6)], true);
        assert_eq!(second, [first[1]]);
        ports.remove_group(GroupId(1));
        assert_eq!(ports.of(address(5)), PortId::UNKNOWN);
        assert_eq!(ports.of(address(6)), first[1]);
        ports.remove_group(GroupId(2));
        assert_eq!(ports.of(address(6)), PortId::UNKNOWN);
        assert!(ports.group(GroupId(2)).is_empty());
    }

    #[test]
    fn an_unknown_address_gets_no_port_and_a_mapped_address_is_the_same_as_the_plain_one() {
        let mut ports = Ports::default();
        let member = add(&mut ports, 1, &[address(5)], false)[0];
        assert_eq!(ports.of("[::ffff:127.0.0.1]:5".parse().unwrap()), member);
        assert_eq!(ports.of(address(7)), PortId::UNKNOWN);
    }
}
