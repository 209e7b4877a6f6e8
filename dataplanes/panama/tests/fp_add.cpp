// Holds the adder against arithmetic that is not ours: for small formats an exact sum in double, rounded once by this
// file's own rounding, over all pairs; for binary32 the processor's addition, over all pairs of special numbers and over
// random pairs. Built once for each format, with EXP and MAN defined.
//
//   fp_add all            every pair of the format
//   fp_add random N SEED  N random pairs (binary32)
//   fp_add pairs          pairs of hexadecimal numbers from the input, their sums to the output
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "Vfp_add.h"
#include "verilated.h"

static constexpr int BITS = 1 + EXP + MAN;
static constexpr uint32_t EXP_MAX = (1u << EXP) - 1, INFINITE = EXP_MAX << MAN;
static constexpr uint32_t QUIET_NAN = INFINITE | 1u << (MAN - 1), SIGN = 1u << (BITS - 1);
static constexpr int LATENCY = 4;

static bool is_nan(uint32_t x) { return (x & ~SIGN) > INFINITE; }

// The value of a finite number of a small format.
static double value(uint32_t x) {
    int exponent = x >> MAN & EXP_MAX, bias = EXP_MAX / 2;
    double fraction = x & ((1u << MAN) - 1);
    double magnitude = exponent ? std::ldexp(fraction + (1u << MAN), exponent - bias - MAN)
                                : std::ldexp(fraction, 1 - bias - MAN);
    return x & SIGN ? -magnitude : magnitude;
}

// The nearest number of the format; of two as near, the even one.
static uint32_t nearest(double x) {
    uint32_t sign = std::signbit(x) ? SIGN : 0;
    int bias = EXP_MAX / 2, exponent;
    double magnitude = std::fabs(x);
    if (magnitude == 0) return sign;
    std::frexp(magnitude, &exponent);
    int unit = std::max(exponent - 1, 1 - bias) - MAN;
    uint64_t units = uint64_t(std::nearbyint(std::ldexp(magnitude, -unit)));
    uint64_t bits = units + (uint64_t(unit + MAN + bias - 1) << MAN);
    return sign | uint32_t(std::min<uint64_t>(bits, INFINITE));
}

static uint32_t reference(uint32_t a, uint32_t b) {
    if (is_nan(a) || is_nan(b)) return QUIET_NAN;
#if EXP == 8 && MAN == 23
    float x, y, z;
    std::memcpy(&x, &a, 4), std::memcpy(&y, &b, 4);
    z = x + y;
    uint32_t bits;
    std::memcpy(&bits, &z, 4);
    return is_nan(bits) ? QUIET_NAN : bits;
#else
    bool a_inf = (a & ~SIGN) == INFINITE, b_inf = (b & ~SIGN) == INFINITE;
    if (a_inf && b_inf && a != b) return QUIET_NAN;
    if (a_inf || b_inf) return a_inf ? a : b;
    return nearest(value(a) + value(b));
#endif
}

struct Pair {
    uint32_t a, b;
};

static Vfp_add adder;
static std::deque<Pair> under_way;
static uint64_t compared, wrong;
static bool prints;

static void judge(uint32_t sum) {
    Pair pair = under_way.front();
    under_way.pop_front();
    if (prints) {
        std::printf("%08x\n", sum);
        return;
    }
    compared++;
    uint32_t expected = reference(pair.a, pair.b);
    if (sum != expected && wrong++ < 10)
        std::printf("%08x + %08x = %08x, and not %08x\n", pair.a, pair.b, expected, sum);
}

static void clock_once(uint32_t a, uint32_t b) {
    adder.a = a, adder.b = b;
    adder.clk = 0, adder.eval();
    adder.clk = 1, adder.eval();
}

static void feed(uint32_t a, uint32_t b) {
    under_way.push_back({a, b});
    clock_once(a, b);
    if (under_way.size() == LATENCY) judge(adder.sum);
}

static void drain() {
    while (!under_way.empty()) {
        clock_once(0, 0);
        judge(adder.sum);
    }
}

static uint64_t state;
static uint64_t draw() {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9, z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

// Zeros, the ends of the subnormals and of the normals, ones, ties, infinities and NaNs, of both signs.
static std::vector<uint32_t> specials() {
    uint32_t one = (EXP_MAX / 2) << MAN, least = 1u << MAN;
    std::vector<uint32_t> found = {0, 1, 2, 3, least / 2, least - 1, least, least + 1, 2 * least, one - 1, one, one + 1,
                                   one + least, INFINITE - least, INFINITE - 2, INFINITE - 1, INFINITE, INFINITE + 1,
                                   QUIET_NAN, QUIET_NAN + 1, SIGN - 1};
    for (int step = 1; step <= MAN + 3 && step < int(EXP_MAX / 2); step++)
        for (uint32_t near : {one + step * least, one - step * least})
            for (int d : {-1, 0, 1}) found.push_back(near + d);
    for (size_t i = 0, n = found.size(); i < n; i++) found.push_back(found[i] | SIGN);
    return found;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!std::strcmp(what, "all")) {
        for (uint64_t a = 0; a < 1ull << BITS; a++)
            for (uint64_t b = 0; b < 1ull << BITS; b++) feed(a, b);
    } else if (!std::strcmp(what, "random") && argc == 4) {
        state = std::strtoull(argv[3], nullptr, 0);
        for (uint32_t a : specials())
            for (uint32_t b : specials()) feed(a, b);
        for (uint64_t n = std::strtoull(argv[2], nullptr, 0); n > 0; n--) {
            uint64_t bits = draw(), how = draw();
            uint32_t a = bits, b = bits >> 32, near = a >> 23 & 255;
            // Most random exponents lie so far apart that nothing is added: half of the pairs are within 32 of another.
            if (how & 1) near += uint32_t(how >> 1 & 63) - 32, b = (b & 0x807fffff) | (near & 255) << 23;
            feed(a & (BITS == 32 ? ~0u : (1u << (BITS & 31)) - 1), b & (BITS == 32 ? ~0u : (1u << (BITS & 31)) - 1));
        }
    } else if (!std::strcmp(what, "pairs")) {
        prints = true;
        for (uint32_t a, b; std::scanf("%x %x", &a, &b) == 2;) feed(a, b);
    } else {
        std::fprintf(stderr, "fp_add all | random N SEED | pairs\n");
        return 2;
    }
    drain();
    if (!prints) std::printf("%d exponent bits, %d fraction bits: %llu pairs, %llu wrong\n", EXP, MAN,
                             (unsigned long long)compared, (unsigned long long)wrong);
    return wrong > 0;
}
