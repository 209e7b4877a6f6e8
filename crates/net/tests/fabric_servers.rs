//! Servers on hosts of their own in a fabric of two switches on the loopback interface: offered at a leaf, given to jobs at the
//! controller, and told by name when they are gone. The one rank has the address from which this machine speaks to itself; the server
//! is the host behind the other switch.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{PATIENCE, connect_options, ready, sum_many_sizes, until};
use tributary_control::fabric::{FabricFile, FabricLayout};
use tributary_net::client;
use tributary_net::group::{ConnectOptions, Group, GroupError};
use tributary_net::server::{RunningServer, ServerOptions};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::ids::ServerId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

/// Nobody waits for this in a test that passes.
const AGES: Duration = Duration::from_secs(3_600);

/// A leaf with a rank's host, and the controller with a server's. `number` keeps tests that run at the same time apart.
struct Both {
    fabric: Arc<FabricLayout>,
    leaf: RunningSwitch,
    top: RunningSwitch,
}

fn start(fabric: &Arc<FabricLayout>, name: &str) -> RunningSwitch {
    let node = fabric.node_named(name).unwrap();
    RunningSwitch::start(&SwitchOptions::in_fabric(Arc::clone(fabric), node)).unwrap()
}

impl Both {
    fn start(number: u8, servers: &str) -> Both {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!(
            "secret = \"0123456789abcdef\"\ncontroller = \"top\"\nnetwork = \"127.78.{number}.0\"\nport = {}\n{servers}\n\
             [graph]\nhosts = [\"here\", \"away\", \"other\"]\nswitches = [\"leaf\", \"top\"]\n\
             links = [[\"here\", \"leaf\"], [\"away\", \"top\"], [\"other\", \"top\"], [\"leaf\", \"top\"]]\n\
             [addresses]\nhere = \"127.0.0.1\"\n",
            free.local_addr().unwrap().port()
        );
        let fabric = Arc::new(FabricFile::parse(&text).unwrap());
        let both = Both { leaf: start(&fabric, "leaf"), top: start(&fabric, "top"), fabric };
        until(&both.leaf, "a greeting", ready);
        both
    }

    /// A server on a host, which offers itself at the leaf.
    fn offer(&self, host: &str, port: u16) -> Result<RunningServer, String> {
        let node = self.fabric.node_named(host).unwrap();
        let listen = SocketAddr::new(self.fabric.nodes[node.index()].address, port);
        RunningServer::start(&ServerOptions::new(self.leaf.listen_addr(), listen)).map_err(|error| error.to_string())
    }

    fn options(&self, protocol: &'static Protocol, job: &str) -> ConnectOptions {
        connect_options(self.leaf.listen_addr(), protocol, job, 0, 1)
    }
}

/// The protocols whose jobs share a switch's memory and can have servers of their own.
fn served() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.shared.as_ref().is_some_and(|own| own.server.is_some()))
}

#[test]
fn servers_on_offer_sum_for_a_fabrics_jobs_and_every_switch_shows_them() {
    let both = Both::start(1, "servers = [\"away\", \"other\"]");
    let servers = [both.offer("away", 0).unwrap(), both.offer("other", 0).unwrap()];
    let addrs: Vec<SocketAddr> = servers.iter().map(RunningServer::udp_addr).collect();
    for protocol in served() {
        let groups = ["a", "b"].map(|job| Group::connect(&both.options(protocol, job)).unwrap());
        for group in &groups {
            assert_eq!(group.info().servers, addrs, "{protocol}");
            sum_many_sizes(group, 0, PATIENCE);
            let host = group.stats().unwrap().host;
            assert!(host.blocks_at_hosts > 0 && host.blocks_in_network == 0, "{protocol}: one rank meets nobody");
        }
        let controller = client::status(both.top.listen_addr()).unwrap();
        let offered =
            controller.switch.servers.iter().map(|server| (server.addr, server.state.as_str(), server.jobs.len()));
        assert!(offered.eq(addrs.iter().map(|&addr| (addr, "present", 2))), "{:?}", controller.switch.servers);
        assert!(
            controller.jobs.iter().all(|job| job.servers.iter().map(|server| server.addr).eq(addrs.iter().copied()))
        );
        groups.into_iter().for_each(Group::close);
        until(&both.leaf, "the removal", |status| status.jobs.is_empty());
    }
    drop(servers);
    // The next job has its servers with its ranks.
    for protocol in served() {
        let group = Group::connect(&both.options(protocol, "without")).unwrap();
        assert!(group.info().servers.is_empty());
        sum_many_sizes(&group, 0, PATIENCE);
        group.close();
    }
}

#[test]
fn a_server_that_ends_is_named() {
    let both = Both::start(2, "servers = [\"away\", \"other\"]");
    for protocol in served() {
        let (stays, ends) = (both.offer("away", 0).unwrap(), both.offer("other", 0).unwrap());
        let gone = ends.udp_addr();
        let group = Group::connect(&both.options(protocol, "without")).unwrap();
        sum_many_sizes(&group, 0, PATIENCE);
        ends.stop();
        let failed = group.allreduce_in_place(&mut vec![1i32; 200_000], ReduceOp::Sum, AGES).unwrap_err();
        let GroupError::PeerLost { failure: news, .. } = &failed else { panic!("{failed}") };
        assert_eq!(news.servers(), [ServerId(1)]);
        assert!(failed.to_string().contains(&format!("server 1 ({gone}) is gone")), "{failed}");
        drop(group);
        stays.stop();
        until(&both.top, "the end of the offers", |status| {
            status.switch.servers.iter().all(|server| server.state != "present")
        });
    }
}

#[test]
fn a_controller_that_is_started_again_finds_a_jobs_servers_and_gives_them_the_next() {
    let both = Both::start(3, "servers = [\"away\"]");
    let server = both.offer("away", 0).unwrap();
    let protocol = served().next().expect("one of them has servers");
    let group = Group::connect(&both.options(protocol, "old")).unwrap();
    sum_many_sizes(&group, 0, PATIENCE);
    let Both { fabric, leaf, top } = both;
    top.stop();
    let top = start(&fabric, "top");
    until(&top, "the server, with its job", |status| {
        let serves = |server: &tributary_net::status::ServerStatus| server.state == "present" && server.jobs == ["old"];
        ready(status) && status.switch.servers.iter().any(serves) && status.jobs.len() == 1
    });
    sum_many_sizes(&group, 0, PATIENCE);
    let both = Both { fabric, leaf, top };
    let next = Group::connect(&both.options(protocol, "new")).unwrap();
    assert_eq!(next.info().servers, [server.udp_addr()]);
    sum_many_sizes(&next, 0, PATIENCE);
    next.close();
    group.close();
}

#[test]
fn who_may_not_serve_is_refused_with_a_sentence() {
    let both = Both::start(4, "servers = [\"away\", \"here\"]");
    let refused = both.offer("other", 0).err().expect("the file does not name it");
    assert!(refused.contains("from the hosts that its file names (servers = [...]: away, here)"), "{refused}");
    let _first = both.offer("away", 0).unwrap();
    let second = both.offer("away", 0).err().expect("one is there");
    assert!(second.contains("a host of a fabric has one server"), "{second}");
    let _beside = both.offer("here", 0).unwrap();
    let protocol = served().next().expect("one of them has servers");
    let refused = Group::connect(&both.options(protocol, "both")).map(drop).unwrap_err().to_string();
    assert!(refused.contains("rank 0 and server 0 are both on here"), "{refused}");
    assert!(refused.contains("one rank or one server on a host of a fabric"), "{refused}");
}
