// One way out of a port: frames that pass, and sums. Where they meet, a sum waits for at most one frame and a frame
// for at most one sum. The paper's figure has the output ports, and not what is in them.
//
// Sums come to all ports of a job at once, with the same header; here each gets its neighbour's addresses, and the
// IP checksum that belongs to them.
module egress #(
    parameter int W = 64,
    parameter int FRAME_BEATS = 256,
    localparam int B = W / 8
) (
    input  logic         clk,
    input  logic         rst,
    // Frames that pass.
    input  logic         s_tvalid,
    output logic         s_tready,
    input  logic [W-1:0] s_tdata,
    input  logic [B-1:0] s_tkeep,
    input  logic         s_tlast,
    // Sums. The datapath begins one only where `has_space`, and then says `reserve`.
    output logic         has_space,
    input  logic         reserve,
    input  logic         sum_valid,
    input  logic [W-1:0] sum_data,
    input  logic [B-1:0] sum_keep,
    input  logic         sum_last,
    input  logic [9:0]   sum_beat,
    input  logic [16:0]  sum_length_and_tos,
    // MAC address, UDP port, IP address, checksum of what is constant in the IP header.
    input  logic [111:0] address,
    output logic         m_tvalid,
    input  logic         m_tready,
    output logic [W-1:0] m_tdata,
    output logic [B-1:0] m_tkeep,
    output logic         m_tlast
);
    logic [16:0] once, twice;
    logic [17:0] added;
    assign added = 18'(sum_length_and_tos) + 18'(address[15:0]);
    assign once = {1'b0, added[15:0]} + 17'(added[17:16]);
    assign twice = {1'b0, once[15:0]} + 17'(once[16]);

    // The bytes that differ between neighbours.
    logic [W-1:0] addressed;
    always_comb begin
        addressed = sum_data;
        for (int i = 0; i < B; i++) begin
            for (int k = 0; k < 6; k++)
                if (sum_beat == 10'(k / B) && i == k % B) addressed[8*i+:8] = address[112-8*(k+1)+:8];
            for (int k = 0; k < 2; k++)
                if (sum_beat == 10'((panama::AT_IP + 10 + k) / B) && i == (panama::AT_IP + 10 + k) % B)
                    addressed[8*i+:8] = ~twice[8*(1-k)+:8];
            for (int k = 0; k < 4; k++)
                if (sum_beat == 10'((panama::AT_IP + 16 + k) / B) && i == (panama::AT_IP + 16 + k) % B)
                    addressed[8*i+:8] = address[16+8*(3-k)+:8];
            for (int k = 0; k < 2; k++)
                if (sum_beat == 10'((panama::AT_UDP + 2 + k) / B) && i == (panama::AT_UDP + 2 + k) % B)
                    addressed[8*i+:8] = address[48+8*(1-k)+:8];
        end
    end

    logic waits_valid, waits_taken, waits_last;
    logic [W-1:0] waits_data;
    logic [B-1:0] waits_keep;
    stream_fifo #(
        .WIDTH(W + B + 1),
        .DEPTH(2 * FRAME_BEATS)
    ) sums (
        .clk,
        .rst,
        .write(sum_valid),
        .write_data({sum_last, sum_keep, addressed}),
        .valid(waits_valid),
        .data({waits_last, waits_keep, waits_data}),
        .taken(waits_taken)
    );

    logic [1:0] reserved;
    logic is_inside, was_sum, is_sum;
    assign has_space = reserved != 2'd2;
    assign is_sum = is_inside ? was_sum : waits_valid && (!s_tvalid || !was_sum);
    assign m_tvalid = is_sum ? waits_valid : s_tvalid;
    assign m_tdata = is_sum ? waits_data : s_tdata;
    assign m_tkeep = is_sum ? waits_keep : s_tkeep;
    assign m_tlast = is_sum ? waits_last : s_tlast;
    assign waits_taken = is_sum && waits_valid && m_tready;
    assign s_tready = !is_sum && m_tready;
    always_ff @(posedge clk) begin
        if (m_tvalid) begin
            was_sum <= is_sum;
            is_inside <= !(m_tready && m_tlast);
        end
        reserved <= reserved + 2'(reserve) - 2'(waits_taken && waits_last);
        if (rst) begin
            is_inside <= 1'b0;
            was_sum <= 1'b0;
            reserved <= '0;
        end
    end

    logic unused;
    assign unused = twice[16];
endmodule
