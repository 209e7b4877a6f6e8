//! How lines of a daemon reach stdout and stderr: a thread writes them. If no program reads them, lines are lost and
//! counted, and the daemon goes on: a switch must not stop because its journal does.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use tracing_core::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How many lines may wait to be written.
const QUEUE_LINES: usize = 4_096;
/// How long the end of the program waits for the reader of stderr.
const PATIENCE: Duration = Duration::from_secs(1);

enum Order {
    Write(Vec<u8>),
    Flush(SyncSender<()>),
}

/// The end to which lines are given.
#[derive(Clone)]
pub struct Sink {
    orders: SyncSender<Order>,
    lost: Arc<AtomicU64>,
    to_journal: bool,
}

impl Sink {
    /// Starts the thread that writes to stderr.
    pub fn start() -> io::Result<Sink> {
        Ok(Sink { to_journal: stderr_is_journal(), ..Sink::start_with(io::stderr())? })
    }

    /// Starts the thread that writes to `out`.
    pub fn start_with(out: impl Write + Send + 'static) -> io::Result<Sink> {
        let (orders, received) = sync_channel(QUEUE_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&lost);
        Builder::new().name("log".into()).spawn(move || write_all(&received, &counter, out))?;
        Ok(Sink { orders, lost, to_journal: false })
    }

    /// What stands before a line of this level: for the journal its priority, and nothing elsewhere.
    pub fn priority(&self, level: Level) -> &'static str {
        if self.to_journal { priority(level) } else { "" }
    }

    /// Queues a line if the queue is not full.
    pub fn push(&self, line: Vec<u8>) {
        if self.orders.try_send(Order::Write(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits, but not indefinitely, until all queued lines are written.
    pub fn flush(&self) {
        let start = Instant::now();
        let (done, is_done) = sync_channel(1);
        let mut order = Order::Flush(done);
        // A full channel takes lines again once the thread has written a line.
        while let Err(refused) = self.orders.try_send(order) {
            let TrySendError::Full(again) = refused else { return };
            if start.elapsed() > PATIENCE {
                return;
            }
            order = again;
            sleep(Duration::from_millis(1));
        }
        // If it takes too long, no program reads the lines, and none will miss them.
        let _ = is_done.recv_timeout(PATIENCE.saturating_sub(start.elapsed()));
    }
}

/// How a line tells the journal how grave it is (sd-daemon(3)).
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// What stands before a line on stderr that says why the program ends.
pub fn priority_of_failure() -> &'static str {
    if stderr_is_journal() { priority(Level::ERROR) } else { "" }
}

/// True if stderr goes to the journal. The variable names the journal's socket (systemd.exec(5)), and is also passed to
/// programs whose stderr is another.
fn stderr_is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    std::fs::metadata("/proc/self/fd/2").is_ok_and(|stderr| named == format!("{}:{}", stderr.dev(), stderr.ino()))
}

fn write_all(orders: &Receiver<Order>, lost: &AtomicU64, mut out: impl Write) {
    // If stderr is closed, write errors cannot be reported.
    for order in orders {
        match order {
            Order::Write(line) => {
                let _ = out.write_all(&line);
                let lost = lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let _ = writeln!(out, "WARN {lost} lines of the log were lost: nobody read them in time");
                }
            }
            Order::Flush(done) => {
                let _ = out.flush();
                // Fails if the flushing thread has waited long enough.
                let _ = done.send(());
            }
        }
    }
}

/// A line under construction.
pub struct Line {
    sink: Sink,
    bytes: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.sink.push(std::mem::take(&mut self.bytes));
        }
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { sink: self.clone(), bytes: Vec::new() }
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Line {
        Line { sink: self.clone(), bytes: self.priority(*of.level()).into() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A reader that does not read until it is told to.
    #[derive(Clone, Default)]
    struct Slow(Arc<(Mutex<Vec<u8>>, Mutex<()>)>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _turn = self.0.1.lock().unwrap();
            self.0.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_logging_thread_goes_on_if_nobody_reads_and_lost_lines_are_counted() {
        let out = Slow::default();
        let sink = Sink::start_with(out.clone()).unwrap();
        let stuck = out.0.1.lock().unwrap();
        for number in 0..2 * QUEUE_LINES {
            sink.push(format!("line {number}\n").into_bytes());
        }
        drop(stuck);
        // There is room again as soon as the thread has written some lines.
        while sink.lost.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        sink.flush();
        let text = String::from_utf8(out.0.0.lock().unwrap().clone()).unwrap();
        let lost: usize =
            text.lines().filter_map(|line| line.strip_prefix("WARN ")?.split(' ').next()?.parse::<usize>().ok()).sum();
        let written = text.lines().filter(|line| line.starts_with("line ")).count();
        assert_eq!(written + lost, 2 * QUEUE_LINES);
        assert!(lost >= QUEUE_LINES - 1, "{lost}");
    }
}
