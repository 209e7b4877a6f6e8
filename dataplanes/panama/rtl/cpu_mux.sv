// The way to the control processor: the ports' frames, one after the other, with the number of the port.
// Not a block of the paper.
module cpu_mux #(
    parameter int PORTS = 4,
    parameter int W = 64,
    localparam int B = W / 8,
    localparam int PW = PORTS > 1 ? $clog2(PORTS) : 1
) (
    input  logic               clk,
    input  logic               rst,
    input  logic [PORTS-1:0]   s_tvalid,
    input  logic [PORTS*W-1:0] s_tdata,
    input  logic [PORTS*B-1:0] s_tkeep,
    input  logic [PORTS-1:0]   s_tlast,
    output logic [PORTS-1:0]   s_tready,
    output logic               m_tvalid,
    output logic [W-1:0]       m_tdata,
    output logic [B-1:0]       m_tkeep,
    output logic               m_tlast,
    output logic [PW-1:0]      m_tuser,
    input  logic               m_tready
);
    logic [PW-1:0] port, last_port, chosen;
    logic is_inside;
    always_comb begin
        chosen = '0;
        for (int i = PORTS - 1; i >= 0; i--) if (s_tvalid[i]) chosen = PW'(i);
        for (int i = PORTS - 1; i >= 0; i--) if (s_tvalid[i] && PW'(i) > last_port) chosen = PW'(i);
    end
    assign port = is_inside ? last_port : chosen;
    assign m_tvalid = s_tvalid[port];
    assign m_tdata = s_tdata[W*port+:W];
    assign m_tkeep = s_tkeep[B*port+:B];
    assign m_tlast = s_tlast[port];
    assign m_tuser = port;
    assign s_tready = m_tvalid && m_tready ? PORTS'(1) << port : '0;
    always_ff @(posedge clk) begin
        if (m_tvalid) begin
            last_port <= port;
            is_inside <= !(m_tready && m_tlast);
        end
        if (rst) begin
            is_inside <= 1'b0;
            last_port <= '0;
        end
    end
endmodule
