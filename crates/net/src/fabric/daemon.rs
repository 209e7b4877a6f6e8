//! A whole switch of a fabric: its thread, its control plane and its control API.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tributary_control::fabric::FabricLayout;
use tributary_operators::{Allowed, Library};
use tributary_proto::contract::ids::NodeId;

use super::controller::Controller;
use super::handle::FabricHandle;
use super::routes::{self, FabricState};
use super::shard::Follower;
use super::view::SwitchView;
use crate::control_plane::{ControlPlane, Shard};
use crate::http::access::Access;
use crate::http::routes::Api;
use crate::http::view::Viewer;
use crate::http::{HttpServer, Identity};
use crate::switch_daemon::StartError;

/// The options with which a switch of a fabric is started.
#[derive(Clone, Debug)]
pub struct FabricSwitchOptions {
    /// The fabric.
    pub fabric: Arc<FabricLayout>,
    /// The switch's node number.
    pub node: NodeId,
    /// Bytes of receive and of send buffer to ask the kernel for.
    pub socket_buffer: usize,
    /// Which custom operators of jobs the switch serves.
    pub operators: Allowed,
}

impl FabricSwitchOptions {
    /// The options for this switch of this fabric, with the usual buffers and without custom operators.
    pub fn new(fabric: Arc<FabricLayout>, node: NodeId) -> FabricSwitchOptions {
        FabricSwitchOptions { fabric, node, socket_buffer: 8 << 20, operators: Allowed::None }
    }
}

/// A switch of a fabric that runs until it is stopped or dropped.
pub struct RunningFabricSwitch {
    udp: SocketAddr,
    control: Vec<SocketAddr>,
    // The fields are in the order in which they are dropped: the control plane answers waiting clients while the thread
    // still runs.
    server: HttpServer,
    plane: Arc<ControlPlane>,
}

impl RunningFabricSwitch {
    /// Opens every socket and starts every thread. If that fails, nothing is left behind.
    pub fn start(options: &FabricSwitchOptions) -> Result<RunningFabricSwitch, StartError> {
        let FabricSwitchOptions { fabric, node, socket_buffer, operators } = options;
        let (node, udp) = (*node, fabric.udp(*node));
        // Members connect to the first address, and other switches to the second.
        let mut control = vec![udp];
        control.extend(fabric.nodes[node.index()].control.filter(|&control| control != udp));
        let bind = |&addr: &SocketAddr| {
            let listener = TcpListener::bind(addr);
            listener.map_err(|source| StartError::new("TCP", addr, "the fabric's file", source))
        };
        let listeners = control.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let is_controller = node == fabric.controller;
        let handle = FabricHandle::start(Arc::clone(fabric), node, *socket_buffer)
            .map_err(|source| StartError::new("UDP", udp, "the fabric's file", source))?;
        let handle = Arc::new(handle);
        let library = Arc::new(Library::new(operators.clone()));
        let controller =
            is_controller.then(|| Controller::new(Arc::clone(fabric), Arc::clone(&handle), Arc::clone(&library)));
        let shard: Box<dyn Shard> = match controller.clone() {
            Some(controller) => Box::new(controller),
            None => Box::new(Follower(Arc::clone(&handle))),
        };
        // The memory of the switches is divided as if all jobs ran over one: only the controller admits jobs.
        let plane = Arc::new(ControlPlane::new(fabric.limits(), vec![shard]).serving(library));
        let view = SwitchView { fabric: Arc::clone(fabric), node, handle: Arc::clone(&handle) };
        let identity = Identity { listen: udp, http: control.get(1).copied() };
        let viewer = Arc::new(Viewer::new(Arc::clone(&plane), identity, Some(Box::new(view))));
        let api = Api { plane: Arc::clone(&plane), viewer, listen: udp };
        let state = FabricState { api: api.clone(), fabric: Arc::clone(fabric), handle, controller };
        let router = if is_controller { routes::controller(state) } else { routes::follower(state) };
        let served = listeners.into_iter().map(|listener| (listener, router.clone())).collect();
        // Jobs come only from the hosts that the file names.
        let server = HttpServer::start_with(api, &Access::Open, served)
            .map_err(|source| StartError::System { addr: udp, source })?;
        tracing::info!(switch = fabric.name(node), %udp, controller = is_controller, "switch of a fabric started");
        Ok(RunningFabricSwitch { udp, control, server, plane })
    }

    /// The address where the switch receives packets.
    pub fn udp_addr(&self) -> SocketAddr {
        self.udp
    }

    /// The addresses of its control API.
    pub fn control_addrs(&self) -> &[SocketAddr] {
        &self.control
    }

    /// Ends every thread and closes every socket. Jobs go on at the other switches, where a restarted controller finds them.
    pub fn stop(self) {
        let RunningFabricSwitch { udp, server, plane, .. } = self;
        drop(server);
        drop(plane);
        tracing::info!(%udp, "switch of a fabric stopped");
    }
}
