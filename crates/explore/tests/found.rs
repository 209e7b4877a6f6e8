//! What an exploration finds in machines that do wrong: a short run, which can be run again.

use std::ops::ControlFlow;

use tributary_explore::{Bounds, BoundsError, Found, ReplayError, explore, replay};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Collective, Host, HostEvent, HostStats, SubmitError};
use tributary_proto::contract::ids::{OpId, Rank};
use tributary_proto::contract::options::OptionSet;
use tributary_proto::contract::packet::{Addr, Ecn, Packet, Transmit};
use tributary_proto::contract::protocol::{Description, Protocol};
use tributary_proto::contract::state::HostState;
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::contract::time::Time;

/// Asks the other rank for leave, and says that its collective is complete once an answer has come; or never sends
/// again what was lost.
#[derive(Clone, Hash)]
struct Liar {
    rank: Rank,
    tensor: Option<Box<dyn Tensor>>,
    to_send: u8,
    answered: bool,
    stats: HostStats,
}

impl Host for Liar {
    fn submit(&mut self, _: Time, collective: Collective) -> Result<OpId, SubmitError> {
        (self.tensor, self.to_send) = (Some(collective.tensor), 1);
        Ok(OpId(0))
    }
    fn handle_packet(&mut self, _: Time, _: Addr, _: Packet<'_>) -> Result<(), DropReason> {
        self.answered = true;
        Ok(())
    }
    fn handle_timeout(&mut self, _: Time) {}
    fn abort(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, buf: &mut [u8]) -> Option<Transmit> {
        self.to_send = self.to_send.checked_sub(1)?;
        buf[0] = 7;
        Some(Transmit { to: Addr::Worker(Rank(1 - self.rank.0)), len: 1, wire_len: 1, ecn: Ecn::NotCapable })
    }
    fn poll_event(&mut self) -> Option<HostEvent> {
        let tensor = if self.answered { self.tensor.take()? } else { return None };
        Some(HostEvent::Done { op: OpId(0), tensor })
    }
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn max_packet_len(&self) -> usize {
        1
    }
    fn stats(&self) -> &HostStats {
        &self.stats
    }
    fn state(&self) -> Option<&dyn HostState> {
        Some(self)
    }
}

static LIARS: Protocol = Protocol {
    code: 200,
    name: "liars",
    about: "",
    header_len: 1,
    options: OptionSet::new("liars", &[]),
    numbers: |_| tributary_proto::contract::numbers::Numbers::Fixed,
    host: |_, config| {
        let (rank, stats) = (config.rank, HostStats::default());
        Box::new(Liar { rank, tensor: None, to_send: 0, answered: false, stats })
    },
    describe: |_| Description { kind: "LEAVE", ..Description::default() },
    ..Protocol::BASE
};

fn without_faults() -> Bounds {
    Bounds { losses: 0, timeouts: 0, ..Bounds::small(&LIARS) }
}

#[test]
fn a_wrong_sum_is_found_by_a_short_run_and_the_run_shows_it_again_in_words() {
    let bounds = without_faults();
    let exploration = explore(&bounds, &mut |_| ControlFlow::Continue(())).unwrap();
    let counterexample = exploration.counterexample.expect("nothing is summed");
    let Found::Wrong(wrong) = &counterexample.found else { panic!("{counterexample:?}") };
    assert!(wrong.starts_with("rank 1 has a complete collective 0 that is not the sum"), "{wrong}");
    let run = replay(&bounds, &counterexample.steps).unwrap();
    assert_eq!(run.wrong.as_ref(), Some(wrong));
    let lines = [
        "rank 0 submits its next collective; sends LEAVE to rank 1",
        "rank 1 submits its next collective; sends LEAVE to rank 0",
        "rank 1 gets LEAVE from rank 0; has its sum",
    ];
    assert_eq!(run.lines, lines);
}

#[test]
fn a_run_that_cannot_end_is_found_even_if_no_result_is_wrong() {
    // Alone it waits for an answer of nobody.
    let bounds = Bounds { ranks: 1, ..without_faults() };
    let exploration = explore(&bounds, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(exploration.counterexample.map(|counterexample| counterexample.found), Some(Found::NoEnd));
}

#[test]
fn invalid_bounds_and_a_run_of_another_system_are_refused_with_a_sentence() {
    let bounds = Bounds { ranks: 9, ..without_faults() };
    let error = explore(&bounds, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error, BoundsError::Range { what: "ranks", given: 9, least: 1, most: 8 });
    assert_eq!(error.to_string(), "ranks are 9: 1 to 8 can be explored");
    let error = replay(&without_faults(), &["l0".parse().unwrap()]).unwrap_err();
    assert!(matches!(error, ReplayError::Impossible(1, _)), "{error}");
}

#[test]
fn a_search_that_is_stopped_says_that_it_is_not_complete() {
    let bounds = Bounds::small(tributary_proto::protocols::ALL[0]);
    let exploration = explore(&bounds, &mut |_| ControlFlow::Break(())).unwrap();
    assert!(!exploration.is_complete && exploration.counterexample.is_none());
}
