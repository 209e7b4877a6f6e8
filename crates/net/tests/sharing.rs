//! Jobs that share a switch's memory, on a switch that stands alone: exact sums whatever room there is, and refusals by
//! name. Real sockets on the loopback interface.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{LocalSwitch, PATIENCE, connect_options, speak, switch_with};
use tributary_control::JobName;
use tributary_net::client;
use tributary_net::group::{ConnectOptions, Group, GroupStats};
use tributary_net::shard::{JobInstall, Shard};
use tributary_net::status::{MetricNumber, SwitchStatus};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::congestion;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::{JobId, JobKey, PortSet};
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::switch_options::{Given, add};
use tributary_proto::{protocols, switch_options};

/// The protocols whose jobs share memory.
fn sharing() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.shared.is_some())
}

/// Those of them that sum at servers what finds no aggregator.
fn with_aggregators() -> impl Iterator<Item = &'static Protocol> {
    let specs = |protocol: &&Protocol| protocol.shared.as_ref().map_or(&[][..], |shared| shared.options.specs);
    sharing().filter(move |protocol| specs(protocol).iter().any(|spec| spec.name == "aggregators"))
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn options(
    switch: &RunningSwitch,
    protocol: &'static Protocol,
    job: &str,
    rank: u16,
    world_size: u16,
) -> ConnectOptions {
    let chosen = connect_options(switch.listen_addr(), protocol, job, rank, world_size);
    ConnectOptions { elements_per_packet: Some(352), ..chosen }
}

/// Runs `work` on every rank of a job, each on a thread of its own.
fn on_ranks<T: Send>(
    switch: &RunningSwitch,
    protocol: &'static Protocol,
    job: &str,
    world_size: u16,
    work: impl Fn(&Group, u16) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let rank = |rank| {
            let work = &work;
            scope.spawn(move || {
                let group = Group::connect(&options(switch, protocol, job, rank, world_size)).expect("the rank joins");
                let result = work(&group, rank);
                group.close();
                result
            })
        };
        let threads: Vec<_> = (0..world_size).map(rank).collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank ends well")).collect()
    })
}

fn input(rank: u16, len: usize) -> Vec<i32> {
    (0..len).map(|i| (i as i32).wrapping_mul(0x0037_79b1) ^ (i32::from(rank) << 20)).collect()
}

/// One sum of integers, every element of which is compared with what it must be.
fn sum(group: &Group, rank: u16, world_size: u16, len: usize) {
    let mut data = input(rank, len);
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    let inputs: Vec<Vec<i32>> = (0..world_size).map(|rank| input(rank, len)).collect();
    let expected = |i: usize| inputs.iter().map(|input| input[i]).fold(0, i32::wrapping_add);
    assert!(data.iter().enumerate().all(|(i, &sum)| sum == expected(i)), "{len} elements, {world_size} ranks");
}

fn stats(group: &Group) -> GroupStats {
    group.stats().unwrap()
}

fn until(switch: &RunningSwitch, what: &str, wanted: impl Fn(&SwitchStatus) -> bool) -> SwitchStatus {
    let start = Instant::now();
    loop {
        let status = client::status(switch.listen_addr()).unwrap();
        if wanted(&status) {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "{what} does not come: {status:#?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a protocol counts there of all jobs.
fn counted(status: &SwitchStatus, protocol: &Protocol, name: &str) -> u64 {
    let shared = status.switch.shared.iter().find(|shared| shared.protocol == protocol.name).expect("a machine");
    match shared.metrics.iter().find(|metric| metric.name == name).expect("a figure").value {
        MetricNumber::Counter(count) => count,
        MetricNumber::Gauge(value) => panic!("{name} is not a counter: {value}"),
    }
}

fn nothing_in_use(status: &SwitchStatus) -> bool {
    status.jobs.is_empty() && status.switch.shared.iter().all(|shared| shared.slots_in_use == 0)
}

#[test]
fn integers_sum_exactly_with_1_2_3_and_8_ranks_for_every_size_and_no_slot_stays_in_use() {
    let switch = switch_with(with_aggregators(), 4096);
    for protocol in sharing() {
        for world_size in [1, 2, 3, 8] {
            on_ranks(&switch, protocol, protocol.name, world_size, |group, rank| {
                for len in [0, 1, 351, 352, 353, 60_007, 0, 200_003, 5] {
                    sum(group, rank, world_size, len);
                }
            });
        }
    }
    until(&switch, "the end", nothing_in_use);
}

#[test]
fn integers_sum_exactly_under_every_congestion_controller() {
    let switch = switch_with(with_aggregators(), 256);
    let kind = congestion::option("").kind;
    let has_choice = |protocol: &&Protocol| protocol.options.specs.iter().any(|spec| spec.kind == kind);
    for protocol in sharing().filter(has_choice) {
        for name in congestion::NAMES {
            let chosen = [(congestion::OPTION.to_owned(), (*name).to_owned())].into_iter().collect();
            let choose = |options: ConnectOptions| ConnectOptions {
                options: protocol.options.read(&chosen).unwrap(),
                ..options
            };
            thread::scope(|scope| {
                for rank in 0..3 {
                    let options = choose(options(&switch, protocol, &format!("{}-{name}", protocol.name), rank, 3));
                    scope.spawn(move || {
                        let group = Group::connect(&options).expect("the rank joins");
                        sum(&group, rank, 3, 200_003);
                        group.close();
                    });
                }
            });
        }
    }
    until(&switch, "the end", nothing_in_use);
}

#[test]
fn floats_have_the_same_bits_on_every_rank() {
    let switch = switch_with(with_aggregators(), 4096);
    for protocol in sharing() {
        let sums = on_ranks(&switch, protocol, protocol.name, 4, |group, rank| {
            let mut data: Vec<f32> = (0..100_003).map(|i| (i as f32 * 0.37 + f32::from(rank)).sin()).collect();
            group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
            data.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
        });
        assert!(sums.iter().all(|sum| *sum == sums[0]), "{}", protocol.name);
    }
}

#[test]
fn with_aggregators_for_all_blocks_the_switch_sums_and_with_none_servers_do() {
    for protocol in with_aggregators() {
        for (aggregators, in_network) in [(1 << 14, true), (0, false)] {
            let switch = switch_with(with_aggregators(), aggregators);
            let shares = on_ranks(&switch, protocol, "room", 4, |group, rank| {
                sum(group, rank, 4, 100_003);
                stats(group).host
            });
            let blocks = 100_003_u64.div_ceil(352);
            for host in shares {
                assert_eq!(host.blocks_in_network + host.blocks_at_hosts, blocks);
                if host.retransmissions == 0 {
                    assert_eq!(host.blocks_in_network > 0, in_network, "{} with {aggregators}", protocol.name);
                }
            }
            let status = until(&switch, "the end", nothing_in_use);
            // Every rank but the block's own server's has sent it, and each of these found no room.
            let overflowed = counted(&status, protocol, "overflowed");
            assert_eq!(overflowed >= 3 * blocks, !in_network, "{overflowed} of {}", protocol.name);
        }
    }
}

#[test]
fn two_jobs_share_one_aggregator_and_both_are_served() {
    for protocol in with_aggregators() {
        let switch = switch_with(with_aggregators(), 1);
        thread::scope(|scope| {
            for job in ["one", "other"] {
                let switch = &switch;
                scope.spawn(move || on_ranks(switch, protocol, job, 3, |group, rank| sum(group, rank, 3, 50_021)));
            }
        });
        let status = until(&switch, "the end", nothing_in_use);
        assert_eq!(status.switch.shared[0].slots_peak, 1, "{}", protocol.name);
        assert!(counted(&status, protocol, "overflowed") > 0, "{}", protocol.name);
    }
}

#[test]
fn members_send_signs_of_life_while_their_job_stands_still() {
    let switch = switch_with(with_aggregators(), 16);
    for protocol in sharing() {
        on_ranks(&switch, protocol, "idle", 2, |group, rank| {
            sum(group, rank, 2, 10);
            let both_alive = |status: &SwitchStatus| {
                let job = status.jobs.iter().find(|job| job.protocol == protocol.name).expect("the job");
                job.members.len() == 2 && job.members.iter().all(|member| member.last_seen_s_ago.is_some())
            };
            until(&switch, "signs of life of both", both_alive);
            // Nobody leaves before the other one has seen it.
            sum(group, rank, 2, 10);
        });
    }
}

/// A switch with so much memory, and as many entries as a switch has whose operator chooses nothing.
fn switch_of(memory_bytes: usize) -> RunningSwitch {
    RunningSwitch::start(&SwitchOptions { memory_bytes, ..SwitchOptions::new(any_port()) }).unwrap()
}

#[test]
fn what_jobs_share_counts_as_the_switchs_memory_and_gives_way_when_no_job_uses_it() {
    // Less than two of these machines take.
    let switch = switch_of(60 << 20);
    let mut protocols = sharing().collect::<Vec<_>>();
    protocols.push(protocols[0]);
    for protocol in protocols {
        on_ranks(&switch, protocol, protocol.name, 2, |group, rank| {
            sum(group, rank, 2, 10_007);
            let status = client::status(switch.listen_addr()).unwrap();
            let there: Vec<_> = status.switch.shared.iter().filter(|shared| shared.bytes > 0).collect();
            let [shared] = there[..] else { panic!("{:?}", status.switch.shared) };
            let jobs: u64 = status.jobs.iter().map(|job| job.memory_bytes).sum();
            let used = status.switch.memory_used_bytes;
            assert_eq!(shared.protocol, protocol.name);
            assert!(
                shared.bytes > 30 << 20 && used >= shared.bytes && used <= shared.bytes + jobs,
                "{used}: {shared:?}"
            );
            assert!(used < 60 << 20);
            sum(group, rank, 2, 7);
        });
        let status = until(&switch, "the end", nothing_in_use);
        assert!(status.switch.memory_used_bytes > 30 << 20, "it stays: {:?}", status.switch.shared);
    }
}

#[test]
fn a_switch_without_memory_for_what_jobs_share_refuses_them_and_serves_others() {
    let switch = switch_of(8 << 20);
    for protocol in sharing() {
        let refusal = Group::connect(&options(&switch, protocol, "large", 0, 2)).err().expect("a refusal").to_string();
        let expected = format!("job 'large' would be the first of {protocol}, whose jobs share ");
        assert!(refusal.contains(&expected) && refusal.contains("the switch is full"), "{refusal}");
    }
    assert!(client::status(switch.listen_addr()).unwrap().switch.shared.is_empty());
    let other = protocols::ALL.iter().copied().find(|protocol| protocol.switch.is_some()).unwrap();
    on_ranks(&switch, other, "small", 2, |group, rank| sum(group, rank, 2, 10_007));
}

#[test]
fn a_switch_whose_operator_chooses_more_for_jobs_to_share_than_it_has_does_not_start() {
    for protocol in with_aggregators() {
        let mut given = Given::new();
        add(&mut given, &format!("{}.aggregators={}", protocol.name, 1 << 20)).unwrap();
        let switch_options = switch_options::SwitchOptions::read(&given, Defaults::Real).unwrap();
        let chosen = SwitchOptions { switch_options, ..SwitchOptions::new(any_port()) };
        let error = RunningSwitch::start(&chosen).err().expect("an error").to_string();
        assert!(error.starts_with(&format!("the jobs of {protocol} would share 8.")), "{error}");
        assert!(error.contains("GiB here, and the switch has 512.0 MiB for all jobs"), "{error}");
    }
}

#[test]
fn in_levels_such_jobs_are_refused_with_a_sentence() {
    let root = switch_with(with_aggregators(), 16);
    let parent = Some(root.listen_addr());
    let rack = RunningSwitch::start(&SwitchOptions { parent, ..SwitchOptions::new(any_port()) }).unwrap();
    for protocol in sharing() {
        let refusal = Group::connect(&options(&rack, protocol, "levels", 0, 2)).err().expect("a refusal").to_string();
        let name = protocol.name;
        let expected = format!("{name} sums in a switch that stands alone or in a fabric, and this switch is one of");
        assert!(refusal.contains(&expected), "{refusal}");
    }
}

#[test]
fn more_workers_than_a_set_of_ports_holds_are_refused_with_a_sentence_and_leave_nothing_behind() {
    for protocol in sharing() {
        let switch = LocalSwitch::start(1);
        let shard = &switch.shards[0];
        let install = |id: u16, members: u16| {
            let config = JobConfig {
                job: JobId(id),
                key: JobKey(7),
                protocol: protocol.code,
                world_size: members,
                slots: 8,
                elements_per_packet: 352,
                trees: 1,
                levels: false,
                options: protocol.options.defaults(),
            };
            let members = (0..members).map(|rank| ([127, 0, 0, 1], 1_024 + 512 * id + rank).into()).collect();
            let name = JobName::new("crowded").unwrap();
            let job = JobInstall::of_workers(name, protocol, config, members, [127, 0, 0, 1].into());
            shard.install(job).wait().unwrap()
        };
        let (most, two) = (PortSet::CAPACITY as u16, 2);
        install(1, most - 1).expect("as many as there may be, except for one");
        let refusal = install(2, two).expect_err("one too many").to_string();
        let expected = format!("{} distinguishes the first {most} workers of a switch", protocol.name);
        assert!(refusal.starts_with(&expected), "{refusal}");
        install(3, 1).expect("the last one finds its port");
        let ids: Vec<u16> = shard.report().wait().unwrap().jobs.iter().map(|job| job.id.0).collect();
        assert_eq!(ids, [1, 3]);
    }
}

#[test]
fn a_rank_that_speaks_through_a_rendezvous_of_its_own_needs_no_more_than_one_shard() {
    for protocol in sharing() {
        let switch = LocalSwitch::start(1);
        let adjust = |options: &mut ConnectOptions| speak(options, protocol);
        crate::support::on_every_rank(&switch, "own", 3, adjust, |group, rank| sum(&group, rank, 3, 30_011));
    }
}
