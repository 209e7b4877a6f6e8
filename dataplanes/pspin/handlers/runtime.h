/* What a handler sees of a processing unit of PsPIN: locks, and a command unit that copies and sends.
 *
 * A handler is a function that gets a packet and its job and returns when it is done; nothing suspends it. Addresses are those of
 * `map` in ../src/unit.rs. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <stdint.h>

/* L1 is there twice: a load from its second place tests and sets the word. */
#define TEST_AND_SET 0x00100000u

/* A command is given by writing its kind, last. `pending` says how many have not been carried out yet. */
struct commands {
	uint32_t pending, source, destination, bytes, kind;
};

#define COMMANDS ((volatile struct commands *)0x1b000000u)
#define COMMANDS_IN_FLIGHT 4u

enum command_kind { SEND = 1, COPY = 2 };

/* Nothing moves over a lock. */
#define BARRIER() __asm__ volatile("" ::: "memory")

static inline int try_lock(uint32_t *lock)
{
	int is_ours = *(volatile uint32_t *)((uintptr_t)lock + TEST_AND_SET) == 0;
	BARRIER();
	return is_ours;
}

static inline void lock(uint32_t *lock)
{
	while (!try_lock(lock))
		;
}

static inline void unlock(uint32_t *lock)
{
	BARRIER();
	*(volatile uint32_t *)lock = 0;
}

static inline void command(enum command_kind kind, const void *source, uint32_t destination, uint32_t bytes)
{
	BARRIER();
	while (COMMANDS->pending >= COMMANDS_IN_FLIGHT)
		;
	COMMANDS->source = (uintptr_t)source;
	COMMANDS->destination = destination;
	COMMANDS->bytes = bytes;
	COMMANDS->kind = kind;
}

/* Waits until all that this core has asked for is done, and its memory can be used again. */
static inline void wait_for_commands(void)
{
	while (COMMANDS->pending)
		;
	BARRIER();
}

static inline void send(const void *packet, uint32_t bytes, uint32_t destination)
{
	command(SEND, packet, destination, bytes);
}

static inline void copy_by_dma(void *to, const void *from, uint32_t bytes)
{
	command(COPY, from, (uintptr_t)to, bytes);
	wait_for_commands();
}

#endif
