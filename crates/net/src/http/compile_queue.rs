//! Whose modules are compiled next. A module takes up to a second to compile, so one thread compiles for all, for one
//! client after another: a client whose first module comes waits for those of others that are being compiled or are next,
//! at most one of each client. Requests that bring the same modules count once: all ranks of a job do.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::http::StatusCode;
use tokio::sync::Semaphore;
use tributary_control::Client;

use crate::api::error::ApiError;

/// The most requests with different modules of one client that are compiled or wait.
const MOST_OF_CLIENT: usize = 4;

/// The requests of one client.
struct OfClient {
    /// One request of the client at a time is compiled or next.
    turn: Arc<Semaphore>,
    /// By the hash of the modules that they bring.
    modules: HashMap<u64, Entry>,
}

struct Entry {
    requests: usize,
    /// Requests with the same modules follow each other, so that one of them compiles for all.
    same: Arc<Semaphore>,
}

/// The queue of one switch.
pub(crate) struct CompileQueue {
    /// First come, first served; [`OfClient::turn`] comes before it.
    turn: Semaphore,
    hasher: RandomState,
    clients: Mutex<HashMap<Client, OfClient>>,
}

impl Default for CompileQueue {
    /// Nothing waits.
    fn default() -> CompileQueue {
        CompileQueue { turn: Semaphore::new(1), hasher: RandomState::new(), clients: Mutex::default() }
    }
}

impl CompileQueue {
    /// Runs `work`, which compiles these modules for a client. Without modules it runs at once.
    pub async fn run<T: Send + 'static>(
        &self,
        client: &Client,
        modules: &[String],
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if modules.is_empty() {
            return work();
        }
        let position = self.enter(client, self.hasher.hash_one(modules))?;
        let closed = |_| ApiError::bad_request("the switch compiles no modules any more".into());
        let _same = position.same.acquire().await.map_err(closed)?;
        let _client_turn = position.turn.acquire().await.map_err(closed)?;
        let _turn = self.turn.acquire().await.map_err(closed)?;
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(ApiError::bad_request(format!("the module cannot be compiled: {error}"))))
    }

    fn enter(&self, client: &Client, modules: u64) -> Result<Position<'_>, ApiError> {
        let one = || Arc::new(Semaphore::new(1));
        let mut clients = self.clients();
        let own = clients.entry(client.clone()).or_insert_with(|| OfClient { turn: one(), modules: HashMap::new() });
        if own.modules.len() >= MOST_OF_CLIENT && !own.modules.contains_key(&modules) {
            let error = format!(
                "this switch compiles {MOST_OF_CLIENT} jobs' operators of {client} already, and no more of one client at a \
                 time: try again in a while"
            );
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_much_at_once", error));
        }
        let turn = Arc::clone(&own.turn);
        let entry = own.modules.entry(modules).or_insert_with(|| Entry { requests: 0, same: one() });
        entry.requests += 1;
        Ok(Position { queue: self, client: client.clone(), modules, same: Arc::clone(&entry.same), turn })
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Client, OfClient>> {
        self.clients.lock().expect("no call panics while it holds the entries")
    }
}

/// A request in the queue. Dropping it makes way for others.
struct Position<'a> {
    queue: &'a CompileQueue,
    client: Client,
    modules: u64,
    same: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        let mut clients = self.queue.clients();
        let Some(own) = clients.get_mut(&self.client) else { return };
        if let Some(entry) = own.modules.get_mut(&self.modules) {
            entry.requests -= 1;
            if entry.requests == 0 {
                own.modules.remove(&self.modules);
            }
        }
        if own.modules.is_empty() {
            clients.remove(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn client(number: u8) -> Client {
        Client::at([10, 0, 0, number].into())
    }

    /// One client fills its part of the queue before another comes, whose module is the next all the same.
    #[tokio::test]
    async fn a_client_with_a_full_queue_is_refused_and_another_is_served_next() {
        let queue = Arc::new(CompileQueue::default());
        let (finish, is_finished) = mpsc::channel::<()>();
        let (is_finished, order) = (Arc::new(Mutex::new(is_finished)), Arc::new(Mutex::new(Vec::new())));
        let compile = |of: u8, number: usize| {
            let (queue, is_finished, order) = (Arc::clone(&queue), Arc::clone(&is_finished), Arc::clone(&order));
            let work = move || {
                order.lock().unwrap().push(of);
                is_finished.lock().unwrap().recv().unwrap();
                Ok(of)
            };
            tokio::spawn(async move { queue.run(&client(of), &[number.to_string()], work).await })
        };
        let mut inside: Vec<_> = (0..MOST_OF_CLIENT).map(|number| compile(1, number)).collect();
        while queue.clients().get(&client(1)).is_none_or(|own| own.modules.len() < MOST_OF_CLIENT) {
            tokio::task::yield_now().await;
        }
        assert!(queue.run(&client(1), &["another".into()], || Ok(())).await.is_err());
        inside.push(compile(2, 0));
        while !queue.clients().contains_key(&client(2)) {
            tokio::task::yield_now().await;
        }
        inside.iter().for_each(|_| finish.send(()).unwrap());
        for request in inside {
            request.await.unwrap().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [1, 2, 1, 1, 1]);
        assert!(queue.clients().is_empty());
    }

    #[tokio::test]
    async fn all_ranks_of_a_job_bring_the_same_modules_and_count_once() {
        let queue = CompileQueue::default();
        let mut positions = Vec::new();
        for _ in 0..100 {
            positions.push(queue.enter(&client(1), 7).ok().unwrap());
        }
        drop(positions);
        assert!(queue.clients().is_empty());
    }
}
