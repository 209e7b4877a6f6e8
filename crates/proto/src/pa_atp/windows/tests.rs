//! The windows against the paper's examples and formulas.

use super::windows::{Ack, Progress as How, Windows as _};
use super::*;

const PAPER: Choices = Choices {
    progress: Progress::Printed,
    limit: true,
    initial_window: 10,
    increase: 1,
    always_doubles: false,
    initial_ahead: 0,
    aecn_weight_permille: 125,
};

/// Windows, and a way to bring them a whole round of acknowledgements at a time.
struct Bench {
    windows: Windows,
    sent: u64,
}

impl Bench {
    fn new(choices: Choices, places: u16) -> Bench {
        Bench { windows: Windows::new(choices, places), sent: 0 }
    }

    /// Brings a round of as many packets as the window holds, the first ones marked.
    fn round(&mut self, marked: u64, progress: How) {
        let packets = self.windows.packets();
        self.sent += packets;
        for number in 0..packets {
            let (transmission, marked) = (self.sent - packets + number, number < marked);
            self.windows.on_ack(&Ack { transmission, next: self.sent, marked, progress });
        }
    }

    fn of(window: f64, ahead: f64, alpha: f64, progress: Progress) -> Windows {
        let mut windows = Windows::new(Choices { progress, ..PAPER }, 1000);
        (windows.window, windows.ahead, windows.alpha, windows.threshold) = (window, ahead, alpha, 0.0);
        windows
    }
}

/// A3: the path of results may be the congested one, and gradients then have no marks.
#[test]
fn the_first_mark_of_a_result_ends_doubling_as_that_of_a_gradient_does() {
    for by_result in [true, false] {
        let mut bench = Bench::new(PAPER, 1000);
        bench.round(0, alone(0.0));
        if by_result {
            bench.windows.on_mark();
        }
        bench.round(u64::from(!by_result), alone(0.0));
        assert!(bench.windows.packets() <= 20, "{} packets", bench.windows.packets());
    }
}

fn alone(own: f64) -> How {
    How { own, average: own }
}

#[test]
fn a_round_of_clear_acks_doubles_the_window_until_the_first_mark_and_adds_one_from_then_on() {
    let mut bench = Bench::new(PAPER, 1000);
    for expected in [20, 40, 80] {
        bench.round(0, alone(0.0));
        assert_eq!(bench.windows.packets(), expected);
    }
    bench.round(1, alone(0.0));
    let after = bench.windows.packets();
    for more in 1..=3 {
        bench.round(0, alone(0.0));
        bench.round(0, alone(0.0));
        assert!(bench.windows.packets() >= after, "{} after {after} and {more}", bench.windows.packets());
    }
}

/// A3: the paper prints a packet for each GACK, flows of TCP grow by a segment.
#[test]
fn after_the_first_mark_a_round_adds_what_was_chosen_or_doubles_as_printed() {
    let grown = |choices: Choices| {
        let mut bench = Bench { windows: Bench::of(100.0, 1000.0, 0.0, Progress::Printed), sent: 0 };
        bench.windows.choices = choices;
        bench.round(0, alone(0.0));
        bench.windows.sizes().0 - 100.0
    };
    assert!((0.99..=1.0).contains(&grown(PAPER)));
    assert!((3.9..=4.0).contains(&grown(Choices { increase: 4, ..PAPER })));
    assert_eq!(grown(Choices { always_doubles: true, ..PAPER }), 100.0);
}

#[test]
fn the_straggler_cuts_as_dctcp_does_and_the_leader_at_the_end_of_its_window_halves() {
    // Figure 4: CWD 3, AWD 6. The straggler goes down to 2 and the leader to 1, where our window keeps 2 packets.
    for alpha in [0.1, 0.5, 1.0] {
        let windows = Bench::of(100.0, 60.0, alpha, Progress::Printed);
        let kept = |own| windows.kept(How { own, average: 1.0 });
        assert!((kept(0.0) - (1.0 - alpha / 2.0)).abs() < 1e-12, "p = 0: DCTCP");
        assert!((kept(60.0) - 0.5).abs() < 1e-12, "p = p_max: half, whatever alpha");
        assert!((kept(90.0) - 0.5).abs() < 1e-12, "AWD has shrunk below p_l");
        assert!(kept(30.0) < kept(0.0) || alpha == 1.0);
    }
    assert!((Bench::of(3.0, 6.0, 2.0 / 3.0, Progress::Printed).kept(alone(0.0)) * 3.0 - 2.0).abs() < 1e-12);
}

/// The printed formula: p / p_max = (p_l / p_avg) / (AWD / p_avg) = p_l / AWD, whatever the others' progress.
#[test]
fn the_others_progress_cancels_out_of_the_printed_formula_and_not_out_of_the_relative_one() {
    let after = |progress, average| {
        let mut bench = Bench::new(Choices { progress, ..PAPER }, 1000);
        for round in 0..100 {
            bench.round(u64::from(round % 10 == 9), How { own: 40.0, average });
        }
        bench.windows.sizes()
    };
    assert_eq!(after(Progress::Printed, 1.0), after(Progress::Printed, 1e6));
    assert_ne!(after(Progress::Relative, 40.0), after(Progress::Relative, 1e6));
    assert_eq!(after(Progress::Off, 1.0), after(Progress::Off, 1e6));
    let windows = Bench::of(100.0, 60.0, 0.25, Progress::Relative);
    assert!(
        (windows.kept(alone(7.0)) - (1.0 - 0.25f64.sqrt() / 2.0)).abs() < 1e-12,
        "average: an exponent of one half"
    );
    assert!(
        (windows.kept(How { own: 7.0, average: 0.0 }) - 0.875).abs() < 1e-12,
        "nobody waits: nothing is divided by 0"
    );
}

#[test]
fn a_round_without_a_mark_never_cuts_although_0_to_the_power_of_0_is_1() {
    let mut bench = Bench::new(PAPER, 100);
    bench.windows.threshold = 0.0;
    for _ in 0..50 {
        let before = bench.windows.packets();
        bench.round(0, How { own: 100.0, average: 50.0 });
        assert!(bench.windows.packets() >= before);
    }
}

/// A queue stays long until senders that filled it have made way: marks of what was sent before a cut cause no other
/// cut.
#[test]
fn marks_of_what_was_sent_before_a_cut_are_not_answered_again() {
    let mut windows = Bench::of(64.0, 1000.0, 0.5, Progress::Printed);
    windows.alpha = 0.5;
    let ack = |windows: &mut Windows, transmission, marked| {
        windows.on_ack(&Ack { transmission, next: transmission + 64, marked, progress: alone(0.0) });
    };
    ack(&mut windows, 0, true);
    assert_eq!(windows.packets(), 48);
    for transmission in 1..64 {
        ack(&mut windows, transmission, transmission % 2 == 0);
        windows.on_mark();
    }
    assert_eq!(windows.packets(), 48, "neither cut nor grown: all was sent before the cut");
    ack(&mut windows, 64, true);
    assert!(windows.packets() < 48, "the first that was sent after it");
}

#[test]
fn awd_adds_one_in_a_round_trip_without_a_mark_and_is_cut_by_half_of_beta_in_one_with() {
    let mut windows = Windows::new(Choices { initial_ahead: 100, ..PAPER }, 1000);
    let trip = Span::from_micros(10);
    let mut now = Time::ZERO;
    let mut round = |windows: &mut Windows, short: bool| {
        for _ in 0..10 {
            now += Span::from_micros(1);
            windows.on_result(now, short, trip);
        }
    };
    for _ in 0..20 {
        round(&mut windows, false);
    }
    let (_, grown) = windows.sizes();
    assert!((115.0..=120.0).contains(&grown), "{grown}");
    round(&mut windows, true);
    round(&mut windows, true);
    let (_, cut) = windows.sizes();
    assert!(cut < grown && cut > grown * 0.8, "beta is small yet: {cut}");
    (0..500).for_each(|_| round(&mut windows, true));
    assert_eq!(windows.ahead(), FEWEST as u64);
}

/// Between two teeth there are hundreds of round trips without a mark, after which nothing of beta is left. So a tooth
/// is at least half of the weight deep: 6 % with the paper's eighth, where eq. 5 has 1.6 % of 2,000 blocks.
#[test]
fn a_cut_of_awd_after_a_long_calm_is_half_of_the_weight() {
    for (weight, expected) in [(125, 937.5), (8, 996.0)] {
        let choices = Choices { initial_ahead: 1000, aecn_weight_permille: weight, ..PAPER };
        let mut windows = Windows::new(choices, 1000);
        windows.on_result(Time::ZERO, true, Span::ZERO);
        assert_eq!(windows.sizes().1, expected);
    }
}

#[test]
fn without_a_limit_awd_stops_nobody_and_losses_halve_cwd_once_a_round_trip() {
    let mut windows = Windows::new(Choices { limit: false, initial_ahead: 3, ..PAPER }, 500);
    assert_eq!(windows.ahead(), 500);
    windows.window = 64.0;
    (0..10).for_each(|number| windows.on_loss(number, 100));
    assert_eq!(windows.packets(), 32);
    windows.on_loss(100, 200);
    assert_eq!(windows.packets(), 16);
}

/// A window that grew by one packet a round from two on would take hundreds of round trips to fill a path of 645
/// packets again.
#[test]
fn after_a_silence_the_window_doubles_up_to_half_of_what_it_was_and_adds_one_a_round_from_then_on() {
    let mut bench = Bench::new(PAPER, 1000);
    (0..5).for_each(|_| bench.round(0, alone(0.0)));
    assert_eq!(bench.windows.packets(), 320);
    bench.windows.on_silence();
    assert_eq!(bench.windows.packets(), 2);
    let mut sizes = Vec::new();
    for _ in 0..10 {
        bench.round(0, alone(0.0));
        sizes.push(bench.windows.packets());
    }
    assert_eq!(sizes[..6], [4, 8, 16, 32, 64, 128]);
    assert_eq!(sizes[6..], [160, 161, 162, 163]);
}

/// RFC 5681, section 3.1: a packet whose retransmission is lost too says nothing more about the path's room.
#[test]
fn a_silence_that_goes_on_keeps_the_half_of_what_the_window_was_when_it_began() {
    let mut bench = Bench::new(PAPER, 1000);
    (0..5).for_each(|_| bench.round(0, alone(0.0)));
    (0..3).for_each(|_| bench.windows.on_silence());
    let sizes: Vec<u64> = (0..7)
        .map(|_| {
            bench.round(0, alone(0.0));
            bench.windows.packets()
        })
        .collect();
    assert_eq!(sizes, [4, 8, 16, 32, 64, 128, 160]);
}

/// RFC 4015: what was late, and not lost, costs nothing once that is known.
#[test]
fn losses_that_were_none_are_taken_back_and_those_that_were_are_not() {
    let after = |was_lost| {
        let mut windows = Bench::of(64.0, 1000.0, 0.0, Progress::Printed);
        windows.on_loss(10, 100);
        windows.on_silence();
        windows.on_loss(100, 200);
        windows.on_verdict(was_lost);
        let known = windows.packets();
        windows.on_verdict(false);
        (known, windows.packets())
    };
    assert_eq!(after(false), (64, 64));
    assert_eq!(after(true), (2, 2), "the first word counts: a transmission that came late tells nothing of others");
}

/// Nobody knows yet whether the loss was any: marks go on to be answered, whichever packet has them.
#[test]
fn a_mark_between_a_loss_that_was_none_and_the_word_of_it_keeps_the_window_small() {
    type Mark = fn(&mut Windows);
    fn ack(transmission: u64, marked: bool) -> Ack {
        Ack { transmission, next: 132, marked, progress: alone(0.0) }
    }
    let doubling = || {
        let mut windows = Windows::new(PAPER, 1000);
        windows.window = 64.0;
        windows.on_ack(&ack(1, false));
        windows.on_loss(10, 100);
        windows
    };
    let marks: [(&str, Mark); 3] = [
        ("of a packet that was sent after the loss", |windows| windows.on_ack(&ack(100, true))),
        ("of a packet that was sent before it", |windows| windows.on_ack(&ack(11, true))),
        ("of a result", |windows| {
            windows.on_mark();
            windows.on_ack(&ack(11, false));
        }),
    ];
    for (which, mark) in marks {
        let mut windows = doubling();
        mark(&mut windows);
        let small = windows.packets();
        windows.on_verdict(false);
        (12..30).for_each(|transmission| windows.on_ack(&ack(transmission, false)));
        assert!(small <= 32 && windows.packets() == small, "a mark {which}: {small}, then {}", windows.packets());
    }
    let mut windows = doubling();
    windows.on_verdict(false);
    (12..30).for_each(|transmission| windows.on_ack(&ack(transmission, false)));
    assert_eq!(windows.packets(), 65 + 18, "without a mark the window doubles on");
}

#[test]
fn a_mark_that_was_answered_before_a_loss_does_not_forget_the_window_before_the_loss() {
    let mut windows = Bench::of(64.0, 1000.0, 1.0, Progress::Printed);
    let ack = |transmission, marked| Ack { transmission, next: 50, marked, progress: alone(0.0) };
    windows.on_ack(&ack(1, true));
    let before = windows.packets();
    windows.on_loss(60, 100);
    windows.on_ack(&ack(2, true));
    windows.on_verdict(false);
    assert_eq!(windows.packets(), before);
}
