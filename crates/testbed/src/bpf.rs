//! Random loss of single packets, as a six-instruction XDP program on a veth.
//!
//! A rule of nft would not do: its hooks see whole trains of segments (GSO before the sender's device, GRO after the
//! receiver's), so that one roll of the dice would take 44 packets. A veth with an XDP program makes its peer cut
//! trains into packets first, rolls for each, and lets the kernel join the survivors again as a NIC does (GRO).

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::TestbedError;

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_ATTACH_XDP: u32 = 37;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const HELPER_GET_PRANDOM_U32: i32 = 7;
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;

/// A program on an interface; dropping it removes the program.
#[derive(Debug)]
pub struct XdpLink {
    _link: OwnedFd,
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The head of `union bpf_attr` for BPF_PROG_LOAD; what follows is zero, which the kernel takes as absent.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The head of `union bpf_attr` for BPF_LINK_CREATE.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// Drops each packet that arrives at `device` with this probability. It must be called inside the device's namespace.
pub fn drop_at_random(device: &str, probability: f64) -> Result<XdpLink, TestbedError> {
    let program = load(&roll(probability))?;
    let attr = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: index_of(device)?,
        attach_type: BPF_ATTACH_XDP,
        flags: 0,
    };
    let link = bpf(BPF_LINK_CREATE, &attr, "attach the packet dropper (bpf)")?;
    Ok(XdpLink { _link: link })
}

/// `return prandom_u32() < threshold ? XDP_DROP : XDP_PASS`.
fn roll(probability: f64) -> [Instruction; 6] {
    // The bits of a u32: the program compares unsigned.
    let threshold = (probability * f64::from(u32::MAX)).round() as u32 as i32;
    let instruction = |code, offset, immediate| Instruction { code, registers: 0, offset, immediate };
    [
        instruction(0x85, 0, HELPER_GET_PRANDOM_U32), // call
        instruction(0xa6, 2, threshold),              // if w0 < threshold, skip two
        instruction(0xb7, 0, XDP_PASS),               // r0 = pass
        instruction(0x95, 0, 0),                      // exit
        instruction(0xb7, 0, XDP_DROP),               // r0 = drop
        instruction(0x95, 0, 0),                      // exit
    ]
}

fn load(program: &[Instruction]) -> Result<OwnedFd, TestbedError> {
    let license = c"Apache-2.0";
    let attr = ProgLoad {
        prog_type: BPF_PROG_TYPE_XDP,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: BPF_F_XDP_HAS_FRAGS,
        prog_name: *b"trib_loss\0\0\0\0\0\0\0",
        prog_ifindex: 0,
        expected_attach_type: BPF_ATTACH_XDP,
    };
    bpf(BPF_PROG_LOAD, &attr, "load the packet dropper (bpf)")
}

fn bpf<Attr>(command: libc::c_int, attr: &Attr, what: &str) -> Result<OwnedFd, TestbedError> {
    // SAFETY: `attr` is laid out as the kernel's union for this command and its length is given; the pointers in it
    // (instructions, licence) are valid for the call, and the kernel only reads them.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attr as *const Attr, size_of::<Attr>()) };
    if fd < 0 {
        return Err(TestbedError::last_os(what));
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

fn index_of(device: &str) -> Result<u32, TestbedError> {
    let name = CString::new(device).map_err(|_| TestbedError::Options(format!("'{device}' is not a device")))?;
    // SAFETY: `name` is a valid C string for the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(TestbedError::last_os(format!("find the device {device}"))),
        index => Ok(index),
    }
}
