//! What people and programs see of a fabric: its jobs' trees, cables, switches and counters, at each of two switches on the
//! loopback interface.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use crate::fabric::{dynamic, fabric, options, start, with_trees};
use crate::support::{PATIENCE, connect_options, ready, until};
use tributary_control::fabric::FabricFile;
use tributary_net::client;
use tributary_net::group::Group;
use tributary_net::status::{CableStatus, FabricSwitchStatus, SwitchStatus};
use tributary_net::switch_daemon::RunningSwitch;
use tributary_numeric::ReduceOp;
use tributary_proto::protocols;

/// Whatever a protocol counts is seen under its own names, at every switch and for every job, and by monitoring too.
#[test]
fn what_a_protocol_counts_reaches_status_and_metrics_of_every_switch() {
    for (number, protocol) in (40..).zip(protocols::ALL.iter().filter(|protocol| protocol.shared.is_some())) {
        let fabric = fabric(number, "0123456789abcdef");
        let (leaf, top) = (start(&fabric, "leaf"), start(&fabric, "top"));
        until(&leaf, "a greeting", ready);
        let group = Group::connect(&options(&leaf, protocol)).unwrap();
        for switch in [&leaf, &top] {
            until(switch, "the job", |status| !status.jobs.is_empty());
            let status = client::status(switch.listen_addr()).unwrap();
            let shared = status.switch.shared.iter().find(|shared| shared.protocol == protocol.name).unwrap();
            assert!(shared.bytes > 0 && shared.slots > 0 && !shared.metrics.is_empty(), "{shared:?}");
            let metrics = scrape(switch, "/metrics");
            let of_jobs = scrape(switch, "/metrics/jobs");
            for metric in &shared.metrics {
                let line = format!("\ntributary_{}_{}", protocol.name.replace('-', "_"), metric.name);
                assert!(metrics.contains(&line), "{line} in {metrics}");
            }
            for metric in &status.jobs[0].metrics {
                let line = format!("\ntributary_{}_job_{}", protocol.name.replace('-', "_"), metric.name);
                assert!(of_jobs.contains(&line), "{line} in {of_jobs}");
            }
        }
        group.close();
    }
}

/// What monitoring reads of a switch.
fn scrape(switch: &RunningSwitch, path: &str) -> String {
    let mut stream = TcpStream::connect(switch.listen_addr()).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: switch\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_port_to_a_switch_that_is_further_from_hosts_is_an_uplink() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!(
        "secret = \"0123456789abcdef\"\ncontroller = \"spine\"\nnetwork = \"127.77.9.0\"\nport = {free}\n[graph]\n\
         hosts = [\"here\", \"away\"]\nswitches = [\"leaf\", \"other\", \"spine\"]\n\
         links = [[\"here\", \"leaf\"], [\"away\", \"other\"], [\"leaf\", \"spine\"], \
         [\"other\", \"spine\"], [\"leaf\", \"other\"]]\n"
    );
    let leaf = start(&Arc::new(FabricFile::parse(&text).unwrap()), "leaf");
    let ports = client::status(leaf.listen_addr()).unwrap().switch.fabric.unwrap().ports;
    let uplinks: Vec<_> = ports.iter().map(|port| (port.peer.as_str(), port.uplink)).collect();
    assert_eq!(uplinks, [("here", false), ("spine", true), ("other", false)]);
}

#[test]
fn a_job_with_static_trees_is_planned_at_the_controller_and_its_trees_are_shown_everywhere() {
    let fabric = fabric(5, "0123456789abcdef");
    let (leaf, top) = (start(&fabric, "leaf"), start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    for integrity in ["none", "crc32c"] {
        let given = [("integrity".to_owned(), integrity.to_owned())].into();
        let mut options = options(&leaf, with_trees());
        options.options = with_trees().options.read(&given).unwrap();
        let group = Group::connect(&options).unwrap();
        let mut data: Vec<i32> = (0..10_000).collect();
        group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
        assert!(data.iter().copied().eq(0..10_000));
        for switch in [&top, &leaf] {
            let job = client::status(switch.listen_addr()).unwrap().jobs.remove(0);
            assert_eq!(
                (job.trees.len(), job.trees[0].root.as_str(), job.broken),
                (1, "leaf", None),
                "one rank, one switch"
            );
        }
        group.close();
        until(&leaf, "the removal", |status| status.jobs.is_empty());
    }
}

#[test]
fn the_controller_shows_every_switch_with_its_jobs_and_cables_and_which_does_not_answer() {
    let fabric = fabric(8, "0123456789abcdef");
    let (leaf, top) = (start(&fabric, "leaf"), start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    let group = Group::connect(&options(&leaf, with_trees())).unwrap();
    let of = |addr| client::status(addr).unwrap().switch.fabric.unwrap();
    let drawn = |status: &SwitchStatus| -> Vec<String> {
        let cable = |cable: &CableStatus| format!("{}:{}", cable.peer, if cable.up { "up" } else { "down" });
        let line = |one: &FabricSwitchStatus| {
            let cables: Vec<String> = one.cables.iter().map(cable).collect();
            format!("{} {} {:?} {}", one.node, one.silent.is_none(), one.jobs, cables.join(" "))
        };
        status.switch.fabric.iter().flat_map(|fabric| &fabric.switches).map(line).collect()
    };
    let other = Group::connect(&connect_options(leaf.listen_addr(), dynamic(), "other", 0, 1)).unwrap();
    let whole = ["leaf true [1, 2] here:up top:up", "top true [2] away:up leaf:up"];
    until(&top, "both switches", |status| drawn(status) == whole);
    let (at_leaf, at_top) = (of(leaf.listen_addr()), of(top.listen_addr()));
    assert!(at_leaf.switches.is_empty(), "the controller shows the fabric");
    assert_eq!(of(at_leaf.controller_addr).node, "top");
    assert_eq!(of(at_top.switches[0].control).node, "leaf");
    drop((group, other));
    leaf.stop();
    until(&top, "the loss of one", |status| {
        drawn(status).iter().any(|line| line.starts_with("leaf false") && line.ends_with("] "))
            && drawn(status).iter().any(|line| line.ends_with(" away:up leaf:down"))
    });
}
