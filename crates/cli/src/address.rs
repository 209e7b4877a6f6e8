//! Where a switch is: `HOST:PORT`, or `HOST` alone for the default port.

/// The port of a switch that was not told another.
pub const DEFAULT_PORT: u16 = 17777;

/// Parses `HOST[:PORT]`, with `[..]` around an IPv6 address that a port follows.
pub fn parse_switch(text: &str) -> Result<String, String> {
    let with_default = match text.rsplit_once(':') {
        _ if text.is_empty() => return Err("an address is empty; write HOST:PORT, for example 10.0.0.1:17777".into()),
        Some((host, _)) if host.contains(':') && !host.starts_with('[') => format!("[{text}]:{DEFAULT_PORT}"),
        Some(_) if text.ends_with(']') => format!("{text}:{DEFAULT_PORT}"),
        Some(("", _)) => return Err(format!("'{text}' names no host; write HOST:PORT, for example 10.0.0.1{text}")),
        Some((_, port)) => match port.parse::<u16>() {
            Ok(1..) => text.to_string(),
            _ => return Err(format!("'{port}' is no port; a port is a number from 1 to 65535")),
        },
        None => format!("{text}:{DEFAULT_PORT}"),
    };
    Ok(with_default)
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
        assert_eq!(parse_switch("host:0"), Err("'0' is no port; a port is a number from 1 to 65535".to_string()));
        assert!(parse_switch("host:http").unwrap_err().contains("'http' is no port"));
        assert!(parse_switch(":17777").unwrap_err().contains("names no host"));
        assert!(parse_switch("").unwrap_err().contains("empty"));
    }
}
