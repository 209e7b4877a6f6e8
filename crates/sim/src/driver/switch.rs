//! A switch: forwards what is not for it.

use tributary_proto::ids::NodeId;

use crate::net::{Fabric, Packet};
use crate::routing::{Chooser, Table};

/// A switch's side of the driver.
pub struct SwitchNode {
    /// The switch ...
    pub node: NodeId,
    /// ... and its number among switches.
    pub index: u32,
    chooser: Chooser,
}

impl SwitchNode {
    /// A switch without programs.
    pub fn new(node: NodeId, index: u32, chooser: Chooser) -> SwitchNode {
        SwitchNode { node, index, chooser }
    }

    /// Sends a packet on its way.
    #[inline]
    pub fn forward(&mut self, fabric: &mut Fabric, table: &Table, packet: Packet) {
        let ports = table.next_hops(self.index, packet.dst).0;
        if ports.is_empty() {
            fabric.lose_unroutable(self.node, &packet);
            return;
        }
        let port = self.chooser.choose(fabric, self.node, ports, &packet);
        fabric.send(fabric.port(self.node, port), packet);
    }
}
