//! The server's side of the control plane: it keeps a connection to the switch, whose answers say which jobs the server
//! serves.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tributary_proto::contract::ids::JobId;

use super::ThreadHandle;
use super::job::Job;
use super::thread::Command;
use crate::api::{OfferBody, OfferReply};
use crate::client::{ClientError, ServerClient};

/// The pause after a request that failed. A restarted switch gets its servers back by the next request.
const PAUSE: Duration = Duration::from_millis(250);

/// The offer, and the jobs that the switch has given the server.
pub struct Offering {
    client: ServerClient,
    thread_handle: ThreadHandle,
    state: Mutex<State>,
    stopping: AtomicBool,
}

struct State {
    body: OfferBody,
    /// The key of each job that is served.
    jobs: BTreeMap<JobId, String>,
}

impl Offering {
    /// An offer to a switch; the jobs go to this thread.
    pub fn new(client: ServerClient, body: OfferBody, thread_handle: ThreadHandle) -> Offering {
        let state = Mutex::new(State { body, jobs: BTreeMap::new() });
        Offering { client, thread_handle, state, stopping: AtomicBool::new(false) }
    }

    /// Renews the offer until the server ends. No thread waits for this thread.
    pub fn run(&self) {
        let mut answered = true;
        while !self.stopping.load(Ordering::Acquire) {
            match self.ask() {
                Ok(()) if !answered => tracing::info!("the switch answers again"),
                Ok(()) => {}
                Err(error) => {
                    if answered {
                        // The server's jobs go on, because their packets do not pass the switch.
                        tracing::warn!(%error, "the switch does not take the offer; asking again");
                    }
                    thread::sleep(PAUSE);
                }
            }
            answered = self.state().body.known.is_some();
        }
    }

    /// Makes one request and takes its answer.
    pub fn ask(&self) -> Result<(), ClientError> {
        let body = self.state().body.clone();
        let answer = self.client.offer(&body);
        let mut state = self.state();
        // After an error the next answer may come from another switch, which may use the same number for other jobs.
        state.body.known = answer.as_ref().ok().map(|reply| reply.changes);
        self.take(&mut state, answer?);
        Ok(())
    }

    fn take(&self, state: &mut State, reply: OfferReply) {
        let stays = |id: &JobId, key: &String| reply.jobs.iter().any(|job| job.job_id == id.0 && job.key == *key);
        state.jobs.retain(|id, key| {
            let stays = stays(id, key);
            if !stays {
                tracing::info!(id = id.0, "a job is over");
                self.thread_handle.send(Command::End(*id));
            }
            stays
        });
        for body in reply.jobs {
            let id = JobId(body.job_id);
            if state.jobs.contains_key(&id) {
                continue;
            }
            match Job::new(&body, self.client.switch()) {
                Some(job) => {
                    let (name, server) = (&body.name, body.server);
                    tracing::info!(job = %name, id = id.0, server, workers = body.workers.len(), "a job to serve");
                    self.thread_handle.send(Command::Serve(Box::new(job)));
                    state.jobs.insert(id, body.key);
                }
                None => tracing::error!(job = %body.name, "the switch assigned a job that this build cannot interpret"),
            }
        }
    }

    /// Withdraws the offer.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let incarnation = self.state().body.incarnation.clone();
        if let Err(error) = self.client.retire(incarnation) {
            tracing::debug!(%error, "the switch did not receive the end of the offer; it notices the closed connection");
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no call panics while it holds the jobs")
    }
}
