/* Vectors of elements: copying one, and adding one to another. In C, or with XPULP in what RI5CY has for it.
 *
 * Vectors begin at words. */
#ifndef VECTORS_H
#define VECTORS_H

#include "elements.h"

#define KERNEL static __attribute__((noinline))
#define UNROLLED _Pragma("GCC unroll 4")

#ifndef XPULP

KERNEL void copy_words(uint32_t *restrict to, const uint32_t *restrict from, uint32_t words)
{
	UNROLLED for (uint32_t at = 0; at < words; at++)
		to[at] = from[at];
}

#define DEFINE_COMBINE(T)                                                                  \
	KERNEL void combine_##T(T *restrict sum, const T *restrict in, uint32_t count)     \
	{                                                                                  \
		UNROLLED for (uint32_t at = 0; at < count; at++)                           \
			sum[at] = plus_##T(sum[at], in[at]);                               \
	}

DEFINE_COMBINE(f32)
DEFINE_COMBINE(f16)
DEFINE_COMBINE(i32)
DEFINE_COMBINE(i16)
DEFINE_COMBINE(i8)

#else

/* Instructions that the assembler does not know, by RI5CY's encodings. A loop's length is in halves of a word. */
#define LP_SETUP(count, instructions) ".insn i 0x7b, 4, x0, " count ", 2 * " #instructions "\n"
#define P_LW(to, by, from) ".insn i 0x0b, 2, " to ", " from ", " #by "\n"
#define P_SW(from, by, to) ".insn s 0x2b, 2, " from ", " #by "(" to ")\n"
#define ADD_WORD(sum, a, b) "add " sum ", " a ", " b "\n"
#define PV_ADD_H(sum, a, b) ".insn r 0x57, 0, 0, " sum ", " a ", " b "\n"
#define FADD_S(sum, a, b) "fadd.s " sum ", " a ", " b "\n"
#define PV_ADD_B(sum, a, b) ".insn r 0x57, 1, 0, " sum ", " a ", " b "\n"

KERNEL void copy_words(uint32_t *to, const uint32_t *from, uint32_t words)
{
	uint32_t pairs = words / 2, a, b;
	if (pairs)
		__asm__ volatile(LP_SETUP("%4", 4)
				 P_LW("%2", 4, "%0") P_LW("%3", 4, "%0") P_SW("%2", 4, "%1") P_SW("%3", 4, "%1")
				 : "+r"(from), "+r"(to), "=&r"(a), "=&r"(b) : "r"(pairs) : "memory");
	if (words % 2)
		*to = *from;
}

/* Two words a round: the loads are early enough that nobody waits for them. What is left of the vector is added in C. */
#define DEFINE_COMBINE(T, ADD)                                                             \
	KERNEL void combine_##T(T *sum, const T *in, uint32_t count)                       \
	{                                                                                  \
		uint32_t pairs = count * sizeof(T) / 8, a, b, c, d;                        \
		if (pairs)                                                                 \
			__asm__ volatile(LP_SETUP("%6", 8)                                 \
					 P_LW("%2", 4, "%0") "lw %3, 0(%1)\n"              \
					 P_LW("%4", 4, "%0") "lw %5, 4(%1)\n"              \
					 ADD("%2", "%2", "%3") ADD("%4", "%4", "%5")       \
					 P_SW("%2", 4, "%1") P_SW("%4", 4, "%1")           \
					 : "+r"(in), "+r"(sum), "=&r"(a), "=&r"(b), "=&r"(c), "=&r"(d) \
					 : "r"(pairs) : "memory");                         \
		for (uint32_t left = count % (8 / sizeof(T)); left; left--)                \
			*sum++ += *in++;                                                   \
	}

DEFINE_COMBINE(i32, ADD_WORD)
DEFINE_COMBINE(i16, PV_ADD_H)
DEFINE_COMBINE(i8, PV_ADD_B)

/* Floats have no access with post-increment, but registers enough for eight words a round. */
#define DEFINE_COMBINE_FLOATS(T, ADD)                                                      \
	KERNEL void combine_##T(T *sum, const T *in, uint32_t count)                       \
	{                                                                                  \
		uint32_t rounds = count / (32 / sizeof(T));                                \
		if (rounds)                                                                \
			__asm__ volatile(LP_SETUP("%2", 34)                                \
				 "flw ft0, 0(%0)\n flw ft1, 4(%0)\n flw ft2, 8(%0)\n flw ft3, 12(%0)\n" \
				 "flw ft4, 16(%0)\n flw ft5, 20(%0)\n flw ft6, 24(%0)\n flw ft7, 28(%0)\n" \
				 "flw fa0, 0(%1)\n flw fa1, 4(%1)\n flw fa2, 8(%1)\n flw fa3, 12(%1)\n" \
				 "flw fa4, 16(%1)\n flw fa5, 20(%1)\n flw fa6, 24(%1)\n flw fa7, 28(%1)\n" \
				 "addi %0, %0, 32\n"                                       \
				 ADD("fa0", "fa0", "ft0") ADD("fa1", "fa1", "ft1")         \
				 ADD("fa2", "fa2", "ft2") ADD("fa3", "fa3", "ft3")         \
				 ADD("fa4", "fa4", "ft4") ADD("fa5", "fa5", "ft5")         \
				 ADD("fa6", "fa6", "ft6") ADD("fa7", "fa7", "ft7")         \
				 "fsw fa0, 0(%1)\n fsw fa1, 4(%1)\n fsw fa2, 8(%1)\n fsw fa3, 12(%1)\n" \
				 "fsw fa4, 16(%1)\n fsw fa5, 20(%1)\n fsw fa6, 24(%1)\n fsw fa7, 28(%1)\n" \
				 "addi %1, %1, 32\n"                                       \
				 : "+r"(in), "+r"(sum) : "r"(rounds)                       \
				 : "memory", "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", \
				   "fa0", "fa1", "fa2", "fa3", "fa4", "fa5", "fa6", "fa7"); \
		for (uint32_t left = count % (32 / sizeof(T)); left; left--, sum++)        \
			*sum = plus_##T(*sum, *in++);                                      \
	}

DEFINE_COMBINE_FLOATS(f32, FADD_S)
DEFINE_COMBINE_FLOATS(f16, VFADD_H)

#endif
#endif
