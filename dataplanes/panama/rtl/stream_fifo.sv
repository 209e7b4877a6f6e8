// A queue of beats in a block of memory, with an output register: what a port's sums wait in until the port is
// free. Not a block of the paper. The caller writes no more than there is space for.
module stream_fifo #(
    parameter int WIDTH = 73,
    parameter int DEPTH = 512,
    localparam int AW = $clog2(DEPTH)
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             write,
    input  logic [WIDTH-1:0] write_data,
    output logic             valid,
    output logic [WIDTH-1:0] data,
    input  logic             taken
);
    (* ram_style = "block" *) logic [WIDTH-1:0] memory[DEPTH];
    logic [AW:0] in_at, out_at;
    logic fetch;
    assign fetch = in_at != out_at && (!valid || taken);
    always_ff @(posedge clk) begin
        if (write) memory[in_at[AW-1:0]] <= write_data;
        if (fetch) data <= memory[out_at[AW-1:0]];
    end
    always_ff @(posedge clk) begin
        if (write) in_at <= in_at + 1'b1;
        if (fetch) out_at <= out_at + 1'b1;
        if (fetch || taken) valid <= fetch;
        if (rst) begin
            in_at <= '0;
            out_at <= '0;
            valid <= 1'b0;
        end
    end
endmodule
