//! The event queue against the obvious one: a binary heap of (time, id).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::events::{Event, EventId, EventKind, EventQueue};

/// One step of a run: schedule an event so far ahead of now, or take one out.
#[derive(Clone, Debug)]
enum Step {
    Push { ahead: u64, id: u32 },
    Peek,
    Pop,
}

fn step() -> impl Strategy<Value = Step> {
    // Ties, the same bucket, within the wheel, a turn of the wheel and far beyond it.
    let ahead = prop_oneof![
        Just(0),
        0..64u64,
        0..100_000u64,
        900_000..1_300_000u64,
        Just(1_048_576u64),
        0..1_000_000_000_000u64
    ];
    prop_oneof![
        5 => (ahead, 0..50u32).prop_map(|(ahead, id)| Step::Push { ahead, id }),
        1 => Just(Step::Peek),
        4 => Just(Step::Pop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn gives_events_out_in_the_order_of_time_and_id(
        steps in prop::collection::vec(step(), 1..400),
        horizon in prop_oneof![Just(0u64), Just(1_000_000), Just(u64::MAX / 2)],
        pending in 0..10_000usize,
    ) {
        let mut queue = EventQueue::new(Span(horizon), pending);
        let mut reference = BinaryHeap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Push { ahead, id } => {
                    let event = Event { time: Time(now + ahead), id: EventId::new(EventKind::Arrival, id) };
                    queue.push(event.time, event.id);
                    reference.push(Reverse(event));
                }
                Step::Peek => prop_assert_eq!(queue.peek(), reference.peek().map(|event| event.0)),
                Step::Pop => {
                    let expected = reference.pop().map(|event| event.0);
                    prop_assert_eq!(queue.pop(), expected);
                    now = expected.map_or(now, |event| event.time.0);
                }
            }
            prop_assert_eq!(queue.len(), reference.len());
        }
        while let Some(Reverse(expected)) = reference.pop() {
            prop_assert_eq!(queue.pop(), Some(expected));
        }
        prop_assert!(queue.is_empty());
    }
}

#[test]
fn kinds_of_one_instant_go_in_their_order() {
    let mut queue = EventQueue::new(Span(1000), 16);
    let ids = [
        EventId::new(EventKind::Nic, 0),
        EventId::new(EventKind::Arrival, 9),
        EventId::new(EventKind::Arrival, 2),
        EventId::new(EventKind::Action, 7),
    ];
    for id in ids {
        queue.push(Time(500), id);
    }
    let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|event| (event.id.kind(), event.id.number())).collect();
    assert_eq!(order, [(EventKind::Action, 7), (EventKind::Arrival, 2), (EventKind::Arrival, 9), (EventKind::Nic, 0)]);
}

#[test]
fn an_event_fits_into_sixteen_bytes() {
    assert_eq!(size_of::<Event>(), 16);
}
