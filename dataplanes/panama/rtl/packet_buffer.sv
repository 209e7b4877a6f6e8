// The aggregation buffer of one port (section 5; "buffering control" of table 2): space for SLOTS packets.
//
// A frame is written as it comes, before anybody knows what it is. If it is a CONTRIBUTION, it keeps its slot and
// its header waits for the control logic; otherwise the next frame takes the slot. Control logic and datapath say
// which slots are free again.
module packet_buffer #(
    parameter int W = 64,
    parameter int SLOTS = 16,
    parameter int FRAME_BEATS = 256,
    parameter int FIELDS = 160,
    localparam int SW = $clog2(SLOTS),
    localparam int BW = $clog2(FRAME_BEATS)
) (
    input  logic              clk,
    input  logic              rst,
    input  logic              w_valid,
    input  logic [W-1:0]      w_data,
    input  logic              w_last,
    input  logic [9:0]        w_beat,
    input  logic              is_contribution,
    input  logic [FIELDS-1:0] fields,
    // A CONTRIBUTION that found no slot.
    output logic              is_lost,
    // The oldest header, and the slot of its frame.
    output logic              head_valid,
    output logic [FIELDS-1:0] head_fields,
    output logic [SW-1:0]     head_slot,
    input  logic              head_taken,
    // Slots that are free again: by the control logic, and by the datapath.
    input  logic              drop_valid,
    input  logic [SW-1:0]     drop_slot,
    input  logic              done_valid,
    input  logic [SW-1:0]     done_slot,
    // The vector's beats, a cycle later.
    input  logic [SW-1:0]     read_slot,
    input  logic [BW-1:0]     read_beat,
    output logic [W-1:0]      read_data
);
    // True between frames: only then may a frame begin in a slot that has just become free.
    logic is_idle, is_inside;
    assign is_idle = !is_inside && !w_valid;
    always_ff @(posedge clk) begin
        if (w_valid) is_inside <= !w_last;
        if (rst) is_inside <= 1'b0;
    end

    // The frame that comes is written to slot `here`, the next one to slot `next`.
    logic [SLOTS-1:0] free;
    logic [SW-1:0] here, next, candidate;
    logic here_valid, next_valid, keep, take;
    always_comb begin
        candidate = '0;
        for (int i = SLOTS - 1; i >= 0; i--) if (free[i]) candidate = SW'(i);
    end
    assign keep = w_valid && w_last && is_contribution && here_valid;
    assign is_lost = w_valid && w_last && is_contribution && !here_valid;
    assign take = free != '0 && (!next_valid || keep);

    always_ff @(posedge clk) begin
        if (keep || (!here_valid && (is_idle || w_last))) begin
            here <= next;
            here_valid <= next_valid;
            next_valid <= 1'b0;
        end
        if (take) begin
            next <= candidate;
            next_valid <= 1'b1;
            free[candidate] <= 1'b0;
        end
        if (drop_valid) free[drop_slot] <= 1'b1;
        if (done_valid) free[done_slot] <= 1'b1;
        if (rst) begin
            free <= '1;
            here_valid <= 1'b0;
            next_valid <= 1'b0;
        end
    end

    (* ram_style = "block" *) logic [W-1:0] memory[SLOTS*FRAME_BEATS];
    always_ff @(posedge clk) begin
        if (w_valid && here_valid && 11'(w_beat) < 11'(FRAME_BEATS)) memory[{here, w_beat[BW-1:0]}] <= w_data;
        read_data <= memory[{read_slot, read_beat}];
    end

    // Each header that waits holds a slot, so there is always space for it.
    logic [FIELDS+SW-1:0] headers[SLOTS];
    logic [SW:0] in_at, out_at;
    assign head_valid = in_at != out_at;
    assign {head_fields, head_slot} = headers[out_at[SW-1:0]];
    always_ff @(posedge clk) begin
        if (keep) begin
            headers[in_at[SW-1:0]] <= {fields, here};
            in_at <= in_at + 1'b1;
        end
        if (head_taken) out_at <= out_at + 1'b1;
        if (rst) begin
            in_at <= '0;
            out_at <= '0;
        end
    end
endmodule
