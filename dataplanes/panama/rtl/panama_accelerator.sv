// PANAMA's in-network aggregation accelerator (section 5, figure 6a): a bump in the wire between PORTS hosts and
// the switching chip.
//
// Frames from a host that are not for the accelerator go on to the chip, and all frames from the chip go on to the
// host: untouched and in order. CONTRIBUTIONs of trees that the controller has installed are summed; a root's sums
// go to the tree's hosts, others up through the chip. All else that is addressed to the accelerator goes to the
// control processor.
module panama_accelerator #(
    parameter int PORTS = 4,
    parameter int W = 64,
    parameter int TREES = 4,
    parameter int CAPACITY = 16,
    parameter int SLOTS = 32,
    parameter int FRAME_BYTES = 2048,
    localparam int B = W / 8,
    localparam int TW = TREES > 1 ? $clog2(TREES) : 1,
    localparam int PW = PORTS > 1 ? $clog2(PORTS) : 1
) (
    input  logic               clk,
    input  logic               rst,
    // From and to the hosts.
    input  logic [PORTS*W-1:0] host_rx_tdata,
    input  logic [PORTS*B-1:0] host_rx_tkeep,
    input  logic [PORTS-1:0]   host_rx_tvalid,
    output logic [PORTS-1:0]   host_rx_tready,
    input  logic [PORTS-1:0]   host_rx_tlast,
    output logic [PORTS*W-1:0] host_tx_tdata,
    output logic [PORTS*B-1:0] host_tx_tkeep,
    output logic [PORTS-1:0]   host_tx_tvalid,
    input  logic [PORTS-1:0]   host_tx_tready,
    output logic [PORTS-1:0]   host_tx_tlast,
    // From and to the switching chip.
    input  logic [PORTS*W-1:0] chip_rx_tdata,
    input  logic [PORTS*B-1:0] chip_rx_tkeep,
    input  logic [PORTS-1:0]   chip_rx_tvalid,
    output logic [PORTS-1:0]   chip_rx_tready,
    input  logic [PORTS-1:0]   chip_rx_tlast,
    output logic [PORTS*W-1:0] chip_tx_tdata,
    output logic [PORTS*B-1:0] chip_tx_tkeep,
    output logic [PORTS-1:0]   chip_tx_tvalid,
    input  logic [PORTS-1:0]   chip_tx_tready,
    output logic [PORTS-1:0]   chip_tx_tlast,
    // To the control processor, with the number of the port.
    output logic [W-1:0]       cpu_tx_tdata,
    output logic [B-1:0]       cpu_tx_tkeep,
    output logic               cpu_tx_tvalid,
    input  logic               cpu_tx_tready,
    output logic               cpu_tx_tlast,
    output logic [PW-1:0]      cpu_tx_tuser,
    // The accelerator's own addresses, and the DSCP of aggregation packets (56 in the paper, 0 from our workers).
    input  logic [47:0]        own_mac,
    input  logic [31:0]        own_ip,
    input  logic [15:0]        own_port,
    input  logic [5:0]         own_dscp,
    // The control processor: words of the job table, and commands to the control logic.
    input  logic               table_write,
    input  logic [TW-1:0]      table_tree,
    input  logic [4:0]         table_port,
    input  logic [2:0]         table_word,
    input  logic [31:0]        table_data,
    input  logic               command_valid,
    output logic               command_ready,
    input  logic               command_is_restart,
    input  logic [TW-1:0]      command_tree,
    input  logic [PW-1:0]      command_port,
    input  logic [31:0]        command_vid,
    input  logic [15:0]        command_epoch,
    input  logic               command_is_new,
    input  logic [TW-1:0]      state_tree,
    output logic [31:0]        state_expected,
    output logic [15:0]        state_epoch,
    // What became of each CONTRIBUTION, and what was lost for want of space.
    output logic               event_valid,
    output logic [PW-1:0]      event_port,
    output logic [TW-1:0]      event_tree,
    output logic [31:0]        event_vid,
    output logic [3:0]         event_reason,
    output logic               lost_vid,
    output logic [PORTS-1:0]   no_buffer,
    output logic [PORTS-1:0]   no_cpu_space
);
    localparam int FRAME_BEATS = FRAME_BYTES / B;
    localparam int SW = $clog2(SLOTS);
    localparam int BW = $clog2(FRAME_BEATS);
    localparam int FIELDS = TW + 4 + 32 + 16 + 16 + 32 + 2 + 16 + 2 + 4 + 1;
    localparam int ORDER = TW + 32 + 16 + 16 + 32 + 2 + 16 + 2 + PORTS * SW;

    logic [TREES-1:0] tree_valid, tree_is_root;
    logic [TREES*16-1:0] tree_job;
    logic [TREES*8-1:0] tree_tid;
    logic [TREES*4-1:0] tree_generation;
    logic [PORTS*TW-1:0] parser_tree;
    logic [PORTS*64-1:0] parser_key;
    logic [PORTS*16-1:0] parser_wid, parser_count, parser_port;
    logic [PORTS-1:0] parser_is_member;
    logic [PORTS*32-1:0] parser_ip;
    logic [TW-1:0] control_tree, sum_tree, key_tree, out_tree;
    logic [PORTS-1:0] control_members, sum_members, sum_up;
    logic [15:0] control_full, control_capacity, sum_ranks, sum_child;
    logic [PORTS*16-1:0] sum_positions;
    logic [63:0] out_key;
    logic [(PORTS+1)*112-1:0] out_address;
    job_table #(
        .PORTS(PORTS),
        .TREES(TREES)
    ) jobs (
        .clk,
        .rst,
        .write(table_write),
        .write_tree(table_tree),
        .write_port(table_port),
        .write_word(table_word),
        .write_data(table_data),
        .*
    );

    logic [PORTS-1:0] head_valid, head_taken, drop_valid, done_valid;
    logic [PORTS*FIELDS-1:0] head_fields;
    logic [PORTS*SW-1:0] head_slot, drop_slot, read_slot;
    logic [BW-1:0] read_beat;
    logic [PORTS*W-1:0] read_data;
    logic [PORTS-1:0] cpu_valid, cpu_last, cpu_ready;
    logic [PORTS*W-1:0] cpu_data;
    logic [PORTS*B-1:0] cpu_keep;
    logic [2*PORTS-1:0] has_space, reserve, sum_valid;
    logic [W-1:0] sum_data;
    logic [B-1:0] sum_keep;
    logic sum_last;
    logic [9:0] sum_beat;
    logic [16:0] sum_length_and_tos;

    for (genvar p = 0; p < PORTS; p++) begin : g_port
        logic [W-1:0] pass_data, w_data;
        logic [B-1:0] pass_keep, w_keep;
        logic pass_valid, pass_ready, pass_last, w_valid, w_last, is_contribution, is_for_cpu;
        logic [9:0] w_beat;
        logic [3:0] generation, fault;
        logic [31:0] vid, elements;
        logic [15:0] epoch, wnd_cap, vector_bytes;
        logic is_avg, is_i32, is_bad_count;
        logic [1:0] ecn;
        header_parser #(
            .W(W),
            .TREES(TREES)
        ) parser (
            .clk,
            .rst,
            .s_tdata(host_rx_tdata[W*p+:W]),
            .s_tkeep(host_rx_tkeep[B*p+:B]),
            .s_tvalid(host_rx_tvalid[p]),
            .s_tready(host_rx_tready[p]),
            .s_tlast(host_rx_tlast[p]),
            .m_tdata(pass_data),
            .m_tkeep(pass_keep),
            .m_tvalid(pass_valid),
            .m_tready(pass_ready),
            .m_tlast(pass_last),
            .tree(parser_tree[TW*p+:TW]),
            .its_key(parser_key[64*p+:64]),
            .its_is_member(parser_is_member[p]),
            .its_wid(parser_wid[16*p+:16]),
            .its_count(parser_count[16*p+:16]),
            .its_ip(parser_ip[32*p+:32]),
            .its_port(parser_port[16*p+:16]),
            .*
        );
        packet_buffer #(
            .W(W),
            .SLOTS(SLOTS),
            .FRAME_BEATS(FRAME_BEATS),
            .FIELDS(FIELDS)
        ) buffer (
            .fields({parser_tree[TW*p+:TW], generation, vid, epoch, wnd_cap, elements, is_avg, is_i32,
                vector_bytes, ecn, fault, is_bad_count}),
            .is_lost(no_buffer[p]),
            .head_valid(head_valid[p]),
            .head_fields(head_fields[FIELDS*p+:FIELDS]),
            .head_slot(head_slot[SW*p+:SW]),
            .head_taken(head_taken[p]),
            .drop_valid(drop_valid[p]),
            .drop_slot(drop_slot[SW*p+:SW]),
            .done_valid(done_valid[p]),
            .done_slot(read_slot[SW*p+:SW]),
            .read_slot(read_slot[SW*p+:SW]),
            .read_beat,
            .read_data(read_data[W*p+:W]),
            .*
        );
        cpu_queue #(
            .W(W),
            .DEPTH(2 * FRAME_BEATS)
        ) for_cpu (
            .is_lost(no_cpu_space[p]),
            .m_tvalid(cpu_valid[p]),
            .m_tdata(cpu_data[W*p+:W]),
            .m_tkeep(cpu_keep[B*p+:B]),
            .m_tlast(cpu_last[p]),
            .m_tready(cpu_ready[p]),
            .*
        );
        egress #(
            .W(W),
            .FRAME_BEATS(FRAME_BEATS)
        ) to_host (
            .s_tvalid(chip_rx_tvalid[p]),
            .s_tready(chip_rx_tready[p]),
            .s_tdata(chip_rx_tdata[W*p+:W]),
            .s_tkeep(chip_rx_tkeep[B*p+:B]),
            .s_tlast(chip_rx_tlast[p]),
            .has_space(has_space[p]),
            .reserve(reserve[p]),
            .sum_valid(sum_valid[p]),
            .address(out_address[112*p+:112]),
            .m_tvalid(host_tx_tvalid[p]),
            .m_tready(host_tx_tready[p]),
            .m_tdata(host_tx_tdata[W*p+:W]),
            .m_tkeep(host_tx_tkeep[B*p+:B]),
            .m_tlast(host_tx_tlast[p]),
            .*
        );
        egress #(
            .W(W),
            .FRAME_BEATS(FRAME_BEATS)
        ) to_chip (
            .s_tvalid(pass_valid),
            .s_tready(pass_ready),
            .s_tdata(pass_data),
            .s_tkeep(pass_keep),
            .s_tlast(pass_last),
            .has_space(has_space[PORTS+p]),
            .reserve(reserve[PORTS+p]),
            .sum_valid(sum_valid[PORTS+p]),
            .address(out_address[112*PORTS+:112]),
            .m_tvalid(chip_tx_tvalid[p]),
            .m_tready(chip_tx_tready[p]),
            .m_tdata(chip_tx_tdata[W*p+:W]),
            .m_tkeep(chip_tx_tkeep[B*p+:B]),
            .m_tlast(chip_tx_tlast[p]),
            .*
        );
    end

    logic order_valid, order_ready, is_drained;
    logic [ORDER-1:0] order;
    agg_control #(
        .PORTS(PORTS),
        .TREES(TREES),
        .CAPACITY(CAPACITY),
        .SLOTS(SLOTS)
    ) control (
        .tree(control_tree),
        .members(control_members),
        .full(control_full),
        .capacity(control_capacity),
        .*
    );
    agg_datapath #(
        .PORTS(PORTS),
        .W(W),
        .TREES(TREES),
        .SLOTS(SLOTS),
        .FRAME_BEATS(FRAME_BEATS),
        .ORDER(ORDER)
    ) datapath (
        .members(sum_members),
        .positions(sum_positions),
        .ranks(sum_ranks),
        .child(sum_child),
        .up(sum_up),
        .key(out_key),
        .m_valid(sum_valid),
        .m_data(sum_data),
        .m_keep(sum_keep),
        .m_last(sum_last),
        .m_beat(sum_beat),
        .m_length_and_tos(sum_length_and_tos),
        .*
    );
    cpu_mux #(
        .PORTS(PORTS),
        .W(W)
    ) cpu (
        .s_tvalid(cpu_valid),
        .s_tdata(cpu_data),
        .s_tkeep(cpu_keep),
        .s_tlast(cpu_last),
        .s_tready(cpu_ready),
        .m_tvalid(cpu_tx_tvalid),
        .m_tdata(cpu_tx_tdata),
        .m_tkeep(cpu_tx_tkeep),
        .m_tlast(cpu_tx_tlast),
        .m_tuser(cpu_tx_tuser),
        .m_tready(cpu_tx_tready),
        .*
    );
endmodule
