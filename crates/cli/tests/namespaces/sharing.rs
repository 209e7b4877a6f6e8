//! Jobs that share one switch's memory: what a job leaves behind whose processes die, and that others do not notice.

use std::time::{Duration, Instant};

use tributary_net::status::SwitchStatus;
use tributary_proto::contract::protocol::Protocol;
use tributary_testbed::Faults;

use crate::namespaces::fabric_memory::with_aggregators;
use crate::namespaces::network::{Network, end, error_of};

/// Ranks of each job, all on the same hosts.
const WORLD_SIZE: usize = 4;
/// Longer than any test lives, and so is the timeout.
const ENDLESS: [&str; 8] = ["--elements", "400000", "--dtype", "i32", "--iters", "1000000", "--timeout", "600s"];
/// From a death to the sentence on every rank, on a machine that others keep busy.
const FAIL_WITHIN: Duration = Duration::from_secs(20);

/// The protocols whose jobs share memory and can have servers on hosts of their own.
pub fn served() -> impl Iterator<Item = &'static Protocol> {
    with_aggregators().filter(|protocol| protocol.server_machine().is_some())
}

fn in_use(status: &SwitchStatus, protocol: &Protocol) -> u32 {
    status.switch.shared.iter().find(|shared| shared.protocol == protocol.name).map_or(0, |shared| shared.slots_in_use)
}

#[test]
fn a_worker_that_is_killed_is_named_its_job_s_aggregators_are_free_and_another_job_goes_on() {
    for protocol in with_aggregators() {
        let Some(network) = Network::build(WORLD_SIZE, Faults::default()) else { return };
        let words = [&ENDLESS[..], &["--protocol", protocol.name]].concat();
        let (mut doomed, others) =
            (network.workers("doomed", WORLD_SIZE, &words), network.workers("others", WORLD_SIZE, &words));
        network.until_busy("doomed", 1_000);
        network.until_busy("others", 1_000);
        let mut victim = doomed.remove(2);
        victim.kill().unwrap();
        let death = Instant::now();
        victim.wait().unwrap();
        for worker in doomed {
            let error = error_of(worker);
            assert!(error.contains("rank 2 is gone: its process ended"), "{protocol}: {error}");
        }
        assert!(death.elapsed() < FAIL_WITHIN, "{protocol}: failed after {:?}", death.elapsed());
        let before = network.until_busy("others", 1).blocks;
        network.until_busy("others", before + 5_000);
        end(others);
        network.until("nothing is in use", |status| (in_use(status, protocol) == 0).then_some(()));
    }
}

#[test]
fn a_switch_that_is_killed_is_named_by_every_rank_and_the_next_one_begins_with_an_empty_memory() {
    for protocol in with_aggregators() {
        let Some(mut network) = Network::build(WORLD_SIZE, Faults::default()) else { return };
        let words = [&ENDLESS[..], &["--protocol", protocol.name]].concat();
        let workers = network.workers("orphans", WORLD_SIZE, &words);
        network.until_busy("orphans", 1_000);
        network.kill_switch();
        let address = network.switch_addr().to_string();
        for worker in workers {
            let error = error_of(worker);
            assert!(error.contains("the switch") && error.contains(&address), "{protocol}: {error}");
        }
        network.restart_switch();
        network.sum("next", WORLD_SIZE, &["--elements", "100000", "--dtype", "i32", "--protocol", protocol.name]);
        network.until("nothing is in use", |status| (in_use(status, protocol) == 0).then_some(()));
    }
}
