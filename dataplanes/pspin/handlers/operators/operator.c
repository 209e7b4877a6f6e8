/* An operator of a job's own on a core of PsPIN: a module of WebAssembly, made C by `wasm2c --module-name=operator`, and what it needs.
 *
 * `prepare` makes its memory, with so many bytes behind it for vectors, and says where they begin; `combine` is the module's.
 * crates/sim/src/cores/operators/count.rs has the same addresses. */
#include MODULE

#define MEMORY ((uint8_t *)0x10002000u)
#define MEMORY_BYTES (0x000f8000u)
#define PAGE 0x10000u

static Z_operator_instance_t instance;
uint32_t wasm_rt_call_stack_depth;

void wasm_rt_trap(wasm_rt_trap_t trap)
{
	(void)trap;
	for (;;)
		__asm__ volatile("ebreak");
}

bool wasm_rt_is_initialized(void)
{
	return true;
}

uint32_t wasm_rt_register_func_type(uint32_t params, uint32_t results, ...)
{
	static uint32_t types;
	(void)params;
	(void)results;
	return ++types;
}

void wasm_rt_allocate_memory(wasm_rt_memory_t *memory, uint32_t initial_pages, uint32_t max_pages)
{
	*memory = (wasm_rt_memory_t){ MEMORY, initial_pages, max_pages, initial_pages * PAGE };
	if (memory->size > MEMORY_BYTES)
		wasm_rt_trap(WASM_RT_TRAP_OOB);
}

uint32_t wasm_rt_grow_memory(wasm_rt_memory_t *memory, uint32_t pages)
{
	(void)memory;
	(void)pages;
	return 0xffffffffu;
}

void wasm_rt_free_memory(wasm_rt_memory_t *memory)
{
	(void)memory;
}

/* Tables of functions lie in a pool: an operator has one at most. */
void wasm_rt_allocate_funcref_table(wasm_rt_funcref_table_t *table, uint32_t elements, uint32_t max_elements)
{
	static wasm_rt_funcref_t pool[64];
	if (elements > 64)
		wasm_rt_trap(WASM_RT_TRAP_EXHAUSTION);
	*table = (wasm_rt_funcref_table_t){ pool, max_elements, elements };
}

void wasm_rt_free_funcref_table(wasm_rt_funcref_table_t *table)
{
	(void)table;
}

void *memcpy(void *to, const void *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at++)
		((uint8_t *)to)[at] = ((const uint8_t *)from)[at];
	return to;
}

void *memmove(void *to, const void *from, size_t bytes)
{
	if ((uintptr_t)to <= (uintptr_t)from)
		return memcpy(to, from, bytes);
	while (bytes--)
		((uint8_t *)to)[bytes] = ((const uint8_t *)from)[bytes];
	return to;
}

void *memset(void *to, int value, size_t bytes)
{
	for (size_t at = 0; at < bytes; at++)
		((uint8_t *)to)[at] = (uint8_t)value;
	return to;
}

/* Floats without a fraction stay; the others fit into a word. Rounding keeps the sign of zero. */
#define HAS_FRACTION_F(x) (__builtin_fabsf(x) < 8388608.0f)

float truncf(float x)
{
	return HAS_FRACTION_F(x) ? __builtin_copysignf((float)(int32_t)x, x) : x;
}

float floorf(float x)
{
	float whole = truncf(x);
	return whole > x ? whole - 1.0f : whole;
}

float ceilf(float x)
{
	float whole = truncf(x);
	return whole < x ? __builtin_copysignf(whole + 1.0f, x) : whole;
}

float nearbyintf(float x)
{
	if (!HAS_FRACTION_F(x))
		return x;
	int32_t whole;
	__asm__("fcvt.w.s %0, %1, rne" : "=r"(whole) : "f"(x));
	return __builtin_copysignf((float)whole, x);
}

#define HAS_FRACTION_D(x) (__builtin_fabs(x) < 4503599627370496.0)

double trunc(double x)
{
	return HAS_FRACTION_D(x) ? __builtin_copysign((double)(int64_t)x, x) : x;
}

double floor(double x)
{
	double whole = trunc(x);
	return whole > x ? whole - 1.0 : whole;
}

double ceil(double x)
{
	double whole = trunc(x);
	return whole < x ? __builtin_copysign(whole + 1.0, x) : whole;
}

/* Adding and subtracting 2^52 rounds to even. */
double nearbyint(double x)
{
	if (!HAS_FRACTION_D(x))
		return x;
	double size = __builtin_fabs(x);
	volatile double sum = size + 4503599627370496.0;
	return __builtin_copysign(sum - 4503599627370496.0, x);
}

void prepare(uint32_t bytes, uint32_t *first)
{
	Z_operator_init_module();
	Z_operator_instantiate(&instance);
	wasm_rt_memory_t *memory = Z_operatorZ_memory(&instance);
	*first = memory->size;
	memory->size += bytes;
	if (memory->size > MEMORY_BYTES)
		wasm_rt_trap(WASM_RT_TRAP_OOB);
}

void combine(uint32_t accumulator, uint32_t with, uint32_t elements)
{
	Z_operatorZ_combine(&instance, accumulator, with, elements);
}
