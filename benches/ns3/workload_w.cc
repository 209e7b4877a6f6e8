// Workload W on ns-3: leaves, spines, hosts; every host sends packets to one host of a random permutation, over a random
// spine for each packet. Prints one JSON object; hops are packets that came out of links.
//
//     workload_w [--ipv4=1] [--leaves=32] [--spines=32] [--hosts=32] [--packets=1024] [--bytes=1024] [--seed=1]
//
// Without IPv4, switches forward in the devices' receive callbacks and know a packet's destination from its uid, so that
// no header is read or written but the link's own: the least work that ns-3 can do. With IPv4, nodes have its stack and
// UDP sockets, and a routing protocol of our own that computes the port from the address, which is cheaper than ns-3's
// tables. Hosts hand the next packet over when the device begins to send one: no events beyond those of the links.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <iostream>
#include <numeric>
#include <random>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

using namespace ns3;

namespace {

/// Bytes that the link's own header adds to a packet.
constexpr uint32_t kPpp = 2;
constexpr uint32_t kIpv4AndUdp = 28;
constexpr uint16_t kPort = 9;
/// Packets that wait in a host's device: about the 16 KiB of ours.
constexpr uint32_t kAhead = 16;

struct Shape {
    uint32_t leaves = 32;
    uint32_t spines = 32;
    uint32_t hosts_per_leaf = 32;
    uint32_t packets = 1024;
    uint32_t bytes = 1024;
    uint32_t seed = 1;
    bool ipv4 = false;

    uint32_t hosts() const { return leaves * hosts_per_leaf; }
    uint32_t leaf_of(uint32_t host) const { return host / hosts_per_leaf; }
};

Shape shape;
uint64_t hops = 0;
uint64_t arrived = 0;
std::minstd_rand paths;

/// A node's place: hosts, then leaves, then spines.
enum class Kind { kHost, kLeaf, kSpine };

Kind kind_of(uint32_t node) {
    if (node < shape.hosts()) {
        return Kind::kHost;
    }
    return node < shape.hosts() + shape.leaves ? Kind::kLeaf : Kind::kSpine;
}

/// The port by which a switch reaches a host. A leaf's ports are its hosts, then the spines; a spine's are the leaves.
uint32_t port_towards(uint32_t node, uint32_t host) {
    if (kind_of(node) == Kind::kSpine) {
        return shape.leaf_of(host);
    }
    if (shape.leaf_of(host) == node - shape.hosts()) {
        return host % shape.hosts_per_leaf;
    }
    return shape.hosts_per_leaf + paths() % shape.spines;
}

/// Who sends to whom: nobody to itself.
std::vector<uint32_t> permutation() {
    std::mt19937 rng(shape.seed);
    std::vector<uint32_t> order(shape.hosts());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    std::vector<uint32_t> peer(shape.hosts());
    for (uint32_t place = 0; place < order.size(); ++place) {
        peer[order[place]] = order[(place + 1) % order.size()];
    }
    return peer;
}

// ---- The network: both ends of each cable, in the order of their nodes' ports.

std::vector<std::vector<Ptr<PointToPointNetDevice>>> ports;

NodeContainer build() {
    NodeContainer nodes;
    nodes.Create(shape.hosts() + shape.leaves + shape.spines);
    ports.resize(nodes.GetN());
    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", StringValue("100Gbps"));
    cable.SetDeviceAttribute("Mtu", UintegerValue(9000));
    cable.SetChannelAttribute("Delay", StringValue("1us"));
    cable.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1048576B"));
    cable.DisableFlowControl();
    const auto join = [&](uint32_t a, uint32_t b) {
        const NetDeviceContainer ends = cable.Install(nodes.Get(a), nodes.Get(b));
        ports[a].push_back(DynamicCast<PointToPointNetDevice>(ends.Get(0)));
        ports[b].push_back(DynamicCast<PointToPointNetDevice>(ends.Get(1)));
    };
    for (uint32_t host = 0; host < shape.hosts(); ++host) {
        join(host, shape.hosts() + shape.leaf_of(host));
    }
    for (uint32_t leaf = 0; leaf < shape.leaves; ++leaf) {
        for (uint32_t spine = 0; spine < shape.spines; ++spine) {
            join(shape.hosts() + leaf, shape.hosts() + shape.leaves + spine);
        }
    }
    return nodes;
}

// ---- Senders: what is left to send, and how.

struct Sender {
    uint32_t left = 0;
    uint32_t peer = 0;
    Ptr<PointToPointNetDevice> device;
    Ptr<Socket> socket;
};

std::vector<Sender> senders;
/// A packet's destination by its uid.
std::vector<uint16_t> destinations;

void send_next(Sender* sender) {
    if (sender->left == 0) {
        return;
    }
    --sender->left;
    if (shape.ipv4) {
        sender->socket->Send(Create<Packet>(shape.bytes - kPpp - kIpv4AndUdp));
        return;
    }
    Ptr<Packet> packet = Create<Packet>(shape.bytes - kPpp);
    if (destinations.size() <= packet->GetUid()) {
        destinations.resize(packet->GetUid() + 1);
    }
    destinations[packet->GetUid()] = static_cast<uint16_t>(sender->peer);
    sender->device->Send(packet, sender->device->GetBroadcast(), 0x0800);
}

void on_send(Sender* sender, Ptr<const Packet>) {
    send_next(sender);
}

// ---- Without IPv4: forwarding in the receive callbacks.

bool take(Ptr<NetDevice>, Ptr<const Packet>, uint16_t, const Address&) {
    ++hops;
    ++arrived;
    return true;
}

bool forward(uint32_t node, Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t protocol, const Address&) {
    ++hops;
    const uint32_t host = destinations[packet->GetUid()];
    const Ptr<PointToPointNetDevice>& port = ports[node][port_towards(node, host)];
    port->Send(ConstCast<Packet>(packet), port->GetBroadcast(), protocol);
    return true;
}

void install_forwarding() {
    for (uint32_t node = 0; node < ports.size(); ++node) {
        for (const Ptr<PointToPointNetDevice>& port : ports[node]) {
            if (kind_of(node) == Kind::kHost) {
                port->SetReceiveCallback(MakeCallback(&take));
            } else {
                port->SetReceiveCallback(MakeBoundCallback(&forward, node));
            }
        }
    }
}

// ---- With IPv4: a routing protocol that computes ports.

constexpr uint32_t kHostAddresses = 0x0a000000;

class ComputedRouting : public Ipv4RoutingProtocol {
public:
    explicit ComputedRouting(uint32_t node) : node_(node) {}

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header& header, Ptr<NetDevice>, Socket::SocketErrno& error) override {
        error = Socket::ERROR_NOTERROR;
        return route(header, 0);
    }

    bool RouteInput(Ptr<const Packet> packet, const Ipv4Header& header, Ptr<const NetDevice> device,
                    UnicastForwardCallback unicast, MulticastForwardCallback, LocalDeliverCallback local,
                    ErrorCallback) override {
        ++hops;
        const uint32_t host = header.GetDestination().Get() - kHostAddresses;
        if (host == node_) {
            local(packet, header, ipv4_->GetInterfaceForDevice(device));
        } else {
            unicast(route(header, port_towards(node_, host)), packet, header);
        }
        return true;
    }

    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void SetIpv4(Ptr<Ipv4> ipv4) override { ipv4_ = ipv4; }
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

private:
    Ptr<Ipv4Route> route(const Ipv4Header& header, uint32_t port) const {
        Ptr<Ipv4Route> route = Create<Ipv4Route>();
        route->SetDestination(header.GetDestination());
        route->SetSource(Ipv4Address(kHostAddresses + node_));
        route->SetGateway(Ipv4Address(0u));
        route->SetOutputDevice(ports[node_][port]);
        return route;
    }

    uint32_t node_;
    Ptr<Ipv4> ipv4_;
};

class ComputedRoutingHelper : public Ipv4RoutingHelper {
public:
    ComputedRoutingHelper* Copy() const override { return new ComputedRoutingHelper(*this); }
    Ptr<Ipv4RoutingProtocol> Create(Ptr<Node> node) const override {
        return ns3::Create<ComputedRouting>(node->GetId());
    }
};

void receive(Ptr<Socket> socket) {
    while (socket->Recv()) {
        ++arrived;
    }
}

void install_ipv4(const NodeContainer& nodes) {
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.SetRoutingHelper(ComputedRoutingHelper());
    stack.Install(nodes);
    for (uint32_t node = 0; node < ports.size(); ++node) {
        Ptr<Ipv4> ipv4 = nodes.Get(node)->GetObject<Ipv4>();
        for (const Ptr<PointToPointNetDevice>& port : ports[node]) {
            const uint32_t interface = ipv4->AddInterface(port);
            ipv4->AddAddress(interface, Ipv4InterfaceAddress(Ipv4Address(kHostAddresses + node), Ipv4Mask("/32")));
            ipv4->SetUp(interface);
        }
    }
}

void open_sockets(const NodeContainer& nodes) {
    for (uint32_t host = 0; host < shape.hosts(); ++host) {
        Ptr<Socket> in = Socket::CreateSocket(nodes.Get(host), UdpSocketFactory::GetTypeId());
        in->Bind(InetSocketAddress(Ipv4Address::GetAny(), kPort));
        in->SetRecvCallback(MakeCallback(&receive));
        senders[host].socket = Socket::CreateSocket(nodes.Get(host), UdpSocketFactory::GetTypeId());
        senders[host].socket->Connect(InetSocketAddress(Ipv4Address(kHostAddresses + senders[host].peer), kPort));
    }
}

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
    CommandLine arguments;
    arguments.AddValue("leaves", "switches with hosts", shape.leaves);
    arguments.AddValue("spines", "switches above them", shape.spines);
    arguments.AddValue("hosts", "hosts on each leaf", shape.hosts_per_leaf);
    arguments.AddValue("packets", "packets that each host sends", shape.packets);
    arguments.AddValue("bytes", "bytes of a packet on a link", shape.bytes);
    arguments.AddValue("seed", "of permutation and paths", shape.seed);
    arguments.AddValue("ipv4", "with the stack of IPv4 and UDP", shape.ipv4);
    arguments.Parse(argc, argv);
    paths.seed(shape.seed);

    const double begun = cpu_seconds();
    const NodeContainer nodes = build();
    const std::vector<uint32_t> peers = permutation();
    senders.resize(shape.hosts());
    for (uint32_t host = 0; host < shape.hosts(); ++host) {
        senders[host].left = shape.packets;
        senders[host].peer = peers[host];
        senders[host].device = ports[host][0];
        senders[host].device->TraceConnectWithoutContext("PhyTxBegin", MakeBoundCallback(&on_send, &senders[host]));
    }
    if (shape.ipv4) {
        install_ipv4(nodes);
        open_sockets(nodes);
    } else {
        destinations.reserve(static_cast<size_t>(shape.hosts()) * shape.packets);
        install_forwarding();
    }
    Simulator::Schedule(Seconds(0), [] {
        for (Sender& sender : senders) {
            for (uint32_t ahead = 0; ahead < kAhead; ++ahead) {
                send_next(&sender);
            }
        }
    });
    const double built = cpu_seconds();
    Simulator::Run();
    const double ran = cpu_seconds();
    std::cout << "{\"hops\": " << hops << ", \"arrived\": " << arrived << ", \"set_up_cpu_seconds\": " << built - begun
              << ", \"run_cpu_seconds\": " << ran - built << ", \"simulated_seconds\": " << Simulator::Now().GetSeconds()
              << ", \"events\": " << Simulator::GetEventCount() << "}" << std::endl;
    Simulator::Destroy();
    return 0;
}
