//! The thread on which the watches of all groups of this process wait. It ends with the last of them.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::Builder;

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::os::OwnerProcess;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The thread, as those know it who use it.
struct Watches {
    /// A fork has this value and no such thread.
    owner: OwnerProcess,
    tasks: mpsc::UnboundedSender<Task>,
}

/// The thread of this process, if there is one.
static OF_PROCESS: Mutex<Weak<Watches>> = Mutex::new(Weak::new());

/// A group's watch. Dropping it ends the watch.
pub struct Watch {
    /// Dropped first: it wakes the task.
    _end: oneshot::Sender<Infallible>,
    _thread: Arc<Watches>,
}

/// Begins a watch.
pub fn begin(watch: impl Future<Output = ()> + Send + 'static) -> io::Result<Watch> {
    let thread = thread()?;
    let (end, ended) = oneshot::channel::<Infallible>();
    let until_dropped = async move {
        tokio::select! {
            _ = ended => {}
            () = watch => {}
        }
    };
    // The thread takes tasks for as long as somebody holds its sender.
    let _ = thread.tasks.send(Box::pin(until_dropped));
    Ok(Watch { _end: end, _thread: thread })
}

fn thread() -> io::Result<Arc<Watches>> {
    let mut of_process = OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(thread) = of_process.upgrade().filter(|thread| thread.owner.is_current()) {
        return Ok(thread);
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (tasks, given) = mpsc::unbounded_channel();
    Builder::new().name("watches".into()).spawn(move || runtime.block_on(run(given)))?;
    let thread = Arc::new(Watches { owner: OwnerProcess::current(), tasks });
    *of_process = Arc::downgrade(&thread);
    Ok(thread)
}

/// Runs what is given, until nobody can give more.
async fn run(mut given: mpsc::UnboundedReceiver<Task>) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            task = given.recv() => match task {
                Some(task) => {
                    running.spawn(task);
                }
                None => return,
            },
            Some(ended) = running.join_next() => if let Err(error) = ended {
                tracing::error!(%error, "a watch has failed: its group does not learn who is gone");
            },
        }
    }
}
