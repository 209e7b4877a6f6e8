/* Sparse blocks: packets bring pairs of an index in the block and a value, in as many shards as they need.
 *
 * `hash_T` keeps a block in a table without probing: the first comer keeps the slot `index mod slots`, the same index is added to
 * it, and any other spills into a packet that is sent as soon as it is full. `array_T` keeps the whole span, with a bit for
 * each cell that says that something is there, and looks through all of it at the end. A child's shard counts once; the one that
 * ends a child says how many there are. */
#include "pairs.h"
#include "runtime.h"

/* The header of a packet. Indices follow, then from the next word on as many values. */
struct pairs {
	uint32_t block;
	uint16_t child, count;
	uint16_t shard, shards; /* shards: how many there are, in the last one; else zero */
};

#define MOST_CHILDREN 32

struct shards {
	uint32_t seen[2]; /* a bit for each of up to 64 */
	uint32_t received, expected;
};

struct block {
	uint32_t lock;
	uint32_t done; /* children */
	uint32_t spilled; /* pairs in the packet of spilled ones */
	uint32_t sent; /* shards */
	struct shards of[MOST_CHILDREN];
};

struct job {
	uint32_t children;
	uint32_t mask; /* blocks at a time, a power of two, less one */
	uint32_t child; /* who we are to the parent */
	uint32_t destination;
	uint8_t *blocks;
	uint32_t block_bytes;
	uint32_t places; /* slots of the table, a power of two; or the span, a multiple of 32 */
	uint32_t capacity; /* pairs of a packet, even */
	uint32_t keys_at, values_at, spill_at, out_at; /* where a block has them, from its beginning */
};

static inline uint16_t *indices_of(struct pairs *packet)
{
	return (uint16_t *)(packet + 1);
}

/* Where values begin behind so many indices. */
static inline void *values_of(struct pairs *packet, uint32_t count)
{
	return (uint8_t *)(packet + 1) + (count + 1) / 2 * 4;
}

/* Notes a shard; false if it has come before. */
static inline int is_new(struct block *block, const struct pairs *packet)
{
	struct shards *shards = &block->of[packet->child];
	uint32_t word = packet->shard >> 5, bit = 1u << (packet->shard & 31);
	if (shards->seen[word] & bit)
		return 0;
	shards->seen[word] |= bit;
	shards->received++;
	if (packet->shards)
		shards->expected = packet->shards;
	if (shards->received == shards->expected)
		block->done++;
	return 1;
}

/* Copies words to where some of them may still lie. */
static void move_down(uint32_t *to, const uint32_t *from, uint32_t words)
{
	for (; words; words--)
		*to++ = *from++;
}

/* Sends a packet of pairs whose values lie behind as many indices as a full one has. */
static __attribute__((noinline)) void publish(const struct job *job, struct block *block, struct pairs *packet, uint32_t block_number,
		    uint32_t count, uint32_t size, int ends)
{
	if (count != job->capacity) {
		if (count % 2)
			indices_of(packet)[count] = 0; /* nothing old goes out */
		move_down(values_of(packet, count), values_of(packet, job->capacity), (count * size + 3) / 4);
	}
	uint32_t shard = block->sent++;
	packet->block = block_number;
	packet->child = job->child;
	packet->count = count;
	packet->shard = shard;
	packet->shards = ends ? shard + 1 : 0;
	uint32_t bytes = (uintptr_t)values_of(packet, count) - (uintptr_t)packet + count * size;
	send(packet, bytes, job->destination);
	wait_for_commands();
}

/* Everything about a block begins anew. */
static void forget(const struct job *job, struct block *block)
{
	block->done = 0;
	block->spilled = 0;
	block->sent = 0;
	for (uint32_t child = 0; child < job->children; child++)
		block->of[child] = (struct shards){ 0 };
}

#define DEFINE_HANDLERS(T)                                                                     \
	/* A packet that is being filled. */                                                   \
	struct out_##T {                                                                       \
		struct pairs *packet;                                                          \
		uint16_t *indices;                                                             \
		T *values;                                                                     \
		uint32_t count;                                                                \
	};                                                                                     \
                                                                                               \
	static inline struct out_##T begin_##T(const struct job *job, struct block *block, uint32_t at, uint32_t count) \
	{                                                                                      \
		struct pairs *packet = (struct pairs *)((uint8_t *)block + at);                \
		return (struct out_##T){ packet, indices_of(packet), values_of(packet, job->capacity), count }; \
	}                                                                                      \
                                                                                               \
	/* Adds a pair behind the others; a packet that was full goes first. */                \
	static inline void put_##T(const struct job *job, struct block *block, struct out_##T *out, uint32_t number, \
				   uint32_t index, T value)                                    \
	{                                                                                      \
		if (out->count == job->capacity) {                                             \
			publish(job, block, out->packet, number, out->count, sizeof(T), 0);    \
			out->count = 0;                                                        \
		}                                                                              \
		out->indices[out->count] = index;                                              \
		out->values[out->count] = value;                                               \
		out->count++;                                                                  \
	}                                                                                      \
                                                                                               \
	static inline void spill_##T(const struct job *job, struct block *block, uint32_t number, uint32_t index, T value) \
	{                                                                                      \
		struct out_##T out = begin_##T(job, block, job->spill_at, block->spilled);     \
		out.indices[out.count] = index;                                                \
		out.values[out.count] = value;                                                 \
		block->spilled = ++out.count;                                                  \
		if (out.count == job->capacity) {                                              \
			publish(job, block, out.packet, number, out.count, sizeof(T), 0);      \
			block->spilled = 0;                                                    \
		}                                                                              \
	}                                                                                      \
                                                                                               \
	/* What has spilled and was not sent goes on in the first packet; the table follows. */ \
	static __attribute__((noinline)) void end_hash_##T(const struct job *job, struct block *block, uint32_t number) \
	{                                                                                      \
		uint32_t *key = (uint32_t *)((uint8_t *)block + job->keys_at), *end = key + job->places; \
		const T *value = (const T *)((uint8_t *)block + job->values_at);               \
		struct out_##T out = begin_##T(job, block, job->spill_at, block->spilled);     \
		for (; key != end; key++, value++) {                                           \
			if (*key) {                                                            \
				put_##T(job, block, &out, number, (uint16_t)*key, *value);     \
				*key = 0;                                                      \
			}                                                                      \
		}                                                                              \
		publish(job, block, out.packet, number, out.count, sizeof(T), 1);              \
		forget(job, block);                                                            \
	}                                                                                      \
                                                                                               \
	static __attribute__((noinline)) void end_array_##T(const struct job *job, struct block *block, uint32_t number) \
	{                                                                                      \
		uint32_t *present = (uint32_t *)((uint8_t *)block + job->keys_at);             \
		const T *values = (const T *)((uint8_t *)block + job->values_at);              \
		struct out_##T out = begin_##T(job, block, job->out_at, 0);                    \
		for (uint32_t first = 0; first < job->places; first += 32) {                   \
			uint32_t bits = *present;                                              \
			*present++ = 0;                                                        \
			for (uint32_t place = first; place < first + 32; place++, bits <<= 1)  \
				if (__builtin_expect((bits & FIRST) != 0, 0))                  \
					put_##T(job, block, &out, number, place, values[place]); \
		}                                                                              \
		publish(job, block, out.packet, number, out.count, sizeof(T), 1);              \
		forget(job, block);                                                            \
	}                                                                                      \
                                                                                               \
	void hash_##T(struct pairs *packet, const struct job *job)                             \
	{                                                                                      \
		uint32_t number = packet->block;                                               \
		struct block *block = (struct block *)(job->blocks + (number & job->mask) * job->block_bytes); \
		lock(&block->lock);                                                            \
		if (is_new(block, packet)) {                                                   \
			uint32_t *keys = (uint32_t *)((uint8_t *)block + job->keys_at), mask = job->places - 1; \
			T *values = (T *)((uint8_t *)block + job->values_at);                  \
			const uint16_t *next = indices_of(packet), *end = next + packet->count; \
			const T *value = values_of(packet, packet->count);                     \
			uint32_t index;                                                        \
			T what;                                                                \
			while (next != end && table_add_##T(&next, end, &value, keys, values, mask, &index, &what)) \
				spill_##T(job, block, number, index, what);                    \
			if (block->done == job->children)                                      \
				end_hash_##T(job, block, number);                              \
		}                                                                              \
		unlock(&block->lock);                                                          \
	}                                                                                      \
                                                                                               \
	void array_##T(struct pairs *packet, const struct job *job)                            \
	{                                                                                      \
		uint32_t number = packet->block;                                               \
		struct block *block = (struct block *)(job->blocks + (number & job->mask) * job->block_bytes); \
		lock(&block->lock);                                                            \
		if (is_new(block, packet)) {                                                   \
			uint32_t *present = (uint32_t *)((uint8_t *)block + job->keys_at);     \
			T *values = (T *)((uint8_t *)block + job->values_at);                  \
			const uint16_t *next = indices_of(packet), *end = next + packet->count; \
			const T *value = values_of(packet, packet->count);                     \
			if (next != end)                                                       \
				array_add_##T(next, end, value, present, values);              \
			if (block->done == job->children)                                      \
				end_array_##T(job, block, number);                             \
		}                                                                              \
		unlock(&block->lock);                                                          \
	}

DEFINE_HANDLERS(f32)
DEFINE_HANDLERS(f16)
DEFINE_HANDLERS(i32)
DEFINE_HANDLERS(i16)
DEFINE_HANDLERS(i8)
