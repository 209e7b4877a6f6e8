// What the modules share: offsets in an Ethernet frame (docs/wire.md), the values that the parser compares, and the
// codes of the events that the control logic reports. Not a block of the paper.
package panama;
    // Bytes from the beginning of the frame. The vector begins behind the header, at a whole number of lanes.
    localparam int AT_ETHERTYPE = 12;
    localparam int AT_IP = 14;
    localparam int AT_UDP = 34;
    localparam int AT_COMMON = 42;
    localparam int AT_PANAMA = 58;
    localparam int HEADER = 80;
    // The parser knows whose packet it is when it has the destination's UDP port.
    localparam int KNOWN_AT = 38;

    localparam logic [15:0] ETHERTYPE_IPV4 = 16'h0800;
    localparam logic [7:0] PROTOCOL_UDP = 8'd17;
    localparam logic [15:0] MAGIC = 16'h5442;
    localparam logic [7:0] VERSION = 8'd2;
    localparam logic [7:0] PROTOCOL_PANAMA = 8'd5;
    localparam logic [7:0] KIND_CONTRIBUTION = 8'd16;
    localparam logic [7:0] KIND_RESULT = 8'd17;
    localparam logic [7:0] DTYPE_F32 = 8'd1;
    localparam logic [7:0] DTYPE_I32 = 8'd4;
    localparam logic [7:0] OP_SUM = 8'd1;
    localparam logic [7:0] OP_AVG = 8'd2;
    localparam logic [15:0] NO_ROOT = 16'hffff;

    // ECN: two bits of the IP header.
    localparam logic [1:0] ECN_CAPABLE = 2'b10;
    localparam logic [1:0] ECN_CAPABLE_1 = 2'b01;

    // What became of a CONTRIBUTION. The names are those of the software switch, but for the last.
    localparam logic [3:0] ACCEPTED = 4'd0;
    localparam logic [3:0] UNKNOWN_JOB = 4'd1;
    localparam logic [3:0] WRONG_KEY = 4'd2;
    localparam logic [3:0] NOT_A_MEMBER = 4'd3;
    localparam logic [3:0] WRONG_WORKER = 4'd4;
    localparam logic [3:0] BAD_FIELD = 4'd5;
    localparam logic [3:0] BAD_LENGTH = 4'd6;
    localparam logic [3:0] STALE = 4'd7;
    localparam logic [3:0] AHEAD = 4'd8;
    localparam logic [3:0] DUPLICATE = 4'd9;
    localparam logic [3:0] OVERFLOW = 4'd10;
    localparam logic [3:0] STALE_EPOCH = 4'd11;
    localparam logic [3:0] MISMATCH = 4'd12;
    localparam logic [3:0] INCOMPLETE = 4'd13;
endpackage
