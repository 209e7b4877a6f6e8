//! Groups that span hosts, which are threads here: exact results of every operation, and errors that all ranks learn.

use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use tributary_local::hosts::{Hosts, HostsError, HostsGroup, Network, OnFailure};
use tributary_local::{Description, Group, Kind, Lent, LocalError, Operands, Pending};
use tributary_numeric::{DType, ReduceOp, native};

use crate::ranks::{PATIENCE, bits, copy, expected, expected_over, join, lent, name};

/// The memory of the leaders, as their network, in which results come late at some hosts.
struct Between {
    leaders: Group,
    late: Duration,
    /// Whether each host that left first did so because it had lost a rank.
    lost: Arc<Mutex<Vec<(usize, bool)>>>,
}

impl Network for Between {
    type Error = LocalError;
    type Pending = Pending;

    /// Every host loses what it brings.
    fn start(
        &self,
        description: &Description,
        memory: Lent,
        loss: Lent,
        timeout: Duration,
    ) -> Result<Pending, LocalError> {
        let host = self.leaders.rank();
        if !loss.is_empty() {
            copy(memory, loss);
        }
        let (input, output, kept) = match description.kind {
            Kind::Broadcast { root } if usize::from(root) == host => (memory, Lent::NONE, 0..0),
            Kind::Broadcast { .. } => (Lent::NONE, memory, 0..0),
            Kind::Reduce { root } if usize::from(root) != host => (memory, Lent::NONE, 0..0),
            _ => (memory, memory, 0..description.elements),
        };
        self.leaders.submit(*description, Operands { input, output, kept }, timeout)
    }

    fn wait(&self, pending: Pending) -> Result<(), LocalError> {
        thread::sleep(self.late);
        pending.wait(PATIENCE).expect("it ends")
    }

    fn abandon(&self, lost: bool) {
        self.lost.lock().unwrap().push((self.leaders.rank(), lost));
        self.leaders.close();
    }
}

/// Calls the function in each rank; `hosts` has the host of each.
fn together(hosts: &[u16], function: impl Fn(u16, &HostsGroup<Between>) + Sync) {
    let network = |leaders| Between { leaders, late: Duration::ZERO, lost: Arc::default() };
    together_with(hosts, network, function);
}

/// The same, with this network between the leaders.
fn together_with(
    hosts: &[u16],
    network: impl Fn(Group) -> Between + Sync,
    function: impl Fn(u16, &HostsGroup<Between>) + Sync,
) {
    let names = [name(), name(), name()];
    thread::scope(|scope| {
        for rank in 0..hosts.len() as u16 {
            let (names, function, between) = (&names, &function, &network);
            scope.spawn(move || {
                let hosts = Hosts::new(hosts.to_vec(), rank).unwrap();
                let (host, per_host) = (hosts.own(), hosts.ranks_of(hosts.own()).len());
                let index = usize::from(hosts.index(rank));
                let [up, down] = [0, 1].map(|way| join(&format!("{}-{host}", names[way]), index, per_host));
                let count = usize::from(hosts.count());
                let network = hosts.leads().then(|| between(join(&names[2], host.into(), count)));
                let reason = format!("host {host} gives up");
                let network = network.map(|network| {
                    let say: OnFailure<LocalError> = Box::new(move |_| reason.clone().into_bytes());
                    (network, say)
                });
                let group = HostsGroup::new(hosts, up, down, network).unwrap();
                function(rank, &group);
            });
        }
    });
}

fn run(
    group: &HostsGroup<Between>,
    operation: Description,
    input: Lent,
    output: Lent,
) -> Result<(), HostsError<LocalError>> {
    group.submit(operation, input, output, Lent::NONE, PATIENCE).unwrap().wait(PATIENCE).expect("it ends")
}

/// Makes a group of ranks on these hosts, which sums once.
pub fn sum_once(hosts: &[u16]) {
    together(hosts, |_, group| {
        let elements = 1000;
        let operation = Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements };
        let mut memory = [1, 0, 0, 0].repeat(elements);
        let lent = lent(&mut memory);
        run(group, operation, lent, lent).unwrap();
        assert!(memory.chunks(4).all(|sum| sum == [hosts.len() as u8, 0, 0, 0]));
    });
}

/// The vectors of the ranks, each host's ranks combined first, then the hosts.
fn in_levels(dtype: DType, op: ReduceOp, hosts: &Hosts, inputs: &[Vec<u8>]) -> Vec<u8> {
    let averages = op == ReduceOp::Avg;
    let once = averages && !dtype.is_float();
    let is_shared = averages && !once && !hosts.are_alike();
    let in_host = if once { ReduceOp::Sum } else { op };
    let of_host = |host| -> Vec<u8> {
        let own: Vec<_> = hosts.ranks_of(host).iter().map(|&rank| inputs[usize::from(rank)].clone()).collect();
        expected_over(dtype, in_host, &own, if is_shared { inputs.len() } else { own.len() })
    };
    let between = if is_shared { ReduceOp::Sum } else { in_host };
    let mut result = expected(dtype, between, &(0..hosts.count()).map(of_host).collect::<Vec<_>>());
    if once {
        (native(dtype, op).unwrap().finish)(&mut result, inputs.len() as u16);
    }
    result
}

const PAIRS: [u16; 4] = [0, 0, 1, 1];
const MIXED: [u16; 6] = [0, 1, 2, 0, 2, 1];
/// Hosts of one rank, of two and of three.
const UNEQUAL: [u16; 6] = [2, 0, 2, 1, 2, 0];

#[test]
fn results_are_those_of_hosts_and_then_of_all_hosts_in_every_type_with_every_operator() {
    for of in [PAIRS.as_slice(), MIXED.as_slice(), UNEQUAL.as_slice()] {
        together(of, |rank, group| {
            let hosts = group.hosts();
            for dtype in DType::ALL {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.takes(dtype)) {
                    for elements in [0, 1, 1001, 70_001] {
                        let inputs: Vec<_> = (0..of.len()).map(|rank| bits(rank, elements * dtype.size())).collect();
                        let want = in_levels(dtype, op, hosts, &inputs);
                        let mut own = inputs[usize::from(rank)].clone();
                        let operation = Description { kind: Kind::AllReduce, dtype, op, elements };
                        let memory = lent(&mut own);
                        run(group, operation, memory, memory).unwrap();
                        assert!(own == want, "{operation} on rank {rank}");
                    }
                }
            }
        });
    }
}

#[test]
fn results_of_one_rank_and_shards_reach_their_ranks_in_place_and_not() {
    for of in [PAIRS.as_slice(), MIXED.as_slice(), UNEQUAL.as_slice()] {
        together(of, |rank, group| {
            let (ranks, this) = (of.len(), usize::from(rank));
            for shard in [0, 1, 7, 300_001] {
                let (dtype, op, elements) = (DType::I32, ReduceOp::Avg, shard * ranks);
                let inputs: Vec<_> = (0..ranks).map(|rank| bits(rank, 4 * elements)).collect();
                let want = in_levels(dtype, op, group.hosts(), &inputs);
                for root in 0..ranks as u16 {
                    let mut own = inputs[this].clone();
                    let operation = Description { kind: Kind::Reduce { root }, dtype, op, elements };
                    let memory = lent(&mut own);
                    run(group, operation, memory, if root == rank { memory } else { Lent::NONE }).unwrap();
                    assert!(own == if root == rank { &want } else { &inputs[this] }[..], "{operation} on {rank}");
                }
                let operation = Description { kind: Kind::ReduceScatter, dtype, op, elements };
                let (mut own, mut result) = (inputs[this].clone(), vec![0; 4 * shard]);
                run(group, operation, lent(&mut own), lent(&mut result)).unwrap();
                let mine = this * 4 * shard..(this + 1) * 4 * shard;
                assert!(own == inputs[this] && result == want[mine.clone()], "{operation} on rank {rank}");
                let output = lent(&mut own[mine.clone()]);
                run(group, operation, lent(&mut own), output).unwrap();
                assert!(own[mine.clone()] == want[mine], "{operation} in place on rank {rank}");
            }
        });
    }
}

#[test]
fn bytes_reach_all_ranks_from_one_and_from_each() {
    for of in [PAIRS.as_slice(), MIXED.as_slice(), UNEQUAL.as_slice()] {
        together(of, |rank, group| {
            let (ranks, this) = (of.len(), usize::from(rank));
            for elements in [0, 1, 5, 3_000_001] {
                for root in 0..ranks as u16 {
                    let operation =
                        Description { kind: Kind::Broadcast { root }, dtype: DType::U8, op: ReduceOp::Sum, elements };
                    let mut own = bits(this, elements);
                    let memory = lent(&mut own);
                    run(group, operation, memory, memory).unwrap();
                    assert!(own == bits(root.into(), elements), "{operation} on rank {rank}");
                }
            }
            for elements in [0, 3, 700_001] {
                let operation = Description { kind: Kind::AllGather, dtype: DType::U8, op: ReduceOp::Sum, elements };
                let mut all = vec![0; elements * ranks];
                let own = this * elements..(this + 1) * elements;
                all[own.clone()].copy_from_slice(&bits(this, elements));
                let shard = lent(&mut all[own]);
                run(group, operation, shard, lent(&mut all)).unwrap();
                let want: Vec<u8> = (0..ranks).flat_map(|rank| bits(rank, elements)).collect();
                assert!(all == want, "{operation} on rank {rank}");
            }
        });
    }
}

#[test]
fn operations_in_flight_keep_their_order() {
    together(&PAIRS, |rank, group| {
        let sum = |elements| Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements };
        let mut all: Vec<Vec<u8>> =
            [1_500_000, 3, 0, 40_000, 1].map(|elements| [rank as u8 + 1, 0, 0, 0].repeat(elements)).into();
        let started = all.iter_mut().map(|own| {
            let (elements, memory) = (own.len() / 4, lent(own));
            group.submit(sum(elements), memory, memory, Lent::NONE, PATIENCE).unwrap()
        });
        for pending in started.collect::<Vec<_>>() {
            pending.wait(PATIENCE).expect("it ends").unwrap();
            assert!(pending.is_done());
        }
        assert!(all.iter().all(|own| own.chunks(4).all(|element| element == [10, 0, 0, 0])));
    });
}

/// What ranks 0, 1 bring, and what ranks 2, 3 do: the network alone could not tell most of these from each other.
fn pairs_that_differ() -> Vec<[Description; 2]> {
    let sum = Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements: 8 };
    let moved = |kind| Description { kind, dtype: DType::U8, ..sum };
    vec![
        [sum, Description { op: ReduceOp::Avg, ..sum }],
        [sum, Description { elements: 9, ..sum }],
        [sum, Description { dtype: DType::I64, elements: 4, ..sum }],
        [moved(Kind::Broadcast { root: 0 }), moved(Kind::Broadcast { root: 1 })],
        [Description { kind: Kind::Reduce { root: 2 }, ..sum }, Description { kind: Kind::Reduce { root: 3 }, ..sum }],
        [Description { kind: Kind::ReduceScatter, ..sum }, sum],
    ]
}

#[test]
fn hosts_that_bring_different_operations_are_named_on_all_ranks() {
    for operations in pairs_that_differ() {
        together(&PAIRS, |rank, group| {
            let mut memory = vec![0; 64];
            let memory = lent(&mut memory);
            let mine = operations[usize::from(group.hosts().own())];
            match run(group, mine, memory, memory).unwrap_err() {
                HostsError::Memory(LocalError::Mismatch { sentence, .. }) if group.hosts().leads() => {
                    let [here, there] = if rank == 0 { ["0, 1", "2, 3"] } else { ["2, 3", "0, 1"] };
                    let want = format!("ranks disagree: ranks {here} bring {mine}, ranks {there} bring another");
                    assert!(sentence.starts_with(&want), "{sentence}");
                }
                // It depends on which leader looks first.
                HostsError::Network(LocalError::Lost { .. }) if group.hosts().leads() => {}
                HostsError::Memory(LocalError::Reported { message, .. }) if !group.hosts().leads() => {
                    assert_eq!(message, format!("host {} gives up", group.hosts().own()).into_bytes());
                }
                _ => panic!("another error on rank {rank}"),
            }
        });
    }
}

#[test]
fn ranks_of_a_host_that_bring_different_operations_are_named_though_their_bytes_are_as_many() {
    together(&PAIRS, |rank, group| {
        let sum = Description { kind: Kind::AllReduce, dtype: DType::U8, op: ReduceOp::Sum, elements: 8 };
        let from_elsewhere = Description { kind: Kind::Broadcast { root: 0 }, ..sum };
        let mut memory = vec![0; 64];
        let memory = lent(&mut memory);
        let error = run(group, if rank == 3 { sum } else { from_elsewhere }, memory, memory).unwrap_err();
        if let HostsError::Memory(LocalError::Mismatch { sentence, .. }) = error {
            assert!(rank > 1, "{sentence}");
        } else {
            assert!(rank < 2 || matches!(error, HostsError::Memory(LocalError::Reported { .. })));
        }
    });
}

#[test]
fn a_rank_that_leaves_ends_what_is_under_way_on_all_ranks() {
    for leaver in 0..4 {
        together(&PAIRS, |rank, group| {
            let sum = Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements: 8 };
            let mut memory = vec![0; 32];
            let memory = lent(&mut memory);
            run(group, sum, memory, memory).unwrap();
            if rank == leaver {
                return group.close();
            }
            run(group, sum, memory, memory).unwrap_err();
        });
    }
}

/// Other hosts wait a little for what comes from a host that only leaves, and not for a host that has lost a rank.
#[test]
fn a_host_leaves_as_lost_if_it_has_lost_a_rank_and_not_if_another_host_has() {
    let lost = Arc::default();
    let network = |leaders| Between { leaders, late: Duration::ZERO, lost: Arc::clone(&lost) };
    together_with(&PAIRS, network, |rank, group| {
        let sum = Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements: 8 };
        let mut memory = vec![0; 32];
        let memory = lent(&mut memory);
        if rank == 3 {
            return group.close();
        }
        run(group, sum, memory, memory).unwrap_err();
    });
    let lost = lost.lock().unwrap();
    let of_host = |host| lost.iter().find(|(other, _)| *other == host).map(|(_, lost)| *lost);
    assert_eq!([of_host(0), of_host(1)], [Some(false), Some(true)]);
}

/// Rank 1 fails the second operation while the result of the first is on its way to its host.
#[test]
fn what_all_ranks_have_started_ends_well_though_the_next_operation_fails() {
    let late = |leaders: Group| {
        let late = if leaders.rank() == 0 { Duration::from_millis(100) } else { Duration::ZERO };
        Between { leaders, late, lost: Arc::default() }
    };
    together_with(&PAIRS, late, |rank, group| {
        let sum = |elements| Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements };
        let (mut first, mut second) = ([rank as u8, 0, 0, 0].repeat(8), vec![0; 36]);
        let (memory, next) = (lent(&mut first), lent(&mut second));
        let pending = group.submit(sum(8), memory, memory, Lent::NONE, PATIENCE).unwrap();
        let elements = if rank == 1 { 8 } else { 9 };
        let failing = group.submit(sum(elements), next, next, Lent::NONE, PATIENCE).unwrap();
        pending.wait(PATIENCE).expect("it ends").unwrap();
        assert!(first.chunks(4).all(|element| element == [6, 0, 0, 0]), "rank {rank}");
        failing.wait(PATIENCE).expect("it ends").unwrap_err();
    });
}

#[test]
fn what_is_under_way_ends_when_the_group_is_closed() {
    let gate = Barrier::new(4);
    together(&PAIRS, |rank, group| {
        let sum = Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements: 8 };
        let mut memory = vec![0; 32];
        let memory = lent(&mut memory);
        if rank == 3 {
            gate.wait();
            return;
        }
        let pending = group.submit(sum, memory, memory, Lent::NONE, PATIENCE).unwrap();
        gate.wait();
        group.close();
        assert!(pending.is_done());
        pending.wait(PATIENCE).expect("it has ended").unwrap_err();
    });
}

/// What is lost between hosts is of a host's sum, and its leader gets that, in as many fragments as it takes.
#[test]
fn a_leader_gets_what_its_hosts_sum_has_lost() {
    together(&PAIRS, |rank, group| {
        let elements = 1_200_000;
        let sum = Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements };
        let (mut own, mut lost) = ([rank as u8 + 1, 0, 0, 0].repeat(elements), vec![0; 4 * elements]);
        let (memory, loss) = (lent(&mut own), lent(&mut lost));
        group.submit(sum, memory, memory, loss, PATIENCE).unwrap().wait(PATIENCE).expect("it ends").unwrap();
        let of_host = [3, 0, 7, 0][usize::from(rank)];
        assert!(lost.chunks(4).all(|element| element == [of_host, 0, 0, 0]), "rank {rank}");
        assert!(own.chunks(4).all(|element| element == [10, 0, 0, 0]), "rank {rank}");
    });
}
