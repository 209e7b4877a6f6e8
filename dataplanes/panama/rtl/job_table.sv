// The state of jobs that the controller sets (section 5, part 2: `Ports_bitmap`, and what our packets need
// besides), for TREES trees of any jobs. Part of "control logic" of table 2.
//
// The control processor writes words of 32 bits. Address: tree, port, word; port 31 is what all ports have in
// common, and port PORTS is the parent switch.
//
//   port 31  word 0  job (16), tid (8), generation (4), unused (2), is root (1), is valid (1)
//            word 1  key, upper half; word 2: lower half
//            word 3  elements of a full block (16), ranks in a sum (16)
//            word 4  packets for which each port has space (16), this switch's number at its parent (16)
//            word 5  the port by which sums go up, as a bitmap
//   a port   word 0  MAC address, upper 32 bits; word 1: its lower 16, the UDP port
//            word 2  IP address
//            word 3  checksum of the constant part of an IP header to this neighbour (16), ranks behind the port (16)
//            word 4  position in the sum, which is `wid` (16), is a member (1)
module job_table #(
    parameter int PORTS = 4,
    parameter int TREES = 4,
    localparam int TW = TREES > 1 ? $clog2(TREES) : 1
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic                   write,
    input  logic [TW-1:0]          write_tree,
    input  logic [4:0]             write_port,
    input  logic [2:0]             write_word,
    input  logic [31:0]            write_data,
    // All trees at once.
    output logic [TREES-1:0]       tree_valid,
    output logic [TREES-1:0]       tree_is_root,
    output logic [TREES*16-1:0]    tree_job,
    output logic [TREES*8-1:0]     tree_tid,
    output logic [TREES*4-1:0]     tree_generation,
    // For the parsers, each of its own tree and port.
    input  logic [PORTS*TW-1:0]    parser_tree,
    output logic [PORTS*64-1:0]    parser_key,
    output logic [PORTS*16-1:0]    parser_wid,
    output logic [PORTS-1:0]       parser_is_member,
    output logic [PORTS*16-1:0]    parser_count,
    output logic [PORTS*32-1:0]    parser_ip,
    output logic [PORTS*16-1:0]    parser_port,
    // For the control logic.
    input  logic [TW-1:0]          control_tree,
    output logic [PORTS-1:0]       control_members,
    output logic [15:0]            control_full,
    output logic [15:0]            control_capacity,
    // For the datapath and the ways out, of the sum that is added: members, their positions, ranks in the sum.
    input  logic [TW-1:0]          sum_tree,
    output logic [PORTS-1:0]       sum_members,
    output logic [PORTS*16-1:0]    sum_positions,
    output logic [15:0]            sum_ranks,
    output logic [15:0]            sum_child,
    output logic [PORTS-1:0]       sum_up,
    // Of the sum that leaves: for the header, and for the ways out.
    input  logic [TW-1:0]          key_tree,
    output logic [63:0]            out_key,
    input  logic [TW-1:0]          out_tree,
    output logic [(PORTS+1)*112-1:0] out_address
);
    always_ff @(posedge clk) begin
        if (write && write_port == 5'd31 && write_word == 3'd0) begin
            tree_valid[write_tree] <= write_data[0];
            tree_is_root[write_tree] <= write_data[1];
            tree_generation[4*write_tree+:4] <= write_data[7:4];
            tree_tid[8*write_tree+:8] <= write_data[15:8];
            tree_job[16*write_tree+:16] <= write_data[31:16];
        end
        if (rst) tree_valid <= '0;
    end

    logic [31:0] key_high[TREES], key_low[TREES], sizes[TREES], capacities[TREES];
    logic [PORTS-1:0] ups[TREES];
    always_ff @(posedge clk) begin
        if (write && write_port == 5'd31) begin
            if (write_word == 3'd1) key_high[write_tree] <= write_data;
            if (write_word == 3'd2) key_low[write_tree] <= write_data;
            if (write_word == 3'd3) sizes[write_tree] <= write_data;
            if (write_word == 3'd4) capacities[write_tree] <= write_data;
            if (write_word == 3'd5) ups[write_tree] <= write_data[PORTS-1:0];
        end
    end
    assign control_full = sizes[control_tree][31:16];
    assign control_capacity = capacities[control_tree][31:16];
    assign sum_ranks = sizes[sum_tree][15:0];
    assign sum_child = capacities[sum_tree][15:0];
    assign sum_up = ups[sum_tree];
    assign out_key = {key_high[key_tree], key_low[key_tree]};

    for (genvar p = 0; p <= PORTS; p++) begin : g_port
        logic is_here;
        assign is_here = write && write_port == 5'(p);
        logic [31:0] mac[TREES], mac_and_port[TREES], ip[TREES];
        logic [15:0] sum[TREES];
        always_ff @(posedge clk) begin
            if (is_here && write_word == 3'd0) mac[write_tree] <= write_data;
            if (is_here && write_word == 3'd1) mac_and_port[write_tree] <= write_data;
            if (is_here && write_word == 3'd2) ip[write_tree] <= write_data;
            if (is_here && write_word == 3'd3) sum[write_tree] <= write_data[31:16];
        end
        assign out_address[112*p+:112] = {mac[out_tree], mac_and_port[out_tree], ip[out_tree], sum[out_tree]};

        if (p < PORTS) begin : g_member
            logic [15:0] count[TREES];
            logic [16:0] position[TREES];
            logic [TW-1:0] tree;
            assign tree = parser_tree[TW*p+:TW];
            always_ff @(posedge clk) begin
                if (is_here && write_word == 3'd3) count[write_tree] <= write_data[15:0];
                if (is_here && write_word == 3'd4) position[write_tree] <= {write_data[31:16], write_data[0]};
            end
            assign parser_key[64*p+:64] = {key_high[tree], key_low[tree]};
            assign {parser_wid[16*p+:16], parser_is_member[p]} = position[tree];
            assign parser_count[16*p+:16] = count[tree];
            assign parser_ip[32*p+:32] = ip[tree];
            assign parser_port[16*p+:16] = mac_and_port[tree][15:0];
            assign control_members[p] = position[control_tree][0];
            assign {sum_positions[16*p+:16], sum_members[p]} = position[sum_tree];
        end
    end
endmodule
