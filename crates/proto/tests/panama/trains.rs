//! A job beside a flow under DCTCP where packets come in trains, as those of processes do: who handles eight results at
//! a time sends eight packets at once. Both share one queue, and shares are fair only if marks are in proportion to
//! packets.

use std::collections::VecDeque;

use tributary_proto::congestion::{Ack, Controller, Dctcp, Limits, Marking, RankSynchronous, ResultAck, ResultClocked};

/// Packets, each of which takes the cable for a tick; the way back takes as many ticks.
const BACK: u64 = 5;
const TICKS: u64 = 400_000;
/// From when on some packets and all packets are marked: 64 and 512 KiB of full packets, and 128 KiB for both.
const RAMP: (u64, u64) = (43, 350);
const STEP: (u64, u64) = (87, 87);

/// How many packets are handled at a time: by the job's process, by the flow's and by the switch.
#[derive(Clone, Copy, Debug)]
struct Trains {
    job: u64,
    flow: u64,
    switch: u64,
}

enum Sender {
    Job(ResultClocked),
    Flow(Dctcp),
}

/// One of the two, with the acknowledgements that its process has yet to handle.
struct End {
    sender: Sender,
    next: u64,
    acked: u64,
    waiting: Vec<(u64, bool)>,
    train: u64,
    arrived: u64,
}

impl End {
    fn new(sender: Sender, train: u64) -> End {
        End { sender, next: 0, acked: 0, waiting: Vec::new(), train, arrived: 0 }
    }

    /// How many packets leave at once, if the process has its turn.
    fn turn(&mut self, tick: u64) -> u64 {
        let is_full = self.waiting.len() as u64 >= self.train;
        let is_late = !self.waiting.is_empty() && tick.is_multiple_of(3 * self.train);
        if !is_full && !is_late && self.acked != self.next {
            return 0;
        }
        for (packet, is_marked) in std::mem::take(&mut self.waiting) {
            self.acked = packet + 1;
            match &mut self.sender {
                Sender::Job(window) => {
                    window.on_result(ResultAck { vid: packet, is_marked, capacity: u16::MAX });
                }
                Sender::Flow(flow) => {
                    let (marked, newest, next) = (is_marked.into(), packet, self.next);
                    flow.on_ack(&Ack { packets: 1, marked, newest, next, limited: true, ..Ack::default() });
                }
            }
        }
        let window = match &self.sender {
            Sender::Job(window) => window.packets(),
            Sender::Flow(flow) => flow.window(),
        };
        (self.acked + window).saturating_sub(self.next)
    }
}

/// What the job has over the last half, in parts of half of the cable. The flow is there first.
fn share(trains: Trains, (least, most): (u64, u64)) -> f64 {
    let limits = Limits { initial: 2, min: 2, max: u32::MAX };
    let mut ends = [
        End::new(Sender::Job(ResultClocked::new(u16::MAX)), trains.job),
        End::new(Sender::Flow(Dctcp::new(limits)), trains.flow),
    ];
    let mut marking = Marking::new(least, most, 1);
    let (mut queue, mut back) = (VecDeque::new(), VecDeque::new());
    for tick in 0..TICKS {
        if tick.is_multiple_of(trains.switch) {
            let leaves = queue.len().min(trains.switch as usize);
            back.extend(queue.drain(..leaves).map(|packet| (tick + BACK, packet)));
        }
        while back.front().is_some_and(|&(at, _)| at <= tick) {
            let (_, (end, packet, is_marked)): (u64, (usize, u64, bool)) = back.pop_front().unwrap();
            ends[end].waiting.push((packet, is_marked));
            ends[end].arrived += u64::from(tick > TICKS / 2);
        }
        for (number, end) in ends.iter_mut().enumerate().skip(usize::from(tick < TICKS / 20)) {
            for _ in 0..end.turn(tick) {
                let is_marked = marking.should_mark(queue.len() as u64);
                queue.push_back((number, end.next, is_marked));
                end.next += 1;
            }
        }
    }
    let [job, flow] = ends.map(|end| end.arrived as f64);
    2.0 * job / (job + flow)
}

const ALL: [Trains; 6] = [
    Trains { job: 1, flow: 1, switch: 1 },
    Trains { job: 8, flow: 1, switch: 1 },
    Trains { job: 8, flow: 1, switch: 4 },
    Trains { job: 16, flow: 1, switch: 8 },
    Trains { job: 8, flow: 4, switch: 4 },
    Trains { job: 1, flow: 8, switch: 4 },
];

#[test]
fn where_marks_rise_with_the_queue_each_has_its_share_however_packets_come() {
    for trains in ALL {
        let share = share(trains, RAMP);
        assert!((0.9..1.1).contains(&share), "{trains:?}: {share}");
    }
}

#[test]
fn a_threshold_is_fair_to_single_packets_and_not_to_trains() {
    let shares = ALL.map(|trains| share(trains, STEP));
    assert!((0.9..1.1).contains(&shares[0]), "{shares:?}");
    assert!(shares.iter().any(|share| !(0.8..1.2).contains(share)), "{shares:?}");
}
