//! Staggered sending (§5): the packets of a block reach the switch apart in time, in the whole of a tensor, and nobody
//! waits without end.

use std::collections::VecDeque;

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{Below, JobConfig};
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::{PortId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::wire::Header;

use crate::harness::link::LinkConfig;
use crate::harness::reduction::{expected, host, in_place, reduce, star, switch_config};
use crate::setup::{inputs, job, lossy, racks, tree_of};

const STAGGERED: &[(&str, &str)] = &[("stagger", "true"), ("reproducible", "tree")];

#[test]
fn any_number_of_ranks_slots_and_collectives_completes() {
    for world_size in [1u16, 2, 3, 5, 8] {
        for slots in [1, 2, 3, 8, 17] {
            for (seed, link) in [(1, LinkConfig::default()), (2, lossy())] {
                let mut network = star(seed, link, &job(world_size, slots, 16, STAGGERED));
                // Of fewer blocks than an epoch, of one, of many, and of none.
                for elements in [20, 16 * usize::from(slots / 2), 999, 0] {
                    let inputs = inputs(world_size, elements, |value| value);
                    let sum = reduce(&mut network, &inputs, ReduceOp::Sum);
                    assert!(
                        sum == expected(&inputs, ReduceOp::Sum, &SumTree::star(world_size)),
                        "{world_size} of {slots} slots"
                    );
                }
            }
        }
    }
}

#[test]
fn shards_and_racks_complete_too() {
    let ranks: [&[u16]; 2] = [&[0, 2, 4], &[1, 3, 5, 6]];
    let inputs = inputs(7, 2_000, |value| value);
    for seed in 0..4 {
        let job = JobConfig { trees: 3, ..job(7, 12, 16, STAGGERED) };
        let sum = reduce(&mut racks(seed, lossy(), &job, &ranks), &inputs, ReduceOp::Sum);
        assert!(sum == expected(&inputs, ReduceOp::Sum, &tree_of(&ranks)), "seed {seed}");
    }
}

const WORLD_SIZE: u16 = 4;
const SLOTS: u16 = 64;
const BLOCKS: usize = 1_024;
/// From a host to the switch, and back, in packets.
const DELAY: u64 = 3;

/// What came of hosts that send a packet, and get one, in each unit of time.
struct Run {
    /// When each rank's packet of each block came, in the order of arrival.
    arrivals: Vec<Vec<u64>>,
    /// When the last result had come.
    end: u64,
}

impl Run {
    fn new(given: &[(&str, &str)]) -> Run {
        let job = job(WORLD_SIZE, SLOTS, 16, given);
        let mut hosts: Vec<Box<dyn Host>> = (0..WORLD_SIZE).map(|rank| host(&job, rank, rank)).collect();
        let config = switch_config(&job, 0, &Below::workers(WORLD_SIZE), None);
        let mut switch = PROTOCOL.switch(Values::Elements, &config).expect("it sums in switches");
        for (rank, host) in hosts.iter_mut().enumerate() {
            host.submit(Time::ZERO, in_place(&vec![rank as f32; 16 * BLOCKS], ReduceOp::Sum)).unwrap();
        }
        let (mut up, mut down) = (VecDeque::new(), VecDeque::new());
        let mut run = Run { arrivals: vec![Vec::new(); BLOCKS], end: 0 };
        for step in 0.. {
            let now = Time::ZERO + Span::from_micros(step);
            while let Some((_, rank, mut bytes)) =
                up.pop_front_if(|&mut (at, _, _): &mut (u64, u16, Vec<u8>)| at == step)
            {
                let header = Header::parse(&bytes).unwrap();
                run.arrivals[header.phase as usize * usize::from(SLOTS) + usize::from(header.idx)].push(step);
                let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
                if let Verdict::Group(_) = switch.process(now, PortId(rank), &mut packet, &NoQueues) {
                    down.push_back((step + DELAY, bytes));
                }
            }
            if let Some((_, bytes)) = down.pop_front_if(|&mut (at, _): &mut (u64, Vec<u8>)| at <= step) {
                let packet = || Packet { bytes: &bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
                hosts.iter_mut().for_each(|host| host.handle_packet(now, Addr::Switch(TreeId(0)), packet()).unwrap());
            }
            for (rank, host) in hosts.iter_mut().enumerate() {
                let mut buf = vec![0; host.max_packet_len()];
                if let Some(sent) = host.poll_transmit(now, &mut buf) {
                    buf.truncate(sent.len);
                    up.push_back((step + DELAY, rank as u16, buf));
                }
            }
            if hosts.iter_mut().map(|host| host.poll_event()).filter(Option::is_some).count() == hosts.len() {
                run.end = step;
                return run;
            }
        }
        unreachable!("the loop has no end but the last result");
    }

    /// The mean time between two packets of one block, over the last quarter of the tensor: the paper's `delta_c`.
    fn distance(&self) -> f64 {
        let last = &self.arrivals[BLOCKS - BLOCKS / 4..];
        let distance = |times: &Vec<u64>| (times[times.len() - 1] - times[0]) as f64 / f64::from(WORLD_SIZE - 1);
        last.iter().map(distance).sum::<f64>() / last.len() as f64
    }
}

#[test]
fn packets_of_a_block_come_one_by_one_up_to_the_end_of_a_long_tensor() {
    let (together, staggered) = (Run::new(&[]), Run::new(&[("stagger", "true")]));
    assert!(staggered.arrivals.iter().all(|times| times.len() == usize::from(WORLD_SIZE)), "nothing is sent twice");
    // An epoch is half of the pool, and a rank's share of it the distance between ranks.
    let share = f64::from(SLOTS / 2 / WORLD_SIZE);
    assert!((staggered.distance() - share).abs() < 0.1 * share, "{} packets apart, not {share}", staggered.distance());
    assert!(together.distance() < 0.1, "{} packets apart where nobody asked", together.distance());
    let slower = staggered.end as f64 / together.end as f64;
    assert!(slower < 1.05, "{slower} times as long");
}
