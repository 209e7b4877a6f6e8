// One port's frames for the control processor. The paper has one, the controller, and does not say how packets get
// there.
//
// Each frame is written as it comes; if it turns out not to be for the processor, or there is no space, it is taken
// back.
module cpu_queue #(
    parameter int W = 64,
    parameter int DEPTH = 512,
    localparam int B = W / 8,
    localparam int AW = $clog2(DEPTH)
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         w_valid,
    input  logic [W-1:0] w_data,
    input  logic [B-1:0] w_keep,
    input  logic         w_last,
    input  logic         is_for_cpu,
    // A frame for the processor that found no space.
    output logic         is_lost,
    output logic         m_tvalid,
    output logic [W-1:0] m_tdata,
    output logic [B-1:0] m_tkeep,
    output logic         m_tlast,
    input  logic         m_tready
);
    (* ram_style = "block" *) logic [W+B:0] memory[DEPTH];
    logic [AW:0] begun_at, in_at, out_at;
    logic is_full, is_cut, fetch;
    assign is_full = (in_at - out_at) == (AW + 1)'(DEPTH);
    assign is_lost = w_valid && w_last && is_for_cpu && (is_cut || is_full);
    assign fetch = begun_at != out_at && (!m_tvalid || m_tready);
    always_ff @(posedge clk) begin
        if (w_valid && !is_full) memory[in_at[AW-1:0]] <= {w_last, w_keep, w_data};
        if (fetch) {m_tlast, m_tkeep, m_tdata} <= memory[out_at[AW-1:0]];
    end
    always_ff @(posedge clk) begin
        if (w_valid) begin
            is_cut <= !w_last && (is_cut || is_full);
            if (!w_last) in_at <= is_full ? in_at : in_at + 1'b1;
            else if (is_for_cpu && !is_cut && !is_full) begin
                in_at <= in_at + 1'b1;
                begun_at <= in_at + 1'b1;
            end else in_at <= begun_at;
        end
        if (fetch) out_at <= out_at + 1'b1;
        if (fetch || m_tready) m_tvalid <= fetch;
        if (rst) begin
            in_at <= '0;
            out_at <= '0;
            begun_at <= '0;
            is_cut <= 1'b0;
            m_tvalid <= 1'b0;
        end
    end
endmodule
