//! Garbage at the switch's port while a job runs: counted by reason, the result exact, the memory flat.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use tributary_net::status::SwitchStatus;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};
use tributary_proto::protocols;
use tributary_testbed::Faults;

use crate::namespaces::network::{Network, checked};

/// Packets of each kind of garbage.
const PACKETS: u32 = 5_000;
/// What a process may grow by without a leak: the allocator's own ups and downs. The garbage is 20 times as much.
const SLACK_KIB: u64 = 1024;

/// Numbers that look random (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.roll() as u8).collect()
    }
}

/// A packet of the job as far as an unauthorised client can make one: everything but the key.
fn forged(job: u16, dice: &mut Dice) -> Vec<u8> {
    let mut packet = dice.bytes(1472);
    let common = Common {
        protocol: protocols::named("switchml").unwrap().code,
        kind: kind::FIRST_OF_PROTOCOL,
        job: JobId(job),
        key: JobKey(dice.roll()),
    };
    common.emit(&mut packet);
    packet
}

/// Sends every kind of garbage in turns.
fn pester(switch: SocketAddr, job: u16, seed: u64) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let mut dice = Dice(seed);
    for round in 0..PACKETS {
        let len = dice.roll() as usize % 1472;
        let random = dice.bytes(len);
        let mut flipped = forged(job, &mut dice);
        let bit = dice.roll() as usize % (8 * COMMON_LEN);
        flipped[bit / 8] ^= 1 << (bit % 8);
        let truncated = &forged(job, &mut dice)[..dice.roll() as usize % COMMON_LEN];
        for packet in [&random, &flipped, truncated, &forged(job, &mut dice)] {
            socket.send_to(packet, switch).unwrap();
        }
        // No faster than a switch reads that has half a core: what the kernel drops, nobody counts.
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn unauthorised_clients_are_counted_and_change_nothing() {
    let Some(network) = Network::build(4, Faults::default()) else { return };
    let switch = network.switch_addr();
    let words = ["--elements", "1000003", "--iters", "300", "--dtype", "i32", "--timeout", "60s"];
    // The fourth host is not a member; the third is one, and something else runs there too.
    let workers = network.workers("quiet", 3, &words);
    let job = network.until_busy("quiet", 1000).id.unwrap();
    network.star.host(3).inside(|| pester(switch, job, 1)).unwrap();
    let before = network.switch_rss_kib();
    network.star.host(3).inside(|| pester(switch, job, 2)).unwrap();
    network.star.host(2).inside(|| pester(switch, job, 3)).unwrap();
    // The kernel drops some where the machine is busy: there is more until this many have been seen.
    let expected = u64::from(PACKETS) * 3 / 2;
    network.until("an account of the garbage", |status| {
        let of_job = status.jobs.iter().find(|job| job.name == "quiet").expect("the job is still there");
        let counted = [
            of_job.drops.get("wrong_key").copied() > Some(expected),
            rejected(status, "truncated") > expected,
            rejected(status, "bad_magic") > expected,
            rejected(status, "bad_version") > 0,
            rejected(status, "unknown_job") > 0,
        ];
        if counted.iter().all(|&counted| counted) {
            return Some(());
        }
        network.star.host(2).inside(|| pester(switch, job, status.switch.uptime_s.to_bits())).unwrap();
        None
    });
    let after = network.switch_rss_kib();
    assert!(after <= before + SLACK_KIB, "{before} KiB before, {after} KiB after");
    workers.into_iter().for_each(|worker| drop(checked(worker)));
}

fn rejected(status: &SwitchStatus, reason: &str) -> u64 {
    status.switch.rejected_packets.get(reason).copied().unwrap_or(0)
}
