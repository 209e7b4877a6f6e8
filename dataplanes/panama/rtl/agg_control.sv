// The control logic (section 5, part 2; "aggregation datapath control logic" of table 2): for each tree
// `Expected_VID`, and for each of its ports how far its packets have come.
//
// It takes one header at a time, decides as the software switch does (docs/protocols/panama.md), and then, as long
// as every port has a packet: if the heads are the expected VID, it orders their sum from the datapath; otherwise
// the VID is lost at some port, and the others' packets of it are dropped.
module agg_control #(
    parameter int PORTS = 4,
    parameter int TREES = 4,
    parameter int CAPACITY = 16,
    parameter int SLOTS = 16,
    localparam int TW = TREES > 1 ? $clog2(TREES) : 1,
    localparam int RW = $clog2(CAPACITY),
    localparam int SW = $clog2(SLOTS),
    localparam int PW = PORTS > 1 ? $clog2(PORTS) : 1,
    localparam int FIELDS = TW + 4 + 32 + 16 + 16 + 32 + 2 + 16 + 2 + 4 + 1,
    localparam int ORDER = TW + 32 + 16 + 16 + 32 + 2 + 16 + 2 + PORTS * SW
) (
    input  logic                    clk,
    input  logic                    rst,
    // Headers that wait at the ports.
    input  logic [PORTS-1:0]        head_valid,
    input  logic [PORTS*FIELDS-1:0] head_fields,
    input  logic [PORTS*SW-1:0]     head_slot,
    output logic [PORTS-1:0]        head_taken,
    // Slots that are free again.
    output logic [PORTS-1:0]        drop_valid,
    output logic [PORTS*SW-1:0]     drop_slot,
    // Of the tree in work.
    output logic [TW-1:0]           tree,
    input  logic [TREES-1:0]        tree_valid,
    input  logic [TREES*4-1:0]      tree_generation,
    input  logic [PORTS-1:0]        members,
    input  logic [15:0]             full,
    input  logic [15:0]             capacity,
    // Sums for the datapath.
    output logic                    order_valid,
    output logic [ORDER-1:0]        order,
    input  logic                    order_ready,
    input  logic                    is_drained,
    // Commands of the control processor: a tree begins again, or a port sends again from a VID on.
    input  logic                    command_valid,
    output logic                    command_ready,
    input  logic                    command_is_restart,
    input  logic [TW-1:0]           command_tree,
    input  logic [PW-1:0]           command_port,
    input  logic [31:0]             command_vid,
    input  logic [15:0]             command_epoch,
    input  logic                    command_is_new,
    // What it can read: the tree's state.
    input  logic [TW-1:0]           state_tree,
    output logic [31:0]             state_expected,
    output logic [15:0]             state_epoch,
    // What became of a packet.
    output logic                    event_valid,
    output logic [PW-1:0]           event_port,
    output logic [TW-1:0]           event_tree,
    output logic [31:0]             event_vid,
    output logic [3:0]              event_reason,
    output logic                    lost_vid
);
    localparam logic [2:0] RESET = 3'd0, IDLE = 3'd1, LOOK = 3'd2, ACT = 3'd3;
    localparam logic [2:0] ADVANCE = 3'd4, DRAIN = 3'd5, CLEAR = 3'd6, REPORT = 3'd7;
    logic [2:0] state;

    // The packet in work.
    logic [PW-1:0] port, last_port;
    logic [SW-1:0] slot;
    logic [FIELDS-1:0] fields;
    logic [3:0] generation, fault;
    logic [31:0] vid, elements;
    logic [15:0] epoch, wnd_cap, vector_bytes;
    logic [1:0] what, ecn;
    logic is_bad_count;
    logic [TW-1:0] packet_tree;
    assign {packet_tree, generation, vid, epoch, wnd_cap, elements, what, vector_bytes, ecn, fault, is_bad_count} =
        fields;
    assign tree = state == CLEAR || state == DRAIN ? command_tree : packet_tree;

    // The next port in turn that has a header.
    logic [PW-1:0] chosen;
    always_comb begin
        chosen = '0;
        for (int i = PORTS - 1; i >= 0; i--) if (head_valid[i]) chosen = PW'(i);
        for (int i = PORTS - 1; i >= 0; i--) if (head_valid[i] && PW'(i) > last_port) chosen = PW'(i);
    end

    // State of the trees. For each port how many VIDs from the expected one on its packets reach: 0 is an empty
    // queue.
    logic [31:0] expected_of[TREES];
    logic [15:0] epoch_of[TREES];
    logic [TREES-1:0] is_new_of;
    logic [PORTS*(RW+1)-1:0] reach_of[TREES];
    logic [31:0] expected, ahead;
    logic [15:0] epoch_ahead;
    logic [PORTS*(RW+1)-1:0] reach, reach_pushed, reach_passed, reach_again;
    logic [PORTS-1:0] is_there;
    assign expected = expected_of[tree];
    assign reach = reach_of[tree];
    assign ahead = vid - expected;
    assign epoch_ahead = epoch - epoch_of[tree];
    assign state_expected = expected_of[state_tree];
    assign state_epoch = epoch_of[state_tree];
    logic [31:0] again;
    assign again = command_vid - expected;
    for (genvar p = 0; p < PORTS; p++) begin : g_reach
        logic [RW:0] mine;
        assign mine = reach[(RW+1)*p+:RW+1];
        assign is_there[p] = !members[p] || mine != '0;
        assign reach_pushed[(RW+1)*p+:RW+1] = port == PW'(p) ? ahead[RW:0] + 1'b1 : mine;
        assign reach_passed[(RW+1)*p+:RW+1] = mine == '0 ? '0 : mine - 1'b1;
        assign reach_again[(RW+1)*p+:RW+1] =
            command_port != PW'(p) || (!again[31] && again > 32'(mine)) ? mine : again[31] ? '0 : again[RW:0];
    end

    // What is known of each VID that waits: the fields of its packets, joined, who has brought one, and its slots.
    localparam int ENTRY = 32 + 2 + 16 + 2 + 16 + 1;
    logic [ENTRY-1:0] entries[TREES*CAPACITY];
    logic [PORTS-1:0] arrived[TREES*CAPACITY];
    logic [PORTS*SW-1:0] slots_at[TREES*CAPACITY];
    logic [TW+RW-1:0] at, clear_step;
    always_comb begin
        case (state)
            RESET: at = clear_step;
            CLEAR: at = {command_tree, clear_step[RW-1:0]};
            ADVANCE: at = {tree, expected[RW-1:0]};
            default: at = {tree, vid[RW-1:0]};
        endcase
    end
    logic [31:0] entry_elements;
    logic [1:0] entry_what, entry_ecn, joined_ecn;
    logic [15:0] entry_bytes, entry_cap, sent_cap;
    logic entry_mismatch, is_first;
    logic [PORTS-1:0] have;
    logic [PORTS*SW-1:0] slots, slots_new;
    assign {entry_elements, entry_what, entry_bytes, entry_ecn, entry_cap, entry_mismatch} = entries[at];
    assign have = arrived[at];
    assign slots = slots_at[at];
    assign is_first = have == '0;
    // There are two codes for "capable", which OR-ed would be a mark.
    logic [1:0] capable;
    assign capable = ecn == panama::ECN_CAPABLE_1 ? panama::ECN_CAPABLE : ecn;
    assign joined_ecn = is_first ? capable : capable | entry_ecn;
    for (genvar p = 0; p < PORTS; p++) begin : g_slot
        assign slots_new[SW*p+:SW] = port == PW'(p) ? slot : slots[SW*p+:SW];
    end

    logic size_known, size_fits;
    block_size #(
        .TREES(TREES)
    ) sizes (
        .clk,
        .rst,
        .tree(packet_tree),
        .elements,
        .full,
        .vector_bytes,
        .ask(state == LOOK),
        .known(size_known),
        .fits(size_fits),
        .forget(state == DRAIN && is_drained),
        .forget_tree(command_tree)
    );

    // The decision, in the order of the software switch.
    logic [3:0] decision, reason;
    always_comb begin
        if (!tree_valid[packet_tree] || tree_generation[4*packet_tree+:4] != generation) decision = panama::UNKNOWN_JOB;
        else if (fault != panama::ACCEPTED) decision = fault;
        else if (epoch_ahead[15]) decision = panama::STALE_EPOCH;
        else if (epoch_ahead != '0) decision = panama::AHEAD;
        else if (ahead[31]) decision = panama::STALE;
        else if (ahead >= 32'(capacity)) decision = is_new_of[packet_tree] ? panama::AHEAD : panama::OVERFLOW;
        else if (ahead[RW:0] < reach[(RW+1)*port+:RW+1]) decision = panama::DUPLICATE;
        else if (is_bad_count) decision = panama::BAD_FIELD;
        else if (!size_fits) decision = panama::BAD_LENGTH;
        else if (!is_first && (entry_mismatch || entry_elements != elements || entry_what != what))
            decision = panama::MISMATCH;
        else if (!is_first && entry_bytes != vector_bytes) decision = panama::BAD_LENGTH;
        else decision = panama::ACCEPTED;
    end

    logic all_there, is_whole, is_complete, passes;
    assign all_there = state == ADVANCE && is_there == '1 && !(entry_mismatch && !is_first);
    assign is_whole = have == members;
    assign is_complete = all_there && expected == vid && is_whole;
    assign passes = all_there && (!is_complete || order_ready);
    assign sent_cap = entry_cap < capacity ? (entry_cap == '0 ? 16'd1 : entry_cap) : capacity;
    assign order_valid = is_complete;
    assign order = {packet_tree, vid, epoch, sent_cap, entry_elements, entry_what, entry_bytes, entry_ecn, slots};
    assign lost_vid = all_there && !is_complete;

    // Slots of packets that are dropped: this one's, or those of a VID that is lost or cleared.
    for (genvar p = 0; p < PORTS; p++) begin : g_drop
        logic mine;
        assign mine = state == ACT && port == PW'(p) && (reason != panama::ACCEPTED || have[p]);
        assign drop_valid[p] = mine || ((lost_vid || state == CLEAR) && have[p]);
        assign drop_slot[SW*p+:SW] = mine ? slot : slots[SW*p+:SW];
        assign head_taken[p] = state == IDLE && !command_valid && head_valid[p] && chosen == PW'(p);
    end

    assign command_ready = state == REPORT;
    assign event_valid = (state == ADVANCE && !all_there) || (state == ACT && reason != panama::ACCEPTED);
    assign event_port = port;
    assign event_tree = packet_tree;
    assign event_vid = vid;
    assign event_reason = reason;

    // What is written, once for each memory.
    logic adds, is_pushed, is_cleared;
    assign adds = state == ACT && reason == panama::ACCEPTED && !have[port];
    assign is_pushed = state == ACT && reason == panama::ACCEPTED;
    assign is_cleared = state == CLEAR;
    always_ff @(posedge clk) begin
        if (adds || (state == ACT && reason == panama::MISMATCH))
            entries[at] <= adds ? {elements, what, vector_bytes, joined_ecn,
                is_first || wnd_cap < entry_cap ? wnd_cap : entry_cap, 1'b0} :
                {entry_elements, entry_what, entry_bytes, entry_ecn, entry_cap, 1'b1};
        if (adds) slots_at[at] <= slots_new;
        if (adds || passes || is_cleared || state == RESET)
            arrived[at] <= adds ? have | (PORTS'(1) << port) : '0;
        if (is_pushed || passes || is_cleared || (state == DRAIN && !command_is_restart))
            reach_of[tree] <= is_pushed ? reach_pushed : passes ? reach_passed : is_cleared ? '0 : reach_again;
        if (passes || is_cleared) begin
            expected_of[tree] <= is_cleared ? command_vid : expected + 1'b1;
            is_new_of[tree] <= is_cleared && command_is_new;
        end
        if (is_cleared) epoch_of[tree] <= command_epoch;
    end

    always_ff @(posedge clk) begin
        case (state)
            RESET: begin
                clear_step <= clear_step + 1'b1;
                if (clear_step == '1) state <= IDLE;
            end
            IDLE: begin
                if (command_valid) state <= DRAIN;
                else if (head_valid != '0) begin
                    state <= LOOK;
                    port <= chosen;
                    last_port <= chosen;
                    slot <= head_slot[SW*chosen+:SW];
                    fields <= head_fields[FIELDS*chosen+:FIELDS];
                end
            end
            LOOK: begin
                reason <= decision;
                if (size_known || elements == '0 || (decision != panama::ACCEPTED && decision != panama::BAD_LENGTH &&
                    decision != panama::MISMATCH))
                    state <= ACT;
            end
            ACT: state <= reason == panama::ACCEPTED ? ADVANCE : IDLE;
            ADVANCE: begin
                if (lost_vid && expected == vid) reason <= panama::INCOMPLETE;
                if (!all_there) state <= IDLE;
            end
            DRAIN: begin
                clear_step <= '0;
                if (!command_is_restart) state <= REPORT;
                else if (is_drained) state <= CLEAR;
            end
            CLEAR: begin
                clear_step <= clear_step + 1'b1;
                if (clear_step[RW-1:0] == '1) state <= REPORT;
            end
            default: state <= IDLE;
        endcase
        if (rst) begin
            state <= RESET;
            clear_step <= '0;
            last_port <= '0;
        end
    end
endmodule
