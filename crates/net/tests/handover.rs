//! A switch gets a new program while ranks sum as fast as they can: no collective fails. Real sockets on the loopback
//! interface; the programs are two switches of one process.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, connect_options, until};
use tributary_net::client;
use tributary_net::group::Group;
use tributary_net::handover::{Channel, Ending, HandoverError};
use tributary_net::switch_daemon::{RunningSwitch, StartError, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

const ELEMENTS: usize = 20_000;

fn options(parent: Option<&RunningSwitch>) -> SwitchOptions {
    let any = SwitchOptions::new("127.0.0.1:0".parse().unwrap());
    SwitchOptions { shards: 2, parent: parent.map(RunningSwitch::listen_addr), ..any }
}

fn in_network() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.sums_in_network())
}

fn first_protocol() -> &'static Protocol {
    in_network().next().unwrap()
}

fn join(switch: SocketAddr, protocol: &'static Protocol, job: &str, rank: u16) -> Group {
    Group::connect(&connect_options(switch, protocol, job, rank, 2)).expect("the rank joins")
}

/// The program that takes over, and what the earlier one is told when the hand-over is over.
fn take_over(earlier: &RunningSwitch, options: &SwitchOptions) -> (RunningSwitch, Receiver<Ending>) {
    let (own, inherited) = Channel::pair().unwrap();
    let (end, ended) = channel();
    let next = thread::scope(|scope| {
        let next = scope.spawn(|| RunningSwitch::take_over(options, Channel::inherited(inherited).unwrap()));
        let handed = earlier.hand_over(own, move |ending| end.send(ending).unwrap());
        let next = next.join().unwrap().unwrap();
        handed.unwrap();
        next
    });
    (next, ended)
}

/// What the ranks of a job do, and how many sums each has.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    sums: [AtomicUsize; 2],
}

impl Load {
    /// Sums until the load is over. Whether it is over is summed too, so that all ranks end after the same sum.
    fn run(&self, rank: usize, group: &Group) {
        loop {
            let mut data = vec![1i32; ELEMENTS];
            data[0] = i32::from(self.over.load(Ordering::Relaxed));
            let outcome = group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE);
            outcome.unwrap_or_else(|error| panic!("a collective has failed: {error}"));
            assert!(data[1..].iter().all(|&sum| sum == 2));
            self.sums[rank].fetch_add(1, Ordering::Relaxed);
            if data[0] > 0 {
                return;
            }
        }
    }

    /// Waits until each rank has as many sums more.
    fn until_more(&self, sums: usize) {
        let start = Instant::now();
        let before = self.sums.each_ref().map(|count| count.load(Ordering::Relaxed));
        while self.sums.iter().zip(before).any(|(count, before)| count.load(Ordering::Relaxed) < before + sums) {
            assert!(start.elapsed() < 2 * PATIENCE, "the ranks sum no more: {:?}", self.sums);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Two ranks that join at these switches and sum until the load is over.
    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        switches: [SocketAddr; 2],
        protocol: &'static Protocol,
        job: &'scope str,
    ) -> Vec<ScopedJoinHandle<'scope, ()>> {
        let rank = |(rank, switch): (usize, SocketAddr)| {
            scope.spawn(move || self.run(rank, &join(switch, protocol, job, rank as u16)))
        };
        switches.into_iter().enumerate().map(rank).collect()
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Ends the load when a test ends, also one that fails: its ranks would not stop.
    fn guard(&self) -> Guard<'_> {
        Guard(self)
    }
}

struct Guard<'a>(&'a Load);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn jobs(switch: &RunningSwitch) -> Vec<String> {
    client::status(switch.listen_addr()).unwrap().jobs.into_iter().map(|job| job.name).collect()
}

#[test]
fn jobs_of_every_protocol_go_on_and_others_begin_at_the_next_program() {
    let first = RunningSwitch::start(&options(None)).unwrap();
    let at = first.listen_addr();
    let mut protocols: Vec<&'static Protocol> = in_network().collect();
    protocols.sort_by_key(|protocol| protocol.name);
    let names: Vec<String> = protocols.iter().map(|protocol| format!("runs-{protocol}")).collect();
    let loads: Vec<Load> = names.iter().map(|_| Load::default()).collect();
    let forms = Load::default();
    thread::scope(|scope| {
        let _guards: Vec<Guard<'_>> = loads.iter().chain([&forms]).map(Load::guard).collect();
        let mut ranks = Vec::new();
        for ((load, protocol), name) in loads.iter().zip(protocols).zip(&names) {
            ranks.extend(load.start(scope, [at, at], protocol, name));
        }
        let early = scope.spawn(|| forms.run(0, &join(at, first_protocol(), "forms", 0)));
        loads.iter().for_each(|load| load.until_more(3));
        until(&first, "a job that forms", |status| status.jobs.iter().any(|job| job.state == "forming"));
        let (second, first_ended) = take_over(&first, &options(None));
        assert_eq!(second.listen_addr(), at);
        let late = scope.spawn(|| forms.run(1, &join(at, first_protocol(), "forms", 1)));
        loads.iter().chain([&forms]).for_each(|load| load.until_more(20));
        let mut still_there = client::status(at).unwrap().switch.earlier_jobs;
        still_there.sort();
        assert_eq!(still_there, names);
        assert_eq!(jobs(&second), ["forms"]);
        let busy = second.hand_over(Channel::pair().unwrap().0, |_| ()).unwrap_err();
        assert!(matches!(busy, HandoverError::UnderWay(count) if count == names.len()), "{busy}");
        loads.iter().for_each(Load::end);
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        assert_eq!(first_ended.recv_timeout(PATIENCE).unwrap(), Ending::NoJobs);
        first.stop();
        until(&second, "the end of the first program", |status| status.switch.earlier_jobs.is_empty());
        forms.until_more(3);
        let third = hand_on(&second, &options(None));
        forms.until_more(20);
        forms.end();
        [early, late].into_iter().for_each(|rank| rank.join().unwrap());
        assert!(jobs(&third).is_empty());
    });
}

/// Like [`take_over`], as soon as the program before the earlier one has ended.
fn hand_on(earlier: &RunningSwitch, options: &SwitchOptions) -> RunningSwitch {
    let start = Instant::now();
    loop {
        let (own, inherited) = Channel::pair().unwrap();
        let next = thread::scope(|scope| {
            let next = scope.spawn(|| RunningSwitch::take_over(options, Channel::inherited(inherited).unwrap()));
            let handed = earlier.hand_over(own, |_| ());
            let next = next.join().unwrap();
            match handed {
                Ok(()) => Some(next.unwrap()),
                Err(HandoverError::UnderWay(_)) => None,
                Err(error) => panic!("{error}"),
            }
        });
        if let Some(next) = next {
            return next;
        }
        assert!(start.elapsed() < PATIENCE, "the first program is still there");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_job_that_begins_again_under_its_name_does_so_once_the_former_one_has_ended() {
    let first = RunningSwitch::start(&options(None)).unwrap();
    let at = first.listen_addr();
    let load = Load::default();
    thread::scope(|scope| {
        let _guard = load.guard();
        let ranks = load.start(scope, [at, at], first_protocol(), "train");
        load.until_more(3);
        let (second, _ended) = take_over(&first, &options(None));
        let again: Vec<_> = (0..2).map(|rank| scope.spawn(move || join(at, first_protocol(), "train", rank))).collect();
        load.until_more(3);
        assert!(jobs(&second).is_empty());
        load.end();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        let groups: Vec<Group> = again.into_iter().map(|rank| rank.join().unwrap()).collect();
        assert_eq!(jobs(&second), ["train"]);
        drop(groups);
    });
}

#[test]
fn racks_go_on_while_the_switch_of_a_rack_and_its_parent_get_new_programs() {
    let top = RunningSwitch::start(&options(None)).unwrap();
    let leaf = RunningSwitch::start(&options(Some(&top))).unwrap();
    let (load, after) = (Load::default(), Load::default());
    thread::scope(|scope| {
        let _guards = [load.guard(), after.guard()];
        let ranks = load.start(scope, [leaf.listen_addr(), top.listen_addr()], first_protocol(), "runs");
        load.until_more(3);
        let (next_leaf, leaf_ended) = take_over(&leaf, &options(Some(&top)));
        load.until_more(3);
        let (next_top, top_ended) = take_over(&top, &options(None));
        load.until_more(20);
        let others = after.start(scope, [leaf.listen_addr(), top.listen_addr()], first_protocol(), "begins");
        after.until_more(3);
        assert_eq!([jobs(&next_leaf), jobs(&next_top)], [["begins"], ["begins"]]);
        load.end();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        for ended in [leaf_ended, top_ended] {
            assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), Ending::NoJobs);
        }
        after.until_more(3);
        after.end();
        others.into_iter().for_each(|rank| rank.join().unwrap());
    });
}

#[test]
fn a_next_program_that_fails_leaves_everything_as_it_was() {
    let switch = RunningSwitch::start(&options(None)).unwrap();
    let at = switch.listen_addr();
    let load = Load::default();
    thread::scope(|scope| {
        let _guard = load.guard();
        let ranks = load.start(scope, [at, at], first_protocol(), "runs");
        load.until_more(3);
        let (own, inherited) = Channel::pair().unwrap();
        drop(inherited);
        assert!(matches!(switch.hand_over(own, |_| ()), Err(HandoverError::NotTaken)));
        let (own, inherited) = Channel::pair().unwrap();
        let elsewhere = SwitchOptions { listen: "127.0.0.1:1".parse().unwrap(), ..options(None) };
        let next = scope.spawn(move || RunningSwitch::take_over(&elsewhere, Channel::inherited(inherited).unwrap()));
        assert!(switch.hand_over(own, |_| ()).is_err());
        assert!(matches!(next.join().unwrap().err(), Some(StartError::Moved { .. })));
        // It takes over, and ends without a word.
        let (next, ended) = take_over(&switch, &options(None));
        assert!(jobs(&switch).is_empty());
        drop(next);
        until(&switch, "its job", |status| status.jobs.len() == 1);
        load.until_more(20);
        let others: Vec<_> =
            (0..2).map(|rank| scope.spawn(move || join(at, first_protocol(), "begins", rank))).collect();
        others.into_iter().for_each(|rank| drop(rank.join().unwrap()));
        load.end();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), Ending::TakenBack);
        assert!(ended.recv_timeout(PATIENCE).is_err(), "it does not end with its jobs, since it has taken them back");
    });
}

#[test]
fn a_switch_without_jobs_is_handed_over_too_and_the_earlier_program_ends() {
    let first = RunningSwitch::start(&options(None)).unwrap();
    let (second, ended) = take_over(&first, &options(None));
    assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), Ending::NoJobs);
    let load = Load::default();
    thread::scope(|scope| {
        let (at, _guard) = (second.listen_addr(), load.guard());
        let ranks = load.start(scope, [at, at], first_protocol(), "begins");
        load.until_more(3);
        first.stop();
        load.until_more(20);
        load.end();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
    });
}

#[test]
fn a_program_that_stops_passes_that_on() {
    let first = RunningSwitch::start(&options(None)).unwrap();
    let at = first.listen_addr();
    let load = Load::default();
    thread::scope(|scope| {
        let _guard = load.guard();
        let ranks = load.start(scope, [at, at], first_protocol(), "runs");
        load.until_more(3);
        let (second, ended) = take_over(&first, &options(None));
        assert!(second.finish(|| false).unwrap(), "it has no job");
        assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), Ending::Stopped);
        load.end();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
    });
}
