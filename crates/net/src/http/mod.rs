//! The control API's server: HTTP/1 on one thread, with limits for everything that a client can make it keep.
//!
//! Each connection serves one request (`connection`), `body` limits the body, and `connection_limits` bounds the number of
//! connections, of each client and of all. So a slow client holds only its own connection.

pub(crate) mod access;
pub(crate) mod body;
pub(crate) mod compile_queue;
mod connection;
pub(crate) mod connection_limits;
mod events;
mod fabric;
mod jobs;
mod operators;
pub(crate) mod routes;
pub(crate) mod view;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::Html;
use tokio::net::TcpStream;
use tokio::sync::watch;

use self::access::Access;
use self::compile_queue::CompileQueue;
use self::connection::serve_connection;
pub(crate) use self::connection::{ClosingGuard, Peer};
use self::connection_limits::{ConnectionLimits, Full};
use self::routes::Role;
use self::view::Viewer;
use crate::api::ErrorBody;
use crate::api::version::{API_VERSION, HEADER};
use crate::control_plane::ControlPlane;
use crate::fabric::FabricSwitch;
use crate::handover::{EarlierProgram, HandedConnections, Intake};

/// The time in which answers may still leave when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// The code of the error for a connection that is refused because there are too many.
const TOO_MANY: &str = "too_many_connections";

/// The addresses of the server.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub listen: SocketAddr,
    pub http: Option<SocketAddr>,
}

/// The data that the handlers work on.
#[derive(Clone)]
pub(crate) struct Api {
    pub plane: Arc<ControlPlane>,
    pub viewer: Arc<Viewer>,
    pub listen: SocketAddr,
    /// The switch as one of its fabric, if it is in one.
    pub fabric: Option<Arc<FabricSwitch>>,
    pub compile_queue: Arc<CompileQueue>,
}

impl Api {
    /// The UDP port of each shard.
    fn shard_ports(&self) -> Vec<u16> {
        self.plane.shard_addrs().iter().map(|addr| addr.port()).collect()
    }
}

/// The server and its thread. Dropping it stops both.
pub(crate) struct HttpServer {
    stop: watch::Sender<bool>,
    limits: Vec<Arc<ConnectionLimits>>,
    intake: Arc<Intake>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Serves each listener for its role, drives the control plane, and keeps the history. What belongs to an earlier
    /// program of this switch goes there.
    pub fn start(
        api: &Api,
        access: &Access,
        listeners: Vec<(TcpListener, Role)>,
        earlier: Option<Arc<EarlierProgram>>,
    ) -> io::Result<HttpServer> {
        let (mut own, mut entrances) = (Vec::new(), Vec::new());
        for (number, (listener, role)) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            own.push(listener.try_clone()?);
            let (router, limits) = (routes::router(api.clone(), role), ConnectionLimits::new(access.clone()));
            let (plane, earlier) = (Arc::clone(&api.plane), earlier.clone());
            entrances.push((listener, Arc::new(Entrance { number, router, limits, plane, earlier })));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let limits = entrances.iter().map(|(_, entrance)| Arc::clone(&entrance.limits)).collect();
        let (stop, stopped) = watch::channel(false);
        let (intake, handed) = Intake::new(own);
        let (api, paused) = (api.clone(), intake.is_paused());
        let thread = Builder::new().name("control".into()).spawn(move || {
            runtime.block_on(serve(api, entrances, stopped, paused, handed));
        })?;
        Ok(HttpServer { stop, limits, intake: Arc::new(intake), thread: Some(thread) })
    }

    /// Replaces the rules of access.
    pub fn change_access(&self, access: &Access) {
        self.limits.iter().for_each(|limits| limits.change_access(access.clone()));
    }

    /// What decides which connections the server takes.
    pub fn intake(&self) -> &Arc<Intake> {
        &self.intake
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // The call fails only if the thread has ended already.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the control plane's thread panicked");
        }
    }
}

async fn serve(
    Api { plane, viewer, .. }: Api,
    entrances: Vec<(TcpListener, Arc<Entrance>)>,
    mut stopped: watch::Receiver<bool>,
    paused: watch::Receiver<bool>,
    mut handed: HandedConnections,
) {
    // In the meantime clients wait in the kernel's queue.
    plane.begin().await;
    let all: Vec<Arc<Entrance>> = entrances.iter().map(|(_, entrance)| Arc::clone(entrance)).collect();
    let mut accepting = Vec::new();
    for (listener, entrance) in entrances {
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => accepting.push(tokio::spawn(accept(listener, entrance, paused.clone()))),
            Err(error) => tracing::error!(%error, "cannot serve the control API"),
        }
    }
    let mut no_events = paused;
    let end_events = async {
        // Who follows this program's events must follow those of the next.
        while no_events.wait_for(|&paused| paused).await.is_ok() {
            viewer.events().end();
            if no_events.wait_for(|&paused| !paused).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = plane.run() => {}
        () = viewer.keep_history() => {}
        () = plane.watch_parent() => {}
        () = end_events => {}
        () = take_handed(&mut handed, &all) => {}
        // An error means that the handle is gone. Then the server stops as well.
        _ = stopped.wait_for(|&stop| stop) => {}
    }
    for task in &accepting {
        task.abort();
    }
    while let Ok((number, stream)) = handed.try_recv() {
        take_from_next(&all, number, stream);
    }
    plane.stop().await;
    viewer.events().end();
    let all_gone = async {
        while all.iter().any(|entrance| entrance.limits.connections() > 0) {
            tokio::time::sleep(SHUTDOWN_GRACE / 50).await;
        }
    };
    // A client that has not taken its answer by now is cut off.
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, all_gone).await;
}

/// What connections of one listening socket are served with.
struct Entrance {
    number: usize,
    router: Router,
    limits: Arc<ConnectionLimits>,
    plane: Arc<ControlPlane>,
    earlier: Option<Arc<EarlierProgram>>,
}

impl Entrance {
    /// Serves a connection in a task of its own, if the client may have one more.
    fn take(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let has_members = || self.plane.with_control(|control| control.has_members_at(from.ip()));
        let permit = match self.limits.acquire(from.ip(), has_members) {
            Ok(permit) => Arc::new(permit),
            Err(full) => {
                self.plane.count_error(TOO_MANY);
                tracing::info!(from = %from.ip(), code = TOO_MANY, error = full.sentence(), "request refused");
                return reject(&stream, full);
            }
        };
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let own = match &this.earlier {
                None => Some(stream),
                Some(earlier) => earlier.pass_on(stream, this.number, &this.plane).await,
            };
            if let Some(stream) = own {
                serve_connection(stream, from, this.router.clone(), permit).await;
            }
        });
    }
}

async fn accept(listener: tokio::net::TcpListener, entrance: Arc<Entrance>, mut paused: watch::Receiver<bool>) {
    // The process may be out of file descriptors, for example. Trying again at once would not help, so it waits.
    const AFTER_ERROR: Duration = Duration::from_millis(100);
    loop {
        if paused.wait_for(|&paused| !paused).await.is_err() {
            return;
        }
        let accepted = tokio::select! {
            biased;
            _ = paused.wait_for(|&paused| paused) => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => entrance.take(stream, from),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the control API");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

/// Takes connections that the next program has accepted, and that are about jobs of this one.
async fn take_handed(handed: &mut HandedConnections, entrances: &[Arc<Entrance>]) {
    while let Some((number, stream)) = handed.recv().await {
        take_from_next(entrances, number, stream);
    }
}

fn take_from_next(entrances: &[Arc<Entrance>], number: usize, stream: std::net::TcpStream) {
    let Some(entrance) = entrances.get(number) else { return };
    match stream.peer_addr().and_then(|from| Ok((TcpStream::from_std(stream)?, from))) {
        Ok((stream, from)) => entrance.take(stream, from),
        Err(error) => tracing::debug!(%error, "a connection has gone before it was served"),
    }
}

/// Sends the client the reason, if that fits the kernel's buffer, and closes the connection.
fn reject(stream: &TcpStream, full: Full) {
    let body = ErrorBody { error: full.sentence().into(), code: TOO_MANY.into(), rank: None };
    let body = serde_json::to_string(&body).unwrap_or_default();
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close";
    let answer = format!("{head}\r\n{HEADER}: {API_VERSION}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    // The call fails if the client has gone away.
    let _ = stream.try_write(answer.as_bytes());
}

/// The page's path.
pub(crate) const PAGE_PATH: &str = "/";

const PAGE: &str = include_str!("page/page.html");
/// What goes into the page in place of these words.
const INCLUDED: [(&str, &str); 2] = [
    ("STYLE", include_str!("page/page.css")),
    ("SCRIPT", concat!(include_str!("page/drawing.js"), include_str!("page/page.js"))),
];
/// The text in the page in whose place the nonce goes.
const NONCE: &str = "NONCE";

/// The page. Its own script and style run because they name the nonce of this answer. No other script runs, and nothing
/// is loaded from anywhere else, whatever names clients have sent.
pub(crate) async fn page() -> ([(HeaderName, String); 4], Html<String>) {
    // Without random numbers the nonce can be guessed. But nobody can put a script into the page that would use it.
    let nonce = format!("{:016x}", getrandom::u64().unwrap_or_default());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    let page = INCLUDED.iter().fold(PAGE.replace(NONCE, &nonce), |page, (word, text)| page.replace(word, text));
    (headers, Html(page))
}
