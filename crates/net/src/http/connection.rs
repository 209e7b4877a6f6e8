//! One connection to the control API, and its one request.
//!
//! A client has [`HEAD_TIMEOUT`] to send its request's head. The kernel gives up on readers that do not read
//! ([`STUCK_TIMEOUT`]) and on hosts that vanish.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::response::Response;
use axum::{Extension, Router};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::http::connection_limits::ConnectionPermit;

/// The most bytes of each connection that are read ahead of need.
const READ_AHEAD: usize = 16 << 10;
/// Time that a client has to send its request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which the server gives up an answer that the client does not take.
const STUCK_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for which an answered client may be silent before the server drops its connection.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The address from which a request came, and our address to which it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub from: IpAddr,
    pub local_ip: IpAddr,
}

/// A value that is dropped when the client closes its end of a connection, although its request was answered before.
#[derive(Clone, Default)]
pub(crate) struct ClosingGuard(Arc<Mutex<Option<Box<dyn Send>>>>);

impl ClosingGuard {
    /// Keeps a value for this connection.
    pub fn keep(&self, what: impl Send + 'static) {
        *self.0.lock().expect("no call panics while it holds this") = Some(Box::new(what));
    }

    fn take(&self) -> Option<Box<dyn Send>> {
        self.0.lock().expect("no call panics while it holds this").take()
    }
}

/// Serves one connection and its one request. Errors are those of the client: it went away, or did not speak HTTP.
pub async fn serve_connection(stream: TcpStream, from: SocketAddr, router: Router, permit: Arc<ConnectionPermit>) {
    let local_ip = match set_timeouts(&stream).and_then(|()| stream.local_addr()) {
        Ok(local) => local.ip().to_canonical(),
        Err(error) => {
            tracing::debug!(%error, "a connection has gone before it was served");
            return;
        }
    };
    let guard = ClosingGuard::default();
    let peer = Peer { from: from.ip().to_canonical(), local_ip };
    let _permit = Arc::clone(&permit);
    let router = router.layer(Extension(peer)).layer(Extension(guard.clone())).layer(Extension(permit));
    let service = TowerToHyperService::new(router);
    let handle = move |request| handled(service.call(request));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(READ_AHEAD)
        .serve_connection(TokioIo::new(stream), service_fn(handle))
        .without_shutdown();
    let ended = connection.await;
    let kept = guard.take();
    match ended {
        Ok(connection) => await_close(connection.io.into_inner(), kept.is_some()).await,
        Err(error) => tracing::debug!(%error, "a connection to the control API failed"),
    }
}

/// Handles a request. If the client closes the connection in the meantime, a request that waits is dropped, such as that of
/// a rank that joins and dies. But a request that need not wait is handled: a rank that leaves may give up waiting for the
/// answer of a busy switch, and has left all the same.
fn handled<E: Error + Send + Sync + 'static>(
    answer: impl Future<Output = Result<Response, E>> + Send + 'static,
) -> impl Future<Output = Result<Response, Box<dyn Error + Send + Sync>>> {
    let (open, closed) = oneshot::channel::<Infallible>();
    let task = tokio::spawn(async {
        tokio::select! {
            biased;
            answer = answer => answer.map_err(Into::into),
            _ = closed => Err("the client has gone".into()),
        }
    });
    async {
        let _open = open;
        task.await?
    }
}

/// Ends our half of a connection. If a value depends on the connection, waits until the client ends its half.
async fn await_close(mut stream: TcpStream, wait: bool) {
    if stream.shutdown().await.is_err() || !wait {
        return;
    }
    // What the client sends after its one request does not matter.
    let mut rest = [0; 256];
    let closes = async { while matches!(stream.read(&mut rest).await, Ok(read) if read > 0 && read < rest.len()) {} };
    // If the time is over, the lease of the client decides.
    let _ = tokio::time::timeout(STALL_TIMEOUT, closes).await;
}

/// Makes the kernel notice hosts that have vanished and readers that do not read.
fn set_timeouts(stream: &TcpStream) -> io::Result<()> {
    let alive = TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(5));
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&alive)?;
    socket.set_tcp_user_timeout(Some(STUCK_TIMEOUT))?;
    stream.set_nodelay(true)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::routing::post;
    use tokio::io::Interest;

    use super::*;
    use crate::http::access::Access;
    use crate::http::connection_limits::ConnectionLimits;

    /// Serves a request whose client has sent it and closed its connection before it is read.
    async fn serve_after_close(router: Router) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"POST / HTTP/1.1\r\nHost: switch\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        drop(client);
        let (stream, from) = listener.accept().await.unwrap();
        // A busy switch knows of the close before it reads the request.
        while !stream.ready(Interest::READABLE).await.unwrap().is_read_closed() {
            tokio::task::yield_now().await;
        }
        let permit = ConnectionLimits::new(Access::default()).acquire(from.ip(), || false).unwrap();
        serve_connection(stream, from, router, Arc::new(permit)).await;
        tokio::task::yield_now().await;
    }

    #[tokio::test]
    async fn a_request_that_need_not_wait_is_handled_although_its_client_waits_no_longer() {
        let handled = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&handled);
        let handler = move |body: String| async move { count.fetch_add(body.len(), Ordering::Relaxed).to_string() };
        serve_after_close(Router::new().route("/", post(handler))).await;
        assert_eq!(handled.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_request_that_waits_is_dropped_with_its_client() {
        let waits = Arc::new(());
        let alive = Arc::downgrade(&waits);
        let handler = move || async move {
            std::future::pending::<()>().await;
            drop(waits);
        };
        serve_after_close(Router::new().route("/", post(handler))).await;
        assert!(alive.upgrade().is_none());
    }
}
