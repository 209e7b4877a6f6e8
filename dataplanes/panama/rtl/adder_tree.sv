// One adder tree of the aggregation datapath (section 5, part 3; one of the two of figure 6a): one lane of 32 bits
// from each position, added along a balanced binary tree over the positions.
//
// A position without an operand is bypassed: it is not added as +0, which would turn -0 into +0. The tree never stops;
// the sum comes four cycles a level after its operands.
module adder_tree #(
    parameter int POSITIONS = 4,
    localparam int LEVELS = POSITIONS > 1 ? $clog2(POSITIONS) : 0
) (
    input  logic                 clk,
    input  logic [POSITIONS-1:0]    present,
    input  logic [POSITIONS*32-1:0] operands,
    output logic [31:0]          sum
);
    localparam int LEAVES = 1 << LEVELS;

    // A heap: node 1 is the sum, nodes LEAVES to 2 * LEAVES - 1 are the positions.
    logic [31:0] value[1:2*LEAVES-1];
    logic [2*LEAVES-1:1] is_present;

    for (genvar i = 0; i < LEAVES; i++) begin : g_leaf
        if (i < POSITIONS) begin : g_position
            assign value[LEAVES+i] = operands[32*i+:32];
            assign is_present[LEAVES+i] = present[i];
        end else begin : g_beyond
            assign value[LEAVES+i] = '0;
            assign is_present[LEAVES+i] = 1'b0;
        end
    end

    for (genvar n = 1; n < LEAVES; n++) begin : g_node
        logic [31:0] added;
        logic [31:0] alone[4];
        logic [3:0] both, any;
        fp_add adder (
            .clk,
            .a(value[2*n]),
            .b(value[2*n+1]),
            .sum(added)
        );
        always_ff @(posedge clk) begin
            alone[0] <= is_present[2*n] ? value[2*n] : value[2*n+1];
            for (int i = 1; i < 4; i++) alone[i] <= alone[i-1];
            both <= {both[2:0], is_present[2*n] && is_present[2*n+1]};
            any <= {any[2:0], is_present[2*n] || is_present[2*n+1]};
        end
        assign value[n] = both[3] ? added : alone[3];
        assign is_present[n] = any[3];
    end

    assign sum = value[1];

    logic unused;
    assign unused = is_present[1];
endmodule
