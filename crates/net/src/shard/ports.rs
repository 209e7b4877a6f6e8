//! The ports of a shard: remote UDP addresses that jobs have named, and the groups to which jobs multicast.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::ids::{GroupId, PortId, PortSet};

use crate::udp::{Destination, key_of};

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
    /// The ports of the further cores of the worker.
    cores: Vec<PortId>,
    /// The worker's own port, if this is the port of one of its further cores.
    worker: Option<PortId>,
}

/// A member of a group.
pub struct Member {
    /// The source address of its packets.
    pub address: SocketAddr,
    /// The destination of packets to it.
    pub destination: Destination,
    /// True for a switch or a server. All jobs that run on it too name the same address.
    pub serves_several: bool,
    /// The same of each further core of a worker, which has an address of its own.
    pub cores: Vec<(SocketAddr, Destination)>,
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
    /// The number of ports of further cores.
    core_ports: usize,
}

impl Ports {
    /// The port of a remote address; [`PortId::UNKNOWN`] for unknown addresses.
    pub fn of(&self, address: SocketAddr) -> PortId {
        self.by_address.get(&key_of(address)).copied().unwrap_or(PortId::UNKNOWN)
    }

    /// The port of the worker whose core has a port. Of other ports, the port itself.
    #[inline]
    pub fn worker_at(&self, port: PortId) -> PortId {
        if self.core_ports == 0 {
            return port;
        }
        self.entry(port).and_then(|entry| entry.worker).unwrap_or(port)
    }

    /// The port of the core that drives a share of the slots of the worker at a port.
    #[inline]
    pub fn core_of(&self, port: PortId, share: u16) -> PortId {
        match self.entry(port).filter(|entry| share > 0 && !entry.cores.is_empty()) {
            Some(Port { cores, .. }) => match usize::from(share) % (1 + cores.len()) {
                0 => port,
                core => cores[core - 1],
            },
            None => port,
        }
    }

    fn entry(&self, port: PortId) -> Option<&Port> {
        self.ports.get(port.index())?.as_ref()
    }

    /// The destination of a port.
    pub fn destination(&self, port: PortId) -> Option<&Destination> {
        self.entry(port)?.destination.as_ref()
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
        let addresses: usize = members.iter().map(|member| 1 + member.cores.len()).sum();
        if addresses > PortId::UNKNOWN.index() - PortSet::CAPACITY - self.used() {
            return None;
        }
        let first = if shares { 0 } else { PortSet::CAPACITY as u16 };
        let add = |Member { address, destination, serves_several, cores }| {
            let owner = if serves_several { Owner::Switch } else { Owner::Worker(group) };
            let worker = self.add(address, owner, destination, PortId(first));
            self.add_cores(worker, owner, cores);
            worker
        };
        let ports: Vec<PortId> = members.into_iter().map(add).collect();
        self.groups.insert(group, ports.clone());
        Some(ports)
    }

    fn add_cores(&mut self, worker: PortId, owner: Owner, cores: Vec<(SocketAddr, Destination)>) {
        for (address, destination) in cores {
            let core = self.add(address, owner, destination, PortId(PortSet::CAPACITY as u16));
            self.core_ports += 1;
            if let Some(entry) = &mut self.ports[core.index()] {
                entry.worker = Some(worker);
            }
            if let Some(entry) = &mut self.ports[worker.index()] {
                entry.cores.push(core);
            }
        }
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
        let members = self.groups.remove(&group).unwrap_or_default();
        let with_cores = members.iter().filter_map(|&port| self.entry(port));
        let cores: Vec<PortId> = with_cores.flat_map(|worker| worker.cores.iter().copied()).collect();
        self.core_ports -= cores.len();
        for port in members.into_iter().chain(cores).chain(uplink) {
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
        let (destination, cores) = (Some(destination), Vec::new());
        self.ports[port.index()] = Some(Port { key, owner, destination, jobs: 1, cores, worker: None });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::UdpPort;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn add(ports: &mut Ports, group: u16, members: &[SocketAddr], serves_several: bool) -> Vec<PortId> {
        let socket = UdpPort::open(address(0), 1 << 16, 1 << 16).unwrap();
        let destination = |address| socket.destination(address);
        let member =
            |&address| Member { address, destination: destination(address), serves_several, cores: Vec::new() };
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
        let member = |address| {
            let destination = socket.destination(address);
            Member { address, destination, serves_several: false, cores: Vec::new() }
        };
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
