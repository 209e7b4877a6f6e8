/* Types of elements, and how two of them are added. */
#ifndef ELEMENTS_H
#define ELEMENTS_H

#include <stdint.h>

/* Integers wrap; they are unsigned here, so that C says so too. */
typedef float f32;
typedef uint32_t i32;
typedef uint16_t i16;
typedef uint8_t i8;
/* The bits of a binary16: this compiler's C has no such type. */
typedef uint16_t f16;

#define DEFINE_PLUS(T)                   \
	static inline T plus_##T(T a, T b) \
	{                                \
		return a + b;            \
	}

DEFINE_PLUS(f32)
DEFINE_PLUS(i32)
DEFINE_PLUS(i16)
DEFINE_PLUS(i8)

#ifdef XPULP

/* Two halves at a time, in registers of the FPU. */
#define VFADD_H(sum, a, b) ".insn r 0x33, 2, 0x41, " sum ", " a ", " b "\n"
/* One half, in registers of integers whose upper halves are zero. Takes ft0 and ft1. */
#define ADD_HALF(sum, a, b) \
	"fmv.w.x ft0, " a "\n fmv.w.x ft1, " b "\n" VFADD_H("ft0", "ft0", "ft1") "fmv.x.w " sum ", ft0\n"

static inline f16 plus_f16(f16 a, f16 b)
{
	uint32_t sum;
	__asm__(ADD_HALF("%0", "%1", "%2") : "=r"(sum) : "r"((uint32_t)a), "r"((uint32_t)b) : "ft0", "ft1");
	return sum;
}

#else

union float_bits {
	uint32_t bits;
	float value;
};

/* A half as a float: its exponent is moved by a product, which is right for subnormal ones too. */
static inline float widened(f16 half)
{
	const union float_bits scale = { (127 + 112) << 23 };
	union float_bits wide = { (half & 0x7fffu) << 13 };
	wide.value *= scale.value;
	if (wide.value >= 65536.0f)
		wide.bits |= 0xffu << 23; /* an infinity, or no number */
	wide.bits |= (half & 0x8000u) << 16;
	return wide.value;
}

/* The nearest half; of two that are as near, the even one. */
static inline f16 narrowed(float value)
{
	/* Of this size a float's last bit is a subnormal half's: the addition rounds. */
	const union float_bits as_subnormal = { (127 - 1) << 23 };
	union float_bits wide = { .value = value };
	uint32_t sign = wide.bits & 0x80000000u, half;
	wide.bits ^= sign;
	if (wide.bits >= (127 + 16) << 23) {
		half = wide.bits > 0xffu << 23 ? 0x7e00 : 0x7c00;
	} else if (wide.bits < (127 - 14) << 23) {
		wide.value += as_subnormal.value;
		half = wide.bits - as_subnormal.bits;
	} else {
		uint32_t odd = wide.bits >> 13 & 1;
		half = (wide.bits - ((127 - 15) << 23) + 0xfff + odd) >> 13;
	}
	return half | sign >> 16;
}

/* A float has more than twice a half's bits and two more, so that rounding twice is rounding once. */
static inline f16 plus_f16(f16 a, f16 b)
{
	return narrowed(widened(a) + widened(b));
}

#endif
#endif
