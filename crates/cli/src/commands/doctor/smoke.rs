//! The proof: two ranks in this process sum through a switch.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tributary_net::group::{ConnectOptions, Group};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;

use super::Check;
use crate::cluster;

const NAME: &str = "smoke test";
const ELEMENTS: usize = 100_000;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Two ranks and a switch in this process, over the loopback interface.
pub fn embedded() -> Check {
    match RunningSwitch::start(&SwitchOptions::new((Ipv4Addr::LOCALHOST, 0).into())) {
        Err(error) => Check::fail(NAME, error.to_string(), "allow this process to use the loopback interface"),
        Ok(switch) => {
            let check = at(&switch.listen_addr().to_string());
            switch.stop();
            check
        }
    }
}

/// A job name that no other doctor uses.
pub fn job() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("doctor-{}-{}", std::process::id(), now.as_nanos())
}

/// The options of a rank in one of the doctor's jobs.
pub fn options(switch: &str, job: &str, rank: u16, world_size: u16) -> Result<ConnectOptions, String> {
    let protocol =
        cluster::job::protocols().next().ok_or("this build has no protocol for one switch and its workers")?;
    Ok(ConnectOptions {
        switch: switch.to_string(),
        job: job.to_string(),
        rank,
        world_size,
        timeout: TIMEOUT,
        protocol,
        options: protocol.options.defaults(),
        elements_per_packet: None,
        slots: None,
        trees: None,
        cores: None,
    })
}

/// Two ranks in this process at a remote switch.
pub fn at(switch: &str) -> Check {
    let job = job();
    let start = Instant::now();
    let outcome = thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let job = &job;
            scope.spawn(move || one_rank(switch, job, rank))
        });
        let [first, second] = ranks.map(|rank| rank.join().expect("a rank does not panic"));
        first.and(second)
    });
    match outcome {
        Ok(per_packet) => {
            let millis = start.elapsed().as_secs_f64() * 1e3;
            Check::ok(
                NAME,
                format!("two ranks summed {ELEMENTS} elements right by UDP, {per_packet} in a packet, {millis:.0} ms"),
            )
        }
        Err(sentence) => {
            let remedy = remedy(&sentence);
            Check::fail(NAME, sentence, remedy)
        }
    }
}

/// What to do where TCP works and a job does not.
pub fn remedy(sentence: &str) -> &'static str {
    match sentence.contains("(NAT)") {
        true => "run the process in the network of its host, or route without translation",
        false => "TCP works; if UDP does not, let the switch's UDP ports through the firewalls, in both directions",
    }
}

/// Runs one rank; returns how many elements a packet carries on this path.
fn one_rank(switch: &str, job: &str, rank: u16) -> Result<u16, String> {
    let group = Group::connect(&options(switch, job, rank, 2)?).map_err(|error| error.to_string())?;
    let elements_per_packet = group.info().elements_per_packet;
    let input: Vec<i32> = (0..ELEMENTS as i32).map(|i| i + i32::from(rank)).collect();
    let mut output = vec![0; ELEMENTS];
    group.allreduce(&input, &mut output, ReduceOp::Sum, TIMEOUT).map_err(|error| error.to_string())?;
    group.close();
    match (0..ELEMENTS as i32).zip(output).find(|&(i, sum)| sum != 2 * i + 1) {
        None => Ok(elements_per_packet),
        Some((i, sum)) => Err(format!("element {i} came out as {sum} and should be {}", 2 * i + 1)),
    }
}
