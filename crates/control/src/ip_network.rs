//! Addresses as an operator names them: one address, or a whole network by its prefix (RFC 4632 and RFC 4291, section
//! 2.3).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::Deserialize;

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct IpNetwork {
    address: IpAddr,
    /// The number of bits that all addresses have in common.
    bits: u8,
}

/// The text does not name a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is neither an address nor a network: write 10.0.0.7 or 10.1.0.0/16")]
pub struct BadNetwork(String);

impl IpNetwork {
    /// True if the network has this address. An IPv4 address counts as IPv4 even if it is written as IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u32::from(own) ^ u32::from(other)).leading_zeros() >= self.bits.into()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (u128::from(own) ^ u128::from(other)).leading_zeros() >= self.bits.into()
            }
            _ => false,
        }
    }
}

impl FromStr for IpNetwork {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<IpNetwork, BadNetwork> {
        let fail = || BadNetwork(text.to_string());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| fail())?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), |bits| bits.parse().map_err(|_| fail()))?;
        if bits <= all { Ok(IpNetwork { address, bits }) } else { Err(fail()) }
    }
}

impl TryFrom<String> for IpNetwork {
    type Error = BadNetwork;

    fn try_from(text: String) -> Result<IpNetwork, BadNetwork> {
        text.parse()
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        let has =
            |network: &str, address: &str| network.parse::<IpNetwork>().unwrap().contains(address.parse().unwrap());
        for (network, inside, outside) in [
            ("10.0.0.7", "10.0.0.7", "10.0.0.6"),
            ("10.0.0.7", "::ffff:10.0.0.7", "::a00:7"),
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("0.0.0.0/0", "255.0.0.1", "::1"),
            ("fd00::/8", "fdff::1", "fe80::1"),
            ("fd00::1", "fd00::1", "fd00::2"),
        ] {
            assert!(has(network, inside) && !has(network, outside), "{network}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_network_is_quoted() {
        for wrong in ["", "host", "10.0.0.0/33", "10.0.0.0/", "fd00::/129", "10.0.0.1/-1"] {
            let error = wrong.parse::<IpNetwork>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
    }
}
