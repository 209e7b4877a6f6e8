//! The whole fabric as its controller sees it: `tributary status` and `top` at the controller, and `tributary status --tree`
//! at any of its switches.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::Serialize;
use tributary_net::client::ClientError;
use tributary_net::status::{CableStatus, FabricStatus, FabricSwitchStatus, JobStatus, SwitchStatus};

use crate::output::{Table, first_names};

/// A fabric.
#[derive(Debug, Serialize)]
pub struct Fabric {
    /// The switch where jobs are formed.
    pub controller: String,
    /// Its control API.
    pub controller_addr: SocketAddr,
    /// All switches, those that are furthest from hosts first.
    pub switches: Vec<FabricSwitchStatus>,
    /// The names of jobs, by id.
    pub jobs: BTreeMap<u16, String>,
}

/// The fabric that a switch is in, as the controller sees it; `None` if the switch is in none. `ask` is for the controller,
/// which the operator has chosen with the switch: its address is from the fabric's file.
pub fn of(
    status: &SwitchStatus,
    ask: impl Fn(SocketAddr) -> Result<SwitchStatus, ClientError>,
) -> Result<Option<Fabric>, ClientError> {
    let Some(own) = &status.switch.fabric else { return Ok(None) };
    if own.node == own.controller {
        return Ok(Some(Fabric::new(own, &status.jobs)));
    }
    let controller = ask(own.controller_addr)?;
    Ok(controller.switch.fabric.as_ref().map(|fabric| Fabric::new(fabric, &controller.jobs)))
}

/// The lines for the fabric at its controller; none elsewhere.
pub fn at_controller(status: &SwitchStatus) -> Vec<String> {
    let fabric = status.switch.fabric.as_ref().filter(|fabric| fabric.node == fabric.controller);
    let drawn = fabric.map(|fabric| Fabric::new(fabric, &status.jobs).draw());
    drawn.into_iter().flat_map(|lines| std::iter::once(String::new()).chain(lines)).collect()
}

impl Fabric {
    /// What the controller shows.
    pub fn new(controller: &FabricStatus, jobs: &[JobStatus]) -> Fabric {
        Fabric {
            controller: controller.controller.clone(),
            controller_addr: controller.controller_addr,
            switches: controller.switches.clone(),
            jobs: jobs.iter().filter_map(|job| Some((job.id?, job.name.clone()))).collect(),
        }
    }

    /// A table of the switches, and what is dead.
    pub fn draw(&self) -> Vec<String> {
        let mut table = Table::new(["SWITCH", "ANSWERS", "CABLES", "IN GBIT/S", "OUT GBIT/S", "DROPPED", "JOBS"]);
        for switch in &self.switches {
            let sum = |rate: fn(&CableStatus) -> f64| switch.cables.iter().fold(0.0, |sum, cable| sum + rate(cable));
            let up = switch.cables.iter().filter(|cable| cable.up).count();
            let known = |text: String| if switch.silent.is_some() { "-".to_owned() } else { text };
            table.row([
                switch.node.clone(),
                if switch.silent.is_some() { "NO" } else { "yes" }.to_owned(),
                known(format!("{up}/{}", switch.cables.len())),
                known(format!("{:.2}", sum(|cable| cable.rx_gbps))),
                known(format!("{:.2}", sum(|cable| cable.tx_gbps))),
                known(switch.cables.iter().map(|cable| cable.tx_drops).sum::<u64>().to_string()),
                self.jobs_of(switch),
            ]);
        }
        let count = self.switches.len();
        let about = format!("fabric of {count} switches, jobs are formed at {}", self.controller);
        let mut lines = vec![about, String::new(), table.render()];
        lines.extend(self.dead());
        lines
    }

    fn jobs_of(&self, switch: &FabricSwitchStatus) -> String {
        let names: Vec<&str> = switch.jobs.iter().filter_map(|id| self.jobs.get(id).map(String::as_str)).collect();
        first_names(&names)
    }

    /// A line for each switch that does not answer, and for each dead cable between switches that do.
    fn dead(&self) -> Vec<String> {
        let silent = self.switches.iter().filter_map(|switch| {
            Some(format!("switch {} DOES NOT ANSWER the controller: {}", switch.node, switch.silent.as_ref()?))
        });
        let answers = |node: &str| !self.switches.iter().any(|switch| switch.node == node && switch.silent.is_some());
        let ends = self.switches.iter().flat_map(|switch| switch.cables.iter().map(move |cable| (switch, cable)));
        let dead = ends.filter(|(_, cable)| !cable.up && answers(&cable.peer)).map(|(switch, cable)| {
            let (one, other) = (switch.node.as_str(), cable.peer.as_str());
            (one.min(other), one.max(other))
        });
        let dead: BTreeSet<(&str, &str)> = dead.collect();
        silent.chain(dead.into_iter().map(|(one, other)| format!("the cable from {one} to {other} IS DEAD"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::status::testing;

    fn cable(peer: &str, up: bool) -> CableStatus {
        CableStatus { peer: peer.into(), up, tx_gbps: 0.25, rx_gbps: 0.5, tx_drops: 3 }
    }

    fn switch(node: &str, silent: Option<&str>, cables: Vec<CableStatus>) -> FabricSwitchStatus {
        let (level, silent) = (1 + u8::from(node.starts_with("spine")), silent.map(str::to_owned));
        let control = ([10, 0, 0, 1], 1).into();
        FabricSwitchStatus { node: node.into(), level, control, silent, jobs: (1..7).collect(), cables }
    }

    fn fabric_status(node: &str, switches: Vec<FabricSwitchStatus>) -> SwitchStatus {
        let fabric = FabricStatus {
            node: node.into(),
            controller: "spine0".into(),
            controller_addr: ([10, 0, 0, 1], 2).into(),
            ready: true,
            controller_silent_s: None,
            ports: Vec::new(),
            switches,
        };
        let mut status = testing::status(vec![testing::job("sum", 2)]);
        status.switch.fabric = Some(fabric);
        status
    }

    #[test]
    fn a_fabric_is_the_same_from_its_controller_and_from_a_leaf_and_a_switch_that_is_in_none_has_none() {
        let controller = || fabric_status("spine0", vec![switch("spine0", None, Vec::new())]);
        let from_leaf = of(&fabric_status("leaf0", Vec::new()), |switch| {
            assert_eq!(switch, ([10, 0, 0, 1], 2).into());
            Ok(controller())
        });
        let from_controller = of(&controller(), |_| panic!("it has answered already"));
        let [one, other] = [from_leaf, from_controller].map(|fabric| fabric.unwrap().unwrap().draw());
        assert_eq!((one.len(), &one), (3, &other));
        assert_eq!(at_controller(&controller())[1..], one);
        assert_eq!(at_controller(&fabric_status("leaf0", Vec::new())), [""; 0]);
        assert!(of(&testing::status(Vec::new()), |_| panic!("a switch of a star has a controller")).unwrap().is_none());
    }

    #[test]
    fn a_fabric_is_one_table_and_what_is_dead_is_said_once() {
        let switches = vec![
            switch("spine0", None, vec![cable("leaf0", true), cable("leaf1", false)]),
            switch("spine1", Some("10.0.0.1:1 does not answer"), Vec::new()),
            switch("leaf0", None, vec![cable("spine0", true), cable("spine1", false)]),
            switch("leaf1", None, vec![cable("spine0", false), cable("spine1", false)]),
        ];
        let jobs = (1..7).map(|id| (id, format!("job{id}"))).collect();
        let controller_addr = ([10, 0, 0, 1], 2).into();
        let fabric = Fabric { controller: "spine0".into(), controller_addr, switches, jobs };
        let text = fabric.draw().join("\n");
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "fabric of 4 switches, jobs are formed at spine0",
                "",
                "SWITCH  ANSWERS  CABLES  IN GBIT/S  OUT GBIT/S  DROPPED  JOBS",
                "spine0  yes      1/2     1.00       0.50        6        job1, job2, job3, job4 and 2 more",
                "spine1  NO       -       -          -           -        job1, job2, job3, job4 and 2 more",
                "leaf0   yes      1/2     1.00       0.50        6        job1, job2, job3, job4 and 2 more",
                "leaf1   yes      0/2     1.00       0.50        6        job1, job2, job3, job4 and 2 more",
                "switch spine1 DOES NOT ANSWER the controller: 10.0.0.1:1 does not answer",
                "the cable from leaf1 to spine0 IS DEAD",
            ]
        );
    }
}
