//! One host that takes all that it can get: connections, memory, jobs, watches, packets. The others' jobs do not notice, or
//! little of it. Bounds are an order of magnitude above what is seen, and far below what was taken without limits.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use tributary_testbed::Faults;

use crate::namespaces::guests::{Guests, answer, waiting};
use crate::namespaces::network::{Network, end, error_of, goes_on};

/// The hosts of the job that must live, and the one without manners.
const HONEST: usize = 2;
const RUDE: usize = HONEST;
/// Longer than any test lives, and so is the timeout.
const ENDLESS: [&str; 6] = ["--elements", "1000000", "--iters", "1000000", "--timeout", "600s"];
/// What a sum takes that must come through.
const SHORT: [&str; 4] = ["--elements", "100000", "--timeout", "60s"];

fn build() -> Option<Network> {
    Network::build(HONEST + 1, Faults::default())
}

fn guests(network: &Network, sockets: usize) -> Guests<'_> {
    Guests::at(network.star.host(RUDE), network.switch_addr(), sockets)
}

fn signal(process: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.id().to_string()]).status().unwrap().success());
}

#[test]
fn four_thousand_waiting_joins_of_one_host_lock_nobody_out_and_a_stalled_rank_lives() {
    const JOBS: usize = 128;
    const RANKS: usize = 32;
    let Some(network) = build() else { return };
    let workers = network.workers("lives", HONEST, &ENDLESS);
    network.until_busy("lives", 1_000);
    let guests = guests(&network, RANKS);
    // One rank of each never comes: all others wait.
    let joins = (0..JOBS).flat_map(|job| (0..RANKS).map(move |rank| (format!("waits-{job}"), rank, RANKS + 1)));
    let crowd = guests.join(joins, None);
    assert_eq!(crowd.len(), 4_096);
    // A rank that pauses loses its connection's place, and must get it again in the crowd.
    signal(&workers[1], "-STOP");
    thread::sleep(Duration::from_secs(2));
    signal(&workers[1], "-CONT");
    let waiting_count = waiting(&crowd);
    assert!(waiting_count > 500, "{waiting_count} joins of the crowd wait");
    network.sum("comes-later", HONEST, &SHORT);
    goes_on(&network, "lives");
    end(workers);
}

/// What the switch's process has taken at most so far, give or take some pages that the kernel counts late.
fn peak_kib(network: &Network) -> u64 {
    network.switch_memory_kib("VmHWM:")
}

/// A request of a switch below, whose body comes in chunks or says its length beforehand.
fn long_request(length: &str) -> Vec<u8> {
    format!("POST /jobs/long/switches/join HTTP/1.1\r\nHost: switch\r\n{length}\r\n\r\n").into_bytes()
}

/// Sends as much of `bytes` to each connection as the switch takes before it has had enough of it.
fn fill(streams: &mut [TcpStream], bytes: &[u8]) {
    for stream in streams {
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // An error is a connection that was closed, or a switch that reads no further.
        let _ = stream.write_all(bytes);
    }
}

#[test]
fn a_thousand_bodies_that_never_end_and_bodies_in_chunks_of_a_byte_cost_bounded_memory() {
    const MIB: usize = 1 << 20;
    /// Two long bodies of each client, as many connections as it may have with what is read ahead for each (1,088 times
    /// 16 KiB), and the allocator's ups and downs. Without limits these took 1 GiB and 795 MiB.
    const BOUND_KIB: u64 = 48 << 10;
    let Some(network) = build() else { return };
    network.sum("warms-up", HONEST, &SHORT);
    let guests = guests(&network, 1);
    let before = peak_kib(&network);
    let head = || long_request(&format!("Content-Length: {MIB}"));
    let mut unfinished = guests.say((0..1_000).map(|_| head()));
    fill(&mut unfinished, &vec![b' '; MIB - 1]);
    let unfinished_took = peak_kib(&network).saturating_sub(before);
    drop(unfinished);

    let before = peak_kib(&network);
    let mut chunked = guests.say((0..20).map(|_| long_request("Transfer-Encoding: chunked")));
    fill(&mut chunked, &b"1\r\n \r\n".repeat(300_000));
    let chunked_took = peak_kib(&network).saturating_sub(before);
    eprintln!("1,000 unfinished bodies took {unfinished_took} KiB, 20 in chunks of a byte {chunked_took} KiB more");
    assert!(unfinished_took < BOUND_KIB && chunked_took < BOUND_KIB, "{unfinished_took}, {chunked_took} KiB");
    network.sum("goes-on", HONEST, &SHORT);
}

#[test]
fn two_thousand_watches_of_another_job_do_not_delay_the_news_of_a_death() {
    /// Four watches of each, which is what one may have: 2,060.
    const RANKS: usize = 515;
    /// A death is reported within two seconds if nobody disturbs; it took 40 s with these watches when each went through
    /// all members every time. A rank without the news asks by itself at three quarters of the timeout, after 450 s.
    const FAIL_WITHIN: Duration = Duration::from_secs(20);
    let Some(network) = build() else { return };
    let mut workers = network.workers("two-workers", HONEST, &ENDLESS);
    network.until_busy("two-workers", 1_000);
    let guests = guests(&network, RANKS);
    let member = guests.take("other-job", None);
    let watches = guests.say((0..4 * RANKS).map(|number| member.watch("other-job", number % RANKS)));
    let waiting_count = waiting(&watches);
    assert!(waiting_count > 2_000, "{waiting_count} watches wait");
    workers[1].kill().unwrap();
    workers.remove(1).wait().unwrap();
    let death = Instant::now();
    let error = error_of(workers.remove(0));
    eprintln!("failed after {:?}, beside {waiting_count} watches", death.elapsed());
    assert!(error.contains("rank 1 is gone: its process ended"), "{error}");
    assert!(death.elapsed() < FAIL_WITHIN, "{:?}", death.elapsed());
}

#[test]
fn forming_jobs_of_one_host_refuse_nobody_else() {
    let Some(network) = build() else { return };
    let guests = guests(&network, 1);
    // As many as the switch has at all.
    let forming = guests.join((0..256).map(|job| (format!("forms-{job}"), 0, 2)), None);
    network.until("half of all jobs form, and no more", |_| (waiting(&forming) == 128).then_some(()));
    network.sum("another-hosts", HONEST, &SHORT);
    let refused = forming.into_iter().filter(|stream| waiting(std::slice::from_ref(stream)) == 0).map(answer);
    assert!(refused.flatten().all(|refused| refused["code"] == "over_client_limit"));
}

#[test]
fn a_job_of_one_rank_that_asks_for_all_slots_leaves_half_of_the_memory() {
    let Some(network) = build() else { return };
    let guests = guests(&network, 1);
    guests.take("greedy", Some(16_384));
    let taken = network.status().switch;
    assert!(taken.memory_used_bytes * 2 <= taken.memory_bytes, "{} of {}", taken.memory_used_bytes, taken.memory_bytes);
    let workers = network.workers("modest", HONEST, &ENDLESS);
    let modest = network.until_busy("modest", 1_000);
    assert!(modest.slots >= 64, "{} slots", modest.slots);
    end(workers);
}

/// Pings of 1,472 bytes, as fast as they leave, for so long; how many, and how many were answered.
fn flood(guests: &Guests<'_>, ping: &[u8], to: std::net::SocketAddr, span: Duration) -> (u64, u64) {
    let (socket, begin) = (guests.socket(0), Instant::now());
    let (mut sent, mut answered, mut bytes) = (0, 0, [0; 2048]);
    while begin.elapsed() < span {
        for _ in 0..32 {
            match socket.send_to(ping, to) {
                Ok(_) => sent += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        while socket.recv(&mut bytes).is_ok() {
            answered += 1;
        }
    }
    (sent, answered)
}

#[test]
fn long_pings_of_another_jobs_member_are_dropped_by_name() {
    const SPAN: Duration = Duration::from_secs(3);
    let Some(network) = build() else { return };
    let workers = network.workers("sums", HONEST, &ENDLESS);
    network.until_busy("sums", 1_000);
    let mut guests = guests(&network, 1);
    let member = guests.take("floods", None);
    guests.fall_silent();
    let blocks = || network.until_busy("sums", 1).blocks;
    let (start, begin) = (blocks(), Instant::now());
    thread::sleep(SPAN);
    let quiet = (blocks() - start) as f64 / begin.elapsed().as_secs_f64();
    let (start, begin) = (blocks(), Instant::now());
    let (sent, answered) = flood(&guests, &member.ping(1_472), member.shard, SPAN);
    let seconds = begin.elapsed().as_secs_f64();
    let flooded = (blocks() - start) as f64 / seconds;
    eprintln!(
        "goodput beside {:.0} long pings a second is {:.2} of that without",
        sent as f64 / seconds,
        flooded / quiet
    );
    // 500 a second, and a thousand at once.
    let most = 1_001 + (500.0 * seconds) as u64;
    assert!((1..=most).contains(&answered), "{answered} answers, and at most {most}");
    let dropped = network.until("an account of the flood", |status| {
        let floods = status.jobs.iter().find(|job| job.name == "floods")?;
        floods.drops.get("too_often").copied()
    });
    assert!(dropped > sent / 4, "{dropped} of {sent} were dropped by that name; a busy machine's socket drops others");
    goes_on(&network, "sums");
    end(workers);
}
