//! The star: one bridge, N hosts.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::TestbedError;
use crate::faults::{self, Faults, FaultyEnd};
use crate::link::Shaping;
use crate::namespace::{self, Namespace};
use crate::tool;

/// How many hosts the addresses of one star suffice for.
const MAX_HOSTS: usize = 200;
/// The bridge, in the switch box.
const BRIDGE: &str = "br0";
/// Each host's interface.
const HOST_DEVICE: &str = "eth0";

/// The description of a star.
#[derive(Clone, Debug)]
pub struct StarOptions {
    /// How many hosts there are around the bridge, 1 to 200.
    pub hosts: usize,
    /// The shape of each link, in each direction.
    pub shaping: Shaping,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
    /// The faults of the links at the start.
    pub faults: Faults,
}

impl StarOptions {
    /// Links of 1,500-byte packets without faults.
    pub fn new(hosts: usize, shaping: Shaping) -> StarOptions {
        StarOptions { hosts, shaping, mtu: 1500, faults: Faults::default() }
    }
}

/// A star of namespaces; dropping it removes them with everything that runs in them.
#[derive(Debug)]
pub struct Star {
    options: StarOptions,
    /// The shape of each host's link.
    shaping: Vec<Shaping>,
    switch_box: Namespace,
    hosts: Vec<Namespace>,
    faulty_ends: Vec<FaultyEnd>,
}

/// Fails if no star can be built on this machine, and says why.
pub fn requirements() -> Result<(), TestbedError> {
    // SAFETY: geteuid takes nothing, returns a number and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Err(TestbedError::NotRoot);
    }
    tool::find_all()
}

impl Star {
    /// Builds a star, after removing the remains of programs that were killed.
    pub fn build(options: StarOptions) -> Result<Star, TestbedError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        options.faults.check()?;
        if !(1..=MAX_HOSTS).contains(&options.hosts) {
            return Err(TestbedError::Options(format!("a star has 1 to {MAX_HOSTS} hosts, not {}", options.hosts)));
        }
        requirements()?;
        namespace::remove_stale();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let switch_box = Namespace::create(number, "switch")?;
        let hosts = (0..options.hosts)
            .map(|host| Namespace::create(number, &format!("h{host}")))
            .collect::<Result<Vec<_>, _>>()?;
        let shaping = vec![options.shaping; options.hosts];
        let mut star = Star { options, shaping, switch_box, hosts, faulty_ends: Vec::new() };
        star.wire()?;
        star.set_faults(star.options.faults)?;
        Ok(star)
    }

    /// The star's description, with the present faults.
    pub fn options(&self) -> &StarOptions {
        &self.options
    }

    /// The namespace in which the daemon runs.
    pub fn switch_box(&self) -> &Namespace {
        &self.switch_box
    }

    /// The namespace in which a worker runs.
    pub fn host(&self, host: usize) -> &Namespace {
        &self.hosts[host]
    }

    /// The bridge's address, on which the daemon listens.
    pub fn switch_addr(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 1)
    }

    /// A host's address.
    pub fn host_addr(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 10 + host as u8)
    }

    /// The interface of every host.
    pub fn host_device(&self) -> &'static str {
        HOST_DEVICE
    }

    /// The bridge's end of a host's link.
    pub fn port_device(&self, host: usize) -> String {
        port(host)
    }

    /// Replaces the faults of every link.
    pub fn set_faults(&mut self, faults: Faults) -> Result<(), TestbedError> {
        faults.check()?;
        self.faulty_ends.clear();
        for (host, namespace) in self.hosts.iter().enumerate() {
            for (namespace, device) in [(namespace, HOST_DEVICE.to_string()), (&self.switch_box, port(host))] {
                self.faulty_ends.push(faults::apply(namespace, &device, self.shaping[host], &faults)?);
            }
        }
        self.options.faults = faults;
        Ok(())
    }

    /// Changes the rate of one host's link, each way.
    pub fn shape(&mut self, host: usize, shaping: Shaping) -> Result<(), TestbedError> {
        self.shaping[host] = shaping;
        self.set_faults(self.options.faults)
    }

    /// Lays cables and sets addresses, including every neighbour's hardware address: without ARP no loss can cost a
    /// second of waiting for a lost question. Only our own packets are on the links (no IPv6).
    fn wire(&self) -> Result<(), TestbedError> {
        let mtu = self.options.mtu;
        let mut lines = vec![
            format!("link add {BRIDGE} address {} type bridge mcast_snooping 0", mac(0)),
            format!("addr add {}/24 dev {BRIDGE}", self.switch_addr()),
        ];
        for (host, namespace) in self.hosts.iter().enumerate() {
            let port = port(host);
            lines.push(format!(
                "link add {port} mtu {mtu} type veth peer name {HOST_DEVICE} mtu {mtu} \
                 address {} netns {}",
                mac(host + 1),
                namespace.name()
            ));
            lines.push(format!("link set {port} master {BRIDGE} up"));
        }
        // Without this, the bridge takes the smallest MTU of its ports; an address set earlier stays.
        lines.push(format!("link set {BRIDGE} mtu {mtu} up"));
        for host in 0..self.hosts.len() {
            lines.push(format!(
                "neigh add {} lladdr {} dev {BRIDGE} nud permanent",
                self.host_addr(host),
                mac(host + 1)
            ));
        }
        ip_batch(&self.switch_box, &lines)?;
        for (host, namespace) in self.hosts.iter().enumerate() {
            let mut lines = vec![
                format!("addr add {}/24 dev {HOST_DEVICE}", self.host_addr(host)),
                format!("link set {HOST_DEVICE} up"),
                format!("neigh add {} lladdr {} dev {HOST_DEVICE} nud permanent", self.switch_addr(), mac(0)),
            ];
            for other in (0..self.hosts.len()).filter(|&other| other != host) {
                lines.push(format!(
                    "neigh add {} lladdr {} dev {HOST_DEVICE} nud permanent",
                    self.host_addr(other),
                    mac(other + 1)
                ));
            }
            ip_batch(namespace, &lines)?;
        }
        Ok(())
    }
}

/// The bridge's end of a host's link.
fn port(host: usize) -> String {
    format!("p{host}")
}

/// A locally administered hardware address: the bridge's is number 0.
pub(crate) fn mac(number: usize) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

pub(crate) fn ip_batch(namespace: &Namespace, lines: &[String]) -> Result<(), TestbedError> {
    tool::feed("ip", &["-n", namespace.name(), "-batch", "-"], &(lines.join("\n") + "\n")).map(drop)
}
