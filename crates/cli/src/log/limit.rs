//! Limits the lines of one kind, so that a client that makes a switch log cannot fill its disk, nor hide other lines in
//! the noise. The first line of a kind that is written again says how many were left out. Debug and trace are for
//! people who ask for everything, and are not limited.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::json;
use tracing_core::callsite::Identifier;
use tracing_core::field::{Field, Visit};
use tracing_core::{Event, Level, Metadata};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Filter};

use super::Format;
use crate::sink::Sink;

/// How many lines of a kind may come at once.
const BURST: u32 = 100;
/// After each such time one more line may come.
const REFILL: Duration = Duration::from_millis(200);

/// The state of one kind of line.
struct Bucket {
    tokens: u32,
    filled: Duration,
    left_out: u64,
}

impl Bucket {
    fn new(now: Duration) -> Bucket {
        Bucket { tokens: BURST, filled: now, left_out: 0 }
    }

    /// How many lines were left out before this one; `None` if this one is left out too.
    fn admit(&mut self, now: Duration) -> Option<u64> {
        let more = now.saturating_sub(self.filled).as_nanos() / REFILL.as_nanos();
        if more > 0 {
            self.tokens = u32::try_from(more).unwrap_or(BURST).saturating_add(self.tokens).min(BURST);
            self.filled = now;
        }
        if self.tokens == 0 {
            self.left_out += 1;
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The filter.
pub struct Limit {
    start: Instant,
    buckets: Mutex<HashMap<Identifier, Bucket>>,
    sink: Sink,
    format: Format,
}

impl Limit {
    /// A limit before the first line.
    pub fn new(sink: Sink, format: Format) -> Limit {
        Limit { start: Instant::now(), buckets: Mutex::default(), sink, format }
    }
}

impl<S> Filter<S> for Limit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        if *event.metadata().level() > Level::INFO {
            return true;
        }
        let now = self.start.elapsed();
        let admitted = {
            let mut buckets = self.buckets.lock().expect("nobody panics while it holds this");
            buckets.entry(event.metadata().callsite()).or_insert_with(|| Bucket::new(now)).admit(now)
        };
        if let Some(left_out) = admitted.filter(|&left_out| left_out > 0) {
            let line = notice(left_out, event, self.format);
            self.sink.push(format!("{}{line}", self.sink.priority(Level::WARN)).into_bytes());
        }
        admitted.is_some()
    }
}

/// The line that replaces those that were left out.
fn notice(left_out: u64, event: &Event<'_>, format: Format) -> String {
    let mut kind = Message::default();
    event.record(&mut kind);
    let mut time = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let message = format!("{left_out} lines were left out that say: {}", kind.0);
    match format {
        Format::Text => format!("{time}  WARN {message}\n"),
        Format::Json => {
            let line = json!({ "timestamp": time, "level": "WARN", "message": message, "left_out": left_out });
            format!("{line}\n")
        }
    }
}

/// The message of an event, without its fields.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_cut_short_and_the_next_line_says_how_many_were_left_out() {
        let mut bucket = Bucket::new(Duration::ZERO);
        let written = (0..10 * BURST).filter(|_| bucket.admit(Duration::ZERO).is_some()).count();
        assert_eq!(written, BURST as usize);
        assert_eq!(bucket.admit(REFILL), Some(u64::from(9 * BURST)));
        assert_eq!(bucket.admit(REFILL), None, "one in each interval");
        assert_eq!(bucket.admit(3 * REFILL), Some(1));
        assert_eq!(bucket.admit(Duration::from_secs(3_600)), Some(0));
        let written = (0..10 * BURST).filter(|_| bucket.admit(Duration::from_secs(3_600)).is_some()).count();
        assert_eq!(written, BURST as usize - 1, "quiet times are not saved up");
    }
}
