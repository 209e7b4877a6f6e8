//! Racks: stars whose switch boxes each have a link to one parent box.
//!
//! Every rack is a network of its own, with the same addresses as all others: hosts reach only their own switch. Only
//! the switch boxes have a second address, towards the parent box.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::TestbedError;
use crate::faults::{self, Faults, FaultyEnd};
use crate::namespace::Namespace;
use crate::star::{Star, StarOptions, ip_batch, mac};

/// Each rack's interface towards the parent box.
const UP_DEVICE: &str = "up0";

/// Stars below one box; dropping them removes everything that runs in them.
#[derive(Debug)]
pub struct Racks {
    racks: Vec<Star>,
    top: Namespace,
    _faulty_ends: Vec<FaultyEnd>,
}

impl Racks {
    /// Builds `racks` racks of one kind. The links between racks and the parent box have the racks' shape, and their own
    /// faults.
    pub fn build(racks: u8, options: &StarOptions, up_faults: Faults) -> Result<Racks, TestbedError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let racks = (0..racks).map(|_| Star::build(options.clone())).collect::<Result<Vec<_>, _>>()?;
        let top = Namespace::create(NUMBER.fetch_add(1, Ordering::Relaxed), "top")?;
        let mut faulty_ends = Vec::new();
        for (number, rack) in racks.iter().enumerate() {
            let (below, down) = (rack.switch_box(), format!("down{number}"));
            let (lower, upper) = (Racks::rack_addr(number), Racks::top_addr(number));
            let (lower_mac, upper_mac) = (mac(0xE0 + number), mac(0xF0 + number));
            let mtu = options.mtu;
            ip_batch(
                &top,
                &[
                    format!(
                        "link add {down} mtu {mtu} address {upper_mac} type veth peer name {UP_DEVICE} mtu {mtu} \
                         address {lower_mac} netns {}",
                        below.name()
                    ),
                    format!("addr add {upper}/24 dev {down}"),
                    format!("link set {down} up"),
                    format!("neigh add {lower} lladdr {lower_mac} dev {down} nud permanent"),
                ],
            )?;
            ip_batch(
                below,
                &[
                    format!("addr add {lower}/24 dev {UP_DEVICE}"),
                    format!("link set {UP_DEVICE} up"),
                    format!("neigh add {upper} lladdr {upper_mac} dev {UP_DEVICE} nud permanent"),
                ],
            )?;
            faulty_ends.push(faults::apply(below, UP_DEVICE, options.shaping, &up_faults)?);
            faulty_ends.push(faults::apply(&top, &down, options.shaping, &up_faults)?);
        }
        Ok(Racks { racks, top, _faulty_ends: faulty_ends })
    }

    /// One rack.
    pub fn rack(&self, number: usize) -> &Star {
        &self.racks[number]
    }

    /// The namespace in which the parent daemon runs.
    pub fn top(&self) -> &Namespace {
        &self.top
    }

    /// The address of the parent box, for a rack.
    pub fn top_addr(rack: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, rack as u8, 1)
    }

    /// The address of a rack's switch box, for the parent box.
    pub fn rack_addr(rack: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, rack as u8, 2)
    }
}
