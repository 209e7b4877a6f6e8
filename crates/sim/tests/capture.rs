//! What a capture's file holds, read as its format's specification has it (draft-ietf-opsawg-pcapng).

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tributary_proto::contract::time::Time;
use tributary_sim::capture::{Filter, PcapngCapture, PcapngSize, Recorder, pcapng_size};
use tributary_sim::config::Config;
use tributary_sim::experiment::build;

/// Long enough that picoseconds would not fit where Wireshark multiplies them (18.4 ms).
const FILE: &str = "
    [network]
    star = { hosts = 4 }
    rate = '10 Mbit/s'
    mark_above = '2 kB'
    [[job]]
    protocol = 'switchml'
    hosts = 3
    tensor = '40 kB'
    slots = 8
    [[traffic]]
    pattern = 'permutation'
    hosts = 'all'
    transport = 'dctcp'
    message = '10 kB'
";

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One packet of the file.
struct Captured {
    interface: u32,
    nanos: u64,
    frame: Vec<u8>,
    wire_len: usize,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn short(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap()))
}

/// The blocks of a section: type and body.
fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let (kind, len) = (word(file, 0), word(file, 4) as usize);
        assert!(len.is_multiple_of(4) && len >= 12);
        assert_eq!(word(file, len - 4) as usize, len, "the length again");
        blocks.push((kind, &file[8..len - 4]));
        file = &file[len..];
    }
    blocks
}

/// Code and value of each option.
fn options(mut list: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut options = Vec::new();
    while !list.is_empty() {
        let (code, len) = (word(list, 0) as usize & 0xffff, word(list, 0) as usize >> 16);
        options.push((code, list[4..4 + len].to_vec()));
        list = &list[4 + len.next_multiple_of(4)..];
    }
    options
}

/// The names of the interfaces, and the packets.
fn read(file: &[u8]) -> (Vec<String>, Vec<Captured>) {
    let (mut names, mut packets) = (Vec::new(), Vec::new());
    let mut blocks = blocks(file).into_iter();
    let (kind, section) = blocks.next().unwrap();
    assert_eq!((kind, word(section, 0), word(section, 4)), (0x0A0D_0D0A, 0x1A2B_3C4D, 1), "version 1.0");
    for (kind, body) in blocks {
        if kind == 1 {
            assert_eq!(word(body, 0), 1, "Ethernet");
            let options = options(&body[8..]);
            assert!(options.contains(&(9, vec![9])), "nanoseconds: finer ones overflow in Wireshark");
            names.push(String::from_utf8(options.iter().find(|(code, _)| *code == 2).unwrap().1.clone()).unwrap());
            continue;
        }
        assert_eq!(kind, 6, "an enhanced packet");
        let captured = word(body, 12) as usize;
        packets.push(Captured {
            interface: word(body, 0),
            nanos: u64::from(word(body, 4)) << 32 | u64::from(word(body, 8)),
            frame: body[20..20 + captured].to_vec(),
            wire_len: word(body, 16) as usize,
        });
    }
    (names, packets)
}

fn capture() -> Vec<u8> {
    let mut simulation = build(&Config::parse(FILE).unwrap()).unwrap();
    let file = Memory::default();
    let capture = PcapngCapture::new(simulation.graph(), file.clone()).unwrap();
    simulation.fabric.set_tracer(Some(Box::new(Recorder::new(capture, Filter::default()).0)));
    assert!(simulation.run_until_finished(Time(u64::MAX)));
    drop(simulation);
    file.0.lock().unwrap().clone()
}

#[test]
fn the_size_of_a_capture_is_known_before_it_is_written() {
    let simulation = || build(&Config::parse(FILE).unwrap()).unwrap();
    let file = capture();
    let size = pcapng_size(simulation(), Time(u64::MAX), u64::MAX).unwrap();
    assert_eq!(size, PcapngSize { bytes: file.len() as u64, packets: read(&file).1.len() as u64, until: None });
    let partial = pcapng_size(simulation(), Time(u64::MAX), 100).unwrap();
    assert!(partial.until.is_some() && partial.packets > 10 && partial.bytes < size.bytes, "{partial:?}");
}

#[test]
fn every_packet_is_there_when_it_is_sent_with_headers_that_are_right() {
    let (names, packets) = read(&capture());
    assert_eq!(names, ["host 0", "host 1", "host 2", "host 3", "switch 0"]);
    assert!(packets.len() > 100);
    assert!(packets.is_sorted_by_key(|packet| packet.nanos), "in the order of time");
    assert!(packets.last().unwrap().nanos > 20_000_000);
    let mut marked = 0;
    for packet in &packets {
        let frame = &packet.frame;
        assert!(frame.len() <= packet.wire_len && packet.interface < 5);
        assert_eq!(frame[12..15], [0x08, 0x00, 0x45], "IPv4 without options");
        let sum: usize = (14..34).step_by(2).map(|at| short(frame, at)).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the header's checksum");
        let (ip, udp) = (short(frame, 16), short(frame, 38));
        assert_eq!((ip, frame[23], udp), (packet.wire_len - 14, 17, ip - 20));
        marked += usize::from(frame[15] & 3 == 3);
    }
    assert!(marked > 0);
    // Host 0 sends one packet after the other: none begins before the one in front of it has left.
    let of_host: Vec<&Captured> = packets.iter().filter(|packet| packet.interface == 0).collect();
    for pair in of_host.windows(2) {
        let takes = (pair[0].wire_len as u64 + 24) * 800;
        assert!(pair[1].nanos + 1 >= pair[0].nanos + takes, "10 Mbit/s, with what a capture leaves out");
    }
}
