// The header parser of one port (section 5, part 1; "header parser" of table 2).
//
// It sees each frame as it passes. What is not for this accelerator goes on to the switching chip, several beats
// later and untouched. Of the rest it says, when the frame's last beat is written, what it is: a CONTRIBUTION of a
// tree that is installed here, with its fields and the checks that need no state; or something for the control
// processor.
module header_parser #(
    parameter int W = 64,
    parameter int TREES = 4,
    localparam int B = W / 8,
    localparam int TW = TREES > 1 ? $clog2(TREES) : 1
) (
    input  logic                clk,
    input  logic                rst,
    // From the host.
    input  logic [W-1:0]        s_tdata,
    input  logic [B-1:0]        s_tkeep,
    input  logic                s_tvalid,
    output logic                s_tready,
    input  logic                s_tlast,
    // To the switching chip: frames that are not for this accelerator.
    output logic [W-1:0]        m_tdata,
    output logic [B-1:0]        m_tkeep,
    output logic                m_tvalid,
    input  logic                m_tready,
    output logic                m_tlast,
    // Every frame, a beat later, for those who store it before they know whether they need it.
    output logic                w_valid,
    output logic [W-1:0]        w_data,
    output logic [B-1:0]        w_keep,
    output logic                w_last,
    output logic [9:0]          w_beat,
    // With the last beat: what the frame is.
    output logic                is_contribution,
    output logic                is_for_cpu,
    output logic [TW-1:0]       tree,
    output logic [3:0]          generation,
    output logic [31:0]         vid,
    output logic [15:0]         epoch,
    output logic [15:0]         wnd_cap,
    output logic [31:0]         elements,
    output logic                is_avg,
    output logic                is_i32,
    output logic [15:0]         vector_bytes,
    output logic [1:0]          ecn,
    output logic [3:0]          fault,
    output logic                is_bad_count,
    // This accelerator's address, and the DSCP by which packets are recognised.
    input  logic [31:0]         own_ip,
    input  logic [15:0]         own_port,
    input  logic [5:0]          own_dscp,
    // The trees that are installed.
    input  logic [TREES-1:0]    tree_valid,
    input  logic [TREES-1:0]    tree_is_root,
    input  logic [TREES*16-1:0] tree_job,
    input  logic [TREES*8-1:0]  tree_tid,
    input  logic [TREES*4-1:0]  tree_generation,
    // Of the tree that the header names: the key, and what this port is in it.
    input  logic [63:0]         its_key,
    input  logic                its_is_member,
    input  logic [15:0]         its_wid,
    input  logic [15:0]         its_count,
    input  logic [31:0]         its_ip,
    input  logic [15:0]         its_port
);
    localparam int HEADER_BEATS = (panama::HEADER + B - 1) / B;
    localparam int KNOWN_BEAT = (panama::KNOWN_AT + B - 1) / B - 1;
    localparam int DEPTH = 16;

    logic accept;
    assign accept = s_tvalid && s_tready;

    // The beats of the header, as they come. A shorter frame leaves the rest of the frame before it: lengths are
    // compared before any field is believed.
    /* verilator lint_off UNUSEDSIGNAL */
    logic [HEADER_BEATS*W-1:0] header;
    /* verilator lint_on UNUSEDSIGNAL */
    logic [9:0] beat;
    for (genvar i = 0; i < HEADER_BEATS; i++) begin : g_header
        always_ff @(posedge clk) if (accept && beat == 10'(i)) header[W*i+:W] <= s_tdata;
    end

    logic [$clog2(B+1)-1:0] kept;
    always_comb begin
        kept = '0;
        for (int i = 0; i < B; i++) kept += ($clog2(B + 1))'(s_tkeep[i]);
    end

    // Frames end at 64 KiB for the counter; none that long is a CONTRIBUTION.
    logic [19:0] frame_bytes;
    logic known, ended;
    always_ff @(posedge clk) begin
        w_valid <= accept;
        w_data <= s_tdata;
        w_keep <= s_tkeep;
        w_last <= s_tlast;
        w_beat <= beat;
        frame_bytes <= 20'(beat) * 20'(B) + 20'(kept);
        known <= accept && beat <= 10'(KNOWN_BEAT) && (beat == 10'(KNOWN_BEAT) || s_tlast);
        ended <= accept && s_tlast;
        if (accept) beat <= s_tlast ? '0 : beat + (beat != '1 ? 10'd1 : 10'd0);
        if (rst) begin
            beat <= '0;
            w_valid <= 1'b0;
            known <= 1'b0;
            ended <= 1'b0;
        end
    end

    // Fields, by their first byte; the wire is big-endian.
    `define BYTE(at) header[8*(at)+:8]
    `define U16(at) {`BYTE(at), `BYTE((at) + 1)}
    `define U32(at) {`U16(at), `U16((at) + 2)}

    // Whose packet is it? Fragments and headers with options are left to the switching chip.
    logic is_mine_now, is_mine_before, is_mine;
    assign is_mine_now = frame_bytes >= 20'(panama::KNOWN_AT) &&
        `U16(panama::AT_ETHERTYPE) == panama::ETHERTYPE_IPV4 && `BYTE(panama::AT_IP) == 8'h45 &&
        header[8*(panama::AT_IP+1)+2+:6] == own_dscp && `BYTE(panama::AT_IP + 9) == panama::PROTOCOL_UDP &&
        (`U16(panama::AT_IP + 6) & 16'h3fff) == '0 && `U32(panama::AT_IP + 16) == own_ip &&
        `U16(panama::AT_UDP + 2) == own_port;
    always_ff @(posedge clk) if (known) is_mine_before <= is_mine_now;
    assign is_mine = known ? is_mine_now : is_mine_before;

    // The tree that the header names.
    logic hit;
    always_comb begin
        hit = 1'b0;
        tree = '0;
        for (int t = 0; t < TREES; t++)
            if (tree_valid[t] && tree_job[16*t+:16] == `U16(panama::AT_COMMON + 6) &&
                tree_tid[8*t+:8] == `BYTE(panama::AT_PANAMA + 4)) begin
                hit = 1'b1;
                tree = TW'(t);
            end
    end

    // What an adder tree can sum: floats, and nothing, which is a barrier. A root divides averages, which this
    // cannot do.
    logic is_whole, is_sum, is_summed;
    assign is_whole = frame_bytes >= 20'(panama::HEADER) && frame_bytes == 20'(`U16(panama::AT_IP + 2)) + 20'd14 &&
        frame_bytes == 20'(`U16(panama::AT_UDP + 4)) + 20'd34;
    assign is_sum = `U16(panama::AT_COMMON) == panama::MAGIC &&
        `BYTE(panama::AT_COMMON + 2) == panama::VERSION && `BYTE(panama::AT_COMMON + 3) == panama::PROTOCOL_PANAMA &&
        `BYTE(panama::AT_COMMON + 4) == panama::KIND_CONTRIBUTION && `BYTE(panama::AT_PANAMA + 5) == '0;
    assign is_avg = `BYTE(panama::AT_PANAMA + 17) == panama::OP_AVG;
    assign is_i32 = `BYTE(panama::AT_PANAMA + 16) == panama::DTYPE_I32;
    assign is_summed = `U16(panama::AT_PANAMA + 18) == panama::NO_ROOT &&
        (`BYTE(panama::AT_PANAMA + 16) == panama::DTYPE_F32 || (is_i32 && elements == '0)) &&
        (`BYTE(panama::AT_PANAMA + 17) == panama::OP_SUM || is_avg && !tree_is_root[tree]);

    assign is_contribution = ended && is_mine && is_whole && is_sum && is_summed && hit;
    assign is_for_cpu = ended && is_mine && !is_contribution;
    assign generation = tree_generation[4*tree+:4];
    assign vid = `U32(panama::AT_PANAMA);
    assign wnd_cap = `U16(panama::AT_PANAMA + 6);
    assign epoch = `U16(panama::AT_PANAMA + 8);
    assign elements = `U32(panama::AT_PANAMA + 12);
    assign vector_bytes = 16'(frame_bytes - 20'(panama::HEADER));
    assign ecn = header[8*(panama::AT_IP+1)+:2];
    assign is_bad_count = `U16(panama::AT_PANAMA + 20) != its_count;
    // In the order of the software switch.
    always_comb begin
        if ({`U32(panama::AT_COMMON + 8), `U32(panama::AT_COMMON + 12)} != its_key) fault = panama::WRONG_KEY;
        else if (!its_is_member || `U32(panama::AT_IP + 12) != its_ip || `U16(panama::AT_UDP) != its_port)
            fault = panama::NOT_A_MEMBER;
        else if (`U16(panama::AT_PANAMA + 10) != its_wid) fault = panama::WRONG_WORKER;
        else fault = panama::ACCEPTED;
    end
    `undef BYTE
    `undef U16
    `undef U32

    // Beats wait here until it is known whose packet they are.
    logic [W+B:0] waiting[DEPTH];
    logic decided[DEPTH];
    logic [$clog2(DEPTH):0] in_at, out_at, known_at, frame_at;
    logic is_leaving, is_passing, advance;
    assign s_tready = (in_at - out_at) != ($clog2(DEPTH) + 1)'(DEPTH);
    assign {m_tlast, m_tkeep, m_tdata} = waiting[out_at[$clog2(DEPTH)-1:0]];
    assign is_leaving = in_at != out_at && known_at != frame_at;
    assign is_passing = decided[frame_at[$clog2(DEPTH)-1:0]];
    assign m_tvalid = is_leaving && is_passing;
    assign advance = is_leaving && (!is_passing || m_tready);
    always_ff @(posedge clk) begin
        if (accept) begin
            waiting[in_at[$clog2(DEPTH)-1:0]] <= {s_tlast, s_tkeep, s_tdata};
            in_at <= in_at + 1'b1;
        end
        if (known) begin
            decided[known_at[$clog2(DEPTH)-1:0]] <= !is_mine_now;
            known_at <= known_at + 1'b1;
        end
        if (advance) begin
            out_at <= out_at + 1'b1;
            if (m_tlast) frame_at <= frame_at + 1'b1;
        end
        if (rst) begin
            in_at <= '0;
            out_at <= '0;
            known_at <= '0;
            frame_at <= '0;
        end
    end
endmodule
