//! The system calls under a [`UdpPort`](super::UdpPort): `sendmsg` with UDP_SEGMENT, `recvmmsg` with UDP_GRO, socket
//! options and the list of interfaces. All unsafe code about sockets is here.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;
use std::ptr;

use super::inbox::{BATCH, Inbox, MESSAGE_LEN, Message};
use super::{Destination, ecn_from_tos, tos_from_ecn};
use tributary_proto::contract::packet::Ecn;

/// Space for the control messages of one datagram: segment size, TOS or traffic class, own address or overflow counter.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 128]);

/// Sends the bytes of `slices`, cut into segments of `segment` bytes if that is given, in one call.
pub fn send(fd: RawFd, to: &Destination, slices: &[IoSlice<'_>], segment: Option<u16>, ecn: Ecn) -> io::Result<()> {
    let mut control = Control([0; 128]);
    // SAFETY: all zeros is a valid msghdr.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = to.address.as_ptr().cast_mut().cast();
    header.msg_namelen = to.address.len();
    // IoSlice has the layout of iovec; the kernel only reads.
    header.msg_iov = slices.as_ptr().cast_mut().cast();
    header.msg_iovlen = slices.len() as _;
    if segment.is_some() || ecn != Ecn::NotCapable || to.from.is_some() {
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        let mut used = 0;
        // SAFETY: the header points to a control buffer with space for all three messages, which CMSG_FIRSTHDR and
        // CMSG_NXTHDR stay inside of.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(&header);
            if let Some(segment) = segment {
                used += write_control(next, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
                next = libc::CMSG_NXTHDR(&header, next);
            }
            if ecn != Ecn::NotCapable {
                let (level, kind) =
                    if to.v4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
                used += write_control(next, level, kind, libc::c_int::from(tos_from_ecn(ecn)));
                next = libc::CMSG_NXTHDR(&header, next);
            }
            used += match to.from {
                None => 0,
                Some(IpAddr::V4(from)) => {
                    let from = libc::in_addr { s_addr: u32::from(from).to_be() };
                    let info =
                        libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: from, ipi_addr: libc::in_addr { s_addr: 0 } };
                    write_control(next, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
                }
                Some(IpAddr::V6(from)) => {
                    let info =
                        libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: from.octets() }, ipi6_ifindex: 0 };
                    write_control(next, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
                }
            };
        }
        header.msg_controllen = used as _;
    }
    // SAFETY: the header, and all that it points to, outlive the call.
    let sent = unsafe { libc::sendmsg(fd, &header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes one control message; returns the bytes it takes.
///
/// # Safety
/// `at` points to an aligned control message header with space for a `T` behind it.
unsafe fn write_control<T>(at: *mut libc::cmsghdr, level: i32, kind: i32, value: T) -> usize {
    // SAFETY: as the caller promises.
    unsafe {
        (*at).cmsg_level = level;
        (*at).cmsg_type = kind;
        (*at).cmsg_len = libc::CMSG_LEN(mem::size_of::<T>() as u32) as _;
        ptr::write_unaligned(libc::CMSG_DATA(at).cast::<T>(), value);
        libc::CMSG_SPACE(mem::size_of::<T>() as u32) as usize
    }
}

/// Receives as many messages as the inbox asks for, without waiting.
pub fn receive(fd: RawFd, inbox: &mut Inbox) -> io::Result<()> {
    inbox.messages.clear();
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH];
    // SAFETY: all zeros is valid for these plain C structures.
    let (mut names, mut iovecs, mut headers): (
        [libc::sockaddr_storage; BATCH],
        [libc::iovec; BATCH],
        [libc::mmsghdr; BATCH],
    ) = unsafe { mem::zeroed() };
    for (i, buffer) in inbox.memory.chunks_exact_mut(MESSAGE_LEN).enumerate() {
        iovecs[i] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let header = &mut headers[i].msg_hdr;
        header.msg_name = (&raw mut names[i]).cast();
        header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as _;
        header.msg_iov = &raw mut iovecs[i];
        header.msg_iovlen = 1;
        header.msg_control = controls[i].as_mut_ptr().cast();
        header.msg_controllen = mem::size_of::<Control>() as _;
    }
    let batch_len = inbox.batch_len().min(headers.len()) as u32;
    // SAFETY: every header points to its own buffers, which outlive the call.
    let n = unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), batch_len, libc::MSG_DONTWAIT as _, ptr::null_mut()) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    for (i, header) in headers.iter().enumerate().take(n as usize) {
        let Some(from) = socket_addr(&names[i]) else { continue };
        let mut message = Message {
            from,
            start: i * MESSAGE_LEN,
            len: header.msg_len as usize,
            segment: header.msg_len as usize,
            ecn: Ecn::NotCapable,
        };
        read_controls(&header.msg_hdr, &mut message, &mut inbox.overflows);
        inbox.messages.push(message);
    }
    Ok(())
}

fn read_controls(header: &libc::msghdr, message: &mut Message, overflows: &mut u32) {
    // SAFETY: the kernel filled in the header; CMSG_FIRSTHDR and CMSG_NXTHDR stay inside its control buffer, and each
    // message's data has the type that its level and kind say.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while !next.is_null() {
            let data = libc::CMSG_DATA(next);
            match ((*next).cmsg_level, (*next).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let segment = ptr::read_unaligned(data.cast::<libc::c_int>());
                    message.segment = usize::try_from(segment).unwrap_or(0).max(1);
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => message.ecn = ecn_from_tos(*data),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    message.ecn = ecn_from_tos(ptr::read_unaligned(data.cast::<libc::c_int>()) as u8);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => *overflows = ptr::read_unaligned(data.cast::<u32>()),
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
}

fn socket_addr(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that a sockaddr_in lies there, and sockaddr_storage is aligned for it.
            let v4 = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that a sockaddr_in6 lies there, and sockaddr_storage is aligned for it.
            let v6 = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Sets an option of C type `int`.
pub fn set_option(fd: RawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let len = mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is an int that outlives the call.
    let result = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option of C type `int`.
pub fn get_option(fd: RawFd, level: i32, option: i32) -> io::Result<i32> {
    let mut value: libc::c_int = 0;
    let mut len = mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: value and length are writable and outlive the call.
    let result = unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &mut len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Of two sockets at one address, lets the first have datagrams in which the 16 bits at `offset` are one of `values`, and
/// the second, which is `fd`, all others.
pub fn leave_to_first(fd: RawFd, offset: u32, values: &[u16]) -> io::Result<()> {
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let choose = |socket| step(libc::BPF_RET | libc::BPF_K, 0, socket);
    let mut steps = vec![step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, offset)];
    for &value in values {
        steps.extend([step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, value.into()), choose(0)]);
    }
    steps.push(choose(1));
    let len = u16::try_from(steps.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    let size = mem::size_of_val(&program) as libc::socklen_t;
    let option = libc::SO_ATTACH_REUSEPORT_CBPF;
    // SAFETY: the program and its steps outlive the call, which copies them.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const program).cast(), size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Bytes of the longest IP packet that an interface sends.
pub fn interface_mtu(fd: RawFd, name: &str) -> io::Result<u32> {
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let capacity = request.ifr_name.len() - 1;
    for (to, &from) in request.ifr_name.iter_mut().zip(name.as_bytes().iter().take(capacity)) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request outlives the call; the kernel reads the name and writes the MTU.
    let result = unsafe { libc::ioctl(fd, libc::SIOCGIFMTU as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so that this is the field of the union that was written.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.max(0) as u32)
}

/// The name of the interface that has this address.
pub fn interface_with(ip: IpAddr) -> Option<String> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: on success `first` is a list that freeifaddrs below gives back.
    if unsafe { libc::getifaddrs(&mut first) } < 0 {
        return None;
    }
    let mut found = None;
    let mut next = first;
    while !next.is_null() && found.is_none() {
        // SAFETY: a non-null entry of the list, which is freed only after the loop.
        let entry = unsafe { &*next };
        if address_of(entry) == Some(ip) {
            // SAFETY: the name of an entry is a C string that lives as long as the list.
            found = Some(unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned());
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list that getifaddrs made, given back once.
    unsafe { libc::freeifaddrs(first) };
    found
}

fn address_of(entry: &libc::ifaddrs) -> Option<IpAddr> {
    if entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: the address is not null; its family says how long it is, and only that much is copied.
    let name = unsafe {
        let mut name: libc::sockaddr_storage = mem::zeroed();
        let len = match i32::from((*entry.ifa_addr).sa_family) {
            libc::AF_INET => mem::size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => mem::size_of::<libc::sockaddr_in6>(),
            _ => return None,
        };
        ptr::copy_nonoverlapping(entry.ifa_addr.cast::<u8>(), (&raw mut name).cast::<u8>(), len);
        name
    };
    socket_addr(&name).map(|address| address.ip())
}
