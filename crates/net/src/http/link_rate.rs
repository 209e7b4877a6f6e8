//! The rate of a link for the status: who asks for it does not wait for the kernel, and neither do other requests.
//!
//! The control API has one thread, and the kernel keeps whoever asks for interfaces waiting for as long as it locks all of
//! them, as it does while networks on the machine are made or deleted.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tributary_proto::contract::time::{Span, Time};

/// The rate of the link by which somebody asked last.
#[derive(Default)]
pub struct LinkRate(Mutex<Option<(IpAddr, Time, Option<u64>)>>);

impl LinkRate {
    /// The kernel answers within a fraction of a millisecond, or late.
    const PATIENCE: Duration = Duration::from_millis(200);

    /// A rate hardly changes.
    const LASTS: Span = Span::from_millis(1_000);

    /// The rate as `read` says it, or as it was where that takes longer than [`LinkRate::PATIENCE`].
    pub async fn get(
        &self,
        now: Time,
        local: IpAddr,
        read: impl FnOnce(IpAddr) -> Option<u64> + Send + 'static,
    ) -> Option<u64> {
        let known = self.last().filter(|&(of, _, _)| of == local);
        if let Some((_, at, rate)) = known
            && now.since(at) < LinkRate::LASTS
        {
            return rate;
        }
        let reading = spawn_blocking(move || read(local));
        let Ok(Ok(rate)) = timeout(LinkRate::PATIENCE, reading).await else {
            return known.and_then(|(_, _, rate)| rate);
        };
        *self.last() = Some((local, now, rate));
        rate
    }

    fn last(&self) -> MutexGuard<'_, Option<(IpAddr, Time, Option<u64>)>> {
        self.0.lock().expect("no call panics while it holds this")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[tokio::test]
    async fn the_rate_of_a_link_is_looked_up_once_a_second_and_for_each_other_address() {
        let rate = LinkRate::default();
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        assert_eq!(rate.get(at(0), one, |_| Some(1)).await, Some(1));
        assert_eq!(rate.get(at(999), one, |_| panic!("it is known")).await, Some(1));
        assert_eq!(rate.get(at(1_000), one, |_| None).await, None);
        assert_eq!(rate.get(at(1_001), other, |_| Some(2)).await, Some(2));
        assert_eq!(rate.get(at(1_002), one, |_| Some(3)).await, Some(3));
    }

    #[tokio::test]
    async fn a_kernel_that_answers_late_keeps_nobody_waiting() {
        let (rate, link) = (LinkRate::default(), IpAddr::from([10, 0, 0, 1]));
        let mut late = Vec::new();
        let mut silent = || {
            let (answers, answer) = mpsc::channel::<()>();
            late.push(answers);
            move |_| answer.recv().ok().map(|()| 2)
        };
        assert_eq!(rate.get(at(0), link, silent()).await, None);
        assert_eq!(rate.get(at(1), link, |_| Some(1)).await, Some(1));
        assert_eq!(rate.get(at(1_001), link, silent()).await, Some(1));
        drop(late);
        assert_eq!(rate.get(at(1_002), link, |_| Some(3)).await, Some(3));
    }
}
