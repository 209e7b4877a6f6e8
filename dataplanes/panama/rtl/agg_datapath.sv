// The aggregation datapath (section 5, part 3; figure 6a): streams the packets of one VID from the ports' buffers
// through the adder trees, one tree for each lane of the bus, and puts the joined header before the sum.
//
// Sums follow each other without a gap. Once a sum has begun it never stops: it begins when all its ways out have
// space for the whole frame.
module agg_datapath #(
    parameter int PORTS = 4,
    parameter int W = 64,
    parameter int TREES = 4,
    parameter int SLOTS = 16,
    parameter int FRAME_BEATS = 256,
    parameter int ORDER = 140,
    localparam int B = W / 8,
    localparam int LANES = W / 32,
    localparam int TW = TREES > 1 ? $clog2(TREES) : 1,
    localparam int SW = $clog2(SLOTS),
    localparam int BW = $clog2(FRAME_BEATS)
) (
    input  logic                clk,
    input  logic                rst,
    // What the control logic orders.
    input  logic                order_valid,
    input  logic [ORDER-1:0]    order,
    output logic                order_ready,
    output logic                is_drained,
    // The buffers; the data comes a cycle later.
    output logic [PORTS*SW-1:0] read_slot,
    output logic [BW-1:0]       read_beat,
    input  logic [PORTS*W-1:0]  read_data,
    output logic [PORTS-1:0]    done_valid,
    // The job table, of the sum that is read.
    output logic [TW-1:0]       sum_tree,
    input  logic [PORTS-1:0]    members,
    input  logic [PORTS*16-1:0] positions,
    input  logic [15:0]         ranks,
    input  logic [15:0]         child,
    input  logic [PORTS-1:0]    up,
    // The job table, of the sum that leaves: the key, and a beat later the addresses.
    output logic [TW-1:0]       key_tree,
    input  logic [63:0]         key,
    output logic [TW-1:0]       out_tree,
    input  logic [TREES-1:0]    tree_is_root,
    input  logic [TREES*16-1:0] tree_job,
    input  logic [TREES*8-1:0]  tree_tid,
    // This accelerator's addresses.
    input  logic [47:0]         own_mac,
    input  logic [31:0]         own_ip,
    input  logic [15:0]         own_port,
    input  logic [5:0]          own_dscp,
    // The ways out: to the hosts in the lower half, to the switching chip in the upper.
    input  logic [2*PORTS-1:0]  has_space,
    output logic [2*PORTS-1:0]  reserve,
    output logic [2*PORTS-1:0]  m_valid,
    output logic [W-1:0]        m_data,
    output logic [B-1:0]        m_keep,
    output logic                m_last,
    output logic [9:0]          m_beat,
    output logic [16:0]         m_length_and_tos
);
    localparam int LEVELS = PORTS > 1 ? $clog2(PORTS) : 0;
    localparam int LATENCY = 2 + 4 * LEVELS;
    localparam int FIELDS = ORDER - PORTS * SW;

    // Orders that wait; the first is the one that is read.
    logic [ORDER-1:0] orders[4];
    logic [2:0] order_in, order_out;
    logic has_order, order_taken;
    logic [FIELDS-1:0] fields;
    assign has_order = order_in != order_out;
    assign order_ready = (order_in - order_out) != 3'd4;
    assign {fields, read_slot} = orders[order_out[1:0]];
    assign sum_tree = fields[FIELDS-1-:TW];
    always_ff @(posedge clk) begin
        if (order_valid && order_ready) begin
            orders[order_in[1:0]] <= order;
            order_in <= order_in + 1'b1;
        end
        if (order_taken) order_out <= order_out + 1'b1;
        if (rst) begin
            order_in <= '0;
            order_out <= '0;
        end
    end

    // Reading: the same beat of all ports' packets in each cycle.
    logic [2*PORTS-1:0] targets;
    logic [15:0] read_bytes;
    logic [9:0] beat, last_beat;
    logic begins, is_active, is_reading, is_last_read, infos_full;
    assign targets = tree_is_root[sum_tree] ? {{PORTS{1'b0}}, members} : {up, {PORTS{1'b0}}};
    assign read_bytes = 16'(panama::HEADER) + fields[2+:16];
    assign last_beat = 10'((32'(read_bytes) + B - 1) / B - 1);
    assign begins = !is_active && has_order && (targets & ~has_space) == '0 && !infos_full;
    assign reserve = begins ? targets : '0;
    assign is_reading = is_active || begins;
    assign is_last_read = is_reading && beat == last_beat;
    assign read_beat = beat[BW-1:0];
    assign order_taken = is_last_read;
    assign done_valid = is_last_read ? members : '0;
    always_ff @(posedge clk) begin
        if (is_reading) begin
            is_active <= !is_last_read;
            beat <= is_last_read ? '0 : beat + 1'b1;
        end
        if (rst) begin
            is_active <= 1'b0;
            beat <= '0;
        end
    end

    // Each position's packet, wherever its port is, then the trees.
    logic [PORTS*PORTS-1:0] from;
    logic [PORTS-1:0] present;
    logic [PORTS*W-1:0] steered;
    logic [W-1:0] sum;
    logic [PORTS*W-1:0] steering;
    always_ff @(posedge clk) begin
        for (int i = 0; i < PORTS; i++)
            for (int p = 0; p < PORTS; p++) from[PORTS*i+p] <= members[p] && positions[16*p+:16] == 16'(i);
        for (int i = 0; i < PORTS; i++) present[i] <= from[PORTS*i+:PORTS] != '0;
        steered <= steering;
    end
    always_comb begin
        steering = '0;
        for (int i = 0; i < PORTS; i++)
            for (int p = 0; p < PORTS; p++)
                if (from[PORTS*i+p]) steering[W*i+:W] = steering[W*i+:W] | read_data[W*p+:W];
    end
    for (genvar l = 0; l < LANES; l++) begin : g_lane
        logic [PORTS*32-1:0] operands;
        logic [31:0] lane;
        for (genvar i = 0; i < PORTS; i++) begin : g_position
            // Big-endian on the wire.
            for (genvar k = 0; k < 4; k++) begin : g_byte
                assign operands[32*i+8*(3-k)+:8] = steered[W*i+32*l+8*k+:8];
            end
        end
        adder_tree #(
            .POSITIONS(PORTS)
        ) adders (
            .clk,
            .present,
            .operands,
            .sum(lane)
        );
        for (genvar k = 0; k < 4; k++) begin : g_byte
            assign sum[32*l+8*k+:8] = lane[8*(3-k)+:8];
        end
    end

    // Which beats are under way, and the header of each sum that is.
    logic [LATENCY-1:0] flow, flow_last;
    always_ff @(posedge clk) begin
        flow <= {flow[LATENCY-2:0], is_reading};
        flow_last <= {flow_last[LATENCY-2:0], is_last_read};
        if (rst) flow <= '0;
    end

    localparam int INFO = FIELDS + 2 * PORTS + 16 + 16;
    logic [INFO-1:0] infos[8];
    logic [3:0] info_in, info_out;
    logic leaves, leaves_last;
    assign leaves = flow[LATENCY-1];
    assign leaves_last = leaves && flow_last[LATENCY-1];
    assign infos_full = (info_in - info_out) == 4'd8;
    always_ff @(posedge clk) begin
        if (begins) begin
            infos[info_in[2:0]] <= {fields, targets, ranks, child};
            info_in <= info_in + 1'b1;
        end
        if (leaves_last) info_out <= info_out + 1'b1;
        if (rst) begin
            info_in <= '0;
            info_out <= '0;
        end
    end
    assign is_drained = !has_order && info_in == info_out && !m_any;

    logic [TW-1:0] tree;
    logic [31:0] vid, elements;
    logic [15:0] epoch, cap, bytes, its_ranks, its_child;
    logic is_avg, is_i32, is_root, m_any;
    logic [1:0] ecn;
    logic [2*PORTS-1:0] its_targets;
    assign {tree, vid, epoch, cap, elements, is_avg, is_i32, bytes, ecn, its_targets, its_ranks, its_child} =
        infos[info_out[2:0]];
    assign key_tree = tree;
    assign is_root = tree_is_root[tree];

    logic [7:0] tos;
    logic [15:0] ip_bytes;
    logic [panama::HEADER*8-1:0] header;  // byte 0 first, which is the most significant
    assign tos = {own_dscp, ecn};
    assign ip_bytes = bytes + 16'(panama::HEADER - panama::AT_IP);
    assign header = {
        48'd0, own_mac, panama::ETHERTYPE_IPV4,
        8'h45, tos, ip_bytes, 16'd0, 16'h4000, 8'd64, panama::PROTOCOL_UDP, 16'd0, own_ip, 32'd0,
        own_port, 16'd0, bytes + 16'(panama::HEADER - panama::AT_UDP), 16'd0,
        panama::MAGIC, panama::VERSION, panama::PROTOCOL_PANAMA,
        is_root ? panama::KIND_RESULT : panama::KIND_CONTRIBUTION, 8'd0, tree_job[16*tree+:16], key,
        vid, tree_tid[8*tree+:8], 8'd0, cap, epoch, is_root ? 16'd0 : its_child,
        elements, is_i32 ? panama::DTYPE_I32 : panama::DTYPE_F32, is_avg ? panama::OP_AVG : panama::OP_SUM,
        panama::NO_ROOT, its_ranks
    };

    // The header replaces the first bytes; at the end, of the last beat only the frame's bytes are kept.
    logic [9:0] leaving_beat;
    logic [W-1:0] headed;
    logic [B-1:0] keep;
    always_comb begin
        headed = sum;
        for (int n = 0; n < (panama::HEADER + B - 1) / B; n++)
            for (int i = 0; i < B; i++)
                if (leaving_beat == 10'(n) && n * B + i < panama::HEADER)
                    headed[8*i+:8] = header[8*(panama::HEADER-1-n*B-i)+:8];
        for (int i = 0; i < B; i++)
            keep[i] = !leaves_last || 32'(leaving_beat) * B + i < 32'(bytes) + panama::HEADER;
    end
    always_ff @(posedge clk) begin
        m_valid <= leaves ? its_targets : '0;
        m_any <= leaves;
        m_data <= headed;
        m_keep <= keep;
        m_last <= leaves_last;
        m_beat <= leaving_beat;
        m_length_and_tos <= 17'(ip_bytes) + 17'(tos);
        out_tree <= tree;
        if (leaves) leaving_beat <= leaves_last ? '0 : leaving_beat + 1'b1;
        if (rst) begin
            m_valid <= '0;
            m_any <= 1'b0;
            leaving_beat <= '0;
        end
    end
endmodule
