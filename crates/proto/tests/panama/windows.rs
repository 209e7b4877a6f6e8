//! Windows (§4.2.2, figure 5): results are acknowledgements, marks and room in accelerators travel with them, and all
//! ranks come to the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{Below, HostConfig, JobConfig};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Collective, Host, HostEvent, HostStats, SubmitError};
use tributary_proto::contract::ids::{OpId, Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Packet, Transmit};
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::panama::PanamaHost;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{expected, pipelines, reduce};
use crate::setup::{controls, floats, job, options, retransmissions};

/// Of one tree at one rank: the window by the VID whose result was the last in order.
type Log = Arc<Mutex<BTreeMap<(u16, u64), f64>>>;

/// A worker whose windows are looked at after every packet.
struct Watched {
    machine: PanamaHost,
    trees: u16,
    log: Log,
}

impl Host for Watched {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        self.machine.submit(now, collective)
    }
    fn handle_packet(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let outcome = self.machine.handle_packet(now, from, packet);
        for tree in 0..self.trees {
            let (window, done) = self.machine.window(TreeId(tree)).unwrap();
            self.log.lock().unwrap().insert((tree, done), window.size());
        }
        outcome
    }
    fn handle_timeout(&mut self, now: Time) {
        self.machine.handle_timeout(now)
    }
    fn abort(&mut self, now: Time) {
        self.machine.abort(now)
    }
    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        self.machine.poll_transmit(now, buf)
    }
    fn poll_event(&mut self) -> Option<HostEvent> {
        self.machine.poll_event()
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.machine.poll_timeout()
    }
    fn max_packet_len(&self) -> usize {
        self.machine.max_packet_len()
    }
    fn stats(&self) -> &HostStats {
        self.machine.stats()
    }
}

/// A star whose workers are watched.
fn watched(seed: u64, link: LinkConfig, job: &JobConfig) -> (Network, Vec<Log>) {
    let logs: Vec<Log> = (0..job.world_size).map(|_| Log::default()).collect();
    let host = |rank: u16| -> Box<dyn Host> {
        let config = HostConfig::worker(job.clone(), Rank(rank));
        let (machine, log) = (PanamaHost::new(Values::Elements, &config), logs[usize::from(rank)].clone());
        Box::new(Watched { machine, trees: job.trees, log })
    };
    let hosts = (0..job.world_size).map(host).collect();
    (Network::star(seed, link, hosts, pipelines(job, &Below::workers(job.world_size), None)), logs)
}

fn windows(log: &Log) -> BTreeMap<(u16, u64), f64> {
    log.lock().unwrap().clone()
}

fn marked(network: &Network) -> u64 {
    network.hosts.iter().map(|host| host.port.link.counts.marked).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(36))]

    /// Whatever queues mark on the way up, however fast each rank's link is, and whatever decides the windows.
    #[test]
    fn windows_are_equal_at_equal_vids_on_all_ranks(
        rates in prop::collection::vec(1..20u64, 2..6),
        marks_from in 200..4_000u64,
        trees in 1..4u16,
        capacity in 1..80u16,
        control in prop::sample::select(controls()),
    ) {
        let world_size = rates.len() as u16;
        let options = options(&[("congestion_control", control)]);
        let job = JobConfig { options, ..job(world_size, trees, capacity, 16) };
        let (mut network, logs) = watched(1, LinkConfig::default(), &job);
        for (host, rate) in network.hosts.iter_mut().zip(&rates) {
            host.port.link.config.rate_bps = rate * 50_000_000;
            host.port.link.config.mark_bytes = marks_from;
        }
        let inputs: Vec<Vec<f32>> = (0..rates.len()).map(|rank| floats(rank, 6_000)).collect();
        reduce(&mut network, &inputs, ReduceOp::Sum);
        let first = windows(&logs[0]);
        for log in &logs {
            prop_assert_eq!(&windows(log), &first);
        }
        prop_assert!(first.values().all(|&size| size >= 1.0 && size <= f64::from(capacity)));
    }
}

#[test]
fn a_marked_way_up_holds_the_window_of_all_ranks_down() {
    let job = job(3, 1, 256, 64);
    let inputs: Vec<Vec<f32>> = (0..3).map(|rank| floats(rank, 60_000)).collect();
    let run = |marks_from| {
        let (mut network, logs) = watched(1, LinkConfig::default(), &job);
        network.hosts[1].port.link.config.mark_bytes = marks_from;
        reduce(&mut network, &inputs, ReduceOp::Sum);
        let largest = windows(&logs[2]).values().copied().fold(0.0, f64::max);
        (largest, marked(&network))
    };
    let (free, no_marks) = run(u64::MAX);
    let (marked_size, marks) = run(4_000);
    assert!(no_marks == 0 && marks > 0);
    assert!(marked_size < free / 2.0, "{marked_size} packets with marks, {free} without");
}

/// Where averages may lack ranks, a job begins with an epoch, which is not a loss. Of three ranks 15/16 are all.
#[test]
fn a_tree_that_begins_with_an_epoch_has_the_windows_of_any_other() {
    let inputs: Vec<Vec<f32>> = (0..3).map(|rank| floats(rank, 10_000)).collect();
    let run = |partial| {
        let job = JobConfig { levels: true, options: options(&[("partial", partial)]), ..job(3, 1, 256, 64) };
        let (mut network, logs) = watched(1, LinkConfig::default(), &job);
        reduce(&mut network, &inputs, ReduceOp::Avg);
        let mut sizes = windows(&logs[0]);
        sizes.retain(|&(_, done), _| done > 0);
        sizes
    };
    let sizes = run("15/16");
    assert_eq!(sizes, run("off"));
    assert_eq!(sizes[&(0, 2 + 4 + 8 + 16 + 32)], 64.0, "slow start");
}

/// Marks are also set where results go down, so results must leave capable of them. The slowest rank then paces all.
#[test]
fn a_mark_on_the_way_down_is_obeyed() {
    let (mut network, logs) = watched(1, LinkConfig::default(), &job(3, 1, 256, 64));
    network.switches[0].ports[1].link.config.rate_bps = 200_000_000;
    network.switches[0].ports[1].link.config.mark_bytes = 2_000;
    let inputs: Vec<Vec<f32>> = (0..3).map(|rank| floats(rank, 60_000)).collect();
    let sum = reduce(&mut network, &inputs, ReduceOp::Sum);
    assert!(sum == expected(&inputs, ReduceOp::Sum, &SumTree::star(3)));
    assert!(network.switches[0].ports[1].link.counts.marked > 0);
    let largest = |rank: usize| windows(&logs[rank]).values().copied().fold(0.0, f64::max);
    assert!(largest(1) < largest(0), "{} at rank 1, {} at rank 0", largest(1), largest(0));
    assert_eq!(retransmissions(&network), 0);
}

/// Two accelerators of different memory: the lesser one's room caps all windows.
#[test]
fn the_least_capacity_of_the_tree_caps_every_window() {
    let wide = JobConfig { levels: true, ..job(4, 1, 64, 16) };
    let narrow = JobConfig { slots: 5, ..wide.clone() };
    let mut network = crate::setup::racks_of(1, LinkConfig::default(), 2, &wide, &[&wide, &wide, &narrow]);
    let inputs: Vec<Vec<f32>> = (0..4).map(|rank| floats(rank, 10_000)).collect();
    let sum = reduce(&mut network, &inputs, ReduceOp::Sum);
    assert!(sum == expected(&inputs, ReduceOp::Sum, &crate::setup::reference_of_racks(2, 4)));
    for switch in &network.switches {
        let drops = switch.pipelines[0].report(wide.job).unwrap().drops;
        assert_eq!(drops.get(DropReason::Overflow), 0);
    }
    assert_eq!(retransmissions(&network), 0, "no packet came where there was no room for it");
}

#[test]
fn without_congestion_control_a_window_is_the_capacity_of_accelerators() {
    let job = JobConfig { options: options(&[("congestion_control", "off")]), ..job(2, 2, 12, 64) };
    let (mut network, logs) = watched(1, LinkConfig::default(), &job);
    network.set_links(|link| link.mark_bytes = 0);
    let inputs: Vec<Vec<f32>> = (0..2).map(|rank| floats(rank, 20_000)).collect();
    reduce(&mut network, &inputs, ReduceOp::Sum);
    assert_eq!(marked(&network), 0, "who does not obey marks does not ask for them");
    // Before the first result nobody has told what there is room for.
    let is_right = |(&(_, done), &size): (&(u16, u64), &f64)| size == if done == 0 { 2.0 } else { 12.0 };
    assert!(windows(&logs[0]).iter().all(is_right), "{:?}", windows(&logs[0]));
}

#[test]
fn trees_send_strictly_in_turn_where_that_is_chosen() {
    for (round_robin, lags) in [("open", true), ("strict", false)] {
        let job = JobConfig { options: options(&[("round_robin", round_robin)]), ..job(2, 2, 64, 16) };
        // Tree 1 has less room.
        let narrow = JobConfig { slots: 2 * 2, ..job.clone() };
        let logs = (Log::default(), Log::default());
        let below = Below::workers(2);
        let mut both = pipelines(&job, &below, None);
        both[1] = pipelines(&narrow, &below, None).remove(1);
        let config = |rank| HostConfig::worker(job.clone(), Rank(rank));
        let host = |rank, log: &Log| -> Box<dyn Host> {
            Box::new(Watched { machine: PanamaHost::new(Values::Elements, &config(rank)), trees: 2, log: log.clone() })
        };
        let mut network = Network::star(1, LinkConfig::default(), vec![host(0, &logs.0), host(1, &logs.1)], both);
        for rank in 0..2 {
            network.submit(rank, crate::harness::reduction::in_place(&floats(rank, 16 * 400), ReduceOp::Sum)).unwrap();
        }
        network.run_until(Time(1_000_000_000));
        let done = |tree| windows(&logs.0).keys().filter(|key| key.0 == tree).map(|key| key.1).max().unwrap();
        assert!(done(1) < 200, "in the middle");
        assert_eq!(done(0) > done(1) + 20, lags, "{round_robin}: {} and {}", done(0), done(1));
    }
}
