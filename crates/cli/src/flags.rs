//! Values that flags of several commands have: a switch, `HOST:PORT` or `HOST` alone for the default port; memory; and times.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use tributary_control::config::SwitchConfigFile;
use tributary_control::quantity::{self, Bytes};
use tributary_net::client;
use tributary_net::switch_daemon::SwitchOptions;

use crate::failure::Failure;

/// The port of a switch unless another is named.
pub const DEFAULT_PORT: u16 = SwitchOptions::DEFAULT_PORT;

/// Parses `HOST[:PORT]`, with `[..]` around an IPv6 address that a port follows; the port is always there afterwards.
pub fn parse_switch(text: &str) -> Result<String, String> {
    let with_default = match text.rsplit_once(':') {
        _ if text.is_empty() => return Err("an address is empty; write HOST:PORT, for example 10.0.0.1:17777".into()),
        Some((host, _)) if host.contains(':') && !host.starts_with('[') => format!("[{text}]:{DEFAULT_PORT}"),
        Some(_) if text.ends_with(']') => format!("{text}:{DEFAULT_PORT}"),
        Some(("", _)) => return Err(format!("'{text}' names no host; write HOST:PORT, for example 10.0.0.1{text}")),
        Some((_, port)) => match port.parse::<u16>() {
            Ok(1..) => text.to_string(),
            _ => return Err(format!("'{port}' is not a port; a port is a number from 1 to 65535")),
        },
        None => format!("{text}:{DEFAULT_PORT}"),
    };
    Ok(with_default)
}

/// The known names, for the sentence about one that is not among them.
pub fn one_of(names: impl IntoIterator<Item = &'static str>) -> String {
    format!("it is one of {}", names.into_iter().collect::<Vec<_>>().join(", "))
}

/// The address of a switch that was parsed.
pub fn resolve(switch: &str) -> Result<SocketAddr, Failure> {
    client::resolve(switch).map_err(|error| {
        let name = switch.rsplit_once(':').map_or(switch, |(name, _)| name);
        let why = match error.kind() {
            io::ErrorKind::InvalidInput => format!("'{name}': {error}"),
            _ => format!("the name '{name}' is unknown: write the address as numbers, or add it to /etc/hosts"),
        };
        Failure::new(why)
    })
}

/// Parses the memory of a switch: 1 MiB to 16 TiB.
pub fn parse_memory(text: &str) -> Result<Bytes, String> {
    let memory: Bytes = text.parse()?;
    match (SwitchConfigFile::MIN_MEMORY..=Bytes(1 << 44)).contains(&memory) {
        true => Ok(memory),
        false => Err(format!("it is at least {} and at most 16384 GiB", SwitchConfigFile::MIN_MEMORY)),
    }
}

/// Parses a time in this range.
pub fn parse_time(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, String> {
    let time = Duration::from(text.parse::<quantity::Duration>()?);
    match range.contains(&time) {
        true => Ok(time),
        false => Err(format!("it is a time from {:?} to {:?}", range.start(), range.end())),
    }
}

/// Parses a time above zero, up to a year.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_time(text, Duration::from_nanos(1)..=Duration::from_secs(365 * 86_400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_may_be_left_out() {
        assert_eq!(parse_switch("10.0.0.1").as_deref(), Ok("10.0.0.1:17777"));
        assert_eq!(parse_switch("tor-3:5555").as_deref(), Ok("tor-3:5555"));
        assert_eq!(parse_switch("::1").as_deref(), Ok("[::1]:17777"));
        assert_eq!(parse_switch("[::1]").as_deref(), Ok("[::1]:17777"));
        assert_eq!(parse_switch("[::1]:9").as_deref(), Ok("[::1]:9"));
    }

    #[test]
    fn what_cannot_be_an_address_is_refused_with_a_sentence() {
        assert_eq!(parse_switch("host:0"), Err("'0' is not a port; a port is a number from 1 to 65535".to_string()));
        assert!(parse_switch("host:http").unwrap_err().contains("'http' is not a port"));
        assert!(parse_switch(":17777").unwrap_err().contains("names no host"));
        assert!(parse_switch("").unwrap_err().contains("empty"));
    }

    #[test]
    fn a_time_has_a_unit_and_is_not_zero() {
        assert_eq!(parse_timeout("500ms"), Ok(Duration::from_millis(500)));
        assert!(parse_timeout("30").unwrap_err().contains("is not a quantity: write a number and"));
        assert!(parse_timeout("0 s").unwrap_err().contains("from 1ns"));
        let seconds = Duration::from_secs(1)..=Duration::from_secs(60);
        assert_eq!(parse_time("61 s", seconds), Err("it is a time from 1s to 60s".to_owned()));
    }
}
