//! One offload of a device: joining arriving packets into runs (GRO).
//!
//! A veth device joins packets only while it runs an XDP program, and stops when its peer gets one too, unless GRO was
//! requested explicitly.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::TestbedError;

/// `ETHTOOL_SGRO` of `linux/ethtool.h`.
const ETHTOOL_SGRO: u32 = 0x2c;
/// `SIOCETHTOOL` of `linux/sockios.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Turns joining on or off for packets that arrive at a device of this namespace.
pub(crate) fn join_arriving(device: &str, on: bool) -> Result<(), TestbedError> {
    let system = |error| TestbedError::System { what: format!("set GRO of {device}"), error };
    let name = CString::new(device).map_err(|_| TestbedError::Options(format!("'{device}' is not a device")))?;
    let mut value = EthtoolValue { command: ETHTOOL_SGRO, data: u32::from(on) };
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, &from) in request.ifr_name.iter_mut().zip(name.as_bytes().iter().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: no pointers; on success the descriptor is ours alone.
    let socket = match unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) } {
        fd if fd < 0 => return Err(system(io::Error::last_os_error())),
        // SAFETY: as above.
        fd => unsafe { OwnedFd::from_raw_fd(fd) },
    };
    // SAFETY: the request and the value that it points to are laid out as the kernel's and outlive the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) } {
        0 => Ok(()),
        _ => Err(system(io::Error::last_os_error())),
    }
}
