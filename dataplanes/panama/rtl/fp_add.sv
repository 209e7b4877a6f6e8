// The adder of the aggregation datapath (section 5, part 3 of the paper; the "adder" of table 2).
//
// Adds two IEEE 754 numbers of EXP exponent bits and MAN fraction bits, binary32 by default: to nearest, ties to
// even, with subnormals, signed zeros, infinities and NaNs. Every NaN that comes out is the canonical one:
// positive, with only the quiet bit in its fraction. One addition a cycle; the sum comes four cycles later. The
// pipeline never stops.
module fp_add #(
    parameter int EXP = 8,
    parameter int MAN = 23
) (
    input  logic             clk,
    input  logic [EXP+MAN:0] a,
    input  logic [EXP+MAN:0] b,
    output logic [EXP+MAN:0] sum
);
    localparam int BITS = 1 + EXP + MAN;
    // A significand: the hidden bit, the fraction, and the guard, round and sticky bits.
    localparam int SIG = MAN + 4;
    localparam int SHIFT = $clog2(SIG + 1);
    localparam logic [EXP-1:0] EXP_MAX = '1;
    localparam logic [BITS-1:0] QUIET_NAN = {1'b0, EXP_MAX, 1'b1, {(MAN - 1) {1'b0}}};

    // Stage 1: the operand of the larger magnitude becomes `greater`. What is not finite is decided here.
    logic a_nan, b_nan, a_inf, b_inf, swap;
    logic [EXP-1:0] a_exp, b_exp, greater_exp, lesser_exp;
    logic [BITS-1:0] greater;
    logic [BITS-2:0] lesser;  // without its sign, which does not matter
    assign a_exp = a[MAN+:EXP];
    assign b_exp = b[MAN+:EXP];
    assign a_nan = a_exp == EXP_MAX && a[MAN-1:0] != '0;
    assign b_nan = b_exp == EXP_MAX && b[MAN-1:0] != '0;
    assign a_inf = a_exp == EXP_MAX && a[MAN-1:0] == '0;
    assign b_inf = b_exp == EXP_MAX && b[MAN-1:0] == '0;
    assign swap = a[BITS-2:0] < b[BITS-2:0];
    assign greater = swap ? b : a;
    assign lesser = swap ? a[BITS-2:0] : b[BITS-2:0];
    // A subnormal has the exponent of the least normal number, and no hidden bit.
    assign greater_exp = greater[MAN+:EXP] == '0 ? EXP'(1) : greater[MAN+:EXP];
    assign lesser_exp = lesser[MAN+:EXP] == '0 ? EXP'(1) : lesser[MAN+:EXP];

    logic s1_sign, s1_subtract, s1_special;
    logic [BITS-1:0] s1_value;
    logic [EXP-1:0] s1_exp, s1_distance;
    logic [MAN:0] s1_greater, s1_lesser;
    always_ff @(posedge clk) begin
        s1_sign <= greater[BITS-1];
        s1_subtract <= a[BITS-1] != b[BITS-1];
        s1_special <= a_nan || b_nan || a_inf || b_inf;
        s1_value <= (a_nan || b_nan || (a_inf && b_inf && a[BITS-1] != b[BITS-1])) ? QUIET_NAN : greater;
        s1_exp <= greater_exp;
        s1_distance <= greater_exp - lesser_exp;
        s1_greater <= {greater[MAN+:EXP] != '0, greater[MAN-1:0]};
        s1_lesser <= {lesser[MAN+:EXP] != '0, lesser[MAN-1:0]};
    end

    // Stage 2: the smaller significand is shifted to the larger one's exponent; bits that fall off are kept as the
    // sticky bit. Then the two are added or subtracted.
    logic [SHIFT-1:0] shift;
    logic [2*SIG-1:0] shifted;
    logic [SIG-1:0] aligned;
    assign shift = 32'(s1_distance) >= 32'(SIG) ? SHIFT'(SIG) : SHIFT'(s1_distance);
    assign shifted = {s1_lesser, 3'b000, {SIG{1'b0}}} >> shift;
    assign aligned = {shifted[2*SIG-1:SIG+1], shifted[SIG] || (shifted[SIG-1:0] != '0)};

    logic s2_sign, s2_subtract, s2_special;
    logic [BITS-1:0] s2_value;
    logic [EXP-1:0] s2_exp;
    logic [SIG:0] s2_sum;
    always_ff @(posedge clk) begin
        s2_sign <= s1_sign;
        s2_subtract <= s1_subtract;
        s2_special <= s1_special;
        s2_value <= s1_value;
        s2_exp <= s1_exp;
        s2_sum <= s1_subtract ? {1'b0, s1_greater, 3'b000} - {1'b0, aligned} :
            {1'b0, s1_greater, 3'b000} + {1'b0, aligned};
    end

    // Stage 3: the sum is shifted so that its first bit is the hidden bit: right by one after a carry, else left,
    // at most to the exponent of subnormals.
    logic [SHIFT-1:0] zeros, left;
    logic [SIG-1:0] normal;
    logic [EXP-1:0] limit;
    always_comb begin
        zeros = SHIFT'(SIG);
        for (int i = 0; i < SIG; i++) if (s2_sum[i]) zeros = SHIFT'(SIG - 1 - i);
    end
    assign limit = s2_exp - EXP'(1);
    assign left = 32'(limit) < 32'(zeros) ? SHIFT'(limit) : zeros;
    assign normal = s2_sum[SIG] ? {s2_sum[SIG:2], s2_sum[1] | s2_sum[0]} : s2_sum[SIG-1:0] << left;

    logic s3_sign, s3_special;
    logic [BITS-1:0] s3_value;
    logic [EXP:0] s3_exp;
    logic [SIG-1:0] s3_sum;
    always_ff @(posedge clk) begin
        // A difference of zero is positive; two negative zeros are one.
        s3_sign <= s2_sign && !(s2_subtract && s2_sum == '0);
        s3_special <= s2_special;
        s3_value <= s2_value;
        s3_exp <= s2_sum[SIG] ? {1'b0, s2_exp} + (EXP + 1)'(1) : {1'b0, s2_exp} - (EXP + 1)'(left);
        s3_sum <= normal;
    end

    // Stage 4: rounding. A carry out of the fraction moves the exponent on, also from the subnormals to the
    // normals.
    logic round_up;
    logic [EXP:0] biased;
    logic [EXP+MAN:0] rounded;
    assign round_up = s3_sum[2] && (s3_sum[3] || s3_sum[1] || s3_sum[0]);
    assign biased = s3_sum[SIG-1] ? s3_exp : '0;
    assign rounded = {biased, s3_sum[SIG-2:3]} + (EXP + MAN + 1)'(round_up);

    always_ff @(posedge clk) begin
        if (s3_special) sum <= s3_value;
        else if (rounded[EXP+MAN:MAN] >= {1'b0, EXP_MAX}) sum <= {s3_sign, EXP_MAX, {MAN{1'b0}}};
        else sum <= {s3_sign, rounded[EXP+MAN-1:0]};
    end

`ifdef FORMAL
    // What each stage must do, for all values of its registers: `tests/proof.py` proves it.
    logic [SIG-1:0] bit_by_bit;
    logic [SIG:0] exact, rounded_sum;
    always_comb begin
        // Stage 1: both operands are there, the larger magnitude first.
        assert (greater[BITS-2:0] >= lesser);
        assert ((greater == a && lesser == b[BITS-2:0]) || (greater == b && lesser == a[BITS-2:0]));

        // Stage 2: as if the significand were shifted a bit at a time, and the last bit kept what falls off.
        bit_by_bit = {s1_lesser, 3'b000};
        for (int i = 0; i < SIG; i++)
            if (32'(s1_distance) > i) bit_by_bit = {1'b0, bit_by_bit[SIG-1:2], bit_by_bit[1] | bit_by_bit[0]};
        assert (aligned == bit_by_bit);

        // Stage 3: no bit is lost, and the first bit is the hidden bit, unless the number is zero or subnormal.
        if (!s2_sum[SIG]) begin
            assert (normal >> left == s2_sum[SIG-1:0]);
            assert (normal[SIG-1] || s2_sum == '0 || left == SHIFT'(limit));
        end

        // Stage 4: the nearest, and of two the even one. The last three bits are below the fraction.
        exact = {1'b0, s3_sum};
        rounded_sum = {({1'b0, s3_sum[SIG-1:3]} + (SIG - 2)'(round_up)), 3'b000};
        assert (rounded_sum + (SIG + 1)'(4) >= exact && exact + (SIG + 1)'(4) >= rounded_sum);
        if (s3_sum[2:0] == 3'd4) assert (!rounded_sum[3]);
    end
`endif
endmodule
