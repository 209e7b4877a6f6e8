// Which lengths a block of a collective may have (part of "control logic" of table 2).
//
// A collective has full blocks and, if they do not fit evenly, a shorter last one. Packets of
// one collective follow each other, so the remainder is kept and seldom computed: by long division, a bit a cycle.
module block_size #(
    parameter int TREES = 4,
    localparam int TW = TREES > 1 ? $clog2(TREES) : 1
) (
    input  logic          clk,
    input  logic          rst,
    input  logic [TW-1:0] tree,
    input  logic [31:0]   elements,
    input  logic [15:0]   full,
    input  logic [15:0]   vector_bytes,
    // The question stands; `known` and `fits` are the answer.
    input  logic          ask,
    output logic          known,
    output logic          fits,
    // The tree has another job now.
    input  logic          forget,
    input  logic [TW-1:0] forget_tree
);
    logic [TREES-1:0] cached;
    logic [47:0] cache[TREES];
    logic [31:0] cached_elements;
    logic [15:0] rest;
    assign {cached_elements, rest} = cache[tree];
    assign known = cached[tree] && cached_elements == elements;
    assign fits = elements == '0 ? vector_bytes == '0 :
        (elements >= 32'(full) && vector_bytes == {full[13:0], 2'b00}) ||
        (rest != '0 && vector_bytes == {rest[13:0], 2'b00});

    logic [5:0] step;
    logic [31:0] dividend;
    logic [15:0] remainder;
    logic [16:0] shifted;
    assign shifted = {remainder, dividend[31]};
    always_ff @(posedge clk) begin
        if (!ask || known) step <= '0;
        else if (step == '0) begin
            step <= step + 1'b1;
            dividend <= elements;
            remainder <= '0;
        end else if (step != 6'd33) begin
            step <= step + 1'b1;
            dividend <= dividend << 1;
            remainder <= 16'(shifted >= {1'b0, full} ? shifted - {1'b0, full} : shifted);
        end else begin
            cache[tree] <= {elements, remainder};
            cached[tree] <= 1'b1;
        end
        if (forget) cached[forget_tree] <= 1'b0;
        if (rst) cached <= '0;
    end
endmodule
