//! The controller against the paper's examples and formulas.

use super::*;
use crate::congestion::Limits;

/// AWD where a test does not choose one.
const LIMIT: f64 = 1000.0;

fn settings(cut_rule: CutRule) -> Settings {
    Settings { cut_rule, ..Settings::new(Limits { initial: 10, min: 2, max: 1000 }) }
}

/// A controller, and a way to bring it a whole round of acknowledgements at a time.
struct Bench {
    controller: ProgressAware,
    sent: u64,
}

impl Bench {
    fn new(cut_rule: CutRule) -> Bench {
        Bench { controller: ProgressAware::new(&settings(cut_rule)), sent: 0 }
    }

    /// Brings a round of as many packets as the window holds, the first ones marked.
    fn round(&mut self, marked: u64, progress: Progress) {
        let packets = self.controller.window();
        self.sent += packets;
        for number in 0..packets {
            let ack = ack(self.sent - packets + number, self.sent, number < marked);
            self.controller.on_ack(&Ack { progress, ..ack });
        }
    }
}

/// A controller whose window does not double any more.
fn past_slow_start(window: f64, alpha: f64, cut_rule: CutRule) -> ProgressAware {
    ProgressAware {
        window: Real(window),
        threshold: Real(0.0),
        marks: MarkedShare::new(alpha),
        ..ProgressAware::new(&settings(cut_rule))
    }
}

fn ack(newest: u64, next: u64, is_marked: bool) -> Ack {
    Ack { packets: 1, newest, next, marked: is_marked.into(), progress: alone(0.0), ..Ack::default() }
}

fn loss(transmission: u64, next: u64) -> Loss {
    Loss { now: Time::ZERO, transmission, next }
}

fn alone(own: f64) -> Progress {
    Progress { own, average: own, limit: LIMIT }
}

/// A3: the path of results may be the congested one, and gradients then have no marks.
#[test]
fn the_first_mark_of_a_result_ends_doubling_as_that_of_a_gradient_does() {
    for by_result in [true, false] {
        let mut bench = Bench::new(CutRule::Printed);
        bench.round(0, alone(0.0));
        if by_result {
            bench.controller.on_late_mark();
        }
        bench.round(u64::from(!by_result), alone(0.0));
        assert!(bench.controller.window() <= 20, "{} packets", bench.controller.window());
    }
}

#[test]
fn a_round_of_clear_acks_doubles_the_window_until_the_first_mark_and_adds_one_from_then_on() {
    let mut bench = Bench::new(CutRule::Printed);
    for expected in [20, 40, 80] {
        bench.round(0, alone(0.0));
        assert_eq!(bench.controller.window(), expected);
    }
    bench.round(1, alone(0.0));
    let after = bench.controller.window();
    for more in 1..=3 {
        bench.round(0, alone(0.0));
        bench.round(0, alone(0.0));
        assert!(bench.controller.window() >= after, "{} after {after} and {more}", bench.controller.window());
    }
}

/// A3: the paper prints a packet for each GACK, flows of TCP grow by a segment.
#[test]
fn after_the_first_mark_a_round_adds_what_was_chosen_or_doubles_as_printed() {
    let grown = |change: fn(&mut Settings)| {
        let mut bench = Bench { controller: past_slow_start(100.0, 0.0, CutRule::Printed), sent: 0 };
        change(&mut bench.controller.settings);
        bench.round(0, alone(0.0));
        bench.controller.window.0 - 100.0
    };
    assert!((0.99..=1.0).contains(&grown(|_| {})));
    assert!((3.9..=4.0).contains(&grown(|settings| settings.increase = 4)));
    assert_eq!(grown(|settings| settings.always_doubles = true), 100.0);
}

#[test]
fn the_straggler_cuts_as_dctcp_does_and_the_leader_at_the_end_of_its_window_halves() {
    // Figure 4: CWD 3, AWD 6. The straggler goes down to 2 and the leader to 1, where our window keeps 2 packets.
    for alpha in [0.1, 0.5, 1.0] {
        let controller = past_slow_start(100.0, alpha, CutRule::Printed);
        let kept = |own| controller.kept(Progress { own, average: 1.0, limit: 60.0 });
        assert!((kept(0.0) - (1.0 - alpha / 2.0)).abs() < 1e-12, "p = 0: DCTCP");
        assert!((kept(60.0) - 0.5).abs() < 1e-12, "p = p_max: half, whatever alpha");
        assert!((kept(90.0) - 0.5).abs() < 1e-12, "AWD has shrunk below p_l");
        assert!(kept(30.0) < kept(0.0) || alpha == 1.0);
    }
    assert!((past_slow_start(3.0, 2.0 / 3.0, CutRule::Printed).kept(alone(0.0)) * 3.0 - 2.0).abs() < 1e-12);
}

/// The printed formula: p / p_max = (p_l / p_avg) / (AWD / p_avg) = p_l / AWD, whatever the others' progress.
#[test]
fn the_others_progress_cancels_out_of_the_printed_formula_and_not_out_of_the_relative_one() {
    let after = |cut_rule, average| {
        let mut bench = Bench::new(cut_rule);
        for round in 0..100 {
            bench.round(u64::from(round % 10 == 9), Progress { own: 40.0, average, limit: LIMIT });
        }
        bench.controller.window
    };
    assert_eq!(after(CutRule::Printed, 1.0), after(CutRule::Printed, 1e6));
    assert_ne!(after(CutRule::Relative, 40.0), after(CutRule::Relative, 1e6));
    assert_eq!(after(CutRule::Plain, 1.0), after(CutRule::Plain, 1e6));
    let controller = past_slow_start(100.0, 0.25, CutRule::Relative);
    assert!(
        (controller.kept(alone(7.0)) - (1.0 - 0.25f64.sqrt() / 2.0)).abs() < 1e-12,
        "average: an exponent of one half"
    );
    assert!(
        (controller.kept(Progress { own: 7.0, average: 0.0, limit: 60.0 }) - 0.875).abs() < 1e-12,
        "nobody waits: nothing is divided by 0"
    );
}

#[test]
fn a_round_without_a_mark_never_cuts_although_0_to_the_power_of_0_is_1() {
    let mut bench = Bench::new(CutRule::Printed);
    bench.controller.threshold = Real(0.0);
    for _ in 0..50 {
        let before = bench.controller.window();
        bench.round(0, Progress { own: 100.0, average: 50.0, limit: 100.0 });
        assert!(bench.controller.window() >= before);
    }
}

/// A queue stays long until senders that filled it have made way: marks of what was sent before a cut cause no other
/// cut.
#[test]
fn marks_of_what_was_sent_before_a_cut_are_not_answered_again() {
    let mut controller = past_slow_start(64.0, 0.5, CutRule::Printed);
    let ack = |controller: &mut ProgressAware, transmission, is_marked| {
        controller.on_ack(&ack(transmission, transmission + 64, is_marked));
    };
    ack(&mut controller, 0, true);
    assert_eq!(controller.window(), 48);
    for transmission in 1..64 {
        ack(&mut controller, transmission, transmission % 2 == 0);
        controller.on_late_mark();
    }
    assert_eq!(controller.window(), 48, "neither cut nor grown: all was sent before the cut");
    ack(&mut controller, 64, true);
    assert!(controller.window() < 48, "the first that was sent after it");
}

#[test]
fn losses_halve_the_window_once_a_round_trip() {
    let mut controller = ProgressAware::new(&settings(CutRule::Printed));
    controller.window = Real(64.0);
    let cuts: Vec<bool> = (0..10).map(|number| controller.on_loss(loss(number, 100))).collect();
    assert_eq!(cuts.iter().filter(|&&is_cut| is_cut).count(), 1);
    assert_eq!(controller.window(), 32);
    assert!(controller.on_loss(loss(100, 200)));
    assert_eq!(controller.window(), 16);
}

/// A window that grew by one packet a round from two on would take hundreds of round trips to fill a path of 645
/// packets again.
#[test]
fn after_a_timeout_the_window_doubles_up_to_half_of_what_it_was_and_adds_one_a_round_from_then_on() {
    let mut bench = Bench::new(CutRule::Printed);
    (0..5).for_each(|_| bench.round(0, alone(0.0)));
    assert_eq!(bench.controller.window(), 320);
    bench.controller.on_timeout(Time::ZERO);
    assert_eq!(bench.controller.window(), 2);
    let mut sizes = Vec::new();
    for _ in 0..10 {
        bench.round(0, alone(0.0));
        sizes.push(bench.controller.window());
    }
    assert_eq!(sizes[..6], [4, 8, 16, 32, 64, 128]);
    assert_eq!(sizes[6..], [160, 161, 162, 163]);
}

/// RFC 5681, section 3.1: a packet whose retransmission is lost too says nothing more about the path's room.
#[test]
fn further_timeouts_keep_the_half_of_what_the_window_was_before_the_first() {
    let mut bench = Bench::new(CutRule::Printed);
    (0..5).for_each(|_| bench.round(0, alone(0.0)));
    (0..3).for_each(|_| bench.controller.on_timeout(Time::ZERO));
    let sizes: Vec<u64> = (0..7)
        .map(|_| {
            bench.round(0, alone(0.0));
            bench.controller.window()
        })
        .collect();
    assert_eq!(sizes, [4, 8, 16, 32, 64, 128, 160]);
}

/// RFC 4015: what was late, and not lost, costs nothing once that is known.
#[test]
fn spurious_losses_are_taken_back_and_real_ones_are_not() {
    let after = |verdict: fn(&mut ProgressAware)| {
        let mut controller = past_slow_start(64.0, 0.0, CutRule::Printed);
        controller.on_loss(loss(10, 100));
        controller.on_timeout(Time::ZERO);
        controller.on_loss(loss(100, 200));
        verdict(&mut controller);
        let known = controller.window();
        controller.on_spurious();
        (known, controller.window())
    };
    assert_eq!(after(ProgressAware::on_spurious), (64, 64));
    let confirmed = after(ProgressAware::on_loss_confirmed);
    assert_eq!(confirmed, (2, 2), "only the first verdict counts: a late transmission says nothing about others");
}

/// Until a loss is confirmed or proves spurious, every mark is answered, whichever packet has it.
#[test]
fn a_mark_between_a_spurious_loss_and_its_verdict_keeps_the_window_small() {
    type Mark = fn(&mut ProgressAware);
    let doubling = || {
        let mut controller = ProgressAware { window: Real(64.0), ..ProgressAware::new(&settings(CutRule::Printed)) };
        controller.on_ack(&ack(1, 132, false));
        controller.on_loss(loss(10, 100));
        controller
    };
    let marks: [(&str, Mark); 3] = [
        ("of a packet that was sent after the loss", |controller| controller.on_ack(&ack(100, 132, true))),
        ("of a packet that was sent before it", |controller| controller.on_ack(&ack(11, 132, true))),
        ("of a result", |controller| {
            controller.on_late_mark();
            controller.on_ack(&ack(11, 132, false));
        }),
    ];
    let go_on = |controller: &mut ProgressAware| {
        controller.on_spurious();
        (12..30).for_each(|transmission| controller.on_ack(&ack(transmission, 132, false)));
        controller.window()
    };
    for (which, mark) in marks {
        let mut controller = doubling();
        mark(&mut controller);
        let small = controller.window();
        let later = go_on(&mut controller);
        assert!(small <= 32 && later == small, "a mark {which}: {small}, then {later}");
    }
    assert_eq!(go_on(&mut doubling()), 65 + 18, "without a mark the window doubles on");
}

#[test]
fn a_mark_that_was_answered_before_a_loss_does_not_forget_the_window_before_the_loss() {
    let mut controller = past_slow_start(64.0, 1.0, CutRule::Printed);
    controller.on_ack(&ack(1, 50, true));
    let before = controller.window();
    controller.on_loss(loss(60, 100));
    controller.on_ack(&ack(2, 50, true));
    controller.on_spurious();
    assert_eq!(controller.window(), before);
}

/// The paper does not say with what its average begins. At 0 the first mark cuts nothing, at 1 it halves the window, as in RFC
/// 8257, section 3.3.
#[test]
fn the_first_mark_cuts_by_the_alpha_that_was_chosen() {
    for (first_alpha_permille, left) in [(0, 100), (500, 75), (1000, 50)] {
        let limits = Limits { initial: 100, min: 2, max: 1000 };
        let settings = Settings { cut_rule: CutRule::Plain, first_alpha_permille, ..Settings::new(limits) };
        let mut controller = ProgressAware::new(&settings);
        controller.on_ack(&Ack { packets: 1, marked: 1, newest: 0, next: 100, ..Ack::default() });
        assert_eq!(controller.window(), left, "alpha begins at {first_alpha_permille} permille");
    }
}
