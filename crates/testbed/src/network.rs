//! Any network of namespaces: hosts and switches, each one address, and a veth pair for each cable.
//!
//! No kernel forwards packets: what a switch forwards, its program forwards. A node reaches its neighbours by host
//! routes over the cable to each. Switches reach each other's control addresses over a separate network, which carries
//! nothing else.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::TestbedError;
use crate::link::Shaping;
use crate::namespace::{self, Namespace};
use crate::offload;
use crate::star::requirements;
use crate::tool;

/// The most nodes of one network.
const MAX_NODES: usize = 4_096;
/// The control network's bridge, and every switch's interface to it.
const CONTROL_BRIDGE: &str = "control";
const CONTROL_DEVICE: &str = "ctl";

/// The description of a network.
#[derive(Clone, Debug)]
pub struct NetworkPlan {
    /// Hosts and switches.
    pub nodes: Vec<NodePlan>,
    /// Cables between two nodes each.
    pub cables: Vec<CablePlan>,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
}

/// One host or switch.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// The suffix of its namespace's name.
    pub name: String,
    /// Its address on every cable.
    pub address: Ipv4Addr,
    /// Its address on the control network, if it has one.
    pub control: Option<Ipv4Addr>,
}

/// One cable.
#[derive(Clone, Copy, Debug)]
pub struct CablePlan {
    /// The nodes at its ends.
    pub ends: [usize; 2],
    /// The shape of each end's outgoing traffic; programs may also shape their own.
    pub shaping: [Shaping; 2],
}

/// A network of namespaces; dropping it removes them with everything that runs in them.
#[derive(Debug)]
pub struct Network {
    plan: NetworkPlan,
    nodes: Vec<Namespace>,
    control: Namespace,
}

impl Network {
    /// Builds a network, after removing the remains of programs that were killed.
    pub fn build(plan: NetworkPlan) -> Result<Network, TestbedError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if plan.nodes.len() > MAX_NODES {
            return Err(TestbedError::Options(format!("a network has at most {MAX_NODES} nodes")));
        }
        requirements()?;
        namespace::remove_stale();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let named = |name: &str| Namespace::create_as(&format!("f{number}-{name}"));
        let control = named(CONTROL_BRIDGE)?;
        let nodes = plan.nodes.iter().map(|node| named(&node.name)).collect::<Result<Vec<_>, _>>()?;
        let network = Network { plan, nodes, control };
        network.wire()?;
        network.wire_control()?;
        Ok(network)
    }

    /// The namespace of a node, in which its programs run.
    pub fn node(&self, node: usize) -> &Namespace {
        &self.nodes[node]
    }

    /// The namespace from which every switch's control address can be reached.
    pub fn control(&self) -> &Namespace {
        &self.control
    }

    fn wire(&self) -> Result<(), TestbedError> {
        for (node, plan) in self.plan.nodes.iter().enumerate() {
            self.ip(node, &[format!("addr add {}/32 dev lo", plan.address)])?;
        }
        for (number, cable) in self.plan.cables.iter().enumerate() {
            self.lay(number, cable)?;
        }
        Ok(())
    }

    /// Lays one cable: devices, routes, and neighbours' hardware addresses, so that no ARP is needed.
    fn lay(&self, number: usize, cable: &CablePlan) -> Result<(), TestbedError> {
        let [a, b] = cable.ends;
        let (device, mtu) = (format!("c{number}"), self.plan.mtu);
        let far = self.nodes[b].name();
        self.ip(
            a,
            &[format!(
                "link add {device} mtu {mtu} address {} type veth peer name {device} mtu {mtu} address {} netns {far}",
                mac(number, 0),
                mac(number, 1)
            )],
        )?;
        for (end, (here, there)) in [(a, b), (b, a)].into_iter().enumerate() {
            let (own, peer) = (self.plan.nodes[here].address, self.plan.nodes[there].address);
            self.ip(
                here,
                &[
                    format!("link set {device} up"),
                    format!("route add {peer}/32 dev {device} src {own}"),
                    format!("neigh add {peer} lladdr {} dev {device} nud permanent", mac(number, 1 - end)),
                ],
            )?;
            if let Some(tbf) = cable.shaping[end].tbf() {
                let line = format!("qdisc replace dev {device} root handle 1: {tbf}\n");
                tool::feed("tc", &["-n", self.nodes[here].name(), "-batch", "-"], &line)?;
            }
            self.nodes[here].inside(|| offload::join_arriving(&device, false))??;
        }
        Ok(())
    }

    fn wire_control(&self) -> Result<(), TestbedError> {
        let members = || self.plan.nodes.iter().enumerate().filter_map(|(node, plan)| Some((node, plan.control?)));
        let mut lines = vec![format!("link add {CONTROL_BRIDGE} type bridge mcast_snooping 0")];
        // All switches can be reached from this namespace, which needs an address for their answers: the last of the
        // network.
        if let Some((_, some)) = members().next() {
            let last = Ipv4Addr::from(u32::from(some) | 0x3fff);
            lines.push(format!("addr add {}/18 dev {CONTROL_BRIDGE}", Ipv4Addr::from(u32::from(last) - 1)));
        }
        for (node, _) in members() {
            lines.push(format!(
                "link add p{node} type veth peer name {CONTROL_DEVICE} netns {}",
                self.nodes[node].name()
            ));
            lines.push(format!("link set p{node} master {CONTROL_BRIDGE} up"));
        }
        lines.push(format!("link set {CONTROL_BRIDGE} up"));
        batch(&self.control, &lines)?;
        for (node, address) in members() {
            self.ip(
                node,
                &[format!("addr add {address}/18 dev {CONTROL_DEVICE}"), format!("link set {CONTROL_DEVICE} up")],
            )?;
        }
        Ok(())
    }

    fn ip(&self, node: usize, lines: &[String]) -> Result<(), TestbedError> {
        batch(&self.nodes[node], lines)
    }
}

fn batch(namespace: &Namespace, lines: &[String]) -> Result<(), TestbedError> {
    tool::feed("ip", &["-n", namespace.name(), "-batch", "-"], &(lines.join("\n") + "\n")).map(drop)
}

/// A locally administered hardware address for each end of each cable.
fn mac(cable: usize, end: usize) -> String {
    let [high, low] = (cable as u16).to_be_bytes();
    format!("02:00:00:{high:02x}:{low:02x}:{end:02x}")
}
