//! `GET /events`: what operators see, now and after each sample, as server-sent events. An event is encoded once, for all
//! clients. A client that reads slowly misses samples: of each client no more than one event is kept.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, header};
use hyper::body::Frame;
use tokio::sync::watch;

use crate::history::Overview;

/// The events of one switch.
pub(crate) struct Events(watch::Sender<Bytes>);

impl Default for Events {
    /// Nothing was sampled yet.
    fn default() -> Events {
        Events(watch::channel(Bytes::new()).0)
    }
}

impl Events {
    /// True if somebody follows.
    pub fn are_followed(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Sends an event to all who follow.
    pub fn send(&self, overview: &Overview) {
        self.0.send_replace(event(overview));
    }

    /// Ends all answers.
    pub fn end(&self) {
        self.0.send_replace(Bytes::new());
    }

    /// The answer for a client that follows from now on, beginning with `first`, for as long as it may.
    pub fn follow(
        &self,
        first: impl Future<Output = Overview> + Send + 'static,
        may: impl Fn() -> bool + Send + 'static,
    ) -> ([(HeaderName, &'static str); 2], Body) {
        let receiver = self.0.subscribe();
        let next = Box::pin(async { Some((event(&first.await), receiver)) });
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
        (headers, Body::new(Stream { next, may: Box::new(may) }))
    }
}

/// One line of JSON, which has no line break, and an empty one.
fn event(overview: &Overview) -> Bytes {
    let json = serde_json::to_string(overview).expect("a structure of numbers and texts");
    format!("data: {json}\n\n").into()
}

type Next = Option<(Bytes, watch::Receiver<Bytes>)>;

/// The next event after those that the receiver has seen; an empty one is the end.
async fn after(mut receiver: watch::Receiver<Bytes>) -> Next {
    receiver.changed().await.ok()?;
    let event = receiver.borrow_and_update().clone();
    (!event.is_empty()).then_some((event, receiver))
}

/// The body of an answer.
struct Stream {
    next: Pin<Box<dyn Future<Output = Next> + Send>>,
    may: Box<dyn Fn() -> bool + Send>,
}

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match ready!(self.next.as_mut().poll(context)) {
            Some((event, receiver)) if (self.may)() => {
                self.next = Box::pin(after(receiver));
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
            _ => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use hyper::body::Body as _;

    use super::*;

    fn stream(sender: &watch::Sender<Bytes>, may: &Arc<AtomicBool>) -> Stream {
        let may = Arc::clone(may);
        let first = Bytes::from_static(b"first");
        let receiver = sender.subscribe();
        Stream { next: Box::pin(async { Some((first, receiver)) }), may: Box::new(move || may.load(Ordering::Relaxed)) }
    }

    /// The next event; `None` at the end, and "nothing yet" while none has come.
    fn next(stream: &mut Stream) -> Option<String> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        match Pin::new(stream).poll_frame(&mut context) {
            Poll::Pending => Some("nothing yet".into()),
            Poll::Ready(frame) => {
                let event = frame?.unwrap().into_data().unwrap();
                Some(String::from_utf8(event.to_vec()).unwrap())
            }
        }
    }

    #[test]
    fn a_client_that_reads_slowly_gets_the_last_event_and_all_end_together() {
        let (sender, may) = (watch::channel(Bytes::new()).0, Arc::new(AtomicBool::new(true)));
        let [mut slow, mut other] = [stream(&sender, &may), stream(&sender, &may)];
        assert_eq!([next(&mut slow), next(&mut slow)].map(Option::unwrap), ["first", "nothing yet"]);
        for event in ["second", "third"] {
            sender.send_replace(event.into());
        }
        assert_eq!([next(&mut slow), next(&mut slow)].map(Option::unwrap), ["third", "nothing yet"]);
        assert_eq!([next(&mut other), next(&mut other)].map(Option::unwrap), ["first", "third"]);
        Events(sender).end();
        assert_eq!([next(&mut slow), next(&mut other)], [None, None]);
    }

    /// The file of tokens is read again, and has the client's no longer.
    #[test]
    fn a_client_whose_token_has_gone_is_sent_no_more() {
        let (sender, may) = (watch::channel(Bytes::new()).0, Arc::new(AtomicBool::new(true)));
        let mut stream = stream(&sender, &may);
        assert_eq!(next(&mut stream).unwrap(), "first");
        may.store(false, Ordering::Relaxed);
        sender.send_replace("second".into());
        assert_eq!(next(&mut stream), None);
    }
}
