//! Whose modules are compiled next. A module takes up to a second to compile, so one thread compiles for all, and each
//! client has few of them in the queue. Requests that bring the same modules count once: all ranks of a job do.

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

/// A client, and the hash of the modules that its requests bring.
type Key = (Client, u64);

struct Entry {
    requests: usize,
    /// Requests with the same modules follow each other, so that one of them compiles for all.
    same: Arc<Semaphore>,
}

/// The queue of one switch.
pub(crate) struct CompileQueue {
    turn: Semaphore,
    hasher: RandomState,
    entries: Mutex<HashMap<Key, Entry>>,
}

impl Default for CompileQueue {
    /// Nothing waits.
    fn default() -> CompileQueue {
        CompileQueue { turn: Semaphore::new(1), hasher: RandomState::new(), entries: Mutex::default() }
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
        let (position, same) = self.enter((client.clone(), self.hasher.hash_one(modules)))?;
        let closed = |_| ApiError::bad_request("the switch compiles no modules any more".into());
        let _same = same.acquire().await.map_err(closed)?;
        let _turn = self.turn.acquire().await.map_err(closed)?;
        let done = tokio::task::spawn_blocking(work).await;
        drop(position);
        done.unwrap_or_else(|error| Err(ApiError::bad_request(format!("the module cannot be compiled: {error}"))))
    }

    fn enter(&self, key: Key) -> Result<(Position<'_>, Arc<Semaphore>), ApiError> {
        let mut entries = self.entries();
        let own = entries.keys().filter(|(client, _)| *client == key.0).count();
        if own >= MOST_OF_CLIENT && !entries.contains_key(&key) {
            let error = format!(
                "this switch compiles {MOST_OF_CLIENT} jobs' operators of {} already, and no more of one client at a time: \
                 try again in a while",
                key.0
            );
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_much_at_once", error));
        }
        let new = || Entry { requests: 0, same: Arc::new(Semaphore::new(1)) };
        let entry = entries.entry(key.clone()).or_insert_with(new);
        entry.requests += 1;
        let same = Arc::clone(&entry.same);
        Ok((Position { queue: self, key }, same))
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.entries.lock().expect("no call panics while it holds the entries")
    }
}

/// A request in the queue. Dropping it makes way for others.
struct Position<'a> {
    queue: &'a CompileQueue,
    key: Key,
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        let mut entries = self.queue.entries();
        if let Some(entry) = entries.get_mut(&self.key) {
            entry.requests -= 1;
            if entry.requests == 0 {
                entries.remove(&self.key);
            }
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

    #[tokio::test]
    async fn a_client_with_a_full_queue_is_refused_and_another_is_served_next() {
        let queue = Arc::new(CompileQueue::default());
        let (finish, is_finished) = mpsc::channel::<()>();
        let is_finished = Arc::new(Mutex::new(is_finished));
        let compile = |number: usize| {
            let (queue, is_finished) = (Arc::clone(&queue), Arc::clone(&is_finished));
            let work = move || {
                is_finished.lock().unwrap().recv().unwrap();
                Ok(())
            };
            tokio::spawn(async move { queue.run(&client(1), &[number.to_string()], work).await })
        };
        let inside: Vec<_> = (0..MOST_OF_CLIENT).map(compile).collect();
        while queue.entries().len() < MOST_OF_CLIENT {
            tokio::task::yield_now().await;
        }
        assert!(queue.run(&client(1), &["another".into()], || Ok(())).await.is_err());
        let other = {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.run(&client(2), &["another".into()], || Ok(7)).await })
        };
        inside.iter().for_each(|_| finish.send(()).unwrap());
        for request in inside {
            request.await.unwrap().unwrap();
        }
        assert_eq!(other.await.unwrap(), Ok(7));
        assert!(queue.entries().is_empty());
    }

    #[tokio::test]
    async fn all_ranks_of_a_job_bring_the_same_modules_and_count_once() {
        let queue = CompileQueue::default();
        let mut positions = Vec::new();
        for _ in 0..100 {
            positions.push(queue.enter((client(1), 7)).ok().unwrap().0);
        }
        drop(positions);
        assert!(queue.entries().is_empty());
    }
}
