//! The ports of a shard: remote UDP addresses that some job has named, and the groups to which jobs multicast.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::ids::{GroupId, PortId};

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
    /// The way to the address; `None` once the address belongs to another owner.
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
    /// The lowest free port is taken first, because some machines tell only the first ports apart.
    free: BTreeSet<PortId>,
    by_address: HashMap<(IpAddr, u16), PortId>,
    groups: BTreeMap<GroupId, Vec<PortId>>,
    /// The ports to the switches above, by the group of their job.
    uplinks: BTreeMap<GroupId, PortId>,
}

impl Ports {
    /// The port of a remote address; [`PortId::UNKNOWN`] for strangers.
    pub fn of(&self, address: SocketAddr) -> PortId {
        self.by_address.get(&key_of(address)).copied().unwrap_or(PortId::UNKNOWN)
    }

    /// The destination of a port.
    pub fn destination(&self, port: PortId) -> Option<&Destination> {
        self.ports.get(port.index())?.as_ref()?.destination.as_ref()
    }

    /// Sets the longest packet that reaches the remote behind a port, as that remote says.
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

    /// The switch above a group, if there is one.
    pub fn above(&self, group: GroupId) -> Option<&Destination> {
        self.destination(*self.uplinks.get(&group)?)
    }

    /// Names the members of a group, by rank; `None` if no ports are left, and then nothing has changed.
    pub fn add_group(&mut self, group: GroupId, members: Vec<Member>) -> Option<Vec<PortId>> {
        self.remove_group(group);
        if members.len() > PortId::UNKNOWN.index() - self.used() {
            return None;
        }
        let add = |Member { address, destination, serves_several }| {
            let owner = if serves_several { Owner::Switch } else { Owner::Worker(group) };
            self.add(address, owner, destination)
        };
        let ports: Vec<PortId> = members.into_iter().map(add).collect();
        self.groups.insert(group, ports.clone());
        Some(ports)
    }

    /// Names the switch above a group; `None` if no ports are left.
    pub fn add_uplink(&mut self, group: GroupId, above: SocketAddr, destination: Destination) -> Option<PortId> {
        if self.used() >= PortId::UNKNOWN.index() {
            return None;
        }
        let port = self.add(above, Owner::Switch, destination);
        self.uplinks.insert(group, port);
        Some(port)
    }

    /// Forgets a group and its uplink, and their addresses if no other group names them; returns the ports of these
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
    /// gone, because two sockets are never bound to one address.
    fn add(&mut self, address: SocketAddr, owner: Owner, destination: Destination) -> PortId {
        let key = key_of(address);
        if let Some(&port) = self.by_address.get(&key) {
            let used = self.ports[port.index()].as_mut().expect("a named port is in use");
            if used.owner == owner {
                // A switch has one socket, and asks from it at the address that it uses now. The way there is the same
                // as before.
                let destination = destination.with_limit_of(used.destination.as_ref());
                (used.jobs, used.destination) = (used.jobs + 1, Some(destination));
                return port;
            }
            used.destination = None;
        }
        let port = self.free.pop_first().unwrap_or_else(|| {
            self.ports.push(None);
            PortId((self.ports.len() - 1) as u16)
        });
        self.ports[port.index()] = Some(Port { key, owner, destination: Some(destination), jobs: 1 });
        self.by_address.insert(key, port);
        port
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
        ports.add_group(GroupId(group), members.iter().map(member).collect()).unwrap()
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
    fn a_stranger_gets_no_port_and_a_mapped_address_is_the_same_as_the_plain_one() {
        let mut ports = Ports::default();
        let member = add(&mut ports, 1, &[address(5)], false)[0];
        assert_eq!(ports.of("[::ffff:127.0.0.1]:5".parse().unwrap()), member);
        assert_eq!(ports.of(address(7)), PortId::UNKNOWN);
    }
}
