//! The trace as text: a line for each event of a packet.

use std::io::{self, Write};

use tributary_proto::contract::ids::NodeId;

use super::Capture;
use crate::net::{PacketEvent, TraceEvent};
use crate::topology::Graph;

/// Writes events to a stream, a line each.
pub struct TextCapture<W> {
    names: Vec<String>,
    out: W,
}

impl<W: Write> TextCapture<W> {
    /// A capture of one network.
    pub fn new(graph: &Graph, out: W) -> TextCapture<W> {
        let names = (0..graph.nodes() as u32).map(|node| graph.name(NodeId(node))).collect();
        TextCapture { names, out }
    }
}

impl<W: Write + Send> Capture for TextCapture<W> {
    fn write(&mut self, event: &TraceEvent, payload: &[u8]) -> io::Result<()> {
        write_event(&mut self.out, &self.names, event, payload)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes one line: time, node, event, and the packet.
fn write_event(out: &mut impl Write, names: &[String], event: &TraceEvent, payload: &[u8]) -> io::Result<()> {
    let packet = &event.packet;
    let name = |node: u32| names.get(node as usize).map_or("?", String::as_str);
    let what = match event.kind {
        PacketEvent::Created => "created".to_string(),
        PacketEvent::Waits { link } => format!("waits for link {}", link.0),
        PacketEvent::Enqueued { link, start, end } => {
            format!("joins link {}, sent {:.6} to {:.6} us", link.0, start.0 as f64 * 1e-6, end.0 as f64 * 1e-6)
        }
        PacketEvent::Arrived { link } => format!("arrives from link {}", link.0),
        PacketEvent::Duplicated { link } => format!("is duplicated on link {}", link.0),
        PacketEvent::Reordered { link } => format!("is delayed on link {}", link.0),
        PacketEvent::Lost { link: Some(link), cause } => format!("is LOST on link {}: {}", link.0, cause.name()),
        PacketEvent::Lost { link: None, cause } => format!("is LOST: {}", cause.name()),
        PacketEvent::Delivered => "is delivered".to_string(),
    };
    write!(
        out,
        "{:14.6} us  {:<11} {}#{} to {} ({} bytes, {:?}, lane {}) {what}",
        event.time.0 as f64 * 1e-6,
        name(event.node.0),
        name(packet.src.0),
        packet.serial,
        name(packet.dst.0),
        packet.bytes,
        packet.flags.ecn(),
        packet.lane
    )?;
    if matches!(event.kind, PacketEvent::Created) && !payload.is_empty() {
        write!(out, "  ")?;
        payload.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
    }
    writeln!(out)
}
