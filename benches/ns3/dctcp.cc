// Flows under DCTCP on ns-3: senders, one switch and one receiver, whose link is the bottleneck. Reads a flow list, and
// prints one JSON object: when each flow was complete; and of a window of time, the bytes that each flow brought and the
// bottleneck's queue.
//
//     dctcp --flows=FILE.csv --senders=8 [--gbps=10] [--delay_us=10] [--mark=65] [--queue=1000] [--from_ms=0 --to_ms=0]
//
// A line of the file is src,dst,bytes,start_s after a heading; the receiver is the host with the last number. ns-3's own TCP
// is set as ours is: segments of 1,460 bytes with headers of 40, an acknowledgement for each, a first window of ten, 10 ms of
// least timeout. All connections are made before the first flow begins, because ours have no handshake.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

constexpr uint16_t kPort = 9;
/// A flow's port at its sender is this plus its number.
constexpr uint16_t kFirstPort = 10000;
/// When flows begin: their connections are made before, one each millisecond.
constexpr double kBeginS = 1.0;
/// Bytes of a full packet on a link: data, TCP, IPv4, PPP.
constexpr uint32_t kPacket = 1460 + 20 + 20 + 2;
/// From a sample of the queue to the next.
constexpr int64_t kSampleUs = 10;

struct Setup {
    std::string flows;
    uint32_t senders = 8;
    double gbps = 10;
    double delay_us = 10;
    uint32_t mark = 65;
    uint32_t queue = 1000;
    double from_ms = 0;
    double to_ms = 0;
};

Setup setup;

struct Flow {
    uint32_t from = 0;
    uint64_t bytes = 0;
    double start_s = 0;
    uint64_t received = 0;
    /// At the window's beginning, and in it.
    uint64_t before = 0;
    uint64_t in_window = 0;
    double end_s = -1;
    Ptr<Socket> socket;
};

std::vector<Flow> flows;

bool read_flows() {
    std::ifstream file(setup.flows);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        Flow flow;
        uint32_t to = 0;
        unsigned long long bytes = 0;
        if (std::sscanf(line.c_str(), "%u,%u,%llu,%lf", &flow.from, &to, &bytes, &flow.start_s) != 4 ||
            flow.from >= setup.senders || to != setup.senders) {
            std::cerr << "not a flow to the receiver: " << line << std::endl;
            return false;
        }
        flow.bytes = bytes;
        flows.push_back(flow);
    }
    return !flows.empty() && flows.size() < 1000 * kBeginS;
}

// ---- TCP as ours is set.

void set_tcp() {
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpDctcp::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 30));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(8 << 20));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(10)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MicroSeconds(1)));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::RttEstimator::InitialEstimation", TimeValue(MilliSeconds(10)));
}

// ---- The network: hosts around a switch, whose port to the receiver marks above a threshold.

NodeContainer hosts;
Ptr<QueueDisc> bottleneck;
Ptr<PointToPointNetDevice> port;

/// A device has one packet that waits and one that is sent, so the disc's threshold is one packet less.
void install_discs(const NetDeviceContainer& ends, bool is_bottleneck) {
    TrafficControlHelper marks;
    marks.SetRootQueueDisc("ns3::RedQueueDisc", "MinTh", DoubleValue(setup.mark - 1), "MaxTh", DoubleValue(setup.mark - 1),
                           "QW", DoubleValue(1), "Gentle", BooleanValue(false), "UseEcn", BooleanValue(true), "UseHardDrop",
                           BooleanValue(false), "MeanPktSize", UintegerValue(kPacket), "MaxSize",
                           QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, setup.queue)));
    TrafficControlHelper plain;
    plain.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue("1000000p"));
    plain.Install(ends.Get(0));
    if (is_bottleneck) {
        bottleneck = marks.Install(ends.Get(1)).Get(0);
        port = DynamicCast<PointToPointNetDevice>(ends.Get(1));
    } else {
        plain.Install(ends.Get(1));
    }
}

Ipv4Address build() {
    hosts.Create(setup.senders + 1);
    NodeContainer center;
    center.Create(1);
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(hosts);
    stack.Install(center);
    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", DataRateValue(DataRate(static_cast<uint64_t>(setup.gbps * 1e9))));
    cable.SetChannelAttribute("Delay", TimeValue(NanoSeconds(static_cast<int64_t>(setup.delay_us * 1e3))));
    cable.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    Ipv4AddressHelper addresses("10.1.0.0", "255.255.255.0");
    Ipv4Address receiver;
    for (uint32_t host = 0; host <= setup.senders; ++host) {
        const NetDeviceContainer ends = cable.Install(hosts.Get(host), center.Get(0));
        install_discs(ends, host == setup.senders);
        receiver = addresses.Assign(ends).GetAddress(0);
        addresses.NewNetwork();
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    return receiver;
}

// ---- The receiver.

void receive(uint32_t number, Ptr<Socket> socket) {
    Flow& flow = flows[number];
    while (Ptr<Packet> packet = socket->Recv()) {
        flow.received += packet->GetSize();
    }
    if (flow.received == flow.bytes && flow.end_s < 0) {
        flow.end_s = Simulator::Now().GetSeconds() - kBeginS;
    }
}

void accept(Ptr<Socket> socket, const Address& from) {
    const uint32_t number = InetSocketAddress::ConvertFrom(from).GetPort() - kFirstPort;
    socket->SetRecvCallback(MakeBoundCallback(&receive, number));
}

bool may_connect(Ptr<Socket>, const Address&) {
    return true;
}

// ---- Flows.

void connect(uint32_t number, Ipv4Address receiver) {
    Flow& flow = flows[number];
    flow.socket = Socket::CreateSocket(hosts.Get(flow.from), TcpSocketFactory::GetTypeId());
    flow.socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), static_cast<uint16_t>(kFirstPort + number)));
    flow.socket->Connect(InetSocketAddress(receiver, kPort));
}

void start(uint32_t number) {
    Flow& flow = flows[number];
    if (flow.socket->Send(Create<Packet>(static_cast<uint32_t>(flow.bytes))) != static_cast<int>(flow.bytes)) {
        std::cerr << "flow " << number << " was not taken whole" << std::endl;
        std::exit(1);
    }
}

// ---- The bottleneck's queue, in packets, with the rest of the packet that is sent.

std::vector<double> lengths;
double last_begin_s = -1;
uint32_t last_bytes = 0;

void on_begin(Ptr<const Packet> packet) {
    last_begin_s = Simulator::Now().GetSeconds();
    last_bytes = packet->GetSize();
}

void sample() {
    const double sent = (Simulator::Now().GetSeconds() - last_begin_s) * setup.gbps * 1e9 / 8;
    const double rest = std::max(0.0, last_bytes - sent);
    // The disc's packets have no link header yet.
    const double waiting = bottleneck->GetNBytes() + 2.0 * bottleneck->GetNPackets() + port->GetQueue()->GetNBytes();
    lengths.push_back((waiting + rest) / kPacket);
    if (Simulator::Now().GetSeconds() - kBeginS < setup.to_ms * 1e-3) {
        Simulator::Schedule(MicroSeconds(kSampleUs), &sample);
    }
}

void begin_window() {
    for (Flow& flow : flows) {
        flow.before = flow.received;
    }
    sample();
}

void end_window() {
    for (Flow& flow : flows) {
        flow.in_window = flow.received - flow.before;
    }
}

template <typename Value>
void print(const char* name, size_t count, Value value) {
    std::cout << "\"" << name << "\": [";
    for (size_t index = 0; index < count; ++index) {
        std::cout << (index ? ", " : "") << value(index);
    }
    std::cout << "], ";
}

}  // namespace

int main(int argc, char** argv) {
    CommandLine arguments;
    arguments.AddValue("flows", "the flow list", setup.flows);
    arguments.AddValue("senders", "hosts besides the receiver", setup.senders);
    arguments.AddValue("gbps", "of every link", setup.gbps);
    arguments.AddValue("delay_us", "of every link", setup.delay_us);
    arguments.AddValue("mark", "packets above which a queue marks", setup.mark);
    arguments.AddValue("queue", "packets that the bottleneck's disc takes", setup.queue);
    arguments.AddValue("from_ms", "when the window begins", setup.from_ms);
    arguments.AddValue("to_ms", "when it ends; 0: none", setup.to_ms);
    arguments.Parse(argc, argv);
    if (!read_flows()) {
        return 2;
    }
    set_tcp();
    const Ipv4Address receiver = build();
    port->TraceConnectWithoutContext("PhyTxBegin", MakeCallback(&on_begin));
    Ptr<Socket> listening = Socket::CreateSocket(hosts.Get(setup.senders), TcpSocketFactory::GetTypeId());
    listening->Bind(InetSocketAddress(Ipv4Address::GetAny(), kPort));
    listening->Listen();
    listening->SetAcceptCallback(MakeCallback(&may_connect), MakeCallback(&accept));
    for (uint32_t number = 0; number < flows.size(); ++number) {
        Simulator::Schedule(MilliSeconds(number), &connect, number, receiver);
        Simulator::Schedule(Seconds(kBeginS + flows[number].start_s), &start, number);
    }
    if (setup.to_ms > 0) {
        Simulator::Schedule(Seconds(kBeginS + setup.from_ms * 1e-3), &begin_window);
        Simulator::Schedule(Seconds(kBeginS + setup.to_ms * 1e-3), &end_window);
    }
    Simulator::Stop(Seconds(kBeginS + 20));
    Simulator::Run();
    std::cout.precision(9);
    std::cout << "{";
    print("end_s", flows.size(), [](size_t index) { return flows[index].end_s; });
    print("in_window", flows.size(), [](size_t index) { return flows[index].in_window; });
    print("queue", lengths.size(), [](size_t index) { return lengths[index]; });
    std::cout << "\"marked\": " << bottleneck->GetStats().GetNMarkedPackets(RedQueueDisc::FORCED_MARK)
              << ", \"dropped\": " << bottleneck->GetStats().nTotalDroppedPackets << "}" << std::endl;
    Simulator::Destroy();
    return 0;
}
