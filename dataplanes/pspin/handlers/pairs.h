/* Taking pairs into a table or an array: in C, or with XPULP in what RI5CY has for it.
 *
 * `table_add_T` stops at a pair that collides and says so; the caller spills it and goes on. `array_add_T` takes in all. Both move
 * `next` and `value` on behind what they have taken. There are some pairs. */
#ifndef PAIRS_H
#define PAIRS_H

#include "elements.h"

/* What is in a slot, besides its index. */
#define PRESENT 0x10000u
/* The bit of a word's first cell: the sign, which a branch sees. */
#define FIRST 0x80000000u

#ifndef XPULP

/* Keeps the compiler from taking an address apart again in a loop. */
#define AS_IT_IS(pointer) __asm__("" : "+r"(pointer))

#define DEFINE_PAIRS(T)                                                                        \
	static inline int table_add_##T(const uint16_t **next, const uint16_t *end, const T **value, uint32_t *keys, \
					T *values, uint32_t mask, uint32_t *index, T *what)    \
	{                                                                                      \
		AS_IT_IS(keys);                                                                \
		AS_IT_IS(values);                                                              \
		do {                                                                           \
			*index = *(*next)++;                                                   \
			*what = *(*value)++;                                                   \
			uint32_t place = *index & mask, key = keys[place];                     \
			if (key == (*index | PRESENT)) {                                       \
				values[place] = plus_##T(values[place], *what);                \
			} else if (!key) {                                                     \
				keys[place] = *index | PRESENT;                                \
				values[place] = *what;                                         \
			} else {                                                               \
				return 1;                                                      \
			}                                                                      \
		} while (*next != end);                                                        \
		return 0;                                                                      \
	}                                                                                      \
                                                                                               \
	static inline void array_add_##T(const uint16_t *next, const uint16_t *end, const T *value, uint32_t *present, \
					 T *values)                                            \
	{                                                                                      \
		AS_IT_IS(present);                                                             \
		AS_IT_IS(values);                                                              \
		do {                                                                           \
			uint32_t index = *next++, bit = FIRST >> (index & 31);                 \
			uint32_t *word = &present[index >> 5], bits = *word;                   \
			T what = *value++;                                                     \
			if (bits & bit) {                                                      \
				values[index] = plus_##T(values[index], what);                 \
			} else {                                                               \
				*word = bits | bit;                                            \
				values[index] = what;                                          \
			}                                                                      \
		} while (next != end);                                                         \
	}

DEFINE_PAIRS(f32)
DEFINE_PAIRS(f16)
DEFINE_PAIRS(i32)
DEFINE_PAIRS(i16)
DEFINE_PAIRS(i8)

#else

/* Instructions that the assembler does not know, by RI5CY's encodings: with post-increment, and with a register as offset. */
#define NEXT_INDEX ".insn i 0x0b, 5, %[index], %[next], 2\n"
#define P_LW_KEY ".insn r 0x03, 7, 0x10, %[key], %[keys], %[at]\n"
#define P_SW(from, base) ".insn r 0x23, 6, 0, %[at], %[" base "], %[" from "]\n"

/* Of each type: the next value; its address from a place in %[at], as an offset or as it is; the sum there; and back again. */
#define NEXT_f32 "flw %[what], 0(%[value])\n addi %[value], %[value], 4\n"
#define AT_f32 "slli %[at], %[place], 2\n add %[at], %[at], %[values]\n"
#define LOAD_f32 "flw %[sum], 0(%[at])\n"
#define ADD_f32 "fadd.s %[sum], %[sum], %[what]\n"
#define STORE_f32(from) "fsw %[" from "], 0(%[at])\n"

#define NEXT_i32 ".insn i 0x0b, 2, %[what], %[value], 4\n"
#define AT_i32 "slli %[at], %[place], 2\n"
#define LOAD_i32 ".insn r 0x03, 7, 0x10, %[sum], %[values], %[at]\n"
#define ADD_i32 "add %[sum], %[sum], %[what]\n"
#define STORE_i32(from) P_SW(from, "values")

#define NEXT_i16 ".insn i 0x0b, 5, %[what], %[value], 2\n"
#define AT_i16 "slli %[at], %[place], 1\n"
#define LOAD_i16 ".insn r 0x03, 7, 0x28, %[sum], %[values], %[at]\n"
#define ADD_i16 ADD_i32
#define STORE_i16(from) ".insn r 0x23, 5, 0, %[at], %[values], %[" from "]\n"

#define NEXT_f16 NEXT_i16
#define AT_f16 AT_i16
#define LOAD_f16 LOAD_i16
#define ADD_f16 ADD_HALF("%[sum]", "%[sum]", "%[what]")
#define STORE_f16(from) STORE_i16(from)

#define NEXT_i8 ".insn i 0x0b, 4, %[what], %[value], 1\n"
#define AT_i8 "mv %[at], %[place]\n"
#define LOAD_i8 ".insn r 0x03, 7, 0x20, %[sum], %[values], %[at]\n"
#define ADD_i8 ADD_i32
#define STORE_i8(from) ".insn r 0x23, 4, 0, %[at], %[values], %[" from "]\n"

#define DEFINE_PAIRS(T, CONSTRAINT)                                                            \
	static inline int table_add_##T(const uint16_t **next, const uint16_t *end, const T **value, uint32_t *keys, \
					T *values, uint32_t mask, uint32_t *index, T *what)    \
	{                                                                                      \
		uint32_t key, wanted, place, at;                                               \
		T sum;                                                                         \
		__asm__ volatile("1:\n" NEXT_INDEX NEXT_##T                                    \
				 "and %[place], %[index], %[mask]\n"                           \
				 "slli %[at], %[place], 2\n" P_LW_KEY                          \
				 "or %[wanted], %[index], %[present]\n" AT_##T LOAD_##T        \
				 "bne %[key], %[wanted], 2f\n" ADD_##T STORE_##T("sum")        \
				 "bne %[next], %[end], 1b\n"                                   \
				 "li %[key], 0\n j 3f\n"                                       \
				 "2: bnez %[key], 3f\n" STORE_##T("what")                      \
				 "slli %[at], %[place], 2\n" P_SW("wanted", "keys")            \
				 "bne %[next], %[end], 1b\n"                                   \
				 "3:\n"                                                        \
				 : [next] "+r"(*next), [value] "+r"(*value), [index] "=&r"(*index), \
				   [what] "=&" CONSTRAINT(*what), [sum] "=&" CONSTRAINT(sum),  \
				   [key] "=&r"(key), [wanted] "=&r"(wanted), [place] "=&r"(place), [at] "=&r"(at) \
				 : [end] "r"(end), [keys] "r"(keys), [values] "r"(values), [mask] "r"(mask), \
				   [present] "r"(PRESENT)                                      \
				 : "memory", "ft0", "ft1");                                    \
		return key != 0;                                                               \
	}                                                                                      \
                                                                                               \
	static inline void array_add_##T(const uint16_t *next, const uint16_t *end, const T *value, uint32_t *present, \
					 T *values)                                            \
	{                                                                                      \
		uint32_t bits, bit, is_there, word, place, at;                                           \
		T what, sum;                                                                   \
		__asm__ volatile("1:\n" ".insn i 0x0b, 5, %[place], %[next], 2\n" NEXT_##T     \
				 "srli %[word], %[place], 5\n slli %[word], %[word], 2\n"      \
				 ".insn r 0x03, 7, 0x10, %[bits], %[present], %[word]\n"       \
				 "srl %[bit], %[first], %[place]\n" AT_##T                     \
				 "and %[is_there], %[bits], %[bit]\n"                      \
				 "bnez %[is_there], 2f\n"                                  \
				 "or %[bits], %[bits], %[bit]\n"                               \
				 ".insn r 0x23, 6, 0, %[word], %[present], %[bits]\n"          \
				 STORE_##T("what")                                             \
				 "bne %[next], %[end], 1b\n j 3f\n"                            \
				 "2:" LOAD_##T ADD_##T STORE_##T("sum")                \
				 "bne %[next], %[end], 1b\n"                                   \
				 "3:\n"                                                        \
				 : [next] "+r"(next), [value] "+r"(value), [what] "=&" CONSTRAINT(what), \
				   [sum] "=&" CONSTRAINT(sum), [bits] "=&r"(bits), [bit] "=&r"(bit), \
				   [is_there] "=&r"(is_there), [word] "=&r"(word), [place] "=&r"(place), [at] "=&r"(at) \
				 : [end] "r"(end), [present] "r"(present), [values] "r"(values), [first] "r"(FIRST) \
				 : "memory", "ft0", "ft1");                                    \
	}

DEFINE_PAIRS(f32, "f")
DEFINE_PAIRS(f16, "r")
DEFINE_PAIRS(i32, "r")
DEFINE_PAIRS(i16, "r")
DEFINE_PAIRS(i8, "r")

#endif
#endif
