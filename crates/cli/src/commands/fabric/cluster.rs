//! A fabric as namespaces and processes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tributary_control::fabric::FabricLayout;
use tributary_net::client;
use tributary_net::status::SwitchStatus;
use tributary_proto::contract::ids::NodeId;
use tributary_testbed::{CablePlan, Network, NetworkPlan, NodePlan, Shaping};

use super::ChosenFile;
use crate::cluster::{Interrupt, Process};
use crate::failure::Failure;
use crate::output::Table;
use crate::program::Program;

/// How long a program may take to say that it is ready, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the program looks at its children.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const MTU: u16 = 1_500;

/// A running fabric.
pub struct FabricCluster {
    pub fabric: Arc<FabricLayout>,
    pub interrupt: Interrupt,
    program: Program,
    file: ChosenFile,
    // Before the network: processes end before their namespaces do.
    servers: Vec<Process>,
    switches: BTreeMap<NodeId, Process>,
    network: Network,
}

impl FabricCluster {
    /// Builds the namespaces and starts a daemon for each switch.
    pub fn open(
        program: &Program,
        fabric: Arc<FabricLayout>,
        file: ChosenFile,
        interrupt: &Interrupt,
    ) -> Result<FabricCluster, Failure> {
        let network = Network::build(network_plan(&fabric)?)?;
        let mut cluster = FabricCluster {
            fabric: Arc::clone(&fabric),
            interrupt: interrupt.clone(),
            program: program.clone(),
            file,
            servers: Vec::new(),
            switches: BTreeMap::new(),
            network,
        };
        for node in fabric.switches() {
            cluster.start(node)?;
        }
        for switch in cluster.switches.values_mut() {
            switch.next_line(START_TIMEOUT)?;
        }
        Ok(cluster)
    }

    fn start(&mut self, node: NodeId) -> Result<(), Failure> {
        let mut command = self.command(node)?;
        command.args(["switch", "--node", self.fabric.name(node), "--json"]).args(self.file.flags());
        let process = Process::spawn(format!("switch {}", self.fabric.name(node)), command, &self.interrupt)?;
        self.switches.insert(node, process);
        Ok(())
    }

    /// Offers a server on each host that the file names for that; returns when the fabric knows all of them.
    pub fn start_servers(&mut self) -> Result<(), Failure> {
        for &host in &Arc::clone(&self.fabric).servers {
            let leaf = self.fabric.udp(self.fabric.leaf_of(host)).to_string();
            let mut command = self.command(host)?;
            command.args(["ps", "--switch", &leaf, "--json"]);
            self.servers.push(Process::spawn(
                format!("server on {}", self.fabric.name(host)),
                command,
                &self.interrupt,
            )?);
        }
        self.servers.iter_mut().try_for_each(|server| server.next_line(START_TIMEOUT).map(drop))
    }

    /// This program where a node is; the caller adds the subcommand.
    pub fn command(&self, node: NodeId) -> Result<Command, Failure> {
        let mut command = self.network.node(node.index()).command(&self.program.words()[0])?;
        command.args(&self.program.words()[1..]).env_remove("TRIBUTARY_SWITCH");
        Ok(command)
    }

    /// The fabric's file, for programs that need it.
    pub fn file(&self) -> &Path {
        &self.file.path
    }

    /// Kills a switch with SIGKILL.
    pub fn kill(&mut self, node: NodeId) {
        self.switches.remove(&node);
    }

    /// Starts a killed switch again, and waits until it listens.
    pub fn restart(&mut self, node: NodeId) -> Result<(), Failure> {
        self.start(node)?;
        self.switches.get_mut(&node).map_or(Ok(()), |switch| switch.next_line(START_TIMEOUT).map(drop))
    }

    /// The status of a switch.
    pub fn status(&self, node: NodeId) -> Result<SwitchStatus, Failure> {
        let control = self.fabric.nodes[node.index()].control;
        let control = control.ok_or_else(|| Failure::new(format!("{} is not a switch", self.fabric.name(node))))?;
        Ok(self.network.control().inside(|| client::status(control))??)
    }

    /// The status of every running switch.
    pub fn all_status(&self) -> Result<Vec<SwitchStatus>, Failure> {
        self.switches.keys().map(|&node| self.status(node)).collect()
    }

    /// Waits until every switch knows the jobs and has received from its neighbours.
    pub fn wait_ready(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            self.interrupt.check()?;
            let all = self.all_status()?;
            let fabrics = || all.iter().filter_map(|status| status.switch.fabric.as_ref());
            let unready = fabrics().find(|fabric| !fabric.ready || fabric.ports.iter().any(|port| !port.up));
            match unready {
                None => return Ok(()),
                Some(fabric) if Instant::now() >= deadline => {
                    return Err(Failure::new(format!(
                        "switch {} does not receive from all of its neighbours",
                        fabric.node
                    )));
                }
                Some(_) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Waits until a signal asks the program to stop, or a switch has ended by itself.
    pub fn wait_for_the_end(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        while !interrupt.is_set() {
            for process in self.switches.values_mut().chain(&mut self.servers) {
                process.check_alive()?;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The namespace of each node, as shell variables.
    pub fn namespaces(&self) -> Vec<(String, String)> {
        let variable = |name: &str| format!("NS_{}", name.replace(['-', '.'], "_"));
        let nodes = self.fabric.nodes.iter().enumerate();
        let nodes = nodes.map(|(node, plan)| (variable(&plan.name), self.network.node(node).name().to_owned()));
        nodes.chain([(variable("control"), self.network.control().name().to_owned())]).collect()
    }

    /// The addresses and namespaces of all nodes.
    pub fn describe(&self) -> Description {
        let nodes = self.fabric.nodes.iter().enumerate();
        let nodes = nodes.map(|(node, plan)| NodeDescription {
            name: plan.name.clone(),
            address: plan.address,
            control: plan.control.map(|control| control.to_string()),
            namespace: self.network.node(node).name().to_owned(),
            neighbours: self.fabric.ports[node].iter().map(|port| self.fabric.name(port.to).to_owned()).collect(),
        });
        Description {
            event: "ready",
            nodes: nodes.collect(),
            control_namespace: self.network.control().name().to_owned(),
            controller: self.fabric.name(self.fabric.controller).to_owned(),
        }
    }

    /// Ends servers and switches as an operator does, and fails if one did not end well.
    pub fn close(self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for process in self.servers.into_iter().chain(self.switches.into_values()) {
            outcome = outcome.and(process.terminate_regardless(START_TIMEOUT));
        }
        outcome
    }
}

fn network_plan(fabric: &FabricLayout) -> Result<NetworkPlan, Failure> {
    let v4 = |address: IpAddr| -> Result<Ipv4Addr, Failure> {
        match address {
            IpAddr::V4(address) => Ok(address),
            IpAddr::V6(address) => Err(Failure::new(format!("{address}: in namespaces, addresses are IPv4"))),
        }
    };
    let nodes = fabric.nodes.iter().map(|node| {
        let control = node.control.filter(|control| control.ip() != node.address);
        let control = control.map(|control| v4(control.ip())).transpose()?;
        Ok(NodePlan { name: node.name.clone(), address: v4(node.address)?, control })
    });
    let cables = fabric.cabling.cables.iter().zip(&fabric.cables).map(|(&(a, b), cable)| {
        // Switches keep to the rate by themselves; hosts get a shaper in place of a NIC.
        let shaping = |node: NodeId| match cable.bits_per_s {
            Some(rate) if !fabric.is_switch(node) => Shaping::BitsPerSecond(rate),
            _ => Shaping::Unshaped,
        };
        CablePlan { ends: [a.index(), b.index()], shaping: [shaping(a), shaping(b)] }
    });
    let nodes = nodes.collect::<Result<Vec<_>, Failure>>()?;
    Ok(NetworkPlan { nodes, cables: cables.collect(), mtu: MTU })
}

/// The addresses and namespaces of all nodes, for people and programs.
#[derive(Serialize)]
pub struct Description {
    event: &'static str,
    nodes: Vec<NodeDescription>,
    control_namespace: String,
    controller: String,
}

#[derive(Serialize)]
struct NodeDescription {
    name: String,
    address: IpAddr,
    control: Option<String>,
    namespace: String,
    neighbours: Vec<String>,
}

impl Description {
    /// A table, and instructions.
    pub fn render(&self) -> String {
        let mut table = Table::new(["NODE", "ADDRESS", "NAMESPACE", "CONTROL", "CONNECTED TO"]);
        for node in &self.nodes {
            table.row([
                node.name.clone(),
                node.address.to_string(),
                node.namespace.clone(),
                node.control.clone().unwrap_or_else(|| "-".to_string()),
                node.neighbours.join(" "),
            ]);
        }
        let controller =
            self.nodes.iter().find(|node| node.name == self.controller).and_then(|node| node.control.clone());
        format!(
            "{}\n\nJobs are formed at {}; every switch passes requests on to it.\n  ip netns exec {} tributary status \
             --switch {}\nHosts join a job with the commands that --print shows, each after `ip netns exec NAMESPACE`; --allreduce \
             lets all of\nthem sum. Runs until Ctrl-C.",
            table.render(),
            self.controller,
            self.control_namespace,
            controller.unwrap_or_default(),
        )
    }
}
