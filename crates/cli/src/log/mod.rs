//! The log: lines on stderr for people, or JSON for programs. Repeated lines of one kind are limited, and logging never
//! waits for the reader.

mod limit;

use clap::ValueEnum;
use tracing_subscriber::filter::{FilterExt, LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt};

use self::limit::Limit;
use crate::failure::Failure;
use crate::sink::Sink;

/// The flags of daemons.
#[derive(clap::Args, Clone, Debug)]
pub struct LogArgs {
    /// What to log: error, warn, info, debug or trace
    #[arg(long = "log", value_name = "LEVEL", env = "TRIBUTARY_LOG", default_value = "info")]
    pub level: String,
    /// How the log is written
    #[arg(long, value_name = "FORMAT", env = "TRIBUTARY_LOG_FORMAT", default_value = "text")]
    pub log_format: Format,
}

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One object a line
    Json,
}

impl LogArgs {
    /// The flags of commands that are not daemons: warnings only, unless the environment says otherwise.
    pub fn of_environment() -> Result<LogArgs, Failure> {
        let variable = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
        let format = variable("TRIBUTARY_LOG_FORMAT", "text");
        let log_format = Format::from_str(&format, false)
            .map_err(|_| Failure::usage(format!("TRIBUTARY_LOG_FORMAT is '{format}': say text or json")))?;
        Ok(LogArgs { level: variable("TRIBUTARY_LOG", "warn"), log_format })
    }

    /// Parses a level, or several for parts of the program: `info,tributary_net=trace`.
    fn filter(&self) -> Option<Targets> {
        // Otherwise an unknown word would be taken for a part of the program, and an empty level would log only errors.
        let is_known = |word: &str| word.contains('=') || (!word.is_empty() && word.parse::<LevelFilter>().is_ok());
        let all_known = self.level.split(',').all(is_known);
        all_known.then(|| self.level.parse().ok()).flatten()
    }

    /// Starts the log. All lines are written when the result is dropped.
    pub fn start(&self) -> Result<Log, Failure> {
        let filter = self.filter().ok_or_else(|| {
            let level = &self.level;
            Failure::usage(format!("'{level}' is not a level of the log: say error, warn, info, debug or trace"))
        })?;
        let sink = Sink::start()?;
        let filter = filter.and(Limit::new(sink.clone(), self.log_format));
        let layer = fmt::layer().with_writer(sink.clone()).with_target(false).with_ansi(false);
        let layer = match self.log_format {
            Format::Text => layer.with_filter(filter).boxed(),
            Format::Json => {
                let layer = layer.json().flatten_event(true).with_current_span(false).with_span_list(false);
                layer.with_filter(filter).boxed()
            }
        };
        // Fails only if a log is set up already, as in an embedding process; then that log is used.
        let _ = Registry::default().with(layer).try_init();
        Ok(Log(sink))
    }
}

/// A running log.
pub struct Log(Sink);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_word_that_is_known_or_says_for_what_it_is() {
        let is_known = |level: &str| LogArgs { level: level.into(), log_format: Format::Text }.filter().is_some();
        for level in
            ["error", "warn", "INFO", "debug", "trace", "off", "tributary_net=trace", "info,tributary_net=debug"]
        {
            assert!(is_known(level), "{level}");
        }
        for level in ["", "verbose", "info,much", "tributary_net=loud"] {
            assert!(!is_known(level), "{level}");
        }
    }
}
